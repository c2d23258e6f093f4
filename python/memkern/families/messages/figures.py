"""Figure and tables of messages between ranks, and their section of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memkern.families.messages.data import FITTED, LATENCY, MEASURE, RATE, fits, messages
from memkern.families.messages.findings import findings
from memkern.plots.drawing import bytes_axis, counts_axis, curve, finish, marked_look, panels
from memkern.plots.exhibits import Selection, drawn, table, tabulated
from memkern.plots.frames import FIT_COLUMNS, Records, best, fit_rows
from memkern.plots.registry import family_section
from memkern.plots.selection import BANDWIDTH
from memkern.plots.style import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame


@drawn(
    "messages",
    "Three panels for each machine, with a curve for each operation, distance and library, 6.9 in "
    "wide.",
    records="`messages` kernels",
)
def against_size(records: Records = None) -> Figure:
    """Latency, rate and bandwidth of messages between ranks against their size.

    Latency is measured with messages that are each complete before the next one starts; rate and
    bandwidth are totals of all origins with the window that gives the highest values.
    """
    frame, notes = messages(records, MEASURE)
    machines = list(frame.groupby("machine", sort=False))
    fig, axes = panels(3 * len(machines), 3, 2.3)
    series = list(dict.fromkeys(frame["series"]))
    views = (
        (LATENCY, "Latency (µs)"),
        (RATE, "Messages per second"),
        (BANDWIDTH, "Bandwidth (GB/s)"),
    )
    for number, (name, rows) in enumerate(machines):
        for ax, (column, label) in zip(axes[3 * number : 3 * number + 3], views, strict=True):
            shown = rows.dropna(subset=column)
            if column != LATENCY:
                shown = best(shown, ("series", "size_B"), value=column)
            _draw(ax, shown, series, column, label)
            if len(machines) > 1:
                ax.set_title(plain(name, 30))
    windows = sorted({int(window) for window in frame["window"]})
    inflight = [f"Windows: {', '.join(map(str, windows))}."]
    return finish(fig, 4, [*notes, *inflight], frame)


def _draw(ax: Axes, rows: DataFrame, series: list[str], column: str, label: str) -> None:
    """Draw one column over the size, a curve for each of the series, on logarithmic axes."""
    for number, name in enumerate(series):
        mine = rows[rows["series"] == name]
        if len(mine):
            curve(ax, mine, "size_B", column, marked_look(number), name)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    if len(rows):
        ax.set_ylim(rows[column].min() / 1.5, rows[column].max() * 1.5)
        bytes_axis(ax.xaxis, 5)
        counts_axis(ax.yaxis, 9)
    ax.set(xlabel="Size of a message", ylabel=label)


@table(
    "messages",
    "platform, library, operation, distance, origins, size_B, window, latency_us (where the window "
    "is 1), messages_per_second and bandwidth_GBps (of all origins), disturbed",
    integers="origins, size_B, window",
    records="`messages` kernels",
)
def messages_table(records: Records = None) -> Selection:
    """Latency, rate and bandwidth of messages by operation, distance, size and window."""
    return messages(records, MEASURE)


@tabulated(
    "messages-fit",
    f"Columns {', '.join(FITTED)}, {FIT_COLUMNS}.",
    records="`messages` kernels of several sizes, with a window of 1",
)
def fit_table(records: Records = None) -> DataFrame:
    """Time of a message as T0 + B / Wmax, by operation and distance."""
    return fit_rows(fits(messages(records, MEASURE)[0])[0], FITTED)


_EXHIBITS: tuple[tuple[str, Any, str], ...] = (
    (
        "Messages between ranks against their size", against_size,
        "Latency: each message is complete before the next one; a put or get is complete when the "
        "target's memory has changed or the value has arrived; for send and receive, half of a "
        "round trip is drawn. Rate and bandwidth: of all origins, with the window that makes them "
        "highest. All axes are logarithmic.",
    ),
    (
        "Time of a message as T0 + B / Wmax", fit_table,
        "Of messages that are complete one after the other; intervals of 95 %. Where libraries "
        "change the protocol with the size, one line fits badly.",
    ),
)  # fmt: skip

family_section("messages", 7, "messages", "Messages between ranks", findings, _EXHIBITS)
