"""What the cores of this machine have shown, and which of them a case runs on."""

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
