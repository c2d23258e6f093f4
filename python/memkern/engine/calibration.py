"""Properties of this machine that are measured and stored until the next boot.

First, the variances of times between placements and between runs. `memkern.calibrate` measures them
for classes of cases (cache level and threads), later records refine them (see
`memkern.engine.drift`), and the intervals of later measurements include them. Second, the
throughput of the cores, measured by every process. Third, the verdict of `memkern.doctor`, which
later records contain. Fourth, the sizes of caches by latency (see `memkern.machine.caches`). Fifth,
the largest measured memory bandwidths.
"""

from __future__ import annotations

import csv
import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern import small
from memkern.limits import control_groups
from memkern.machine.caches import MEMORY, ends, level_of
from memkern.machine.environment import now
from memkern.machine.state import folder, keep, kept, store, updated
from memkern.statistics import Prior, moderate

__all__ = [
    "BESIDE",
    "MIXED",
    "SHARED",
    "Calibration",
    "Spread",
    "agrees",
    "best_rates",
    "class_name",
    "cores_path",
    "estimate",
    "load",
    "load_cores",
    "load_counters",
    "load_health",
    "now",
    "packaged",
    "path",
    "save",
    "save_cores",
    "save_counters",
    "save_health",
]

SHARED, MIXED, BESIDE = "shared", "mixed states", "beside programs"

# Far above the number of bins of the logarithms of rates, and of measurements in one boot.
_MOST_BIN, _MOST_COUNT = 10**6, 10**15
Counts = Mapping[str, Mapping[int, int]]


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


def path() -> Path:
    """Return the path of the calibration of this user and machine."""
    return folder() / "calibration.json"


def cores_path() -> Path:
    """Return the path of the stored throughput of this machine's cores."""
    return path().with_name("cores.json")


def save(calibration: Calibration) -> Path:
    """Store a calibration in place of the last one.

    Raises
    ------
    InputError
        If the file can't be written.
    """

    def plain(priors: Mapping[str, Prior]) -> dict[str, list[float | None]]:
        return {
            name: [p.variance, None if math.isinf(p.freedom) else p.freedom]
            for name, p in priors.items()
        }

    document = {
        "boot": calibration.boot,
        "created": calibration.created,
        "placements": plain(calibration.placements),
        "runs": plain(calibration.runs),
    }
    return store(path(), document)


def save_cores(counts: Counts, target: Path) -> None:
    """Add a process's counts to the file; do nothing if it can't be written.

    Parameters
    ----------
    counts : mapping of str to mapping of int to int
        See `memkern.engine.disturbance.Cores.counts`.
    target : Path
        See `cores_path`.
    """

    def merged(known: Counts | None) -> dict[str, Any]:
        every = {which: Counter(before) for which, before in (known or {}).items()}
        for which, more in counts.items():
            every[which] = every.get(which, Counter()) + Counter(more)
        return {"counts": every}

    if any(counts.values()):
        updated(target, _counts, merged)


def load_cores(target: Path) -> dict[str, dict[int, int]]:
    """Return the counts since the system was booted (see `save_cores`); empty if unknown."""
    return kept(target, _counts, {})


def _counts(document: Mapping[str, Any]) -> dict[str, dict[int, int]]:
    found = {
        str(which): {int(number): int(times) for number, times in counts.items()}
        for which, counts in document["counts"].items()
    }
    if not all(
        abs(number) < _MOST_BIN and 0 < times < _MOST_COUNT
        for counts in found.values()
        for number, times in counts.items()
    ):
        raise ValueError("a bin or a count is out of range")
    return found


def save_health(summary: str) -> None:
    """Store the verdict of `memkern.doctor` (see `memkern.machine.health.summary`)."""
    if not small.wanted():
        document = {"created": now(), "cgroup": control_groups(), "summary": summary}
        keep(path().with_name("doctor.json"), document)


def load_health() -> str:
    """Return the verdict since the system was booted (see `save_health`); empty if unknown.

    After an hour it includes its age. In another control group, with other limits, it is unknown.
    """

    def read(document: Mapping[str, Any]) -> str:
        if document["cgroup"] != control_groups():
            return ""
        age = datetime.fromisoformat(now()) - datetime.fromisoformat(document["created"])
        hours = int(age.total_seconds() // 3600)
        before = f" ({hours} hour{'s' * (hours > 1)} before)" if hours > 0 else ""
        return f"{document['summary']}{before}"

    return "" if small.wanted() else kept(path().with_name("doctor.json"), read, "")


def best_rates(which: str, rates: Mapping[str, float]) -> dict[str, float]:
    """Store bandwidths, and return the largest values measured since the system was booted.

    Parameters
    ----------
    which : str
        Name of the group of cases.
    rates : mapping of str to float
        In any unit, by name.
    """
    if small.wanted():
        return dict(rates)

    def read(document: Mapping[str, Any]) -> dict[str, dict[str, float]]:
        return {
            str(name): {str(key): float(rate) for key, rate in known.items()}
            for name, known in document["rates"].items()
        }

    def best(known: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        before = known.get(which, {})
        return {name: max(rate, before.get(name, 0.0)) for name, rate in rates.items()}

    target = path().with_name("ceilings.json")
    known = kept(target, read, {})
    if best(known) != known.get(which, {}):
        updated(target, read, lambda now: {"rates": {**(now or {}), which: best(now or {})}})
    return best(known)


def save_counters(ratios: Mapping[str, float]) -> None:
    """Store, by event, its count divided by the true one (see `memkern counters --check`)."""
    keep(path().with_name("counters.json"), {"ratios": dict(ratios)})


def load_counters() -> dict[str, float]:
    """Return the ratios since the system was booted (see `save_counters`); empty if unknown."""
    return kept(
        path().with_name("counters.json"),
        lambda document: {str(k): float(v) for k, v in document["ratios"].items()},
        {},
    )


def agrees(ratio: float) -> bool:
    """Return whether a count with this ratio to the true one is accurate to 10 %."""
    return 0.9 <= ratio <= 1.1


def load() -> Calibration | None:
    """Return the calibration of this boot, or None where there is none.

    Every record needs it, so the file is read again only after it was replaced.
    """
    target = path()
    try:
        found = target.stat()
    except OSError:
        return None
    return _load(target, (found.st_ino, found.st_mtime_ns, found.st_size))


@functools.lru_cache(maxsize=1)
def _load(target: Path, written: tuple[int, int, int]) -> Calibration | None:
    """Return the calibration in the file that was `written`: its inode, time and size."""

    def priors(listed: Mapping[str, Any]) -> dict[str, Prior]:
        found = {
            name: Prior(float(variance), math.inf if freedom is None else float(freedom))
            for name, (variance, freedom) in listed.items()
        }
        if not all(prior.variance >= 0 and prior.freedom > 0 for prior in found.values()):
            raise ValueError("a variance is negative")
        return found

    return kept(
        target,
        lambda document: Calibration(
            document["boot"],
            document["created"],
            priors(document["placements"]),
            priors(document["runs"]),
        ),
        None,
    )
