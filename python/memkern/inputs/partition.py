"""Contiguous parts of elements, one for each rank."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["equal_parts"]


def equal_parts(n: int, ranks: int) -> npt.NDArray[np.int64]:
    """Return the boundaries of parts that differ by at most one in size, the larger ones first."""
    share, rest = divmod(n, ranks)
    sizes = np.full(ranks, share)
    sizes[:rest] += 1
    return np.concatenate(([0], np.cumsum(sizes)))
