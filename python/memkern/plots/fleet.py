"""The figure and the table of the nodes of a fleet."""

from __future__ import annotations

import numpy as np

from memkern.formats import ResultSet
from memkern.plots.kit import (
    GREY,
    NOTE_SIZE,
    Axes,
    DataFrame,
    Drawn,
    Figure,
    Records,
    counted,
    drawn,
    finish,
    mark,
    named,
    need_rows,
    own_look,
    panels,
    plain,
    row_in,
    rows_of,
    tabulated,
)
from memkern.results.effects import LEAST_POWER
from memkern.results.fleet import INSIDE, NODE, fleet

_FILES = "``memkern compare fleet -o``"
_MOST_NODES = 40
_BAND = "#dfe7ee"


@tabulated("fleet", "As of `memkern.fleet`.", records=_FILES)
def fleet_table(records: Records = None) -> DataFrame:
    """Effect of each node on the times of its cases, beside the others and its own history."""
    rows = rows_of(records)
    samples = [np.empty(0)] * len(rows)  # they are not needed
    found = fleet(ResultSet(rows, samples, getattr(records, "environments", {})))
    found.attrs["notes"] = found.attrs.pop("remarks")
    return found


@drawn(
    "fleet",
    "A panel for each processor, 6.9 in wide.",
    records=_FILES,
    lack="there is no such record, or nodes have no others beside them",
)
def fleet_dots(records: Records = None) -> Figure:
    """Slowdown of each node with its interval, and the smallest that would have been found."""
    frame = fleet_table(records)
    notes = [f"{sentence}." for sentence in frame.attrs["notes"]]
    known = frame[frame["evidence"].notna()].assign(disturbed=False)
    need_rows(known, "no node can be judged: each is disturbed or invalid")
    lack = frame[frame["evidence"].isna()]
    left_out = [f"{row[NODE]} ({row['verdict']})" for row in lack.to_dict("records")]
    if left_out:
        more = f" and {len(left_out) - 3} more" * (len(left_out) > 3)
        notes.append(f"Not judged: {', '.join(left_out[:3])}{more}.")
    # A node's row is the one that shows most.
    order = known.assign(off=known["verdict"] != INSIDE).sort_values(["off", "evidence"])
    shown = order[order["off"] | (order["part"] == known["part"].iloc[0])]
    shown = shown.groupby(["machine", NODE], sort=False).tail(1)
    where = {key: _where(rows) for key, rows in known.groupby(["machine", NODE])}
    shown = shown.assign(
        part=[where[key] for key in zip(shown["machine"], shown[NODE], strict=True)]
    )
    groups = list(shown.groupby("machine", sort=False))
    most = min(max(len(rows) for _, rows in groups), _MOST_NODES)
    fig, axes = panels(len(groups), 1, row_in(most, 1) + 0.4)
    for ax, (machine, rows) in zip(axes, groups, strict=True):
        _panel(ax, rows.sort_values("slowdown"))
        ax.set_title(f"{named(machine)}, {counted(len(rows), 'node')}", loc="left")
    if most == _MOST_NODES:
        notes.append(f"Of more than {_MOST_NODES} nodes, those at both ends.")
    notes.append(
        f"Shaded: up to the slowdown that is named with {LEAST_POWER:g}; darker, with 0.5."
    )
    return finish(fig, 3, notes, shown)


def _where(rows: DataFrame) -> str:
    """Return the parts of a node that are off, unless all or none are."""
    whole, *parts = dict.fromkeys(rows["part"])
    off = [part for part in parts if rows[rows["part"] == part]["verdict"].ne(INSIDE).any()]
    return ", ".join(off) if 0 < len(off) < len(parts) else whole


def _panel(ax: Axes, nodes: DataFrame) -> None:
    """Draw the nodes of a processor, the fastest at the top."""
    if len(nodes) > _MOST_NODES:
        half = _MOST_NODES // 2
        nodes = nodes[[k < half or k >= len(nodes) - half for k in range(len(nodes))]]
    nodes = nodes.assign(position=np.arange(len(nodes)), percent=100 * nodes["slowdown"])
    for column, colour in (("least_slowdown", _BAND), ("half", "#c9d6e2")):
        far = nodes[column].replace(np.inf, np.nan).median()
        ax.axvspan(100 * (1 / (1 + far) - 1), 100 * far, color=colour, linewidth=0, zorder=0)
    off = nodes["verdict"].ne(INSIDE)
    for label, which, colour in (("off", off, own_look(1).color), (INSIDE, ~off, GREY)):
        if (some := nodes[which]).empty:
            continue
        ends = (100 * some[["low", "high"]]).to_numpy().T
        ax.hlines(some["position"], *ends, color=colour, linewidth=0.8)
        (dots,) = ax.plot(
            some["percent"], some["position"], "o", color=colour, markersize=3.0, label=label
        )
        mark(dots, Drawn(label, some, "percent", "position"))
    for row in nodes[off].to_dict("records"):
        ax.annotate(
            str(row["part"]),
            (1.01, row["position"]),
            xycoords=ax.get_yaxis_transform(),
            va="center",
            fontsize=NOTE_SIZE,
            color=own_look(1).color,
        )
    ax.axvline(0, color=GREY, linewidth=0.6, zorder=1)
    ax.set_yticks(nodes["position"], [plain(name, 24) for name in nodes[NODE]])
    ax.set(ylim=(len(nodes) - 0.5, -0.5), xlabel="Time over that of the others - 1, %")
    ax.grid(False, axis="y")
