"""Distances between the values of runs, by class of cases, and the intervals that follow from them.

The distance between two runs is that of the logarithms of their values, in one state of the host;
its distribution is exponential in good approximation. A class is a level of caches, a number of
threads, a number of placements and the state of the host. What is known of the mean distance of a
class are observations from three sources:

- recordings on other hosts (``distances.csv``), which count as few observations;
- this boot: records of a case that was measured before, minutes or hours ago, with the same build;
- the run itself: how far the shortest times of its placements, or their medians, are apart.

The interval is the predictive quantile of the exponential distribution, whose mean has its
conjugate prior (``bench/replay_samples.py`` judges it on recordings).
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

from memkern.host.file import Section
from memkern.machine.caches import MEMORY, ends, level_of
from memkern.statistics import RUN_LEVEL

SHARED, MIXED, BESIDE = "shared", "mixed states", "beside programs"
QUANTITIES = {"floor": "time_min_s", "median": "time_median_s"}
"""Columns of the times of a record, by quantity."""

OTHER_HOSTS = 3.0
"""Observations as which the mean distance on other hosts counts; in the replay of recordings,
scores hardly depend on it, or on the limits below."""
NEXT_COMMAND = 2.0
"""Distance of the next command over that of the next placements in the same process: a command
chooses variants anew, and the host drifts meanwhile (``bench/intervals_hold.py --first``)."""
MOST_OF_RUN = 8.0
"""Observations as which the placements of a run count at most."""
_MOST_OF_BOOT = 16.0
# Spacings between the shortest placements of a run that count: so many, and of many placements
# this share.
_SPACINGS, _SPACINGS_SHARE = 3, 0.25
# Mean distance of two medians of n normal values, times the root of n, over their median deviation.
_OF_DEVIATION = 2.1
# Records of a case in shorter succession have nearly the same state and are not counted.
_APART_S = 10.0
# Largest distance that counts, in mean distances: one record that was far off would widen the
# intervals of its class for the rest of the boot.
_MOST_MEANS = 5.0
# The most recently measured cases are kept.
_MOST_CASES = 2000


@dataclass(frozen=True)
class Distances:
    """Observed distances between the logarithms of the values of two runs.

    Attributes
    ----------
    number : float
        Number of observations, not necessarily whole.
    total : float
        Their sum.
    """

    number: float = 0.0
    total: float = 0.0

    def __add__(self, other: Distances) -> Distances:
        """Return the observations of both."""
        return Distances(self.number + other.number, self.total + other.total)

    def at_most(self, number: float) -> Distances:
        """Return the same mean, from at most some observations."""
        share = min(1.0, number / max(self.number, number))
        return Distances(share * self.number, share * self.total)

    def times(self, factor: float) -> Distances:
        """Return as many observations of other distances."""
        return Distances(self.number, factor * self.total)

    def within(self, level: float = RUN_LEVEL) -> float:
        """Return the distance within which the next run is, with the probability `level`."""
        return self.total * (math.pow(1 - level, -1 / self.number) - 1)


@dataclass(frozen=True)
class Spread:
    """Distances between the shortest times and between the medians of the runs of a class."""

    floor: Distances = Distances()
    median: Distances = Distances()

    def __add__(self, other: Spread) -> Spread:
        """Return the observations of both."""
        return Spread(self.floor + other.floor, self.median + other.median)

    def to_next_command(self) -> Spread:
        """Return what these observations of placements, as many as count, tell of it."""
        both = (self.floor, self.median)
        return Spread(*(one.at_most(MOST_OF_RUN).times(NEXT_COMMAND) for one in both))


def observed(floors: Sequence[float], medians: Sequence[float]) -> Spread:
    """Return what the placements of a run tell of the distance to the next placements.

    Parameters
    ----------
    floors, medians : sequence of float
        Shortest time and median of each placement, in any unit.

    Returns
    -------
    Spread
        Of the shortest times, the spacings of the four shortest placements, or of the shortest
        quarter, weighted as for exponentially distributed values, which have the mean distance of
        two minima; of the medians, their median deviation, for half as many observations as it has
        degrees of freedom.
    """
    n, x, y = len(floors), np.sort(np.log(floors)), np.log(medians)
    taken = min(max(_SPACINGS, int(_SPACINGS_SHARE * n)), n - 1)
    deviation = float(np.median(np.abs(y - np.median(y))))
    number = (n - 1) / 2
    return Spread(
        Distances(taken, float(np.diff(x)[:taken] @ np.arange(n - 1, n - 1 - taken, -1) / n)),
        Distances(number, number * _OF_DEVIATION * deviation / math.sqrt(n)),
    )


def class_name(
    footprint_B: float,
    threads: int,
    caches: Sequence[Mapping[str, Any]],
    placements: int,
    host: str = "",
) -> str:
    """Return the class of a case, such as ``L2, 4 threads, 10 placements, mixed states``.

    `caches` are as of `memkern.machine.caches.data_caches`; `host` is the state of the host: empty
    if it was quiet, else `SHARED`, `MIXED` or `BESIDE`. Cases of a GPU have no threads: ``L2, GPU,
    1 placement``.
    """
    return class_at(level_of(footprint_B, ends(caches, max(threads, 1))), threads, placements, host)


def class_at(level: str, threads: int, placements: int, host: str = "") -> str:
    """Return the class of a level (see `class_name`)."""
    workers = f"{threads} thread{'' if threads == 1 else 's'}" if threads else "GPU"
    placed = f"{placements} placement{'' if placements == 1 else 's'}"
    return ", ".join(filter(None, (level, workers, placed, host)))


@functools.cache
def _recorded() -> dict[tuple[str, ...], float]:
    names = ("level", "workers", "quantity", "host", "placements")
    with resources.files(__package__).joinpath("distances.csv").open(encoding="utf-8") as file:
        return {
            tuple(row[name] for name in names): float(row["distance"])
            for row in csv.DictReader(file)
        }


def packaged(name: str) -> Spread:
    """Return the distances of a class on other hosts.

    They are from recordings (``bench/replay_samples.py --distances``). Next to programs on the same
    system, runs are about as far apart as on a shared host.
    """
    level, threads, placements, *host = name.split(", ")
    known = {"1 thread": "one", "GPU": "GPU"}
    workers = "mixed" if MIXED in host else known.get(threads, "several")
    # Between the recorded numbers of placements, a power of the number.
    share = min(math.log10(int(placements.split()[0])), 1.0)

    def of(quantity: str) -> Distances:
        once, ten = (_mean(level, workers, quantity, bool(host), n) for n in ("1", "10"))
        return Distances(OTHER_HOSTS, OTHER_HOSTS * once * (ten / once) ** share)

    return Spread(of("floor"), of("median"))


def _mean(level: str, workers: str, quantity: str, shared: bool, placements: str) -> float:
    """Return the mean distance of the nearest class that was recorded."""
    known, word = _recorded(), SHARED if shared else "quiet"
    keys = [(one, workers, quantity, word, n) for n in (placements, "1") for one in (level, MEMORY)]
    return next(known[key] for key in keys if key in known)


@dataclass
class Repeated:
    """Records of a case so far.

    Attributes
    ----------
    name : str
        Class and quantity of the case.
    number, total : float
        Its observed distances (see `Distances`).
    value : float
        Logarithm of the last time.
    last_s : float
        When it was measured, in seconds since 1970.
    """

    name: str
    number: float
    total: float
    value: float
    last_s: float


class History:
    """Distances between repeated records of this boot.

    Parameters
    ----------
    earlier : mapping of str to Repeated, optional
        Records of earlier processes, by the identity of the case.
    """

    def __init__(self, earlier: Mapping[str, Repeated] | None = None) -> None:
        self._cases = dict(earlier or {})
        self.added: dict[str, Repeated] = {}
        """The cases of this process."""

    def known(self, name: str) -> Distances:
        """Return the distances of a class and quantity, as many as count."""
        cases = [case for case in self._cases.values() if case.name == name]
        every = Distances(sum(case.number for case in cases), sum(case.total for case in cases))
        return every.at_most(_MOST_OF_BOOT)

    def add(self, identity: str, name: str, seconds: float, prior: Distances, now_s: float) -> None:
        """Count an undisturbed record, unless it soon follows the last one of its case.

        Parameters
        ----------
        identity : str
            Of the case, the machine and the build.
        name : str
            Class and quantity of the case.
        seconds : float
            The record's time.
        prior : Distances
            Of other hosts.
        now_s : float
            Seconds since 1970.
        """
        value = math.log(seconds)
        case = self._cases.pop(identity, None)
        if case is None or case.name != name:
            case = Repeated(name, 0.0, 0.0, value, now_s)
        elif not 0 <= now_s - case.last_s < _APART_S:
            known = prior + self.known(name)
            distance = min(abs(value - case.value), _MOST_MEANS * known.total / known.number)
            every = (Distances(case.number, case.total) + Distances(1, distance)).at_most(
                _MOST_OF_BOOT
            )
            case = Repeated(name, every.number, every.total, value, now_s)
        for kept in (self._cases, self.added):
            kept[identity] = case
            if len(kept) > _MOST_CASES:
                del kept[next(iter(kept))]


def _read(name: Any, *numbers: Any) -> Repeated:
    found = Repeated(str(name), *map(float, numbers))
    known = math.isfinite(found.value) and math.isfinite(found.last_s)
    if not (known and found.number >= 0 and 0 <= found.total < math.inf):
        raise ValueError("it was not written by this module")
    return found


RUNS: Section[Mapping[str, Repeated]] = Section(
    "runs",
    {},
    lambda content: {name: _read(*values) for name, values in content.items()},
    lambda known, new: dict(
        sorted({**known, **new}.items(), key=lambda item: item[1].last_s)[-_MOST_CASES:]
    ),
    lambda cases: {name: [*vars(case).values()] for name, case in cases.items()},
)
