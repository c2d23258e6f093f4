"""Sentences shared by the findings of several families."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memkern.plots.drawing import in_bytes
from memkern.plots.frames import joined, three_figures
from memkern.plots.selection import cache_ends
from memkern.results.ratios import Ratio, ratio
from memkern.statistics import half_width, meaningful

if TYPE_CHECKING:
    from pandas import DataFrame


# Share of a cache up to which it holds the data of a plateau.
_HELD = 0.8


class Sentence(str):
    """A sentence with numbers, and the name of the figure or table that shows them."""

    __slots__ = ("exhibit",)
    exhibit: str

    def __new__(cls, text: str, exhibit: str) -> Sentence:
        """Return the sentence with the name of its exhibit."""
        finding = super().__new__(cls, text)
        finding.exhibit = exhibit
        return finding


def shown_in(exhibit: str, sentences: Iterable[str]) -> list[Sentence]:
    """Return sentences with the name of the figure or table that shows their numbers."""
    return [Sentence(sentence, exhibit) for sentence in sentences]


def disturbed_mark(disturbed: object) -> str:
    """Return the mark after a number from a disturbed record, '' after other numbers."""
    return " (disturbed)" if disturbed else ""


def interval_mark(row: Mapping[Any, Any], width: str = "time_min_ci_relative") -> str:
    """Return half the width of the interval after a number, such as ' ±12 %', if it is known."""
    half = row.get(width)
    return f" {half_width(half)}" if isinstance(half, float) and half > 0 else ""


def marked_value(
    row: Mapping[Any, Any], column: str, unit: str, width: str = "time_min_ci_relative"
) -> str:
    """Return a value of a record with its unit and interval, marked if it was disturbed."""
    value = meaningful(row[column], row.get(width, math.nan))
    return f"{value} {unit}{interval_mark(row, width)}{disturbed_mark(row['disturbed'])}"


def marked_ratio(
    row: Mapping[Any, Any],
    base: Mapping[Any, Any],
    value: str,
    text: Callable[[Ratio], str] = Ratio.text,
) -> str:
    """Return the `ratio` of two records as text, marked if it is of times of a disturbed one."""
    found = ratio(row, base, value)
    disturbed = row["disturbed"] or base["disturbed"]
    return text(found) + disturbed_mark(disturbed and not found.in_turns)


def with_names(findings: Mapping[Any, Sequence[str]]) -> list[str]:
    """Return the findings on each machine, after the machine's name if there are several."""
    several = len(findings) > 1
    return [
        Sentence(f"{name}: " * several + sentence, getattr(sentence, "exhibit", ""))
        for name, sentences in findings.items()
        for sentence in sentences
    ]


def plateaus(rows: DataFrame, x: str, y: str, unit: str) -> str:
    """Return the sentence on the values in each level of the memory of one machine.

    Parameters
    ----------
    rows : DataFrame
        Records of a line over sizes, with the caches as for `memkern.models.records.cache_ends`.
    x, y : str
        Columns of the size in bytes and of the value.
    unit : str
        Unit of the value.

    Returns
    -------
    str
        Empty if the caches are unknown or only one level has values. A level has the median of its
        sizes up to 80 % of its caches, memory that of sizes from twice the last cache on.
    """
    ends = cache_ends(rows)
    parts, before = [], 0.0
    for name, end in ends:
        held = rows[rows[x].gt(before) & rows[x].le(_HELD * end)]
        parts += _median(held, y, unit, f"in {name} (up to {in_bytes(end)})")
        before = end
    parts += _median(rows[rows[x].ge(2 * before)], y, unit, "from memory") if ends else []
    return f"Here: {', '.join(parts)}." if len(parts) > 1 else ""


def _median(rows: DataFrame, y: str, unit: str, where: str) -> list[str]:
    return [f"{three_figures(rows[y].median())} {unit} {where}"] if len(rows) else []


def by_machine(frame: DataFrame, found: Callable[[DataFrame], Sequence[str]]) -> list[str]:
    """Return the findings on the records of each machine, after its name if there are several."""
    return with_names({name: found(mine) for name, mine in frame.groupby("machine", sort=False)})


def speed_up(rows: DataFrame, value: str, kinds: Sequence[str], column: str) -> list[str]:
    """Return the sentence on the speed-up of each kind with the most threads over the fewest.

    The rows are those of `memkern.plots.selection.longest_scan` over threads at one `column`.
    """
    few, many = rows["threads"].min(), rows["threads"].max()
    parts = []
    for kind in kinds:
        mine = rows[rows["kind"] == kind].set_index("threads")
        if few in mine.index and many in mine.index:
            gain = mine[value][many] / mine[value][few]
            parts.append(f"{gain:.2f} in {kind}{disturbed_mark(mine['disturbed'].any())}")
    if not parts:
        return []
    return [
        f"Speed-up with {many:g} threads{'' if few == 1 else f' over {few:g}'} on "
        f"{rows[column].iloc[0]}: {joined(parts)}."
    ]
