"""The machine, as the extension describes it."""

from __future__ import annotations

import functools
import math
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memkern.extension import _memkern
from memkern.limits import Quota, memory_left, processor_quota
from memkern.machine import caches, capacity, environment, gpu, remote, smbios, tlbs

_LEFT_SHARE = 2  # default sizes use at most 1/2 of the remaining memory


def machine_environment() -> dict[str, Any]:
    """Return the environment of this machine and build, as stored with every run's records."""
    capacity.capacity()  # measures the capacity of caches once per boot
    found = environment.collect(_memkern.build())
    found["machine"]["tlbs"] = tlbs.describe(_memkern.cpuid) or None
    if measured := caches.load(found["machine"]["caches"] or ()):
        found["measured_caches"] = measured
    if memory := _memory():
        found["memory"] = dict(memory)
    if devices := gpu.describe_all():
        found["devices"] = devices
    return found


@functools.cache
def _memory() -> dict[str, Any]:
    return smbios.describe(smbios.population(Path("/")))


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


def last_level_cache_B() -> int:
    """Return the bytes that data in memory must exceed (see `memkern.machine.capacity`)."""
    return capacity.capacity().sized_B


def data_caches() -> list[dict[str, Any]]:
    """Return the data caches of this machine, with measured sizes if available.

    See `memkern.machine.caches.data_caches`.
    """
    system = caches.reported()
    measured = caches.load(system).get("sizes_B", {})
    return caches.data_caches(caches.in_environment(system, measured))


def beyond_caches_B(parts: int = 1) -> int:
    """Return the size of data in memory: four times `last_level_cache_B`, and at least 64 MiB.

    If memory is too small for `parts` arrays of this size, it is smaller (see `from_memory`).
    """
    return from_memory(whole_B=parts, least=2**26)


def from_memory(unit_B: float = 1, whole_B: float = 1, least: int = 1) -> int:
    """Return the default number of elements of arrays that do not fit in the caches.

    Parameters
    ----------
    unit_B : float
        Bytes of an element of one array, which has four times `last_level_cache_B`.
    whole_B : float
        Bytes of an element of all arrays. If they need more than half of the memory that this
        process may allocate, the number is the next smaller power of two, with a warning.
    least : int
        Least number of elements, if memory suffices.
    """
    cache_B = last_level_cache_B()
    wanted = max(int(caches.MULTIPLE * cache_B / unit_B), least)
    left_B, limit = memory_left()
    most = left_B / _LEFT_SHARE / whole_B
    if wanted <= most:
        return wanted
    number = 1 << math.floor(math.log2(max(most, 1)))
    found_MB, wanted_MB = (one * whole_B / 1e6 for one in (number, wanted))
    held = ""
    if number * whole_B <= cache_B:
        held = "; the caches hold them, so that values are not from memory"
    elif number * whole_B < 2 * cache_B:
        held = "; the caches hold most of them, so that values are only partly from memory"
    warnings.warn(
        f"data have {found_MB:.4g} MB by default, not {wanted_MB:.4g} MB, because memory is too "
        f"small (limited by {limit}){held}",
        stacklevel=2,
    )
    return number


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
    if device in remote.DEVICES:
        return 1
    if device == "cpu":
        return workers_by_quota() or len(os.sched_getaffinity(0))
    return 1024 * int(gpu.describe(device)["units"])
