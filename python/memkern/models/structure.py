"""Measured structure of a memory hierarchy: capacities, reaches of TLBs, sizes of lines."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError

# Values of a plateau differ by at most the first factor, medians of adjacent plateaus by more than
# the second.
_SPREAD, _STEP = 1.15, 1.3
_LEAST_POINTS = 3
# Cycles added to costs of translation before comparing them, since costs near zero differ by large,
# meaningless factors.
_FLOOR_CYCLES = 2.0
# A hit in a second level costs 5 to 10 cycles, a walk of the page table in caches 20 or more.
_MOST_TLB_CYCLES = 16.0
_MOST_TLB_LEVELS = 2
# A second access in another line takes longer by more than this share of the excess at the largest
# distance, and by more than this number of cycles.
_MISS_SHARE, _MISS_CYCLES = 0.05, 2.0


@dataclass(frozen=True)
class Plateau:
    """Sizes over which a value hardly changes.

    Attributes
    ----------
    value : float
        Median of the values.
    begin_B, end_B : float
        Smallest and largest size.
    """

    value: float
    begin_B: float
    end_B: float


def plateaus(sizes_B: npt.ArrayLike, values: npt.ArrayLike) -> list[Plateau]:
    """Return the plateaus of a curve over sizes.

    The longest run of points within 15 % of each other is a plateau, then the longest run of the
    remaining points, down to three points; adjacent plateaus whose medians differ by less than 30 %
    are merged. The capacity of a level lies between the end of one plateau and the beginning of the
    next; a virtual machine may have only a part of a shared cache.

    Parameters
    ----------
    sizes_B : array_like of float, shape (n,)
        Different sizes in bytes.
    values : array_like of float, shape (n,)
        Positive values, such as latencies in ns.

    Returns
    -------
    list of Plateau
        In ascending order of the sizes.

    Raises
    ------
    InputError
        The arrays differ in length, or a value is not positive.
    """
    sizes, found = np.asarray(sizes_B, dtype=float), np.asarray(values, dtype=float)
    if sizes.shape != found.shape or sizes.ndim != 1:
        raise InputError(
            f"sizes and values must have the same length, not {sizes.size} and {found.size}"
        )
    if not (found > 0).all() or not (sizes > 0).all():
        raise InputError("sizes and values must be positive")
    order = np.argsort(sizes)
    sizes, found = sizes[order], found[order]
    free = np.ones(len(sizes), dtype=bool)
    runs: list[tuple[int, int]] = []
    while (run := _longest(found, free)) is not None:
        runs.append(run)
        free[run[0] : run[1]] = False
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(runs):
        if joined:
            first, last = joined[-1]
            if 1 / _STEP < np.median(found[begin:end]) / np.median(found[first:last]) < _STEP:
                joined[-1] = (first, end)
                continue
        joined.append((begin, end))
    return [
        Plateau(float(np.median(found[begin:end])), float(sizes[begin]), float(sizes[end - 1]))
        for begin, end in joined
    ]


def tlb_levels(sizes_B: npt.ArrayLike, costs_ns: npt.ArrayLike, cycle_ns: float) -> list[Plateau]:
    """Return the levels of TLBs from the cost of translation over the size of the pages.

    A level is one of the first two plateaus of the cost (see `plateaus`); its reach ends where the
    cost rises to the next step. Two cycles are added to each cost before the comparison. A plateau
    of more than 16 cycles is a walk of the page table, whose steps are due to the caches that hold
    the table.

    Parameters
    ----------
    sizes_B : array_like of float, shape (n,)
        Different total sizes in bytes of the pages in use.
    costs_ns : array_like of float, shape (n,)
        Time of a load from these pages minus the time from the same number of adjacent lines, in
        ns. Negative values count as zero.
    cycle_ns : float
        Time of a cycle of the core in ns.

    Returns
    -------
    list of Plateau
        In ascending order: the cost, the smallest size and the reach.

    Raises
    ------
    InputError
        The arrays differ in length, a size or the cycle is not positive, or a cost is not a number.
    """
    if not cycle_ns > 0:
        raise InputError(f"the time of a cycle must be positive, not {cycle_ns}")
    floor = _FLOOR_CYCLES * cycle_ns
    sizes, costs = np.asarray(sizes_B, dtype=float), np.asarray(costs_ns, dtype=float)
    values = np.maximum(costs, 0) + floor
    found = []
    for plateau in plateaus(sizes, values)[:_MOST_TLB_LEVELS]:
        if plateau.value - floor > _MOST_TLB_CYCLES * cycle_ns:
            break
        higher = sizes[(values >= _STEP * plateau.value) & (sizes > plateau.end_B)]
        reach_B = sizes[sizes < higher.min(initial=np.inf)].max()
        found.append(Plateau(plateau.value - floor, plateau.begin_B, float(reach_B)))
    return found


def line_size(distances_B: npt.ArrayLike, longer_ns: npt.ArrayLike, cycle_ns: float) -> float:
    """Return the size of a cache line from pairs of accesses.

    The first access of each pair misses. The line size is the least distance at and beyond which
    the second access takes longer than at the smallest distance: by two cycles, and by 5 % of the
    excess at the largest distance. A line that a prefetcher loads into L1 in time counts as part of
    the previous line. A line that it loads into L2 does not, unless a miss takes twenty times as
    long: pairs in a buffer that fits in L2 are most accurate.

    Parameters
    ----------
    distances_B : array_like of float, shape (n,)
        Distances in bytes, ascending powers of two.
    longer_ns : array_like of float, shape (n,)
        Time of the second access minus its time at the smallest distance, in ns.
    cycle_ns : float
        Time of a cycle of the core in ns.

    Returns
    -------
    float
        Line size in bytes; NaN if the largest distance takes no longer.

    Raises
    ------
    InputError
        The arrays differ in length or have fewer than three values, distances do not ascend, the
        cycle is not positive, or a time is not a number.
    """
    distances, longer = np.asarray(distances_B, dtype=float), np.asarray(longer_ns, dtype=float)
    if distances.shape != longer.shape or distances.ndim != 1:
        raise InputError(
            f"distances and times must have the same length, not {distances.size} and {longer.size}"
        )
    if len(distances) < _LEAST_POINTS or not (np.diff(distances) > 0).all():
        raise InputError(f"there must be at least {_LEAST_POINTS} distances in ascending order")
    if not (np.isfinite(longer).all() and cycle_ns > 0):
        raise InputError("times must be finite, and the time of a cycle positive")
    missed = longer > max(_MISS_SHARE * longer[-1], _MISS_CYCLES * cycle_ns)
    if not missed[-1] or missed.all():
        return math.nan
    return float(distances[len(missed) - int(np.argmin(missed[::-1]))])


def _longest(
    values: npt.NDArray[np.float64], free: npt.NDArray[np.bool_]
) -> tuple[int, int] | None:
    """Return begin and end of the longest run of unused points that are close to each other."""
    best: tuple[int, int] | None = None
    for begin in range(len(values)):
        low = high = values[begin]
        end = begin
        while end < len(values) and free[end]:
            low, high = min(low, values[end]), max(high, values[end])
            if high > _SPREAD * low:
                break
            end += 1
        if end - begin >= max(_LEAST_POINTS, best[1] - best[0] + 1 if best else 0):
            best = (begin, end)
    return best
