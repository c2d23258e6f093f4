"""Sampling of a prepared case: the number of samples, and the choice of those that are used."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any

import numpy as np

from memkern import small, statistics
from memkern.engine.processes.communication import exclusive, ranks
from memkern.engine.recording.samples import (
    CONDITIONS,
    Bools,
    Floats,
    Samples,
    disturbed_samples,
    median,
    too_few,
)
from memkern.engine.sampling.activity import names_of_cores
from memkern.engine.sampling.prepared import Prepared
from memkern.limits import throttled_s
from memkern.machine import gpu
from memkern.machine.topology import limiting_quota

# Of these, the smallest value of all ranks counts; of the others, the largest.
_BEST_LARGE = ("cpu_share", "throughput", "clock_Hz", "exchange_least_s")
_MORE = 5  # samples per block beyond the requested ones
# If the number of samples is fixed, disturbed ones are repeated within the budget, for at most this
# multiple of the time of the first samples plus this time.
_TIMES_AGAIN, _LEAST_AGAIN_S = 20, 0.01
_HALO_SAMPLES = 5  # in which an exchange is timed separately


class Judge:
    """Judge of the samples of a prepared case.

    Parameters
    ----------
    prepared : Prepared
    """

    def __init__(self, prepared: Prepared) -> None:
        self._accepts_all = small.wanted()
        self.ranks = ranks()
        # Of counters that are read during the samples.
        self.codes = prepared.counting.codes if prepared.counting else []
        self.rates = prepared.host.cores
        self.cores, self.exchanging = names_of_cores(prepared.native.obtained())

    def disturbed(self, conditions: Floats, stopped: Bools | bool = False) -> Bools:
        """Store the rates of the cores, and return which samples were disturbed.

        `conditions` are the columns that the extension adds to each sample. Samples that a quota
        had to stop are not disturbed.
        """
        if self._accepts_all:
            return np.zeros(len(conditions), dtype=np.bool_)
        found = dict(zip(CONDITIONS, conditions.T, strict=True))
        self.rates.add(found["throughput"], self.cores)
        if self.exchanging:
            with np.errstate(divide="ignore"):
                self.rates.add(1 / found["exchange_s"], self.exchanging)
        return disturbed_samples(
            np.where(stopped, 0.0, found["waited_share"]), found["cpu_share"], found["moved"] > 0
        )


class Throttling:
    """Time for which a quota stopped the workers of a prepared case.

    A sample that takes longer than the workers may run in a period of the quota always includes a
    stop, and so do half of the samples that take half as long.

    Parameters
    ----------
    prepared : Prepared
    """

    def __init__(self, prepared: Prepared) -> None:
        quota = limiting_quota() if prepared.case.knobs.backend.on_processors else None
        self._threads = int(prepared.native.obtained()["threads"])
        in_period_s = quota.processors * quota.period_s if quota else math.inf
        self._share_s = in_period_s / self._threads
        self._begin_s = self._last_s = throttled_s() if quota else math.nan

    def stopped(self, seconds: Floats, waited_share: Floats, cpu_share: Floats) -> Bools:
        """Return which of some samples include time for which the quota had to stop a worker.

        There are none if, by the system, workers waited most of the time for another reason.
        """
        long = np.nan_to_num(cpu_share, nan=1.0) * seconds > self._share_s / 2
        if not long.any():
            return long
        before_s, self._last_s = self._last_s, throttled_s()
        waited_s = float(np.nan_to_num(waited_share) @ seconds)
        return long & (self._last_s - before_s >= waited_s / 2)

    def share(self, seconds: float) -> float:
        """Return the share of the time of all samples, NaN without a quota."""
        if math.isinf(self._share_s):
            return math.nan
        return min((throttled_s() - self._begin_s) / (seconds * self._threads), 1.0)


def take_samples(prepared: Prepared, placement: int = 0, placements: int = 1) -> Samples:
    """Take samples until the undisturbed ones meet the case's stop rule.

    Disturbed samples are repeated, for at most the time of the budget once more. A GPU is warmed up
    immediately before, and monitored: samples during which it slowed down do not count.

    Parameters
    ----------
    prepared : Prepared
    placement, placements : int
        Number of this placement, from 0, and of all; samples and budget are divided among them.
    """
    knobs = prepared.case.knobs
    with exclusive(), prepared.switched():
        warmed = prepared.warm_up()
        watch = gpu.Watch(knobs.device) if knobs.backend.is_accelerator else None
        with watch or contextlib.nullcontext():
            series = _Series(prepared, Judge(prepared), watch, placement, placements)
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
            target=stop.ci,
            min_samples=20 if placements == 1 else 6,
            max_samples=max(part(stop.max_samples), 1),
            budget_s=stop.usual_s / placements,
        )
        self._times = 1 + len(prepared.stages)
        self._rows = np.empty((0, self._times + len(CONDITIONS)))
        self._counts = np.empty((0, len(judge.codes), 3))
        self._own = self._moved_B = np.empty(0)
        self._rejected = np.empty(0, dtype=np.bool_)
        self._quota = Throttling(prepared)
        self._untimed, untimed_s = prepared.native.untimed()
        self._begin_s = time.perf_counter() - untimed_s
        self._first_s = math.inf

    def take(self) -> str:
        """Take samples until there are enough, and return the reason for the end.

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
        # Excludes the time for warming up the caches.
        return time.perf_counter() - self._prepared.native.untimed()[1] - self._begin_s

    def _share(self, condition: str) -> float:
        """Return a share of the time, over all samples."""
        seconds, share = self._rows[:, 0], self._condition(condition)
        known = ~np.isnan(share)
        return (
            float(share[known] @ seconds[known] / seconds[known].sum()) if known.any() else math.nan
        )

    def _condition(self, name: str) -> Floats:
        return self._rows[:, self._times + CONDITIONS.index(name)]

    def _too_few(self) -> bool:
        """Return whether too few samples were undisturbed."""
        return too_few(int((~self._rejected).sum()), len(self._rows))

    def _left_s(self) -> float:
        """Return the remaining seconds in which samples may start."""
        elapsed, budget_s = self._elapsed_s(), self._rule.budget_s
        if self._runs is None:
            left: float = budget_s * (2 if self._rejected.any() else 1) - elapsed
        else:
            left = self._runs_s - elapsed if len(self._rows) else math.inf
        return min(left, self._prepared.left_s)

    @property
    def _runs_s(self) -> float:
        """Seconds for a fixed number of runs, including repetitions of disturbed ones."""
        again_s = _TIMES_AGAIN * self._first_s + _LEAST_AGAIN_S
        return self._first_s + min(self._rule.budget_s, again_s)

    def _take_block(self) -> str | None:
        """Take some samples, and return whether they were ``interrupted``."""
        prepared = self._prepared
        clean = len(self._rows) - int(self._rejected.sum())
        wanted = (self._runs or self._rule.next_count(clean)) - clean
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
                counts=counts,
                moved_B=moved_B,
            )
        except KeyboardInterrupt:
            interrupted = "interrupted"
        done = ~np.isnan(block[:, 0])
        block = block[done]
        self._first_s = min(self._first_s, self._ranks.slowest(time.perf_counter() - since))
        busy_s = self._invocations * block[:, 0]
        found = dict(zip(CONDITIONS, block[:, self._times :].T, strict=True))
        stopped = self._quota.stopped(busy_s, found["waited_share"], found["cpu_share"])
        marked = self._judge.disturbed(block[:, self._times :], stopped)
        if self._watch is not None:
            marked |= self._watch.slowed(began[: len(block)])
        marked = self._ranks.largest(marked.astype(np.float64)) > 0
        self._counts = np.concatenate((self._counts, counts[done]))
        self._moved_B = np.concatenate((self._moved_B, moved_B[done]))
        self._own = np.concatenate((self._own, block[:, 0]))
        self._rows = np.concatenate((self._rows, _of_all_ranks(block, self._times)))
        self._rejected = np.concatenate((self._rejected, marked))
        return interrupted

    def _end(self) -> str | None:
        """Return why no more samples are taken; None if more are."""
        kept, rule = self._rows[~self._rejected, 0], self._rule
        elapsed = self._ranks.slowest(self._elapsed_s())
        too_few = self._too_few()
        if self._runs is not None:
            over = elapsed > self._runs_s
            reason = "runs" if over or (len(kept) >= self._runs and not too_few) else None
        else:
            # The budget is twice as long if too few are undisturbed.
            reason = rule.done(kept, elapsed / 2 if too_few else elapsed)
            if too_few and reason == "ci" and elapsed < 2 * rule.budget_s:
                reason = None
        return "budget" if reason is None and not self._prepared.left_s else reason

    def samples(self, stop: str, warmed: int) -> Samples:
        """Return the used samples; `warmed` invocations have warmed up a GPU."""
        rejected, disturbed = self._rejected, self._too_few()
        kept = ~rejected & (np.cumsum(~rejected) <= (self._runs or len(rejected)))
        if disturbed:
            # As many samples as were requested, those with the most processor time first.
            order = np.argsort(-self._condition("cpu_share"), kind="stable")
            kept = np.isin(np.arange(len(rejected)), order[: self._runs])
        every, prepared = self._ranks.every, self._prepared
        return Samples(
            cores=self._judge.cores,
            # States of several ranks differ.
            exchanging=self._judge.exchanging if self._ranks.size == 1 else "",
            seconds=self._rows[kept, : self._times],
            by_rank=np.array(every(self._own[kept])),
            invocations=self._invocations,
            stop=stop,
            taken=len(rejected),
            rejected=int(rejected.sum()),
            cpu_share=self._share("cpu_share"),
            waited_share=self._share("waited_share"),
            absent_share=self._share("absent_share"),
            throttled_share=self._quota.share(self._invocations * float(self._rows[:, 0].sum())),
            throughput=median(self._condition("throughput")),
            clock_Hz=median(self._condition("clock_Hz")),
            exchange_s=np.column_stack(
                [self._condition(name)[kept] for name in ("exchange_least_s", "exchange_s")]
            ),
            untimed=warmed + prepared.native.untimed()[0] - self._untimed,
            disturbed=disturbed,
            mean_s=float(self._rows[:, 0].mean()),
            counts=every(
                prepared.counting.by_event(self._counts[kept]) if prepared.counting else []
            ),
            moved_B=np.sum(every(self._moved_B[kept]), axis=0),
            device=self._watch.columns if self._watch else {},
        )


def sample(
    prepared: Prepared,
    judge: Judge,
    out: Floats,
    invocations: int,
    seconds: float,
    began: list[float] | None = None,
    **options: Any,
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
        No sample except the first starts after this time.
    began : list of float, optional
        The times at which samples started are appended, on the clock of `time.perf_counter`.
    **options
        Of the extension's `Prepared.sample`: ``parts`` and ``candidates`` of each sample; whether
        the ``cores`` are measured too, which takes longer than a few short samples; ``counts`` of
        the events of `judge`, and ``moved_B`` of background traffic, which are written.
    """
    if judge.codes and "counts" in options:
        options["events"] = judge.codes
    else:
        options.pop("counts", None)
    options["warms_up"] = warms_up()
    if judge.ranks.size == 1 and began is None:
        prepared.native.sample(out, invocations, seconds, **options)
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

    prepared.native.sample(out, invocations, seconds, start, **options)


def warms_up() -> bool:
    """Return whether untimed invocations precede the first sample."""
    return not small.wanted()


def halo_share(prepared: Prepared) -> float:
    """Return the share of an invocation that this rank spends on a blocking exchange.

    It is the median over a few samples with separately timed parts of an invocation; NaN without an
    exchange, or if the exchange overlaps with iterations.
    """
    if prepared.case.halo != "blocking" or prepared.part is None or ranks().size == 1:
        return math.nan
    steps = int(prepared.native.obtained()["steps"])
    rows = np.full((_HALO_SAMPLES, 1 + steps + len(CONDITIONS)), np.nan)
    sample(prepared, Judge(prepared), rows, prepared.invocations, math.inf)
    return float(np.median(1 - rows[:, 1 if prepared.part.exchange.adds else steps] / rows[:, 0]))


def _of_all_ranks(rows: Floats, times: int) -> Floats:
    """Return the longest times, and the worst conditions, of all ranks in each sample."""
    sign = np.ones(rows.shape[1])
    sign[times:] = [-1 if name in _BEST_LARGE else 1 for name in CONDITIONS]
    return sign * ranks().largest(sign * rows)
