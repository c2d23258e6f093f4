"""Ratios of times that were measured in the same turns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memkern.results.comparison import is_disturbed, time_s
from memkern.statistics import half_width, ratio_interval

Record = Mapping[Any, Any]
Pair = tuple[Record, Record]


class Turns(NamedTuple):
    """Comparison of two records of each turn by their median times.

    Attributes
    ----------
    ratio : float
        Time of the second record over the first: the geometric mean over the turns.
    low, high : float
        Its interval by Student's t on the logarithms of the turns' ratios; NaN if `disturbed`.
    number : int
        Number of turns in which neither record was disturbed; if it is 0, the other attributes are
        of all turns.
    disturbed : bool
        Whether `number` is below two or below half of all turns.
    log_times : ndarray of float64, shape (2,)
        Mean logarithms of both records' times in seconds.
    """

    ratio: float
    low: float
    high: float
    number: int
    disturbed: bool
    log_times: npt.NDArray[np.float64]


def with_half_width(value: float, low: float, high: float, decimals: int) -> str:
    """Return the text of a value and the half width of its interval, such as ``1.43 ±0.03``.

    The half width is never shown as 0. It is a factor if it exceeds the value, and a question mark
    if it is unknown.
    """
    half = (high - low) / 2
    width = (
        f"±{max(half, 10.0**-decimals):.{decimals}f}" if half < value else half_width(half / value)
    )
    return f"{value:.{decimals}f} {width or '±?'}"


def compare_turns(pairs: Sequence[Pair], level: float) -> Turns:
    """Compare pairs of records, each measured in one turn.

    Parameters
    ----------
    pairs : sequence of pairs of mappings
        At least one; all have a time.
    level : float
        Confidence level.

    Raises
    ------
    InputError
        `level` is out of range.
    """
    quiet = [pair for pair in pairs if not any(map(is_disturbed, pair))]
    first, second = np.array([list(map(time_s, pair)) for pair in quiet or pairs], dtype=float).T
    found = ratio_interval(second, first, level, paired=True)
    disturbed = len(quiet) < max(2, len(pairs) / 2)
    low, high = (math.nan, math.nan) if disturbed else (found.low, found.high)
    log_times = np.log([first, second]).mean(axis=1)
    return Turns(found.ratio, low, high, len(quiet), disturbed, log_times)
