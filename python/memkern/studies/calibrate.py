"""Measurement of the variance between placements and runs, for the intervals of later records."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from memkern import small
from memkern.engine import CaseRun, calibration
from memkern.engine.calibration import Calibration
from memkern.errors import InputError
from memkern.machine.caches import data_caches
from memkern.machine.environment import now
from memkern.machine.state import boot_id
from memkern.machine.topology import machine_environment
from memkern.spec.case import Case
from memkern.spec.registry import case as kernel_case

_LEAST_RUNS = 4
_PLACEMENTS = 3
_BUDGET_S = 0.1  # of a placement's samples


def calibrate(
    *, seconds: float = 120.0, progress: Callable[[float], object] | None = None
) -> Calibration:
    """Measure and store how much times vary between placements and between runs.

    The cases are copies and gathers in each cache and in memory, with one worker and with all. A
    run places each case three times in a row; runs are repeated until the time is over.

    Parameters
    ----------
    seconds : float
        Seconds to measure; at least four runs are measured.
    progress : callable, optional
        Called with the share of the time that is over, from 0 to 1.

    Returns
    -------
    Calibration
        It is stored for this user and valid until the system is booted again.

    Raises
    ------
    InputError
        If no case had enough undisturbed runs, or the result can't be stored.
    """
    seconds = small.cut(seconds, 0.1)
    machine = machine_environment()
    begin = time.perf_counter()
    medians: dict[str, dict[int, list[list[float]]]] = {}
    cases = _cases(data_caches(machine))
    for number in itertools.count():
        for index, case in enumerate(cases):
            run = CaseRun(case)
            for _ in range(_PLACEMENTS):
                run.place()
            if run.interrupted:
                raise KeyboardInterrupt
            of_run = run.taken.medians()
            if len(of_run) == _PLACEMENTS and not run.taken.disturbed:
                of_class = medians.setdefault(run.class_of(machine), {})
                of_class.setdefault(index, []).append(of_run)
            if progress is not None:
                progress(min((time.perf_counter() - begin) / seconds, 1.0))
        if number + 1 >= _LEAST_RUNS and time.perf_counter() - begin > seconds:
            break
    complete = {}
    for name, by_case in medians.items():
        often = [listed for listed in by_case.values() if len(listed) >= _LEAST_RUNS]
        if often:
            runs = min(map(len, often))
            complete[name] = np.array([listed[:runs] for listed in often])
    if not complete:
        raise InputError(
            f"no case had {_LEAST_RUNS} undisturbed runs: calibrate on a machine on which nothing "
            "else runs"
        )
    found = Calibration(boot_id(), now(), *calibration.estimate(complete))
    calibration.save(found)
    return found


def _cases(caches: Sequence[Mapping[str, Any]]) -> list[Case]:
    """Return cases of every class, with footprints of half of each cache, and from memory."""
    how: dict[str, Any] = {"placements": _PLACEMENTS, "budget_s": _BUDGET_S * _PLACEMENTS}
    cases = []
    for threads in (1, 0):
        sizes = [c["size_B"] * (c["instances"] if threads == 0 else 1) // 2 for c in caches]
        most = [max(c["size_B"], c["system_B"]) * c["instances"] for c in caches]
        last = max(most, default=2**24)
        for footprint_B in (*sorted(sizes), 3 * last // 2):
            cases.append(
                kernel_case("stream.copy", footprint_B=footprint_B, threads=threads, **how)
            )
            # A gather's source is twice as large as its destination.
            count = max(footprint_B // (16 * 8 + 64), 1)
            cases.append(
                kernel_case(
                    "gather",
                    pattern="UNIFORM:8:2:NR",
                    count=count,
                    threads=threads,
                    runs=None,
                    **how,
                )
            )
    return cases
