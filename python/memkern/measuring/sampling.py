"""Sampling of a prepared case: how many samples are taken, and which of them are used."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from memkern import _memkern, small, statistics
from memkern.machine import environment
from memkern.measuring import disturbance
from memkern.measuring.cores import cores, cores_at_work, exchanging_units
from memkern.measuring.ranks import ranks

if TYPE_CHECKING:
    from memkern.measuring.prepared import Prepared

CONDITIONS = 5  # columns that the extension adds to each sample
_FLOPS_PER_BYTE = 0.5  # above, the core may limit a kernel even where its data are in memory
_MORE = 5  # samples that are taken at a time beyond those that were requested
_STEAL_AFTER_S = 0.25  # the system counts stolen time in hundredths of a second


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

    @property
    def traffic_GBps(self) -> float:
        """Median bandwidth of what is moved beside the timed accesses, NaN without any."""
        return float(np.median(self.moved_B / self.seconds[:, 0])) / 1e9


def take_samples(prepared: Prepared, placement: int, placements: int) -> Samples:
    """Take the samples of one placement (see `Prepared.sample`)."""
    stop = prepared.case.stop
    invocations = prepared.invocations

    def part(total: int) -> int:
        return total * (placement + 1) // placements - total * placement // placements

    runs = None if stop.runs is None else part(stop.runs)
    rule = statistics.StopRule(
        # A single placement may be less precise than all of them.
        target=stop.ci * math.sqrt(placements),
        min_samples=20 if placements == 1 else 6,
        max_samples=max(part(stop.max_samples), 1),
        budget_s=stop.budget_s / placements,
    )
    times = 1 + len(prepared.stages)
    rows = np.empty((0, times + CONDITIONS))
    counting = prepared.counting
    counts = np.empty((0, len(counting.codes), 3))
    own = moved_B = np.empty(0)
    rejected = crowded = np.empty(0, dtype=np.bool_)
    units = _units_of(prepared)
    untimed, untimed_s = prepared.native.untimed()
    begin = time.perf_counter() - untimed_s
    first_s = math.inf
    reason: str | None = None

    def elapsed_s() -> float:
        # Without the time in which the caches were warmed up.
        return time.perf_counter() - prepared.native.untimed()[1] - begin

    def cpu_share() -> float:
        return float(rows[:, times] @ rows[:, 0] / rows[:, 0].sum())

    def too_few() -> bool:
        if not rejected.any():
            return False
        lost = cpu_share() < disturbance.LEAST_CPU_SHARE
        return lost or disturbance.too_few(int((~rejected).sum()), int(crowded.sum()), len(rows))

    while reason is None:
        clean = len(rows) - int(rejected.sum())
        wanted = (runs or rule.next_count(clean)) - clean
        # With enough undisturbed ones, more are taken where too much time was lost.
        block = np.full((wanted if wanted > 0 else _MORE, rows.shape[1]), np.nan)
        began: list[float] = []
        elapsed = elapsed_s()
        if runs is not None:
            left = math.inf if not len(rows) else first_s + rule.budget_s - elapsed
        else:
            left = rule.budget_s * (2 if rejected.any() else 1) - elapsed
        left = min(left, prepared.left_s)
        block_counts = np.zeros((len(block), *counts.shape[1:]))
        block_moved_B = np.full(len(block), np.nan)
        stolen, since = environment.read_steal_s(units), time.perf_counter()
        try:
            sample(prepared, block, invocations, left, began, block_counts, block_moved_B)
        except KeyboardInterrupt:
            reason = "interrupted"
        done = ~np.isnan(block[:, 0])
        block = block[done]
        counts = np.concatenate((counts, block_counts[done]))
        moved_B = np.concatenate((moved_B, block_moved_B[done]))
        spent = ranks().slowest(time.perf_counter() - since)
        first_s = min(first_s, spent)
        marked = mark_disturbed(prepared, block[:, 0], block[:, times:])
        if prepared.watch is not None:
            marked |= prepared.watch.slowed(began[: len(block)])
        if spent > _STEAL_AFTER_S:
            allowed_s = disturbance.STEAL_SHARE * spent * len(units)
            marked |= environment.read_steal_s(units) - stolen > allowed_s
        slow = block[:, times + 1] < least_throughput(prepared)
        marks = ranks().largest(np.column_stack((marked, slow))) > 0
        own = np.concatenate((own, block[:, 0]))
        rows = np.concatenate((rows, _of_all_ranks(block, times)))
        rejected = np.concatenate((rejected, marks[:, 0]))
        crowded = np.concatenate((crowded, marks[:, 1]))
        if reason is not None:
            break
        kept = rows[~rejected, 0]
        elapsed = ranks().slowest(elapsed_s())
        if runs is not None:
            over = elapsed > first_s + rule.budget_s
            reason = "runs" if over or (len(kept) >= runs and not too_few()) else None
        elif too_few():
            # The budget is twice as long.
            reason = rule.done(kept, elapsed / 2)
            if reason == "ci" and elapsed < 2 * rule.budget_s:
                reason = None
        else:
            reason = rule.done(kept, elapsed)
        if reason is None and not prepared.left_s:
            reason = "budget"
    if len(rows) == 0:
        raise KeyboardInterrupt
    conditions = rows[:, times:]
    disturbed = too_few()
    kept_rows = ~rejected & (np.cumsum(~rejected) <= (runs or len(rows)))
    if disturbed:
        # As many samples as were requested, those with the most processor time first.
        order = np.argsort(-conditions[:, 0], kind="stable")
        kept_rows = np.isin(np.arange(len(rows)), order[:runs])
    return Samples(
        seconds=rows[kept_rows, :times],
        by_rank=np.array(ranks().every(own[kept_rows])),
        invocations=invocations,
        stop=reason,
        taken=len(rows),
        rejected=int(rejected.sum()),
        moved=int((conditions[:, 4] > 0).sum()),
        cpu_share=cpu_share(),
        throughput=median(conditions[:, 1]),
        clock_Hz=median(conditions[:, 2]),
        exchange_s=median(conditions[:, 3]),
        untimed=prepared.native.untimed()[0] - untimed,
        disturbed=disturbed,
        mean_s=float(rows[:, 0].mean()),
        counts=ranks().every(counting.by_event(counts[kept_rows])),
        moved_B=np.sum(ranks().every(moved_B[kept_rows]), axis=0),
    )


def sample(
    prepared: Prepared,
    out: npt.NDArray[np.float64],
    invocations: int,
    seconds: float,
    began: list[float] | None = None,
    counts: npt.NDArray[np.float64] | None = None,
    moved_B: npt.NDArray[np.float64] | None = None,
    parts: Sequence[tuple[int, int]] = (),
) -> None:
    """Fill rows of `out` with samples that all ranks start at the same time.

    Parameters
    ----------
    prepared : Prepared
    out : ndarray of float64, shape (n, columns)
        See the extension's `Prepared.sample`; only rows of finished samples are written.
    invocations : int
        Invocations per sample.
    seconds : float
        No sample starts later, but for the first.
    began : list of float, optional
        Where the state of a GPU is read, the times at which samples started are appended, on the
        clock of `time.perf_counter`.
    counts : ndarray of float64, shape (n, counters, 3), optional
        Gets the counts of `Prepared.counting` during each sample.
    moved_B : ndarray of float64, shape (n,), optional
        Gets the bytes per invocation that are moved beside what is timed.
    parts : sequence of (int, int), optional
        For each sample, begin and end of the iterations that are run once, instead of invocations.
    """
    options: dict[str, Any] = {"warms_up": warms_up()}
    if parts:
        options["parts"] = parts
    if counts is not None and (codes := prepared.counting.codes):
        options |= {"events": codes, "counts": counts}
    if moved_B is not None:
        options["moved_B"] = moved_B
    least = least_throughput(prepared)
    if ranks().size == 1 and prepared.watch is None:
        prepared.native.sample(out, invocations, seconds, least, **options)
        return
    end = math.inf

    def start() -> bool:
        nonlocal end
        over = ranks().align(time.perf_counter() > end)
        if math.isinf(end):
            end = time.perf_counter() + seconds
        if began is not None:
            began.append(time.perf_counter())
        return not over

    prepared.native.sample(out, invocations, seconds, least, start, **options)


def warms_up() -> bool:
    """Return whether invocations that are not timed precede the first sample."""
    return not small.wanted()


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


def least_throughput(prepared: Prepared) -> float:
    """Return the throughput that the cores need for samples to be used; 0 if it is unknown."""
    if small.wanted():
        return 0.0
    best = cores().best(cores_at_work(prepared.native.obtained(), prepared.beside))
    return 0.0 if math.isnan(best) else prepared.core_share * best


def core_share(prepared: Prepared) -> float:
    """Return the share of their best throughput that the cores need for a sample to be used."""
    obtained, topology = prepared.native.obtained(), _memkern.topology()
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


def mark_disturbed(
    prepared: Prepared, seconds: npt.NDArray[np.float64], conditions: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Record the state of the cores, and return which samples were disturbed.

    `seconds` are those of an invocation, `conditions` the columns that the extension adds to each
    sample.
    """
    if small.wanted():
        return np.zeros(len(conditions), dtype=np.bool_)
    obtained = prepared.native.obtained()
    cores().add(conditions[:, 1], cores_at_work(obtained, prepared.beside))
    least = least_throughput(prepared)
    cpu_share, throughput, moved = conditions[:, 0], conditions[:, 1], conditions[:, 4] > 0
    marked = disturbance.disturbed_samples(cpu_share, throughput, moved, least)
    if obtained["threads"] < 2:
        return marked
    which = exchanging_units(obtained, prepared.beside)
    with np.errstate(divide="ignore"):
        cores().add(1 / conditions[:, 3], which)
    case = prepared.case
    sharing = "all" if case.spec.amos else "none" if case.knobs.repetition == "free" else "ends"
    best_s = 1 / cores().best(which)
    return marked | disturbance.slow_exchanges(seconds, conditions[:, 3], best_s, sharing)


def median(values: npt.NDArray[np.float64]) -> float:
    """Return the median of the positive values, NaN if there are none."""
    known = values[values > 0]
    return float(np.median(known)) if len(known) else math.nan
