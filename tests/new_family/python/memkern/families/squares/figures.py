"""Figure of squares, and their section of a report."""

from __future__ import annotations

from memkern.plots.kit import (
    BANDWIDTH,
    Axis,
    Curves,
    Measured,
    Records,
    Selection,
    byte_scale,
    family_section,
    log_scale,
    select,
)


@Curves(
    name="squares-sizes",
    x=Axis("footprint_B", "Memory used", byte_scale),
    y=Axis(BANDWIDTH, "Bandwidth (GB/s)", log_scale),
    layers=(Measured("kernel"),),
    records="`squares` kernels",
    measure="memkern squares --sizes 16KiB:64MiB:12",
)
def sizes(records: Records = None) -> Selection:
    """Bandwidth of squares against the memory used."""
    return select(records, ["squares"], ("footprint_B",))


def findings(records: Records) -> list[str]:
    """Return the highest bandwidth."""
    frame, _ = select(records, ["squares"])
    return [f"Squares have up to {frame[BANDWIDTH].max():.0f} GB/s."]


family_section("squares", 99, "squares", "Squares", findings, [("Squares", sizes, "By size.")])
