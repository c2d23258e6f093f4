"""Detection of disturbed samples: a worker waited for its processor, shared its core or moved.

For every sample the extension measures the share of time during which each worker had a processor,
whether one that is not bound moved to another processing unit, the throughput of the workers' cores
in loads and additions per cycle, and the time in which a line goes from one worker to the next
(cpp/core/monitor.hpp, clock.hpp, exchange.hpp). This module judges samples by them.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = [
    "CORE_SHARE",
    "CPU_SHARE",
    "EXCHANGE_SHARE",
    "LEAST_CPU_SHARE",
    "LEAST_ONE_IN",
    "LEAST_SAMPLES",
    "LEAST_UNSHARED",
    "SHARED_CACHE_CORE_SHARE",
    "SHARED_PROBES",
    "Activity",
    "Cores",
    "RunningThread",
    "causes",
    "cores_at_work",
    "describe",
    "disturbed_samples",
    "observe_activity",
    "slow_exchanges",
    "too_few",
]

_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

# A sample is disturbed if a worker had a processor for less than this share of it.
CPU_SHARE = 0.95
# The next sample is disturbed as well if a worker lost its processor for more than this share, or
# moved: its data may no longer be in the caches.
_AWAY_SHARE = 0.10
# A sample is disturbed if the throughput of the cores is below this share of the best that as many
# cores have shown at once. Times of kernels that the core limits are then off by at most 10 %. A
# thread that computes on the same physical core takes a third to a half of the throughput, one that
# polls a sixth.
CORE_SHARE = 0.95
# The same for kernels limited by shared caches or memory, whose times depend less on the core, but
# on whatever takes its throughput: one in three of the records with a lower share was wrong.
SHARED_CACHE_CORE_SHARE = 0.90
# Lines are exchanged slowly if they take longer than the shortest time over this share of it. A
# hypervisor that moves the processors of a virtual machine apart makes it four times as long.
EXCHANGE_SHARE = 0.50
# Transfers of lines between two workers in the fork and join of a parallel region or in a barrier.
_TRANSFERS = 10
# Samples are disturbed if the hypervisor gave more than this share of the time to others.
STEAL_SHARE = 0.10
# A placement is disturbed if fewer samples than this, or than one in LEAST_ONE_IN of those taken,
# are undisturbed: with 20, five of seven of the further records were wrong.
LEAST_SAMPLES = 5
LEAST_ONE_IN = 5
# A placement is disturbed if its workers had processors for less than this share of all samples.
# What takes them for longer also slows the samples in between: one in nine of such records that
# kept enough samples was wrong.
LEAST_CPU_SHARE = 0.98
# Cores are measured between samples, so that some samples on a shared core are not detected. Where
# fewer than this share of the samples were on unshared cores, these are too many: with 0.05, three
# of four medians were 10 to 40 % too high on a host with neighbours, with 0.3 one of twenty.
LEAST_UNSHARED = 0.3
# The machine is not quiet if the cores are below CORE_SHARE in more than this share of the probes.
SHARED_PROBES = 0.3

RunningThread = tuple[int, str, int]


class Cores:
    """The best rates of this machine's cores, by the cores in use.

    Rates are throughputs, by number and kinds of the cores, and lines exchanged per second, by the
    units. The best is the 99th percentile of all measurements since the system was booted, because
    a clock that is read too low makes a throughput too high.

    Parameters
    ----------
    earlier : mapping of str to mapping of int to int, optional
        The counts of earlier processes (see `counts`): this one may never see the best if other
        threads share its cores from the start.
    """

    _WIDTH = 0.01  # of the histogram's bins, in logarithms of the throughput

    def __init__(self, earlier: Mapping[str, Mapping[int, int]] | None = None) -> None:
        self._earlier = {which: Counter(counts) for which, counts in (earlier or {}).items()}
        self._best: dict[str, float] = {}
        self.counts: dict[str, Counter[int]] = {}
        """Histograms of this process's measurements, by cores in use: bin to count."""
        for which in self._earlier:
            self._update(which)

    def add(self, rates: Iterable[float], which: str) -> None:
        """Add measurements; NaN and repeated values are left out.

        Parameters
        ----------
        rates : iterable of float
            Loads with additions per cycle of the slowest core in use, or lines per second.
        which : str
            The cores in use (see `cores_at_work`), or the units that exchange lines.
        """
        last = math.nan
        counts = self.counts.setdefault(which, Counter())
        for value in rates:
            if value > 0 and value != last:
                counts[math.floor(math.log(value) / self._WIDTH)] += 1
                last = value
        self._update(which)

    def _update(self, which: str) -> None:
        counts = self._earlier.get(which, Counter()) + self.counts.get(which, Counter())
        above = counts.total() / 100
        for number in sorted(counts, reverse=True):
            above -= counts[number]
            if above < 0:
                self._best[which] = math.exp((number + 0.5) * self._WIDTH)
                break

    def best(self, which: str) -> float:
        """Return the best rate of these cores; NaN before any is known."""
        return self._best.get(which, math.nan)


def cores_at_work(workers: int, kinds: Collection[int]) -> str:
    """Return a name for the number and kinds of cores in use, by which throughputs are compared.

    Parameters
    ----------
    workers : int
    kinds : collection of int
        Kinds of the cores that they may run on (efficiency and performance cores).

    Returns
    -------
    str
        Such as ``2``, or ``2 of kinds 0 and 1`` on a hybrid processor.
    """
    if len(kinds) == 0 or set(kinds) == {0}:
        return str(workers)
    return f"{workers} of kinds {' and '.join(map(str, sorted(set(kinds))))}"


def disturbed_samples(
    cpu_share: _Floats, throughput: _Floats, moved: _Bools, least_throughput: float
) -> _Bools:
    """Return which samples were disturbed.

    Parameters
    ----------
    cpu_share : ndarray of float64, shape (n,)
        For each sample, the smallest share during which a worker had a processor; NaN if unknown.
    throughput : ndarray of float64, shape (n,)
        For each sample, the smallest throughput of a worker's core; NaN if unknown.
    moved : ndarray of bool, shape (n,)
        For each sample, whether a worker moved to another processing unit.
    least_throughput : float
        Throughput below which a sample is disturbed; 0 if unknown.

    Returns
    -------
    ndarray of bool, shape (n,)
        True also for the sample after one during which a worker moved or lost its processor for
        long.
    """
    away = (cpu_share < 1 - _AWAY_SHARE) | moved
    after = np.concatenate(([False], away[:-1]))
    crowded = throughput < least_throughput
    return np.asarray((cpu_share < CPU_SHARE) | moved | after | crowded, dtype=np.bool_)


def slow_exchanges(seconds: _Floats, exchange_s: _Floats, best_s: float, sharing: str) -> _Bools:
    """Return which samples took longer because workers exchanged lines slowly.

    Parameters
    ----------
    seconds : ndarray of float64, shape (n,)
        Time of an invocation in each sample.
    exchange_s : ndarray of float64, shape (n,)
        Time in which a line goes from one worker to the next, NaN if unknown.
    best_s : float
        The shortest one known, NaN if unknown.
    sharing : str
        ``all`` if the workers share what they write, ``ends`` if they meet at the begin and the end
        of each invocation, ``none`` if they do not meet.

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    slow = exchange_s * EXCHANGE_SHARE > best_s
    if sharing == "none":
        return np.zeros(len(seconds), dtype=np.bool_)
    if sharing == "all":
        return slow
    return slow & (_TRANSFERS * (exchange_s - best_s) > (1 - CORE_SHARE) * seconds)


def too_few(kept: int, shared: int, taken: int) -> bool:
    """Return whether there are too few undisturbed samples.

    Parameters
    ----------
    kept : int
        Number of undisturbed samples.
    shared : int
        Number of samples during which the cores' throughput was too low.
    taken : int
        Number of all samples.
    """
    if kept < min(LEAST_SAMPLES, taken) or kept * LEAST_ONE_IN < taken:
        return True
    return kept < LEAST_UNSHARED * (kept + shared)


@dataclass(frozen=True)
class Activity:
    """Other activity on the machine.

    Attributes
    ----------
    others : tuple of (int, str, int)
        Threads of other processes that ran nearly all the time: process, command, processing unit.
    steal_share : float
        Share of the time that the hypervisor gave to others; NaN if unknown.
    shared_probes : float
        Share of the probes of the cores in which these did less than `CORE_SHARE` of their best,
        as beside other hardware threads of the same core; NaN if unknown.
    """

    others: tuple[RunningThread, ...]
    steal_share: float
    shared_probes: float = math.nan

    @property
    def quiet(self) -> bool:
        """Whether nothing else runs that would disturb samples."""
        return not (
            self.others or self.steal_share > STEAL_SHARE or self.shared_probes > SHARED_PROBES
        )

    def __str__(self) -> str:
        """Describe what else runs."""
        found = [describe(self.others)] if self.others else []
        if self.steal_share > STEAL_SHARE:
            found.append(f"other virtual machines, for {self.steal_share:.0%} of the time")
        if self.shared_probes > SHARED_PROBES:
            found.append(
                f"something on the same physical cores (in {self.shared_probes:.0%} of the probes)"
            )
        return " and ".join(found) or "nothing else"


_OBSERVATIONS = 5


def observe_activity(
    running: Callable[[], Sequence[RunningThread]],
    steal_s: Callable[[], float],
    units: int,
    seconds: float = 0.25,
) -> Activity:
    """Observe what else runs on the machine.

    Parameters
    ----------
    running : callable
        Returns the threads of other processes that run now.
    steal_s : callable
        Returns the steal time so far in seconds, summed over all processing units.
    units : int
        Number of processing units.
    seconds : float
        Duration of the observation.
    """
    begin, stolen = time.perf_counter(), steal_s()
    seen: dict[tuple[int, str], int] = {}
    last: dict[tuple[int, str], int] = {}
    for number in range(_OBSERVATIONS):
        if number:
            time.sleep(seconds / (_OBSERVATIONS - 1))
        now = {(process, command): unit for process, command, unit in running()}
        for thread in now:
            seen[thread] = seen.get(thread, 0) + 1
        last |= now
    elapsed = time.perf_counter() - begin
    often = [thread for thread, times in seen.items() if times >= _OBSERVATIONS - 1]
    return Activity(
        tuple((process, command, last[process, command]) for process, command in sorted(often)),
        (steal_s() - stolen) / (elapsed * max(units, 1)),
    )


def causes(threads: Iterable[RunningThread], moved: int) -> str:
    """Return what disturbed samples: other threads, and moves of workers in `moved` of them."""
    moves = "moves of workers that are not bound to processing units" if moved else ""
    return ", ".join(filter(None, (describe(threads), moves)))


def describe(threads: Iterable[RunningThread]) -> str:
    """Return a description such as ``sh (process 7994), stress (processes 12, 13)``."""
    processes: dict[str, set[int]] = {}
    for process, command, _ in threads:
        processes.setdefault(command, set()).add(process)
    words = []
    for command, numbers in list(processes.items())[:5]:
        listed = ", ".join(map(str, sorted(numbers)[:4])) + (", ..." if len(numbers) > 4 else "")
        words.append(f"{command} (process{'es' if len(numbers) > 1 else ''} {listed})")
    return ", ".join(words) + (" and others" if len(processes) > 5 else "")
