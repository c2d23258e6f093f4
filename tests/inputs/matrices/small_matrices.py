"""Small matrices of every generator, and their checks."""

import itertools
from functools import partial, reduce

import checking
import numpy as np
from scipy import sparse

from memkern.inputs.matrices import (
    anderson,
    arrow,
    banded_random,
    five_point,
    free_fermions,
    graphene,
    hpcg,
    kkt,
    rmat,
    seven_point,
    spin_chain,
    tall_skinny,
    topological_insulator,
)

# Messages that list every generator are longer than others.
refusal = partial(checking.refusal, most_characters=600)


def dense(matrix):
    """Check the arrays of a matrix, and return it as a full NumPy array."""
    assert isinstance(matrix, sparse.csr_array)
    rows, columns = matrix.shape
    starts, indices, data = matrix.indptr, matrix.indices, matrix.data
    assert starts.dtype == indices.dtype == np.int32
    assert data.dtype == np.float64
    assert all(array.flags.c_contiguous and array.flags.writeable for array in (starts, indices))
    assert len(starts) == rows + 1
    assert (starts[0], starts[-1]) == (0, len(indices))
    assert len(indices) == len(data) == matrix.nnz
    full = np.zeros((rows, columns))
    for row, (start, end) in enumerate(itertools.pairwise(starts)):
        where = indices[start:end].tolist()
        assert where == sorted(set(where))
        assert all(0 <= column < columns for column in where)
        full[row, where] = data[start:end]
    # SciPy examines a new matrix; the flag of the given matrix may be set by the generator.
    assert sparse.csr_array((data, indices, starts), shape=matrix.shape).has_canonical_format
    assert matrix.has_canonical_format
    return full


def same(left, right):
    return (
        left.shape == right.shape
        and np.array_equal(left.indptr, right.indptr)
        and np.array_equal(left.indices, right.indices)
        and np.array_equal(left.data, right.data)
    )


def kron(*factors):
    return reduce(np.kron, factors)


PAULI = [np.array([[0, 1], [1, 0]]), np.array([[0, -1j], [1j, 0]]), np.diag([1, -1])]

CASES = {
    "hpcg": lambda: hpcg(7, 6, 5),
    "5pt": lambda: five_point(15, 14),
    "7pt": lambda: seven_point(7, 6, 5),
    "anderson": lambda seed=0: anderson(7, 6, 5, seed=seed),
    "graphene": lambda seed=0: graphene(15, 14, seed=seed),
    "topins": lambda seed=0: topological_insulator(5, 4, 3, 1.0, seed),
    "spin": lambda: spin_chain(10),
    "spin periodic": lambda: spin_chain(10, periodic=True),
    "fermions": lambda: free_fermions(10),
    "tsm": lambda: tall_skinny(100, 7, 30),
    "band": lambda seed=0: banded_random(100, 20, 9, seed),
    "rmat": lambda seed=0: rmat(7, 8, seed=seed),
    "kkt": lambda seed=0: kkt(5, 60, 3, 0.5, seed),
    "arrow": lambda: arrow(500),
    "arrow both": lambda: arrow(500, True),
}


def line(n):
    """Return the adjacency matrix of n points on a line."""
    return np.eye(n, k=1) + np.eye(n, k=-1)


def neighbours_of(nz, ny, nx, along=(line, line, line)):
    """Return the adjacency matrix of the points of a box."""
    one = np.eye
    return (
        kron(along[0](nz), one(ny), one(nx))
        + kron(one(nz), along[1](ny), one(nx))
        + kron(one(nz), one(ny), along[2](nx))
    )
