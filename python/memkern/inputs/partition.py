"""Contiguous parts of elements, one for each rank, and parts of compressed rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def equal_parts(n: int, ranks: int) -> npt.NDArray[np.int64]:
    """Return the boundaries of parts that differ by at most one in size, the larger ones first."""
    share, rest = divmod(n, ranks)
    sizes = np.full(ranks, share)
    sizes[:rest] += 1
    return np.concatenate(([0], np.cumsum(sizes)))


def entries_of(
    starts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the positions of the entries of some compressed rows, and how many each row has.

    Parameters
    ----------
    starts : array of int, shape (n + 1,)
        Where each row begins, and the end of the last one.
    rows : array of int, shape (m,)
        In any order.
    """
    counts = starts[rows + 1] - starts[rows]
    before = np.cumsum(counts) - counts
    return np.repeat(starts[rows] - before, counts) + np.arange(counts.sum()), counts
