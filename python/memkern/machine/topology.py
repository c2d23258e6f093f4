"""The machine, as the extension describes it."""

from __future__ import annotations

import os
from typing import Any

from memkern.extension import _memkern
from memkern.machine import caches, environment, gpu, remote, tlbs


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


def beyond_caches_B() -> int:
    """Return the size of data that lie in memory: four times the caches, and at least 64 MiB."""
    return max(caches.MULTIPLE * last_level_cache_B(), 2**26)


def workers_of(device: str) -> int:
    """Return the default number of workers.

    As many as processing units, 1024 for each multiprocessor of a GPU, and 1 for each rank.
    """
    if device in remote.DEVICES:
        return 1
    if device == "cpu":
        return len(os.sched_getaffinity(0))
    return 1024 * int(gpu.describe(device)["units"])
