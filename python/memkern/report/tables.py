"""Tables of a report as text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from memkern.formats.encoding import csv_table
from memkern.plots.drawing import in_bytes

if TYPE_CHECKING:
    from pandas import DataFrame

# Widths of a letter and of the gap between two columns in the style sheet.
_LETTER_EM, _GAP_EM = 0.64, 0.8


class Table(NamedTuple):
    """Text of a table, its numeric columns, its minimum width, and its values as CSV."""

    head: list[str]
    rows: list[list[str]]
    numeric: list[bool]
    width_em: int
    data: str


def table_of(frame: DataFrame) -> Table:
    """Return a table without its empty columns, transposed if it has more columns than rows.

    Only tables whose columns but the first are numeric are transposed.
    """
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    frame = frame.loc[:, [any(_cell(value) for value in frame[name]) for name in frame]]
    data = csv_table(map(str, frame.columns), frame.astype(object).itertuples(index=False))
    numeric = [is_numeric_dtype(t) and not is_bool_dtype(t) for t in frame.dtypes]
    head = [str(column) for column in frame.columns]
    rows = [[_cell(value) for value in row] for row in frame.itertuples(index=False)]
    if len(head) > len(rows) + 1 > 2 and numeric == [False, *[True] * (len(head) - 1)]:
        head, *rows = map(list, zip(head, *rows, strict=True))
        numeric = [False, *[True] * (len(head) - 1)]
    letters = [
        max((len(part) for text in column for part in _parts(text)), default=0)
        for column in zip(head, *rows, strict=True)
    ]
    width_em = sum(letters) * _LETTER_EM + len(letters) * _GAP_EM
    return Table(head, rows, numeric, math.ceil(width_em), data.decode())


def _parts(text: str) -> list[str]:
    """Return the parts of a text between which a line may break."""
    return [
        part for word in text.split() for part in re.split(r"(?<=[_:,/])(?=.)|(?<=[a-z]\.)", word)
    ]


def breakable(text: str) -> Markup:
    """Return text in which lines may also break within names."""
    return Markup(" ").join(Markup("<wbr>").join(_parts(word)) for word in text.split())


def _cell(value: Any) -> str:
    """Return a value as text, '' if it is missing."""
    from pandas import isna

    if isna(value):
        return ""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:#.4g}".rstrip(".")


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the known values of a nested mapping as dotted name and text."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        yield from (
            (name, ", ".join(f"{key} {text}" for key, text in leaves(item))) for item in value
        )
    elif value is not None:
        yield name, _readable(name, value)


def _readable(name: str, value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    if name.endswith("_B") and isinstance(value, int) and not isinstance(value, bool):
        return in_bytes(value, 4)
    return _cell(value)
