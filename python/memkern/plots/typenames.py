"""Names of types of matplotlib and pandas, which are imported when a figure is drawn."""

from typing import TYPE_CHECKING

__all__ = ["Artist", "Axes", "Axis", "DataFrame", "Figure", "Legend", "Series"]

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from pandas import DataFrame, Series
else:
    Artist = Axes = Axis = DataFrame = Figure = Legend = Series = object
