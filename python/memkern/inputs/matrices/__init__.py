"""Sparse matrices: from generators, files, SciPy, NumPy or triplets, in compressed rows.

The generators cover causes of fast and slow sparse matrix-vector products: stencils and lattices
whose neighbouring rows read the same vector elements (benign), quantum chains and random columns
that are spread over the whole vector (unfriendly to caches), graphs and constraints whose rows
differ in length (imbalanced), and dense blocks, whose traffic is almost only the matrix itself.

All of them return `scipy.sparse.csr_array` with sorted columns, no duplicates, float64 values and
int32 indices where these fit.  SciPy is imported when it is needed.

Source: Alappat et al., "ECM modeling and performance tuning of SpMV and Lattice QCD on A64FX",
2021.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from memkern import small
from memkern.checks import meant, read_integer, read_number, shown
from memkern.errors import InputError
from memkern.inputs.matrices.assembly import CSR, MAX_NONZEROS, Integers
from memkern.inputs.matrices.chains import free_fermions, spin_chain
from memkern.inputs.matrices.grids import (
    anderson,
    five_point,
    graphene,
    hpcg,
    seven_point,
    topological_insulator,
)
from memkern.inputs.matrices.reading import from_array, from_sparse, from_triplets, read
from memkern.inputs.matrices.synthetic import arrow, banded_random, kkt, rmat, rows_for, tall_skinny

if TYPE_CHECKING:
    from scipy.sparse import sparray, spmatrix

__all__ = [
    "CSR",
    "GENERATORS",
    "MAX_NONZEROS",
    "WORDS",
    "MatrixLike",
    "anderson",
    "arrow",
    "banded_random",
    "build",
    "five_point",
    "free_fermions",
    "from_array",
    "from_sparse",
    "from_triplets",
    "graphene",
    "hpcg",
    "kkt",
    "read",
    "reorder",
    "rmat",
    "rows_for",
    "seven_point",
    "spin_chain",
    "statistics",
    "tall_skinny",
    "topological_insulator",
]
__dir__ = __all__.copy  # public names only


class _Word(NamedTuple):
    generator: Callable[..., CSR]
    form: str
    counts: tuple[int, ...]
    arguments: tuple[str, ...]


_WORDS = {
    word.form.partition(":")[0].partition("[")[0]: word
    for word in (
        _Word(hpcg, "hpcg[:N or :NX:NY:NZ]", (0, 1, 3), ("nx", "ny", "nz")),
        _Word(
            tall_skinny,
            "tsm:ROWS:NONZEROS[:COLUMNS]",
            (2, 3),
            ("rows", "nonzeros_per_row", "columns"),
        ),
        _Word(five_point, "5pt:NX:NY", (2,), ("nx", "ny")),
        _Word(seven_point, "7pt:NX:NY:NZ", (3,), ("nx", "ny", "nz")),
        _Word(spin_chain, "spin:SITES[:UP]", (1, 2), ("sites", "up")),
        _Word(free_fermions, "fermions:SITES[:PARTICLES]", (1, 2), ("sites", "particles")),
        _Word(
            anderson,
            "anderson:NX:NY:NZ[:DISORDER[:SEED]]",
            (3, 4, 5),
            ("nx", "ny", "nz", "disorder", "seed"),
        ),
        _Word(
            graphene,
            "graphene:NX:NY[:NEIGHBOURS[:DISORDER[:SEED]]]",
            (2, 3, 4, 5),
            ("nx", "ny", "neighbours", "disorder", "seed"),
        ),
        _Word(
            topological_insulator,
            "topins:NX:NY:NZ[:DISORDER[:SEED]]",
            (3, 4, 5),
            ("nx", "ny", "nz", "disorder", "seed"),
        ),
        _Word(
            banded_random,
            "band:ROWS:BANDWIDTH:NONZEROS[:SEED]",
            (3, 4),
            ("rows", "bandwidth", "nonzeros_per_row", "seed"),
        ),
        _Word(rmat, "rmat:SCALE[:EDGES[:SEED]]", (1, 2, 3), ("scale", "edge_factor", "seed")),
        _Word(
            kkt,
            "kkt:N:CONSTRAINTS[:NONZEROS[:SEED]]",
            (2, 3, 4),
            ("n", "constraints", "nonzeros_per_constraint", "seed"),
        ),
        _Word(arrow, "arrow:N", (1,), ("n",)),
    )
}

GENERATORS: dict[str, Callable[..., CSR]] = {name: word.generator for name, word in _WORDS.items()}
"""The generators by their names on the command line."""

WORDS = tuple(word.form for word in _WORDS.values())
"""The generators that `build` accepts by name, with their parameters."""

MatrixLike: TypeAlias = (
    "str | os.PathLike[str] | sparray | spmatrix | npt.NDArray[Any] | tuple[Any, ...]"
)
"""Types that `build` accepts."""


# Arguments that must be less than the number of rows or sites, also if MEMKERN_SMALL limits them.
_BOUNDED_BY_SIZE = ("up", "particles", "bandwidth", "nonzeros_per_row")


def _from_words(text: str, seed: int) -> tuple[str, CSR] | None:
    """Return label and matrix if a string begins with the name of a generator."""
    name, *parts = text.strip().lower().split(":")
    if name not in _WORDS:
        return None
    word = _WORDS[name]
    if len(parts) not in word.counts:
        raise InputError(f"matrix {shown(text)} must have the form {word.form}")
    given: dict[str, int | float] = {}
    for argument, part in zip(word.arguments, parts, strict=False):
        reader = read_number if argument == "disorder" else read_integer
        given[argument] = reader(part, argument)
        if argument not in ("disorder", "seed"):
            given[argument] = small.cut(given[argument], 4 if argument in _BOUNDED_BY_SIZE else 8)
    if "seed" in word.arguments:
        # The label lists all arguments, defaults included, so that it identifies the matrix.
        defaults = inspect.signature(word.generator).parameters
        given = {"seed": seed} | given
        given = {key: given.get(key, defaults[key].default) for key in word.arguments}
    numbers = (repr(number).removesuffix(".0") for number in given.values())
    return ":".join([name, *numbers]), word.generator(**given)


def build(matrix: MatrixLike, seed: int = 0, *, rcm: bool = False) -> tuple[str, CSR]:
    """Make a matrix from a generator's name, a file, another matrix or triplets.

    Parameters
    ----------
    matrix : str, path-like, SciPy matrix or array, numpy.ndarray or tuple
        One of `WORDS`, in any case, for the generator of that name in `GENERATORS`; the path of a
        file for `read`, which has a ``.`` or ``/`` in it if it is a string; a matrix of any of
        SciPy's formats; a dense one of shape (rows, columns); or arguments of `from_triplets`:
        (rows, columns, values[, shape]).
    seed : int
        At least 0, for generators with a ``SEED`` that is not given.
    rcm : bool
        Reorder rows and columns of a square matrix by reverse Cuthill-McKee; see `reorder`.

    Returns
    -------
    label : str
        The name of the matrix in records: the generator with its numbers, the seed included,
        ``file NAME``, ``matrix``, ``array`` or ``triplets``, and `` rcm`` if it was reordered.
    matrix : scipy.sparse.csr_array of float64, shape (rows, columns)
        Sorted columns, no duplicates, indices of int32 where they fit; owned by the caller.

    Raises
    ------
    InputError
        If the matrix is of none of these forms, or numbers are wrong.

    Examples
    --------
    >>> label, matrix = build("5pt:2:2")
    >>> label, matrix.shape, matrix.nnz
    ('5pt:2:2', (4, 4), 12)
    """
    label, made = _build(matrix, seed)
    return (f"{label} rcm", reorder(made, "rcm")[0]) if rcm else (label, made)


def _build(matrix: MatrixLike, seed: int) -> tuple[str, CSR]:
    from scipy.sparse import issparse

    if isinstance(matrix, str):
        made = _from_words(matrix, seed)
        if made is not None:
            return made
        if not ({".", "/"} & set(matrix) and os.path.exists(matrix)):
            near = meant(matrix.partition(":")[0], GENERATORS)
            raise InputError(
                f"a matrix is one of {', '.join(WORDS)} or the path of a file that exists, not "
                f"{shown(matrix)}{near}"
            )
    if isinstance(matrix, (str, os.PathLike)):
        return f"file {Path(matrix).name}", read(matrix)
    if isinstance(matrix, tuple):
        if len(matrix) not in (3, 4):
            raise InputError(
                f"triplets must be (rows, columns, values) or (rows, columns, values, shape), not "
                f"{len(matrix)} elements"
            )
        return "triplets", from_triplets(*matrix)
    if issparse(matrix):
        return "matrix", from_sparse(matrix)
    if isinstance(matrix, np.ndarray):
        return "array", from_array(matrix)
    raise InputError(
        f"a matrix is a text, a path, a SciPy matrix, a NumPy array or triplets, not "
        f"{shown(matrix)}"
    )


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
