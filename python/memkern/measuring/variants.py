"""Choosing a variant and instruction set by trial."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from memkern import small
from memkern.machine.topology import last_level_cache_B
from memkern.measuring import sampling
from memkern.measuring.ranks import ranks
from memkern.spec.options import GPUS

if TYPE_CHECKING:
    from memkern.measuring.prepared import Prepared

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


def _default_of(candidates: Sequence[Candidate]) -> Candidate:
    """Return the first candidate of the variant that is fast for most kernels."""
    for variant in ("simd", "auto"):
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
    if prepared.device:
        # The time of a part would mostly be that of its launch.
        invocations = prepared.invocations if prepared.case.knobs.place == GPUS else 1
        prepared.select(*candidates[0])
        prepared.warm_up()
        shortest = dict.fromkeys(candidates, math.inf)
        for _, candidate in itertools.product(range(_TRIALS_ON_DEVICE), candidates):
            prepared.select(*candidate)
            shortest[candidate] = min(shortest[candidate], prepared.run(invocations))
        return min(shortest, key=shortest.__getitem__), "trial"
    prepared.select(*candidates[0])
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
            candidates = _fastest_parts(prepared, candidates)
            if sample_s * len(candidates) * 2 > 4 * allowed_s:
                return _fastest_in_steady_state(prepared, candidates), "trial"
    for finalists, samples in rounds:
        times: dict[Candidate, float] = {}
        for candidate in candidates if len(candidates) > 1 else ():
            prepared.select(*candidate)
            taken = _trial(prepared, 1 + samples)
            times[candidate] = float(np.quantile(taken, 0.25)) if len(taken) else math.inf
        if any(math.isinf(t) for t in times.values()):
            # A candidate without undisturbed samples may be the fastest.
            return _default_of(candidates), "default"
        candidates = sorted(candidates, key=lambda c: times.get(c, 0.0))[:finalists]
    return candidates[0], "trial"


def _trial(prepared: Prepared, samples: int) -> npt.NDArray[np.float64]:
    """Return the seconds of the undisturbed samples after the first."""
    for _ in range(_TRIAL_TRIES):
        rows = np.full((samples, 1 + sampling.CONDITIONS), np.nan)
        sampling.sample(prepared, rows, prepared.invocations, prepared.left_s)
        unusable = sampling.mark_disturbed(prepared, rows[:, 0], rows[:, 1:]) | np.isnan(rows[:, 0])
        both = ranks().largest(np.column_stack((rows[1:, 0], unusable[1:])))
        kept = both[:, 0][both[:, 1] == 0]
        if len(kept) or not prepared.left_s:
            break
    return np.asarray(kept)


class _Parts:
    """Consecutive parts of an invocation, each of which moves `bytes_B`.

    The first part follows the last one, so that a part is not in the caches if all parts are larger
    than these.
    """

    def __init__(self, prepared: Prepared, bytes_B: float) -> None:
        case = prepared.own
        self._prepared = prepared
        self._count = case.iterations
        share = bytes_B / max(1, case.bytes_B)
        self._size = min(self._count, max(1, math.ceil(share * self._count)))
        self._work = None if case.spec.work is None else case.spec.work(case, prepared.native)
        self._begin = 0

    def run(self) -> float:
        """Run the next part; return the seconds per iteration, or per unit of the spec's `work`."""
        begin = self._begin
        end = begin + self._size
        self._begin = end if end + self._size <= self._count else 0
        seconds = self._prepared.run_range(begin, end)
        done = self._size if self._work is None else int(self._work[end] - self._work[begin])
        # Ranks whose parts differ agree on it.
        return ranks().slowest(seconds / max(done, 1))


def _fastest_in_steady_state(prepared: Prepared, candidates: list[Candidate]) -> Candidate:
    """Return the fastest candidate by parts as large as the last-level caches.

    An untimed part runs before each timed one, so that the modified lines which the timed part
    writes back are the candidate's own.
    """
    parts = _Parts(prepared, last_level_cache_B())
    times: dict[Candidate, list[float]] = {c: [] for c in candidates}
    for _, candidate in itertools.product(range(2), candidates):
        prepared.select(*candidate)
        parts.run()
        times[candidate].append(parts.run())
    return min(candidates, key=lambda c: min(times[c]))


def _fastest_parts(prepared: Prepared, candidates: list[Candidate]) -> list[Candidate]:
    """Return the best instruction set of each variant, by trials of small parts."""
    parts = _Parts(prepared, _TRIAL_PART_B)
    times: dict[Candidate, list[float]] = {c: [] for c in candidates}
    for _, candidate in itertools.product(range(6), candidates):
        prepared.select(*candidate)
        times[candidate].append(parts.run())
    speed = {c: float(np.quantile(t, 0.25)) for c, t in times.items()}
    best: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=speed.__getitem__):
        best.setdefault(candidate[0], candidate)
    return list(best.values())
