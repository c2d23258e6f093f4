"""Counts of work of which the true count is known: whether an event counts what its name says.

Events of the system are checked by work of this thread, the lines that cross the boundary in front
of a level by loops through arrays that only this level holds, and page walks by loads from more
pages than any TLB has, one from each.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memkern import _memkern, small
from memkern.errors import InputError
from memkern.machine import events
from memkern.machine.caches import data_caches
from memkern.machine.events import TLB_MISSES, WAYS
from memkern.machine.topology import machine_environment
from memkern.measuring import calibration, counting
from memkern.measuring.record import measure
from memkern.spec.case import Case
from memkern.spec.registry import case as build

__all__ = ["Known", "check"]

# Loops, and the directions in which they move known lines: whether a line is loaded of which all is
# stored depends on the processor.
_LOOPS = {"loops.load": ("load",), "loops.copy": ("store",), "loops.update": WAYS}
_TLB_PAGES = 2**16
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
        return calibration.agrees(self.ratio)


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


def _of_processor() -> Iterator[Known]:
    """Yield the quantities of the table that can be counted here."""
    known = [name for name in events.quantities(counting.ROOT) if not counting.event_here(name)[1]]
    caches = data_caches(machine_environment())
    sizes = {f"L{c['level']}": max(c["size_B"], c["system_B"]) for c in caches}
    last_B = max(sizes.values(), default=2**25)
    in_front = {"L2": sizes.get("L1", 2**15), "L3": sizes.get("L2", 2**20), "memory": last_B}
    for boundary, below_B in in_front.items():
        # Four times the caches that must not hold them, and within the next one.
        size_B = small.cut(4 * below_B, 2**16)
        for kernel, ways in _LOOPS.items():
            if names := [name for way in ways if (name := f"{boundary}_{way}") in known]:
                yield from _loop(kernel, size_B, names)
    if TLB_MISSES in known:
        yield _page_walks(small.cut(_TLB_PAGES, 64))


def _counted(case: Case, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the rows of events of a record, by name, with NaN for an unknown count."""
    record = measure(case.with_(counters=",".join(names))).record
    rows: dict[str, dict[str, Any]] = {}
    for row in json.loads(record["counter_rows"]):
        rows[row["event"]] = {**row, "count": math.nan if row["count"] is None else row["count"]}
    return rows


def _loop(kernel: str, size_B: int, names: Sequence[str]) -> Iterator[Known]:
    """Yield the counts of a loop through arrays of this size each."""
    case = build(kernel, elements=size_B // 8, threads=1, variant="auto", runs=20)
    for name, row in _counted(case, names).items():
        yield Known(name, f"{case.spec.summary}, {size_B} B", row["model"], row["count"])


def _page_walks(pages: int) -> Known:
    """Return the count of loads from so many pages in random order, one from each."""
    case = build(
        "latency.chase", size_B=pages * mmap.PAGESIZE, order="one-per-page", pages="4k", runs=20
    )
    assert case.spec.accesses is not None
    row = _counted(case, [TLB_MISSES])[TLB_MISSES]
    work = f"loads from {pages} pages"
    return Known(TLB_MISSES, work, case.spec.accesses(case), row["count"])


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
    found = [*_of_system(), *_of_processor()]
    if not found:
        name = next(iter(_WORK))
        why = counting.event_here(name)[1]
        raise InputError(
            f"no event of which the true count is known can be counted here: {name}: {why}"
        )
    if not small.wanted():
        ratios: dict[str, float] = {}
        for known in found:
            # Of several kinds of work, that of which the count is farthest from the true one.
            if known.ratio > 0 and _off(known.ratio) >= _off(ratios.get(known.event, 1.0)):
                ratios[known.event] = known.ratio
        calibration.save_counters(ratios)
    return found


def _off(ratio: float) -> float:
    return abs(math.log(ratio))
