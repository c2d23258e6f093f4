"""How many times as fast a case is as another one on the same host.

Cases that are measured in turns (see `memkern.studies.ratios`) have samples in common states of the
host. Their ratio is much narrower than the intervals of both records.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.results.verdicts import LEAST_EFFECT, Estimate, yuen

TURNS = "turns_s"
"""Column of the times in turns: JSON of an object with a list of turns for each placement."""
NEEDED = ("case_id", "variant", "isa", "time_min_s", "time_min_ci_relative", TURNS)
"""Columns of records that are measured in turns, or whose ratio is told, besides the rate."""


@dataclass(frozen=True)
class Ratio:
    """The ratio of the rates of two cases.

    Attributes
    ----------
    value : float
        How many times as fast the first case is.
    half_width : float
        Half the width of the interval of its logarithm; 0 if it is unknown.
    in_turns : bool
        Whether the cases were measured in turns.
    """

    value: float
    half_width: float
    in_turns: bool = False

    @property
    def decided(self) -> bool:
        """Whether the interval excludes 1."""
        return abs(math.log(self.value)) > self.half_width

    def text(self) -> str:
        """Return the ratio with half the width of its interval, such as ``1.21 ± 0.03``."""
        return _text(self.value, self.half_width, 2)

    def percent(self) -> str:
        """Return the ratio as a share, such as ``16 ± 1 %``."""
        share = 100 * self.value
        narrow = 0 < share * self.half_width < 1
        return f"{_text(share, self.half_width, 1 if narrow else 0)} %"


def _text(value: float, half_width: float, digits: int) -> str:
    """Return a value with half the width of the interval of its logarithm, if that is known."""
    if half_width >= math.log(2):
        return f"{value:.{digits}f} ×÷ {math.exp(half_width):.1f}"
    half = max(value * math.sinh(half_width), 10.0**-digits) if half_width else 0.0
    return f"{value:.{digits}f}" + (f" ± {half:.{digits}f}" if half else "")


def ratio(record: Mapping[Any, Any], base: Mapping[Any, Any], value: str) -> Ratio:
    """Return how many times as fast a record's case is as the base.

    Parameters
    ----------
    record, base : mapping
        Records of different cases.
    value : str
        Column of the rate, from the shortest time, in which both are compared.

    Returns
    -------
    Ratio
        From their latest common turns: the interval is that of `memkern.results.verdicts.yuen` over
        placements, each of which has the median ratio of its turns, and at least 1 %. Otherwise
        from the values of the records; the interval excludes 1 if theirs do not overlap.
    """
    measured, of_base = turns_of(record), turns_of(base)
    common = sorted(measured.keys() & of_base.keys())
    if common and record["case_id"] != base["case_id"]:
        found = in_turns(measured[common[-1]], of_base[common[-1]])
        # Rate times shortest time: the work of an invocation.
        work, of_base = (one[value] * one["time_min_s"] for one in (record, base))
        half = max(found.half_width, math.log1p(LEAST_EFFECT))
        return Ratio(math.exp(found.effect) * work / of_base, half, True)
    widths = [one.get("time_min_ci_relative") for one in (record, base)]
    half = sum(math.log1p(width) for width in widths if isinstance(width, float) and width > 0)
    return Ratio(record[value] / base[value], half)


def in_turns(times: npt.ArrayLike, of_base: npt.ArrayLike) -> Estimate:
    """Compare the times of two cases that were measured in turns.

    Parameters
    ----------
    times, of_base : array_like of float, shape (placements, turns)
        Seconds; there are at least two placements.

    Returns
    -------
    Estimate
        Its `effect` is positive if the base is slower.
    """
    ratios = np.median(np.log(of_base) - np.log(times), axis=1)
    return yuen(np.zeros(len(ratios)), ratios)


def turns_of(record: Mapping[Any, Any]) -> dict[str, list[list[float]]]:
    """Return the times of a record in turns, by the begin of measuring them; empty without any."""
    text = record.get(TURNS)
    return json.loads(text) if text and isinstance(text, str) else {}
