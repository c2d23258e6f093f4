"""Sentences shared by the findings of several families."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memkern.plots.frames import listed, three_figures

if TYPE_CHECKING:
    from pandas import DataFrame


class Finding(str):
    """A sentence with numbers, and the name of the figure or table that shows them."""

    __slots__ = ("exhibit",)
    exhibit: str

    def __new__(cls, text: str, exhibit: str) -> Finding:
        """Return the sentence with the name of its exhibit."""
        finding = super().__new__(cls, text)
        finding.exhibit = exhibit
        return finding


def shown_in(exhibit: str, sentences: Iterable[str]) -> list[Finding]:
    """Return sentences with the name of the figure or table that shows their numbers."""
    return [Finding(sentence, exhibit) for sentence in sentences]


def disturbed_mark(disturbed: object) -> str:
    """Return the mark after a number from a disturbed record, '' after other numbers."""
    return " (disturbed)" if disturbed else ""


def interval_mark(row: Mapping[Any, Any], width: str = "time_min_ci_relative") -> str:
    """Return half the width of the interval after a number, such as ' ±12 %', if it is known."""
    half = row.get(width)
    return f" ±{100 * half:.2g} %" if isinstance(half, float) and half > 0 else ""


def marked_value(row: Mapping[Any, Any], column: str, unit: str) -> str:
    """Return a value of a record with its unit and interval, marked if it was disturbed."""
    text = f"{three_figures(row[column])} {unit}{interval_mark(row)}"
    return text + disturbed_mark(row["disturbed"])


def with_names(findings: Mapping[Any, Sequence[str]]) -> list[str]:
    """Return the findings on each machine, after the machine's name if there are several."""
    several = len(findings) > 1
    return [
        Finding(f"{name}: " * several + sentence, getattr(sentence, "exhibit", ""))
        for name, sentences in findings.items()
        for sentence in sentences
    ]


def by_machine(frame: DataFrame, found: Callable[[DataFrame], Sequence[str]]) -> list[str]:
    """Return the findings on the records of each machine, after its name if there are several."""
    return with_names({name: found(mine) for name, mine in frame.groupby("machine", sort=False)})


def speed_up(rows: DataFrame, value: str, kinds: Sequence[str], place: str) -> list[str]:
    """Return the sentence on the speed-up of each kind with the most threads over the fewest.

    The rows are those of `memkern.plots.selection.longest_scan` over threads at one `place`.
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
        f"{rows[place].iloc[0]}: {listed(parts)}."
    ]
