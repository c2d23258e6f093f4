"""Tables of records as lists of columns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from memkern import statistics
from memkern.spec.options import Knobs, declared
from memkern.spec.registry import definition_of

if TYPE_CHECKING:
    from memkern.formats import ResultSet
    from memkern.spec.case import Case

Record = Mapping[str, Any]


class Cell(NamedTuple):
    """One column of a table (see `cell`)."""

    title: str
    format: str
    value: Callable[[Record], Any]
    shows: tuple[str, ...]


def cell(
    column: str,
    format: str,
    title: str = "",
    value: Callable[[Record], Any] | None = None,
    shows: tuple[str, ...] = (),
) -> Cell:
    """Return a column of a table.

    Parameters
    ----------
    column : str
        Column of the record, and its title unless `title` is given.
    format : str
        Format of its values, such as ``>8.2f``; texts are not shortened. Values that are missing
        or NaN are blank.
    value : callable, optional
        Record to value, if it is not that of `column`.
    shows : tuple of str
        Columns of records by which its values differ; by default `column`.
    """
    read = value or (lambda record: record.get(column))
    return Cell(title or column, format, read, shows or (column,))


def marks(record: Record) -> list[str]:
    """Return the words that mark the row of a record whose times or results are doubtful."""
    from memkern.results.hosts import memory_notes

    words: list[str] = [] if record["valid"] else ["INVALID"]
    doubts = ("disturbed", "oversubscribed", "skewed", "caches_grown")
    return [*words, *filter(record.get, doubts), *memory_notes(record)]


def plus_minus(record: Record, quantity: str = "floor") -> str:
    """Return the half width of the record's interval in percent, or a factor; empty without one.

    Parameters
    ----------
    record : mapping
    quantity : str
        ``floor`` for a value from the shortest time, ``median`` for a value from the median.
    """
    width = record["ci_relative" if quantity == "median" else "time_min_ci_relative"]
    return statistics.half_width(width, "{}")


@dataclass(frozen=True)
class Table:
    """A table with a row for each record.

    Parameters
    ----------
    cells : tuple of Cell
    remarks : callable
        Record to the words at the end of its row.
    """

    cells: tuple[Cell, ...]
    remarks: Callable[[Record], list[str]] = marks

    @property
    def header(self) -> str:
        """The row of titles."""
        return self._row([each.title for each in self.cells])

    @property
    def shown(self) -> set[str]:
        """Columns of records by which its values differ."""
        return {name for each in self.cells for name in each.shows}

    def row(self, number: int, record: Record) -> str:
        """Return the row of a record, of which `number` is the column ``case``."""
        numbered = {**record, "case": number}
        row = self._row([each.value(numbered) for each in self.cells])
        return " ".join([row, *self.remarks(record)]).rstrip()

    def lines(self, records: Iterable[Record]) -> list[str]:
        """Return the header and the rows of records."""
        return [self.header, *(self.row(k, record) for k, record in enumerate(records))]

    def after(self, *cells: Cell) -> Table:
        """Return the table with other columns before its own."""
        return dataclasses.replace(self, cells=(*cells, *self.cells))

    def _row(self, values: Sequence[Any]) -> str:
        return " ".join(map(_text, values, (each.format for each in self.cells)))


def _text(value: Any, format: str) -> str:
    if value is None or value != value:
        value = ""
    return f"{value:{format.partition('.')[0] if isinstance(value, str) else format}}"


def shortened(text: object, width: int) -> str:
    """Return a text in at most this many characters."""
    return str(text) if len(str(text)) <= width else f"{str(text)[: width - 1]}…"


def kernel_of(record: Record) -> str:
    """Return the name of a record's kernel without the family."""
    return str(record["kernel"].partition(".")[2])


def label_of(record: Record) -> str:
    """Return the name or the input of a record of a streaming kernel, in at most 22 characters."""
    return shortened(record["name"] or record.get("pattern") or _input_of(record), 22)


def _input_of(record: Record) -> str:
    if "degree" in record:
        return f"K {record['mesh_elements']}, N {record['degree']}"
    if "elements" not in record:
        return ""
    pattern = record.get("index_pattern")
    return f"{record['elements']} {pattern or 'elements'}"


def _streamed(record: Record) -> list[str]:
    several = record["stop"] == "runs" and record["invocations"] > 1
    return marks(record) + [f"x{record['invocations']}"] * several


CASE = cell("case", "<4")
VARIANT = cell(
    "variant", "<15", value=lambda r: f"{r['variant']}/{r['isa']}", shows=("variant", "isa")
)
THREADS = cell("threads", ">3", "thr")
SHORTEST = cell("time_min_s", ">11.4g")
INTERVAL = cell("±%", ">5", value=plus_minus)
MEDIAN = cell("±%", ">5", value=lambda record: plus_minus(record, "median"))

STREAMS = Table(
    (
        CASE,
        cell("kernel", "<13", value=kernel_of),
        cell("pattern", "<22", value=label_of, shows=("label",)),
        VARIANT,
        THREADS,
        cell("pages", "<10"),
        cell("bytes_B", ">13", "bytes"),
        SHORTEST,
        cell("bandwidth_GBps", ">8.2f", "GB/s"),
        INTERVAL,
    ),
    _streamed,
)

# Columns of the table and of records, by the options for running a case.
_COLUMNS = {"definition": "definition", "dtype": "dtype", "index_dtype": "index_dtype"}
_COLUMNS |= {name: option.column or name for name, _, option in declared(Knobs)}
_WIDEST = 16


def varying(
    cases: Sequence[Case], table: Table = STREAMS, listed: Collection[str] = ()
) -> tuple[Cell, ...]:
    """Return the columns that vary among a kernel's cases, which precede those of a table.

    Options for running a case are left out if the table already shows them. Columns of inputs are
    also left out if rows can be distinguished without them, unless several values were `listed`.
    """
    requested = [
        {
            "kernel": case.spec.kernel,
            "definition": definition_of(case.spec),
            "dtype": case.dtype,
            "index_dtype": case.index_dtype,
            **dataclasses.asdict(case.knobs),
            **case.input_columns,
            "name": case.labels.get("name", ""),
        }
        for case in cases
    ]
    for one in requested:
        one["label"] = label_of(one)

    def number(*names: str) -> int:
        return len({tuple(str(one.get(name)) for name in names) for one in requested})

    widths: dict[str, int] = {}
    shown = table.shown - {"kernel"}
    every = dict.fromkeys(name for one in requested for name in one if name not in shown)
    for name in every:
        own = name in _COLUMNS or name.removesuffix("_B") in listed
        by = ("kernel",) if own else ("kernel", *shown, *widths)
        if name != "label" and number(*by, name) > number(*by):
            values = (str(one[name]) for one in requested if name in one)
            widths[name] = min(max(len(name), *map(len, values)), _WIDEST)
    return tuple(_requested(name, width) for name, width in widths.items())


def _requested(name: str, width: int) -> Cell:
    """Return the column of the requested values of an option."""

    def value(record: Record) -> str:
        found = record.get(_COLUMNS.get(name, name))
        return "" if found is None or found != found else shortened(found, width)

    return cell(name, f">{width}", value=value)


def scope_of(results: Sequence[Record] | ResultSet) -> str:
    """Return the explanation of the intervals in a table; empty if there are none."""
    if all(math.isnan(r["ci_relative"]) or r["rotation"] for r in results):
        return ""
    text = "±%: half the width of the interval that contains 95 % of the next runs on this host"
    text += "; ×÷N: from the value divided by N to N times the value" * any(
        "÷" in plus_minus(r, quantity) for r in results for quantity in ("floor", "median")
    )
    if any(r["stop"] == "runs" and r["invocations"] > 1 for r in results):
        text += "; xN: a sample is N invocations, since the clock does not resolve one"
    return text
