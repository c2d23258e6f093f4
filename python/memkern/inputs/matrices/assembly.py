"""Compressed rows, written block by block into arrays of their final size.

A generator says how many nonzeros its matrix has at most, and yields its rows in blocks.  Nothing
but the matrix itself and one block is ever in memory.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from memkern.checks import shown
from memkern.errors import InputError
from memkern.machine.limits import check_memory

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "BLOCK",
    "CSR",
    "MAX_NONZEROS",
    "Block",
    "Floats",
    "Integers",
    "assemble",
    "blocks",
    "check_size",
    "distinct_columns",
    "index_dtype",
    "number",
    "padded",
    "wrap",
]

CSR: TypeAlias = "csr_array[np.float64, tuple[int, int]]"
"""What every generator and reader returns: sorted columns, no duplicates, float64 values."""

Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

Block: TypeAlias = tuple[Integers, npt.NDArray[Any], "Floats | float"]
"""Nonzeros of each row, shape (k,); their columns, and their values or the one that all have."""

MAX_NONZEROS = 2**40
"""The largest number of rows, of columns and of nonzeros (12 TiB of them and more)."""

BLOCK = 2**18
"""Entries that a block has at most, unless a single row has more: few enough for a cache."""

_INT32_MAX = 2**31 - 1
_FAR = np.int64(2**63 - 1)


def number(value: object, what: str, low: float = -math.inf) -> float:
    """Check a real number.

    Parameters
    ----------
    value : object
        What was given; Python's and NumPy's integers and floats pass, booleans do not.
    what : str
        The name that an error message uses for the value.
    low : float
        The least that is right.

    Returns
    -------
    float
        The value.

    Raises
    ------
    InputError
        If the value is no number, not finite or too small.
    """
    real = value if isinstance(value, numbers.Real) and not isinstance(value, bool) else math.nan
    try:
        checked = float(real)
    except OverflowError:  # an integer of hundreds of digits
        checked = math.inf
    if not (math.isfinite(checked) and checked >= low):
        right = "a finite number" + (f" of at least {low:g}" if math.isfinite(low) else "")
        raise InputError(f"{what} must be {right}, not {shown(value)}")
    return checked


def check_size(rows: int, columns: int, nonzeros: int, more_B: int = 0) -> None:
    """Refuse a matrix that is too large, before anything is allocated.

    Parameters
    ----------
    rows, columns, nonzeros : int
        Of the matrix.
    more_B : int
        Bytes that making it takes besides the matrix.

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
    """Yield the numbers of the rows of each block, at `width` entries a row."""
    step = max(1, BLOCK // max(1, width))
    for first in range(0, rows, step):
        yield np.arange(first, min(first + step, rows), dtype=np.int64)


def padded(columns: Integers, there: npt.NDArray[np.bool_], values: Floats | float) -> Block:
    """Make a block of rows that all have room for as many entries and hold some of them.

    Parameters
    ----------
    columns : numpy.ndarray of int64, shape (k, w)
        Ascending among those of a row that are there.
    there : numpy.ndarray of bool, shape (k, w)
        Which entries the rows hold.
    values : numpy.ndarray of float64 that broadcasts to shape (k, w), or float
        The entries' values.

    Returns
    -------
    Block
    """
    if not isinstance(values, float):
        values = np.broadcast_to(values, there.shape)[there]
    return np.count_nonzero(there, axis=1), columns[there], values


def assemble(rows: int, columns: int, nonzeros: int, parts: Iterable[Block]) -> CSR:
    """Write blocks of rows, one after the other, into a matrix.

    Parameters
    ----------
    rows, columns : int
        Its shape.
    nonzeros : int
        How many there are at most; memory that turns out to be too much is given back.
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
        # With fewer nonzeros than feared the smaller type may do.
        dtype = index_dtype(rows, columns, at)
        starts, indices = starts.astype(dtype, copy=False), indices.astype(dtype, copy=False)
    return wrap(rows, columns, starts, indices, data)


def wrap(
    rows: int, columns: int, starts: npt.NDArray[Any], indices: npt.NDArray[Any], data: Floats
) -> CSR:
    """Make a matrix of canonical arrays as they are, without a copy.

    Parameters
    ----------
    rows, columns : int
        Its shape.
    starts : numpy.ndarray of int32 or int64, shape (rows + 1,)
        Where each row begins.
    indices : numpy.ndarray of the same type, shape (nonzeros,)
        Columns, ascending and distinct within a row.
    data : numpy.ndarray of float64, shape (nonzeros,)
        Values.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (rows, columns)
    """
    from scipy.sparse import csr_array

    # Its constructor would look through all indices for a smaller type.
    matrix: CSR = csr_array((rows, columns), dtype=np.float64)
    matrix.indptr, matrix.indices, matrix.data = starts, indices, data
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def distinct_columns(draws: Floats, choices: Integers) -> Integers:
    """Draw distinct columns, every set of them as likely as any other.

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
        Ascending columns from 0 to below `choices`; what a row lacks comes last, and is 2**63 - 1.

    Notes
    -----
    The time grows with p**2.  Source: Bentley and Floyd, "Programming pearls: a sample of
    brilliance", Communications of the ACM 30 (1987).
    """
    drawn = np.full(draws.shape, _FAR)
    for step in range(draws.shape[1]):
        last = choices - draws.shape[1] + step
        column = (draws[:, step] * (last + 1)).astype(np.int64)
        again = (drawn[:, :step] == column[:, None]).any(axis=1)
        drawn[:, step] = np.where(last < 0, _FAR, np.where(again, last, column))
    drawn.sort(axis=1)
    return drawn
