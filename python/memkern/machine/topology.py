"""The machine, as the extension describes it."""

from __future__ import annotations

import math
import os
import warnings
from typing import Any

from memkern.extension import _memkern
from memkern.machine import caches, environment, gpu, remote, tlbs
from memkern.machine.limits import memory_left, processor_quota

_LEFT_SHARE = 2  # data of a default size have at most this part of the memory that is left


def machine_environment() -> dict[str, Any]:
    """Return the environment of this machine and build, as stored with every run's records."""
    found = environment.collect(_memkern.build())
    found["machine"]["tlbs"] = tlbs.describe(_memkern.cpuid) or None
    if measured := caches.load(found["machine"]["caches"] or ()):
        found["measured_caches"] = measured
    if devices := gpu.describe_all():
        found["devices"] = devices
    return found


def supported_isas() -> list[str]:
    """Return the instruction sets of this build that the processor supports, widest first."""
    return list(_memkern.supported_isas())


def physical_cores() -> list[list[int]]:
    """Return the processing units that this process may use, by physical core.

    Cores that share caches or a NUMA node follow each other.
    """
    topology = _memkern.topology()
    cores: dict[int, list[int]] = {}
    for unit, core in zip(topology["units"], topology["core_of_unit"], strict=True):
        cores.setdefault(core, []).append(unit)
    return list(cores.values())


def numa_nodes() -> list[int]:
    """Return the numbers of the NUMA nodes whose memory this process may use."""
    return [int(node) for node in _memkern.topology()["numa_nodes"]]


def last_level_cache_B(largest: bool = True) -> int:
    """Return the total size of all last-level caches in bytes.

    By default it is what data in memory must exceed, the larger one of the size that the system
    reports and the measured one; else the measured one, where it is known.
    """
    reported_B = int(_memkern.topology()["last_level_cache_B"])
    known_B = caches.last_level_B(_with_caches(), largest)
    return max(reported_B, known_B) if largest else known_B or reported_B


def data_caches() -> list[dict[str, Any]]:
    """Return the data caches of this machine, with measured sizes where they are known.

    They are those of its environment (see `memkern.machine.caches.data_caches`).
    """
    return caches.data_caches(_with_caches())


def _with_caches() -> dict[str, Any]:
    """Return the part of the environment that describes the caches."""
    system = caches.reported()
    return {"machine": {"caches": system}, "measured_caches": caches.load(system)}


def beyond_caches_B(parts: int = 1) -> int:
    """Return the size of data that lie in memory: four times the caches, and at least 64 MiB.

    Where memory is too small for `parts` of this size, it is smaller, as of `from_memory`.
    """
    return from_memory(whole_B=parts, least=2**26)


def from_memory(unit_B: float = 1, whole_B: float = 1, least: int = 1) -> int:
    """Return the default number of elements of arrays each of which is to lie in memory.

    Parameters
    ----------
    unit_B : float
        Bytes of an element of one array, which has four times the size of the caches.
    whole_B : float
        Bytes of an element of all arrays. Where they would need more than half of the memory that
        this process may allocate, the number is the next smaller power of two, with a warning.
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
    held = number * whole_B <= cache_B
    warnings.warn(
        f"data have {found_MB:.4g} MB by default, not {wanted_MB:.4g} MB, which memory is too "
        f"small for (limited by {limit})"
        + ("; the caches hold them, so that values are not from memory" if held else ""),
        stacklevel=2,
    )
    return number


def workers_by_quota() -> int:
    """Return how many workers a quota of processor time carries; 0 if it limits none."""
    quota = processor_quota()
    if quota is None or quota >= len(os.sched_getaffinity(0)):
        return 0
    return max(int(quota), 1)


def workers_of(device: str) -> int:
    """Return the default number of workers.

    As many as processing units or as a quota of processor time carries, 1024 for each
    multiprocessor of a GPU, and 1 for each rank.
    """
    if device in remote.DEVICES:
        return 1
    if device == "cpu":
        return workers_by_quota() or len(os.sched_getaffinity(0))
    return 1024 * int(gpu.describe(device)["units"])
