"""The columns of a record, each declared once with its kind, type, unit and meaning.

This table defines the order of a record's columns, their types and units in files, the columns by
which records are compared, and the output of ``memkern columns``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from memkern.spec.options import Knobs, declared

KINDS = {
    "identity": "the case, and where and when it was measured",
    "input": "an input of the kernel; distinguishes the cases of a kernel",
    "requested": "an option as requested; distinguishes cases as well",
    "obtained": "value that was used, which may differ from the request",
    "measured": "a measurement, or computed from measurements",
    "modelled": "by a formula or a model, such as bytes",
}
TYPES = ("text", "integer", "real", "bool")


@dataclass(frozen=True)
class Column:
    """One column of a record.

    Parameters
    ----------
    name : str
    kind : str
        One of `KINDS`.
    type : str
        ``text``, ``integer``, ``real`` (NaN where it is unknown) or ``bool``.
    unit : str
        Such as ``GB/s``; empty for none.
    meaning : str
        Description in one line.
    since : int
        First schema version of result files that has the column.
    formerly : str
        Its name in older files; empty if it is the same.
    """

    name: str
    kind: str
    type: str
    unit: str
    meaning: str
    since: int = 1
    formerly: str = ""


def _read_columns() -> dict[str, Column]:
    """Return the table in columns.csv, with the options of a case in place of the row ``*``."""
    text = (files("memkern.spec") / "columns.csv").read_text("utf-8")
    columns: list[Column] = []
    for row in csv.DictReader(text.splitlines()):
        if row["name"] == "*":
            columns += _option_columns(row["kind"])
        else:
            name, kind, type, unit, since, meaning, formerly = row.values()
            columns.append(Column(name, kind, type, unit, meaning, int(since), formerly or ""))
    return {column.name: column for column in columns}


def _option_columns(kind: str) -> list[Column]:
    """Return the columns of the requested options."""
    types = {str: "text", int: "integer", bool: "bool"}
    return [
        Column(
            option.column or name,
            kind,
            types[type(default)],
            option.unit,
            option.text,
            formerly=option.formerly,
        )
        for name, default, option in declared(Knobs)
    ]


COLUMNS: Mapping[str, Column] = _read_columns()


CURRENT_NAMES: Mapping[str, str] = {c.formerly: c.name for c in COLUMNS.values() if c.formerly}
"""The names of columns by those in older files."""


def of_kind(*kinds: str) -> tuple[str, ...]:
    """Return the names of the columns of the given kinds."""
    return tuple(column.name for column in COLUMNS.values() if column.kind in kinds)


def in_order(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the declared columns in table order, followed by others."""
    known: Iterable[str] = (name for name in COLUMNS if name in record)
    return {name: record[name] for name in (*known, *(n for n in record if n not in COLUMNS))}
