"""Named figures and tables, and the sections of a report.

The figures of a family are defined in ``families/<family>/figures.py``. matplotlib and pandas are
imported when a figure is drawn.

Examples
--------
>>> from memkern.plots import figures, save
>>> save(figures["spatter-fig3"](None), "strides.pdf")  # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

from memkern.discovery import family_modules
from memkern.plots import registry
from memkern.plots.blocks import block_map, block_table
from memkern.plots.ecm import (
    ecm_table,
    overlap_diagram,
    predicted_against_measured,
    roofline_figure,
    roofline_table,
)
from memkern.plots.energy import by_setting, clock_table, clock_whiskers, z_plot
from memkern.plots.explanation import explanation_bars, explanation_table
from memkern.plots.fleet import fleet_dots, fleet_table
from memkern.plots.kernels import kernel_table, shares_of_peak
from memkern.plots.neighbours import slowdown_map, slowdown_table
from memkern.plots.papers import paper_table, told_table
from memkern.plots.ports import port_occupancy
from memkern.plots.registry import Exhibit, Section, describe
from memkern.plots.scaling import efficiency_table, scaling_curves
from memkern.plots.style import save
from memkern.plots.traffic import counted_traffic, traffic_table

if TYPE_CHECKING:
    from memkern.plots.registry import figures, sections, tables

__all__ = [
    "Exhibit",
    "Section",
    "block_map",
    "block_table",
    "by_setting",
    "clock_table",
    "clock_whiskers",
    "counted_traffic",
    "describe",
    "ecm_table",
    "efficiency_table",
    "explanation_bars",
    "explanation_table",
    "figures",
    "fleet_dots",
    "fleet_table",
    "kernel_table",
    "overlap_diagram",
    "paper_table",
    "port_occupancy",
    "predicted_against_measured",
    "roofline_figure",
    "roofline_table",
    "save",
    "scaling_curves",
    "sections",
    "shares_of_peak",
    "slowdown_map",
    "slowdown_table",
    "tables",
    "told_table",
    "traffic_table",
    "z_plot",
]
__dir__ = __all__.copy  # public names only


def __getattr__(name: str) -> Any:
    """Import the families' figures, which import modules of this package, at the first use."""
    if name not in ("figures", "sections", "tables"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    family_modules("figures")  # importing them registers their figures
    # Sorted, since the order of registration depends on the order of imports.
    found = sorted(registry.figures.items())
    registry.figures.clear()
    registry.figures.update(found)
    globals().update(figures=registry.figures, sections=registry.sections, tables=registry.tables)
    return globals()[name]
