"""Counts of work with a known true count, which show whether events count as named.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memkern import small
from memkern.checks import shown
from memkern.engine.public import measure
from memkern.engine.recording.counting import agrees
from memkern.engine.sampling import counters as counting
from memkern.errors import InputError
from memkern.extension import _memkern
from memkern.host import this_host
from memkern.host.environment import machine_environment
from memkern.machine import events
from memkern.machine.caches import data_caches
from memkern.machine.events import BOUNDARIES, TLB_MISSES, WAYS
from memkern.spec.case import Case
from memkern.spec.registry import case as build

# Events by the quantity of the table, or event of the system, that they should count.
Names = Mapping[str, Sequence[str]]
# Loops, and the directions in which they move a known number of lines: whether a completely written
# line is loaded depends on the processor.
_LOOPS = {"loops.load": ("load",), "loops.copy": ("store",), "loops.update": WAYS}
_TLB_PAGES = 2**16
_PAGES, _SLEEPS, _MOVES, _SPIN_NS = 4096, 40, 20, 20_000_000


@dataclass(frozen=True)
class Known:
    """An event, and its count of work with a known true count.

    Attributes
    ----------
    event, work : str
    true, count : float
        NaN if it could not be counted.
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
        """Whether the count is accurate to 10 %."""
        return agrees(self.ratio)


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
    # The first call only moves a thread that was on another unit.
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


def _of_system(names: Names) -> Iterator[Known]:
    """Yield the counts of events of the system."""
    for quantity, (work, run) in _WORK.items():
        for name in names.get(quantity, ()):
            event, _ = counting.event_here(name)
            assert event is not None
            true: list[float] = []

            def once(run: Callable[[], float] = run, to: list[float] = true) -> None:
                to.append(run())

            counts = _memkern.count(event.codes, once)
            yield Known(name, work, true[0], float(sum(value for value, _, _ in counts)))


def _by_system() -> list[str]:
    """Return the events of the system that this thread can cause a known number of times."""
    units = os.sched_getaffinity(0)
    movable = len(units) > 1
    if movable:
        try:
            os.sched_setaffinity(0, units)
        except OSError:  # a filter of system calls refuses it
            movable = False
    return [name for name in _WORK if movable or name != "cpu-migrations"]


def _of_processor(names: Names) -> Iterator[Known]:
    """Yield the counts of events for quantities of the table."""
    caches = data_caches(machine_environment())
    sizes = {f"L{c['level']}": max(c["size_B"], c["system_B"]) for c in caches}
    last_B = max(sizes.values(), default=2**25)
    in_front = {"L2": sizes.get("L1", 2**15), "L3": sizes.get("L2", 2**20), "memory": last_B}
    for boundary, below_B in in_front.items():
        # Four times the caches that must not hold the arrays, and within the next cache.
        size_B = small.cut(4 * below_B, 2**16)
        for kernel, ways in _LOOPS.items():
            counted = [name for way in ways for name in names.get(f"{boundary}_{way}", ())]
            if counted:
                case = build(kernel, elements=size_B // 8, threads=1, variant="auto", runs=20)
                work = f"{case.spec.summary}, {size_B} B"
                yield from _of_case(case, counted, work, size_B / case.line_B)
    if TLB_MISSES in names:
        pages = small.cut(_TLB_PAGES, 64)
        size_B = pages * mmap.PAGESIZE
        case = build("latency.chase", size_B=size_B, order="one-per-page", pages="4k", runs=20)
        assert case.spec.counts.accesses is not None
        work = f"loads from {pages} pages"
        yield from _of_case(case, names[TLB_MISSES], work, case.spec.counts.accesses(case))


def _of_case(case: Case, names: Sequence[str], work: str, true: float) -> Iterator[Known]:
    """Yield the counts of events whose true count in an invocation is `true`."""
    for row in json.loads(measure(case.with_(counters=",".join(names))).record["counter_rows"]):
        yield Known(row["event"], work, true, math.nan if row["count"] is None else row["count"])


def _every() -> Names:
    """Return the events with a known true count that can be counted here."""
    names = [*_by_system(), *events.quantities(counting.ROOT)]
    found = {name: [name] for name in names if not counting.event_here(name)[1]}
    if not found:
        first = next(iter(_WORK))
        raise InputError(
            "no event with a known true count can be counted here: "
            f"{first}: {counting.event_here(first)[1]}"
        )
    return found


def _named(text: str) -> Names:
    """Return the events of pairs such as ``L2_load=r0151``, by the name of the quantity."""
    quantities = [*_by_system(), *(f"{b}_{way}" for b in BOUNDARIES for way in WAYS), TLB_MISSES]
    found: dict[str, list[str]] = {}
    for pair in events.names_of(text):
        quantity, _, name = pair.partition("=")
        if not name or quantity not in quantities or name == counting.AUTO:
            raise InputError(
                f"{shown(pair)} must be QUANTITY=EVENT, "
                f"where QUANTITY is one of {', '.join(quantities)}"
            )
        counting.requested(name)
        found.setdefault(quantity, []).append(name)
    return found


def check(text: str = "") -> list[Known]:
    """Count work with a known count, and store the ratios until the next boot.

    Parameters
    ----------
    text : str
        Events with the quantity that each should count, such as ``L2_load=r0151``, separated by
        commas; by default all known events that can be counted here.

    Raises
    ------
    InputError
        A pair is wrong, an event can't be counted, or none can.
    """
    names = _named(text) if text else _every()
    found = [*_of_system(names), *_of_processor(names)]
    if not small.wanted():
        # Of several kinds of work, the last one, with the largest error of the count, counts.
        counted = sorted((one for one in found if one.ratio == one.ratio), key=_error)
        this_host().keep_counters({one.event: one.ratio for one in counted})
    return found


def _error(known: Known) -> float:
    """Return the deviation of a known ratio from 1."""
    return math.inf if known.ratio <= 0 else abs(math.log(known.ratio))
