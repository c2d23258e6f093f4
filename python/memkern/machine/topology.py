"""Processing units, nodes and instruction sets, as the extension describes them."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable

from memkern import backends
from memkern.extension import _memkern
from memkern.limits import Quota, processor_quota
from memkern.machine import gpu


def supported_isas() -> list[str]:
    """Return the instruction sets of this build that the processor supports, widest first."""
    return list(_memkern.supported_isas())


def physical_cores() -> list[list[int]]:
    """Return the processing units that this process may use, by physical core.

    Cores that share caches or a NUMA node are adjacent.
    """
    topology = _memkern.topology()
    cores: dict[int, list[int]] = {}
    for unit, core in zip(topology["units"], topology["core_of_unit"], strict=True):
        cores.setdefault(core, []).append(unit)
    return list(cores.values())


def numa_nodes() -> list[int]:
    """Return the numbers of the NUMA nodes whose memory this process may use."""
    return [int(node) for node in _memkern.topology()["numa_nodes"]]


def workers_by_quota() -> int:
    """Return the number of workers that fit in a quota of processor time; 0 without a limit."""
    quota = limiting_quota()
    return 0 if quota is None else max(int(quota.processors), 1)


def limiting_quota() -> Quota | None:
    """Return the quota of processor time; None if it does not limit this process."""
    quota = _quota(int(time.monotonic()), processor_quota)
    return quota if quota and quota.processors < len(os.sched_getaffinity(0)) else None


@functools.lru_cache(maxsize=1)
def _quota(_: int, read: Callable[[], Quota | None]) -> Quota | None:
    """Return the quota, read once per second, since reading it takes longer than a short case."""
    return read()


def workers_of(device: str) -> int:
    """Return the default number of workers.

    The number of processing units or of workers within a quota of processor time, 1024 for each
    multiprocessor of a GPU, and 1 for each rank.
    """
    backend = backends.of(device)
    if backend.is_accelerator:
        return 1024 * int(gpu.facts(device)["units"])
    return 1 if backend.over_ranks else workers_by_quota() or len(os.sched_getaffinity(0))
