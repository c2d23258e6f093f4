"""Sentences shared by the findings of several families."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from string import Formatter
from typing import Any, NamedTuple, TypeAlias

from memkern.errors import InputError
from memkern.plots.drawing import in_bytes
from memkern.plots.frames import joined, percent, three_figures
from memkern.plots.typenames import DataFrame, Series
from memkern.results.ratios import Ratio, ratio
from memkern.statistics import with_interval


class Sentence(str):
    """A sentence with numbers, and the name of the figure or table that shows them."""

    __slots__ = ("exhibit",)
    exhibit: str

    def __new__(cls, text: str, exhibit: str) -> Sentence:
        """Return the sentence with the name of its exhibit."""
        finding = super().__new__(cls, text)
        finding.exhibit = exhibit
        return finding


Facts: TypeAlias = "Mapping[Any, Any] | Sequence[Mapping[Any, Any]]"
Source: TypeAlias = "Callable[[Any], Facts]"


class Finding(NamedTuple):
    """A row of findings: when a sentence is told, its template, and the exhibit of its numbers.

    Attributes
    ----------
    exhibit : str
        Name of the figure or table.
    of : callable
        Returns the facts of a machine's records, or those of each part, nothing to tell nothing.
    template : str
        Sentence with the names of facts, as of `say`; ``{parts}`` are all parts.
    part : str
        Template of a part; without it, each part is a sentence.
    joint : str
        Between parts; commas and ``and`` by default.
    """

    exhibit: str
    of: Source
    template: str
    part: str = ""
    joint: str = ""


def tell(rows: Iterable[Finding], records: Any) -> list[Sentence]:
    """Return the sentences of rows that have facts on the records of a machine."""
    found = []
    for row in rows:
        facts = row.of(records)
        every = [facts] if isinstance(facts, Mapping) else [*facts]
        if row.part and any(every):
            parts = [say(row.part, one) for one in every]
            text = row.joint.join(parts) if row.joint else joined(parts)
            every = [{**every[0], "parts": text}]
        found += [Sentence(say(row.template, one), row.exhibit) for one in every if one]
    return found


def unless_refused(of: Source) -> Source:
    """Return a source of facts that has none where records lack what it needs."""

    def facts(records: DataFrame) -> Facts:
        try:
            return of(records)
        except InputError:
            return []

    return facts


# Units of the columns that are told with their intervals.
_UNITS = {
    **{"rate_GAMS": "GAMS", "bandwidth_GBps": "GB/s", "performance_GFLOPs": "GFLOP/s"},
    **{"ns_per_access": "ns", "ns": "ns", "latency_us": "µs", "million_per_s": "million/s"},
}
_FORMS = {"3": three_figures, "%": percent, "B": in_bytes}


class _Facts(Formatter):
    """Formats facts by the name of a column, or by ``3`` figures, in ``%`` or as bytes (``B``)."""

    def format_field(self, value: Any, spec: str) -> str:
        """Return a fact as text."""
        return _FORMS[spec](value) if spec in _FORMS else format(value, spec)

    def get_value(self, key: int | str, args: Sequence[Any], facts: Mapping[Any, Any]) -> Any:
        """Return a fact by name; ``mark`` tells that it is of a disturbed record."""
        if key == "mark":
            return disturbed_mark(facts.get("disturbed"))
        return _Quantity.of(facts, key) if key in _UNITS else facts[key]


class _Quantity(float):
    """A number that is told with its unit, its interval and the mark of a disturbed record."""

    text: str

    @classmethod
    def of(cls, facts: Mapping[Any, Any], column: Any) -> _Quantity:
        found = cls(facts[column])
        width = "ci_relative" if column == "ns_per_access" else "time_min_ci_relative"
        value = with_interval(found, facts.get(width) or 0.0, _UNITS[column])
        found.text = value + disturbed_mark(facts["disturbed"])
        return found

    def __format__(self, spec: str) -> str:
        """Return the number as text, by default with its unit."""
        return super().__format__(spec) if spec else self.text


def say(template: str, facts: Mapping[Any, Any]) -> str:
    """Return a template with facts in place of their names.

    Values of a record's columns have their units and intervals, and the word for a disturbed one.
    ``{size:B}`` is a size in bytes, ``{share:%}`` a share and ``{price:3}`` a number of three
    figures; ``{mark}`` is the word alone.
    """
    return _Facts().vformat(template, (), facts)


def by_value(rows: DataFrame, column: str) -> dict[str, dict[Hashable, Any]]:
    """Return records by their value in a column, as plain dictionaries."""
    return {str(row[column]): row for row in rows.to_dict("records")}


def disturbed_mark(disturbed: object) -> str:
    """Return the mark after a number from a disturbed record, '' after other numbers."""
    return " (disturbed)" if disturbed else ""


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


def speed_ups(
    exhibit: str,
    scan: Callable[[DataFrame], DataFrame],
    in_order: Callable[[Series], Sequence[str]],
    value: str,
    column: str,
) -> Finding:
    """Return the row on the speed-up of each kind with the most threads over the fewest.

    Parameters
    ----------
    exhibit : str
    scan : callable
        Returns a machine's records over threads at one `column`, as of
        `memkern.plots.selection.longest_scan`.
    in_order : callable
        Returns the kinds in the order of a legend.
    value : str
        Column of the speeds. One above the number of threads has a remark.
    column : str
    """

    def facts(mine: DataFrame) -> Facts:
        rows = scan(mine)
        few, many = float(rows["threads"].min()), float(rows["threads"].max())

        def text(gain: Ratio) -> str:
            return gain.text() + (gain.value > many / few) * (
                " (more than the threads: caches of more cores hold more)"
                if gain.in_turns
                else " (more than the threads, but not measured in turns)"
            )

        found = {(row["kind"], row["threads"]): row for row in rows.to_dict("records")}
        return [
            {
                **found[kind, many],
                "gain": marked_ratio(found[kind, many], found[kind, few], value, text),
                "over": "" if few == 1 else f" over {few:g}",
                "place": found[kind, many][column],
            }
            for kind in in_order(rows["kind"])
            if {(kind, few), (kind, many)} <= found.keys()
        ]

    text = "Speed-up with {threads:g} threads{over} on {place}: {parts}."
    return Finding(exhibit, facts, text, "{gain} in {kind}")
