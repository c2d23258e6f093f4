"""Measurement of the variance between placements and runs, for the intervals of later records."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern import small
from memkern.engine.public import CaseRun, by_importance, expected_s, in_rounds
from memkern.errors import InputError
from memkern.host import this_host
from memkern.host.environment import machine_environment
from memkern.host.file import boot_id
from memkern.host.variances import Calibration, estimate
from memkern.machine.caches import data_caches
from memkern.machine.environment import now
from memkern.progress import announce
from memkern.spec.case import Case
from memkern.spec.registry import case as kernel_case

# Runs of each case, and the least number if time is short or the host changes its state.
_LEAST_RUNS, _FEWEST_RUNS = 4, 2
_PLACEMENTS = 3
_BUDGET_S = 0.1  # of a placement's samples
_LEAST_BUDGET = 0.1  # share of the budget if time is short


def calibrate(
    *, seconds: float = 120.0, progress: Callable[[float], object] | None = None
) -> Calibration:
    """Measure and store the variance of times between placements and between runs.

    The cases are copies and gathers in each cache and in memory, with one worker and with all. A
    run places each case three times in a row; runs are repeated until the time is over. If it is
    too short for four runs of all cases, samples take less time, and the least informative cases
    are left out.

    Parameters
    ----------
    seconds : float
        Seconds to measure.
    progress : callable, optional
        Called with the elapsed share of the time, from 0 to 1.

    Returns
    -------
    Calibration
        It is stored for this user and valid until the system is booted again.

    Raises
    ------
    InputError
        If no case had enough undisturbed runs, or the result can't be stored.
    """
    machine = machine_environment()
    cases = _fitting(_cases(data_caches(machine)), seconds)
    seconds = small.cut(seconds, 0.1)
    announce("measuring how much values vary", seconds)
    begin = time.perf_counter()
    medians: dict[str, dict[int, list[list[float]]]] = {}

    def measure(index_and_case: tuple[int, Case]) -> bool:
        index, case = index_and_case
        of_run = _medians_of(run := CaseRun(case))
        if of_run is not None:
            of_class = medians.setdefault(run.class_of(machine), {})
            of_class.setdefault(index, []).append(of_run)
        if progress is not None:
            progress(min((time.perf_counter() - begin) / seconds, 1.0))
        return run.interrupted

    in_rounds(
        measure,
        list(enumerate(cases)),
        end_s=begin + seconds,
        least=_FEWEST_RUNS,
        kept=lambda: _complete(medians),
    )
    complete = _complete(medians)
    if not complete:
        raise InputError(
            f"no case had {_FEWEST_RUNS} undisturbed runs: calibrate on a machine on which nothing "
            "else runs"
        )
    found = Calibration(boot_id(), now(), *estimate(complete))
    host = this_host()
    if not host.calibrate(found):
        raise InputError(f"{host.path} can't be written, and a calibration is stored there")
    return found


def _fitting(cases: list[Case], seconds: float) -> list[Case]:
    """Return the most informative cases that fit in the time with the least runs; at least one.

    If not all of them fit, samples take less time.
    """
    least_s = _LEAST_RUNS * expected_s(cases)
    if least_s > seconds:
        factor = max(seconds / least_s, _LEAST_BUDGET)
        cases = [case.with_(budget_s=factor * case.stop.budget_s) for case in cases]
    cases = by_importance(cases, lambda case: case)
    ends_s = itertools.accumulate(_LEAST_RUNS * expected_s([case]) for case in cases)
    fitting = [case for case, end_s in zip(cases, ends_s, strict=True) if end_s <= seconds]
    return fitting or cases[:1]


def _complete(
    medians: Mapping[str, Mapping[int, list[list[float]]]],
) -> dict[str, npt.NDArray[np.float64]]:
    """Return the medians of each class, with equally many runs of all cases with enough runs."""
    found = {}
    for name, by_case in medians.items():
        for least in (_LEAST_RUNS, _FEWEST_RUNS):
            often = [listed for listed in by_case.values() if len(listed) >= least]
            if often:
                runs = min(map(len, often))
                found[name] = np.array([listed[:runs] for listed in often])
                break
    return found


def _medians_of(run: CaseRun) -> list[float] | None:
    """Place a case, and return the median of each placement; None if it was disturbed."""
    for _ in range(_PLACEMENTS):
        run.place()
    medians = run.taken.medians()
    few = run.taken.disturbed or run.interrupted or len(medians) < _PLACEMENTS
    return None if few else medians


def _cases(caches: Sequence[Mapping[str, Any]]) -> list[Case]:
    """Return cases of every class, with footprints of half of each cache, and from memory."""
    how: dict[str, Any] = {"placements": _PLACEMENTS, "budget_s": _BUDGET_S * _PLACEMENTS}
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
