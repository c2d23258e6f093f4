"""The figure and the table of slowdowns beside neighbours."""

from __future__ import annotations

import math

from memkern.machine.environment import machine_label
from memkern.plots.kit import (
    MOST_CELLS,
    DataFrame,
    Figure,
    Records,
    drawn,
    first_of,
    heat_map,
    named,
    note,
    panels,
    plain,
    rows_of,
    tabulated,
)
from memkern.results.slowdowns import ENTRIES, entry, slowdowns

# Names that fit into half the width of a page: their number, and the length of each.
_NARROW, _SHORT = 6, 16


@tabulated(
    "corun",
    "As of `memkern.slowdowns`.",
    records="``memkern corun``",
)
def slowdown_table(records: Records = None) -> DataFrame:
    """Slowdown of each case beside each neighbour, with intervals and rates."""
    return slowdowns(rows_of(records))


@drawn(
    "corun",
    "A panel for each machine, 6.9 in wide, 3.35 in with one panel of few and short names.",
    records="``memkern corun``",
)
def slowdown_map(records: Records = None) -> Figure:
    """Slowdown of each case beside each neighbour, as a heat map."""
    frame = slowdown_table(records)
    frame = frame.assign(machine=[machine_label(platform) for platform in frame["platform"]])
    first, left = first_of(frame, ["machine", "kernel", "beside"])
    most = first[["kernel", "beside"]].nunique().max()
    notes = ([ENTRIES] if most <= MOST_CELLS else []) + left
    cells = list(first.groupby("machine", sort=False))
    names = set(first["kernel"]) | set(first["beside"])
    wide = len(names) > _NARROW or max(map(len, names)) > _SHORT
    height = 1.4 + 0.32 * max(rows["kernel"].nunique() for _, rows in cells)
    fig, axes = panels(len(cells), 1 if wide else 2, height)
    for ax, (name, rows) in zip(axes, cells, strict=True):
        found = {
            (plain(row["kernel"], 24), plain(row["beside"], 24)): row
            for row in rows.to_dict("records")
        }
        values = {k: math.nan if row["disturbed"] else row["ratio"] for k, row in found.items()}
        texts = {k: entry(row).replace(" ±", "\n±") for k, row in found.items()}
        sides = [list(dict.fromkeys(pair[side] for pair in values)) for side in (0, 1)]
        heat_map(ax, values, "Time over that alone", sides, texts=texts, ends=(1.0, 2.0))
        for label in ax.get_xticklabels():
            label.set(rotation=35, ha="right")
        ax.set(xlabel="Neighbour", ylabel="Measured")
        if len(cells) > 1:
            ax.set_title(named(name, 20))
    note(fig, notes)
    return fig
