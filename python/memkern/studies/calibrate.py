"""Repeated records in all levels of the memory, for the intervals of later ones."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memkern import small
from memkern.engine.public import CaseRun, by_importance, calibrated, expected_s, in_rounds
from memkern.errors import InputError
from memkern.host import this_host
from memkern.host.distances import Spread
from memkern.host.environment import machine_environment
from memkern.machine.caches import data_caches
from memkern.progress import announce
from memkern.spec.case import Case
from memkern.spec.registry import case as kernel_case

# Runs of each case, and the least number if time is short or the host changes its state.
_LEAST_RUNS, _FEWEST_RUNS = 4, 2
_BUDGET_S = 0.3
_LEAST_BUDGET = 0.1  # share of the budget if time is short


def calibrate(
    *, seconds: float = 120.0, progress: Callable[[float], object] | None = None
) -> dict[str, Spread]:
    """Measure the distances between the values of runs in all levels of the memory.

    The cases are copies and gathers in each cache and in memory, with one worker and with all. They
    are measured one after another until the time is over; like any repeated records of this boot,
    theirs are kept for the intervals of later ones. If the time is too short for four records of
    all cases, samples take less time, and the least informative cases are left out.

    Parameters
    ----------
    seconds : float
        Seconds to measure.
    progress : callable, optional
        Called with the elapsed share of the time, from 0 to 1.

    Returns
    -------
    dict of Spread
        What is known now, by class of cases.

    Raises
    ------
    InputError
        If no case had an undisturbed record, or the records can't be stored.
    """
    machine = machine_environment()
    cases = _fitting(_cases(data_caches(machine)), seconds)
    seconds = small.cut(seconds, 0.1)
    announce("measuring how much values vary", seconds)
    begin = time.perf_counter()
    classes: set[str] = set()

    def measure(case: Case) -> bool:
        run = CaseRun(case)
        while not (run.complete or run.interrupted):
            run.place()
        if not run.taken.disturbed:
            calibrated(run, machine)
            classes.add(run.class_of(machine))
        if progress is not None:
            progress(min((time.perf_counter() - begin) / seconds, 1.0))
        return run.interrupted

    in_rounds(measure, cases, end_s=begin + seconds, least=_FEWEST_RUNS, kept=lambda: bool(classes))
    if not classes:
        raise InputError(
            "no case had an undisturbed record: calibrate on a machine on which nothing else runs"
        )
    host = this_host()
    if not host.save():
        raise InputError(f"{host.path} can't be written, and the records are stored there")
    return {name: host.spread(name) for name in sorted(classes)}


def _fitting(cases: list[Case], seconds: float) -> list[Case]:
    """Return the most informative cases that fit in the time with the least runs; at least one.

    If not all of them fit, samples take less time.
    """
    least_s = _LEAST_RUNS * expected_s(cases)
    if least_s > seconds:
        factor = max(seconds / least_s, _LEAST_BUDGET)
        cases = [case.with_(budget_s=factor * case.stop.usual_s) for case in cases]
    cases = by_importance(cases, lambda case: case)
    ends_s = itertools.accumulate(_LEAST_RUNS * expected_s([case]) for case in cases)
    fitting = [case for case, end_s in zip(cases, ends_s, strict=True) if end_s <= seconds]
    return fitting or cases[:1]


def _cases(caches: Sequence[Mapping[str, Any]]) -> list[Case]:
    """Return cases of every class, with footprints of half of each cache, and from memory."""
    how: dict[str, Any] = {"budget_s": _BUDGET_S}
    cases = []
    for threads in (1, 0):
        sizes = [c["size_B"] * (c["instances"] if threads == 0 else 1) // 2 for c in caches]
        most = [max(c["size_B"], c["system_B"]) * c["instances"] for c in caches]
        last = max(most, default=2**24)
        for footprint_B in (*sorted(sizes), 3 * last // 2):
            # A gather's source is twice as large as its destination.
            gather = {"pattern": "UNIFORM:8:2:NR", "count": max(footprint_B // (16 * 8 + 64), 1)}
            cases += [
                kernel_case("stream.copy", footprint_B=footprint_B, threads=threads, **how),
                kernel_case("gather", **gather, threads=threads, runs=None, **how),
            ]
    return cases
