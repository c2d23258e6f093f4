"""Figure and tables of transfers from and to a GPU, and their section of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memkern.families.transfers.data import MEASURE, WAYS, fits, transfers
from memkern.families.transfers.findings import findings
from memkern.plots.drawing import bytes_axis, counts_axis, curve, finish, marked_look, panels
from memkern.plots.frames import Records, fit_columns
from memkern.plots.registry import family_section, register, tables
from memkern.plots.selection import BANDWIDTH
from memkern.plots.style import figure, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@figure("transfers")
def against_size(records: Records = None) -> Figure:
    """Bandwidth of transfers from and to a GPU against their size, with the fits of T0 and Wmax.

    Parameters
    ----------
    records : DataFrame or ResultSet
        Own records of `transfers` kernels.

    Returns
    -------
    matplotlib.figure.Figure
        A panel for each machine and direction, with a curve for each memory of the host, 6.9 in
        wide, 3.35 in with one panel. Thin lines are the fits ``T0 + B / Wmax``.

    Raises
    ------
    InputError
        No such record, or records without a needed column.
    """
    frame, notes = transfers(records, MEASURE)
    lines = {(one.machine, one.way, one.series): one.fit for one in fits(frame)[0]}
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


@register(tables, "transfers")
def transfers_table(records: Records = None) -> DataFrame:
    """Time and bandwidth of transfers by direction, memory of the host and size.

    Parameters
    ----------
    records : DataFrame or ResultSet
        Own records of `transfers` kernels.

    Returns
    -------
    DataFrame
        Columns platform, way, memory, variant, size_B, time_us (the shortest), bandwidth_GBps and
        disturbed.

    Raises
    ------
    InputError
        As `against_size`.
    """
    frame, _ = transfers(records, MEASURE)
    frame = frame.assign(time_us=1e6 * frame["time_min_s"])
    columns = ["platform", "way", "memory", "variant", "size_B", "time_us", BANDWIDTH, "disturbed"]
    return frame[columns].astype({"size_B": int}).reset_index(drop=True)


@register(tables, "transfers-fit")
def fit_table(records: Records = None) -> DataFrame:
    """Time of a transfer as T0 + B / Wmax, by direction and memory of the host.

    Parameters
    ----------
    records : DataFrame or ResultSet
        Own records of `transfers` kernels of three sizes or more.

    Returns
    -------
    DataFrame
        Columns machine, way, series (memory and variant), points, T0_us and Wmax_GBps with their
        95 % intervals, B0.8 (bytes at which 80 % of Wmax is reached), and whether most points are
        more than 10 % off the line.

    Raises
    ------
    InputError
        As `against_size`.
    """
    from pandas import DataFrame

    rows = [
        {
            "machine": one.machine,
            "way": one.way,
            "series": one.series,
            **fit_columns(one.fit),
        }
        for one in fits(transfers(records, MEASURE)[0])[0]
    ]
    names = ["machine", "way", "series", "points", "T0_us", "Wmax_GBps", "B0.8", "far"]
    return DataFrame(rows, columns=names)


_EXHIBITS: tuple[tuple[str, Any, str], ...] = (
    (
        "Transfers from and to a GPU against their size", against_size,
        "Single transfers, for which the host waits. Pageable and pinned memory is copied; pages "
        "of managed memory are moved before (prefetched), or while the other end reads the first "
        "word of each page of 4 KiB. Both ways of pageable memory follow each other. Both axes are "
        "logarithmic.",
    ),
    (
        "Time of a transfer as T0 + B / Wmax", fit_table,
        "Intervals of 95 %. Both ways at once, B is the sum of both directions.",
    ),
)  # fmt: skip

family_section("transfers", 8, "transfers", "Transfers from and to a GPU", findings, _EXHIBITS)
