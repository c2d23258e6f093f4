"""Synthetic matrices: dense blocks, random bands, power-law graphs, constraints, one full row.

Random values are uniform in (0, 1], so that none of them is a stored zero and products with
positive vectors have no cancellation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from memkern.checks import integer, number
from memkern.errors import InputError
from memkern.inputs.indices import seeded
from memkern.inputs.matrices.assembly import (
    CSR,
    Block,
    Integers,
    assemble,
    blocks,
    check_size,
    distinct_columns,
    index_dtype,
)
from memkern.inputs.matrices.grids import seven_point_blocks

_EDGES_AT_ONCE = 2**18  # the matrix of a seed depends on this


def rows_for(bytes_B: float, nonzeros_per_row: int) -> int:
    """Return the number of rows of a matrix of a given size, at 12 bytes a nonzero.

    Parameters
    ----------
    bytes_B : float
        Bytes of the values and of four-byte column indices, without row starts.
    nonzeros_per_row : int
        At least 1.

    Returns
    -------
    int
        At least 1; the matrix is not larger than `bytes_B` unless it has one row.

    Raises
    ------
    InputError
        If a number is not positive.

    Examples
    --------
    >>> rows_for(500 * 2**20, 40)
    1092266
    """
    size, per_row = number(bytes_B, "bytes_B", 1), integer(nonzeros_per_row, "nonzeros_per_row", 1)
    return max(1, int(size) // (12 * per_row))


def tall_skinny(rows: int, nonzeros_per_row: int, columns: int = 4000) -> CSR:
    """Make a tall and skinny matrix: rows of consecutive ones, and a vector that stays in a cache.

    Benign: only the length of the rows matters.  With p nonzeros a row the columns are split into
    ``floor(columns / p)`` pieces, which the rows fill in turn; with p = `columns` it is a dense
    matrix.  It has ``p rows`` nonzeros.

    Parameters
    ----------
    rows : int
        At least 1; `rows_for` gives matrices of the same size for any `nonzeros_per_row`.
    nonzeros_per_row : int
        p, from 1 to `columns`.
    columns : int
        At least 1; 4000 numbers are 32 kB.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (rows, columns)

    Raises
    ------
    InputError
        If a number is out of range, or the matrix is too large for memory.

    Notes
    -----
    Source: Alappat et al., "ECM modeling and performance tuning of SpMV and Lattice QCD on A64FX",
    2021.
    """
    rows, columns = integer(rows, "rows", 1), integer(columns, "columns", 1)
    per_row = integer(nonzeros_per_row, "nonzeros_per_row", 1, columns)

    def part(row: Integers) -> Block:
        where = (row % (columns // per_row))[:, None] * per_row + np.arange(per_row)
        return np.full(len(row), per_row), where.ravel(), 1.0

    return assemble(rows, columns, rows * per_row, map(part, blocks(rows, per_row)))


def banded_random(rows: int, bandwidth: int, nonzeros_per_row: int, seed: int = 0) -> CSR:
    """Make a square matrix with random columns in a band, the diagonal always among them.

    Benign if the band's part of the vector fits a cache, unfriendly to caches if not.  Row i draws
    from the columns ``max(0, i - b)`` to ``min(rows - 1, i + b)``; if these are fewer than p, near
    the first and the last row, all of them are used. It has ``p rows`` nonzeros if ``p <= b + 1``,
    else the sum of ``min(p, columns in the band)`` over the rows.

    Parameters
    ----------
    rows : int
        At least 1.
    bandwidth : int
        b, from 0 to rows - 1: the largest distance of a column from the diagonal.
    nonzeros_per_row : int
        p, from 1 to 2 b + 1.  The time grows with its square.
    seed : int
        At least 0.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (rows, rows)
        Not symmetric.  The values are random as well.

    Raises
    ------
    InputError
        If a number is out of range, or the matrix is too large for memory.
    """
    rows = integer(rows, "rows", 1)
    reach = integer(bandwidth, "bandwidth", 0, rows - 1)
    per_row = integer(nonzeros_per_row, "nonzeros_per_row", 1, 2 * reach + 1)
    generator = seeded(seed)

    def part(row: Integers) -> Block:
        low, high = np.maximum(row - reach, 0), np.minimum(row + reach, rows - 1)
        draws = generator.random((len(row), 2 * per_row - 1))
        others = distinct_columns(draws[:, per_row:], high - low)
        lacking = others > rows
        # Convert from positions within the band, the diagonal left out, to columns.
        others = others + low[:, None]
        others += others >= row[:, None]
        others[lacking] = rows
        where = np.sort(np.column_stack([others, row]), axis=1)
        present = where < rows
        return present.sum(axis=1), where[present], (1 - draws[:, :per_row])[present]

    return assemble(rows, rows, rows * per_row, map(part, blocks(rows, 2 * per_row)))


def rmat(
    scale: int,
    edge_factor: int = 16,
    a: float = 0.57,
    b: float = 0.19,
    c: float = 0.19,
    seed: int = 0,
) -> CSR:
    """Make a random graph with degrees of a power law, by the recursive method R-MAT.

    Imbalanced and unfriendly to caches.  Each of the ``edge_factor 2**scale`` edges falls into the
    upper left, upper right, lower left or lower right quarter of the matrix with probability a, b,
    c or ``1 - a - b - c``, then into a quarter of that, and so on down to one entry.  An entry's
    value is the number of its edges, so that the values add up to the number of edges; the number
    of nonzeros is random.

    Parameters
    ----------
    scale : int
        From 1 to 31: there are 2**scale rows.
    edge_factor : int
        At least 1.
    a, b, c : float
        Not negative, of a sum of at most 1.  The defaults are those of Graph500.
    seed : int
        At least 0.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (2**scale, 2**scale)
        Not symmetric, with loops and empty rows. Unlike in Graph500, vertices are not shuffled: the
        first rows are the fullest.

    Raises
    ------
    InputError
        If a number is out of range, or the matrix is too large for memory.

    Notes
    -----
    Source: Chakrabarti, Zhan and Faloutsos, "R-MAT: A Recursive Model for Graph Mining", SDM 2004;
    Murphy et al., "Introducing the Graph 500", 2010.
    """
    scale = integer(scale, "scale", 1, 31)
    edges = integer(edge_factor, "edge_factor", 1) << scale
    quarters = (number(a, "a", 0), number(b, "b", 0), number(c, "c", 0))
    if math.fsum(quarters) > 1:
        raise InputError(f"a, b and c must add up to at most 1, not {math.fsum(quarters):g}")
    generator = seeded(seed)

    def parts(prefix: int, depth: int, count: int) -> Iterator[Block]:
        # The rows whose first `depth` bits are `prefix`, bisected as long as they have many edges.
        if depth < scale and count > _EDGES_AT_ONCE:
            upper = int(generator.binomial(count, quarters[0] + quarters[1]))
            yield from parts(2 * prefix, depth + 1, upper)
            yield from parts(2 * prefix + 1, depth + 1, count - upper)
        else:
            yield _rmat_rows(generator, scale, quarters, prefix, depth, count)

    return assemble(1 << scale, 1 << scale, edges, parts(0, 0, edges))


def _rmat_rows(
    generator: np.random.Generator,
    scale: int,
    quarters: tuple[float, float, float],
    prefix: int,
    depth: int,
    count: int,
) -> Block:
    """Draw `count` edges of the rows whose first `depth` bits are `prefix`, and merge them."""
    a, b, c = quarters
    row = np.zeros(count, dtype=np.int64)
    column = np.zeros(count, dtype=np.int64)
    for level in range(scale):
        draw = generator.random(count)
        if level < depth:
            left, half = (c, 1 - a - b) if (prefix >> (depth - 1 - level)) & 1 else (a, a + b)
            right = draw * half >= left
        else:
            below = draw >= a + b
            right = (draw >= a) & ~below | (draw >= a + b + c)
            row = 2 * row + below
        column = 2 * column + right
    entries, values = np.unique((row << scale) + column, return_counts=True)
    lengths = np.bincount(entries >> scale, minlength=1 << (scale - depth))
    return lengths, entries & ((1 << scale) - 1), values.astype(np.float64)


def kkt(
    n: int, constraints: int, nonzeros_per_constraint: int = 4, delta: float = 0.0, seed: int = 0
) -> CSR:
    """Make the Karush-Kuhn-Tucker matrix of a constrained optimum: [[H, A^T], [A, -delta I]].

    Imbalanced and, in its rows of constraints, unfriendly to caches.  H is `seven_point` on n x n x
    n points; each of the m rows of A has p random columns.  It has
    ``7 n**3 - 6 n**2 + 2 m p`` nonzeros, and m more unless delta is zero and the last block empty.

    Parameters
    ----------
    n : int
        Points along each axis, at least 1.
    constraints : int
        m, from 1 to n**3.
    nonzeros_per_constraint : int
        p, from 1 to n**3.  The time grows with its square.
    delta : float
        At least 0.
    seed : int
        At least 0.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (n**3 + m, n**3 + m)
        Symmetric and indefinite.  The values of A are random as well.  While it is made, two
        more copies of A are in memory.

    Raises
    ------
    InputError
        If a number is out of range, or the matrix is too large for memory.

    Notes
    -----
    Source: after the matrices nlpkkt of Schenk, Waechter and Weiser, "Inertia-Revealing
    Preconditioning for Large-Scale Nonconvex Constrained Optimization", 2009.
    """
    n = integer(n, "n", 1)
    points = n**3
    check_size(points, points, points)
    m = integer(constraints, "constraints", 1, points)
    per_row = integer(nonzeros_per_constraint, "nonzeros_per_constraint", 1, points)
    delta, generator = number(delta, "delta", 0), seeded(seed)
    rows, nonzeros = points + m, 7 * points - 6 * n**2 + 2 * m * per_row + (m if delta else 0)

    def parts() -> Iterator[Block]:
        below = _constraints(generator, m, per_row, points)
        yield from _beside(seven_point_blocks((n, n, n)), below.T.tocsr())
        for row in blocks(m, per_row + 1):
            columns = below.indices.reshape(-1, per_row)[row]
            values = below.data.reshape(-1, per_row)[row]
            if delta:
                columns = np.column_stack([columns, points + row])
                values = np.column_stack([values, np.full(len(row), -delta)])
            yield np.full(len(row), columns.shape[1]), columns.ravel(), values.ravel()

    return assemble(rows, rows, nonzeros, parts())


def _constraints(generator: np.random.Generator, m: int, per_row: int, points: int) -> CSR:
    """Return rows of random columns and values."""

    def part(row: Integers) -> Block:
        draws = generator.random((len(row), 2 * per_row))
        columns = distinct_columns(draws[:, per_row:], np.full_like(row, points))
        return np.full(len(row), per_row), columns.ravel(), (1 - draws[:, :per_row]).ravel()

    return assemble(m, points, m * per_row, map(part, blocks(m, 2 * per_row)))


def _beside(left: Iterator[Block], right: CSR) -> Iterator[Block]:
    """Yield the rows of a square matrix, each extended on the right by a row of another matrix."""
    row = 0
    for lengths, columns, values in left:
        end = row + len(lengths)
        more = np.diff(right.indptr[row : end + 1])
        mine = slice(right.indptr[row], right.indptr[end])
        both = np.concatenate([columns, right.shape[0] + right.indices[mine].astype(np.int64)])
        entries = np.concatenate([np.broadcast_to(values, columns.shape), right.data[mine]])
        owner = np.concatenate(
            [np.repeat(np.arange(len(lengths)), some) for some in (lengths, more)]
        )
        # Stable, so that the entries on the left come first in each row.
        by_row = np.argsort(owner, kind="stable")
        yield lengths + more, both[by_row], entries[by_row]
        row = end


def arrow(n: int, column: bool = False) -> CSR:
    """Make a diagonal matrix with a full first row: the largest possible imbalance.

    It has ``2 n - 1`` nonzeros, or with the full column ``3 n - 2``.

    Parameters
    ----------
    n : int
        Rows and columns, at least 1.
    column : bool
        Whether the first column is full as well, which makes it symmetric.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (n, n)
        2 on the diagonal and 1 elsewhere.

    Raises
    ------
    InputError
        If `n` is not positive, or the matrix is too large for memory.
    """
    n = integer(n, "n", 1)
    nonzeros = 3 * n - 2 if column else 2 * n - 1

    def parts() -> Iterator[Block]:
        # This row is half of the matrix: its columns have the final type, to save memory.
        yield np.array([n]), np.arange(n, dtype=index_dtype(n, n, nonzeros)), 1.0
        for row in blocks(n - 1, 2):
            diagonal = row + 1
            if column:
                where = np.column_stack([np.zeros_like(diagonal), diagonal])
                yield np.full(len(where), 2), where.ravel(), np.tile([1.0, 2.0], len(where))
            else:
                yield np.ones_like(diagonal), diagonal, 2.0

    matrix = assemble(n, n, nonzeros, parts())
    matrix.data[0] = 2.0
    return matrix
