"""The machine, as the extension and the system show it: cores, caches, instruction sets, load."""

from __future__ import annotations

import math
import os
from typing import Any

from memkern import _memkern
from memkern.machine import environment, gpu


def machine_environment() -> dict[str, Any]:
    """Describe this machine and build, as stored beside every run's records."""
    found = environment.collect(_memkern.build())
    if gpu.devices():
        found["devices"] = {name: gpu.describe(name) for name in gpu.devices()}
    return found


def forms(kernel: str, isa: str = "best") -> set[str]:
    """Return the forms that a kernel is built with for what this machine, or one `isa`, runs."""
    isas = [name for name in _memkern.supported_isas() if isa in ("best", name)]
    return {entry[6] for entry in _memkern.entries() if entry[0] == kernel and entry[2] in isas}


def last_level_cache_B() -> int:
    """Return the size of the last-level caches together."""
    return int(_memkern.topology()["last_level_cache_B"])


def copy_GBps(device: str) -> float:
    """Return what the driver's copy moves, NaN where the device has no room for it."""
    try:
        return gpu.copy_GBps(device)
    except MemoryError:
        return math.nan


def workers_of(device: str) -> int:
    """Return how many threads keep a device busy: 1024 on each multiprocessor of a GPU."""
    if device == "cpu":
        return len(os.sched_getaffinity(0))
    return 1024 * int(gpu.describe(device)["units"])
