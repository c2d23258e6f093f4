"""The known throughput of this machine's cores, the cores of a case, and other activity.

A neighbour is a case that another process runs at the same time on purpose. What it takes from the
cores of a measured case, and from the lines that the workers exchange, is no disturbance: the best
rates beside each neighbour are known separately, so that other competitors are still detected.
"""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Neighbour:
    """A case that another process runs at the same time.

    Attributes
    ----------
    label : str
        Its name in records.
    case_id : str
        Its identity.
    process : int
        The number of the process.
    """

    label: str
    case_id: str
    process: int


def cores_at_work(obtained: Mapping[str, Any], beside: Neighbour | None = None) -> str:
    """Return the class of cores that a case's workers run on (see `disturbance.cores_at_work`)."""
    if beside is not None:
        return f"units {obtained['pin']} {_beside(beside)}"
    topology = _memkern.topology()
    kinds = dict(zip(topology["units"], topology["core_kinds"], strict=True))
    units = obtained["pin"].split(",") if obtained["pin"] not in ("", "none") else kinds
    return disturbance.cores_at_work(int(obtained["threads"]), [kinds[int(u)] for u in units])


def exchanging_units(obtained: Mapping[str, Any], beside: Neighbour | None = None) -> str:
    """Return the name by which the times are known in which a case's workers exchange lines."""
    units = ",".join(sorted(obtained["pin"].split(",")))
    return f"exchanges between units {units}" + (f" {_beside(beside)}" if beside else "")


def _beside(neighbour: Neighbour) -> str:
    # The identity includes the units on which it runs.
    return f"beside {neighbour.label} ({neighbour.case_id})"


def competitors(beside: Neighbour | None = None) -> tuple[disturbance.RunningThread, ...]:
    """Return the threads of other processes, except those of the neighbour, that run now."""
    threads = _memkern.running_threads()
    return tuple(t for t in threads if beside is None or t[0] != beside.process)


def observe_activity() -> disturbance.Activity:
    """Observe for a quarter of a second what else runs on this machine."""
    units = len(_memkern.topology()["units"])
    return disturbance.observe_activity(_memkern.running_threads, environment.read_steal_s, units)
