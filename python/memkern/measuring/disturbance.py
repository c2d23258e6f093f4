"""Which samples were disturbed: a worker waited for its processor, or shared its core.

The extension says of every sample for what share of it each worker had a processor, and how many
loads and additions per cycle the workers' cores did beside it (cpp/core/monitor.hpp, clock.hpp).
Here stands what follows from that.
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
    "LEAST_ONE_IN",
    "LEAST_SAMPLES",
    "LEAST_UNSHARED",
    "SHARED_CACHE_CORE_SHARE",
    "Cores",
    "Quiet",
    "RunningThread",
    "cores_at_work",
    "describe",
    "look_around",
    "marks",
    "too_few",
]

_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

# A sample counts only if every worker had a processor for this share of it.
CPU_SHARE = 0.95
# After a worker was away for more than this, its caches hold something else.
_AWAY_SHARE = 0.10
# And if its cores did this share of the best that as many cores at once have done: the times of
# kernels that the core limits are then off by up to as much. A thread that computes on the same
# physical core takes a third to a half of it, one that merely polls a sixth.
CORE_SHARE = 0.90
# The same where caches that cores share, or memory, limit a kernel: its times hardly follow what
# the core does, down to here.
SHARED_CACHE_CORE_SHARE = 0.60
# And if the hypervisor gave no more than this share of the time to others.
STEAL_SHARE = 0.10
# With fewer samples that count than this, or than one in so many of those taken, what was measured
# is disturbed.
LEAST_SAMPLES = 5
LEAST_ONE_IN = 20
# Cores are measured between samples, so that some count that were taken on a shared core after
# all. Where fewer than this share of the samples were on unshared cores, those are too many: with
# 0.05, three medians of four were 10 to 40 % too high on a host with neighbours, with 0.3 one of
# twenty.
LEAST_UNSHARED = 0.3

RunningThread = tuple[int, str, int]


class Cores:
    """The best throughput that the cores of this machine have shown, by which are at work.

    The best but for one measurement in a hundred of all since the system was booted, since the
    clock beside it may be read too low.

    Parameters
    ----------
    earlier : mapping of str to mapping of int to int, optional
        What earlier processes have counted (see `counts`): one that starts beside a neighbour may
        never see the best.
    """

    # Measurements are counted in classes this wide, of their logarithms.
    _WIDTH = 0.01

    def __init__(self, earlier: Mapping[str, Mapping[int, int]] | None = None) -> None:
        self._earlier = {which: Counter(counts) for which, counts in (earlier or {}).items()}
        self._best: dict[str, float] = {}
        self.counts: dict[str, Counter[int]] = {}
        """How often this process has measured each class of throughput, by cores at work."""
        for which in self._earlier:
            self._update(which)

    def add(self, throughputs: Iterable[float], which: str) -> None:
        """Add measurements of some cores at once; NaN and repeats do not count.

        Parameters
        ----------
        throughputs : iterable of float
            Loads with additions per cycle of the slowest core.
        which : str
            See `cores_at_work`.
        """
        last = math.nan
        counts = self.counts.setdefault(which, Counter())
        for value in throughputs:
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
        """Return the best throughput of these cores at once; NaN before any is known."""
        return self._best.get(which, math.nan)


def cores_at_work(workers: int, kinds: Collection[int]) -> str:
    """Return which cores are compared with each other: as many, of the same kinds.

    Parameters
    ----------
    workers : int
    kinds : collection of int
        Kinds of core that they may run on; cores for efficiency do less than those for speed.

    Returns
    -------
    str
        Such as ``2``, or ``2 of kinds 0 and 1`` where the machine has several.
    """
    if len(kinds) == 0 or set(kinds) == {0}:
        return str(workers)
    return f"{workers} of kinds {' and '.join(map(str, sorted(set(kinds))))}"


def marks(cpu_share: _Floats, throughput: _Floats, least_throughput: float) -> _Bools:
    """Return which samples were disturbed.

    Parameters
    ----------
    cpu_share : ndarray of float64, shape (n,)
        Smallest share of each sample during which a worker had a processor; NaN where unknown.
    throughput : ndarray of float64, shape (n,)
        Smallest throughput of a worker's core beside it; NaN where unknown.
    least_throughput : float
        What the cores must do for a sample to count; 0 if unknown.

    Returns
    -------
    ndarray of bool, shape (n,)
        Also the sample after one during which a worker was away for long.
    """
    after = np.concatenate(([False], cpu_share[:-1] < 1 - _AWAY_SHARE))
    crowded = throughput < least_throughput
    return np.asarray((cpu_share < CPU_SHARE) | after | crowded, dtype=np.bool_)


def too_few(kept: int, shared: int, taken: int) -> bool:
    """Return whether the undisturbed samples mean too little.

    Parameters
    ----------
    kept : int
        How many are undisturbed.
    shared : int
        How many were taken while the cores did too little.
    taken : int
        How many there are.
    """
    if kept < min(LEAST_SAMPLES, taken) or kept * LEAST_ONE_IN < taken:
        return True
    return kept < LEAST_UNSHARED * (kept + shared)


@dataclass(frozen=True)
class Quiet:
    """What a look around has found.

    Attributes
    ----------
    others : tuple of (int, str, int)
        Threads of other processes that ran at every look: process, command, processing unit.
    steal_share : float
        Share of the time that the hypervisor gave to others; NaN if unknown.
    """

    others: tuple[RunningThread, ...]
    steal_share: float

    @property
    def quiet(self) -> bool:
        """Whether nothing was found that would disturb samples."""
        return not self.others and not self.steal_share > STEAL_SHARE

    def __str__(self) -> str:
        """Say what was found."""
        found = [describe(self.others)] if self.others else []
        if self.steal_share > STEAL_SHARE:
            found.append(f"other virtual machines, for {self.steal_share:.0%} of the time")
        return " and ".join(found) or "nothing else"


_LOOKS = 5


def look_around(
    running: Callable[[], Sequence[RunningThread]],
    steal_s: Callable[[], float],
    units: int,
    seconds: float = 0.25,
) -> Quiet:
    """Look for what else runs on the machine.

    Parameters
    ----------
    running : callable
        Returns the threads of other processes that run now.
    steal_s : callable
        Returns the seconds stolen so far, over all processing units.
    units : int
        How many there are.
    seconds : float
        How long to look.
    """
    begin, stolen = time.perf_counter(), steal_s()
    seen: dict[tuple[int, str], int] = {}
    last: dict[tuple[int, str], int] = {}
    for look in range(_LOOKS):
        if look:
            time.sleep(seconds / (_LOOKS - 1))
        now = {(process, command): unit for process, command, unit in running()}
        for thread in now:
            seen[thread] = seen.get(thread, 0) + 1
        last |= now
    elapsed = time.perf_counter() - begin
    often = [thread for thread, times in seen.items() if times >= _LOOKS - 1]
    return Quiet(
        tuple((process, command, last[process, command]) for process, command in sorted(often)),
        (steal_s() - stolen) / (elapsed * max(units, 1)),
    )


def describe(threads: Iterable[RunningThread]) -> str:
    """Return what ran, such as ``sh (process 7994), stress (processes 12, 13)``."""
    processes: dict[str, set[int]] = {}
    for process, command, _ in threads:
        processes.setdefault(command, set()).add(process)
    words = []
    for command, numbers in list(processes.items())[:5]:
        listed = ", ".join(map(str, sorted(numbers)[:4])) + (", ..." if len(numbers) > 4 else "")
        words.append(f"{command} (process{'es' if len(numbers) > 1 else ''} {listed})")
    return ", ".join(words) + (" and others" if len(processes) > 5 else "")
