"""Shared parts of the families' checks: the compared elements and the allowed errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from memkern.spec.case import Case
from memkern.spec.kernel import Check, IndexArray, Native, Validation, fill_values
from memkern.spec.kernel import Values as Values

# Salt of the values of all ranks together; no array is filled with these values.
SALT = 0x5EED
# Up to this number, all elements are checked.
WHOLE = 2**20
_SAMPLES = 4_000
# A GPU may have hundreds of thousands of workers.
_MOST_PARTS = 4096


def positions(n: int, native: Native) -> IndexArray:
    """Return the elements to check: all `n`, or boundaries of parts and a random sample."""
    if n <= WHOLE:
        return np.arange(n)
    parts = min(4 * native.obtained()["threads"], _MOST_PARTS)
    boundaries = np.linspace(0, n - 1, parts + 1).astype(np.int64)
    near = np.clip(boundaries[:, None] + np.arange(-2, 3), 0, n - 1).ravel()
    return np.unique(np.concatenate((near, np.random.default_rng(0).integers(0, n, _SAMPLES))))


def fresh(native: Native, name: str, at: IndexArray) -> Values:
    """Return the values of a freshly filled array at positions `at`."""
    return fill_values(at, native.arrays()[name])


def exactly(values: Any, dtype: str) -> Any:
    """Return values in an integer type, whose sums wrap as those of kernels, or in float64."""
    return np.asarray(values).astype(dtype if np.dtype(dtype).kind == "i" else np.float64)[()]


def distance(got: Values, wanted: Values) -> Values:
    """Return absolute differences; infinite for NaN."""
    found = np.abs(np.asarray(got, dtype=np.float64) - wanted)
    return np.where(np.isnan(found), np.inf, found)


def difference(got: Values, wanted: Values) -> Values:
    """Return absolute differences over the largest wanted value; infinite for NaN.

    Signed integers are equal, or their difference is infinite.
    """
    if np.asarray(wanted).dtype.kind == "i":
        return np.where(got == wanted, 0.0, np.inf)
    return distance(got, wanted) / max(float(np.max(np.abs(wanted), initial=0.0)), 1.0)


def error(got: Values, wanted: Values) -> float:
    """Return the largest `difference`."""
    return float(np.max(difference(got, wanted), initial=0.0))


def rounding(dtype: str) -> float:
    """Return the machine epsilon of a type, 0 for integers."""
    return float(np.finfo(dtype).eps) if np.dtype(dtype).kind == "f" else 0.0


def outcome(case: Case, worst: float, how: str, **columns: float) -> Check:
    """Return a check that is valid if the largest error is within the spec's limit."""
    return Check(worst <= case.spec.checks.ulps * rounding(case.dtype), worst, how, columns)


def compared(
    case: Case,
    native: Native,
    name: str,
    at: IndexArray,
    wanted: Values,
    how: str,
    given: Mapping[str, Values] = {},
) -> Validation:
    """Compare elements of an array, after invocations on freshly filled arrays, with `wanted`.

    Arrays that are `given` begin with these values, followed by zeros.
    """
    native.fill(outputs=True)
    for key, values in given.items():
        array = native.arrays()[key]
        rest = array["columns"] - len(values)
        native.copy_in(key, np.pad(values.astype(array["dtype"]), (0, rest)))
    yield
    return outcome(case, error(native.peek(name, at), wanted), how)


def extent(n: int) -> str:
    """Return whether `n` elements are checked whole or sampled."""
    return "whole" if n <= WHOLE else "sampled"
