"""Experiments that explain the time of a loop (see `memkern.spec.experiments`)."""

from __future__ import annotations

from math import prod

from memkern.machine.caches import Share
from memkern.shared.experiments import resized, reuse, usual, with_elements
from memkern.spec.case import Case
from memkern.spec.experiments import Setting

# Inner dimension over the outer one, at most, of small arrays.
_ASPECT = 4
# The dimensions from the inner one, the arrays of that size, and the layers of the inner dimension
# that must be held for reuse: rows of the stencil, and y of matvec, which passes with a column.
_SHAPES = {
    "loops.stencil": (("columns", "rows"), 2, 3),
    "loops.matvec": (("rows", "columns"), 1, 2),
}


def _with_inner(case: Case, points: float, inner: int) -> Case | None:
    """Return a case of so many points with a smaller or equal inner dimension."""
    names, *_ = _SHAPES[case.spec.kernel]
    outer = int(points / inner)
    if inner > case.integers[names[0]] or min(inner, outer) < 3:
        return None
    return resized(case, **dict(zip(names, (inner, outer), strict=True)), elements=inner * outer)


def _resize(case: Case, size_B: float) -> Case | None:
    if case.spec.kernel not in _SHAPES:
        return with_elements(case, size_B)
    (inner, _), arrays, _ = _SHAPES[case.spec.kernel]
    points = size_B / case.value_B / arrays
    return _with_inner(case, points, min(case.integers[inner], int((_ASPECT * points) ** 0.5)))


def _reused(case: Case, setting: Setting, cache: Share) -> Case | None:
    """Return a case with a smaller inner dimension, whose layers fill half of the cache."""
    if case.spec.kernel not in _SHAPES:
        return None
    names, _, layers = _SHAPES[case.spec.kernel]
    inner = int(cache.size_B / cache.workers / 2 / layers / case.value_B)
    if names[0] == "rows":  # which are divided among the workers
        inner *= setting.threads
    return _with_inner(case, prod(case.integers[name] for name in names), inner)


EXPERIMENTS = usual(_resize, *reuse(_reused))
