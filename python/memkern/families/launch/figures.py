"""Figure of the cost of a barrier."""

from __future__ import annotations

from memkern.plots.kit import (
    HIGH,
    LOW,
    QUANTITY,
    Axis,
    Curves,
    Measured,
    Panel,
    Records,
    Selection,
    distinct,
    intervals,
    log_counts,
    marked_look,
    ordered,
    plain,
    quantities,
    ranked,
    select,
    threads_axis,
)
from memkern.plots.papers import told_points
from memkern.shared.streaming_records import BARRIER

NS, CYCLES = "barrier_ns", "barrier_cycles"
# Labels of a legend, from the cheapest kind of waiting to the most expensive.
_BARRIERS = {"spin": "spinning", "omp-active": "OpenMP, active", "omp-passive": "OpenMP, passive"}


def _spread(panel: Panel) -> None:
    """Draw the range over the runs of each curve."""
    for number, name in enumerate(distinct(panel.frame["series"])):
        rows = panel.rows[panel.rows["series"] == name]
        per_s = rows[panel.y] / rows["barrier_s"]
        rows = rows.assign(
            **{LOW: rows["barrier_low_s"] * per_s, HIGH: rows["barrier_high_s"] * per_s}
        )
        intervals(panel.ax, rows, panel.x, panel.y, marked_look(number), "_spread", name)


def _told(panel: Panel) -> None:
    """Draw the numbers of the paper's text, which are cycles."""
    if panel.y == CYCLES:
        told_points(panel.ax, "figure 3", "cost of a barrier")


@Curves(
    name="barrier-cost",
    x=Axis("threads", "Threads", lambda ax, *_: threads_axis(ax, ax.dataLim.x1)),
    y={
        NS: Axis(NS, "Time of a barrier (ns)", log_counts(12)),
        CYCLES: Axis(CYCLES, "Core cycles of a barrier", log_counts(12)),
    },
    layers=(_spread, Measured("series"), _told),
    panels=(QUANTITY,),
    title=lambda *_: "",
    height=2.4,
    legend=3,
    paper="alappat2021",
    number="figure 3",
    records="`launch.barrier`; the lowest cost of each kind and thread count is drawn",
    returns="A panel of nanoseconds and, if the clock is known, one of cycles, 6.9 in wide.",
)
def barrier_cost(records: Records = None) -> Selection:
    """Cost of a barrier against the number of threads, in nanoseconds and in core cycles."""
    frame, notes = select(
        records,
        [BARRIER],
        ("threads", "barrier", "clock_GHz", "barrier_low_s", "barrier_high_s"),
        measure="memkern machine barrier -o barrier.parquet",
        value="barrier_s",
    )
    frame = ranked(frame, "barrier_s", lowest=True).drop_duplicates(
        ["machine", "barrier", "threads"]
    )
    several = frame["machine"].nunique() > 1
    time_ns = 1e9 * frame["barrier_s"]
    frame = frame.assign(
        series=frame["machine"] + frame["barrier"],
        curve_label=[
            _BARRIERS.get(kind, plain(kind)) + f": {plain(machine, 28)}" * several
            for kind, machine in zip(frame["barrier"], frame["machine"], strict=True)
        ],
        barrier_ns=time_ns,
        barrier_cycles=(time_ns * frame["clock_GHz"]).where(frame["clock_GHz"] > 0),
    )
    frame = ordered(frame, "barrier", dict.fromkeys([*_BARRIERS, *sorted(frame["barrier"])]))
    frame = ordered(frame, "machine", frame["machine"].unique())
    frame = quantities(frame.sort_values(["machine", "barrier"]), NS, CYCLES)
    notes.append(
        "A64FX: numbers in the text of Alappat et al. 2021, the second for more than 12 cores."
        if frame[QUANTITY].eq(CYCLES).any()
        else "The records have no clock frequency."
    )
    return frame, [*notes, "Bars: spread over the runs."]
