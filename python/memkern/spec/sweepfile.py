"""Sweeps declared in a TOML file.

Every ``[[case]]`` has a kernel and its options (see `memkern.case`), including knobs and stop rule.
Lists of values are combined with each other; a cyclic delta is a list in a list. ``suite`` instead
of ``kernel`` names a published suite. ``[defaults]`` has options for cases that do not set them,
and ``repeats`` is the number of repeats of the sweep::

    repeats = 3

    [defaults]
    runs = 10

    [[case]]
    kernel = ["gather", "scatter"]
    pattern = ["UNIFORM:8:1:NR", "UNIFORM:8:16:NR"]
    count = 1048576
    pages = ["4k", "thp"]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memkern import files
from memkern.checks import integer, shown
from memkern.errors import InputError
from memkern.spec import registry
from memkern.spec.case import Case
from memkern.spec.sequences import Cases, joined, product

_TOP_KEYS = ("repeats", "defaults", "case")


def read_sweep(path: str | Path, changes: Mapping[str, Any]) -> tuple[Cases, int]:
    """Read a sweep file.

    Parameters
    ----------
    path : path
    changes : mapping
        Options that replace options of the file.

    Returns
    -------
    cases : Cases
        A sequence whose cases are built on access; a wrong value raises `InputError` then. The
        first case of each table has been built as a check.
    repeats : int

    Raises
    ------
    InputError
        The file can't be read or has a wrong key or value.
    """
    document = _parse(Path(path))
    for key in document:
        if key not in _TOP_KEYS:
            raise InputError(
                f"{path} has the unknown key {shown(key)}: choose from {', '.join(_TOP_KEYS)}"
            )
    tables = document.get("case", [])
    defaults = document.get("defaults", {})
    if not isinstance(tables, list) or not tables or not isinstance(defaults, dict):
        raise InputError(f"{path} needs at least one [[case]] table, and [defaults] as a table")
    parts: list[Cases] = []
    for number, table in enumerate(tables):
        if not isinstance(table, dict):
            raise InputError(f"case {number} of {path} must be a table")
        parts.append(_declare({**defaults, **table, **changes}, f"case {number} of {path}"))
        _ = parts[-1][0]
    return joined(parts), integer(document.get("repeats", 1), "repeats", 1)


def _parse(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    content = files.read(path)
    try:
        return dict(tomllib.loads(content.decode()))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not TOML: {shown(str(error))}") from None


def _declare(table: Mapping[str, Any], where: str) -> Cases:
    """Return the cases of a table; errors name the table as `where`."""
    axes: dict[str, Sequence[Any]] = {
        key: value if isinstance(value, list) else [value] for key, value in table.items()
    }
    for key, values in axes.items():
        if not values:
            raise InputError(f"{where}: {key} is an empty list")

    def build(**options: Any) -> Case:
        try:
            return _case(options)
        except (TypeError, ValueError) as error:
            raise InputError(f"{where}: {error}") from None

    try:
        if "suite" in axes and "kernel" not in axes:
            axes["suite"] = [
                (name, number)
                for name in axes["suite"]
                for number in range(registry.suite(name).size())
            ]
        return product(build, axes)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _case(options: dict[str, Any]) -> Case:
    """Return the case of one combination of options."""
    if "suite" in options and "kernel" not in options:
        name, number = options.pop("suite")
        return registry.suite(name).case(number, **options)
    kernel = options.pop("kernel", None)
    if not isinstance(kernel, str):
        raise InputError(f"kernel must be a name such as 'gather', not {shown(kernel)}")
    return registry.case(kernel, **options)
