"""Figure of the cost of a barrier."""

from __future__ import annotations

from memkern.plots.kit import (
    HIGH,
    LOW,
    Axes,
    DataFrame,
    Figure,
    Records,
    counts_axis,
    curve,
    drawn,
    finish,
    intervals,
    marked_look,
    panels,
    plain,
    ranked,
    select,
    threads_axis,
)
from memkern.plots.papers import told_points
from memkern.shared.streaming_records import BARRIER

# Labels of a legend, from the cheapest kind of waiting to the most expensive.
_CYCLES = "Core cycles of a barrier"
_BARRIERS = {"spin": "spinning", "omp-active": "OpenMP, active", "omp-passive": "OpenMP, passive"}


@drawn(
    "barrier-cost",
    "A panel of nanoseconds and, if the clock is known, one of cycles, 6.9 in wide.",
    paper="alappat2021",
    number="figure 3",
    records="`launch.barrier`; the lowest cost of each kind and thread count is drawn",
)
def barrier_cost(records: Records = None) -> Figure:
    """Cost of a barrier against the number of threads, in nanoseconds and in core cycles."""
    ends = ("barrier_low_s", "barrier_high_s")
    frame, notes = select(
        records,
        [BARRIER],
        ("threads", "barrier", "clock_GHz", *ends),
        measure="memkern machine barrier -o barrier.parquet",
        value="barrier_s",
    )
    frame = ranked(frame, "barrier_s", lowest=True)
    frame = frame.drop_duplicates(["machine", "barrier", "threads"])
    several = frame["machine"].nunique() > 1
    units = [("Time of a barrier (ns)", frame.assign(scale=1e9))]
    with_clock = frame[frame["clock_GHz"] > 0]
    if len(with_clock):
        units.append((_CYCLES, with_clock.assign(scale=with_clock["clock_GHz"] * 1e9)))
        notes.append(
            "A64FX: numbers in the text of Alappat et al. 2021, the second for more than 12 cores."
        )
    else:
        notes.append("The records have no clock frequency.")
    fig, axes = panels(len(units), 2, 2.4)
    kinds = [*_BARRIERS, *sorted(set(frame["barrier"]) - set(_BARRIERS))]
    for ax, (unit, rows) in zip(axes, units, strict=True):
        number = 0
        for name in dict.fromkeys(frame["machine"]):
            for kind in kinds:
                mine = rows[(rows["machine"] == name) & (rows["barrier"] == kind)]
                label = _BARRIERS.get(kind, plain(kind)) + f": {plain(name, 28)}" * several
                if len(mine):
                    _with_spread(ax, mine.sort_values("threads"), number, label)
                    number += 1
        cores = told_points(ax, "figure 3", "cost of a barrier") if unit == _CYCLES else []
        ax.set(xlabel="Threads", ylabel=unit, yscale="log")
        counts_axis(ax.yaxis, 12)
        threads_axis(ax, max([rows["threads"].max(), *cores]))
    return finish(fig, 3, [*notes, "Bars: spread over the runs."], frame)


def _with_spread(ax: Axes, rows: DataFrame, number: int, label: str) -> None:
    """Draw the median cost of one kind of barrier with its range over the runs."""
    columns = {"barrier_s": "drawn", "barrier_low_s": LOW, "barrier_high_s": HIGH}
    rows = rows.assign(**{new: rows[old] * rows["scale"] for old, new in columns.items()})
    look = marked_look(number)
    intervals(ax, rows, "threads", "drawn", look, "_spread", label)
    curve(ax, rows, "threads", "drawn", look, label)
