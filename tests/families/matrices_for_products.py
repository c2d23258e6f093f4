"""Matrices with exact sums, and vectors, for the tests of sparse products."""

from typing import Any

import numpy as np
import scipy.sparse as sp

FORMATS = ("crs", "sell", "ell", "csc")


def whole(rows: int, columns: int, lengths: Any, seed: int = 0) -> sp.csr_array:
    """Return a matrix with rows of given lengths and small integers, whose sums are exact."""
    rng = np.random.default_rng(seed)
    lengths = np.minimum(np.broadcast_to(lengths, rows), columns)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    by_row = [np.sort(rng.choice(columns, n, replace=False)) for n in lengths]
    indices = np.concatenate([np.zeros(0, dtype=np.int64), *by_row])
    values = rng.integers(1, 10, len(indices)) * rng.choice([-1.0, 1.0], len(indices))
    return sp.csr_array((values, indices, starts), shape=(rows, columns))


def uneven(rows: int = 150, columns: int = 120) -> sp.csr_array:
    lengths = np.random.default_rng(3).integers(0, 9, rows)
    lengths[[0, rows // 2, rows - 1]] = (0, columns, 0)
    return whole(rows, columns, lengths)


def vector(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-50, 50, size).astype(np.float64)


def scalar(**options: Any) -> dict[str, Any]:
    """Return options with a variant of all formats, so that `best` is not determined first."""
    return {"variant": "scalar", "threads": 1, **options}


SQUARE = whole(20, 20, 3)
