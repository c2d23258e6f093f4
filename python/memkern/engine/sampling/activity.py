"""Other activity on this machine, and the names of the cores of a case.

A neighbour is a case that another process runs intentionally at the same time.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memkern.engine.processes.communication import ranks
from memkern.engine.recording.samples import SHARED_PROBES, STEAL_SHARE, RunningThread, names_of
from memkern.extension import _memkern
from memkern.host.rates import cores_at_work
from memkern.machine import environment

_OBSERVATIONS, _OBSERVED_S = 5, 0.25


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


@dataclass(frozen=True)
class Activity:
    """Other activity on the machine.

    Attributes
    ----------
    others : tuple of (int, str, int)
        Threads of other processes that ran nearly all the time: process, command, processing unit.
    steal_share : float
        Share of the time that the hypervisor gave to others; NaN if unknown.
    shared_probes : float
        Share of the probes in which the cores had less than `CORE_SHARE` of their best
        throughput, as with busy hardware threads on the same core; NaN if unknown.
    """

    others: tuple[RunningThread, ...]
    steal_share: float
    shared_probes: float = math.nan

    @property
    def quiet(self) -> bool:
        """Whether no other activity would disturb samples."""
        return not (
            self.others or self.steal_share > STEAL_SHARE or self.shared_probes > SHARED_PROBES
        )

    def __str__(self) -> str:
        """Describe the other activity."""
        rows = (
            (self.others, names_of(self.others)),
            (
                self.steal_share > STEAL_SHARE,
                f"other virtual machines, for {self.steal_share:.0%} of the time",
            ),
            (
                self.shared_probes > SHARED_PROBES,
                f"other load on the same physical cores (in {self.shared_probes:.0%} of the "
                "probes)",
            ),
        )
        return " and ".join(text for holds, text in rows if holds) or "nothing else"


def names_of_cores(obtained: Mapping[str, Any]) -> tuple[str, str]:
    """Return the names under which a case's rates are stored: of its cores, and of exchanges.

    The second one is empty for a single worker.
    """
    topology = _memkern.topology()
    kinds = dict(zip(topology["units"], topology["core_kinds"], strict=True))
    units = obtained["pin"].split(",") if obtained["pin"] not in ("", "none") else kinds
    workers = int(obtained["threads"]) * len(ranks().processes)
    # A unit may be lost since.
    at_work = cores_at_work(workers, [kinds.get(int(u), 0) for u in units])
    exchanging = f"exchanges between units {','.join(sorted(obtained['pin'].split(',')))}"
    return at_work, exchanging if obtained["threads"] > 1 else ""


def competitors(beside: Neighbour | None = None) -> tuple[RunningThread, ...]:
    """Return the running threads of other processes on the hosts of all ranks.

    Threads of the ranks and of the neighbour are left out.
    """
    return tuple(dict.fromkeys(itertools.chain(*ranks().every(_running(beside)))))


def _running(beside: Neighbour | None = None) -> list[RunningThread]:
    own = ranks().processes | ({beside.process} if beside is not None else set())
    return [thread for thread in _memkern.running_threads() if thread[0] not in own]


def observe_activity() -> Activity:
    """Observe for 0.25 s the other activity on this machine, or on the hosts of all ranks."""
    every = ranks().every(_observed())
    others = dict.fromkeys(itertools.chain(*(one.others for one in every)))
    return Activity(tuple(others), max(one.steal_share for one in every))


def _observed() -> Activity:
    """Observe the other activity on this host: threads that ran nearly all the time."""
    begin, stolen = time.perf_counter(), environment.read_steal_s()
    seen = Counter[tuple[int, str]]()
    last: dict[tuple[int, str], int] = {}
    for number in range(_OBSERVATIONS):
        if number:
            time.sleep(_OBSERVED_S / (_OBSERVATIONS - 1))
        now = {(process, command): unit for process, command, unit in _running()}
        seen.update(now.keys())
        last |= now
    elapsed_s = time.perf_counter() - begin
    often = [thread for thread, times in seen.items() if times >= _OBSERVATIONS - 1]
    return Activity(
        tuple((process, command, last[process, command]) for process, command in sorted(often)),
        (environment.read_steal_s() - stolen) / (elapsed_s * len(_memkern.topology()["units"])),
    )
