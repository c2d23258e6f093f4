"""Figure of merit of the latency kernels: a dependent load from memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memkern.machine.caches import FROM_MEMORY
from memkern.models.memory import middle
from memkern.models.merit import FigureOfMerit, valid_records

if TYPE_CHECKING:
    from pandas import DataFrame


def figures_of_merit(frame: DataFrame) -> list[FigureOfMerit]:
    """Return the time of a load from memory that waits for the previous load, by one worker."""
    rows = valid_records(frame, ["latency.chase"], "ns_per_access")
    if rows.empty:
        return []
    alone = rows["threads"].eq(1) & rows["chains"].eq(1) & rows["order"].eq("random")
    rows = rows[alone & rows["caches_multiple"].ge(FROM_MEMORY)]
    if rows.empty:
        return []
    record = middle(rows.to_dict("records"), "ns_per_access")
    return [
        FigureOfMerit(
            "latency",
            "Idle latency of memory",
            "ns",
            4,
            record,
            record["ns_per_access"] / record["time_median_s"],
            is_time=True,
            by_median=True,
        )
    ]
