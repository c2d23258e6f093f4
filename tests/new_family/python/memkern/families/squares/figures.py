"""Figure of squares, and their section of a report."""

from __future__ import annotations

from memkern.plots import kit


@kit.Curves(
    name="squares-sizes",
    x=kit.Axis("footprint_B", "Memory used", kit.byte_scale),
    y=kit.Axis(kit.BANDWIDTH, "Bandwidth (GB/s)", kit.log_scale),
    layers=(kit.Measured("kernel"),),
    records="`squares` kernels",
    measure="memkern squares --sizes 16KiB:64MiB:12",
)
def sizes(records: kit.Records = None) -> kit.Selection:
    """Bandwidth of squares against the memory used."""
    return kit.select(records, ["squares"], ("footprint_B",))


def findings(records: kit.Records) -> list[str]:
    """Return the highest bandwidth."""
    frame, _ = kit.select(records, ["squares"])
    return [f"Squares have up to {frame[kit.BANDWIDTH].max():.0f} GB/s."]


kit.family_section("squares", 99, "squares", "Squares", findings, [("Squares", sizes, "By size.")])
