"""Matrices of lattices and chains equal Kronecker products and sums over neighbours."""

import math

import numpy as np
import pytest
from small_matrices import PAULI, dense, kron, line, neighbours_of

from memkern.inputs.matrices import (
    anderson,
    chains,
    five_point,
    free_fermions,
    graphene,
    hpcg,
    seven_point,
    spin_chain,
    topological_insulator,
)


def ring(n):
    return np.roll(np.eye(n), 1, axis=0) + np.roll(np.eye(n), -1, axis=0)


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


def test_a_topological_insulator_has_its_hamiltonians_pattern():
    nx, ny, nz = 3, 4, 2
    matrix = topological_insulator(nx, ny, nz, disorder=0.5, seed=3)
    full = dense(matrix)
    gammas = [kron(PAULI[2], np.eye(2)), *(kron(PAULI[0], pauli) for pauli in PAULI)]
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
    hops = sum(annihilators[i].T @ annihilators[j] for i, j in bonds_of(sites, periodic))
    full = -(hops + hops.T)
    for particles in range(sites + 1):
        matrix = free_fermions(sites, particles, periodic)
        assert np.array_equal(dense(matrix), sector(full, sites, particles))
        assert matrix.nnz == np.count_nonzero(matrix.data)
        bonds = sites if periodic else sites - 1
        pairs = math.comb(sites - 2, particles - 1) if particles else 0
        assert matrix.nnz == 2 * bonds * pairs


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
