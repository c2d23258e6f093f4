"""Figure of squares, and their section of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memkern.plots.drawing import curve, finish, marked_look, panels
from memkern.plots.frames import Records
from memkern.plots.registry import family_section
from memkern.plots.selection import BANDWIDTH, select
from memkern.plots.style import figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@figure("squares-sizes")
def sizes(records: Records = None) -> Figure:
    """Bandwidth of squares against the length of the arrays."""
    frame, notes = select(records, ["squares"], ("elements",), measure="memkern squares")
    fig, (ax,) = panels(1, 2, 2.4)
    for number, (platform, rows) in enumerate(frame.groupby("platform")):
        curve(ax, rows, "elements", BANDWIDTH, marked_look(number), str(platform))
    ax.set(xlabel="Elements", ylabel="Bandwidth (GB/s)")
    return finish(fig, 1, notes, frame)


def findings(records: DataFrame) -> list[str]:
    """Return the highest bandwidth."""
    frame, _ = select(records, ["squares"])
    return [f"Squares have up to {frame[BANDWIDTH].max():.0f} GB/s."]


family_section("squares", 99, "squares", "Squares", findings, [("Squares", sizes, "By length.")])
