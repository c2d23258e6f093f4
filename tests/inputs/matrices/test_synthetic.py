"""Random and other synthetic matrices have the entries that their parameters describe."""

import itertools
import math
from functools import reduce

import numpy as np
import pytest
from small_matrices import dense, neighbours_of

from memkern.inputs.matrices import (
    arrow,
    assembly,
    banded_random,
    kkt,
    rmat,
    rows_for,
    synthetic,
    tall_skinny,
)


@pytest.mark.parametrize(
    ("rows", "each", "columns"), [(1, 1, 1), (7, 3, 10), (9, 5, 5), (5, 4, 7), (4, 1, 3)]
)
def test_tall_and_skinny_rows_fill_the_pieces_in_turn(rows, each, columns):
    expected = np.zeros((rows, columns))
    start = 0
    for row in range(rows):
        if start + each > columns:
            start = 0
        expected[row, start : start + each] = 1
        start += each
    matrix = tall_skinny(rows, each, columns)
    assert np.array_equal(dense(matrix), expected)
    assert matrix.nnz == rows * each


@pytest.mark.parametrize("each", [1, 7, 40, 4000])
def test_rows_for_a_size(each):
    rows = rows_for(500 * 2**20, each)
    assert 12 * each * rows <= 500 * 2**20 < 12 * each * (rows + 1)
    assert rows_for(10, each) == 1
    matrix = tall_skinny(rows_for(1e6, each), each)
    assert matrix.data.nbytes + matrix.indices.nbytes <= 1e6
    assert matrix.shape[1] == 4000


@pytest.mark.parametrize(
    ("rows", "reach", "each"),
    [
        (1, 0, 1),
        (6, 0, 1),
        (30, 4, 1),
        (30, 4, 5),
        (30, 4, 9),
        (30, 29, 12),
        (10, 9, 19),
        (9, 5, 8),
    ],
)
def test_bands_hold_what_fits(rows, reach, each):
    matrix = banded_random(rows, reach, each, seed=1)
    full = dense(matrix)
    for row in range(rows):
        where = np.flatnonzero(full[row])
        assert row in where
        assert np.abs(where - row).max() <= reach
        band = min(rows - 1, row + reach) - max(0, row - reach) + 1
        assert len(where) == min(each, band)
    assert 0 < matrix.data.min() <= matrix.data.max() <= 1
    assert len(set(matrix.data)) == matrix.nnz
    if each <= reach + 1:
        assert matrix.nnz == rows * each


def test_all_sets_of_columns_are_equally_likely():
    draws = np.random.default_rng(5).random((20000, 3))
    drawn = assembly.distinct_columns(draws, np.full(20000, 6))
    sets, counts = np.unique(drawn, axis=0, return_counts=True)
    assert sets.tolist() == [list(some) for some in itertools.combinations(range(6), 3)]
    assert np.abs(counts - 1000).max() < 5 * math.sqrt(1000)


def quarters_of(scale, a, b, c):
    return reduce(np.kron, [np.array([[a, b], [c, 1 - a - b - c]])] * scale)


@pytest.mark.parametrize("at_once", [2**18, 1000])
def test_edges_follow_the_probabilities_of_the_quarters(monkeypatch, at_once):
    monkeypatch.setattr(synthetic, "_EDGES_AT_ONCE", at_once)
    for quarters in ((0.57, 0.19, 0.19), (0.1, 0.3, 0.2), (0, 0.5, 0.5), (1, 0, 0)):
        counts = dense(rmat(3, 10000, *quarters, seed=6))
        expected = 80000 * quarters_of(3, *quarters)
        assert counts.sum() == 80000
        assert np.all(counts[expected == 0] == 0)
        assert np.abs(counts - expected).max() < 5 * math.sqrt(expected.max())
        likely = expected > 20
        deviations = (counts - expected)[likely] / np.sqrt(expected[likely])
        assert np.abs(deviations).max() < 5


def test_graphs_are_skewed_and_edges_merged():
    matrix = rmat(12, 8)
    assert matrix.shape == (4096, 4096)
    assert matrix.data.sum() == 8 * 4096
    assert matrix.nnz < 8 * 4096
    assert matrix.data.max() > 1
    degrees = np.diff(matrix.indptr)
    assert degrees.max() > 30 * degrees.mean()
    assert degrees.min() == 0
    # No memory of merged edges stays allocated.
    assert matrix.data.base is None
    assert len(matrix.data) == matrix.nnz


@pytest.mark.parametrize("delta", [0, 0.25])
@pytest.mark.parametrize(("n", "m", "each"), [(1, 1, 1), (2, 8, 3), (3, 5, 27), (3, 27, 1)])
def test_kkt_systems_are_put_together_from_blocks(n, m, each, delta):
    matrix = kkt(n, m, each, delta, seed=4)
    full, points = dense(matrix), n**3
    assert np.array_equal(full[:points, :points], 6 * np.eye(points) - neighbours_of(n, n, n))
    constraints = full[points:, :points]
    assert np.array_equal(full[:points, points:], constraints.T)
    assert np.array_equal(full[points:, points:], -delta * np.eye(m))
    assert np.all(np.count_nonzero(constraints, axis=1) == each)
    values = constraints[constraints > 0]
    assert len(set(values)) == m * each
    assert values.max() <= 1
    diagonal = m if delta else 0
    assert matrix.nnz == 7 * points - 6 * n**2 + 2 * m * each + diagonal


@pytest.mark.parametrize("n", [1, 2, 5])
def test_arrows(n):
    expected = np.diag([2.0] * n)
    expected[0, 1:] = 1
    assert np.array_equal(dense(arrow(n)), expected)
    assert arrow(n).nnz == 2 * n - 1
    expected[1:, 0] = 1
    assert np.array_equal(dense(arrow(n, column=True)), expected)
    assert arrow(n, column=True).nnz == 3 * n - 2
