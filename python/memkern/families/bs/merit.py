"""Figure of merit of the finite-element tests: the launch of an empty parallel region."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memkern.models.merit import FigureOfMerit, valid_records

if TYPE_CHECKING:
    from pandas import DataFrame


def figures_of_merit(frame: DataFrame) -> list[FigureOfMerit]:
    """Return the time of an empty launch by most threads."""
    rows = valid_records(frame, ["bs.bs0"], "time_min_s")
    if rows.empty:
        return []
    record = dict(rows.sort_values(["threads", "time_min_s"], ascending=[False, True]).iloc[0])
    return [FigureOfMerit("launch", "Empty launch", "µs", 8, record, 1e6, is_time=True)]
