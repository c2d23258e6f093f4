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

if TYPE_CHECKING:
    from memkern.measuring.prepared import Prepared

Candidate: TypeAlias = tuple[str, str]
"""A variant and an instruction set."""

_TRIALS_ON_DEVICE = 5
# Trials of variants: how many go on to the next round, and the samples of each in a round. A
# candidate's first sample in a turn is not counted: caches still hold what another one left there.
_TRIALS = ((4, 2), (2, 4), (1, 8))
_TRIAL_TRIES = 4  # where all samples of a candidate are disturbed
# All candidates are tried whole where that takes no longer than this (and a quarter of the budget);
# else the best instruction set of each variant, by parts that move so much.
TRIAL_S = 0.25
_TRIAL_PART_B = 2**20
_GOLDEN = (math.sqrt(5) - 1) / 2  # step of a golden-ratio sequence of offsets


def _default_of(candidates: Sequence[Candidate]) -> Candidate:
    """Return the first candidate of the variant that serves most kernels well."""
    for variant in ("simd", "auto"):
        for candidate in candidates:
            if candidate[0] == variant:
                return candidate
    return candidates[0]


def fastest(prepared: Prepared, candidates: list[Candidate]) -> tuple[Candidate, str]:
    """Try each in the state in which it will be measured, the better ones longer, in turns.

    Returns
    -------
    candidate : tuple of str
    how : str
        ``trial``, or ``default`` where those of a candidate were disturbed each time.
    """
    if len(candidates) == 1:
        return candidates[0], "trial"
    if prepared.device:
        # A part would say more about launching it.
        shortest = dict.fromkeys(candidates, math.inf)
        for _, candidate in itertools.product(range(_TRIALS_ON_DEVICE), candidates):
            prepared.native.select(*candidate)
            shortest[candidate] = min(shortest[candidate], prepared.run(1))
        return min(shortest, key=shortest.__getitem__), "trial"
    prepared.native.select(*candidates[0])
    sample_s = min(prepared.run(1) for _ in range(2)) * max(prepared.case.stop.invocations, 1)
    allowed_s = min(TRIAL_S, max(prepared.case.stop.budget_s / 4, TRIAL_S / 8), prepared.left_s)
    rounds: tuple[tuple[int, int], ...] = ((1, 1),) if small.wanted() else _TRIALS
    if sample_s * len(candidates) * 4 > allowed_s:
        rounds = ((1, 1),)
        if prepared.stages:
            # What one kernel leaves of a part in the caches would serve the next one.
            first = {variant: (variant, isa) for variant, isa in reversed(candidates)}
            candidates = list(first.values())
        else:
            candidates = _fastest_parts(prepared, candidates)
            if _from_memory(prepared) or sample_s * len(candidates) * 2 > 4 * allowed_s:
                return candidates[0], "trial"
    for finalists, samples in rounds:
        times: dict[Candidate, float] = {}
        for candidate in candidates if len(candidates) > 1 else ():
            prepared.native.select(*candidate)
            taken = _trial(prepared, 1 + samples)
            times[candidate] = float(np.quantile(taken, 0.25)) if len(taken) else math.inf
        if any(math.isinf(t) for t in times.values()):
            # One of which nothing is known may be the fastest.
            return _default_of(candidates), "default"
        candidates = sorted(candidates, key=lambda c: times.get(c, 0.0))[:finalists]
    return candidates[0], "trial"


def _from_memory(prepared: Prepared) -> bool:
    """Whether so much is touched that parts find nothing of each other in the caches."""
    return bool(prepared.native.obtained()["footprint_B"] > 2 * last_level_cache_B())


def _trial(prepared: Prepared, samples: int) -> npt.NDArray[np.float64]:
    """Return the seconds of the samples after the first that were not disturbed."""
    for _ in range(_TRIAL_TRIES):
        rows = np.full((samples, 1 + sampling.CONDITIONS), np.nan)
        # Waiting for quiet cores takes most of it where there are neighbours.
        prepared.native.sample(
            rows, prepared.invocations, prepared.left_s, sampling.least_throughput(prepared)
        )
        kept = rows[1:, 0][~(sampling.marks(prepared, rows[:, 1:]) | np.isnan(rows[:, 0]))[1:]]
        if len(kept) or not prepared.left_s:
            break
    return np.asarray(kept)


def _fastest_parts(prepared: Prepared, candidates: list[Candidate]) -> list[Candidate]:
    """Return the best instruction set of each variant by parts that lie far apart."""
    count = prepared.case.iterations
    size = min(count, max(1, math.ceil(_TRIAL_PART_B * count / max(1, prepared.case.bytes_B))))
    work = prepared.case.spec.work
    before = None if work is None else work(prepared.case, prepared.native)
    begin = 0
    times: dict[Candidate, list[float]] = {c: [] for c in candidates}
    for _, candidate in itertools.product(range(6), candidates):
        prepared.native.select(*candidate)
        begin = (begin + round(count * _GOLDEN)) % (count - size + 1)
        seconds = prepared.native.run_range(begin, begin + size)
        done = size if before is None else int(before[begin + size] - before[begin])
        times[candidate].append(seconds / max(done, 1))
    speed = {c: float(np.quantile(t, 0.25)) for c, t in times.items()}
    best: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=speed.__getitem__):
        best.setdefault(candidate[0], candidate)
    return list(best.values())
