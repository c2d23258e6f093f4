"""Many short cases placed in turns, so that all meet the same conditions of the machine."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from memkern.engine import LARGE_B, CaseRun
from memkern.errors import InputError
from memkern.extension import _memkern
from memkern.spec.case import Case

Key = TypeVar("Key", bound=Hashable)


def place_in_rounds(
    cases: Mapping[Key, Case],
    *,
    rounds: int,
    seconds: float,
    progress: Callable[[float], object] | None = None,
) -> tuple[dict[Key, CaseRun], dict[Key, str]]:
    """Place each case once in every round, in random order.

    Parameters
    ----------
    cases : mapping
        By any key.
    rounds : int
        Placements of each case.
    seconds : float
        Most time that it takes: a case for which the rest is too short is left out of a round.
    progress : callable, optional
        Called with the share of the work that is done, from 0 to 1.

    Returns
    -------
    runs : dict of CaseRun
        By key, those that were placed.
    refused : dict of str
        Why this machine can't measure the others.

    Raises
    ------
    KeyboardInterrupt
        Sampling was interrupted.
    """
    end = time.perf_counter() + seconds
    begin = time.perf_counter()
    runs = {key: CaseRun(case.with_(placements=rounds)) for key, case in cases.items()}
    refused: dict[Key, str] = {}
    done = 0

    def tell() -> None:
        if progress is not None:
            of_time = (time.perf_counter() - begin) / seconds
            progress(min(max(done / (rounds * len(runs)), of_time), 1.0))

    rng = random.Random(0)
    try:
        for _ in range(rounds):
            keys = list(runs)
            rng.shuffle(keys)
            for key in keys:
                done += 1
                run = runs[key]
                needed_s = run.placements[-1].wall_s if run.placements else 0.0
                if key in refused or end - time.perf_counter() <= needed_s:
                    continue
                run.deadline = end
                try:
                    run.place()
                except (InputError, MemoryError) as error:
                    refused[key] = str(error) or "out of memory"
                if run.interrupted:
                    raise KeyboardInterrupt
                _memkern.release_memory(LARGE_B)
                tell()
    finally:
        _memkern.release_memory()
    for key, run in runs.items():
        if not run.placements:
            refused.setdefault(key, "the time was over")
    return {key: run for key, run in runs.items() if run.placements}, refused
