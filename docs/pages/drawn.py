"""The picture of each figure: published data, or the made-up records with which tests draw it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from memkern.plots import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TESTS = Path(__file__).parents[2] / "tests"

PUBLISHED = "Drawn from the published data that the package contains."
MADE_UP = "Drawn from made-up records, which show the form of the figure: they are no measurement."


def drawn(name: str) -> tuple[Figure, str]:
    """Return a figure with a sentence on its data.

    Parameters
    ----------
    name : str
        Its name in `memkern.plots.figures`.
    """
    shown = figures.origins.get(name)
    if shown is not None and shown.published:
        return figures[name](None), PUBLISHED
    sys.path += {str(TESTS / folder) for folder in ("", "families", "plots")} - {*sys.path}
    inputs = importlib.import_module("exhibit_records").inputs_of(figures[name])
    return figures[name](inputs.everything(), **inputs.options.get(name, {})), MADE_UP
