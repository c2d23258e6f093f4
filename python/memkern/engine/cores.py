"""The known throughput of this machine's cores, the cores of a case, and other activity.

A neighbour is a case that another process runs intentionally at the same time.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memkern.engine import calibration, disturbance
from memkern.engine.communication import ranks
from memkern.engine.process import at_exit
from memkern.engine.states import Mode
from memkern.extension import _memkern
from memkern.machine import environment


@functools.cache
def cores() -> disturbance.Cores:
    """Return the throughputs that all processes have measured since the last boot."""
    target = calibration.cores_path()
    known = disturbance.Cores(calibration.load_cores(target))
    at_exit(lambda: calibration.save_cores(known.counts, target))
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


def cores_at_work(obtained: Mapping[str, Any]) -> str:
    """Return the class of cores that a case's workers run on (see `disturbance.cores_at_work`)."""
    topology = _memkern.topology()
    kinds = dict(zip(topology["units"], topology["core_kinds"], strict=True))
    units = obtained["pin"].split(",") if obtained["pin"] not in ("", "none") else kinds
    workers = int(obtained["threads"]) * len(ranks().processes)
    # A unit may be lost since.
    return disturbance.cores_at_work(workers, [kinds.get(int(u), 0) for u in units])


def exchanging_units(obtained: Mapping[str, Any]) -> str:
    """Return the key under which the exchange times of a case's workers are stored."""
    return f"exchanges between units {','.join(sorted(obtained['pin'].split(',')))}"


def modes_beside(obtained: Mapping[str, Any]) -> list[Mode]:
    """Return the known modes of the rate at which a case's workers exchange lines, per second.

    There are none for a single worker, on a device, or for ranks, whose modes differ.
    """
    if obtained["threads"] < 2 or ranks().size > 1:
        return []
    return cores().modes(exchanging_units(obtained))


def competitors(beside: Neighbour | None = None) -> tuple[disturbance.RunningThread, ...]:
    """Return the running threads of other processes on the hosts of all ranks.

    Threads of the ranks and of the neighbour are left out.
    """
    return tuple(dict.fromkeys(itertools.chain(*ranks().every(_others(beside)))))


def _others(beside: Neighbour | None = None) -> list[disturbance.RunningThread]:
    own = ranks().processes | ({beside.process} if beside is not None else set())
    return [thread for thread in _memkern.running_threads() if thread[0] not in own]


def observe_activity() -> disturbance.Activity:
    """Observe for 0.25 s the other activity on this machine, or on the hosts of all ranks."""
    units = len(_memkern.topology()["units"])
    own = disturbance.observe_activity(_others, environment.read_steal_s, units)
    every = ranks().every(own)
    others = dict.fromkeys(itertools.chain(*(one.others for one in every)))
    return disturbance.Activity(tuple(others), max(one.steal_share for one in every))
