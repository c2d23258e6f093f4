"""Figure of merit of the finite-element tests: the launch of an empty parallel region."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memkern.models.merit import FigureOfMerit, best_record, valid_records

if TYPE_CHECKING:
    from pandas import DataFrame


def figures_of_merit(frame: DataFrame) -> list[FigureOfMerit]:
    """Return the time of an empty launch by most threads."""
    rows = valid_records(frame, ["bs.bs0"], "time_min_s")
    if rows.empty:
        return []
    most = rows[rows["threads"].eq(rows["threads"].max())]
    record = best_record(most, "time_min_s", lowest=True)
    return [FigureOfMerit("launch", "Empty launch", "µs", 8, record, 1e6, is_time=True)]
