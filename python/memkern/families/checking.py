"""What the checks of several families share: where to look, and how far off is too far."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.spec.case import Case
from memkern.spec.kernel import Check, IndexArray, Native, fill_values

Values = npt.NDArray[Any]

# Elements up to which a case is checked whole.
WHOLE = 2**20
_SAMPLES = 4_000


def positions(n: int, native: Native) -> IndexArray:
    """Return where to look at `n` elements: everywhere, or at workers' seams and random places."""
    if n <= WHOLE:
        return np.arange(n)
    rng = np.random.default_rng(0)
    seams = np.linspace(0, n - 1, 4 * native.obtained()["threads"] + 1).astype(np.int64)
    near = np.clip(seams[:, None] + np.arange(-2, 3), 0, n - 1).ravel()
    return np.unique([*near, *rng.integers(0, n, _SAMPLES)])


def fresh(native: Native, name: str, at: IndexArray) -> Values:
    """Return what a freshly filled array holds there."""
    return fill_values(at, native.arrays()[name])


def difference(got: Values, wanted: Values) -> npt.NDArray[np.float64]:
    """Return differences over the largest value; infinite where one is NaN."""
    off = np.abs(np.asarray(got, dtype=np.float64) - wanted)
    scale = max(float(np.max(np.abs(wanted), initial=0.0)), 1.0)
    return np.where(np.isnan(off), np.inf, off) / scale


def error(got: Values, wanted: Values) -> float:
    """Return the largest difference over the largest value; infinite where one is NaN."""
    return float(np.max(difference(got, wanted), initial=0.0))


def rounding(dtype: str) -> float:
    """Return the unit of a type's rounding: nothing for whole numbers."""
    return float(np.finfo(dtype).eps) if np.dtype(dtype).kind == "f" else 0.0


def verdict(case: Case, worst: float, how: str, **columns: float) -> Check:
    """Judge the largest error by the spec's limit."""
    return Check(worst <= case.spec.ulps * rounding(case.dtype), worst, how, columns)


def extent(n: int) -> str:
    """Say how much of `n` elements is looked at."""
    return "whole" if n <= WHOLE else "sampled"
