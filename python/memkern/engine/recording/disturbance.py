"""Samples in which a worker waited for its processor, and limits of a quiet host.

For every sample the extension measures how long workers waited for their processors, whether an
unbound worker moved to another processing unit, the throughput of the workers' cores in loads and
additions per cycle, and the time for passing a line from one worker to the next
(cpp/core/monitor.hpp, clock.hpp, exchange.hpp). Only a worker that waited or moved disturbs a
sample: effects of a hypervisor or another virtual machine are states of the host, whose samples
count.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = [
    "CORE_SHARE",
    "EXCHANGE_SHARE",
    "QUIET_SHARE",
    "SHARED_PROBES",
    "STEAL_SHARE",
    "WAITED_SHARE",
    "RunningThread",
    "describe",
    "disturbed_samples",
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
