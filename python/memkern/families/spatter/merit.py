"""Figures of merit of gather and scatter: gathers at strides 1 and 8."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memkern.machine.caches import FROM_MEMORY
from memkern.models.merit import FigureOfMerit, bandwidth_figure, best_record, valid_records

if TYPE_CHECKING:
    from pandas import DataFrame


_PATTERN = "UNIFORM:8:{}"


def figures_of_merit(frame: DataFrame) -> list[FigureOfMerit]:
    """Return the bandwidths of gathers of 8-byte values at strides 1 and 8, by most threads."""
    rows = valid_records(frame, ["spatter.gather"], "bandwidth_GBps")
    if rows.empty:
        return []
    large = rows["caches_multiple"].ge(FROM_MEMORY) & rows["dtype"].eq("float64")
    rows = rows[large & rows["threads"].eq(rows["threads"].max())]
    found = []
    for position, stride in ((5, 1), (6, 8)):
        mine = rows[
            rows["pattern"].isin([_PATTERN.format(stride), f"{_PATTERN.format(stride)}:NR"])
        ]
        if len(mine):
            record = best_record(mine, "bandwidth_GBps")
            name, title = f"gather_stride_{stride}", f"Gather at stride {stride}"
            found.append(bandwidth_figure(record, name, title, position))
    return found
