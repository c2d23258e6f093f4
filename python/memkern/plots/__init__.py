"""Named figures and tables, and the sections of a report.

Every module of this package that registers something is found here by itself, so a kernel family
brings its figures in one file, ``plots/<family>.py``. Nothing heavy is imported before a figure is
drawn.

Examples
--------
>>> from memkern.plots import figures, save
>>> save(figures["spatter-fig3"](None), "strides.pdf")  # doctest: +SKIP
"""

from importlib import import_module
from pkgutil import iter_modules

from memkern.plots.registry import Exhibit, Section, describe, figures, sections, tables
from memkern.plots.style import save

for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")

# Lists of names shall not show which module imports which.
_figures = sorted(figures.items())
figures.clear()
figures.update(_figures)

__all__ = ["Exhibit", "Section", "describe", "figures", "save", "sections", "tables"]
