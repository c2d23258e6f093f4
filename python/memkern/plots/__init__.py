"""Named figures and tables, and the sections of a report.

Those of a family are defined in ``families/<family>/figures.py``. matplotlib and pandas are
imported when a figure is drawn.

Examples
--------
>>> from memkern.plots import figures, save
>>> save(figures["spatter-fig3"](None), "strides.pdf")  # doctest: +SKIP
"""

from memkern.discovery import family_modules
from memkern.plots.kernels import kernel_table
from memkern.plots.neighbours import slowdown_map, slowdown_table
from memkern.plots.registry import Exhibit, Section, describe, figures, sections, tables
from memkern.plots.scaling import efficiency_table, scaling_curves
from memkern.plots.style import save

family_modules("figures")  # importing them registers their figures

# Sorted, since the order of registration depends on the order of imports.
_figures = sorted(figures.items())
figures.clear()
figures.update(_figures)

__all__ = [
    "Exhibit",
    "Section",
    "describe",
    "efficiency_table",
    "figures",
    "kernel_table",
    "save",
    "scaling_curves",
    "sections",
    "slowdown_map",
    "slowdown_table",
    "tables",
]
