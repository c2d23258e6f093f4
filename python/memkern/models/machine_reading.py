"""Reading of machine files."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import types
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from memkern import files
from memkern.checks import shown
from memkern.errors import InputError
from memkern.models.ecm import MEMORY, EcmLevel
from memkern.models.machine_file import (
    FORMAT,
    VERSION,
    Cost,
    EcmParameters,
    Level,
    MachineFile,
    Quantity,
)
from memkern.models.published_machines import PUBLISHED, published


def load_machine(path: str | Path) -> MachineFile:
    """Read a machine file.

    Parameters
    ----------
    path : path
        A file that `memkern machine -o` wrote, or the name of a published machine (`PUBLISHED`).

    Raises
    ------
    InputError
        It can't be read, is truncated or not a machine file, or has another version of the schema.
    """
    if str(path) in PUBLISHED:
        return published(str(path))
    content = files.read(Path(path))
    try:
        document = json.loads(content)
    except ValueError as error:
        raise InputError(f"{path} is truncated or not a machine file: {error}") from None
    except RecursionError:
        raise InputError(f"{path} is not a machine file: its lists are nested too deeply") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{path} is not a machine file: `memkern machine -o` writes one")
    version = document.get("version")
    if version != VERSION:
        raise InputError(
            f"{path} has version {shown(version)} of the schema, but this memkern reads {VERSION}: "
            "measure the machine again"
        )
    entries = {key: value for key, value in document.items() if key not in ("format", "version")}
    try:
        found: MachineFile = _read(MachineFile, entries, "the file")
        _check_levels(found.levels)
    except InputError as error:
        raise InputError(f"{path} is damaged: {error}") from None
    return found


def _check_levels(levels: Sequence[Level]) -> None:
    """Raise InputError unless the levels are caches followed by memory."""
    names = [level.name for level in levels]
    caches = {f"L{number}" for number in range(1, 10)}
    if names[-1:] != [MEMORY] or names[:-1] != sorted(caches & {*names}):
        raise InputError(
            f"levels must be caches such as L1 and L2, and then memory, not {shown(names)}"
        )
    if levels[-1].size_B is not None:
        raise InputError(f"size_B of memory must be null, not {levels[-1].size_B}")


def machine_of(path: str | Path, models: Iterable[str]) -> MachineFile:
    """Read the machine file of some records.

    Parameters
    ----------
    path : path
        As for `load_machine`.
    models : iterable of str
        The processors' models in the environments of the records; empty where unknown.

    Raises
    ------
    InputError
        As for `load_machine`, or the file is of another machine than the records.

    Warns
    -----
    UserWarning
        The file is published data of another machine.
    """
    found = load_machine(path)
    for model in models:
        if not found.is_of(model):
            raise InputError(
                f"{path} is of another machine ({found.model}) than the records ({model})"
            )
        if model and not found.describes(model):
            warnings.warn(
                f"{found.name} is another machine than the machine of the records ({model}): "
                f"rooflines and predictions are for {found.name}",
                stacklevel=1,  # from here, so that several figures warn once
            )
    return found


def _read(kind: Any, value: Any, where: str) -> Any:
    """Return plain data as an object of a type.

    Raises
    ------
    InputError
        The data are not of this type.
    """
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple:
        if not isinstance(value, list):
            raise InputError(f"{where} must be a list, not {shown(value)}")
        return tuple(_read(inner[0], one, f"{where}[{n}]") for n, one in enumerate(value))
    if origin in (Union, types.UnionType):
        return None if value is None else _read(inner[0], value, where)
    if kind is float and value is None:
        return math.nan
    fits = isinstance(value, (int, float) if kind is float else kind)
    if not fits or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"{where} must be of type {kind.__name__}, not {shown(value)}")
    if kind is int and not 1 <= value < 2**63:
        raise InputError(f"{where} must be from 1 to {2**63 - 1}, not {shown(value)}")
    if kind is float and not abs(value) <= sys.float_info.max:
        raise InputError(f"{where} must be a finite number, not {shown(value)}")
    return float(value) if kind is float else value


# Fields that files written before their introduction do not contain.
_ADDED: dict[Any, set[str]] = {MachineFile: {"in_core"}, EcmParameters: {"memory_rate"}}


def _read_fields(kind: Any, value: Any, where: str) -> Any:
    hints = get_type_hints(kind)
    if not isinstance(value, dict):
        raise InputError(f"{where} must be an object, not {shown(value)}")
    optional = _ADDED.get(kind, set()) - value.keys()
    for name in sorted(map(str, (value.keys() ^ hints.keys()) - optional)):
        raise InputError(
            f"{where} has {shown(name)}" if name in value else f"{where} has no {name}"
        )
    read = {
        name: _read(hint, value[name], name) for name, hint in hints.items() if name not in optional
    }
    # Infinite bandwidths are null.
    if kind is EcmLevel:
        read = {
            name: math.inf if isinstance(one, float) and math.isnan(one) else one
            for name, one in read.items()
        }
    # A barrier is a difference of two times, which may be negative.
    for name, one in read.items() if kind is not Cost else ():
        if isinstance(one, Quantity) and one.value <= 0:
            raise InputError(f"{name} must be positive, not {one.value!r}")
    return kind(**read)
