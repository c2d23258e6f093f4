"""Levels of a memory hierarchy found by measuring: plateaus of a latency over sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError

__all__ = ["Plateau", "plateaus"]

# Values of a plateau differ by at most this factor, medians of neighbouring ones by more than the
# second.
_SPREAD, _STEP = 1.15, 1.3
_LEAST_POINTS = 3


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

    The longest run of points within 15 % of each other is a plateau, then the longest of those that
    are left, down to three points; neighbours whose medians differ by less than 30 % are one.
    Where one plateau ends and the next begins lies the capacity of a level, or what the machine
    gives of it: a virtual machine may have a part of a shared cache.

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
        raise InputError(f"sizes and values must be as many, not {sizes.size} and {found.size}")
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
            steps = np.median(found[begin:end]) / np.median(found[first:last])
            if 1 / _STEP < steps < _STEP:
                joined[-1] = (first, end)
                continue
        joined.append((begin, end))
    return [
        Plateau(float(np.median(found[begin:end])), float(sizes[begin]), float(sizes[end - 1]))
        for begin, end in joined
    ]


def _longest(
    values: npt.NDArray[np.float64], free: npt.NDArray[np.bool_]
) -> tuple[int, int] | None:
    """Return begin and end of the longest run of free points that are close to each other."""
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
