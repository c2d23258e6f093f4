"""Preparation of cases, with the choice of a variant and instruction set by trials.

Candidates are tried in rounds, each in random order, and are compared by the ratios of their times
within rounds: a change of the host's speed affects all candidates of a round.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from memkern import small
from memkern.checks import refuse_masked
from memkern.engine.processes.communication import exclusive, ranks
from memkern.engine.recording.samples import CONDITIONS
from memkern.engine.recording.taken import Choice
from memkern.engine.sampling import series
from memkern.engine.sampling.prepared import Prepared
from memkern.errors import InputError
from memkern.host import Host, Round
from memkern.host.capacity import capacity
from memkern.machine import gpu
from memkern.spec.case import Case
from memkern.statistics import student_quantile


def prepare(case: Case) -> Prepared:
    """Allocate, place and fill the memory of a case, and choose its variant.

    Raises
    ------
    InputError, MemoryError
        A requested option is wrong or not available; then nothing was written.
    DeviceError
        An operation of a GPU failed.
    """
    return ready(case)


def ready(
    case: Case,
    chosen: Choice | None = None,
    deadline: float = math.inf,
    host: Host | None = None,
) -> Prepared:
    """Return a prepared case with the variant `chosen`, by default as `prepare` does it.

    See `Prepared` for the parameters, and `prepare` for the errors.
    """
    with exclusive():
        prepared = Prepared(case, chosen, deadline, host)
        with prepared.switched():
            if chosen is None and case.knobs.variant == "best":
                begin = time.perf_counter()
                best, prepared.loss = fastest(prepared, prepared.candidates)
                prepared.how = "trial"
                prepared.select(*best)
                prepared.choosing_s = time.perf_counter() - begin
    return prepared


def apply(case: Case, **arrays: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Run a case's kernel once on the caller's values, exactly as a measurement would.

    Parameters
    ----------
    case : Case
    **arrays : ndarray
        Values for arrays of the kernel (see its spec) in the case's dtype; the others have the
        values with which measurements fill them. An array with one row per worker has shape
        (workers, n), or (n,) with one worker.

    Returns
    -------
    dict of ndarray
        All arrays of the kernel afterwards.

    Raises
    ------
    InputError
        An array is unknown or of the wrong shape or type.
    """
    given = {}
    for name, values in arrays.items():
        refuse_masked(values, f"array {name!r}")
        try:
            given[name] = np.asarray(values)
        except ValueError as error:
            raise InputError(f"array {name!r} is no array: {error}") from None
    prepared = prepare(case)
    prepared.native.fill(outputs=True)
    for name, values in given.items():
        prepared.native.copy_in(name, values)
    prepared.native.run(1)
    return {name: prepared.native.copy_out(name) for name in prepared.native.arrays()}


Candidate: TypeAlias = tuple[str, str]
"""A variant and an instruction set."""

_TRIALS_ON_DEVICE = 5
_TRIES_ON_DEVICE = 4  # if a GPU was slowed down in all trials of a candidate
# For each round of trials, the number of candidates that remain and the samples of each candidate.
# The first sample is not used, since the caches still hold another candidate's data.
_TRIALS = ((None, 2), (4, 2), (2, 4))
_SHORT_TRIALS = ((None, 2), (2, 1), (2, 1))  # before a few short runs
_FEW_TRIALS = ((None, 1), (2, 1))  # if a sample takes long
_ONE_TRIAL = ((2, 0),)  # if a sample takes very long: the first one is used
_LAST_SAMPLES = 4  # of both of the last two candidates in each further round
# Further rounds end when the loss by a wrong choice is at most this share of the time.
_LOSS = 0.01
_LEAST_ROUNDS = 3  # that are needed to estimate a loss
# Whole invocations of all candidates are tried if this takes no longer than _TRIAL_S (and a
# quarter of the budget); otherwise parts of an invocation that move _TRIAL_PART_B determine the
# best instruction set of each variant.
_TRIAL_S = 0.25
_TRIAL_PART_B = 2**20
_LEAST_TRIAL_S = 2e-3  # for trials of a few short runs, which take at most as long as the runs
_PARTS = (2, 3)  # rounds of these, and samples of each candidate


def fastest(prepared: Prepared, candidates: list[Candidate]) -> tuple[Candidate, float]:
    """Return the candidate whose trials took the shortest time.

    Returns
    -------
    candidate : tuple of str
    loss : float
        Share of the time by which another candidate may be faster, with a confidence of 95 %; NaN
        after too few trials, 0 for a single candidate.
    """
    if len(candidates) == 1:
        return candidates[0], 0.0
    return (_fastest_on_device if prepared.device else _fastest_by_samples)(prepared, candidates)


def _fastest_on_device(prepared: Prepared, candidates: list[Candidate]) -> tuple[Candidate, float]:
    """Return the fastest candidate on a device, by whole invocations.

    The time of a part would mostly be launch time.
    """
    on_gpu = prepared.case.knobs.backend.is_accelerator
    invocations = prepared.invocations if on_gpu else 1
    prepared.select(*candidates[0])
    prepared.warm_up()
    times = np.empty((0, len(candidates)))
    slow = np.empty(times.shape, dtype=np.bool_)
    for _ in range(_TRIES_ON_DEVICE):
        began, seconds = [], []
        watch = gpu.Watch(prepared.case.knobs.device) if on_gpu else None
        with watch or nullcontext():
            for candidate in candidates * small.cut(_TRIALS_ON_DEVICE, 1):
                prepared.select(*candidate)
                began.append(time.perf_counter())
                seconds.append(prepared.run(invocations))
            slowed = ranks().largest(watch.slowed(began) if watch else np.zeros(len(began)))
        times = np.concatenate((times, np.reshape(seconds, (-1, len(candidates)))))
        slow = np.concatenate((slow, np.reshape(slowed, (-1, len(candidates))) > 0))
        if not slow.all(axis=0).any() or not prepared.left_s:
            break
    # Times during which the GPU was slowed down count only for a candidate that has no others.
    shortest = np.where(slow & ~slow.all(axis=0), math.inf, times).min(axis=0)
    return candidates[int(shortest.argmin())], math.nan


def name_of(case: Case, iterations: int = 0) -> str:
    """Return the name of the rounds of a case, or of its parts with this many iterations."""
    return f"{case.identity()} {iterations}" if iterations else case.identity()


def trials_s(budget_s: float) -> float:
    """Return the seconds of the trials of a case with several variants."""
    return min(_TRIAL_S, max(budget_s / 4, _TRIAL_S / 8))


def _fastest_by_samples(prepared: Prepared, candidates: list[Candidate]) -> tuple[Candidate, float]:
    """Return the fastest candidate on a processor."""
    prepared.select(*candidates[0])
    begin_s = time.perf_counter()
    sample_s = prepared.run(1)
    if sample_s * len(candidates) * 4 <= _TRIAL_S:
        sample_s = min(sample_s, prepared.run(1))
    sample_s *= max(prepared.case.stop.invocations, 1)
    stop = prepared.case.stop
    allowed_s = min(trials_s(stop.usual_s), prepared.left_s)
    if stop.runs is not None:
        allowed_s = min(allowed_s, max(stop.runs * sample_s, _LEAST_TRIAL_S))
    trials, samples = _Trials(prepared), _LAST_SAMPLES
    stages: Sequence[tuple[int | None, int]] = _TRIALS
    if small.wanted():
        stages = ((2, 1),)
    elif allowed_s <= _LEAST_TRIAL_S:
        stages = _SHORT_TRIALS
    if sample_s * len(candidates) * 4 > allowed_s:
        candidates = _best_of_variants(prepared, candidates)
        if _has_parts(prepared) and sample_s * len(candidates) * 4 > allowed_s:
            # A part as large as the caches writes back the modified lines of the previous part,
            # which belongs to the same candidate.
            parts = _Parts(prepared, capacity(prepared.host).sized_B)
            sample_s *= parts.size / prepared.own.iterations
            trials = _Trials(prepared, parts)
        if sample_s * len(candidates) * 4 > allowed_s:
            one = sample_s * len(candidates) * 2 > allowed_s
            stages, samples = _ONE_TRIAL if one else _FEW_TRIALS, 1
    for finalists, number in stages:
        candidates = trials.ranked(candidates, 1, number)[:finalists]
    if len(candidates) == 1:
        return candidates[0], 0.0
    end_s = begin_s + allowed_s
    while not small.wanted():
        over = time.perf_counter() > min(end_s, prepared.deadline)
        if ranks().gate(over or trials.loss(candidates) <= _LOSS):
            break
        candidates = trials.ranked(candidates, 1, samples)
    return candidates[0], trials.loss(candidates)


def _has_parts(prepared: Prepared) -> bool:
    """Return whether parts of an invocation can be tried: it is not one, or several kernels.

    A kernel would find another kernel's data in the caches.
    """
    return not prepared.stages and prepared.own.iterations > 1


def _best_of_variants(prepared: Prepared, candidates: list[Candidate]) -> list[Candidate]:
    """Return the best instruction set of each variant, by parts of an invocation if possible."""
    if _has_parts(prepared):
        candidates = _Trials(prepared, _Parts(prepared, _TRIAL_PART_B)).ranked(candidates, *_PARTS)
    best: dict[str, Candidate] = {}
    for candidate in candidates:
        best.setdefault(candidate[0], candidate)
    return list(best.values())


class _Trials:
    """Rounds of trials of candidates: whole invocations, or `parts` of one."""

    def __init__(self, prepared: Prepared, parts: _Parts | None = None) -> None:
        self._prepared, self._judge, self._parts = prepared, series.Judge(prepared), parts
        self._name = name_of(prepared.case, parts.size if parts else 0)
        self._choices = prepared.host.choices
        self._rounds = ranks().first(self._choices.known(self._name))
        self._invocations = 1 if parts else prepared.invocations
        self._order = random.Random(0)  # the same on all ranks

    def ranked(self, candidates: list[Candidate], rounds: int, samples: int) -> list[Candidate]:
        """Try each candidate in some more rounds, and return them, the fastest first."""
        if len(candidates) == 1:
            return candidates
        for _ in range(rounds):
            order = self._order.sample(candidates, len(candidates))
            self._rounds.append(self._round(order, samples))
            if ranks().number == 0:  # all ranks share one record
                self._choices.add(self._name, self._rounds[-1])
        times = self._times(candidates)
        ratios = np.median(times - times.mean(axis=1, keepdims=True), axis=0)
        return [candidates[k] for k in np.argsort(ratios, kind="stable")]

    def _times(self, candidates: Sequence[Candidate]) -> npt.NDArray[np.float64]:
        """Return the times of candidates in the rounds in which all of them took part."""
        names = ["/".join(one) for one in candidates]
        every = [[one[name] for name in names] for one in self._rounds if one.keys() >= {*names}]
        return np.array(every).reshape(-1, len(names))

    def loss(self, candidates: Sequence[Candidate]) -> float:
        """Return the share of its time that the first candidate may lose against the second."""
        first, second = self._times(candidates).T
        gains = second - first
        if len(gains) < _LEAST_ROUNDS:
            return math.nan
        error = float(np.std(gains, ddof=1)) / math.sqrt(len(gains))
        half_width = student_quantile(0.95, len(gains) - 1) * error
        return max(-math.expm1(float(np.mean(gains)) - half_width), 0.0)

    def _round(self, candidates: Sequence[Candidate], samples: int) -> Round:
        """Return the logarithm of the lower quartile of each candidate's times.

        Times of parts are per iteration, or per unit of the spec's `work`. The first sample does
        not count, and disturbed ones only if there are no others.
        """
        each = 1 + samples
        rows = np.full((each * len(candidates), 1 + len(CONDITIONS)), np.nan)
        selected = [candidate for candidate in candidates for _ in range(each)]
        parts = self._parts
        ranges = parts.take(len(rows)) if parts else []
        self._sample(rows, ranges, selected)
        # After the deadline, the other candidates get one sample each.
        for k in range(0, len(rows), each):
            if math.isnan(rows[k, 0]):
                self._sample(rows[k : k + 1], ranges[k : k + 1], selected[k : k + 1])
        seconds = rows[:, 0] / [parts.work(*one) for one in ranges] if parts else rows[:, 0]
        # The parts of ranks differ, so ranks agree on their times.
        marks = self._judge.disturbed(rows[:, 1:])
        every = ranks().largest(np.column_stack((np.nan_to_num(seconds, nan=math.inf), marks)))
        return {
            "/".join(one): math.log(_lower_quartile(own))
            for one, own in zip(candidates, every.reshape(-1, each, 2).tolist(), strict=True)
        }

    def _sample(
        self,
        rows: npt.NDArray[np.float64],
        parts: Sequence[tuple[int, int]],
        candidates: Sequence[Candidate],
    ) -> None:
        prepared = self._prepared
        series.sample(
            *(prepared, self._judge, rows, self._invocations, prepared.left_s),
            parts=parts,
            candidates=candidates,
            cores=False,
        )


def _lower_quartile(taken: Iterable[Sequence[float]]) -> float:
    """Return the lower quartile of a candidate's times; only undisturbed ones if there are any.

    Each element is a time (infinite if it was not measured), and whether it was disturbed.
    """
    done = [(seconds, disturbed) for seconds, disturbed in taken if math.isfinite(seconds)]
    done = done[1:] or done
    quiet = [seconds for seconds, disturbed in done if not disturbed]
    return float(np.quantile(quiet or [seconds for seconds, _ in done], 0.25))


class _Parts:
    """Consecutive parts of an invocation, each of which moves `bytes_B`.

    The first part follows the last one, so that no part is in the caches if all parts together are
    larger.
    """

    def __init__(self, prepared: Prepared, bytes_B: float) -> None:
        case = prepared.own
        count = case.iterations
        self.size = min(count, max(1, math.ceil(bytes_B / max(1, case.bytes_B) * count)))
        self._work = (
            None if case.spec.counts.work is None else case.spec.counts.work(case, prepared.native)
        )
        # As many as fit, without the rest at the end.
        self._begins = itertools.cycle(range(0, count - self.size + 1, self.size))

    def take(self, number: int) -> list[tuple[int, int]]:
        """Return begin and end of the next parts."""
        return [(begin, begin + self.size) for begin in itertools.islice(self._begins, number)]

    def work(self, begin: int, end: int) -> int:
        """Return the iterations of a part, or its units of the spec's `work`; at least 1."""
        done = end - begin if self._work is None else int(self._work[end] - self._work[begin])
        return max(done, 1)
