"""The figure and the table of the nodes of a fleet."""

from __future__ import annotations

from typing import Any

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
from memkern.results.fleet import INSIDE, cases, fleet
from memkern.results.verdicts import FASTER, SLOWER

_FILES = "``memkern compare fleet -o``"
_MOST_NAMES = 3
_BAND = "#dfe7ee"


@tabulated("fleet", "As of `memkern.fleet`.", records=_FILES)
def fleet_table(records: Records = None) -> DataFrame:
    """Value of each node in each case, beside the range of its fleet."""
    rows = rows_of(records)
    samples = [np.empty(0)] * len(rows)  # they are not needed
    found = fleet(ResultSet(rows, samples, getattr(records, "environments", {})))
    found.attrs["notes"] = found.attrs.pop("remarks")
    return found


@drawn(
    "fleet",
    "A panel for each processor, 6.9 in wide.",
    records=_FILES,
    lack="there is no such record, or no case on enough nodes",
)
def fleet_dots(records: Records = None) -> Figure:
    """Speed of each node over the median of its fleet, with the range and the nodes outside."""
    frame = fleet_table(records)
    notes = [f"{sentence}." for sentence in frame.attrs["notes"]]
    need_rows(cases(frame), "no node can be judged: each is disturbed, invalid or in another state")
    timed = frame[frame["slowdown"].notna() & frame["machine"].isin(cases(frame)["machine"])]
    timed = timed.assign(speed=1 / (1 + timed["slowdown"]), disturbed=timed["p"].isna())
    fleets = cases(timed)
    groups = list(fleets.groupby("machine", sort=False))
    most = max(len(rows) for _, rows in groups)
    fig, axes = panels(len(groups), 1, row_in(most, 2) + 0.2)
    for ax, (machine, rows) in zip(axes, groups, strict=True):
        _panel(ax, rows, timed[timed["machine"] == machine])
        nodes = timed[timed["machine"] == machine]["node"].nunique()
        ax.set_title(f"{named(machine)}, {counted(nodes, 'node')}", loc="left")
    notes.append("Shaded: the range outside of which a node is named.")
    return finish(fig, 3, notes, timed.assign(disturbed=False))


def _panel(ax: Axes, shown: DataFrame, nodes: DataFrame) -> None:
    """Draw the nodes of a processor, a row for each case."""
    for position, case in enumerate(shown.to_dict("records")):
        far = 1 + case["least_slowdown"]
        ax.barh(position, far - 1 / far, 0.7, left=1 / far, color=_BAND, zorder=1)
        own = nodes[nodes["case"] == case["case"]]
        outside = own[own["verdict"].isin((SLOWER, FASTER))].sort_values("speed")
        names = [plain(name, 16) for name in outside["node"]]
        more = f" and {len(names) - _MOST_NAMES} more" * (len(names) > _MOST_NAMES)
        ax.annotate(
            ", ".join(names[:_MOST_NAMES]) + more,
            (1.01, position),
            xycoords=ax.get_yaxis_transform(),
            va="center",
            fontsize=NOTE_SIZE,
            color=own_look(1).color,
        )
    where = {case: position for position, case in enumerate(shown["case"])}
    nodes = nodes[nodes["case"].isin(where)]
    # Nodes are beside each other, each at the same height in all cases.
    heights = dict(
        zip(
            sorted(set(nodes["node"])),
            np.linspace(-0.25, 0.25, nodes["node"].nunique()),
            strict=True,
        )
    )
    nodes = nodes.assign(position=nodes["case"].map(where) + nodes["node"].map(heights))
    judged = ~nodes["disturbed"]
    outside = judged & nodes["verdict"].ne(INSIDE)
    looks: dict[str, tuple[Any, Any, str]] = {
        INSIDE: (judged & ~outside, GREY, GREY),
        "outside": (outside, own_look(1).color, own_look(1).color),
        "not judged": (nodes["disturbed"], GREY, "white"),
    }
    for label, (which, colour, face) in looks.items():
        if (some := nodes[which]).empty:
            continue
        how = {"color": colour, "markerfacecolor": face, "markersize": 3.0, "linestyle": "none"}
        (dots,) = ax.plot(some["speed"], some["position"], marker="o", label=label, **how)
        mark(dots, Drawn(label, some, "speed", "position"))
    lowest = min(nodes["speed"].min(), 1 / (1 + shown["least_slowdown"].max()))
    ax.set_xlim(lowest / 1.05, 1.05 * max(nodes["speed"].max(), 1.1))
    ax.axvline(1, color=GREY, linewidth=0.6, zorder=1.5)
    ax.set_yticks(range(len(shown)), [plain(label, 44) for label in shown["label"]])
    ax.set(ylim=(len(shown) - 0.5, -0.5), xlabel="Speed over the median of the other nodes")
    ax.grid(False, axis="y")
