"""The samples of one placement of a case, and those during which a worker waited.

For every sample the extension measures how long workers waited for their processors, whether an
unbound worker moved to another processing unit, the throughput of the workers' cores in loads and
additions per cycle, and the time for passing a line from one worker to the next
(cpp/core/monitor.hpp, clock.hpp, exchange.hpp). Only a worker that waited or moved disturbs a
sample: effects of a hypervisor or another virtual machine are states of the host, whose samples
count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern import statistics
from memkern.host.rates import Mode, labels_of

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.int64]

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


def disturbed_samples(waited_share: Floats, cpu_share: Floats, moved: Bools) -> Bools:
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


def names_of(threads: Iterable[RunningThread]) -> str:
    """Return a description such as ``sh (process 7994), stress (processes 12, 13)``."""
    processes: dict[str, set[int]] = {}
    for process, command, _ in threads:
        processes.setdefault(command, set()).add(process)
    words = []
    for command, numbers in list(processes.items())[:5]:
        listed = ", ".join(map(str, sorted(numbers)[:4])) + (", ..." if len(numbers) > 4 else "")
        words.append(f"{command} (process{'es' if len(numbers) > 1 else ''} {listed})")
    return ", ".join(words) + (" and others" if len(processes) > 5 else "")


# Columns that the extension adds to each sample (cpp/core/monitor.hpp).
CONDITIONS = (
    "cpu_share",
    "throughput",
    "clock_Hz",
    "exchange_s",
    "moved",
    "waited_share",
    "absent_share",
    "memory_s",
    "exchange_least_s",
)
# Shortest samples of several ranks, which start when they leave a barrier, in times of a barrier,
# and of threads without barriers, in differences of the threads' starts. Records of shorter samples
# are marked.
STARTS_PER_SAMPLE = 100


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of one placement.

    Attributes
    ----------
    cores, exchanging : str
        Names of the workers' cores and of the units that exchange lines, by which the host knows
        their rates (see `memkern.host.Host.cores`); `exchanging` is empty for a single worker.
    seconds : ndarray of float64, shape (n, 1 + k)
        Seconds per invocation, followed by the seconds of each of the k kernels if an invocation
        runs several in turn. Disturbed samples are left out, unless `disturbed`.
    by_rank : ndarray of float64, shape (ranks, n)
        Seconds per invocation of each rank; `seconds` contains the slowest rank's.
    invocations : int
        Invocations in one sample.
    stop : str
        Reason for the end of sampling: ``runs``, ``ci``, ``samples``, ``budget`` or
        ``interrupted``.
    taken, rejected : int
        Number of samples taken, and number of disturbed samples.
    cpu_share : float
        Share of the time during which all workers had a processor, over all samples taken.
    waited_share, absent_share : float
        Shares of that time during which a worker waited for its processor, and during which a
        processor that it had was taken away; NaN if unknown.
    throttled_share : float
        Share of that time during which a quota had stopped a worker; NaN without a quota.
    throughput : float
        Median over the samples of the cores' throughput, in loads with additions per cycle.
    clock_Hz : float
        Median clock of the cores; NaN if unknown.
    exchange_s : ndarray of float64, shape (n, 2)
        Times for passing a line from one worker to the next, before and after each sample, the
        shorter first; NaN if unknown.
    untimed : int
        Invocations before and between the samples, which warmed up a GPU or the caches.
    disturbed : bool
        Whether too few samples were undisturbed; `seconds` then includes disturbed ones.
    mean_s : float
        Mean seconds of an invocation over all samples taken.
    counts : sequences of ndarray of float64, shape (n, counters, 3)
        By rank and event, value and nanoseconds enabled and running of each counter, over all
        workers of the rank, in each of the samples of `seconds` (see `Counting.by_event`).
    moved_B : ndarray of float64, shape (n,)
        Bytes per invocation of untimed background traffic of all ranks, in each of the samples of
        `seconds`; NaN for kernels without such traffic.
    device : mapping
        The columns of a record on the state of a GPU during sampling; empty for other devices.
    """

    cores: str
    exchanging: str
    seconds: Floats
    by_rank: Floats
    invocations: int
    stop: str
    taken: int
    rejected: int
    cpu_share: float
    waited_share: float
    absent_share: float
    throttled_share: float
    throughput: float
    clock_Hz: float
    exchange_s: Floats
    untimed: int
    disturbed: bool
    mean_s: float
    counts: Sequence[Sequence[Floats]]
    moved_B: Floats
    device: Mapping[str, Any]

    @property
    def traffic_GBps(self) -> float:
        """Median bandwidth of the untimed background traffic, NaN without any."""
        return statistics.median(self.moved_B / self.seconds[:, 0]) / 1e9

    def labels(self, modes: Sequence[Mode]) -> Labels:
        """Return the mode in which each sample was taken, by the rates of the exchanges."""
        return labels_of(1 / self.exchange_s[:, ::-1], modes)

    def only(self, wanted: Bools) -> Samples:
        """Return a copy with only the wanted samples."""
        return replace(
            self,
            seconds=self.seconds[wanted],
            by_rank=self.by_rank[:, wanted],
            exchange_s=self.exchange_s[wanted],
            counts=[[values[wanted] for values in events] for events in self.counts],
            moved_B=self.moved_B[wanted],
        )


def median(values: Floats) -> float:
    """Return the median of the positive values, NaN if there are none."""
    known = values[values > 0]
    return statistics.median(known) if len(known) else np.nan
