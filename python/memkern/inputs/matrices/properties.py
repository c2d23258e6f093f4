"""Statistics of a sparse matrix, and reordering of its rows and columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from memkern.checks import shown
from memkern.errors import InputError
from memkern.inputs.matrices.assembly import CSR, Integers
from memkern.inputs.matrices.reading import from_sparse


def _canonical(matrix: Any) -> CSR:
    from scipy.sparse import csr_array, issparse

    if isinstance(matrix, csr_array) and matrix.ndim == 2 and matrix.has_canonical_format:
        return matrix
    if not issparse(matrix):
        raise InputError(f"a matrix must be SciPy's, not {shown(matrix)}")
    return from_sparse(matrix)


def _pattern(matrix: CSR) -> CSR:
    """Return a matrix with the same pattern and one-byte values of 1."""
    from scipy.sparse import csr_array

    ones = np.ones(matrix.nnz, dtype=np.int8)
    return csr_array((ones, matrix.indices, matrix.indptr), shape=matrix.shape)


def statistics(matrix: CSR) -> dict[str, int | float | bool]:
    """Return size, row lengths, bandwidth and symmetry of a matrix.

    Parameters
    ----------
    matrix : scipy.sparse.csr_array, shape (rows, columns)
        As `build` and the generators return it; others are converted first.

    Returns
    -------
    dict
        ``rows``, ``columns``, ``nonzeros`` (stored entries, zeros included),
        ``nonzeros_per_row_min``, ``nonzeros_per_row_mean``, ``nonzeros_per_row_max``,
        ``empty_rows``, ``bandwidth`` (largest distance of an entry from the diagonal) and
        ``symmetric_pattern`` (whether the transpose has the same pattern).

    Raises
    ------
    InputError
        If it is no SciPy matrix.
    """
    matrix = _canonical(matrix)
    rows, columns = matrix.shape
    lengths = np.diff(matrix.indptr)
    filled = np.flatnonzero(lengths)
    # Columns ascend: the first and the last of a row are the farthest from the diagonal.
    ends = (matrix.indptr[filled], matrix.indptr[filled + 1] - 1)
    distances = [np.abs(matrix.indices[end].astype(np.int64) - filled) for end in ends]
    return {
        "rows": rows,
        "columns": columns,
        "nonzeros": int(matrix.nnz),
        "nonzeros_per_row_min": int(lengths.min()),
        "nonzeros_per_row_mean": matrix.nnz / rows,
        "nonzeros_per_row_max": int(lengths.max()),
        "empty_rows": rows - len(filled),
        "bandwidth": max((int(far.max()) for far in distances if len(far)), default=0),
        "symmetric_pattern": rows == columns and _is_symmetric(matrix),
    }


def _is_symmetric(matrix: CSR) -> bool:
    mirrored = _pattern(matrix).T.tocsr()
    return bool(
        np.array_equal(mirrored.indptr, matrix.indptr)
        and np.array_equal(mirrored.indices, matrix.indices)
    )


def reorder(matrix: CSR, order: str = "rcm") -> tuple[CSR, Integers]:
    """Apply one permutation to the rows and columns of a square matrix.

    Parameters
    ----------
    matrix : scipy.sparse.csr_array, shape (n, n)
        As `build` and the generators return it; others are converted first.
    order : {"rcm"}
        Reverse Cuthill-McKee: neighbours in the graph of the matrix get numbers close to each
        other, which brings its entries towards the diagonal. The graph has an edge for each entry
        of the matrix or its transpose.

    Returns
    -------
    permuted : scipy.sparse.csr_array of float64, shape (n, n)
        ``matrix[permutation][:, permutation]``.
    permutation : numpy.ndarray of int64, shape (n,)
        The old number of each new row.

    Raises
    ------
    InputError
        If it is no SciPy matrix, not square, or the order is unknown.

    Notes
    -----
    Source: Cuthill and McKee, "Reducing the bandwidth of sparse symmetric matrices", 1969; George
    and Liu, "Computer Solution of Large Sparse Positive Definite Systems", 1981.
    """
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    matrix = _canonical(matrix)
    if order != "rcm":
        raise InputError(f"order must be rcm, not {shown(order)}")
    rows, columns = matrix.shape
    if rows != columns:
        raise InputError(f"a matrix to be reordered must be square, not {rows} x {columns}")
    # Of ones, because entries of opposite sign would cancel in the sum with the transpose.
    graph = _pattern(matrix)
    found = reverse_cuthill_mckee(graph + graph.T.tocsr(), symmetric_mode=True)
    permutation = found.astype(np.int64)
    permuted: CSR = matrix[permutation][:, permutation]
    permuted.sort_indices()
    return permuted, permutation
