"""The machine, as the extension and the system show it: cores, caches, instruction sets, load."""

from __future__ import annotations

import atexit
import functools
import math
import os
from collections.abc import Mapping
from typing import Any

from memkern import _memkern, calibration, disturbance, environment, gpu


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


@functools.cache
def cores() -> disturbance.Cores:
    """Return what the cores have shown in this process and in others since the last boot."""
    target = calibration.cores_path()
    known = disturbance.Cores(calibration.load_cores(target))
    process = os.getpid()

    def save() -> None:
        # A forked process has measured nothing that its parent does not know.
        if os.getpid() == process:
            calibration.save_cores(known.counts, target)

    atexit.register(save)
    return known


def cores_at_work(obtained: Mapping[str, Any]) -> str:
    """Return which cores a case's workers are on (see `disturbance.cores_at_work`)."""
    topology = _memkern.topology()
    kinds = dict(zip(topology["units"], topology["core_kinds"], strict=True))
    units = obtained["pin"].split(",") if obtained["pin"] not in ("", "none") else kinds
    return disturbance.cores_at_work(int(obtained["threads"]), [kinds[int(u)] for u in units])


def look_around() -> disturbance.Quiet:
    """Look for what else runs on this machine, for a quarter of a second."""
    units = len(_memkern.topology()["units"])
    return disturbance.look_around(_memkern.running_threads, environment.read_steal_s, units)


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
