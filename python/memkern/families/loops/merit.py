"""Figure of merit of the loop kernels: loads from memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memkern.models.merit import FigureOfMerit, from_memory_figures

if TYPE_CHECKING:
    from pandas import DataFrame


def figures_of_merit(frame: DataFrame) -> list[FigureOfMerit]:
    """Return the bandwidth of loads from memory."""
    return from_memory_figures(frame, ("loops.load", "load", "Loads from memory", 3))
