"""How many times as fast a case is as another one on the same host.

Cases that are measured in turns (see `memkern.studies.turns`) have samples in common states of the
host. Their ratio is much narrower than the intervals of both records. Those cases are measured in
turns whose `ratio` the sentences on records ask for (see `asked`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stderr, suppress
from contextvars import ContextVar, copy_context
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError
from memkern.results.verdicts import LEAST_EFFECT, Estimate, yuen
from memkern.statistics import ASYMMETRIC

Record = Mapping[Any, Any]

TURNS = "turns_s"
"""Column of the times in turns: JSON of an object with a list of turns for each placement."""
NEEDED = ("case_id", "variant", "isa", "time_min_s", "time_min_ci_relative", TURNS)
"""Columns of records that are measured in turns, or whose ratio is told, besides the rate."""

# The records that are asked for, by the case of their base and by their own case.
_ASKED: ContextVar[dict[str, dict[str, Record]] | None] = ContextVar("asked", default=None)


class Ratio(NamedTuple):
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

    def text(self, scale: float = 1.0, digits: int = 2) -> str:
        """Return the scaled ratio with its interval: ``1.21 ± 0.03``, ``1.21 (0.97 to 1.51)``."""
        text, half = f"{scale * self.value:.{digits}f}", self.half_width
        if math.sinh(half) >= ASYMMETRIC:
            ends = (f"{scale * self.value * math.exp(by):.{digits}f}" for by in (-half, half))
            return f"{text} ({' to '.join(ends)})"
        width = max(scale * self.value * math.sinh(half), 10.0**-digits)
        return text + f" ± {width:.{digits}f}" * (half > 0)

    def percent(self) -> str:
        """Return the ratio as a share, such as ``16 ± 1 %``."""
        return f"{self.text(100, int(0 < 100 * self.value * self.half_width < 1))} %"


def ratio(record: Record, base: Record, value: str = "") -> Ratio:
    """Return how many times as fast a record's case is as the base.

    Parameters
    ----------
    record, base : mapping
        Records of different cases.
    value : str, optional
        Column of the rate, from the shortest time, in which both are compared; by default that of
        invocations, which have the same work.

    Returns
    -------
    Ratio
        From their latest common turns: the interval is that of `memkern.results.verdicts.yuen` over
        placements, each of which has the median ratio of its turns, and at least 1 %. Otherwise
        from the values of the records; the interval excludes 1 if theirs do not overlap.
    """
    wanted, both = _ASKED.get(), (record, base)
    if wanted is not None:
        pair = {one["case_id"]: one for one in both[::-1]}
        if not any(pair.keys() <= group.keys() for group in wanted.values()):
            wanted.setdefault(base["case_id"], {}).update(pair)
    rates = [one[value] if value else 1 / one["time_min_s"] for one in both]
    measured, of_base = map(turns_of, both)
    common = sorted(measured.keys() & of_base.keys())
    if common and record["case_id"] != base["case_id"]:
        found = in_turns(measured[common[-1]], of_base[common[-1]])
        # Rate times shortest time: the work of an invocation.
        work, work_of_base = (
            rate * one["time_min_s"] for rate, one in zip(rates, both, strict=True)
        )
        half = max(found.half_width, math.log1p(LEAST_EFFECT))
        return Ratio(math.exp(found.effect) * work / work_of_base, half, True)
    widths = [one.get("time_min_ci_relative") for one in both]
    half = sum(math.log1p(width) for width in widths if isinstance(width, float) and width > 0)
    return Ratio(rates[0] / rates[1], half)


def asked(functions: Iterable[Callable[[Any], object]], records: Any) -> list[list[Record]]:
    """Return the groups of records whose ratios functions of records ask for, their bases first."""
    groups: dict[str, dict[str, Record]] = {}
    context = copy_context()
    context.run(_ASKED.set, groups)
    for function in functions:
        # It may need other records, and warns when its text is printed.
        with suppress(InputError), redirect_stderr(StringIO()):
            context.run(function, records)
    return [[*group.values()] for group in groups.values() if len(group) > 1]


def in_turns(times: npt.ArrayLike, of_base: npt.ArrayLike) -> Estimate:
    """Compare the times of two cases that were measured in turns.

    Parameters
    ----------
    times, of_base : array_like of float, shape (placements, turns)
        Seconds; there are at least three placements.

    Returns
    -------
    Estimate
        Its `effect` is positive if the base is slower.
    """
    ratios = np.median(np.log(of_base) - np.log(times), axis=1)
    return yuen(np.zeros(len(ratios)), ratios)


def turns_of(record: Record) -> dict[str, list[list[float]]]:
    """Return the times of a record in turns, by the begin of measuring them; empty without any."""
    text = record.get(TURNS)
    return json.loads(text or "{}") if isinstance(text, str) else {}
