"""Figure, tables and findings of transfers from and to a GPU, and their section of a report.

If a case has several records, the one with the highest bandwidth is used.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from memkern.plots.kit import (
    BANDWIDTH,
    FIT_COLUMNS,
    Axis,
    Curves,
    DataFrame,
    Finding,
    Fits,
    Measured,
    Panel,
    Records,
    Selection,
    best,
    by_machine,
    byte_scale,
    distinct,
    family_section,
    fit_rows,
    joined,
    line_fits,
    log_range,
    marked_look,
    ordered,
    say,
    select,
    table,
    tabulated,
    tell,
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
    frame = frame.assign(
        way=frame["kernel"].str.removeprefix("transfers."),
        series=[
            _NAMES.get((memory, variant), variant if memory == "device" else memory)
            for memory, variant in zip(frame["memory"], frame["variant"], strict=True)
        ],
    )
    frame = best(frame, ["machine", "way", "series", "size_B"])
    order = [*WAYS, *_SERIES].index
    return frame.sort_values(["way", "series"], key=lambda c: c.map(order), kind="stable"), notes


def fits(frame: DataFrame) -> Fits:
    """Fit the time of a transfer of each direction and memory; `frame` is as of `transfers`."""
    return line_fits(frame[[*FITTED, "bytes_B", "time_min_s", "valid", "disturbed"]], FITTED)


def _fit_lines(panel: Panel) -> None:
    """Draw the fit of each series."""
    names, known = distinct(panel.frame["series"]), panel.rows.dropna(subset="fit")
    for name, mine in known.sort_values(panel.x).groupby("series", observed=True):
        colour = marked_look(names.index(name)).color
        panel.ax.plot(mine[panel.x], mine["fit"], label="_fit", color=colour, linewidth=0.8)


@Curves(
    name="transfers",
    x=Axis("size_B", "Size of a transfer", byte_scale),
    y=Axis(BANDWIDTH, "Bandwidth (GB/s)", log_range(1.5, 9)),
    layers=(Measured("series", lambda n: marked_look(n)._replace(linestyle="none")), _fit_lines),
    panels=("machine", "way"),
    height=2.3,
    legend=3,
    records="`transfers` kernels",
    returns="A panel for each machine and direction, with a curve for each memory of the host, "
    "6.9 in wide, 3.35 in with one panel. Thin lines are the fits ``T0 + B / Wmax``.",
)
def against_size(records: Records = None) -> Selection:
    """Bandwidth of transfers from and to a GPU against their size, with the fits of T0 and Wmax."""
    frame, notes = transfers(records, MEASURE)
    lines = fits(frame)
    keys = zip(*(frame[name] for name in FITTED), frame["bytes_B"], strict=True)
    predicted = [
        float(lines[of].predict(size_B).bandwidth_GBps) if of in lines else math.nan
        for *key, size_B in keys
        for of in [tuple(key)]
    ]
    frame = ordered(frame, "series", frame["series"].unique())
    frame = frame.assign(fit=predicted, panel=frame["way"].map(WAYS))
    return frame, [*notes, "Lines: T0 + B / Wmax, fitted."]


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
    return by_machine(transfers(records, "")[0], partial(tell, _ROWS))


def _fastest(mine: DataFrame) -> list[dict[str, str]]:
    """Return the highest bandwidth of each memory, for each direction."""
    found = []
    for way, rows in mine.groupby("way", sort=False):
        top = rows.sort_values(BANDWIDTH, ascending=False, kind="stable").drop_duplicates("series")
        values = [say("{series} {bandwidth_GBps}", row) for row in top.to_dict("records")]
        found.append({"way": WAYS[str(way)], "values": joined(values)})
    return found


def _of_no_data(mine: DataFrame) -> list[dict[str, Any]]:
    """Return the resolved times of transfers of no data, the shortest first."""
    order = sorted(fits(mine).items(), key=lambda item: item[1].t0_s)
    return [
        {"way": WAYS[way].lower(), "series": series, "t0_us": 1e6 * fit.t0_s}
        for (_, way, series), fit in order
        if fit.t0_resolved
    ]


_ROWS = (
    Finding("transfers", _fastest, "{way}, highest bandwidth: {values}."),
    Finding(
        "transfers", _of_no_data, "Time of a transfer of no data: {parts}.",
        "{way}, {series}, {t0_us:3} µs",
        joint="; ",
    ),
)  # fmt: skip

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
    ("Transfers in numbers", transfers_table, "Of several records of a size, the best."),
)  # fmt: skip

family_section("transfers", 8, "transfers", "Transfers from and to a GPU", findings, _EXHIBITS)
