"""Guarantees for readers of results, checked once when a file is loaded.

Any value may be missing. All other values have the types and ranges that memkern writes, even if a
damaged disk, another program or an older version has changed the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from memkern.checks import LEAST, MOST
from memkern.formats.values import Contents
from memkern.spec.columns import COLUMNS, Column


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


def check(contents: Contents) -> None:
    """Check records and environments.

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
