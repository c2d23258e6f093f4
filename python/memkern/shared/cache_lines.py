"""How many cache lines, or sectors of a GPU, contain accessed elements of an array."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from memkern.spec.kernel import BLOCK, IndexArray

# Distinct integers are marked in an array, unless it exceeds this multiple of their number.
_SPARSE = 64


def accessed(
    positions: Iterable[IndexArray], size: int, per_line: int = 1, *, accesses: int | None = None
) -> IndexArray:
    """Return the lines of an array with accessed elements.

    Parameters
    ----------
    positions : iterable of array of int
        Accessed elements, in parts of any shape.
    size : int
        Length of the array in elements.
    per_line : int
        Elements of a line; 1 returns the accessed elements themselves.
    accesses : int, optional
        Number of places. If the array is much longer, its lines are not marked one by one.

    Returns
    -------
    array of int
        Numbers of the lines, distinct and ascending.
    """
    lines = -(-size // per_line)
    if accesses is not None and lines > _SPARSE * accesses:
        return np.unique(np.concatenate([part.reshape(-1) // per_line for part in positions]))
    found = np.zeros(lines, dtype=np.bool_)
    for part in positions:
        flat = part.reshape(-1)
        for begin in range(0, len(flat), BLOCK):
            found[flat[begin : begin + BLOCK] // per_line] = True
    return np.flatnonzero(found)


def partly_accessed(elements: IndexArray, per_line: int, size: int | None = None) -> int:
    """Return the number of lines with accessed elements and others.

    Parameters
    ----------
    elements : array of int
        Accessed elements, distinct and ascending (see `accessed`).
    per_line : int
        Elements of a line.
    size : int, optional
        Length of the array, whose last line may be shorter; by default all lines are whole.
    """
    lines = elements // per_line
    first = np.flatnonzero(np.diff(lines, prepend=-1))
    whole = per_line if size is None else np.minimum(per_line, size - lines[first] * per_line)
    return int(np.count_nonzero(np.diff(first, append=len(lines)) < whole))
