"""Counts of work of which the true count is known: whether an event counts what its name says.

Events of the system are checked by work of this thread, the lines that move between caches by a
loop ``a = s a``, of which every byte goes in and out of each level that does not hold the array.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from memkern import _memkern, small
from memkern.errors import InputError
from memkern.machine import events
from memkern.machine.topology import machine_environment
from memkern.measuring import calibration, counting
from memkern.measuring.record import measure
from memkern.spec.registry import case as build

__all__ = ["AGREES", "Known", "check"]

# A ratio within these limits agrees with the true count.
AGREES = (0.9, 1.1)
_PAGES, _SLEEPS, _MOVES, _SPIN_NS = 4096, 40, 20, 20_000_000


@dataclass(frozen=True)
class Known:
    """An event, and its count of work of which the true count is known.

    Attributes
    ----------
    event, work : str
    true, count : float
        NaN where it could not be counted.
    """

    event: str
    work: str
    true: float
    count: float

    @property
    def ratio(self) -> float:
        """The count over the true one, NaN if it is unknown."""
        return self.count / self.true if self.true else math.nan

    @property
    def agrees(self) -> bool:
        """Whether the count is right to a tenth."""
        return AGREES[0] <= self.ratio <= AGREES[1]


def _touch_pages() -> float:
    with mmap.mmap(-1, _PAGES * mmap.PAGESIZE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        pages = np.frombuffer(memory, dtype=np.uint8)
        pages[:: mmap.PAGESIZE] = 1
        del pages
    return _PAGES


def _sleep() -> float:
    for _ in range(_SLEEPS):
        time.sleep(1e-4)
    return _SLEEPS


def _move() -> float:
    allowed = sorted(os.sched_getaffinity(0))
    try:
        for k in range(_MOVES):
            os.sched_setaffinity(0, {allowed[k % 2]})
    finally:
        os.sched_setaffinity(0, allowed)
    # The first one moves only a thread that was elsewhere.
    return _MOVES - 0.5


def _spin() -> float:
    begin = time.thread_time_ns()
    while (now := time.thread_time_ns()) - begin < _SPIN_NS:
        pass
    return now - begin


_WORK: dict[str, tuple[str, Callable[[], float]]] = {
    "page-faults": (f"touches {_PAGES} pages", _touch_pages),
    "minor-faults": (f"touches {_PAGES} pages", _touch_pages),
    "context-switches": (f"sleeps {_SLEEPS} times", _sleep),
    "cpu-migrations": (f"moves {_MOVES} times between two units", _move),
    "task-clock": (f"works for {_SPIN_NS / 1e6:.0f} ms", _spin),
}


def _of_system() -> Iterator[Known]:
    """Yield the events of the system that can be counted here."""
    for name, (work, run) in _WORK.items():
        event, why = counting.event_here(name)
        if event is None or why or (name == "cpu-migrations" and _units() < 2):
            continue
        true: list[float] = []

        def once(run: Callable[[], float] = run, to: list[float] = true) -> None:
            to.append(run())

        [(value, _, _)] = _memkern.count(event.codes, once)
        yield Known(name, work, true[0], float(value))


def _units() -> int:
    return len(os.sched_getaffinity(0))


def _of_caches() -> Iterator[Known]:
    """Yield the quantities of the table that can be counted here, with the array beyond a level."""
    known = [
        name
        for name in events.quantities(counting.ROOT)
        if name != "tlb_misses" and not counting.event_here(name)[1]
    ]
    caches = machine_environment()["machine"]["caches"] or ()
    sizes = {f"L{c['level']}": c["size_B"] for c in caches if c.get("type") != "instruction"}
    for level in dict.fromkeys(name.partition("_")[0] for name in known):
        # Four times the caches that must not hold it, and within the next one.
        below = max(sizes.values(), default=2**25) if level == "memory" else sizes.get(level, 2**15)
        size_B = small.cut(4 * below, 2**16)
        names = [name for name in known if name.startswith(level)]
        case = build(
            "loops.update", elements=size_B // 8, threads=1, runs=20, counters=",".join(names)
        )
        for row in json.loads(measure(case).record["counter_rows"]):
            count = math.nan if row["count"] is None else row["count"]
            yield Known(row["event"], f"a = s a of {size_B} B", row["model"], count)


def check() -> list[Known]:
    """Count work of which the count is known, and store the ratios until the next boot.

    Returns
    -------
    list of Known
        Only of events that can be counted here.

    Raises
    ------
    InputError
        None can.
    """
    found = [*_of_system(), *_of_caches()]
    if not found:
        name = next(iter(_WORK))
        why = counting.event_here(name)[1]
        raise InputError(
            f"no event of which the true count is known can be counted here: {name}: {why}"
        )
    if not small.wanted():
        known_ratios = {k.event: k.ratio for k in found if not math.isnan(k.ratio)}
        calibration.save_counters(known_ratios)
    return found
