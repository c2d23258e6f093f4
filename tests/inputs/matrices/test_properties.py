"""Statistics and reordering of matrices agree with brute force."""

import numpy as np
import pytest
from checking import PROPERTY
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from small_matrices import CASES, dense

from memkern.inputs.matrices import five_point, from_array, reorder, statistics


def brute_force(full):
    places = np.argwhere(full)
    lengths = np.count_nonzero(full, axis=1)
    square = full.shape[0] == full.shape[1]
    return {
        "rows": full.shape[0],
        "columns": full.shape[1],
        "nonzeros": len(places),
        "nonzeros_per_row_min": lengths.min(),
        "nonzeros_per_row_mean": len(places) / full.shape[0],
        "nonzeros_per_row_max": lengths.max(),
        "empty_rows": np.count_nonzero(lengths == 0),
        "bandwidth": max((abs(row - column) for row, column in places), default=0),
        "symmetric_pattern": square and np.array_equal(full != 0, full.T != 0),
    }


@PROPERTY
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32), st.sampled_from([0, 0.2, 0.8]))
def test_statistics_are_what_brute_force_finds(rows, columns, seed, filled):
    generator = np.random.default_rng(seed)
    full = (generator.random((rows, columns)) < filled).astype(float)
    for some in (full, full[: min(rows, columns), : min(rows, columns)]):
        assert statistics(from_array(some)) == brute_force(some)
        assert statistics(sparse.coo_array(some)) == brute_force(some)
        if some.shape[0] == some.shape[1]:
            assert statistics(from_array(some + some.T)) == brute_force(some + some.T)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"tsm"}))
def test_reordering_renumbers_rows_and_columns_alike(name):
    matrix = CASES[name]()
    full = dense(matrix)
    permuted, permutation = reorder(matrix, "rcm")
    assert permutation.dtype == np.int64
    assert sorted(permutation.tolist()) == list(range(len(full)))
    assert np.array_equal(dense(permuted), full[permutation][:, permutation])
    assert permuted.nnz == matrix.nnz
    assert np.array_equal(dense(matrix), full)


def test_reordering_brings_entries_towards_the_diagonal():
    generator = np.random.default_rng(7)
    shuffle = generator.permutation(400)
    full = dense(five_point(20, 20))[shuffle][:, shuffle]
    assert statistics(from_array(full))["bandwidth"] > 300
    assert statistics(reorder(from_array(full))[0])["bandwidth"] < 40
    # Opposite signs do not cancel, and one side of the diagonal is enough.
    skew = np.triu(full, 1) - np.triu(full, 1).T
    for some in (skew, np.triu(full)):
        assert statistics(reorder(from_array(some))[0])["bandwidth"] < 40
    permuted, permutation = reorder(from_array(np.zeros((3, 3))))
    assert permuted.nnz == 0
    assert sorted(permutation.tolist()) == [0, 1, 2]
