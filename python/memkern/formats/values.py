"""The values of records: plain Python values, columns of one kind each, and arrays of samples.

Missing values are NaN in a column of floats and None in any other, in all formats.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memkern.checks import LEAST, MOST
from memkern.errors import InputError
from memkern.machine.environment import Environment
from memkern.spec.columns import COLUMNS, CURRENT_NAMES, Column

SCHEMA_VERSION = 1
# Name of a file of results in errors.
RESULT = "a memkern result"

Record = dict[str, Any]
Samples = npt.NDArray[np.float64]

# From the least to the most general kind; text can be mixed with the first two only.
_NUMBERS = ("null", "nan", "bool", "integer", "real")
KINDS = frozenset((*_NUMBERS, "text"))


class Contents(NamedTuple):
    """The contents of a file of results."""

    records: list[Record]
    samples: list[Samples]
    environments: dict[str, Environment]


def check_version(version: Any) -> None:
    """Raise ValueError if this is not the current schema version."""
    if version != SCHEMA_VERSION:
        raise ValueError(f"its schema version is {version}, not {SCHEMA_VERSION}")


def plain_record(record: Mapping[str, Any]) -> Record:
    """Return a record with NumPy's scalars converted to plain Python values.

    Raises
    ------
    InputError
        If a value is not a bool, a number of 64 bits, text or None.

    Notes
    -----
    Bytes of file names that are not UTF-8, which Python stores as surrogates, become escapes.
    """
    return {name: _plain(name, value) for name, value in record.items()}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        # Turns -0.0 into 0.0: SQLite has no negative zero.
        return value + 0.0
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise InputError(f"column {name} must fit into 64 bits, not {value}")
        return value
    if isinstance(value, str):
        # Bytes of file names that are not UTF-8 are stored as escapes.
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    raise InputError(
        f"column {name} must be a bool, a number, text or None, not {type(value).__name__}"
    )


# Kinds of the columns that hold all values of a type. Python's bool is an int, too.
_KINDS = {bool: "bool", int: "integer", float: "real", str: "text"}
_TYPES: Mapping[str, Callable[[Any], Any]] = {kind: type for type, kind in _KINDS.items()}


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    kind = _KINDS.get(type(value)) or next(
        (kind for parent, kind in _KINDS.items() if isinstance(value, parent)), "real"
    )
    return "nan" if kind == "real" and math.isnan(value) else kind


def column_kinds(
    records: Iterable[Mapping[str, Any]], known: Mapping[str, str] = {}
) -> dict[str, str]:
    """Return each column's kind: the declared one if the values fit it, else the narrowest.

    Parameters
    ----------
    records : iterable of mapping
        Plain records.
    known : mapping of str to str
        Kinds of the columns in earlier records.

    Raises
    ------
    InputError
        If a column mixes text and numbers.
    """
    kinds = dict(known)
    for record in records:
        for name, value in record.items():
            old = kinds.get(name, "null")
            if _KINDS.get(type(value)) == old:
                continue
            new = _kind(value)
            if new == old:
                kinds[name] = new
            elif "text" in (new, old):
                if not {new, old} <= {"text", "null", "nan"}:
                    raise InputError(f"column {name} must not mix text and numbers ({value!r})")
                kinds[name] = "text"
            else:
                kinds[name] = max(new, old, key=_NUMBERS.index)
    return {name: _as_declared(name, kind) for name, kind in kinds.items()}


def _as_declared(name: str, kind: str) -> str:
    """Return the declared kind of a column if its values fit it, else `kind`."""
    declared = COLUMNS.get(name)
    if declared is None or kind == "text":
        return kind
    if declared.type == "text":
        return "text" if kind in ("null", "nan") else kind
    return max(kind, declared.type, key=_NUMBERS.index)


def restored_record(values: Mapping[str, Any], kinds: Mapping[str, str]) -> Record:
    """Return a record with all columns, each value converted to its column's kind.

    Columns have their current names. In a file extended by a later version, a column has both
    names, and each record has a value for one of them.
    """
    found = {name: restored(values.get(name), kind) for name, kind in kinds.items()}
    for old in CURRENT_NAMES.keys() & kinds.keys():
        value, new = found.pop(old), CURRENT_NAMES[old]
        if found.get(new) is None:
            found[new] = value
    return found


def restored(value: Any, kind: str) -> Any:
    """Return a value converted to its column's kind; missing ones become NaN or None."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return math.nan if kind in ("real", "nan") else None
    return _TYPES[kind](value) if kind in _TYPES else value


def series(samples: npt.ArrayLike) -> Samples:
    """Return a copy of samples as a float64 array, shape (n,)."""
    x = np.array(samples, dtype=np.float64)
    if x.ndim != 1:
        raise InputError(f"samples must have one dimension, not shape {x.shape}")
    return x


def is_known(value: Any) -> bool:
    """Return whether a record has a value: neither None nor NaN nor an empty text."""
    return value is not None and value == value and value != ""


def jsonable(value: Any) -> Any:
    """Replace values that JSON lacks: NaN by null, infinities by text that float() reads."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): jsonable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def dumps(value: Any) -> str:
    """Return a value as strict JSON."""
    return json.dumps(jsonable(value), allow_nan=False, default=str)


def json_rows(records: Iterable[Record]) -> str:
    """Return records as a JSON array with one record per line."""
    return "[" + ",\n ".join(map(dumps, records)) + "]"


class _Each(NamedTuple):
    """A mapping of any names, whose values are not missing and have one schema."""

    schema: Any


# A type, the keys of a mapping, the entries of a list, or a pattern of the whole text.
_ENVIRONMENT: dict[str, Any] = {
    "machine": {
        **dict.fromkeys(("model", "architecture", "vendor", "hypervisor"), str),
        **dict.fromkeys(("memory_B", "cores", "threads", "sockets"), int),
        "units": re.compile(r"[0-9]+(,[0-9]+)*"),
        "caches": [
            {
                **dict.fromkeys(("level", "size_B", "line_B", "shared_by", "instances"), int),
                "type": str,
            }
        ],
        "tlbs": [{"level": int, "entries": int}],
    },
    "os": {},
    "settings": {},
    "build": {"version": str, "commit": str},
    "python": {"memkern": str},
    "memory": {
        **dict.fromkeys(("channels", "speed_MTs"), int),
        **dict.fromkeys(("counted_by", "kind"), str),
    },
    "measured_caches": {"created": str, "sizes_B": _Each(int)},
    "devices": _Each({"name": str, "l2_B": int}),
    "ranks": {"hosts": _Each(str), "environments": _Each({})},
}


def check_contents(contents: Contents) -> None:
    """Check records and environments, once when a file is loaded.

    Any value may be missing. All other values have the types and ranges that memkern writes, even
    if a damaged disk, another program or an older version has changed the file.

    Raises
    ------
    TypeError, ValueError
        A value has another type, or is out of its range; the message names it.
    """
    for environment in contents.environments.values():
        _fits(environment, _ENVIRONMENT, "environment")
    for number, record in enumerate(contents.records):
        for name, value in record.items():
            column = COLUMNS.get(name)
            if column and isinstance(value, (str, float)) and not _possible(column, value):
                raise ValueError(f"{name} of record {number} is {value!r}")
        for name in ("dtype", "index_dtype"):
            if record.get(name):
                np.dtype(record[name])


def _possible(column: Column, value: str | float) -> bool:
    """Return whether a value of a declared column can be one of memkern's."""
    if isinstance(value, str):
        return column.type == "text"
    # Numbers without a unit may be as small as the kernel's scalars; errors may have any magnitude.
    too_small = 0 < abs(value) < LEAST and column.unit
    too_large = MOST < abs(value) < math.inf and column.name != "error_max"
    return not (too_small or too_large)


def _fits(value: Any, schema: Any, where: str) -> None:
    """Check a part of an environment; None is unknown."""
    if value is None:
        return
    kinds: dict[type, type] = {list: list, _Each: Mapping, dict: Mapping, re.Pattern: str}
    _is(value, kinds.get(type(schema), schema), where)
    if isinstance(schema, list):
        for number, entry in enumerate(value):
            _is(entry, dict, f"{where}[{number}]")
            _fits(entry, schema[0], f"{where}[{number}]")
    elif isinstance(schema, _Each):
        for name, entry in value.items():
            if entry is None:
                raise ValueError(f"{where}.{name} has no value")
            _fits(entry, schema.schema, f"{where}.{name}")
    elif isinstance(schema, dict):
        for name, own in schema.items():
            _fits(value.get(name), own, f"{where}.{name}")
    elif isinstance(schema, re.Pattern):
        if not schema.fullmatch(value):
            raise ValueError(f"{where} is {value!r}")
    elif schema is int and not 0 <= value < 2**62:
        raise ValueError(f"{where} is {value!r}")


def _is(value: Any, kind: type, where: str) -> None:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{where} is {type(value).__name__}, not {kind.__name__}")
