"""The picture of each figure: published data, or the made-up records with which tests draw it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memkern.plots import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TESTS = Path(__file__).parents[2] / "tests"

# By the beginning of a figure's name, the longest first: a module of the tests, and its function or
# expression for the records. Others have no picture.
_RECORDS = {
    "amo-": ("test_plots_amo", "everything()"),
    "bs-": ("streaming_figure_records", "everything()"),
    "barrier-cost": ("streaming_figure_records", "everything()"),
    "corun": ("test_neighbours", "frame(rows())"),
    "dw-": ("test_plots_dw", "everything()"),
    "dw-clocks": ("test_plots_dw_energy", "clocks_of()"),
    "dw-energy": ("test_plots_dw_energy", "energies_of()"),
    "ecm": ("test_ecm_figures", "records()"),
    "energy": ("test_energy", "rows()"),
    "explanation": ("test_explanation_figure", "everything()"),
    "fleet": ("test_fleet_figure", "two_machines()"),
    "gpu-blocks": ("test_blocks", "everything()"),
    "latency-": ("test_plots_latency", "sampled(INPUTS['own'])"),
    "loops-": ("streaming_figure_records", "everything()"),
    "matvec": ("streaming_figure_records", "everything()"),
    "messages": ("test_plots_messages", "everything()"),
    "roofline": ("test_ecm_figures", "records()"),
    "saturation": ("streaming_figure_records", "everything()"),
    "scaling": ("test_scaling_figure", "frame(rows())"),
    "sizes": ("streaming_figure_records", "everything()"),
    "spatter-": ("spatter_records", "own_records()"),
    "spatter-fig4": ("test_plots_spatter", "without_prefetchers(own_records())"),
    "spatter-radars-gpu": ("spatter_records", "gpu_records()"),
    "spmv-": ("test_plots_spmv", "everything()"),
    "transfers": ("test_plots_transfers", "everything()"),
}
_OPTIONS = {"roofline": {"machine": "A64FX"}}
_NONE = ("counters", "latency-devices")

PUBLISHED = "Drawn from the published data that the package contains."
MADE_UP = "Drawn from made-up records, which show the form of the figure: they are no measurement."


def drawn(name: str) -> tuple[Figure, str] | None:
    """Return a figure with a sentence on its data; None if there are no records for it.

    Parameters
    ----------
    name : str
        Its name in `memkern.plots.figures`.
    """
    shown = figures.origins.get(name)
    if shown is not None and shown.published:
        return figures[name](None), PUBLISHED
    if name in _NONE:
        return None
    return figures[name](_records(name), **_OPTIONS.get(name, {})), MADE_UP


def _records(name: str) -> Any:
    """Return the records with which the tests draw a figure."""
    for folder in ("", "families", "plots", "spec", "machine"):
        if str(TESTS / folder) not in sys.path:
            sys.path.append(str(TESTS / folder))
    start = max((start for start in _RECORDS if name.startswith(start)), key=len)
    module, expression = _RECORDS[start]
    found = eval(expression, vars(importlib.import_module(module)))
    return importlib.import_module("plotting").Results(found) if isinstance(found, list) else found
