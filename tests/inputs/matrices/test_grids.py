"""Matrices of lattices equal Kronecker products, and sums over neighbours at their distances."""

import itertools
import math

import numpy as np
import pytest
from small_matrices import PAULI, dense, kron, line, neighbours_of, same

from memkern.inputs.matrices import (
    anderson,
    build,
    five_point,
    graphene,
    hpcg,
    seven_point,
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
