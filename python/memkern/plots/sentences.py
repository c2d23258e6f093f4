"""Sentences shared by the findings of several families."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memkern.plots.frames import joined
from memkern.results.ratios import Ratio, ratio
from memkern.statistics import with_interval

if TYPE_CHECKING:
    from pandas import DataFrame


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


def told(rows: DataFrame, sentences: Callable[[DataFrame], list[str]]) -> list[str]:
    """Return the sentences on records, none if there are no records."""
    return [] if rows.empty else sentences(rows)


def by_value(rows: DataFrame, column: str) -> dict[str, dict[Hashable, Any]]:
    """Return records by their value in a column, as plain dictionaries."""
    return {str(row[column]): row for row in rows.to_dict("records")}


def disturbed_mark(disturbed: object) -> str:
    """Return the mark after a number from a disturbed record, '' after other numbers."""
    return " (disturbed)" if disturbed else ""


def marked_value(
    row: Mapping[Any, Any], column: str, unit: str, width: str = "time_min_ci_relative"
) -> str:
    """Return a value of a record with its unit and interval, marked if it was disturbed."""
    value = with_interval(row[column], row.get(width) or 0.0, unit)
    return value + disturbed_mark(row["disturbed"])


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


def by_machine(frame: DataFrame, found: Callable[[DataFrame], Sequence[str]]) -> list[str]:
    """Return the findings on the records of each machine, after its name if there are several."""
    return with_names({name: found(mine) for name, mine in frame.groupby("machine", sort=False)})


def speed_up(rows: DataFrame, value: str, kinds: Sequence[str], column: str) -> list[str]:
    """Return the sentence on the speed-up of each kind with the most threads over the fewest.

    The rows are those of `memkern.plots.selection.longest_scan` over threads at one `column`. A
    speed-up above the number of threads has a remark.
    """
    few, many = float(rows["threads"].min()), float(rows["threads"].max())

    def text(gain: Ratio) -> str:
        return gain.text() + (gain.value > many / few) * (
            " (more than the threads: caches of more cores hold more)"
            if gain.in_turns
            else " (more than the threads, but not measured in turns)"
        )

    found = {(row["kind"], row["threads"]): row for row in rows.to_dict("records")}
    parts = [
        f"{marked_ratio(found[kind, many], found[kind, few], value, text)} in {kind}"
        for kind in kinds
        if {(kind, few), (kind, many)} <= found.keys()
    ]
    if not parts:
        return []
    return [
        f"Speed-up with {many:g} threads{'' if few == 1 else f' over {few:g}'} on "
        f"{rows[column].iloc[0]}: {joined(parts)}."
    ]
