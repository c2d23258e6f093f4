"""Figures of merit of STREAM: copy and triad from memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memkern.models.merit import FigureOfMerit, from_memory_figures

if TYPE_CHECKING:
    from pandas import DataFrame


def figures_of_merit(frame: DataFrame) -> list[FigureOfMerit]:
    """Return the bandwidths of copy and triad from memory."""
    return from_memory_figures(
        frame,
        ("stream.copy", "copy", "Copy from memory", 1),
        ("stream.triad", "triad", "Triad from memory", 2),
    )
