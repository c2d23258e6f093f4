"""Measuring: a case becomes samples, samples become a record.

This is the only module that reaches the compiled part.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import itertools
import math
import os
import random
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from memkern import _memkern, calibration, disturbance, environment, gpu, small, statistics
from memkern.columns import in_order
from memkern.declared import Cases, permuted, product
from memkern.errors import InputError
from memkern.kernels.launch import launch
from memkern.kernels.streaming import loops, stream
from memkern.machine import (
    copy_GBps,
    cores,
    cores_at_work,
    last_level_cache_B,
    machine_environment,
)
from memkern.patterns import integer
from memkern.progress import bar as progress_bar
from memkern.results import ResultSet, open_output
from memkern.spec import Case, Ceilings, Check, Invoke, registry

# A sample this many clock ticks long is read to better than a tenth of a percent.
_TICKS_PER_SAMPLE = 1000
# Launches between two synchronisations with a GPU (Chalmers and Warburton 2020).
_LAUNCHES = 20
_TRIALS_ON_DEVICE = 5
# In fixed-count mode a sample is one invocation unless that is shorter than this.
_TICKS_PER_RUN = 100
# Trials of variants: how many go on to the next round, and the samples of each in a round. A
# candidate's first sample in a turn is not counted: caches still hold what another one left there.
_TRIALS = ((4, 2), (2, 4), (1, 8))
_TRIAL_TRIES = 4  # where all samples of a candidate are disturbed
# All candidates are tried whole where that takes no longer than this (and a quarter of the budget);
# else the best instruction set of each variant, by parts that move so much.
_TRIAL_S = 0.25
_TRIAL_PART_B = 2**20
_GOLDEN = (math.sqrt(5) - 1) / 2  # step of a golden-ratio sequence of offsets
_SHORT_LAUNCHES = 10  # below so many launches an invocation is mostly launching
_CONDITIONS = 3  # columns that the extension adds to each sample
_FLOPS_PER_BYTE = 0.5  # with more, the core may limit a kernel wherever its data lie
_STEAL_AFTER_S = 0.25  # the system counts stolen time in hundredths of a second
# Buffers of this size and more are not allocated anew for a placement: where the pages of so many
# bytes lie averages out, and getting them takes longer than measuring.
_LARGE_B = 2**26
_BLOCK = 500  # cases of a sweep among which placements go round
# Placements spread over at least so long hold what varies from run to run.
_SPREAD_S = 20.0

_FORKED = (
    "this process was forked after memkern had started threads, which only its parent has: start "
    "processes by spawn (multiprocessing.get_context('spawn')), or before anything is measured"
)
# Whether this process, or one that it was forked from, has prepared a case; whether the latter.
_started = _forked = False
# Samples of two cases in turns would find each other's data in the caches.
_turn = threading.RLock()
_prepared: weakref.WeakSet[Prepared] = weakref.WeakSet()


def _refuse_forked() -> None:
    """Raise InputError in a process that was forked after its parent had started threads."""
    if _forked:
        raise InputError(_FORKED)


@contextmanager
def alone() -> Iterator[None]:
    """Keep other threads of this process from measuring, which wait for their turn."""
    global _started
    _refuse_forked()
    _started = True
    with _turn:
        yield


class _Left:
    """What a forked process has in place of what its parent had prepared."""

    def __getattr__(self, name: str) -> NoReturn:
        raise InputError(_FORKED)


def _after_fork() -> None:
    """Give up, in a child, what its parent had prepared: even freeing it could wait for ever."""
    global _forked
    _forked = _started
    for prepared in _prepared:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(prepared.native))
        vars(prepared)["native"] = _Left()


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def as_input_error() -> Iterator[None]:
    """Turn the extension's ValueErrors into what they are: about what a person asked for."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(str(error)) from None


@dataclass(frozen=True)
class Choice:
    """A variant and instruction set, and how they were chosen (see `Prepared`)."""

    variant: str
    isa: str
    how: str


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of one placement.

    Attributes
    ----------
    seconds : ndarray of float64, shape (n, 1 + k)
        Seconds per invocation; beside them those of the k kernels that it runs in turn, if it is
        more than one. Disturbed samples are left out, unless `disturbed`.
    invocations : int
        Invocations in one sample.
    stop : str
        Why sampling ended: ``runs``, ``ci``, ``samples``, ``budget`` or ``interrupted``.
    taken, rejected : int
        Samples that were taken, and those of them that were disturbed.
    cpu_share : float
        Share of the time during which all workers had a processor, over all samples taken.
    throughput : float
        Median over the samples of what their cores did, in loads with additions per cycle.
    clock_Hz : float
        Median clock of the cores; NaN if unknown.
    disturbed : bool
        Whether too few samples were left. `seconds` has disturbed ones too then.
    """

    seconds: npt.NDArray[np.float64]
    invocations: int
    stop: str
    taken: int
    rejected: int
    cpu_share: float
    throughput: float
    clock_Hz: float
    disturbed: bool


def _default_of(candidates: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the first candidate of the variant that serves most kernels well."""
    for variant in ("simd", "auto"):
        for candidate in candidates:
            if candidate[0] == variant:
                return candidate
    return candidates[0]


class Prepared:
    """A case with everything resolved: memory placed and filled, variant chosen.

    Attributes
    ----------
    obtained : dict
        Threads, pinning, pages, variant and instruction set as they came to be.
    variant_choice : str
        How the variant was chosen: ``asked``, ``trial``, or ``default`` where ``best`` was asked
        for and the trials of a candidate were disturbed as long as there was time.
    choosing_s : float
        Seconds that took.
    """

    def __init__(
        self, case: Case, chosen: Choice | None = None, deadline: float = math.inf
    ) -> None:
        with alone():
            self._prepare(case, chosen, deadline)

    def _prepare(self, case: Case, chosen: Choice | None, deadline: float) -> None:
        knobs = case.knobs
        self.case = case
        # On the clock of `time.perf_counter`: after it nothing is tried or sampled once more.
        self._deadline = deadline
        self.stages: list[str] = []
        self.device = None if knobs.device == "cpu" else knobs.device
        if self.device and knobs.threads and "workers" not in case.integers:
            raise InputError(
                f"{case.spec.name} on {self.device} has as many threads as it has work: leave "
                "threads out"
            )
        with as_input_error():
            self.native = _memkern.Prepared(
                kernel=case.spec.name,
                dtype=case.dtype,
                index_dtype=case.index_dtype,
                form=case.form,
                integers={**case.integers, "prefetch": knobs.prefetch},
                numbers=dict(case.numbers),
                arrays=[(array.name, array.role != "read") for array in case.spec.arrays],
                indices=dict(case.indices),
                data={
                    name: np.ascontiguousarray(values, dtype=case.dtype)
                    for name, values in case.data.items()
                },
                device=gpu.handle(knobs.device),
                **knobs.arguments,
            )
            _prepared.add(self)
            units = len(_memkern.topology()["units"])
            if self.device is None and knobs.threads > units:
                warnings.warn(
                    f"{knobs.threads} threads take turns on {units} processing units: use no more "
                    "threads than there are units",
                    stacklevel=3,
                )
            self.stages = self.native.obtained()["stages"]
            begin = time.perf_counter()
            self._choose(chosen)
            self.choosing_s = time.perf_counter() - begin

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied.

        Raises
        ------
        InputError
            Always.
        """
        raise InputError("a prepared case can't be pickled or copied: pickle its case")

    def run(self, invocations: int) -> float:
        """Invoke the kernel so many times; return the seconds that took.

        As one sample in the case's way to repeat. Nothing is allocated, parsed or checked on the
        way.
        """
        return self.native.run(invocations)

    @property
    def obtained(self) -> dict[str, Any]:
        """What was obtained of what was asked."""
        return {**self.native.obtained(), "pages": self.native.pages()}

    def _choose(self, chosen: Choice | None) -> None:
        """Select the variant and instruction set asked for, by trial where it is `best`."""
        if chosen is not None:
            self.native.select(chosen.variant, chosen.isa)
            self.variant_choice = chosen.how
            return
        variant, isa = self.case.knobs.variant, self.case.knobs.isa
        every: list[tuple[str, str]] = self.native.candidates()
        fitting = [(v, i) for v, i in every if variant in ("best", v) and isa in ("best", i)]
        if not fitting:
            choices = ", ".join(f"{v} on {i}" for v, i in every)
            raise InputError(
                f"kernel {self.case.spec.name!r} has no variant {variant!r} for instruction set "
                f"{isa!r} here: there are {choices}"
            )
        # A named variant runs on the widest instruction set; candidates come widest first.
        self.variant_choice = "asked"
        best = fitting[0]
        if variant == "best":
            best, self.variant_choice = self._fastest(fitting)
        self.native.select(*best)

    def _fastest(self, candidates: list[tuple[str, str]]) -> tuple[tuple[str, str], str]:
        """Try each in the state in which it will be measured, the better ones longer, in turns.

        Returns
        -------
        candidate : tuple of str
        how : str
            ``trial``, or ``default`` where those of a candidate were disturbed each time.
        """
        if len(candidates) == 1:
            return candidates[0], "trial"
        if self.device:
            # A part would say more about launching it.
            shortest = dict.fromkeys(candidates, math.inf)
            for _, candidate in itertools.product(range(_TRIALS_ON_DEVICE), candidates):
                self.native.select(*candidate)
                shortest[candidate] = min(shortest[candidate], self.run(1))
            return min(shortest, key=shortest.__getitem__), "trial"
        self.native.select(*candidates[0])
        sample_s = min(self.run(1) for _ in range(2)) * max(self.case.stop.invocations, 1)
        allowed_s = min(_TRIAL_S, max(self.case.stop.budget_s / 4, _TRIAL_S / 8), self._left_s)
        rounds: tuple[tuple[int, int], ...] = ((1, 1),) if small.wanted() else _TRIALS
        if sample_s * len(candidates) * 4 > allowed_s:
            rounds = ((1, 1),)
            if self.stages:
                # What one kernel leaves of a part in the caches would serve the next one.
                first = {variant: (variant, isa) for variant, isa in reversed(candidates)}
                candidates = list(first.values())
            else:
                candidates = self._fastest_parts(candidates)
                if self._from_memory or sample_s * len(candidates) * 2 > 4 * allowed_s:
                    return candidates[0], "trial"
        for finalists, samples in rounds:
            times: dict[tuple[str, str], float] = {}
            for candidate in candidates if len(candidates) > 1 else ():
                self.native.select(*candidate)
                taken = self._trial(1 + samples)
                times[candidate] = float(np.quantile(taken, 0.25)) if len(taken) else math.inf
            if any(math.isinf(t) for t in times.values()):
                # One of which nothing is known may be the fastest.
                return _default_of(candidates), "default"
            candidates = sorted(candidates, key=lambda c: times.get(c, 0.0))[:finalists]
        return candidates[0], "trial"

    @property
    def _from_memory(self) -> bool:
        """Whether so much is touched that parts find nothing of each other in the caches."""
        return bool(self.native.obtained()["footprint_B"] > 2 * last_level_cache_B())

    def _trial(self, samples: int) -> npt.NDArray[np.float64]:
        """Return the seconds of the samples after the first that were not disturbed."""
        for _ in range(_TRIAL_TRIES):
            rows = np.full((samples, 1 + _CONDITIONS), np.nan)
            # Waiting for quiet cores takes most of it where there are neighbours.
            self.native.sample(rows, self.invocations, self._left_s, self._least_throughput)
            kept = rows[1:, 0][~(self._marks(rows[:, 1:]) | np.isnan(rows[:, 0]))[1:]]
            if len(kept) or not self._left_s:
                break
        return np.asarray(kept)

    @property
    def _left_s(self) -> float:
        """Seconds until the deadline, none after it."""
        return max(self._deadline - time.perf_counter(), 0.0)

    @property
    def _least_throughput(self) -> float:
        """What the cores must do for samples to count; 0 before that is known."""
        if small.wanted():
            return 0.0
        best = cores().best(cores_at_work(self.native.obtained()))
        return self._core_share * best if best == best else 0.0

    @functools.cached_property
    def _core_share(self) -> float:
        """Which share of their best its cores must do for a sample to count."""
        obtained, topology = self.native.obtained(), _memkern.topology()
        private_B = max(
            (c["size_B"] for c in topology["caches"] if c["instances"] >= topology["cores"]),
            default=0,
        )
        workers = min(int(obtained["threads"]), topology["cores"])
        beyond = obtained["footprint_B"] > 2 * private_B * workers
        case, spec = self.case, self.case.spec
        flops = spec.flops * spec.width(case) * case.iterations
        if beyond and flops <= _FLOPS_PER_BYTE * case.bytes_B:
            return disturbance.SHARED_CACHE_CORE_SHARE
        return disturbance.CORE_SHARE

    def _marks(self, conditions: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Return which samples were disturbed, by the columns that the extension adds."""
        if small.wanted():
            return np.zeros(len(conditions), dtype=np.bool_)
        cores().add(conditions[:, 1], cores_at_work(self.native.obtained()))
        return disturbance.marks(conditions[:, 0], conditions[:, 1], self._least_throughput)

    def _fastest_parts(self, candidates: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the best instruction set of each variant by parts that lie far apart."""
        count = self.case.iterations
        size = min(count, max(1, math.ceil(_TRIAL_PART_B * count / max(1, self.case.bytes_B))))
        work = self.case.spec.work
        before = None if work is None else work(self.case, self.native)
        begin = 0
        times: dict[tuple[str, str], list[float]] = {c: [] for c in candidates}
        for _, candidate in itertools.product(range(6), candidates):
            self.native.select(*candidate)
            begin = (begin + round(count * _GOLDEN)) % (count - size + 1)
            seconds = self.native.run_range(begin, begin + size)
            done = size if before is None else int(before[begin + size] - before[begin])
            times[candidate].append(seconds / max(done, 1))
        speed = {c: float(np.quantile(t, 0.25)) for c, t in times.items()}
        best: dict[str, tuple[str, str]] = {}
        for candidate in sorted(candidates, key=speed.__getitem__):
            best.setdefault(candidate[0], candidate)
        return list(best.values())

    def check(self, invoke: Invoke | None = None) -> Check:
        """Validate what the kernel makes of freshly filled buffers against the reference.

        Parameters
        ----------
        invoke : callable, optional
            Invokes the kernel and returns how often; once by default.
        """

        def once() -> int:
            self.native.run(1)
            return 1

        return self.case.spec.check(self.case, self.native, invoke or once)

    def set_steady_inputs(self) -> None:
        """Give arrays that would grow from invocation to invocation values that keep them."""
        for name, value in self.case.spec.steady_inputs.items():
            array = self.native.arrays()[name]
            values = np.full(array["columns"], value, dtype=array["dtype"])
            self.native.copy_in(name, values)

    def sample(self, placement: int = 0, placements: int = 1) -> Samples:
        """Take samples until the case's stop rule is met by those that were not disturbed.

        Disturbed samples are taken again, for up to as long again as the budget.

        Parameters
        ----------
        placement, placements : int
            Which of how many placements this is: they share the case's samples and budget.
        """
        with alone():
            return self._sample(placement, placements)

    def _sample(self, placement: int, placements: int) -> Samples:
        stop = self.case.stop
        invocations = self.invocations

        def part(total: int) -> int:
            return total * (placement + 1) // placements - total * placement // placements

        runs = None if stop.runs is None else part(stop.runs)
        rule = statistics.StopRule(
            # Each of several placements may be less precise than all together.
            target=stop.ci * math.sqrt(placements),
            min_samples=20 if placements == 1 else 6,
            max_samples=max(part(stop.max_samples), 1),
            budget_s=stop.budget_s / placements,
        )
        times = 1 + len(self.stages)
        rows = np.empty((0, times + _CONDITIONS))
        lost = np.empty(0, dtype=np.bool_)
        units = len(self.native.obtained()["pin"].split(",")) if self.device is None else 1
        begin = time.perf_counter()
        first_s = math.inf
        reason: str | None = None

        def too_few() -> bool:
            shared = rows[:, times + 1] < self._least_throughput
            return disturbance.too_few(int((~lost).sum()), int(shared.sum()), len(rows))

        while reason is None:
            clean = len(rows) - int(lost.sum())
            block = np.full(((runs or rule.next_count(clean)) - clean, rows.shape[1]), np.nan)
            elapsed = time.perf_counter() - begin
            if runs is not None:
                left = math.inf if not len(rows) else first_s + rule.budget_s - elapsed
            else:
                left = rule.budget_s * (2 if lost.any() else 1) - elapsed
            left = min(left, self._left_s)
            stolen, since = environment.read_steal_s(), time.perf_counter()
            try:
                self.native.sample(block, invocations, left, self._least_throughput)
            except KeyboardInterrupt:
                reason = "interrupted"
            block = block[~np.isnan(block[:, 0])]
            spent = time.perf_counter() - since
            first_s = min(first_s, spent)
            rows = np.concatenate((rows, block))
            marked = self._marks(block[:, times:])
            if spent > _STEAL_AFTER_S:
                marked |= (
                    environment.read_steal_s() - stolen > disturbance.STEAL_SHARE * spent * units
                )
            lost = np.concatenate((lost, marked))
            if reason is not None:
                break
            kept = rows[~lost, 0]
            elapsed = time.perf_counter() - begin
            if runs is not None:
                over = elapsed > first_s + rule.budget_s
                reason = "runs" if len(kept) >= runs or over else None
            elif len(kept) == 0 or lost.any():
                allowed = elapsed / 2 if too_few() else elapsed
                reason = rule.done(kept, allowed)
            else:
                reason = rule.done(kept, elapsed)
            if reason is None and not self._left_s:
                reason = "budget"
        if len(rows) == 0:
            raise KeyboardInterrupt
        conditions = rows[:, times:]
        disturbed = bool(lost.any()) and too_few()
        kept_rows = ~lost
        if disturbed:
            # As many as were asked for, by how long workers were away.
            order = np.argsort(-conditions[:, 0], kind="stable")
            kept_rows = np.isin(np.arange(len(rows)), order[:runs])
        weights = rows[:, 0] / rows[:, 0].sum()
        return Samples(
            seconds=rows[kept_rows, :times],
            invocations=invocations,
            stop=reason,
            taken=len(rows),
            rejected=int(lost.sum()),
            cpu_share=float(weights @ conditions[:, 0]),
            throughput=_median(conditions[:, 1]),
            clock_Hz=_median(conditions[:, 2]),
            disturbed=disturbed,
        )

    @functools.cached_property
    def invocations(self) -> int:
        """How many invocations make a sample: those asked for, or what the clock needs."""
        if self.case.stop.invocations:
            return self.case.stop.invocations
        if self.case.knobs.flush or self.stages:
            return 1
        if self.device:
            return _LAUNCHES
        ticks = _TICKS_PER_SAMPLE if self.case.stop.runs is None else _TICKS_PER_RUN
        goal = ticks * _memkern.clock_tick()
        invocations = 1
        # Where a small part is long enough, the whole need not be tried.
        if self.native.run_range(0, -(-self.case.iterations // 128)) >= 20 * goal:
            return invocations
        while True:
            seconds = self.run(invocations)
            if seconds < 20 * goal:
                # So short a time may be mostly disturbance.
                seconds = min(seconds, self.run(invocations), self.run(invocations))
            if seconds >= goal:
                return invocations
            # What is itself too short to be read is no basis for a large step.
            grow = goal / seconds if seconds > goal / 100 else 10.0
            invocations = math.ceil(invocations * min(max(grow * 1.1, 1.5), 10.0))


@dataclass(frozen=True, eq=False)
class Measurement:
    """One case, measured; equal to another whose results are.

    Attributes
    ----------
    record : dict
        The flat row of the results table.
    samples : ndarray of float64, shape (n,)
        Seconds per invocation, in the order in which they were taken.
    environment : dict
        The machine and build.
    parts : tuple of Measurement
        Where an invocation runs several kernels in turn, these on their own.
    """

    record: dict[str, Any]
    samples: npt.NDArray[np.float64]
    environment: dict[str, Any]
    parts: tuple[Measurement, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Compare the results."""
        if not isinstance(other, Measurement):
            return NotImplemented
        return self.results == other.results

    @property
    def valid(self) -> bool:
        """Whether the kernel's results were right."""
        return bool(self.record["valid"])

    @property
    def disturbed(self) -> bool:
        """Whether too few samples were undisturbed: the times mean little then."""
        return bool(self.record["disturbed"])

    @property
    def bandwidth_GBps(self) -> float:
        """By the paper's formula on the shortest time."""
        return float(self.record["bandwidth_GBps"])

    def cut_off(self) -> Measurement:
        """Return it marked as interrupted, to be measured again when the run is resumed."""
        parts = tuple(part.cut_off() for part in self.parts)
        return dataclasses.replace(self, record={**self.record, "stop": "interrupted"}, parts=parts)

    @property
    def results(self) -> ResultSet:
        """The measurement as a result set, its parts first."""
        return to_result_set([self])

    def _repr_html_(self) -> str:
        return self.results._repr_html_()


def _median(values: npt.NDArray[np.float64]) -> float:
    """Return the median of what is known, NaN if that is nothing."""
    known = values[values > 0]
    return float(np.median(known)) if len(known) else math.nan


def prepare(case: Case) -> Prepared:
    """Allocate, place and fill what a case needs, and choose its variant.

    Raises
    ------
    InputError, MemoryError
        Something asked for is wrong or can't be had; nothing was touched then.
    """
    return Prepared(case)


def apply(case: Case, **arrays: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Run a case's kernel once on the caller's values, exactly as a measurement would.

    Parameters
    ----------
    case : Case
    **arrays : ndarray
        Values for arrays of the kernel (see its spec) in the case's dtype; the others keep what
        a measurement fills them with. An array that every worker has to itself has shape
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
    prepared = prepare(case)
    with as_input_error():
        prepared.native.fill(outputs=True)
        for name, values in arrays.items():
            prepared.native.copy_in(name, np.asarray(values))
        prepared.native.run(1)
        return {name: prepared.native.copy_out(name) for name in prepared.native.arrays()}


@functools.cache
def launch_cost_s(threads: int, pin: str, repetition: str) -> float:
    """Shortest time of an empty invocation, in seconds (see `memkern.kernels.launch`)."""
    prepared = prepare(launch(threads=threads, pin=pin, repetition=repetition, runs=300))
    return float(prepared.sample().seconds.min())


@functools.cache
def device_launch_cost_s(device: str, timer: str, invocations: int = 0) -> float:
    """Shortest time of an empty kernel on a device, in seconds; by default of 20 in a row."""
    case = launch(runs=50, device=device, timer=timer, invocations=invocations)
    return float(prepare(case).sample().seconds.min())


@functools.cache
def ceilings_GBps(threads: int, pin: str, pages: str) -> dict[str, float]:
    """Return what memory gives to loads alone and to a triad: medians of their best variants."""
    cache_B = last_level_cache_B()
    knobs: dict[str, Any] = {"threads": threads, "pin": pin, "pages": pages}
    knobs |= {"budget_s": 0.5, "placements": 1}
    cases = {
        "load": loops("load", footprint_B=4 * cache_B, **knobs),
        "triad": stream("triad", footprint_B=6 * cache_B, **knobs),
    }
    return {
        name: float(measure(case).record["bandwidth_median_GBps"]) for name, case in cases.items()
    }


@dataclass(frozen=True)
class Placement:
    """What one placement of a case has given, and the seconds it took.

    `again_s` are those of them that another placement would take as well: not those of choosing
    the variant and validating.
    """

    samples: Samples
    check: Check
    obtained: dict[str, Any]
    choice: Choice
    others: tuple[disturbance.RunningThread, ...]
    device: Mapping[str, float]
    started_s: float
    wall_s: float
    again_s: float


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


class CaseRun:
    """A case on its way to its record: placed and sampled several times, then summarised.

    Parameters
    ----------
    case : Case
    repeat : int
        Number of this repeat, for the record.
    """

    def __init__(self, case: Case, repeat: int = 0) -> None:
        _refuse_forked()
        self.case = case
        self.repeat = repeat
        self.started = _now()
        self.placements: list[Placement] = []
        # Of the next placement, on the clock of `time.perf_counter`.
        self.deadline = math.inf
        self.out_of_time = False
        # Before the case takes the device's memory.
        on_device = case.knobs.device != "cpu"
        self._known = {"gpu_copy_GBps": copy_GBps(case.knobs.device)} if on_device else {}

    @property
    def interrupted(self) -> bool:
        """Whether sampling was cut off."""
        return any(p.samples.stop == "interrupted" for p in self.placements)

    @property
    def whole(self) -> bool:
        """Whether it was placed as often as it asks for, or as time allowed."""
        return self.out_of_time or len(self.placements) == self.case.placements

    @property
    def medians(self) -> list[float]:
        """Median of each placement that was not disturbed, in seconds."""
        clean = [p.samples.seconds[:, 0] for p in self.placements if not p.samples.disturbed]
        return [float(np.median(seconds)) for seconds in clean]

    @property
    def spread_s(self) -> float:
        """Seconds from the first placement to the last."""
        return self.placements[-1].started_s - self.placements[0].started_s

    def class_of(self, machine: dict[str, Any]) -> str:
        """Return the class of cases whose placements differ alike (see `memkern.calibration`)."""
        obtained = self.placements[-1].obtained
        caches = machine["machine"]["caches"] or ()
        return calibration.class_name(obtained["footprint_B"], obtained["threads"], caches)

    def place(self) -> Placement:
        """Allocate, fill, sample and validate once more.

        Raises
        ------
        InputError, MemoryError
            See `prepare`.
        """
        with alone():
            return self._place()

    def _place(self) -> Placement:
        case, start = self.case, time.perf_counter()
        spec, knobs = case.spec, case.knobs
        chosen = self.placements[0].choice if self.placements else None
        prepared = Prepared(case, chosen, self.deadline)
        again_s = time.perf_counter() - start - prepared.choosing_s
        taken: list[tuple[Samples, dict[str, float]]] = []
        if spec.repeatable_check:
            # Found by trying, which must be over before anything counts.
            _ = prepared.invocations

        def sample() -> int:
            nonlocal again_s
            begin = time.perf_counter()
            energy_J = gpu.read(knobs.device) if prepared.device else math.nan
            found = prepared.sample(len(self.placements), case.placements)
            again_s += time.perf_counter() - begin
            taken.append((found, gpu.since(knobs.device, energy_J) if prepared.device else {}))
            return found.taken * found.invocations

        # Those in between are of the same bodies and inputs.
        validated = len(self.placements) in (0, case.placements - 1)
        check = self.placements[0].check if self.placements else None
        if validated and (spec.idempotent or spec.repeatable_check):
            # What is timed is what is validated, and all that has an effect is counted.
            check = prepared.check(sample)
        else:
            if validated:
                check = prepared.check()
            else:
                prepared.native.fill(outputs=True)
            prepared.set_steady_inputs()
            sample()
        assert check is not None
        samples, device = taken[0]
        # The kernel walks the page tables for its account of pages.
        known = self.placements[0].obtained["pages"] if self.placements else None
        obtained = {**prepared.native.obtained(), "pages": known or prepared.native.pages()}
        others = tuple(_memkern.running_threads()) if samples.rejected else ()
        choice = Choice(obtained["variant"], obtained["isa"], prepared.variant_choice)
        wall_s = time.perf_counter() - start
        placement = Placement(
            samples, check, obtained, choice, others, device, start, wall_s, again_s
        )
        self.placements.append(placement)
        return placement

    def measurement(
        self,
        machine: dict[str, Any],
        *,
        prior: statistics.Prior | None = None,
        drift: statistics.Prior | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Measurement:
        """Return the record of all placements so far.

        Parameters
        ----------
        machine : dict
            The environment.
        prior, drift : Prior, optional
            Variances of this case's class, between placements and between runs.
        extra : mapping, optional
            Further columns of the record.
        """
        case, last = self.case, self.placements[-1]
        spec, obtained = case.spec, last.obtained
        clean = [p for p in self.placements if not p.samples.disturbed]
        disturbed = 2 * len(clean) < len(self.placements)
        counted = self.placements if disturbed else clean
        # STREAM's rule: the first turn of a rotation does not count.
        turns = 1 if last.samples.seconds.shape[1] > 1 else 0
        series = [p.samples.seconds[turns if len(p.samples.seconds) > 1 else 0 :] for p in counted]
        as_run = case.with_(variant=obtained["variant"])
        launch_s = math.nan
        if case.bytes_B and case.knobs.device != "cpu":
            launch_s = device_launch_cost_s(case.knobs.device, case.knobs.timer)
        elif case.bytes_B:
            launch_s = launch_cost_s(obtained["threads"], case.knobs.pin, case.knobs.repetition)
        limits: dict[str, float] = {}
        if spec.roofline_columns is not None:
            rates = ceilings_GBps(obtained["threads"], case.knobs.pin, case.knobs.pages)
            ceilings = Ceilings(rates["load"], rates["triad"], machine["machine"]["caches"] or ())
            median_s = float(np.median([np.median(s[:, 0]) for s in series]))
            limits = spec.roofline_columns(as_run, last.check.columns, ceilings, median_s)
        columns = {**last.check.columns, **limits}

        def row(case: Case, column: int, case_id: str) -> dict[str, Any]:
            times = _times([s[:, column] for s in series], disturbed, prior, drift, self.spread_s)
            return in_order(
                {
                    **_identity_columns(case, case_id, self, columns, machine),
                    **_obtained_columns(case, last),
                    **_sample_columns(self, counted, series, disturbed),
                    **times,
                    **_rates(case, as_run, last, times, launch_s),
                    **self._known,
                    **last.device,
                    **(extra or {}),
                }
            )

        names = last.samples.seconds.shape[1] - 1
        whole = row(case, 0, case.identity())
        parts = []
        for column, kernel in enumerate(self._stages[:names], start=1):
            part = dataclasses.replace(case, spec=registry()[kernel])
            record = row(part, column, f"{case.identity()}-{kernel}")
            parts.append(Measurement(record, np.concatenate(series)[:, column], machine))
        return Measurement(whole, np.concatenate(series)[:, 0], machine, tuple(parts))

    @property
    def _stages(self) -> list[str]:
        return list(self.placements[-1].obtained["stages"])


def _times(
    series: Sequence[npt.NDArray[np.float64]],
    disturbed: bool,
    prior: statistics.Prior | None,
    drift: statistics.Prior | None,
    spread_s: float,
) -> dict[str, Any]:
    """Return the columns about times and their intervals; a disturbed record has no interval."""
    summary: dict[str, Any] = statistics.summarise(np.concatenate(series))
    medians = [float(np.median(seconds)) for seconds in series]
    summary["time_median_s"] = float(np.median(medians))
    interval = statistics.placements_interval(medians, prior=prior, drift=drift)
    scope = "next run" if drift is not None or spread_s >= _SPREAD_S else "within this run"
    low, high, level = (summary[f"within_ci_{name}"] for name in ("low_s", "high_s", "level"))
    if interval is not None and len(medians) == 1:
        # A single placement's own samples say less than those of the calibration.
        low, high, level = min(low, interval.low), max(high, interval.high), interval.level
    elif interval is not None:
        low, high, level = interval.low, interval.high, interval.level
    else:
        scope = "within this run"
    if disturbed:
        scope, low, high, level = "none", math.nan, math.nan, math.nan
        summary |= dict.fromkeys((name for name in summary if name.startswith("within_")), math.nan)
    median = summary["time_median_s"]
    return summary | {
        "time_ci_low_s": low,
        "time_ci_high_s": high,
        "ci_level": level,
        "ci_relative": (high - low) / 2 / median if median > 0 else math.nan,
        "ci_scope": scope,
        "placement_sd": float(np.std(np.log(medians), ddof=1)) if len(medians) > 1 else math.nan,
    }


def _identity_columns(
    case: Case, case_id: str, run: CaseRun, columns: Mapping[str, Any], machine: dict[str, Any]
) -> dict[str, Any]:
    """Return the columns that say which case this is, where and when."""
    knobs, last = case.knobs, run.placements[-1]
    on_device = knobs.device != "cpu"
    which = {**case.columns, **dict(zip(case.spec.form, case.form.split("/"), strict=False))}
    return {
        "case_id": case_id,
        "repeat": run.repeat,
        "environment_id": environment.identity(machine),
        "platform": gpu.describe(knobs.device)["name"]
        if on_device
        else environment.platform_label(machine, last.obtained["threads"]),
        "started": run.started,
        "kernel": case.spec.kernel,
        "definition": case.spec.definition,
        "name": case.labels.get("name", ""),
        "suite": case.labels.get("suite", ""),
        **which,
        "case_columns": " ".join(which),
        **columns,
    }


def _obtained_columns(case: Case, placement: Placement) -> dict[str, Any]:
    """Return the columns that say what was asked and what was obtained."""
    knobs, obtained = case.knobs, placement.obtained
    return {
        "backend": "openmp" if knobs.device == "cpu" else "cuda",
        "dtype": case.dtype,
        "index_dtype": case.index_dtype,
        **knobs.columns,
        **{name: obtained[name] for name in ("threads", "variant", "isa", "pin", "pages")},
        "block_threads": obtained["block_threads"],
        "variant_choice": placement.choice.how,
        "ranks": 1,
        "rotation": bool(obtained["stages"]),
    }


def _sample_columns(
    run: CaseRun,
    counted: Sequence[Placement],
    series: Sequence[npt.NDArray[np.float64]],
    disturbed: bool,
) -> dict[str, Any]:
    """Return the columns about how samples were taken, and what disturbed them."""
    every = run.placements
    stops = [p.samples.stop for p in every]
    checks = [p.check for p in every]
    others = dict.fromkeys(thread for p in every for thread in p.others)
    throughput = _median(np.array([p.samples.throughput for p in counted]))
    best = cores().best(cores_at_work(every[-1].obtained))
    return {
        "samples": sum(map(len, series)),
        "invocations": every[-1].samples.invocations,
        "stop": "interrupted" if run.interrupted else min(stops, key=_STOPS.index),
        "placements": len(counted),
        "samples_disturbed": sum(p.samples.rejected for p in every),
        "disturbed": disturbed,
        "disturbed_by": disturbance.describe(others),
        "cpu_share": float(np.mean([p.samples.cpu_share for p in every])),
        "core_share": min(throughput / best, 1.0),
        "clock_GHz": _median(np.array([p.samples.clock_Hz for p in counted])) / 1e9,
        "valid": all(check.valid for check in checks),
        "error_max": max(check.error_max for check in checks),
        "validation": checks[-1].how,
        "wall_s": sum(p.wall_s for p in every),
    }


# Of several placements the record names the reason furthest from being precise.
_STOPS = ("interrupted", "budget", "samples", "ci", "runs")


def _rates(
    case: Case, as_run: Case, placement: Placement, times: Mapping[str, float], launch_s: float
) -> dict[str, Any]:
    """Return the columns about bytes and rates."""
    obtained = placement.obtained
    shortest, median = times["time_min_s"], times["time_median_s"]
    elements = case.iterations * case.spec.width(case)
    vectors = elements * np.dtype(case.dtype).itemsize / (obtained["vector_B"] or math.nan)
    cycles = shortest * placement.samples.clock_Hz * obtained["threads"]
    amos = case.spec.amos * placement.check.columns.get("attempts_per_amo", 1.0)
    return {
        "launch_s": launch_s,
        "time_net_s": shortest - launch_s if shortest < _SHORT_LAUNCHES * launch_s else math.nan,
        "bytes_B": case.bytes_B,
        "bytes_index_B": case.bytes_index_B,
        "bytes_model_B": as_run.spec.model_bytes(as_run),
        "footprint_B": obtained["footprint_B"],
        "bandwidth_GBps": case.bytes_B / shortest / 1e9,
        "bandwidth_median_GBps": case.bytes_B / median / 1e9,
        "rate_GAMS": case.iterations / shortest / 1e9 * amos or math.nan,
        "performance_GFLOPs": elements / shortest / 1e9 * case.spec.flops or math.nan,
        "cycles_per_vector": cycles / vectors if case.spec.elementwise else math.nan,
    }


def measure(
    case: Case,
    *,
    repeat: int = 0,
    extra: Mapping[str, Any] | None = None,
    machine: dict[str, Any] | None = None,
) -> Measurement:
    """Measure one case: place, sample and validate it as often as it asks for.

    Parameters
    ----------
    case : Case
    repeat : int
        Number of this repeat, for the record.
    extra : mapping, optional
        Further columns of the record.
    machine : dict, optional
        The environment, where the caller has it already.

    Returns
    -------
    Measurement

    Raises
    ------
    InputError, MemoryError
        See `prepare`.
    """
    run = CaseRun(case, repeat)
    for number in range(case.placements):
        if number:
            _memkern.release_memory(_LARGE_B)
        run.place()
        if run.interrupted:
            break
    machine = machine_environment() if machine is None else machine
    known = calibration.load()
    prior, drift = known.of(run.class_of(machine)) if known is not None else (None, None)
    return run.measurement(machine, prior=prior, drift=drift, extra=extra)


def sweep(
    cases: Iterable[Case],
    *,
    repeats: int = 1,
    output: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    progress: bool | None = None,
    on_result: Callable[[Measurement], None] | None = None,
    order: str = "random",
    order_seed: int | None = None,
    on_begin: Callable[[], None] | None = None,
    time_s: float = math.inf,
) -> ResultSet:
    """Measure cases, each of whose placements is spread over the run.

    Of up to 500 cases at a time, every one is placed and sampled once, then every one once more,
    until each has been placed as often as it asks for; each round has an order of its own. Memory
    goes from case to case within a round and back to the system after it. No more cases than that
    are held at a time, however many are to come.

    Parameters
    ----------
    cases : iterable of Case
        Taken as they are needed: of a sequence, such as `vary` returns, by a random permutation of
        its places, of any other iterable the next 500 at a time.
    repeats : int
        How often all of it is measured, one time after the other, for records of their own; of an
        iterable that is no sequence, as often as that the 500 cases at a time.
    output : path, optional
        Results file: .db, .parquet, .csv or .json. Until the end they stand in one SQLite file,
        each case after its first placement and after its last.
    resume : bool
        Go on with an earlier, unfinished run of the same cases on the same machine and build.
    force : bool
        Overwrite what stands at `output`, unless it is resumed.
    progress : bool, optional
        Show progress on standard error: a bar where that is a terminal or a notebook, else a line
        every ten seconds. By default only the bar.
    on_result : callable, optional
        Called with every `Measurement` when its last round is over; of those that go round
        together, in the order of the cases.
    order : str
        ``random``, or ``declared`` for the order of the cases in every round.
    order_seed : int, optional
        Seed of the random order, which the record holds; by default another one each time.
    on_begin : callable, optional
        Called when the first case has been placed: what was asked for can be had.
    time_s : float
        Seconds for all of it, of which each placement has its part of what is left. Where they are
        too few, cases are sampled more briefly and have fewer placements; every case has one, and
        one sample, however long that takes.

    Returns
    -------
    ResultSet
        All records, those reused from an earlier run included. After Ctrl-C those that were
        done, with a warning, and marked as `interrupted`; the results file can be resumed then.

    Raises
    ------
    InputError, MemoryError
        A case is wrong or the results file can't be used; what was done stands in the file.
    """
    _refuse_forked()
    if order not in ("random", "declared"):
        raise InputError(f"order {order!r} is not random or declared")
    integer(repeats, "repeats", 1)
    if not time_s > 0:
        raise InputError(f"time_s must be a positive number of seconds, not {time_s}")
    end = time.perf_counter() + time_s
    seed = random.SystemRandom().randrange(2**31) if order_seed is None else order_seed
    generator = random.Random(seed) if order == "random" else None
    columns = {
        "case_order": order,
        "case_order_seed": seed if order == "random" else None,
    }
    machine = machine_environment()
    sink = open_output(output, resume, machine, force=force) if output is not None else None
    done: list[Measurement] = []
    interrupted = begun = False
    finished = planned = placements = gone = duplicates = 0

    def placed(run: CaseRun) -> None:
        nonlocal begun
        if not begun and on_begin is not None:
            on_begin()
        begun = True
        # One that is cut off later is measured again, but not without a trace.
        if sink is not None and len(run.placements) == 1 < run.case.placements:
            keep(run.measurement(machine), last=False)

    def keep(measurement: Measurement, *, last: bool) -> None:
        if sink is not None:
            for part in (*measurement.parts, measurement):
                record = part.record if last else {**part.record, "stop": "interrupted"}
                sink.store.add(record, part.samples, machine)
        elif last:
            done.append(measurement)

    def leave(error: BaseException) -> None:
        """Close the file after an error, and say what is in it and the error that it may go on."""
        if sink is None:
            return
        sink.store.close()
        if sink.store.is_kept:
            vars(error)["resumable"] = True
            warnings.warn(
                f"{finished} of {size or planned} measurements done, kept in {sink.store.path}",
                stacklevel=3,
            )

    size = len(cases) * repeats if isinstance(cases, Sequence) else None
    bar = progress_bar(progress, time_s=time_s)
    try:
        for block in _blocks(cases, repeats, seed if generator is not None else None, sink):
            runs = block.runs
            planned += len(runs)
            placements += sum(run.case.placements for run in runs)
            gone += block.asked
            duplicates += block.duplicates
            if size is not None:
                # Cases that are still to be built are taken to be placed as often as these.
                bar.total = placements + (size - gone) * placements // max(planned, 1)
            try:
                _go_round(runs, generator, placed, bar, end)
            except KeyboardInterrupt:
                interrupted = True
            interrupted = interrupted or any(run.interrupted for run in runs)
            priors = _priors(runs, machine)
            for run in runs:
                if not run.placements:
                    continue
                prior, drift = priors[run.class_of(machine)]
                short = run.spread_s < _SPREAD_S
                measurement = run.measurement(
                    machine, prior=prior, drift=drift if short else None, extra=columns
                )
                whole = run.whole and not run.interrupted
                if not whole:
                    measurement = measurement.cut_off()
                keep(measurement, last=True)
                finished += whole
                if on_result is not None:
                    on_result(measurement)
            if interrupted:
                break
    except KeyboardInterrupt:
        interrupted = True
    except BaseException as error:
        leave(error)
        raise
    finally:
        bar.close()
        if not _forked:
            _memkern.release_memory()
    if sink is None:
        results = to_result_set(done)
    elif interrupted:
        results = sink.store.result_set()
        sink.store.close()
    else:
        try:
            results = sink.finish()
        except BaseException as error:
            leave(error)
            raise
    if duplicates:
        warnings.warn(
            f"{duplicates} of the cases ask{'s' * (duplicates == 1)} for the same as an earlier "
            "one, whatever their names: what is asked for twice is measured once (--repeats gives "
            "several records of a case)",
            stacklevel=2,
        )
    results.interrupted = interrupted
    if interrupted:
        kept = f", kept in {sink.store.path}" if sink is not None and results else ""
        warnings.warn(
            f"interrupted: {finished} of {size or planned} measurements done{kept}", stacklevel=2
        )
    return results


@dataclass(frozen=True)
class _Block:
    """Cases that go round together, and how many were asked for to find them.

    `duplicates` of these ask for the same as an earlier one.
    """

    runs: list[CaseRun]
    asked: int
    duplicates: int


def _blocks(cases: Iterable[Case], repeats: int, seed: int | None, sink: Any) -> Iterator[_Block]:
    """Yield the cases that are still to be measured, as many at a time as go round together.

    They are taken from all over a sequence by `seed`, and in their order without one.
    """
    runs: list[CaseRun] = []
    asked = duplicates = 0
    seen: set[tuple[str, int]] = set()
    for some in [cases] if isinstance(cases, Sequence) else _portions(cases):
        places = _places(len(some), repeats, seed)
        while chosen := sorted(itertools.islice(places, _BLOCK - len(runs))):
            asked += len(chosen)
            for place, times in itertools.groupby(chosen, key=lambda pair: pair[0]):
                case = some[place]
                for _, repeat in times:
                    key = case.identity(), repeat
                    if sink is None:
                        new = key not in seen
                        seen.add(key)
                    else:
                        new = sink.store.first_time(*key)
                    if not new:
                        duplicates += 1
                        continue
                    kept = sink.store.find(*key) if sink is not None else None
                    if kept is None or kept["stop"] == "interrupted":
                        runs.append(CaseRun(case, repeat))
            if len(runs) == _BLOCK:
                yield _Block(runs, asked, duplicates)
                runs, asked, duplicates = [], 0, 0
    yield _Block(runs, asked, duplicates)


def _portions(cases: Iterable[Case]) -> Iterator[list[Case]]:
    """Yield as many of the cases at a time as go round together."""
    rest = iter(cases)
    while portion := list(itertools.islice(rest, _BLOCK)):
        yield portion


def _places(size: int, repeats: int, seed: int | None) -> Iterator[tuple[int, int]]:
    """Yield the place of every case with every repeat, one repeat after the other."""
    for repeat in range(repeats if size else 0):
        for place in range(size):
            yield (place if seed is None else permuted(place, size, f"{seed}/{repeat}")), repeat


def _go_round(
    runs: Sequence[CaseRun],
    generator: random.Random | None,
    placed: Callable[[CaseRun], None],
    bar: Any,
    end: float = math.inf,
) -> None:
    """Place every case once in each round, until each was placed as often as it asks for.

    Each placement may take its part of the time that is left until `end`, on the clock of
    `time.perf_counter`; after the first round one that would take longer than all of it is left
    out. A quarter of the time is kept for placements that take no more than an equal part of it:
    those of small cases, which cost little and differ most.
    """
    part_s = {id(run): expected_s([run.case]) / run.case.placements for run in runs}
    remaining_s = sum(part_s[id(run)] * run.case.placements for run in runs)
    every = sum(run.case.placements for run in runs)
    kept_s = max(end - time.perf_counter(), 0.0) / 4 / max(every, 1)
    for number in range(max((run.case.placements for run in runs), default=0)):
        if number:
            _memkern.release_memory(_LARGE_B)
        todo = [run for run in runs if number < run.case.placements]
        if generator is not None:
            generator.shuffle(todo)
        for run in todo:
            left_s, part = end - time.perf_counter(), part_s[id(run)]
            if run.placements and run.placements[-1].again_s > max(left_s, kept_s):
                run.out_of_time = True
                if bar.total is not None:
                    bar.total -= 1
            else:
                share_s = left_s * part / max(remaining_s, part)
                run.deadline = time.perf_counter() + max(share_s, min(part, kept_s))
                run.place()
                placed(run)
                bar.update()
            remaining_s -= part
            if run.interrupted:
                return


def _priors(
    runs: Sequence[CaseRun], machine: dict[str, Any]
) -> dict[str, tuple[statistics.Prior | None, statistics.Prior | None]]:
    """Return what the cases of each class have in common, and what calibration knows of it."""
    known = calibration.load()
    classes: dict[str, list[list[float]]] = {}
    for run in runs:
        if run.placements:
            classes.setdefault(run.class_of(machine), []).append(run.medians)
    found = {}
    for name, all_medians in classes.items():
        several = [np.log(medians) for medians in all_medians if len(medians) > 1]
        prior = statistics.moderate(
            [float(np.var(x, ddof=1)) for x in several], [len(x) - 1 for x in several]
        )
        calibrated, drift = known.of(name) if known is not None else (None, None)
        found[name] = (prior or calibrated, drift)
    return found


def to_result_set(done: Sequence[Measurement]) -> ResultSet:
    """Return measurements as one result set, the parts of each before it."""
    rows = [row for m in done for row in (*m.parts, m)]
    return ResultSet(
        [row.record for row in rows],
        [row.samples for row in rows],
        {row.record["environment_id"]: row.environment for row in rows},
    )


def vary(case: Case, **knobs: Iterable[Any]) -> Cases:
    """All combinations of knob values, as cases.

    Parameters
    ----------
    case : Case
    **knobs : iterable
        Values by the name of a knob, such as ``pages=["4k", "thp"], threads=[1, 2]``; a sequence,
        such as a range, is not copied.

    Returns
    -------
    Cases
        A sequence whose cases are built when they are asked for. The last knob varies fastest.
    """
    axes = {
        name: values if isinstance(values, Sequence) else list(values)
        for name, values in knobs.items()
    }
    return product(case.with_, axes)


# What fills and bodies from memory move at least in a second, of how much a case takes a second to
# be placed for the first time and validated (1.3 in the median over a report's cases beyond the
# caches), and what a placement costs besides.
_MOVED_B_PER_S = 1e10
_VALIDATED_B_PER_S = 1e9
_PLACEMENT_S = 0.01


def expected_s(cases: Iterable[Case]) -> float:
    """Return about how many seconds cases take: trials, fills, samples and checks."""
    total_s = 0.0
    for case in cases:
        stop, once_s = case.stop, case.bytes_B / _MOVED_B_PER_S
        sampled_s = (stop.runs or case.placements) * max(stop.invocations, 1) * once_s
        sampled_s = max(sampled_s, 0.0 if stop.runs else stop.budget_s)
        again_s = (case.placements - 1) * (_PLACEMENT_S + 2 * once_s)
        total_s += least_s(case) + again_s + sampled_s
    return total_s


def least_s(case: Case) -> float:
    """Return about how many seconds one placement takes, however briefly it is sampled."""
    trials_s = _TRIAL_S / 8 if case.knobs.variant == "best" else 0.0
    return trials_s + _PLACEMENT_S + case.bytes_B / _VALIDATED_B_PER_S


TUNED_ON_DEVICE: dict[str, tuple[Any, ...]] = {
    "unroll": (0, 1, 2, 4, 8),
    "block_threads": (0, 64, 128, 256, 512, 1024),
}
TUNED: dict[str, tuple[Any, ...]] = {
    "pages": ("default", "4k", "thp", "hugetlb-2m"),
    "prefetch": (0, 1, 2, 4, 8, 16, 32, 64),
    "chunk": (0, 16, 256, 4096),
}


def tune(
    case: Case,
    *,
    budget_s: float = 30.0,
    knobs: Mapping[str, Sequence[Any]] | None = None,
    progress: Callable[[float], object] | None = None,
) -> tuple[Case, ResultSet]:
    """Search the knobs of a case, one after another, within a time budget.

    The variant and instruction set come first, then each knob in turn with the best so far kept.

    Parameters
    ----------
    case : Case
    budget_s : float
        Seconds for the search; what has not been tried by then is left as it is.
    knobs : mapping, optional
        Values to try by knob; the default is `TUNED`, on a GPU `TUNED_ON_DEVICE`.
    progress : callable, optional
        Called with the share of the trials that is over.

    Returns
    -------
    best : Case
        The case with the best knobs found.
    search : ResultSet
        Every trial, in order; column ``tune_step`` names what was varied. The last record is
        the best case, measured once more.
    """
    if not 0 < budget_s < math.inf:
        raise InputError(f"budget must be a positive number of seconds, not {budget_s}")
    usual = TUNED if case.knobs.device == "cpu" else TUNED_ON_DEVICE
    space = {"variant": _variants(case), **(knobs or usual)}
    trials = sum(len(values) for values in space.values())
    end = time.perf_counter() + budget_s
    machine = machine_environment()
    search: list[Measurement] = []
    best, best_s = case, math.inf
    for knob, values in space.items():
        base = best
        for value in values:
            if time.perf_counter() > end:
                break
            changes = dict(value) if knob == "variant" else {knob: value}
            trial = base.with_(
                **changes, budget_s=budget_s / trials / 2, max_samples=200, placements=1
            )
            try:
                result = measure(trial, extra={"tune_step": knob}, machine=machine)
            except (InputError, MemoryError):
                continue  # not to be had on this machine
            search.append(result)
            if progress is not None:
                progress(len(search) / trials)
            decides = result.valid and not result.disturbed
            if decides and result.record["time_median_s"] < best_s:
                best, best_s = base.with_(**changes), result.record["time_median_s"]
        if _trials_of(search, knob) and all(m.disturbed for m in _trials_of(search, knob)):
            warnings.warn(f"every trial of {knob} was disturbed: it stays as it was", stacklevel=2)
    search.append(measure(best, extra={"tune_step": "best"}, machine=machine))
    return best, to_result_set(search)


def _trials_of(search: Sequence[Measurement], knob: str) -> list[Measurement]:
    """Return the trials of one step of a search."""
    return [m for m in search if m.record["tune_step"] == knob]


def _variants(case: Case) -> list[dict[str, str]]:
    candidates = prepare(case).native.candidates()
    if case.knobs.device != "cpu":
        return [{"variant": variant} for variant, _ in candidates]
    return [{"variant": variant, "isa": isa} for variant, isa in candidates]


def _device(name: str) -> dict[str, Any]:
    """Return what `memkern info` says of a device."""
    return {
        **gpu.describe(name),
        "copy_GBps": copy_GBps(name),
        "launch_s": device_launch_cost_s(name, "host"),
        "launch_single_s": device_launch_cost_s(name, "host", 1),
        "launch_graph_s": device_launch_cost_s(name, "graph"),
    }


def describe() -> dict[str, Any]:
    """Return what `memkern info` shows: machine, caches, instruction sets, launch cost."""
    available, limit = _memkern.memory_limit()
    return {
        "topology": _memkern.topology(),
        "build": _memkern.build(),
        "clock_tick_s": _memkern.clock_tick(),
        "memory_available_B": available,
        "memory_limit": limit,
        "launch_s": launch_cost_s(0, "none", "fork"),
        "backends": ["openmp", *(["cuda"] if gpu.built() else [])],
        "devices": {name: _device(name) for name in gpu.devices()},
        "no_devices": gpu.why_none(),
        "environment": machine_environment(),
    }
