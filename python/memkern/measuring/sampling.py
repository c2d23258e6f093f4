"""Samples of a prepared case: how many are taken, and which count."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from memkern import _memkern, small, statistics
from memkern.machine import environment
from memkern.measuring import disturbance
from memkern.measuring.cores import cores, cores_at_work

if TYPE_CHECKING:
    from memkern.measuring.prepared import Prepared

CONDITIONS = 3  # columns that the extension adds to each sample
_FLOPS_PER_BYTE = 0.5  # with more, the core may limit a kernel wherever its data lie
_STEAL_AFTER_S = 0.25  # the system counts stolen time in hundredths of a second


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


def take(prepared: Prepared, placement: int, placements: int) -> Samples:
    """Take the samples of one placement (see `Prepared.sample`)."""
    stop = prepared.case.stop
    invocations = prepared.invocations

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
    times = 1 + len(prepared.stages)
    rows = np.empty((0, times + CONDITIONS))
    lost = np.empty(0, dtype=np.bool_)
    units = len(prepared.native.obtained()["pin"].split(",")) if prepared.device is None else 1
    begin = time.perf_counter()
    first_s = math.inf
    reason: str | None = None

    def too_few() -> bool:
        shared = rows[:, times + 1] < least_throughput(prepared)
        return disturbance.too_few(int((~lost).sum()), int(shared.sum()), len(rows))

    while reason is None:
        clean = len(rows) - int(lost.sum())
        block = np.full(((runs or rule.next_count(clean)) - clean, rows.shape[1]), np.nan)
        elapsed = time.perf_counter() - begin
        if runs is not None:
            left = math.inf if not len(rows) else first_s + rule.budget_s - elapsed
        else:
            left = rule.budget_s * (2 if lost.any() else 1) - elapsed
        left = min(left, prepared.left_s)
        stolen, since = environment.read_steal_s(), time.perf_counter()
        try:
            prepared.native.sample(block, invocations, left, least_throughput(prepared))
        except KeyboardInterrupt:
            reason = "interrupted"
        block = block[~np.isnan(block[:, 0])]
        spent = time.perf_counter() - since
        first_s = min(first_s, spent)
        rows = np.concatenate((rows, block))
        marked = marks(prepared, block[:, times:])
        if spent > _STEAL_AFTER_S:
            marked |= environment.read_steal_s() - stolen > disturbance.STEAL_SHARE * spent * units
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
        if reason is None and not prepared.left_s:
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
        throughput=median(conditions[:, 1]),
        clock_Hz=median(conditions[:, 2]),
        disturbed=disturbed,
    )


def least_throughput(prepared: Prepared) -> float:
    """Return what the cores must do for samples to count; 0 before that is known."""
    if small.wanted():
        return 0.0
    best = cores().best(cores_at_work(prepared.native.obtained()))
    return prepared.core_share * best if best == best else 0.0


def core_share(prepared: Prepared) -> float:
    """Which share of their best its cores must do for a sample to count."""
    obtained, topology = prepared.native.obtained(), _memkern.topology()
    private_B = max(
        (c["size_B"] for c in topology["caches"] if c["instances"] >= topology["cores"]),
        default=0,
    )
    workers = min(int(obtained["threads"]), topology["cores"])
    beyond = obtained["footprint_B"] > 2 * private_B * workers
    case, spec = prepared.case, prepared.case.spec
    flops = spec.flops * spec.width(case) * case.iterations
    if beyond and flops <= _FLOPS_PER_BYTE * case.bytes_B:
        return disturbance.SHARED_CACHE_CORE_SHARE
    return disturbance.CORE_SHARE


def marks(prepared: Prepared, conditions: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return which samples were disturbed, by the columns that the extension adds."""
    if small.wanted():
        return np.zeros(len(conditions), dtype=np.bool_)
    cores().add(conditions[:, 1], cores_at_work(prepared.native.obtained()))
    return disturbance.marks(conditions[:, 0], conditions[:, 1], least_throughput(prepared))


def median(values: npt.NDArray[np.float64]) -> float:
    """Return the median of what is known, NaN if that is nothing."""
    known = values[values > 0]
    return float(np.median(known)) if len(known) else math.nan
