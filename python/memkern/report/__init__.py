"""Report: one self-contained HTML file with results, machine and published data to compare."""

from memkern.report.page import write, write_sides
from memkern.report.sides import Side, sides

__all__ = ["Side", "sides", "write", "write_sides"]
__dir__ = __all__.copy  # public names only
