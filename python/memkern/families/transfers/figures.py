"""Figure and tables of transfers from and to a GPU, and their section of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memkern.families.transfers.data import FITTED, MEASURE, WAYS, fits, transfers
from memkern.families.transfers.findings import findings
from memkern.plots.drawing import bytes_axis, counts_axis, curve, finish, marked_look, panels
from memkern.plots.exhibits import Selection, drawn, table, tabulated
from memkern.plots.frames import FIT_COLUMNS, Records, fit_rows
from memkern.plots.registry import family_section
from memkern.plots.selection import BANDWIDTH
from memkern.plots.style import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@drawn(
    "transfers",
    "A panel for each machine and direction, with a curve for each memory of the host, 6.9 in "
    "wide, 3.35 in with one panel. Thin lines are the fits ``T0 + B / Wmax``.",
    records="`transfers` kernels",
)
def against_size(records: Records = None) -> Figure:
    """Bandwidth of transfers from and to a GPU against their size, with the fits of T0 and Wmax."""
    frame, notes = transfers(records, MEASURE)
    lines, _ = fits(frame)
    cells = list(frame.groupby(["machine", "way"], sort=False))
    fig, axes = panels(len(cells), 2, 2.3)
    series = list(dict.fromkeys(frame["series"]))
    low, high = frame[BANDWIDTH].min() / 1.5, frame[BANDWIDTH].max() * 1.5
    for ax, ((machine, way), rows) in zip(axes, cells, strict=True):
        for number, name in enumerate(series):
            mine = rows[rows["series"] == name].sort_values("size_B")
            if mine.empty:
                continue
            look = marked_look(number)
            curve(ax, mine, "size_B", BANDWIDTH, look._replace(linestyle="none"), name)
            fit = lines.get((str(machine), str(way), name))
            if fit is not None:
                ax.plot(
                    mine["size_B"],
                    fit.predict(mine["bytes_B"]).bandwidth_GBps,
                    color=look.color,
                    linewidth=0.8,
                    label="_fit",
                )
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_ylim(low, high)
        bytes_axis(ax.xaxis, 5)
        counts_axis(ax.yaxis, 9)
        several = frame["machine"].nunique() > 1
        ax.set_title("\n".join([plain(machine, 30)] * several + [WAYS[str(way)]]))
        ax.set(xlabel="Size of a transfer", ylabel="Bandwidth (GB/s)")
    return finish(fig, 3, [*notes, "Lines: T0 + B / Wmax, fitted."], frame)


@table(
    "transfers",
    "platform, way, memory, variant, size_B, time_us (the shortest), bandwidth_GBps, disturbed",
    integers="size_B",
    records="`transfers` kernels",
)
def transfers_table(records: Records = None) -> Selection:
    """Time and bandwidth of transfers by direction, memory of the host and size."""
    frame, notes = transfers(records, MEASURE)
    return frame.assign(time_us=1e6 * frame["time_min_s"]), notes


@tabulated(
    "transfers-fit",
    f"Columns {', '.join(FITTED)} (memory and variant), {FIT_COLUMNS}.",
    records="`transfers` kernels of three sizes or more",
)
def fit_table(records: Records = None) -> DataFrame:
    """Time of a transfer as T0 + B / Wmax, by direction and memory of the host."""
    return fit_rows(fits(transfers(records, MEASURE)[0])[0], FITTED)


_EXHIBITS: tuple[tuple[str, Any, str], ...] = (
    (
        "Transfers from and to a GPU against their size", against_size,
        "Single transfers, for which the host waits. Pageable and pinned memory is copied; pages "
        "of managed memory are moved before (prefetched), or while the other end reads the first "
        "word of each page of 4 KiB. In both directions at once, copies of pageable memory follow "
        "each other. Both axes are logarithmic.",
    ),
    (
        "Time of a transfer as T0 + B / Wmax", fit_table,
        "Intervals of 95 %. Where both directions are measured at once, B is their sum.",
    ),
)  # fmt: skip

family_section("transfers", 8, "transfers", "Transfers from and to a GPU", findings, _EXHIBITS)
