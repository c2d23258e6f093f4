"""Choosing a variant and instruction set by trial."""

from __future__ import annotations

import itertools
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TypeAlias

import numpy as np

from memkern import small
from memkern.engine import sampling
from memkern.engine.communication import ranks
from memkern.engine.prepared import Prepared
from memkern.engine.sampling import Judge
from memkern.machine import gpu
from memkern.machine.topology import last_level_cache_B
from memkern.spec.options import GPUS

Candidate: TypeAlias = tuple[str, str]
"""A variant and an instruction set."""

_TRIALS_ON_DEVICE = 5
# For each round of trials, the candidates that are kept after it and the samples of each candidate.
# A candidate's first sample is not used: the caches still hold the data of another one.
_TRIALS = ((4, 2), (2, 4), (1, 8))
_TRIAL_TRIES = 4  # where all samples of a candidate are disturbed
# Whole invocations of all candidates are tried where that takes no longer than this (and a quarter
# of the budget); otherwise the best instruction set of each variant is found by trying parts of an
# invocation that move _TRIAL_PART_B.
TRIAL_S = 0.25
_TRIAL_PART_B = 2**20
# Parts are tried in two series of so many for each candidate, small ones and those as large as the
# last-level caches, whose times differ less.
_PARTS, _LARGE_PARTS = 3, 1


class _DisturbedError(Exception):
    """All samples of a candidate, which may be the fastest, were disturbed."""


def _default_of(prepared: Prepared, candidates: Sequence[Candidate]) -> Candidate:
    """Return the first candidate of the variant that is fast for most such kernels."""
    # Vectors that a processor gathers may take nearly twice as long as single loads.
    gathers = bool(prepared.case.indices)
    for variant in ("auto", "simd") if gathers else ("simd", "auto"):
        for candidate in candidates:
            if candidate[0] == variant:
                return candidate
    return candidates[0]


def fastest(prepared: Prepared, candidates: list[Candidate]) -> tuple[Candidate, str]:
    """Try the candidates in rounds, with more samples for the faster ones.

    Returns
    -------
    candidate : tuple of str
    how : str
        ``trial``, or ``default`` if all samples of a candidate were disturbed.
    """
    if len(candidates) == 1:
        return candidates[0], "trial"
    search = _fastest_on_device if prepared.device else _fastest_by_samples
    try:
        return search(prepared, candidates), "trial"
    except _DisturbedError:
        return _default_of(prepared, candidates), "default"


def _fastest_on_device(prepared: Prepared, candidates: list[Candidate]) -> Candidate:
    """Return the fastest candidate on a device, by whole invocations.

    The time of a part would mostly be that of its launch.

    Raises
    ------
    _DisturbedError
        A GPU was slowed down in all trials of a candidate.
    """
    on_gpu = prepared.case.knobs.place == GPUS
    invocations = prepared.invocations if on_gpu else 1
    prepared.select(*candidates[0])
    prepared.warm_up()
    shortest = dict.fromkeys(candidates, math.inf)
    for _ in range(_TRIAL_TRIES):
        trials = list(itertools.product(range(_TRIALS_ON_DEVICE), candidates))
        began, seconds = [], []
        watch = gpu.Watch(prepared.case.knobs.device) if on_gpu else None
        with watch or nullcontext():
            for _, candidate in trials:
                prepared.select(*candidate)
                began.append(time.perf_counter())
                seconds.append(prepared.run(invocations))
            slowed = ranks().largest(watch.slowed(began) if watch else np.zeros(len(trials)))
        for (_, candidate), trial_s, slow in zip(trials, seconds, slowed, strict=True):
            if not slow:
                shortest[candidate] = min(shortest[candidate], trial_s)
        if max(shortest.values()) < math.inf:
            return min(shortest, key=shortest.__getitem__)
        if not prepared.left_s:
            break
    raise _DisturbedError


def _fastest_by_samples(prepared: Prepared, candidates: list[Candidate]) -> Candidate:
    """Return the fastest candidate on a processor.

    Raises
    ------
    _DisturbedError
    """
    prepared.select(*candidates[0])
    judge = Judge(prepared)
    sample_s = min(prepared.run(1) for _ in range(2)) * max(prepared.case.stop.invocations, 1)
    allowed_s = min(TRIAL_S, max(prepared.case.stop.budget_s / 4, TRIAL_S / 8), prepared.left_s)
    rounds: tuple[tuple[int, int], ...] = ((1, 1),) if small.wanted() else _TRIALS
    if sample_s * len(candidates) * 4 > allowed_s:
        rounds = ((1, 1),)
        if prepared.stages:
            # Parts are unfit: one kernel would find the data of another in the caches.
            first = {variant: (variant, isa) for variant, isa in reversed(candidates)}
            candidates = list(first.values())
        else:
            parts = _Parts(prepared, _TRIAL_PART_B)
            best: dict[str, Candidate] = {}
            for candidate in _by_time(prepared, judge, candidates, 2, _PARTS, parts):
                best.setdefault(candidate[0], candidate)
            candidates = list(best.values())
            if sample_s * len(candidates) * 2 > 4 * allowed_s:
                # The modified lines that a part as large as the caches writes back are those of the
                # part before it, of the same candidate.
                parts = _Parts(prepared, last_level_cache_B())
                return _by_time(prepared, judge, candidates, 2, _LARGE_PARTS, parts)[0]
    taken: defaultdict[Candidate, list[float]] = defaultdict(list)
    for finalists, samples in rounds:
        candidates = _by_time(prepared, judge, candidates, 1, samples, taken=taken)[:finalists]
    return candidates[0]


def _by_time(
    prepared: Prepared,
    judge: Judge,
    candidates: list[Candidate],
    series: int,
    samples: int,
    parts: _Parts | None = None,
    taken: defaultdict[Candidate, list[float]] | None = None,
) -> list[Candidate]:
    """Return the candidates, the fastest first, by some series of samples, or of parts, of each.

    Seconds of samples are added to those of earlier rounds in `taken`.

    Raises
    ------
    _DisturbedError
    """
    if len(candidates) == 1:
        return candidates
    taken = defaultdict(list) if taken is None else taken
    for number, candidate in itertools.product(range(series), candidates):
        prepared.select(*candidate)
        taken[candidate] += _trial(prepared, judge, 1 + samples, parts)
        if number == series - 1 and not taken[candidate]:
            raise _DisturbedError
    return sorted(candidates, key=lambda c: float(np.quantile(taken[c], 0.25)))


def _trial(prepared: Prepared, judge: Judge, samples: int, parts: _Parts | None) -> list[float]:
    """Return the seconds of the undisturbed samples after the first.

    Those of parts are per iteration, or per unit of the spec's `work`.
    """
    for _ in range(_TRIAL_TRIES):
        rows = np.full((samples, 1 + sampling.CONDITIONS), np.nan)
        invocations = 1 if parts else prepared.invocations
        ranges = parts.take(samples) if parts else ()
        sampling.sample(prepared, judge, rows, invocations, prepared.left_s, parts=ranges)
        unusable = judge.disturbed(rows[:, 0], rows[:, 1:]) | np.isnan(rows[:, 0])
        seconds = rows[:, 0] / [parts.work(*one) for one in ranges] if parts else rows[:, 0]
        # Ranks whose parts differ agree on their times.
        both = ranks().largest(np.column_stack((seconds, unusable))[1:])
        kept: list[float] = both[both[:, 1] == 0, 0].tolist()
        if kept or not prepared.left_s:
            break
    return kept


class _Parts:
    """Consecutive parts of an invocation, each of which moves `bytes_B`.

    The first part follows the last one, so that a part is not in the caches if all parts are larger
    than these.
    """

    def __init__(self, prepared: Prepared, bytes_B: float) -> None:
        case = prepared.own
        self._count = case.iterations
        share = bytes_B / max(1, case.bytes_B)
        self._size = min(self._count, max(1, math.ceil(share * self._count)))
        self._work = None if case.spec.work is None else case.spec.work(case, prepared.native)
        self._begin = 0

    def take(self, number: int) -> list[tuple[int, int]]:
        """Return begin and end of the next parts."""
        taken = []
        for _ in range(number):
            end = self._begin + self._size
            taken.append((self._begin, end))
            self._begin = end if end + self._size <= self._count else 0
        return taken

    def work(self, begin: int, end: int) -> int:
        """Return the iterations of a part, or its units of the spec's `work`; at least 1."""
        done = end - begin if self._work is None else int(self._work[end] - self._work[begin])
        return max(done, 1)
