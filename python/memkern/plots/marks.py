"""The records of what a figure draws, and the intervals of their values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from memkern.plots.frames import typed
from memkern.plots.style import INTERVAL, Look

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame


class Drawn(NamedTuple):
    """The records of the markers of a line, for a figure's tooltips and data."""

    label: str
    records: DataFrame
    x: str
    y: str


def mark(artist: Artist, drawn: Drawn) -> None:
    """Attach its records to a line; matplotlib has no attribute for them."""
    artist.memkern = drawn  # type: ignore[attr-defined]


def marked(fig: Figure) -> list[tuple[Artist, Drawn]]:
    """Return the lines of a figure that have records, and the intervals of series."""
    artists = [artist for ax in fig.axes for artist in ax.get_children()]
    return [(artist, artist.memkern) for artist in artists if hasattr(artist, "memkern")]


# Columns of values by the time of an invocation: the names of this time and of its interval, and
# whether the value is a rate.
_BY_TIME = {
    "bandwidth_GBps": ("time_min", "time_min_ci", True),
    "rate_GAMS": ("time_min", "time_min_ci", True),
    "performance_GFLOPs": ("time_min", "time_min_ci", True),
    "messages_per_second": ("time_min", "time_min_ci", True),
    "latency_us": ("time_min", "time_min_ci", False),
    "cycles_per_vector": ("time_min", "time_min_ci", False),
    "bandwidth_median_GBps": ("time_median", "time_ci", True),
    "ns_per_access": ("time_median", "time_ci", False),
}
LOW, HIGH = "interval_low", "interval_high"
"""Columns of the ends of the interval of the value that is drawn."""
_MOST_BARS = 12  # of a line; more points have a band


def with_ends(rows: DataFrame, value: str) -> DataFrame:
    """Add the ends of the 95 % intervals of a column for the next run, NaN where unknown.

    Published and disturbed records have none, nor have values that are by more than one time.
    """
    time, interval, rate = _BY_TIME.get(value, ("", "", False))
    names = [f"{interval}_low_s", f"{interval}_high_s", f"{time}_s"]
    low, high, middle = (typed(rows, names)[name] for name in names)
    if rate:
        low, high, middle = 1 / high, 1 / low, 1 / middle
    return rows.assign(**{LOW: rows[value] * low / middle, HIGH: rows[value] * high / middle})


def intervals(
    ax: Axes,
    rows: DataFrame,
    x: str,
    y: str,
    look: Look,
    label: str = INTERVAL,
    series: str = INTERVAL,
) -> None:
    """Draw the intervals of a series between the columns `LOW` and `HIGH`.

    A line of many points has a band; few points, and those without a line, have bars. Markers cover
    a bar that is shorter than they are.
    """
    rows = rows[rows[LOW] < rows[HIGH]]
    if rows.empty:
        return
    how: dict[str, Any] = {"label": label, "color": look.color, "zorder": look.zorder - 0.05}
    if len(rows) > _MOST_BARS and look.linestyle != "none":
        drawn = ax.fill_between(rows[x], rows[LOW], rows[HIGH], alpha=0.15, linewidth=0, **how)
    else:
        drawn = ax.vlines(rows[x], rows[LOW], rows[HIGH], alpha=0.5, linewidth=0.9, **how)
    mark(drawn, Drawn(series, rows.iloc[:0], x, y))


def extent(rows: DataFrame, value: str, *limits: str) -> tuple[float, float]:
    """Return the least and the largest of the positive values in columns, with `value`'s ends."""
    numbers = with_ends(rows, value)[[value, LOW, HIGH, *limits]]
    numbers = numbers[(numbers > 0) & (numbers < math.inf)]
    return numbers.min().min(), numbers.max().max()
