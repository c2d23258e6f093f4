"""Arrays, triplets and SciPy's matrices are converted, or refused if they are damaged."""

import math

import numpy as np
import pytest
from checking import PROPERTY
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from small_matrices import dense, refusal, same

from memkern.inputs.matrices import build, from_triplets


def test_matrices_of_all_kinds_are_converted():
    full = np.array([[0, 1.5, 0], [2, 0, -3]])
    label, matrix = build(full)
    assert label == "array"
    assert np.array_equal(dense(matrix), full)
    assert matrix.nnz == 3
    for layout in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil"):
        for kind in (sparse.coo_array, sparse.coo_matrix):
            given = kind(full).asformat(layout)
            label, matrix = build(given)
            assert label == "matrix"
            assert np.array_equal(dense(matrix), full)
            assert not np.shares_memory(matrix.data, getattr(given, "data", None))
    label, matrix = build(([1, 0, 1], [2, 1, 0], [-3, 1.5, 2]))
    assert label == "triplets"
    assert np.array_equal(dense(matrix), full)
    assert build(([0], [0], [1.0], (4, 5)))[1].shape == (4, 5)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float32, complex])
def test_real_numbers_of_any_type_are_converted(dtype):
    full = np.array([[0, 1], [1, 1]], dtype=dtype)
    assert np.array_equal(dense(build(full)[1]), full.real.astype(float))
    assert np.array_equal(dense(build(sparse.csc_array(full))[1]), full.real.astype(float))


def test_duplicates_are_added_and_zeros_kept():
    given = sparse.csr_array(
        (np.array([1.0, 2, 0, 4]), np.array([1, 1, 0, 1]), np.array([0, 2, 4])), shape=(2, 2)
    )
    matrix = build(given)[1]
    assert np.array_equal(dense(matrix), [[0, 3], [0, 4]])
    assert matrix.nnz == 3
    assert given.indices.tolist() == [1, 1, 0, 1]


def damaged(layout, **arrays):
    matrix = sparse.csr_array(np.eye(3)).asformat(layout)
    for name, array in arrays.items():
        setattr(matrix, name, array)
    return matrix


@pytest.mark.parametrize(
    "matrix",
    [
        damaged("csr", indices=np.array([0, 1, 3])),
        damaged("csr", indptr=np.array([0, 3, 2, 3])),
        damaged("csc", indices=np.array([0, 1, 3])),
        damaged("coo", row=np.array([0, 1, 3])),
        damaged("coo", col=np.array([0, -1, 2])),
        damaged("coo", data=np.ones(2)),
    ],
)
def test_damaged_matrices_are_refused(matrix):
    assert "the matrix is damaged" in refusal(build, matrix)


def test_scipys_vectors_are_refused():
    vector = sparse.coo_array(np.ones(3))
    if vector.ndim == 1:  # since SciPy 1.13
        assert "the matrix must have rows and columns" in refusal(build, vector)
    assert "not the shape (0, 3)" in refusal(build, sparse.coo_array((0, 3)))


@PROPERTY
@given(st.data())
def test_triplets_are_what_brute_force_finds(data):
    rows, columns = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    number = st.floats(-1e6, 1e6) | st.integers(-9, 9)
    entry = st.tuples(st.integers(0, rows - 1), st.integers(0, columns - 1), number)
    entries = data.draw(st.lists(entry, max_size=20))
    expected = np.zeros((rows, columns))
    for row, column, value in entries:
        expected[row, column] += value
    triplets = [list(part) for part in zip(*entries, strict=True)] or [[], [], []]
    if data.draw(st.booleans()):
        dtype = data.draw(st.sampled_from(["i1", "u8", ">i4"]))
        triplets[:2] = [np.array(part, dtype) for part in triplets[:2]]
    matrix = from_triplets(*triplets, (rows, columns))
    assert np.allclose(dense(matrix), expected, rtol=1e-14, atol=1e-9)
    assert matrix.nnz == len({entry[:2] for entry in entries})
    # The matrix's own triplets give the same matrix.
    coordinates = matrix.tocoo()
    again = from_triplets(coordinates.row, coordinates.col, coordinates.data, matrix.shape)
    assert same(again, matrix)
    if entries:
        fitted = from_triplets(*triplets)
        assert fitted.shape == (max(triplets[0]) + 1, max(triplets[1]) + 1)


def test_triplets_without_values_are_ones():
    assert np.array_equal(dense(from_triplets([0, 1], [1, 0])), [[0, 1], [1, 0]])
    assert dense(from_triplets([], [], None, (2, 3))).tolist() == [[0, 0, 0]] * 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([0, -1], [0, 0]), "rows[1] must be at least 0, not -1"),
        (([0, 0], [0, -1]), "columns[1] must be at least 0, not -1"),
        (([0, 5], [0, 0], None, (5, 5)), "rows[1] must be from 0 to 4, not 5"),
        (([0.5], [0]), "rows[0] must be an integer, not 0.5"),
        (([0], [0, 1]), "columns must have as many numbers as rows, 1, not 2"),
        (
            ([0], [0], [1.0, 2.0]),
            "values must be one for each of 1 entries, not an array of shape (2,)",
        ),
        (([0], [0], ["x"]), "values must hold real numbers"),
        (([0], [0], [[1], [1, 2]]), "values must be an array of numbers"),
        (([0], [0], [1j]), "values must be real"),
        (([1], [2], [math.nan]), "row 1 and column 2, counted from 0, is nan"),
        (([0, 0], [0, 0], [1e308, 1e308]), "row 0 and column 0, counted from 0, is inf"),
        (([], []), "a matrix without entries needs a shape"),
        (([0], [0], None, 5), "shape must be two numbers, of rows and of columns, not 5"),
        (([0], [0], None, (5, 0)), "shape[1] must be at least 1, not 0"),
        (([0], [0], None, (2**50, 1)), "a matrix has at most 1099511627776 rows"),
    ],
)
def test_bad_triplets_are_refused(arguments, says):
    assert says in refusal(from_triplets, *arguments)
