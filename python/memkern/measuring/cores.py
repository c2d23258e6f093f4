"""The known throughput of this machine's cores, the cores of a case, and other activity."""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Mapping
from typing import Any

from memkern import _memkern
from memkern.machine import environment
from memkern.measuring import calibration, disturbance


@functools.cache
def cores() -> disturbance.Cores:
    """Return the throughputs that this process and others have measured since the last boot."""
    target = calibration.cores_path()
    known = disturbance.Cores(calibration.load_cores(target))
    process = os.getpid()

    def save() -> None:
        # In a forked process these are its parent's measurements, which the parent saves.
        if os.getpid() == process:
            calibration.save_cores(known.counts, target)

    atexit.register(save)
    return known


def cores_at_work(obtained: Mapping[str, Any]) -> str:
    """Return the class of cores that a case's workers run on (see `disturbance.cores_at_work`)."""
    topology = _memkern.topology()
    kinds = dict(zip(topology["units"], topology["core_kinds"], strict=True))
    units = obtained["pin"].split(",") if obtained["pin"] not in ("", "none") else kinds
    return disturbance.cores_at_work(int(obtained["threads"]), [kinds[int(u)] for u in units])


def observe_activity() -> disturbance.Activity:
    """Observe for a quarter of a second what else runs on this machine."""
    units = len(_memkern.topology()["units"])
    return disturbance.observe_activity(_memkern.running_threads, environment.read_steal_s, units)
