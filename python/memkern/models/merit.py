"""Figures of merit: the few numbers that describe how fast a machine moves data.

Every family with such numbers has a module ``merit`` with a function `figures_of_merit`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from memkern.discovery import family_modules
from memkern.errors import InputError
from memkern.machine.caches import MEMORY
from memkern.models.ecm_fit import transfers_of
from memkern.models.memory import from_memory, memory_values
from memkern.models.records import with_current_names
from memkern.models.roofline import Ceiling, limit

if TYPE_CHECKING:
    from pandas import DataFrame

_TYPICAL = (0.05, 0.95)
# Names of the bandwidths that limit the other figures.
_CEILINGS = ("load", "triad")
# Largest share of a limit, due to the variance of ceilings.
_MOST_SHARE = 1.05


@dataclass(frozen=True)
class FigureOfMerit:
    """A number that describes a machine, with the record that it is of.

    Attributes
    ----------
    name, title : str
        Name for programs and title for people.
    unit : str
        ``GB/s``, ``GAMS``, ``ns`` or ``µs``.
    order : int
        Position among all figures; those of one place are shown together.
    record : mapping
        Its record.
    amount : float
        The figure is `amount` divided by the time of an invocation in seconds, or multiplied by it
        if it is a time.
    is_time : bool
    how : str
        Conditions that the title does not name, such as ``non-temporal stores``.
    limit : float
        The model's limit in the unit of the figure; NaN if it is unknown.
    by_median : bool
        Whether its value is that by the median time, as that of latencies, not by the shortest.
    """

    name: str
    title: str
    unit: str
    order: int
    record: Mapping[str, Any]
    amount: float
    is_time: bool = False
    how: str = ""
    limit: float = math.nan
    by_median: bool = False

    def of(self, seconds: float) -> float:
        """Return the figure of an invocation of this time."""
        return self.amount * seconds if self.is_time else self.amount / seconds

    @property
    def value(self) -> float:
        """The figure by the shortest time, or by the median."""
        return self.typical if self.by_median else self.of(self.record["time_min_s"])

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the interval of `value` for the next run; NaN if the record has none."""
        time = "time" if self.by_median else "time_min"
        return self._between(f"{time}_ci_low_s", f"{time}_ci_high_s")

    @property
    def typical(self) -> float:
        """The figure by the median time."""
        return self.of(self.record["time_median_s"])

    @property
    def typical_range(self) -> tuple[float, float]:
        """The range of 5 to 95 % of the samples; without samples up to the 95th percentile."""
        samples = self.record.get("samples_s", ())
        if not len(samples):
            return self._between("time_min_s", "time_p95_s")
        low, high = (self.of(float(q)) for q in np.quantile(samples, _TYPICAL))
        return min(low, high), max(low, high)

    @property
    def share(self) -> float:
        """The share of the limit that `value` reaches; NaN if the limit is unknown."""
        return self.limit / self.value if self.is_time else self.value / self.limit

    @property
    def disturbed(self) -> bool:
        """Whether the record is disturbed."""
        return self.record.get("disturbed") is True

    def _between(self, first: str, last: str) -> tuple[float, float]:
        values = [self.of(float(self.record.get(name) or math.nan)) for name in (first, last)]
        return min(values), max(values)


def valid_records(frame: DataFrame, kernels: Sequence[str], value: str) -> DataFrame:
    """Return the valid records of some kernels with a positive value.

    Parameters
    ----------
    frame : DataFrame
        Records.
    kernels : sequence of str
    value : str
        Column of numbers.
    """
    from pandas import to_numeric

    needed = {"kernel", "valid", "disturbed", "threads", "time_min_s", "time_median_s", value}
    if not needed <= set(frame):
        return frame.iloc[:0]
    rows = frame[frame["kernel"].isin(list(kernels)) & frame["valid"].eq(True)]
    rows = rows.assign(
        disturbed=rows["disturbed"].eq(True),
        caches_multiple=rows.get("caches_multiple", math.nan),  # older records have none
        **{value: to_numeric(rows[value], errors="coerce").astype(float)},
    )
    return cast("DataFrame", rows[rows[value].gt(0) & np.isfinite(rows[value])])


def best_record(rows: DataFrame, column: str, *, lowest: bool = False) -> dict[str, Any]:
    """Return the record with the highest or lowest value in a column, an undisturbed one if any."""
    order = rows.sort_values(["disturbed", column], ascending=[True, lowest], kind="stable")
    (row,) = order.head(1).to_dict("records")
    return {str(name): value for name, value in row.items()}


def from_memory_figures(
    frame: DataFrame, *wanted: tuple[str, str, str, int]
) -> list[FigureOfMerit]:
    """Return the figures of kernels' bandwidths from memory that the records have.

    Each is of the kind of stores with the highest bandwidth, and of the record whose bandwidth is
    the median over the sizes, as `memkern.models.memory.memory_values` has it.

    Parameters
    ----------
    frame : DataFrame
        All records of one machine.
    *wanted : tuple of (str, str, str, int)
        Kernel, and name, title and place as for `FigureOfMerit`.
    """
    rows = valid_records(frame, sorted(set(frame.get("kernel", ()))), "bandwidth_GBps")
    if rows.empty or not {"platform", "variant", "footprint_B"} <= set(rows):
        return []
    rows.attrs.update(frame.attrs)
    values = memory_values(rows, from_memory(rows))
    found = []
    for kernel, name, title, order in wanted:
        of_kernel = values[values["operation"] == kernel]
        if len(of_kernel):
            best = best_record(of_kernel, "bandwidth_GBps")
            found.append(
                bandwidth_figure(
                    best, name, title, order, f"{best['stores']} stores" if best["stores"] else ""
                )
            )
    return found


def bandwidth_figure(
    record: Mapping[str, Any], name: str, title: str, order: int, how: str = ""
) -> FigureOfMerit:
    """Return the figure of a record's bandwidth.

    Parameters
    ----------
    record : mapping
        With bandwidth_GBps and time_min_s.
    name, title, place, how
        As for `FigureOfMerit`.
    """
    return FigureOfMerit(
        name, title, "GB/s", order, record, record["bandwidth_GBps"] * record["time_min_s"], how=how
    )


def figures_of_merit(frame: DataFrame) -> list[FigureOfMerit]:
    """Return the figures of merit of one machine, in the order of their places.

    Parameters
    ----------
    frame : DataFrame
        Its records, with the attributes of `memkern.plots.frames.frame_of`, and their samples in
        the column samples_s, if known.

    Returns
    -------
    list of FigureOfMerit
        With limits where the bandwidths of loads and of a triad from memory are among them.
    """
    frame = with_current_names(frame)
    found = (
        figure for family in family_modules("merit") for figure in family.figures_of_merit(frame)
    )
    return _with_limits(sorted(found, key=lambda figure: figure.order))


def figure_line(figures: Iterable[FigureOfMerit]) -> str:
    """Return figures of merit in one line, such as ``copy=29.6 GB/s; latency=108 ns``.

    Parameters
    ----------
    figures : iterable of FigureOfMerit
        Those of disturbed records are left out.
    """
    return "; ".join(
        f"{figure.name}={figure.value:.6g} {figure.unit}"
        for figure in figures
        if not figure.disturbed
    )


def _with_limits(figures: list[FigureOfMerit]) -> list[FigureOfMerit]:
    """Add the limits by the bandwidths of loads and of the stores of a triad from memory."""
    by_name = {figure.name: figure.record for figure in figures}
    if not set(_CEILINGS) <= set(by_name):
        return figures
    load, triad = (by_name[name] for name in _CEILINGS)
    try:
        load_GBps = transfers_of(load)[MEMORY].load_B / load["time_min_s"] / 1e9
        stores = transfers_of(triad)[MEMORY].stores_GBps(load_GBps, triad["time_min_s"])
    except (InputError, KeyError):  # transfers are unknown, or the triad is faster than its loads
        return figures
    memory = {MEMORY: Ceiling(load_GBps, stores)}
    return [figure if figure.name in _CEILINGS else _limited(figure, memory) for figure in figures]


def _limited(figure: FigureOfMerit, memory: Mapping[str, Ceiling]) -> FigureOfMerit:
    if figure.unit != "GB/s":
        return figure
    try:
        seconds = limit(figure.record, memory, {}).seconds
    except InputError:  # the bytes from memory are unknown
        return figure
    if figure.of(seconds) * _MOST_SHARE < figure.value:  # loads were slower than at other times
        return figure
    return replace(figure, limit=figure.of(seconds))
