"""Variance between the runs of cases that are measured again minutes or hours later.

A calibration of two minutes does not include the drift of times over longer periods, and the drift
on other hosts may differ. Therefore it is estimated from undisturbed records of cases that were
measured before, since the system was booted and with the same build.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from memkern import small
from memkern.engine import calibration
from memkern.engine.communication import ranks
from memkern.engine.process import at_exit
from memkern.machine.state import kept, updated
from memkern.statistics import Prior

__all__ = ["Drift", "Repeated", "known_drift", "load", "path", "save"]

# Records of a case in shorter succession have nearly the same drift and are not counted.
_APART_S = 10.0
# Largest degrees of freedom of a prior variance when pooled with repeated records. In the replay of
# recordings (bench/replay_samples.py) intervals hold as often with 4, but are wider for the first
# records of a boot.
_PRIOR_FREEDOM = 8.0
# Largest deviation of a record that counts, in standard deviations: one record in twenty that was
# off by twenty widened the intervals of its class to three times, with this limit to 1.3 times.
_MOST_SD = 3.0
# The most recently measured cases are kept.
_MOST_CASES = 2000


@dataclass
class Repeated:
    """Records of a case so far.

    Attributes
    ----------
    name : str
        Class of the case (see `memkern.engine.calibration.class_name`).
    count : int
        Number of records.
    mean : float
        Mean of the logarithms of their times.
    squares : float
        Sum of the squared deviations from the mean.
    last_s : float
        Time of the last measurement, in seconds since 1970.
    """

    name: str
    count: int
    mean: float
    squares: float
    last_s: float


class Drift:
    """Variances between runs, as calibrated and as seen in repeated records.

    Parameters
    ----------
    earlier : mapping of str to Repeated, optional
        Records of earlier processes, by the identity of the case.
    """

    def __init__(self, earlier: Mapping[str, Repeated] | None = None) -> None:
        self._cases: dict[str, Repeated] = {}
        # By class, degrees of freedom and squared deviations of all its cases.
        self._sums: dict[str, tuple[int, float]] = {}
        for identity, case in (earlier or {}).items():
            self._put(identity, case)
        self.added: dict[str, Repeated] = {}
        """The cases of this process."""

    def variance(self, name: str, prior: Prior) -> Prior:
        """Return the variance between runs of a class.

        Parameters
        ----------
        name : str
            The class.
        prior : Prior
            Its variance in the short time of a calibration, or on other hosts.

        Returns
        -------
        Prior
            The pooled variance of its repeated cases and the prior one.
        """
        known = min(prior.freedom, _PRIOR_FREEDOM)
        seen, squares = self._sums.get(name, (0, 0.0))
        freedom = known + seen
        return Prior((known * prior.variance + max(squares, 0.0)) / freedom, freedom)

    def _put(self, identity: str, case: Repeated) -> None:
        self._cases[identity] = case
        self._count(case, 1)

    def _take(self, identity: str) -> Repeated | None:
        case = self._cases.pop(identity, None)
        if case is not None:
            self._count(case, -1)
        return case

    def _count(self, case: Repeated, sign: int) -> None:
        freedom, squares = self._sums.get(case.name, (0, 0.0))
        freedom, squares = freedom + sign * (case.count - 1), squares + sign * case.squares
        self._sums[case.name] = freedom, squares if freedom else 0.0

    def add(self, identity: str, name: str, seconds: float, prior: Prior, now_s: float) -> None:
        """Count an undisturbed record, unless it soon follows the last one of its case.

        Parameters
        ----------
        identity : str
            Of the case, the machine and the build.
        name : str
            Class of the case.
        seconds : float
            The record's time.
        prior : Prior
            As of `variance`.
        now_s : float
            Seconds since 1970.
        """
        value = math.log(seconds)
        case = self._take(identity)
        if case is None or case.name != name:
            case = Repeated(name, 1, value, 0.0, now_s)
        elif not 0 <= now_s - case.last_s < _APART_S:
            deviation, share = value - case.mean, case.count / (case.count + 1)
            most = _MOST_SD * math.sqrt(self.variance(name, prior).variance / share)
            deviation = min(max(deviation, -most), most)
            case = Repeated(
                name,
                case.count + 1,
                case.mean + deviation / (case.count + 1),
                case.squares + deviation**2 * share,
                now_s,
            )
        self._put(identity, case)
        self.added[identity] = case
        if len(self._cases) > _MOST_CASES:
            self._take(next(iter(self._cases)))
        if len(self.added) > _MOST_CASES:
            del self.added[next(iter(self.added))]


def path() -> Path:
    """Return the path of the repeated records of this user and machine."""
    return calibration.path().with_name("runs.json")


def save(added: Mapping[str, Repeated], target: Path) -> None:
    """Add the cases of a process to the file; do nothing if it can't be written.

    Parameters
    ----------
    added : mapping of str to Repeated
        See `Drift.added`.
    target : Path
        See `path`.
    """

    def merged(cases: dict[str, Repeated] | None) -> dict[str, Any]:
        every = sorted(((cases or {}) | dict(added)).items(), key=lambda item: item[1].last_s)
        return {"cases": {identity: asdict(case) for identity, case in every[-_MOST_CASES:]}}

    if added:
        updated(target, _cases, merged)


def load(target: Path) -> dict[str, Repeated]:
    """Return the repeated records since the system was booted; empty if unknown."""
    return kept(target, _cases, {})


def _cases(document: Mapping[str, Any]) -> dict[str, Repeated]:
    return {str(name): _repeated(**case) for name, case in document["cases"].items()}


def _repeated(name: Any, count: Any, mean: Any, squares: Any, last_s: Any) -> Repeated:
    found = Repeated(str(name), int(count), float(mean), float(squares), float(last_s))
    if found.count < 1 or not (math.isfinite(found.mean) and 0 <= found.squares < math.inf):
        raise ValueError("it was not written by this module")
    return found


@functools.cache
def known_drift() -> Drift:
    """Return the variances that all processes have measured since the last boot."""
    if small.wanted():
        return Drift()
    target = path()
    known = Drift(load(target))
    if ranks().number == 0:  # all ranks share one record
        at_exit(lambda: save(known.added, target))
    return known
