"""Variances of times between placements and between runs, by class of cases.

A class is a level of caches, a number of threads and the state of the host. `memkern.calibrate`
measures the variances of some minutes, which do not include the drift of times over longer periods;
on other hosts (``spreads.csv``) the drift may differ. Therefore the variance between runs is also
estimated from undisturbed records of cases that were measured before, minutes or hours ago, since
the system was booted and with the same build.
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.host.file import Section, boot_id
from memkern.machine.caches import MEMORY, ends, level_of
from memkern.statistics import Prior, moderate

SHARED, MIXED, BESIDE = "shared", "mixed states", "beside programs"
QUANTITIES = {"floor": "time_min_s", "median": "time_median_s"}
"""Columns of the times of a record, by quantity."""

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


@dataclass(frozen=True)
class Spread:
    """Variances of the logarithms of times of a class of cases.

    Attributes
    ----------
    floor, median : Prior
        Variance between runs of the shortest times and of the medians.
    placements : Prior or None
        Variance between placements of a run's medians; None if unknown.
    """

    floor: Prior
    median: Prior
    placements: Prior | None = None


@dataclass(frozen=True)
class Calibration:
    """Result of a calibration.

    Attributes
    ----------
    boot : str
        Identity of the boot of the system; a calibration is not valid for another one.
    created : str
        Date and time in UTC.
    placements : mapping of str to Prior
        By class, the variance of the logarithms of medians between the placements of a run.
    runs : mapping of str to Prior
        By class, their additional variance between runs.
    """

    boot: str
    created: str
    placements: Mapping[str, Prior]
    runs: Mapping[str, Prior]


def class_name(
    footprint_B: float, threads: int, caches: Sequence[Mapping[str, Any]], host: str = ""
) -> str:
    """Return the class of a case, such as ``L2, 1 thread``, or ``L2, 4 threads, mixed states``.

    `caches` are as of `memkern.machine.caches.data_caches`; `host` is the state of the host: empty
    if it was quiet, else `SHARED`, `MIXED` or `BESIDE`. Cases of a GPU have no threads: ``L2,
    GPU``.
    """
    level = level_of(footprint_B, ends(caches, max(threads, 1)))
    workers = f"{threads} thread{'' if threads == 1 else 's'}" if threads else "GPU"
    name = f"{level}, {workers}"
    return f"{name}, {host}" if host else name


@functools.cache
def _packaged() -> dict[tuple[str, ...], Prior]:
    names = ("level", "workers", "quantity", "host")
    with resources.files(__package__).joinpath("spreads.csv").open(encoding="utf-8") as file:
        return {
            tuple(row[name] for name in names): Prior(float(row["variance"]), float(row["freedom"]))
            for row in csv.DictReader(file)
        }


def packaged(name: str) -> Spread:
    """Return the variances of a class that were measured on several hosts.

    They are from recordings (``bench/replay_samples.py --spreads``). Next to programs on the same
    system, values vary as much as in mixed states.
    """
    level, threads, *host = name.split(", ")
    workers = {"1 thread": "one", "GPU": "GPU"}.get(threads, "several")
    if {MIXED, BESIDE}.intersection(host):
        workers = "mixed"
    word, known = SHARED if host else "quiet", _packaged()

    def of(quantity: str) -> Prior:
        keys = [(one, workers, quantity, word) for one in (level, MEMORY)]
        return next(known[key] for key in keys if key in known)

    return Spread(of("floor"), of("median"))


def estimate(medians: Mapping[str, npt.ArrayLike]) -> tuple[dict[str, Prior], dict[str, Prior]]:
    """Return the variances between placements and between runs of each class.

    Parameters
    ----------
    medians : mapping of str to array_like of float, shape (cases, runs, placements)
        Medians of the samples of each placement, by class, in any unit.

    Returns
    -------
    placements, runs : dict of Prior
        Variances of logarithms. The variance between runs is the variance of the runs' means minus
        the part explained by the variance between placements, but at least zero.
    """
    between_placements: dict[str, Prior] = {}
    between_runs: dict[str, Prior] = {}
    for name, values in medians.items():
        x = np.log(np.asarray(values, dtype=np.float64))
        cases, runs, placements = x.shape
        within = np.var(x, axis=2, ddof=1)
        prior = moderate(within.ravel(), placements - 1)
        if prior is not None:
            between_placements[name] = prior
        of_means = np.var(x.mean(axis=2), axis=1, ddof=1)
        excess = np.maximum(of_means - within.mean(axis=1) / placements, 0.0)
        between_runs[name] = Prior(float(excess.mean()), float(cases * (runs - 1)))
    return between_placements, between_runs


@dataclass
class Repeated:
    """Records of a case so far.

    Attributes
    ----------
    name : str
        Class of the case (see `memkern.host.variances.class_name`).
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


def _read_calibration(content: Mapping[str, Any]) -> Calibration:
    def priors(listed: Mapping[str, Any]) -> dict[str, Prior]:
        found = {
            name: Prior(float(variance), math.inf if freedom is None else float(freedom))
            for name, (variance, freedom) in listed.items()
        }
        if not all(0 <= p.variance < math.inf and p.freedom > 0 for p in found.values()):
            raise ValueError("a variance is negative or infinite")
        return found

    created, placements, runs = (content[name] for name in ("created", "placements", "runs"))
    return Calibration(boot_id(), str(created), priors(placements), priors(runs))


def _calibration_content(calibration: Calibration | None) -> dict[str, Any]:
    assert calibration is not None

    def plain(priors: Mapping[str, Prior]) -> dict[str, list[float | None]]:
        return {
            name: [p.variance, None if math.isinf(p.freedom) else p.freedom]
            for name, p in priors.items()
        }

    return {
        "created": calibration.created,
        "placements": plain(calibration.placements),
        "runs": plain(calibration.runs),
    }


def _read_repeated(name: Any, count: Any, mean: Any, squares: Any, last_s: Any) -> Repeated:
    found = Repeated(str(name), int(count), float(mean), float(squares), float(last_s))
    if found.count < 1 or not (math.isfinite(found.mean) and 0 <= found.squares < math.inf):
        raise ValueError("it was not written by this module")
    return found


def _merged(known: Mapping[str, Repeated], new: Mapping[str, Repeated]) -> dict[str, Repeated]:
    every = sorted({**known, **new}.items(), key=lambda item: item[1].last_s)
    return dict(every[-_MOST_CASES:])


CALIBRATION: Section[Calibration | None] = Section(
    "calibration", None, _read_calibration, content=_calibration_content
)
RUNS: Section[Mapping[str, Repeated]] = Section(
    "runs",
    {},
    lambda content: {name: _read_repeated(*values) for name, values in content.items()},
    _merged,
    lambda cases: {name: [*vars(case).values()] for name, case in cases.items()},
)
