"""Samples in which a worker waited for its processor, rates of the cores, and other activity.

For every sample the extension measures how long workers waited for their processors, whether an
unbound worker moved to another processing unit, the throughput of the workers' cores in loads and
additions per cycle, and the time for passing a line from one worker to the next
(cpp/core/monitor.hpp, clock.hpp, exchange.hpp). Only a worker that waited or moved disturbs a
sample: effects of a hypervisor or another virtual machine are states of the host, whose samples
count.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memkern.engine.states import Mode, modes_of

__all__ = [
    "CORE_SHARE",
    "EXCHANGE_SHARE",
    "QUIET_SHARE",
    "SHARED_PROBES",
    "STEAL_SHARE",
    "WAITED_SHARE",
    "Activity",
    "Cores",
    "RunningThread",
    "cores_at_work",
    "describe",
    "disturbed_samples",
    "observe_activity",
    "too_few",
]

_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

# A sample is disturbed if a worker waited for a processor for more than this share of it.
WAITED_SHARE = 0.05
# The next sample is disturbed as well if a worker waited for more than this share, or moved: its
# data may no longer be in the caches.
_AWAY_SHARE = 0.10
# A host is quiet if its workers waited, and were absent, for less than this share of the time,
QUIET_SHARE = 0.01
# if its cores have at least this share of their best throughput (a thread that computes on the same
# physical core takes a third to a half, one that polls a sixth),
CORE_SHARE = 0.95
# and if exchanging a line takes less than the shortest time divided by this share. It takes four
# times as long after a hypervisor has moved the processors of a virtual machine apart.
EXCHANGE_SHARE = 0.50
# The machine is not quiet if the hypervisor gave more than this share of the time to others, or if
# the cores are below CORE_SHARE in more than this share of the probes.
STEAL_SHARE = 0.10
SHARED_PROBES = 0.3
# Least number of undisturbed samples for results from these alone.
_LEAST_SAMPLES = 5

RunningThread = tuple[int, str, int]


class Cores:
    """The best rates of this machine's cores, by the cores in use.

    Rates are throughputs, by number and kinds of the cores, and lines exchanged per second, by the
    units. The best rate is the 99th percentile of all measurements since the system was booted,
    because a clock that is measured too low makes a throughput too high.

    Parameters
    ----------
    earlier : mapping of str to mapping of int to int, optional
        The counts of earlier processes (see `counts`): this process may never reach the best rate
        if other threads share its cores from the start.
    """

    _WIDTH = 0.01  # of the histogram's bins, in logarithms of the throughput

    def __init__(self, earlier: Mapping[str, Mapping[int, int]] | None = None) -> None:
        self._earlier = {which: Counter(counts) for which, counts in (earlier or {}).items()}
        self._best: dict[str, float] = {}
        self.counts: dict[str, Counter[int]] = {}
        """Histograms of this process's measurements, by cores in use: bin to count."""
        self._changed = {*self._earlier}

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
        self._changed.add(which)

    def _all(self, which: str) -> Counter[int]:
        """Return the counts of earlier processes and of this one."""
        return self._earlier.get(which, Counter()) + self.counts.get(which, Counter())

    def _update(self, which: str) -> None:
        counts = self._all(which)
        above = counts.total() / 100
        for number in sorted(counts, reverse=True):
            above -= counts[number]
            if above < 0:
                self._best[which] = math.exp((number + 0.5) * self._WIDTH)
                break

    def best(self, which: str) -> float:
        """Return the best rate of these cores; NaN before any is known."""
        if which in self._changed:
            self._update(which)
            self._changed.discard(which)
        return self._best.get(which, math.nan)

    def modes(self, which: str) -> list[Mode]:
        """Return the modes of these rates, in ascending order; none before any is known."""
        return modes_of(self._all(which), self._WIDTH)


def cores_at_work(workers: int, kinds: Collection[int]) -> str:
    """Return a name for the number and kinds of cores in use, by which throughputs are compared.

    Parameters
    ----------
    workers : int
    kinds : collection of int
        Kinds of cores that the workers may run on (efficiency and performance cores).

    Returns
    -------
    str
        Such as ``2``, or ``2 of kinds 0 and 1`` on a hybrid processor.
    """
    if len(kinds) == 0 or set(kinds) == {0}:
        return str(workers)
    return f"{workers} of kinds {' and '.join(map(str, sorted(set(kinds))))}"


def disturbed_samples(waited_share: _Floats, cpu_share: _Floats, moved: _Bools) -> _Bools:
    """Return which samples were disturbed.

    Parameters
    ----------
    waited_share : ndarray of float64, shape (n,)
        For each sample, the largest share during which a worker waited for a processor; if NaN, a
        worker is assumed to have waited whenever it had none.
    cpu_share : ndarray of float64, shape (n,)
        For each sample, the smallest share during which a worker had a processor; NaN if unknown.
    moved : ndarray of bool, shape (n,)
        For each sample, whether a worker moved to another processing unit.

    Returns
    -------
    ndarray of bool, shape (n,)
        True also for the sample after one during which a worker moved or waited for long.
    """
    waited = np.where(np.isnan(waited_share), 1 - cpu_share, waited_share)
    away = (waited > _AWAY_SHARE) | moved
    after = np.concatenate(([False], away[:-1]))
    return np.asarray((waited > WAITED_SHARE) | moved | after, dtype=np.bool_)


def too_few(kept: int, taken: int) -> bool:
    """Return whether the undisturbed samples `kept` are too few of the samples `taken`."""
    return kept < min(_LEAST_SAMPLES, taken) or 2 * kept < taken


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
        Share of the probes in which the cores had less than `CORE_SHARE` of their best throughput,
        as with busy hardware threads on the same core; NaN if unknown.
    """

    others: tuple[RunningThread, ...]
    steal_share: float
    shared_probes: float = math.nan

    @property
    def quiet(self) -> bool:
        """Whether no other activity would disturb samples."""
        return not (
            self.others or self.steal_share > STEAL_SHARE or self.shared_probes > SHARED_PROBES
        )

    def __str__(self) -> str:
        """Describe the other activity."""
        found = [describe(self.others)] if self.others else []
        if self.steal_share > STEAL_SHARE:
            found.append(f"other virtual machines, for {self.steal_share:.0%} of the time")
        if self.shared_probes > SHARED_PROBES:
            found.append(
                f"other load on the same physical cores (in {self.shared_probes:.0%} of the probes)"
            )
        return " and ".join(found) or "nothing else"


_OBSERVATIONS = 5


def observe_activity(
    running: Callable[[], Sequence[RunningThread]],
    steal_s: Callable[[], float],
    units: int,
    seconds: float = 0.25,
) -> Activity:
    """Observe other activity on the machine.

    Parameters
    ----------
    running : callable
        Returns the running threads of other processes.
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
