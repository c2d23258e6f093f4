"""Figures of merit of the streaming kernels: copy, triad and loads from memory, empty launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memkern.models.merit import FigureOfMerit, best_record, from_memory_figures, valid_records

if TYPE_CHECKING:
    from pandas import DataFrame


def figures_of_merit(frame: DataFrame) -> list[FigureOfMerit]:
    """Return the bandwidths from memory, and the time of an empty launch by most threads."""
    found = from_memory_figures(
        frame,
        ("stream.copy", "copy", "Copy from memory", 1),
        ("stream.triad", "triad", "Triad from memory", 2),
        ("loops.load", "load", "Loads from memory", 3),
    )
    rows = valid_records(frame, ["bs.bs0"], "time_min_s")
    if len(rows):
        most = rows[rows["threads"].eq(rows["threads"].max())]
        record = best_record(most, "time_min_s", lowest=True)
        found.append(FigureOfMerit("launch", "Empty launch", "µs", 8, record, 1e6, is_time=True))
    return found
