"""Many short cases placed in turns, so that all have the same conditions of the machine."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from memkern import progress as told
from memkern import small
from memkern.engine import LARGE_B, CaseRun, expected_s
from memkern.errors import InputError
from memkern.extension import _memkern
from memkern.spec.case import Case

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Placed(Generic[Key]):
    """Result of `place_in_rounds`.

    Attributes
    ----------
    runs : dict of CaseRun
        The cases that were placed, by key.
    refused : dict of str
        Reasons why the others could not be measured, by key.
    interrupted : bool
    """

    runs: dict[Key, CaseRun]
    refused: dict[Key, str]
    interrupted: bool


def place_in_rounds(
    cases: Mapping[Key, Case],
    *,
    rounds: int,
    seconds: float,
    progress: Callable[[float], object] | None = None,
) -> Placed[Key]:
    """Place each case once in every round, in random order, until it is interrupted.

    Parameters
    ----------
    cases : mapping
        Cases by any key.
    rounds : int
        Placements of each case; fewer where small measurements are wanted (see `memkern.small`).
    seconds : float
        Longest duration: a case that does not fit in the remaining time is left out of a round.
    progress : callable, optional
        Called with the share of the work that is done, from 0 to 1.

    Returns
    -------
    Placed

    Raises
    ------
    InputError
        No case could be placed.
    KeyboardInterrupt
        Interrupted before any case was placed.
    """
    rounds = small.cut(rounds, 1)
    end = time.perf_counter() + seconds
    begin = time.perf_counter()
    runs = {key: CaseRun(case.with_(placements=rounds)) for key, case in cases.items()}
    refused: dict[Key, str] = {}
    done, interrupted = 0, False
    about_s = expected_s(run.case for run in runs.values())
    told.announce(f"measuring {len(runs)} cases", min(about_s, seconds))

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
    except KeyboardInterrupt:
        if not any(run.placements for run in runs.values()):
            raise
        interrupted = True
    finally:
        _memkern.release_memory()
    for key, run in runs.items():
        if not run.placements:
            refused.setdefault(key, "interrupted" if interrupted else "the time was over")
    placed = {key: run for key, run in runs.items() if run.placements}
    if cases and not placed:
        raise InputError(f"nothing could be measured: {next(iter(refused.values()))}")
    return Placed(placed, refused, interrupted)
