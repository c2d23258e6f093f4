"""Figure, tables and findings of transfers from and to a GPU, and their section of a report.

If a case has several records, the one with the highest bandwidth is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memkern.plots.kit import (
    BANDWIDTH,
    FIT_COLUMNS,
    DataFrame,
    Figure,
    Fits,
    Records,
    Selection,
    best,
    by_machine,
    bytes_axis,
    counts_axis,
    curve,
    drawn,
    extent,
    family_section,
    finish,
    fit_rows,
    joined,
    line_fits,
    marked_look,
    marked_value,
    panels,
    plain,
    select,
    shown_in,
    table,
    tabulated,
    three_figures,
)

MEASURE = "memkern transfers -o transfers.parquet"
WAYS = {
    "to_device": "To the device",
    "from_device": "From the device",
    "both": "Both ways at once",
    "between": "Between two devices",
}
_SERIES = (
    *("pinned", "pageable", "managed, prefetched", "managed, read at the other end"),
    *("direct", "staged"),
)
_NAMES = {
    ("managed", "prefetch"): "managed, prefetched",
    ("managed", "touch"): "managed, read at the other end",
}
FITTED = ("machine", "way", "series")


def transfers(records: Records, measure: str) -> tuple[DataFrame, list[str]]:
    """Return the valid records of transfers, and notes on the others.

    Parameters
    ----------
    records : DataFrame, ResultSet or None
        Own records.
    measure : str
        Command that measures such records. If it is empty, no record is no error.

    Returns
    -------
    frame : DataFrame
        The columns of the records and machine, way (such as to_device) and series (the name of a
        curve); the fastest record of each size, sorted by way and series.
    notes : list of str
        Sentences on the records left out.

    Raises
    ------
    InputError
        There is no such record, or a column is missing.
    """
    frame, notes = select(
        records,
        ["transfers"],
        numbers=("size_B", "bytes_B", "time_min_s"),
        texts=("memory", "variant"),
        measure=measure,
    )
    pairs = zip(frame["memory"], frame["variant"], strict=True)
    frame = frame.assign(
        way=frame["kernel"].str.removeprefix("transfers."),
        series=[
            _NAMES.get((memory, variant), variant if memory == "device" else memory)
            for memory, variant in pairs
        ],
    )
    frame = best(frame, ["machine", "way", "series", "size_B"])
    order = [*WAYS, *_SERIES]
    return frame.sort_values(
        ["way", "series"], key=lambda column: column.map(order.index), kind="stable"
    ), notes


def fits(frame: DataFrame) -> Fits:
    """Fit the time of a transfer of each direction and memory; `frame` is as of `transfers`."""
    points = frame[[*FITTED, "bytes_B", "time_min_s", "valid", "disturbed"]]
    return line_fits(points, FITTED)


@drawn(
    "transfers",
    "A panel for each machine and direction, with a curve for each memory of the host, 6.9 in "
    "wide, 3.35 in with one panel. Thin lines are the fits ``T0 + B / Wmax``.",
    records="`transfers` kernels",
)
def against_size(records: Records = None) -> Figure:
    """Bandwidth of transfers from and to a GPU against their size, with the fits of T0 and Wmax."""
    frame, notes = transfers(records, MEASURE)
    lines = fits(frame)
    cells = list(frame.groupby(["machine", "way"], sort=False))
    fig, axes = panels(len(cells), 2, 2.3)
    series = list(dict.fromkeys(frame["series"]))
    low, high = extent(frame, BANDWIDTH)
    several = frame["machine"].nunique() > 1
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
        bytes_axis(ax, 5)
        ax.set(yscale="log", ylim=(low / 1.5, high * 1.5))
        counts_axis(ax.yaxis, 9)
        title = "\n".join([plain(machine, 30)] * several + [WAYS[str(way)]])
        ax.set(title=title, xlabel="Size of a transfer", ylabel="Bandwidth (GB/s)")
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
    return fit_rows(fits(transfers(records, MEASURE)[0]), FITTED)


def findings(records: DataFrame) -> list[str]:
    """Return the findings on every own machine, the most important first."""
    return by_machine(transfers(records, "")[0], _on_machine)


def _on_machine(mine: DataFrame) -> Sequence[str]:
    """Return the findings on one machine."""
    sentences = []
    for way, rows in mine.groupby("way", sort=False):
        order = rows.sort_values(BANDWIDTH, ascending=False, kind="stable")
        top = order.drop_duplicates("series").to_dict("records")
        parts = [f"{row['series']} {marked_value(row, BANDWIDTH, 'GB/s')}" for row in top]
        sentences.append(f"{WAYS[str(way)]}, highest bandwidth: {joined(parts)}.")
    resolved = {of: fit.t0_s for of, fit in fits(mine).items() if fit.t0_resolved}
    if resolved:
        parts = [
            f"{WAYS[way].lower()}, {series}, {three_figures(1e6 * t0_s)} µs"
            for (_, way, series), t0_s in sorted(resolved.items(), key=lambda item: item[1])
        ]
        sentences.append(f"Time of a transfer of no data: {'; '.join(parts)}.")
    return shown_in("transfers", sentences)


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
