"""Figure of squares, and their section of a report."""

from __future__ import annotations

from memkern.plots.exhibits import Axis, Selection, curve_figure, log_scale
from memkern.plots.frames import Records
from memkern.plots.registry import family_section
from memkern.plots.selection import BANDWIDTH, select


@curve_figure(
    "squares-sizes",
    x=Axis("elements", "Elements", log_scale),
    y=Axis(BANDWIDTH, "Bandwidth (GB/s)", log_scale),
    by="kernel",
    records="`squares` kernels",
    measure="memkern squares --sizes 16KiB:64MiB:12",
)
def sizes(records: Records = None) -> Selection:
    """Bandwidth of squares against the length of the arrays."""
    return select(records, ["squares"], ("elements",))


def findings(records: Records) -> list[str]:
    """Return the highest bandwidth."""
    frame, _ = select(records, ["squares"])
    return [f"Squares have up to {frame[BANDWIDTH].max():.0f} GB/s."]


family_section("squares", 99, "squares", "Squares", findings, [("Squares", sizes, "By length.")])
