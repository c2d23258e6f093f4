"""Matrices compared with Kronecker products, geometry, brute force; kinds of files; errors."""

import bz2
import gzip
import io
import itertools
import lzma
import math
import os
import tarfile
import threading
import tracemalloc
from functools import partial, reduce
from pathlib import Path

import checking
import numpy as np
import pytest
import scipy.io
from checking import PROPERTY, allocating_at_most, unless_refused
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from memkern.errors import InputError
from memkern.inputs.matrices import (
    GENERATORS,
    WORDS,
    anderson,
    arrow,
    assembly,
    banded_random,
    build,
    chains,
    five_point,
    free_fermions,
    from_array,
    from_sparse,
    from_triplets,
    graphene,
    grids,
    hpcg,
    kkt,
    read,
    reorder,
    rmat,
    rows_for,
    seven_point,
    spin_chain,
    statistics,
    synthetic,
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


def line(n):
    """Return the adjacency matrix of n points on a line."""
    return np.eye(n, k=1) + np.eye(n, k=-1)


def ring(n):
    return np.roll(np.eye(n), 1, axis=0) + np.roll(np.eye(n), -1, axis=0)


def neighbours_of(nz, ny, nx, along=(line, line, line)):
    """Return the adjacency matrix of the points of a box."""
    one = np.eye
    return (
        kron(along[0](nz), one(ny), one(nx))
        + kron(one(nz), along[1](ny), one(nx))
        + kron(one(nz), one(ny), along[2](nx))
    )


BOXES = [(1, 1, 1), (1, 1, 5), (4, 1, 2), (1, 3, 1), (2, 2, 2), (3, 4, 5), (5, 2, 3)]


@pytest.mark.parametrize(("nx", "ny", "nz"), BOXES)
def test_stencils_are_kronecker_products(nx, ny, nz):
    full = dense(hpcg(nx, ny, nz))
    around = [np.eye(n) + line(n) for n in (nz, ny, nx)]
    assert np.array_equal(full, 27 * np.eye(nx * ny * nz) - kron(*around))
    assert hpcg(nx, ny, nz).nnz == (3 * nx - 2) * (3 * ny - 2) * (3 * nz - 2)

    full = dense(seven_point(nx, ny, nz))
    assert np.array_equal(full, 6 * np.eye(nx * ny * nz) - neighbours_of(nz, ny, nx))
    assert np.linalg.eigvalsh(full).min() > 0
    nonzeros = 7 * nx * ny * nz - 2 * (nx * ny + ny * nz + nz * nx)
    assert seven_point(nx, ny, nz).nnz == nonzeros == np.count_nonzero(full)

    full = dense(five_point(nx, ny))
    expected = 4 * np.eye(nx * ny) - kron(np.eye(ny), line(nx)) - kron(line(ny), np.eye(nx))
    assert np.array_equal(full, expected)
    assert five_point(nx, ny).nnz == 5 * nx * ny - 2 * nx - 2 * ny == np.count_nonzero(full)


def test_one_number_makes_a_cube():
    assert same(hpcg(4), hpcg(4, 4, 4))
    assert same(build("hpcg:4")[1], hpcg(4))


@pytest.mark.parametrize(
    ("periodic", "shape"), [(True, (3, 4, 5)), (True, (3, 3, 3)), (False, (2, 1, 4))]
)
def test_anderson_is_a_lattice_with_a_random_diagonal(periodic, shape):
    nx, ny, nz = shape
    matrix = anderson(*shape, disorder=3.0, seed=2, periodic=periodic)
    full = dense(matrix)
    energies = np.diag(full)
    ends = (ring if periodic else line,) * 3
    assert np.array_equal(full - np.diag(energies), -neighbours_of(nz, ny, nx, ends))
    assert np.abs(energies).max() <= 1.5
    assert len(set(energies)) == nx * ny * nz
    fewer = 0 if periodic else 2 * (nx * ny + ny * nz + nz * nx)
    assert matrix.nnz == 7 * nx * ny * nz - fewer
    assert np.all(np.diag(dense(anderson(3, 3, 3, disorder=0))) == 0)
    assert anderson(3, 3, 3, disorder=0).nnz == 7 * 27


def test_energies_are_uniform():
    for matrix in (anderson(20, 20, 20, 8.0), graphene(100, 80, 1, 8.0)):
        energies = np.sort(matrix.diagonal()) / 8 + 0.5
        ranks = np.arange(8000) / 8000
        # Kolmogorov-Smirnov test: above 1.95 in one of a thousand cases.
        assert np.abs(energies - ranks).max() * math.sqrt(8000) < 1.95


@pytest.mark.parametrize("neighbours", [1, 2, 3])
@pytest.mark.parametrize(
    ("nx", "ny"), [(1, 1), (1, 6), (6, 1), (2, 2), (3, 3), (4, 5), (5, 4), (6, 6), (7, 5)]
)
def test_graphene_joins_atoms_by_their_distance(nx, ny, neighbours):
    matrix = graphene(nx, ny, neighbours, disorder=0.5, seed=1)
    full = dense(matrix)
    # Positions of the atoms for bonds of length 1: zigzag rows, bonds up from the upper atoms.
    y, x = np.divmod(np.arange(nx * ny), nx)
    place = x * math.sqrt(3) / 2 + 1j * (1.5 * y + np.where((x + y) % 2, 0.0, 0.5))
    distance = np.abs(place[:, None] - place)
    expected = np.zeros_like(full)
    hopping = [(1, -1.0), (math.sqrt(3), -0.1), (2, -0.05)]
    for far, value in hopping[:neighbours]:
        expected[np.abs(distance - far) < 1e-9] = value
    energies = np.diag(full)
    assert np.array_equal(full - np.diag(energies), expected)
    assert len(set(energies)) == nx * ny
    assert np.abs(energies).max() <= 0.25
    assert matrix.nnz == nx * ny + np.count_nonzero(expected)


PAULI = [np.array([[0, 1], [1, 0]]), np.array([[0, -1j], [1j, 0]]), np.diag([1, -1])]


def test_a_topological_insulator_has_its_hamiltonians_pattern():
    nx, ny, nz = 3, 4, 2
    matrix = topological_insulator(nx, ny, nz, disorder=0.5, seed=3)
    full = dense(matrix)
    gammas = [kron(PAULI[2], np.eye(2)), *(kron(PAULI[0], pauli) for pauli in PAULI)]
    for one, other in itertools.combinations_with_replacement(gammas, 2):
        assert np.array_equal(one @ other + other @ one, 2 * np.eye(4) * (one is other))
    forward = [np.roll(np.eye(nx), 1, axis=0), np.roll(np.eye(ny), 1, axis=0), np.eye(nz, k=-1)]
    shifts = [
        kron(np.eye(nz), np.eye(ny), forward[0]),
        kron(np.eye(nz), forward[1], np.eye(nx)),
        kron(forward[2], np.eye(ny), np.eye(nx)),
    ]
    hops = sum(
        kron(shift, -(gammas[0] - 1j * gamma) / 2)
        for shift, gamma in zip(shifts, gammas[1:], strict=True)
    )
    hamiltonian = hops + hops.conj().T + kron(np.eye(nx * ny * nz), 2 * gammas[0])
    assert np.any(hamiltonian.imag)
    energies = np.diag(full)
    assert np.array_equal(
        full - np.diag(energies), np.abs(hamiltonian - np.diag(np.diag(hamiltonian)))
    )
    potential = (energies - np.diag(hamiltonian).real).reshape(-1, 4)
    assert np.allclose(potential, potential[:, :1], rtol=0, atol=1e-15)
    assert np.abs(potential).max() <= 0.25
    assert len(set(potential[:, 0].round(12))) == nx * ny * nz
    assert matrix.nnz == 52 * nx * ny * nz - 16 * nx * ny
    assert np.array_equal(
        np.diag(dense(topological_insulator(3, 3, 1))), np.tile([2.0, 2, -2, -2], 9)
    )


def on_site(operator, site, sites):
    """Return an operator of one site as an operator of all; site 0 is the fastest index."""
    return kron(*(operator if other == site else np.eye(2) for other in reversed(range(sites))))


def sector(full, sites, ups):
    """Return the part of an operator that acts on states with `ups` bits set."""
    states = [state for state in range(2**sites) if state.bit_count() == ups]
    return full[np.ix_(states, states)]


def bonds_of(sites, periodic):
    return [(i, (i + 1) % sites) for i in range(sites if periodic else sites - 1)]


CHAINS = [(n, False) for n in range(2, 8)] + [(n, True) for n in range(3, 8)]


@pytest.mark.parametrize(("sites", "periodic"), CHAINS)
def test_spin_chains_are_products_of_spins(sites, periodic):
    # State 0 of a site is spin down.
    spins = [on_site(PAULI[0] / 2, i, sites) for i in range(sites)]
    spins = [
        (spin, on_site(PAULI[1] / 2, i, sites), on_site(-PAULI[2] / 2, i, sites))
        for i, spin in enumerate(spins)
    ]
    for anisotropy in (1, -0.7):
        weights = (1, 1, anisotropy)
        full = sum(
            weight * one @ other
            for i, j in bonds_of(sites, periodic)
            for weight, one, other in zip(weights, spins[i], spins[j], strict=True)
        )
        assert not np.any(full.imag)
        for up in range(sites + 1):
            matrix = spin_chain(sites, up, anisotropy, periodic)
            assert np.allclose(dense(matrix), sector(full.real, sites, up), rtol=0, atol=1e-14)
            hops = math.comb(sites - 2, up - 1) if up else 0
            bonds = sites if periodic else sites - 1
            assert matrix.shape[0] == math.comb(sites, up)
            assert matrix.nnz == math.comb(sites, up) + 2 * bonds * hops


@pytest.mark.parametrize(("sites", "periodic"), CHAINS)
def test_fermions_hop_with_their_sign(sites, periodic):
    lower, parity = np.array([[0, 1], [0, 0]]), np.diag([1, -1])
    annihilators = [
        kron(*(parity if k < i else lower if k == i else np.eye(2) for k in reversed(range(sites))))
        for i in range(sites)
    ]
    for one, other in itertools.product(range(sites), repeat=2):
        product = annihilators[one].T @ annihilators[other]
        anticommutator = product + annihilators[other] @ annihilators[one].T
        assert np.array_equal(anticommutator, np.eye(2**sites) * (one == other))
    hops = sum(annihilators[i].T @ annihilators[j] for i, j in bonds_of(sites, periodic))
    full = -(hops + hops.T)
    for particles in range(sites + 1):
        matrix = free_fermions(sites, particles, periodic)
        assert np.array_equal(dense(matrix), sector(full, sites, particles))
        assert matrix.nnz == np.count_nonzero(matrix.data)
        bonds = sites if periodic else sites - 1
        pairs = math.comb(sites - 2, particles - 1) if particles else 0
        assert matrix.nnz == 2 * bonds * pairs


def test_chains_are_half_filled_by_default():
    assert same(spin_chain(6), spin_chain(6, 3))
    assert same(spin_chain(7), spin_chain(7, 3))
    assert same(free_fermions(6), free_fermions(6, 3))


def test_states_of_long_chains_are_found_without_a_table():
    ranks = np.array([0, 1, 2, math.comb(62, 31) // 3, math.comb(62, 31) - 1])
    choose = chains._binomials(62, 31)
    up, below = chains._states(ranks, 62, 31, choose)
    states = [sum(1 << int(site) for site in np.flatnonzero(column)) for column in up.T]
    assert states[:3] == [2**31 - 1, 2**31 - 1 + 2**30, 2**31 - 1 + 2**30 + 2**29]
    assert states[-1] == (2**31 - 1) << 31
    assert [state.bit_count() for state in states] == [31] * 5
    assert np.array_equal(below, np.cumsum(up, axis=0) - up)
    # The rank is the state's number in the combinatorial number system.
    for rank, state in zip(ranks.tolist(), states, strict=True):
        bits = [site for site in range(62) if state >> site & 1]
        assert rank == sum(math.comb(site, j) for j, site in enumerate(bits, 1))


def test_the_sizes_of_the_papers_matrices(monkeypatch):
    def sizes(rows, columns, nonzeros, parts):
        assert rows == columns
        return rows, nonzeros

    for module in (grids, chains):
        monkeypatch.setattr(module, "assemble", sizes)
    assert hpcg(192) == (7_077_888, 189_119_224)
    assert spin_chain(26) == (10_400_600, 145_608_400)
    assert free_fermions(26) == (10_400_600, 140_616_112)
    assert graphene(4096, 4096) == (16_777_216, 218_013_704)


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


def test_all_columns_of_a_band_are_equally_likely():
    counts = np.zeros(11)
    full = dense(banded_random(4000, 5, 4))[5:-5]
    for row, values in enumerate(full, 5):
        counts += values[row - 5 : row + 6] > 0
    assert counts[5] == 3990
    others = np.delete(counts, 5)
    # A row has three of ten other columns; the tolerance is five standard deviations.
    assert np.abs(others - 0.3 * 3990).max() < 5 * math.sqrt(3990 * 0.3 * 0.7)


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
SEEDED = ["anderson", "graphene", "topins", "band", "rmat", "kkt"]
SYMMETRIC = set(CASES) - {"tsm", "band", "rmat", "arrow"}


@pytest.mark.parametrize("name", CASES)
def test_symmetry_is_as_claimed(name):
    full = dense(CASES[name]())
    symmetric = full.shape[0] == full.shape[1] and np.array_equal(full, full.T)
    assert symmetric == (name in SYMMETRIC)


@pytest.mark.parametrize("name", SEEDED)
def test_the_seed_selects_the_matrix(name):
    make = CASES[name]
    assert same(make(3), make(3))
    assert not same(make(3), make(4))


@pytest.mark.parametrize("name", CASES)
def test_blocks_make_no_difference(name, monkeypatch):
    expected = CASES[name]()
    for block in (1, 50, 777):
        monkeypatch.setattr(assembly, "BLOCK", block)
        assert same(CASES[name](), expected)


@pytest.mark.parametrize("name", CASES)
def test_indices_are_as_wide_as_needed(name, monkeypatch):
    expected = CASES[name]()
    largest = max(*expected.shape, expected.nnz)
    monkeypatch.setattr(assembly, "_INT32_MAX", largest)
    fits = CASES[name]()
    monkeypatch.setattr(assembly, "_INT32_MAX", largest - 1)
    wide = CASES[name]()
    assert fits.indices.dtype == fits.indptr.dtype == np.int32
    assert wide.indices.dtype == wide.indptr.dtype == np.int64
    assert same(fits, expected)
    assert same(wide, expected)
    # Matrices made from it keep 64-bit indices, although SciPy would narrow them.
    assert from_sparse(wide).indices.dtype == from_sparse(wide).indptr.dtype == np.int64
    if wide.shape[0] == wide.shape[1]:
        again, permutation = reorder(wide)
        assert again.indices.dtype == again.indptr.dtype == np.int64
        assert np.array_equal(again.toarray(), expected.toarray()[permutation][:, permutation])


def peak_of(make):
    """Return the bytes of a matrix and the peak of allocated bytes while it was made."""
    hpcg(2)  # imports SciPy
    peaks = []
    # The lower of two peaks, since other threads of the interpreter may allocate as well.
    for _ in range(2):
        tracemalloc.start()
        try:
            matrix = make()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        size = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
        del matrix
    return size, min(peaks)


def test_a_large_matrix_takes_little_more_than_itself():
    size, peak = peak_of(lambda: hpcg(60))
    assert size > 66e6
    assert peak < 1.5 * size


@pytest.mark.parametrize(
    "make",
    [
        lambda: anderson(32, 32, 32),
        lambda: graphene(200, 150),
        lambda: topological_insulator(16, 16, 16),
        lambda: spin_chain(18),
        lambda: free_fermions(18),
        lambda: tall_skinny(20000, 20),
        lambda: banded_random(20000, 1000, 15),
        lambda: rmat(15),
        lambda: kkt(30, 27000),
        lambda: arrow(200000),
    ],
)
def test_no_generator_holds_its_matrix_twice(make, monkeypatch):
    # These matrices are small, so blocks must be small too.
    monkeypatch.setattr(assembly, "BLOCK", 2**12)
    monkeypatch.setattr(synthetic, "_EDGES_AT_ONCE", 2**12)
    size, peak = peak_of(make)
    assert size > 2.5e6
    assert peak < 1.75 * size


WRONG = [0, -1, 1.0, True, None, "3", float("nan"), 2**70]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    ("call", "what"),
    [
        (hpcg, "nx"),
        (lambda wrong: hpcg(1, 1, wrong if wrong is not None else 0), "nz"),
        (lambda wrong: five_point(1, wrong), "ny"),
        (lambda wrong: seven_point(1, wrong, 1), "ny"),
        (lambda wrong: anderson(3, 3, wrong), "nz"),
        (lambda wrong: graphene(wrong, 1), "nx"),
        (lambda wrong: graphene(2, 2, wrong), "neighbours"),
        (lambda wrong: topological_insulator(wrong, 3, 3), "nx"),
        (spin_chain, "sites"),
        (free_fermions, "sites"),
        (lambda wrong: tall_skinny(wrong, 1), "rows"),
        (lambda wrong: tall_skinny(1, wrong), "nonzeros_per_row"),
        (lambda wrong: tall_skinny(1, 1, wrong), "columns"),
        (lambda wrong: banded_random(wrong, 0, 1), "rows"),
        (lambda wrong: banded_random(5, 1, wrong), "nonzeros_per_row"),
        (rmat, "scale"),
        (lambda wrong: rmat(3, wrong), "edge_factor"),
        (lambda wrong: kkt(wrong, 1), "n"),
        (lambda wrong: kkt(2, wrong), "constraints"),
        (lambda wrong: kkt(2, 2, wrong), "nonzeros_per_constraint"),
        (arrow, "n"),
        (lambda wrong: rows_for(100, wrong), "nonzeros_per_row"),
    ],
)
def test_wrong_numbers_are_refused(call, what, wrong):
    message = refusal(call, wrong)
    assert message.startswith(f"{what} must be") or "a matrix has at most" in message


@pytest.mark.parametrize("wrong", [-1, 1.0, True, None, "3", 2**70])
@pytest.mark.parametrize("name", SEEDED)
def test_wrong_seeds_are_refused(name, wrong):
    assert refusal(CASES[name], wrong).startswith("seed must be")


@pytest.mark.parametrize("wrong", [-1, True, None, "3", math.nan, math.inf, 10**400, 1j])
@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda wrong: anderson(3, 3, 3, wrong), "disorder"),
        (lambda wrong: graphene(3, 3, 3, wrong), "disorder"),
        (lambda wrong: topological_insulator(3, 3, 3, wrong), "disorder"),
        (lambda wrong: kkt(2, 2, delta=wrong), "delta"),
        (lambda wrong: rmat(2, a=wrong), "a"),
        (lambda wrong: rmat(2, b=wrong), "b"),
        (lambda wrong: rmat(2, c=wrong), "c"),
        (lambda wrong: rows_for(wrong, 1), "bytes_B"),
    ],
)
def test_wrong_real_numbers_are_refused(call, what, wrong):
    assert refusal(call, wrong).startswith(f"{what} must be a finite number of at least")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: hpcg(2, 3), "hpcg needs nx alone, or all of nx, ny and nz"),
        (lambda: hpcg(2, None, 3), "hpcg needs nx alone"),
        (lambda: hpcg(10000), "a matrix has at most 1099511627776 nonzeros, not 26994600359992"),
        (lambda: anderson(3, 2, 3), "ny must be at least 3 where the lattice is periodic, not 2"),
        (lambda: topological_insulator(3, 1, 3), "ny must be at least 3 where"),
        (lambda: graphene(2, 2, 4), "neighbours must be at most 3, not 4"),
        (lambda: graphene(2**40, 2), "at most 1099511627776 rows, not 2199023255552"),
        (lambda: spin_chain(1), "sites must be at least 2, not 1"),
        (lambda: spin_chain(2, periodic=True), "sites must be at least 3, not 2"),
        (lambda: spin_chain(63), "sites must be at most 62, not 63"),
        (lambda: spin_chain(62), "at most 1099511627776 rows, not 465428353255261088"),
        (lambda: spin_chain(4, 5), "up must be at most 4, not 5"),
        (lambda: spin_chain(4, -1), "up must be at least 0, not -1"),
        (lambda: spin_chain(4, anisotropy=math.nan), "anisotropy must be a finite number, not nan"),
        (lambda: free_fermions(4, 5), "particles must be at most 4, not 5"),
        (lambda: free_fermions(2), "sites must be at least 3, not 2"),
        (lambda: tall_skinny(5, 6, 5), "nonzeros_per_row must be at most 5, not 6"),
        (lambda: banded_random(5, 5, 1), "bandwidth must be at most 4, not 5"),
        (lambda: banded_random(5, 1, 4), "nonzeros_per_row must be at most 3, not 4"),
        (lambda: rmat(32), "scale must be at most 31, not 32"),
        (lambda: rmat(31, 2**10), "at most 1099511627776 nonzeros"),
        (lambda: rmat(3, a=0.6, b=0.3, c=0.2), "a, b and c must add up to at most 1, not 1.1"),
        (lambda: kkt(2, 9), "constraints must be at most 8, not 9"),
        (lambda: kkt(2, 1, 9), "nonzeros_per_constraint must be at most 8, not 9"),
        (lambda: kkt(2**30, 1), "at most 1099511627776 rows"),
        (lambda: reorder(tall_skinny(2, 1, 3)), "must be square, not 2 x 3"),
        (lambda: reorder(arrow(3), "amd"), "order must be rcm, not 'amd'"),
        (lambda: reorder([[1]]), "a matrix must be SciPy's, not [[1]]"),
        (lambda: statistics(np.eye(2)), "a matrix must be SciPy's, not array"),
    ],
)
def test_wrong_arguments_are_refused(call, says):
    assert says in refusal(call)


@pytest.mark.parametrize(
    ("text", "label", "expected"),
    [
        ("hpcg:3:4:5", "hpcg:3:4:5", lambda: hpcg(3, 4, 5)),
        (" HPCG:3 ", "hpcg:3", lambda: hpcg(3)),
        ("tsm:10:3", "tsm:10:3", lambda: tall_skinny(10, 3)),
        ("tsm:10:3:7", "tsm:10:3:7", lambda: tall_skinny(10, 3, 7)),
        ("5pt:3:4", "5pt:3:4", lambda: five_point(3, 4)),
        ("7pt:3:4:5", "7pt:3:4:5", lambda: seven_point(3, 4, 5)),
        ("spin:8", "spin:8", lambda: spin_chain(8)),
        ("spin:8:3", "spin:8:3", lambda: spin_chain(8, 3)),
        ("fermions:8:3", "fermions:8:3", lambda: free_fermions(8, 3)),
        ("anderson:3:4:5", "anderson:3:4:5:16.5:9", lambda: anderson(3, 4, 5, 16.5, 9)),
        ("anderson:3:4:5:2", "anderson:3:4:5:2:9", lambda: anderson(3, 4, 5, 2, 9)),
        ("anderson:3:4:5:2e0:7", "anderson:3:4:5:2:7", lambda: anderson(3, 4, 5, 2, 7)),
        ("graphene:5:6", "graphene:5:6:3:1:9", lambda: graphene(5, 6, 3, 1, 9)),
        ("graphene:5:6:1:0", "graphene:5:6:1:0:9", lambda: graphene(5, 6, 1, 0)),
        ("topins:3:4:5", "topins:3:4:5:0:9", lambda: topological_insulator(3, 4, 5)),
        ("band:20:5:3", "band:20:5:3:9", lambda: banded_random(20, 5, 3, 9)),
        ("band:20:5:3:1", "band:20:5:3:1", lambda: banded_random(20, 5, 3, 1)),
        ("rmat:5", "rmat:5:16:9", lambda: rmat(5, seed=9)),
        ("rmat:5:8:1", "rmat:5:8:1", lambda: rmat(5, 8, seed=1)),
        ("kkt:3:4", "kkt:3:4:4:9", lambda: kkt(3, 4, seed=9)),
        ("arrow:9", "arrow:9", lambda: arrow(9)),
    ],
)
def test_texts_select_generators(text, label, expected):
    made, matrix = build(text, seed=9)
    assert made == label
    assert same(matrix, expected())
    assert same(build(label)[1], matrix)


def test_every_generator_has_a_name_in_texts():
    assert [form.partition(":")[0].partition("[")[0] for form in WORDS] == list(GENERATORS)
    assert {maker.__name__ for maker in GENERATORS.values()} == {
        name
        for module in (grids, chains, synthetic)
        for name in module.__all__
        if name not in ("rows_for", "seven_point_blocks")
    }
    message = refusal(build, "laplace:5")
    assert all(form in message for form in WORDS)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "a matrix is one of hpcg"),
        ("nothing", "or the path of a file that exists, not 'nothing'"),
        ("no/such.mtx", "or the path of a file that exists, not 'no/such.mtx'"),
        ("hpcg:", "nx must be an integer, not ''"),
        ("hpcg:2:3", "matrix 'hpcg:2:3' must have the form hpcg[:N or :NX:NY:NZ]"),
        ("hpcg:0", "nx must be at least 1, not 0"),
        ("hpcg:1.5", "nx must be an integer, not '1.5'"),
        ("tsm", "must have the form tsm:ROWS:NONZEROS[:COLUMNS]"),
        ("spin:8:x", "up must be an integer, not 'x'"),
        ("anderson:3:3:3:x", "disorder must be a number, not 'x'"),
        ("anderson:3:3:3:nan", "disorder must be a finite number"),
        ("rmat:3:3:3:3", "must have the form rmat:SCALE[:EDGES[:SEED]]"),
        ("rmat:99999999999999999999", "scale must be at most"),
        (5, "a matrix is a text, a path, a SciPy matrix, a NumPy array or triplets, not 5"),
        (None, "not None"),
        ([[1.0]], "not [[1.0]]"),
        (([0], [0]), "triplets must be (rows, columns, values)"),
        (np.ones(3), "the matrix must be an array of rows and columns, not of shape (3,)"),
        (np.ones((0, 3)), "not of shape (0, 3)"),
        (np.array([["x"]]), "the matrix must hold real numbers, not <U1 values"),
        (np.array([[1j]]), "some of its imaginary parts are not zero"),
        (np.array([[1, np.inf]]), "row 0 and column 1, counted from 0, is inf"),
        (np.array([[object()]]), "the matrix must hold real numbers, not object values"),
    ],
)
def test_what_is_no_matrix_is_refused(given, says):
    assert says in refusal(build, given)


@settings(PROPERTY, max_examples=200)
@given(
    st.text(max_size=20)
    | st.from_regex(r"(hpcg|spin|rmat|band|tsm|kkt|topins)(:-?[0-9.e]{0,2}){0,4}", fullmatch=True)
)
def test_any_text_is_a_matrix_or_refused_in_one_line(text):
    with pytest.MonkeyPatch.context() as patch:
        # Only sizes are checked: no matrix is made.
        for module in (grids, chains, synthetic):
            patch.setattr(module, "assemble", lambda *sizes: sizes)
        made = unless_refused(build, text)
    assert made is None or made[0]


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
        damaged("csr", indices=np.array([0, -1, 2])),
        damaged("csr", indptr=np.array([0, 1, 2, 30])),
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
        (([0], [5], None, (5, 5)), "columns[0] must be from 0 to 4, not 5"),
        (([0.5], [0]), "rows[0] must be an integer, not 0.5"),
        ((np.array([0.0]), [0]), "rows must hold whole numbers, not float64 values"),
        (([0], np.array([[0]])), "columns must be a one-dimensional array"),
        (([0], np.array([2**63], dtype=np.uint64)), "columns[0] must be at most"),
        (([0], [0, 1]), "columns must have as many numbers as rows, 1, not 2"),
        (
            ([0], [0], [1.0, 2.0]),
            "values must be one for each of 1 entries, not an array of shape (2,)",
        ),
        (([0], [0], [[1.0]]), "not an array of shape (1, 1)"),
        (([0], [0], 1.0), "not an array of shape ()"),
        (([0], [0], ["x"]), "values must hold real numbers"),
        (([0], [0], [[1], [1, 2]]), "values must be an array of numbers"),
        (([0], [0], [1j]), "values must be real"),
        (([1], [2], [math.nan]), "row 1 and column 2, counted from 0, is nan"),
        (([0, 0], [0, 0], [1e308, 1e308]), "row 0 and column 0, counted from 0, is inf"),
        (([0], [0], [10**400]), "values must"),
        (([], []), "a matrix without entries needs a shape"),
        (([0], [0], None, 5), "shape must be two numbers, of rows and of columns, not 5"),
        (([0], [0], None, (5,)), "shape must be two numbers"),
        (([0], [0], None, (5, 0)), "shape[1] must be at least 1, not 0"),
        (([0], [0], None, (5, 1.5)), "shape[1] must be an integer, not 1.5"),
        (([0], [0], None, (2**50, 1)), "a matrix has at most 1099511627776 rows"),
        (([2**60], [0]), "a matrix has at most 1099511627776 rows"),
    ],
)
def test_bad_triplets_are_refused(arguments, says):
    assert says in refusal(from_triplets, *arguments)


def market(text, kind="coordinate real general"):
    return f"%%MatrixMarket matrix {kind}\n{text}"


def written(tmp_path, text, name="a.mtx"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


A_FEW = [[1.5, 0], [0, -25]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (market("2 2 2\n1 1 1.5\n2 2 -2.5e1\n"), A_FEW),
        (market("2 2 2\n2 2 -25.\n1 1 1.5"), A_FEW),
        (market("2 2 2\r\n1 1 15E-1\r\n2 2 -25\r\n").replace("general\n", "general\r\n"), A_FEW),
        (market("% a comment\n%\n\n 2\t2 2 \n\n \t1  1 1.5 \n\n2 2 -25\n\n \n"), A_FEW),
        (" %%MatrixMarket  MATRIX Coordinate REAL General\n2 2 2\n1 1 1.5\n2 2 -25\n", A_FEW),
        (market("2 3 0\n"), [[0, 0, 0]] * 2),
        (market("1 2 3\n1 1 1\n1 2 5\n1 1 2\n"), [[3, 5]]),
        (market("1 1 1\n1 1 .5\n"), [[0.5]]),
        (market("1 1 1\n01 1 1\n"), [[1]]),
        (market("1 1 1\n1 1 2\n", "coordinate double general"), [[2]]),
        (market("1 1 1\n1 1 -2\n", "coordinate integer general"), [[-2]]),
        (market("1 1 1\n1 1 2\n", "coordinate unsigned-integer general"), [[2]]),
        (market("1 2 1\n1 2\n", "coordinate pattern general"), [[0, 1]]),
        (market("2 2 2\n1 1\n2 1\n", "coordinate pattern symmetric"), [[1, 1], [1, 0]]),
        (market("2 2 2\n1 1 4\n2 1 3\n", "coordinate real symmetric"), [[4, 3], [3, 0]]),
        (market("2 2 2\n1 1 4\n1 2 3\n", "coordinate real symmetric"), [[4, 3], [3, 0]]),
        (market("2 2 2\n2 1 4\n2 1 3\n", "coordinate integer symmetric"), [[0, 7], [7, 0]]),
        (market("2 2 1\n2 1 3\n", "coordinate real skew-symmetric"), [[0, -3], [3, 0]]),
        (market("1 1 1\n1 1 3 0\n", "coordinate complex general"), [[3]]),
        (market("2 2 1\n2 1 3 -0.0\n", "coordinate complex hermitian"), [[0, 3], [3, 0]]),
        (market("2 2 1\n2 1 3\n", "coordinate real hermitian"), [[0, 3], [3, 0]]),
        (market("2 3\n1\n2\n3\n0\n5\n6\n", "array real general"), [[1, 3, 5], [2, 0, 6]]),
        (market("2 2\n1\n2\n3\n", "array integer symmetric"), [[1, 2], [2, 3]]),
        (market("2 2\n1\n2\n3\n", "array real hermitian"), [[1, 2], [2, 3]]),
        (
            market("3 3\n1\n2\n3\n", "array real skew-symmetric"),
            [[0, -1, -2], [1, 0, -3], [2, 3, 0]],
        ),
        (market("1 1\n7 0\n", "array complex general"), [[7]]),
    ],
)
def test_files_of_every_kind(tmp_path, text, expected):
    path = written(tmp_path, text)
    assert np.array_equal(dense(read(path)), expected)
    assert np.array_equal(dense(read(str(path))), expected)
    packed = written(tmp_path, gzip.compress(text.encode()), "b.MTX.GZ")
    assert np.array_equal(dense(read(packed)), expected)
    label, matrix = build(str(packed))
    assert label == "file b.MTX.GZ"
    assert np.array_equal(dense(matrix), expected)


def test_zeros_of_coordinates_are_kept_and_those_of_arrays_not(tmp_path):
    assert read(written(tmp_path, market("2 2 2\n1 1 0\n2 2 1\n"))).nnz == 2
    assert read(written(tmp_path, market("2 1\n0\n1\n", "array real general"))).nnz == 1


def sentence_of_entry(what="a row and a column, counted from 1, and a number"):
    return "line 3 of {} must be " + what


BAD = [
    ("", "{} is empty and must hold a matrix"),
    (" \n\n", "{} is empty and must hold a matrix"),
    (
        "2 2 1\n1 1 1\n",
        "{} must begin like %%MatrixMarket matrix coordinate real general, not with '2",
    ),
    (market("1 1 1\n1 1 1\n")[1:], "the first line of {} must begin with %%MatrixMarket, with"),
    (market("1 1 1\n1 1 1\n").replace("Market", "Markt"), "{} must begin like"),
    (market("1 1 1\n1 1 1\n").upper(), "{} must begin like"),
    ("\n" + market("1 1 1\n1 1 1\n"), "{} must begin like"),
    (market("1 1\n1 1\n").replace(" matrix", " vector"), "{} must begin like"),
    (market("1 1 1\n1 1 1\n", "coordinate real"), "{} must begin like"),
    (
        market("1 1 1\n1 1 1\n", "csr real general"),
        "must contain one of coordinate, array, not 'csr'",
    ),
    (market("1 1 1\n1 1 1\n", "coordinate text general"), "pattern, not 'text'"),
    (market("1 1 1\n1 1 1\n", "coordinate real upper"), "hermitian, not 'upper'"),
    (market("1 1\n", "array pattern general"), "{} must have values"),
    (market("2 2 1\n2 1\n", "coordinate pattern skew-symmetric"), "{} must have values"),
    (market(""), "line 2 of {} must be the numbers of rows, columns and entries, not ''"),
    (market("% only\n\n"), "line 4 of {} must be the numbers of"),
    (
        market("2 2\n1 1 1\n"),
        "line 2 of {} must be the numbers of rows, columns and entries, not '2 2'",
    ),
    (market("2 2 1 1\n1 1 1\n"), "line 2 of {} must be the numbers"),
    (market("2 2 1\n1\n", "array real general"), "the numbers of rows and columns, not '2 2 1'"),
    (market("a b c\n"), "not 'a b c'"),
    (market("2.0 2 1\n"), "not '2.0 2 1'"),
    (market("-2 2 1\n"), "not '-2 2 1'"),
    (market("2 2 -1\n"), "not '2 2 -1'"),
    (market("0 0 0\n"), "{} must have at least one row and one column"),
    (market("99999999999999999999 1 1\n1 1 1\n"), "{} can't be read: a matrix has at most"),
    (market("9223372036854775807 1 1\n1 1 1\n"), "has at most 1099511627776 rows"),
    (market("1 4611686018427387904 1\n1 1 1\n"), "has at most 1099511627776 columns"),
    (market("1 1 9223372036854775807\n1 1 1\n"), "sizes say, 9223372036854775807, not 1"),
    (market(f"{'9' * 5000} 1 1\n1 1 1\n"), "line 2 of {} must be the numbers"),
    (market("1 1 1000000000000\n1 1 1\n"), "as its sizes say, 1000000000000, not 1"),
    (market("3000000 300000\n1\n", "array real general"), "say, 900000000000, not 1"),
    (market("2 2 3\n1 1 1\n2 2 1\n"), "{} must have as many entries as its sizes say, 3, not 2"),
    (market("2 2 1\n1 1 1\n2 2 1\n"), "{} must have as many entries as its sizes say, 1, not 2"),
    (market("2 2\n1\n2\n3\n", "array real general"), "say, 4, not 3"),
    (market("2 2\n1\n2\n3\n4\n", "array real symmetric"), "say, 3, not 4"),
    (market("2 2\n1\n2\n", "array real skew-symmetric"), "say, 1, not 2"),
    (market("2 2 1\n3 1 1\n"), "{} can't be read as a Matrix Market file: Line 3: Row index"),
    (market("2 2 1\n1 3 1\n"), "Line 3: Column index out of bounds"),
    (market("2 2 1\n4294967297 1 1\n"), "Line 3: Integer out of range"),
    (market("2 2 1\n99999999999999999999999 1 1\n"), "Line 3: Integer out of range"),
    (market("1 1 1\n1 1 99999999999999999999\n", "coordinate integer general"), "Integer out of"),
    (market("2 2 1\n0 1 1\n"), sentence_of_entry() + ", not '0 1 1'"),
    (market("2 2 1\n1 0 1\n"), sentence_of_entry()),
    (market("2 2 1\n-1 1 1\n"), sentence_of_entry()),
    (market("2 2 1\n1.0 1 1\n"), sentence_of_entry()),
    (market("2 2 1\na 1 1\n"), sentence_of_entry()),
    (market("2 2 1\n1 1 abc\n"), sentence_of_entry() + ", not '1 1 abc'"),
    (market("2 2 1\n1 1 nan\n"), sentence_of_entry()),
    (market("2 2 1\n1 1 inf\n"), sentence_of_entry()),
    (market("2 2 1\n1 1 1e999\n"), "{} must hold finite numbers, and that in row 0 and column 0"),
    (market("2 2 1\n1 1\n"), sentence_of_entry()),
    (market("2 2 2\n1\n1 1 1\n"), sentence_of_entry()),
    (market("2 2 2\n1 1 1 2 2 2\n"), sentence_of_entry()),
    (market("2 2 2\n1 1 1\n% a comment\n2 2 1\n"), "line 4 of {} must be a row"),
    (
        market("1 1 1\n1 1 1\n", "coordinate pattern general"),
        sentence_of_entry("a row and a column"),
    ),
    (
        market("1 1 1\n1 1 1\n", "coordinate complex general"),
        "and two numbers, the parts of a value",
    ),
    (market("1 1 1\n1 1 1.5\n", "coordinate integer general"), "counted from 1, and an integer"),
    (market("2 2\n1 2\n3 4\n", "array real general"), "line 3 of {} must be a number, not '1 2'"),
    # SciPy's reader accepts these silently.
    (market("2 2 1\n1 1 5abc\n"), sentence_of_entry()),
    (market("2 2 1\n1 1 1,5\n"), sentence_of_entry()),
    (market("2 2 1\n1 1 1.5.2\n"), sentence_of_entry()),
    (market("2 2 1\n1 1 1.0D+2\n"), sentence_of_entry()),
    (market("2 2 1\n1 1 0x10\n"), sentence_of_entry()),
    (market("2 2 1\n1 2.5 3\n"), sentence_of_entry()),
    (
        market("2 2 2\n2 1 1\n1 2 3\n", "coordinate real symmetric"),
        "on one side of the diagonal only",
    ),
    (
        market("2 2 1\n1 1 3\n", "coordinate real skew-symmetric"),
        "{} must have a diagonal of zeros",
    ),
    (market("1 1 1\n1 1 3 1\n", "coordinate complex general"), "{} must be real, and some of its"),
    (
        market("2 2 1\n2 1 3 1\n", "coordinate complex hermitian"),
        "{} must be real, and some of its",
    ),
    (
        market("2 3 1\n1 3 1\n", "coordinate real symmetric"),
        "{} must be square, because it is symmetric",
    ),
    # SciPy's reader crashes on these.
    (market("2 2 2\n1 1 1.5\0\n2 2 1\n"), "line 3 of {} must be a row"),
    (market("2 2 2\n1 1 1.5\n\0\0\0\0\0\0"), "line 4 of {} must be a row"),
    (market("2 3\n1\n2\n3\n", "array real symmetric"), "because it is symmetric, not 2 x 3"),
    (market("1 1 1\n1 1 " + "1" * 100000 + "\n"), sentence_of_entry()),
]


@pytest.mark.parametrize(("text", "says"), BAD, ids=range(len(BAD)))
def test_bad_files_are_refused(tmp_path, text, says):
    path = written(tmp_path, text)
    assert says.format(path) in refusal(read, path)
    packed = written(tmp_path, gzip.compress(text.encode()), "b.mtx.gz")
    assert says.format(packed) in refusal(build, packed)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    assert f"{tmp_path} can't be read: Is a directory" in refusal(read, tmp_path)
    assert f"{tmp_path} can't be read: Is a directory" in refusal(build, str(tmp_path))
    missing = tmp_path / "none.mtx"
    assert f"{missing} does not exist" in refusal(read, missing)
    assert f"{missing} does not exist" in refusal(build, missing)
    assert "the path of a file that exists" in refusal(build, str(missing))
    text = market("1 1 1\n1 1 1\n").encode()
    for compress in (gzip.compress, bz2.compress, lzma.compress):
        sound = compress(text)
        for part in (sound[:12], sound[:-4], sound[:20] + b"\xff\xff" + sound[22:]):
            path = written(tmp_path, part, "a.mtx.gz")
            assert f"{path} can't be decompressed: " in refusal(read, path)


def archive(*names, compress=gzip.compress):
    """Return a tar archive of matrices; the n-th one has a single entry, in row n."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for number, name in enumerate(names):
            text = market(f"9 9 1\n{number + 1} 1 1\n").encode()
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return compress(out.getvalue())


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, bytes])
def test_files_and_archives_are_decompressed(tmp_path, compress):
    text = market("9 9 1\n1 1 1\n").encode()
    expected = dense(read(written(tmp_path, text)))
    # The suffix of the name does not matter.
    assert np.array_equal(dense(read(written(tmp_path, compress(text), "b.mtx.xz"))), expected)
    for names in (["x/a.mtx"], ["b/b.mtx", "b/b_b.mtx", "b/b_x.mtx"], ["c.mtx", "readme.txt"]):
        path = written(tmp_path, archive(*names, compress=compress), "c.tar.gz")
        assert np.array_equal(dense(read(path)), expected)
    for names, shown in ((["a.mtx", "b/c.mtx"], "a.mtx, b/c.mtx"), (["readme.txt"], "none")):
        path = written(tmp_path, archive(*names, compress=compress), "c.tar.gz")
        assert f"holds '{shown}': unpack it" in refusal(read, path)


def test_a_pipe_of_a_compressed_file_is_read(tmp_path):
    text = market("9 9 1\n1 1 1\n").encode()
    os.mkfifo(tmp_path / "pipe")
    thread = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[gzip.compress(text)])
    thread.start()
    assert dense(read(tmp_path / "pipe"))[0, 0] == 1
    thread.join()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (market("2 2 2\n1 1 +1.5e+3\n2 2 -2\n"), [[1500, 0], [0, -2]]),
        (market("2 2 1\n2 1 +7\n", "coordinate integer general"), [[0, 0], [7, 0]]),
        ("\ufeff" + market("2 2 1\n2 1 7\n"), [[0, 0], [7, 0]]),
        (
            market("2 2 3\n1 1 0\n2 1 5\n2 2 0.0\n", "coordinate real skew-symmetric"),
            [[0, -5], [5, 0]],
        ),
    ],
)
def test_what_the_standard_allows_is_read(tmp_path, text, expected):
    assert np.array_equal(dense(read(written(tmp_path, text))), expected)


HARWELL = (
    "1138 bus                                                                MATRIX\n"
    "             6             1             1             4             0\n"
    "RSA             1138          1138          2596             0\n"
)
OTHER = [
    (b"MATLAB 5.0 MAT-file, Platform: GLNXA64", "is a MATLAB file, not a Matrix Market file"),
    (b"\x89HDF\r\n\x1a\n", "is an HDF5 or MATLAB 7.3 file"),
    (b"PK\x03\x04\x14", "is a zip file, not a Matrix Market file: unzip it"),
    (HARWELL.encode(), "is a Harwell-Boeing or Rutherford-Boeing file"),
    (b"%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1\n", "with two %"),
    (market("34 78\n1 2 3\n").encode(), "add the number of columns as the second one"),
    (
        market("3 3 1\n1 2 0.5\n", "coordinate pattern general").encode(),
        "write real instead of pattern in the first line",
    ),
    (
        market("3 3 2\n1 2 1\n2 1 1\n", "coordinate real symmetric").encode(),
        "some on both: write general in its first line",
    ),
]


@pytest.mark.parametrize(("content", "says"), OTHER)
def test_other_formats_are_named_with_what_converts_them(tmp_path, content, says):
    message = refusal(read, written(tmp_path, content))
    assert says in message and "\\x" not in message


HUGE = 10**11


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        # The row starts alone take 400 GB.
        (market(f"{HUGE} {HUGE} 1\n1 1 1\n"), f"a matrix of {HUGE} x {HUGE} with 1 nonzeros needs"),
        (market(f"1000 1000 {HUGE}\n" + "1 1 1\n" * 200_000), f"say, {HUGE}, and a file of its"),
        (market("9 9 3\n" + "\n" * 3_000_000), "say, 3, and its text is longer than"),
        (market("9 9 3\n" + " " * 3_000_000), "say, 3, and its text is longer than"),
        (market("9 9 3\n1 1 1\n" + "2 2 1\n" * 200_000), "say, 3, and its text is longer than"),
        ("%%MatrixMarket" + "%" * 2_000_000, "must begin like %%MatrixMarket"),
        ("\0" * 3_000_000, "must begin like %%MatrixMarket"),
    ],
)
def test_sizes_in_headers_are_checked_before_memory_is_allocated(
    tmp_path, monkeypatch, text, says, packed
):
    content = gzip.compress(text.encode()) if packed else text.encode()
    path = written(tmp_path, content, "a.mtx" + ".gz" * packed)
    monkeypatch.setattr("memkern.limits.memory_left", lambda: (2**30, "the test"))
    refusal(read, path)  # imports modules
    with allocating_at_most(8 * 2**20):
        assert says in refusal(read, path)


def test_a_gzip_bomb_is_inflated_no_further_than_the_sizes_in_its_header(tmp_path):
    path = tmp_path / "bomb.mtx.gz"
    with gzip.open(path, "wb") as file:
        file.write(market("9 9 3\n").encode())
        for _ in range(64):
            file.write(b"\n" * 2**20)
    with allocating_at_most(8 * 2**20):
        assert "text is longer than" in refusal(read, path)


def test_a_text_of_more_than_a_mebibyte_is_read_whole(tmp_path):
    entries = "".join(f"{i} {i} 1.{i:06d}\n" for i in range(1, 70_001))
    text = market(f"70000 70000 70000\n{entries}").encode().removesuffix(b"\n")
    assert len(text) > 2**20
    plain = read(written(tmp_path, text))
    assert plain.nnz == 70_000 and plain.data[-1] == 1.07
    assert same(read(written(tmp_path, gzip.compress(text), "a.mtx.gz")), plain)
    cut = written(tmp_path, gzip.compress(text)[:-9], "b.mtx.gz")
    assert f"{cut} can't be decompressed" in refusal(read, cut)


def test_matrices_without_memory_are_refused(monkeypatch):
    monkeypatch.setattr("memkern.limits.memory_left", lambda: (2**30, "the test"))
    message = refusal(build, "hpcg:2000")
    size = "8000000000 x 8000000000 with 215784071992 nonzeros"
    assert f"a matrix of {size} needs about 3.64e" in message
    assert message.endswith(" GB of memory, but the test leaves 1.07 GB")


def test_an_error_in_a_long_file_is_reported_with_its_line(tmp_path):
    lines = [f"{1 + i % 7} {1 + i % 5} {i}" for i in range(20000)]
    lines[12345] = "1 1 x"
    path = written(tmp_path, market("7 7 20000\n" + "\n".join(lines)))
    assert f"line 12348 of {path} must be a row" in refusal(read, path)
    lines[12345] = "8 1 1"
    path = written(tmp_path, market("7 7 20000\n" + "\n".join(lines)))
    assert "Line 12348: Row index out of bounds" in refusal(read, path)


@settings(PROPERTY, max_examples=150)
@given(
    st.from_regex(r"[-+]?[0-9]{0,3}\.?[0-9]{0,3}([eEdD][-+]?[0-9]{1,2})?[ \tx]?", fullmatch=True)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
)
def test_numbers_are_read_as_in_python_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "number.mtx"
    path.write_text(market(f"1 1 1\n1 1 {text}\n"))
    try:
        matrix = read(path)
    except InputError:
        with pytest.raises(ValueError, match="could not convert"):
            # A plus sign is refused, although Python accepts it.
            float("x" if text.startswith("+") else text)
    else:
        assert matrix.toarray() == [[float(text)]]


def test_damaged_files_are_refused_in_one_line_or_another_matrix(tmp_path):
    kinds = ["coordinate real general", "coordinate real symmetric", "array real symmetric"]
    sound = [
        market("5 5 4\n1 1 1.5\n2 1 2e1\n\n3 3 -4\n5 4 .25\n", kinds[0]).encode(),
        market("3 3 3\n1 1 1\n2 1 2\n3 2 3\n", kinds[1]).encode(),
        market("3 3\n1\n2\n3\n4\n5\n6\n", kinds[2]).encode(),
    ]
    generator = np.random.default_rng(4)
    good = 0
    for turn in range(900):
        damaged = bytearray(sound[turn % 3])
        for place in generator.integers(0, len(damaged), 1 + turn % 2):
            damaged[place] = generator.choice([*b"0123456789.-e \n%\0", generator.integers(256)])
        path = written(tmp_path, bytes(damaged))
        matrix = unless_refused(read, path)
        if matrix is None:
            continue
        # A size may have become larger.
        if max(matrix.shape) < 1000:
            dense(matrix)
        good += 1
    assert good > 10


def test_files_written_by_scipy_are_read_back(tmp_path):
    for name, symmetry in (("7pt", "symmetric"), ("band", "general"), ("rmat", "general")):
        matrix = CASES[name]()
        scipy.io.mmwrite(tmp_path / "a.mtx", matrix, symmetry=symmetry)
        assert same(read(tmp_path / "a.mtx"), matrix)
    full = np.arange(6.0).reshape(2, 3)
    scipy.io.mmwrite(tmp_path / "b.mtx", full)
    assert np.array_equal(dense(read(tmp_path / "b.mtx")), full)


def test_the_reader_uses_the_processors_it_may_use(tmp_path, monkeypatch):
    from scipy.io import _fast_matrix_market as reader

    path = written(tmp_path, market("1 1 1\n1 1 1\n"))
    used = []
    mmread = scipy.io.mmread

    def watched(source):
        used.append(reader.PARALLELISM)
        return mmread(source)

    monkeypatch.setattr(scipy.io, "mmread", watched)
    before = reader.PARALLELISM
    read(path)
    assert used == [len(os.sched_getaffinity(0))]
    assert before == reader.PARALLELISM
    refusal(read, written(tmp_path, market("1 1 1\n1 2 1\n")))
    assert before == reader.PARALLELISM


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


def test_paths_may_look_like_generators(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("arrow:3").write_text(market("1 1 1\n1 1 7\n"))
    assert build("arrow:3")[0] == "arrow:3"
    assert build("./arrow:3")[0] == "file arrow:3"
    assert build(Path("arrow:3"))[1].toarray() == [[7]]
