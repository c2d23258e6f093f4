"""Sampling of a prepared case: how many samples are taken, and which of them are used."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern import small, statistics
from memkern.engine import disturbance
from memkern.engine.communication import ranks
from memkern.engine.cores import Neighbour, cores, cores_at_work, exchanging_units
from memkern.engine.prepared import Prepared
from memkern.engine.process import exclusive
from memkern.extension import _memkern
from memkern.machine import environment, gpu
from memkern.spec.options import GPUS

CONDITIONS = 8  # columns that the extension adds to each sample
_FLOPS_PER_BYTE = 0.5  # above, the core may limit a kernel even where its data are in memory
_MORE = 5  # samples that are taken at a time beyond those that were requested
_STEAL_AFTER_S = 0.25  # the system counts stolen time in hundredths of a second
_HALO_SAMPLES = 5  # in which an exchange is timed apart

_Bools = npt.NDArray[np.bool_]
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of one placement.

    Attributes
    ----------
    seconds : ndarray of float64, shape (n, 1 + k)
        Seconds per invocation, and those of each of the k kernels that it runs in turn, if it runs
        several. Disturbed samples are left out, unless `disturbed`.
    by_rank : ndarray of float64, shape (ranks, n)
        Seconds per invocation that each rank took; `seconds` are those of the slowest.
    invocations : int
        Invocations in one sample.
    stop : str
        Why sampling ended: ``runs``, ``ci``, ``samples``, ``budget`` or ``interrupted``.
    taken, rejected : int
        Number of samples that were taken, and of those that were disturbed.
    moved : int
        Number of samples during which a worker moved to another processing unit.
    cpu_share : float
        Share of the time during which all workers had a processor, over all samples taken.
    throughput : float
        Median over the samples of the cores' throughput, in loads with additions per cycle.
    clock_Hz : float
        Median clock of the cores; NaN if unknown.
    exchange_s : float
        Median time in which a line goes from one worker to the next; NaN if unknown.
    untimed : int
        Invocations before and between the samples, which warmed up a GPU or the caches.
    disturbed : bool
        Whether too few samples were undisturbed; `seconds` then includes disturbed ones.
    mean_s : float
        Mean seconds of an invocation over all samples taken.
    counts : sequences of ndarray of float64, shape (n, counters, 3)
        By rank and event, value and nanoseconds enabled and running of each counter, over all
        workers of the rank, in each of the samples of `seconds` (see `Counting.by_event`).
    moved_B : ndarray of float64, shape (n,)
        Bytes per invocation that all ranks move beside what is timed, in each of the samples of
        `seconds`; NaN for kernels without such traffic.
    device : mapping
        The columns of a record on the state of a GPU meanwhile; empty for other devices.
    """

    seconds: npt.NDArray[np.float64]
    by_rank: npt.NDArray[np.float64]
    invocations: int
    stop: str
    taken: int
    rejected: int
    moved: int
    cpu_share: float
    throughput: float
    clock_Hz: float
    exchange_s: float
    untimed: int
    disturbed: bool
    mean_s: float
    counts: Sequence[Sequence[npt.NDArray[np.float64]]]
    moved_B: npt.NDArray[np.float64]
    device: Mapping[str, Any]

    @property
    def traffic_GBps(self) -> float:
        """Median bandwidth of what is moved beside the timed accesses, NaN without any."""
        return float(np.median(self.moved_B / self.seconds[:, 0])) / 1e9


class Judge:
    """Judge of the samples of a prepared case, which knows the best rates of its cores.

    Parameters
    ----------
    prepared : Prepared
    beside : Neighbour, optional
        What runs at the same time on purpose.

    Attributes
    ----------
    core_share : float
        Share of their best throughput that the cores need for a sample to be used.
    """

    def __init__(self, prepared: Prepared, beside: Neighbour | None = None) -> None:
        case, obtained = prepared.case, prepared.native.obtained()
        self._accepts_all = small.wanted()
        self.ranks = ranks()
        self.codes = prepared.counting.codes  # of counters that are read during the samples
        self.warms_up = warms_up()
        self._cores = cores()
        self._at_work = cores_at_work(obtained, beside)
        self._exchanging = exchanging_units(obtained, beside) if obtained["threads"] > 1 else ""
        self._sharing = "none" if case.knobs.repetition == "free" else "ends"
        if case.spec.amos:
            self._sharing = "all"
        self.core_share = _core_share(prepared, obtained)

    @property
    def least_throughput(self) -> float:
        """The throughput that the cores need; 0 if it is unknown."""
        best = math.nan if self._accepts_all else self._cores.best(self._at_work)
        return 0.0 if math.isnan(best) else self.core_share * best

    def disturbed(self, seconds: _Floats, conditions: _Floats) -> _Bools:
        """Record the state of the cores, and return which samples were disturbed.

        `seconds` are those of an invocation, `conditions` the columns that the extension adds to
        each sample.
        """
        if self._accepts_all:
            return np.zeros(len(conditions), dtype=np.bool_)
        cpu_share, throughput, _, exchange_s, moves = conditions.T[:5]
        self._cores.add(throughput, self._at_work)
        marked = disturbance.disturbed_samples(
            cpu_share, throughput, moves > 0, self.least_throughput
        )
        if not self._exchanging:
            return marked
        with np.errstate(divide="ignore"):
            self._cores.add(1 / exchange_s, self._exchanging)
        best_s = 1 / self._cores.best(self._exchanging)
        return marked | disturbance.slow_exchanges(seconds, exchange_s, best_s, self._sharing)


def _core_share(prepared: Prepared, obtained: Mapping[str, Any]) -> float:
    """Return the share of their best throughput that the cores need for a sample to be used."""
    topology = _memkern.topology()
    private_B = max(
        (c["size_B"] for c in topology["caches"] if c["instances"] >= topology["cores"]),
        default=0,
    )
    workers = min(int(obtained["threads"]), topology["cores"])
    exceeds_private = obtained["footprint_B"] > 2 * private_B * workers
    case, spec = prepared.case, prepared.case.spec
    flops = spec.flops * spec.width(case) * case.iterations
    if exceeds_private and flops <= _FLOPS_PER_BYTE * case.bytes_B:
        return disturbance.SHARED_CACHE_CORE_SHARE
    return disturbance.CORE_SHARE


def take_samples(
    prepared: Prepared,
    placement: int = 0,
    placements: int = 1,
    beside: Neighbour | None = None,
) -> Samples:
    """Take samples until the undisturbed ones meet the case's stop rule.

    Disturbed samples are repeated, for at most the time of the budget once more. A GPU is warmed up
    immediately before, and watched meanwhile: those during which it slowed down do not count.

    Parameters
    ----------
    prepared : Prepared
    placement, placements : int
        Number of this placement, from 0, and of all; samples and budget are divided among them.
    beside : Neighbour, optional
        What runs at the same time on purpose.
    """
    knobs = prepared.case.knobs
    with exclusive(), prepared.switched():
        warmed = prepared.warm_up()
        watch = gpu.Watch(knobs.device) if knobs.place == GPUS else None
        with watch or contextlib.nullcontext():
            series = _Series(prepared, Judge(prepared, beside), watch, placement, placements)
            stop = series.take()
    return series.samples(stop, warmed)


class _Series:
    """The samples of one placement (see `take_samples`)."""

    def __init__(
        self,
        prepared: Prepared,
        judge: Judge,
        watch: gpu.Watch | None,
        placement: int,
        placements: int,
    ) -> None:
        stop = prepared.case.stop

        def part(total: int) -> int:
            return total * (placement + 1) // placements - total * placement // placements

        self._prepared, self._judge, self._watch = prepared, judge, watch
        self._ranks = judge.ranks
        self._invocations = prepared.invocations
        self._runs = None if stop.runs is None else part(stop.runs)
        self._rule = statistics.StopRule(
            # A single placement may be less precise than all of them.
            target=stop.ci * math.sqrt(placements),
            min_samples=20 if placements == 1 else 6,
            max_samples=max(part(stop.max_samples), 1),
            budget_s=stop.budget_s / placements,
        )
        self._times = 1 + len(prepared.stages)
        self._rows = np.empty((0, self._times + CONDITIONS))
        self._counts = np.empty((0, len(judge.codes), 3))
        self._own = self._moved_B = np.empty(0)
        self._rejected = self._crowded = np.empty(0, dtype=np.bool_)
        self._units = _units_of(prepared)
        self._stolen_s, self._stolen_at = environment.read_steal_s(self._units), time.perf_counter()
        self._untimed, untimed_s = prepared.native.untimed()
        self._begin_s = time.perf_counter() - untimed_s
        self._first_s = math.inf

    def take(self) -> str:
        """Take samples until there are enough, and return why there are no more.

        Raises
        ------
        KeyboardInterrupt
            Sampling was interrupted before the first one.
        """
        reason: str | None = None
        while reason is None:
            reason = self._take_block() or self._end()
        if len(self._rows) == 0:
            raise KeyboardInterrupt
        return reason

    def _elapsed_s(self) -> float:
        # Without the time in which the caches were warmed up.
        return time.perf_counter() - self._prepared.native.untimed()[1] - self._begin_s

    def _cpu_share(self) -> float:
        seconds = self._rows[:, 0]
        return float(self._rows[:, self._times] @ seconds / seconds.sum())

    def _too_few(self) -> bool:
        """Return whether too few samples were undisturbed."""
        if not self._rejected.any():
            return False
        kept, shared = int((~self._rejected).sum()), int(self._crowded.sum())
        lost = self._cpu_share() < disturbance.LEAST_CPU_SHARE
        return lost or disturbance.too_few(kept, shared, len(self._rows))

    def _left_s(self) -> float:
        """Return the seconds in which further samples may start."""
        elapsed, budget_s = self._elapsed_s(), self._rule.budget_s
        if self._runs is None:
            left: float = budget_s * (2 if self._rejected.any() else 1) - elapsed
        else:
            left = self._first_s + budget_s - elapsed if len(self._rows) else math.inf
        return min(left, self._prepared.left_s)

    def _take_block(self) -> str | None:
        """Take some samples, and return whether they were ``interrupted``."""
        prepared = self._prepared
        clean = len(self._rows) - int(self._rejected.sum())
        wanted = (self._runs or self._rule.next_count(clean)) - clean
        # With enough undisturbed ones, more are taken where too much time was lost.
        block = np.full((wanted if wanted > 0 else _MORE, self._rows.shape[1]), np.nan)
        counts = np.zeros((len(block), *self._counts.shape[1:]))
        moved_B = np.full(len(block), np.nan)
        began: list[float] = []
        interrupted = None
        left_s = self._left_s()
        since = time.perf_counter()
        try:
            sample(
                prepared,
                self._judge,
                block,
                self._invocations,
                left_s,
                began if self._watch else None,
                counts,
                moved_B,
            )
        except KeyboardInterrupt:
            interrupted = "interrupted"
        done = ~np.isnan(block[:, 0])
        block = block[done]
        spent_s = self._ranks.slowest(time.perf_counter() - since)
        self._first_s = min(self._first_s, spent_s)
        marked = self._judge.disturbed(block[:, 0], block[:, self._times :])
        if self._watch is not None:
            marked |= self._watch.slowed(began[: len(block)])
        if spent_s > _STEAL_AFTER_S:
            marked |= self._stolen_share() > disturbance.STEAL_SHARE
        slow = block[:, self._times + 1] < self._judge.least_throughput
        marks = self._ranks.largest(np.column_stack((marked, slow))) > 0
        self._counts = np.concatenate((self._counts, counts[done]))
        self._moved_B = np.concatenate((self._moved_B, moved_B[done]))
        self._own = np.concatenate((self._own, block[:, 0]))
        self._rows = np.concatenate((self._rows, _of_all_ranks(block, self._times)))
        self._rejected = np.concatenate((self._rejected, marks[:, 0]))
        self._crowded = np.concatenate((self._crowded, marks[:, 1]))
        return interrupted

    def _stolen_share(self) -> float:
        """Return the share of the time since it was last called that the hypervisor stole."""
        before_s, then = self._stolen_s, self._stolen_at
        self._stolen_s, self._stolen_at = environment.read_steal_s(self._units), time.perf_counter()
        elapsed_s = self._stolen_at - then
        return (self._stolen_s - before_s) / (elapsed_s * len(self._units))

    def _end(self) -> str | None:
        """Return why no more samples are taken; None if more are."""
        kept, rule = self._rows[~self._rejected, 0], self._rule
        elapsed = self._ranks.slowest(self._elapsed_s())
        too_few = self._too_few()
        if self._runs is not None:
            over = elapsed > self._first_s + rule.budget_s
            reason = "runs" if over or (len(kept) >= self._runs and not too_few) else None
        else:
            # The budget is twice as long if too few are undisturbed.
            reason = rule.done(kept, elapsed / 2 if too_few else elapsed)
            if too_few and reason == "ci" and elapsed < 2 * rule.budget_s:
                reason = None
        return "budget" if reason is None and not self._prepared.left_s else reason

    def samples(self, stop: str, warmed: int) -> Samples:
        """Return the samples that are used, after so many invocations that `warmed` up a GPU."""
        rejected, conditions = self._rejected, self._rows[:, self._times :]
        disturbed = self._too_few()
        kept = ~rejected & (np.cumsum(~rejected) <= (self._runs or len(rejected)))
        if disturbed:
            # As many samples as were requested, those with the most processor time first.
            order = np.argsort(-conditions[:, 0], kind="stable")
            kept = np.isin(np.arange(len(rejected)), order[: self._runs])
        every, prepared = self._ranks.every, self._prepared
        return Samples(
            seconds=self._rows[kept, : self._times],
            by_rank=np.array(every(self._own[kept])),
            invocations=self._invocations,
            stop=stop,
            taken=len(rejected),
            rejected=int(rejected.sum()),
            moved=int((conditions[:, 4] > 0).sum()),
            cpu_share=self._cpu_share(),
            throughput=median(conditions[:, 1]),
            clock_Hz=median(conditions[:, 2]),
            exchange_s=median(conditions[:, 3]),
            untimed=warmed + prepared.native.untimed()[0] - self._untimed,
            disturbed=disturbed,
            mean_s=float(self._rows[:, 0].mean()),
            counts=every(prepared.counting.by_event(self._counts[kept])),
            moved_B=np.sum(every(self._moved_B[kept]), axis=0),
            device=self._watch.columns if self._watch else {},
        )


def sample(
    prepared: Prepared,
    judge: Judge,
    out: _Floats,
    invocations: int,
    seconds: float,
    began: list[float] | None = None,
    counts: _Floats | None = None,
    moved_B: _Floats | None = None,
    parts: Sequence[tuple[int, int]] = (),
) -> None:
    """Fill rows of `out` with samples that all ranks start at the same time.

    Parameters
    ----------
    prepared : Prepared
    judge : Judge
    out : ndarray of float64, shape (n, columns)
        See the extension's `Prepared.sample`; only rows of finished samples are written.
    invocations : int
        Invocations per sample.
    seconds : float
        No sample starts later, but for the first.
    began : list of float, optional
        The times at which samples started are appended, on the clock of `time.perf_counter`.
    counts : ndarray of float64, shape (n, counters, 3), optional
        Gets the counts of `Prepared.counting` during each sample.
    moved_B : ndarray of float64, shape (n,), optional
        Gets the bytes per invocation that are moved beside what is timed.
    parts : sequence of (int, int), optional
        For each sample, begin and end of the iterations that are run once, instead of invocations.
    """
    options: dict[str, Any] = {"warms_up": judge.warms_up}
    if parts:
        options["parts"] = parts
    if counts is not None and judge.codes:
        options |= {"events": judge.codes, "counts": counts}
    if moved_B is not None:
        options["moved_B"] = moved_B
    least = judge.least_throughput
    if judge.ranks.size == 1 and began is None:
        prepared.native.sample(out, invocations, seconds, least, **options)
        return
    end = math.inf

    def start() -> bool:
        nonlocal end
        over = judge.ranks.align(time.perf_counter() > end)
        if math.isinf(end):
            end = time.perf_counter() + seconds
        if began is not None:
            began.append(time.perf_counter())
        return not over

    prepared.native.sample(out, invocations, seconds, least, start, **options)


def warms_up() -> bool:
    """Return whether invocations that are not timed precede the first sample."""
    return not small.wanted()


def halo_share(prepared: Prepared) -> float:
    """Return the share of an invocation that this rank spends on a blocking exchange.

    It is the median over a few samples in which the parts of an invocation are timed; NaN without
    an exchange, or if it overlaps with iterations.
    """
    if prepared.case.halo != "blocking" or prepared.part is None or ranks().size == 1:
        return math.nan
    steps = int(prepared.native.obtained()["steps"])
    rows = np.full((_HALO_SAMPLES, 1 + steps + CONDITIONS), np.nan)
    sample(prepared, Judge(prepared), rows, prepared.invocations, math.inf)
    kernel = rows[:, 1 if prepared.part.exchange.adds else steps]
    return float(np.median(1 - kernel / rows[:, 0]))


def _of_all_ranks(rows: npt.NDArray[np.float64], times: int) -> npt.NDArray[np.float64]:
    """Return the longest times, and the worst conditions, of all ranks in each sample."""
    # Of the conditions the time of an exchange and moves are worse the larger they are.
    sign = np.ones(rows.shape[1])
    sign[times : times + 3] = -1
    return sign * ranks().largest(sign * rows)


def _units_of(prepared: Prepared) -> set[int]:
    """Return the processing units on which the workers may run."""
    pin = prepared.native.obtained()["pin"]
    if prepared.device is not None or pin in ("", "none"):
        return set(os.sched_getaffinity(0))
    return {int(unit) for unit in pin.split(",")}


def median(values: npt.NDArray[np.float64]) -> float:
    """Return the median of the positive values, NaN if there are none."""
    known = values[values > 0]
    return float(np.median(known)) if len(known) else math.nan
