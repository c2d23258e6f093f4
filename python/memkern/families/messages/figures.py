"""Figure and tables of messages between ranks, and their section of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memkern.families.messages.data import LATENCY, MEASURE, RATE, fits, messages
from memkern.families.messages.findings import findings
from memkern.plots.drawing import bytes_axis, counts_axis, curve, finish, marked_look, panels
from memkern.plots.frames import Records, best, fit_columns
from memkern.plots.registry import family_section, register, tables
from memkern.plots.selection import BANDWIDTH
from memkern.plots.style import figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame


@figure("messages")
def against_size(records: Records = None) -> Figure:
    """Latency, rate and bandwidth of messages between ranks against their size.

    Latency is that of messages of which each is complete before the next one; rate and bandwidth
    are those of all origins together, with the window that makes them highest.

    Parameters
    ----------
    records : DataFrame or ResultSet
        Own records of `messages` kernels.

    Returns
    -------
    matplotlib.figure.Figure
        Three panels for each machine, with a curve for each operation, distance and library,
        6.9 in wide.

    Raises
    ------
    InputError
        No such record, or records without a needed column.
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


@register(tables, "messages")
def messages_table(records: Records = None) -> DataFrame:
    """Latency, rate and bandwidth of messages by operation, distance, size and window.

    Parameters
    ----------
    records : DataFrame or ResultSet
        Own records of `messages` kernels.

    Returns
    -------
    DataFrame
        Columns platform, library, operation, distance, origins, size_B, window, latency_us (where
        the window is 1), messages_per_second and bandwidth_GBps (of all origins) and disturbed.

    Raises
    ------
    InputError
        As `against_size`.
    """
    frame, _ = messages(records, MEASURE)
    columns = ["platform", "library", "operation", "distance", "origins", "size_B", "window"]
    columns += [LATENCY, RATE, BANDWIDTH, "disturbed"]
    whole = {"origins": int, "size_B": int, "window": int}
    return frame[columns].astype(whole).reset_index(drop=True)


@register(tables, "messages-fit")
def fit_table(records: Records = None) -> DataFrame:
    """Time of a message as T0 + B / Wmax, by operation and distance.

    Parameters
    ----------
    records : DataFrame or ResultSet
        Own records of `messages` kernels of several sizes, with a window of 1.

    Returns
    -------
    DataFrame
        Columns machine, library, operation, distance, points, T0 (µs) and Wmax (GB/s) with their
        95 % intervals, B0.8 (bytes at which 80 % of Wmax is reached), and whether most points are
        more than 10 % off the line.

    Raises
    ------
    InputError
        As `against_size`.
    """
    from pandas import DataFrame

    found, _ = fits(messages(records, MEASURE)[0])
    rows = [
        {
            "machine": one.machine,
            "library": one.library,
            "operation": one.operation,
            "distance": one.distance,
            **fit_columns(one.fit),
        }
        for one in found
    ]
    names = ["machine", "library", "operation", "distance", "points", "T0_us", "Wmax_GBps"]
    return DataFrame(rows, columns=[*names, "B0.8", "far"])


_EXHIBITS: tuple[tuple[str, Any, str], ...] = (
    (
        "Messages between ranks against their size", against_size,
        "Latency: each message is complete before the next one; a put or get is complete when the "
        "target's memory has changed or the value is here, of send and receive half of a round "
        "trip is drawn. Rate and bandwidth: of all origins, with the window that makes them "
        "highest. All axes are logarithmic.",
    ),
    (
        "Time of a message as T0 + B / Wmax", fit_table,
        "Of messages that are complete one after the other; intervals of 95 %. Where libraries "
        "change the protocol with the size, one line fits badly.",
    ),
)  # fmt: skip

family_section("messages", 7, "messages", "Messages between ranks", findings, _EXHIBITS)
