"""Assembly of compressed rows, block by block, into arrays of their final size.

A generator gives an upper bound on the number of nonzeros and yields its rows in blocks, so that
only the matrix itself and one block are in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from memkern.checks import shown
from memkern.errors import InputError
from memkern.limits import check_memory

if TYPE_CHECKING:
    from scipy.sparse import csr_array

CSR: TypeAlias = "csr_array[np.float64, tuple[int, int]]"
"""Result of all generators and readers: sorted columns, no duplicates, float64 values."""

Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

Block: TypeAlias = tuple[Integers, npt.NDArray[Any], "Floats | float"]
"""Number of nonzeros of each row, shape (k,); their columns; their values, or one for all."""

MAX_NONZEROS = 2**40
"""The largest number of rows, of columns and of nonzeros (12 TiB of them and more)."""

BLOCK = 2**18
"""Largest number of entries of a block, unless a single row has more; small enough for a cache."""

_INT32_MAX = 2**31 - 1
_MISSING = np.int64(2**63 - 1)


def check_size(rows: int, columns: int, nonzeros: int, more_B: int = 0) -> None:
    """Refuse a matrix that is too large, before anything is allocated.

    Parameters
    ----------
    rows, columns, nonzeros : int
        Of the matrix.
    more_B : int
        Additional bytes that are needed during its assembly.

    Raises
    ------
    InputError
        If a number is above `MAX_NONZEROS`, or there is no memory for the matrix and the two
        vectors of its product.
    """
    for size, what in ((rows, "rows"), (columns, "columns"), (nonzeros, "nonzeros")):
        if size > MAX_NONZEROS:
            raise InputError(f"a matrix has at most {MAX_NONZEROS} {what}, not {shown(size)}")
    index_B = np.dtype(index_dtype(rows, columns, nonzeros)).itemsize
    size_B = rows * index_B + nonzeros * (8 + index_B) + 8 * (rows + columns) + more_B
    check_memory(size_B, f"a matrix of {rows} x {columns} with {nonzeros} nonzeros")


def index_dtype(rows: int, columns: int, nonzeros: int) -> type[np.int32 | np.int64]:
    """Return the type of row starts and column indices: int32 where it fits, else int64."""
    return np.int32 if max(rows, columns, nonzeros) <= _INT32_MAX else np.int64


def blocks(rows: int, width: int) -> Iterator[Integers]:
    """Return the numbers of the rows of each block, at `width` entries a row."""
    step = max(1, BLOCK // max(1, width))
    return (
        np.arange(first, min(first + step, rows), dtype=np.int64) for first in range(0, rows, step)
    )


def padded(columns: Integers, present: Bools, values: Floats | float) -> Block:
    """Make a block from rows that are padded to the same width.

    Parameters
    ----------
    columns : numpy.ndarray of int64, shape (k, w)
        Ascending among the present entries of a row.
    present : numpy.ndarray of bool, shape (k, w)
        Which entries are not padding.
    values : numpy.ndarray of float64 that broadcasts to shape (k, w), or float
        The entries' values.

    Returns
    -------
    Block
    """
    if not isinstance(values, float):
        values = np.broadcast_to(values, present.shape)[present]
    return np.count_nonzero(present, axis=1), columns[present], values


def assemble(rows: int, columns: int, nonzeros: int, parts: Iterable[Block]) -> CSR:
    """Write blocks of rows, one after the other, into a matrix.

    Parameters
    ----------
    rows, columns : int
        Its shape.
    nonzeros : int
        An upper bound; memory that is not needed is freed.
    parts : iterable of Block
        All rows in order, the columns of each ascending and distinct.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (rows, columns)

    Raises
    ------
    InputError
        If the matrix is too large.
    """
    check_size(rows, columns, nonzeros)
    dtype = index_dtype(rows, columns, nonzeros)
    starts = np.zeros(rows + 1, dtype=dtype)
    indices = np.empty(nonzeros, dtype=dtype)
    data = np.empty(nonzeros)
    row = at = 0
    for lengths, where, values in parts:
        starts[row + 1 : row + 1 + len(lengths)] = at + np.cumsum(lengths)
        indices[at : at + len(where)] = where
        data[at : at + len(where)] = values
        row, at = row + len(lengths), at + len(where)
    assert row == rows
    if at < nonzeros:
        indices.resize(at, refcheck=False)
        data.resize(at, refcheck=False)
        # The smaller type may suffice for the actual number of nonzeros.
        dtype = index_dtype(rows, columns, at)
        starts, indices = starts.astype(dtype, copy=False), indices.astype(dtype, copy=False)
    return wrap(rows, columns, starts, indices, data)


def wrap(
    rows: int, columns: int, starts: npt.NDArray[Any], indices: npt.NDArray[Any], data: Floats
) -> CSR:
    """Make a matrix from canonical arrays, without copying or checking them.

    Parameters
    ----------
    rows, columns : int
        Its shape.
    starts : numpy.ndarray of int32 or int64, shape (rows + 1,)
        Start of each row.
    indices : numpy.ndarray of the same type, shape (nonzeros,)
        Columns, ascending and distinct within a row.
    data : numpy.ndarray of float64, shape (nonzeros,)
        Values.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (rows, columns)
    """
    from scipy.sparse import csr_array

    # Its constructor would scan all indices to find out whether a smaller type suffices.
    matrix: CSR = csr_array((rows, columns), dtype=np.float64)
    matrix.indptr, matrix.indices, matrix.data = starts, indices, data
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def distinct_columns(draws: Floats, choices: Integers) -> Integers:
    """Draw distinct columns; all sets of columns are equally likely.

    Floyd's algorithm draws the s-th column (counted from 0) of p among the first
    ``choices - p + s + 1`` ones, and takes the last of these in its place if it was drawn before.

    Parameters
    ----------
    draws : numpy.ndarray of float64, shape (k, p)
        Uniform variates from 0 to below 1.
    choices : numpy.ndarray of int64, shape (k,)
        How many columns each row draws from; a row of fewer than p takes all of them.

    Returns
    -------
    numpy.ndarray of int64, shape (k, p)
        Ascending columns from 0 to below `choices`; missing ones come last, as 2**63 - 1.

    Notes
    -----
    The time grows with p**2.  Source: Bentley and Floyd, "Programming pearls: a sample of
    brilliance", Communications of the ACM 30 (1987).
    """
    drawn = np.full(draws.shape, _MISSING)
    for step in range(draws.shape[1]):
        last = choices - draws.shape[1] + step
        column = (draws[:, step] * (last + 1)).astype(np.int64)
        again = (drawn[:, :step] == column[:, None]).any(axis=1)
        drawn[:, step] = np.where(last < 0, _MISSING, np.where(again, last, column))
    drawn.sort(axis=1)
    return drawn
