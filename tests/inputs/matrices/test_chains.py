"""Chains of spins and fermions have the Hamiltonians that products of single sites make."""

import itertools
import math

import numpy as np
import pytest
from small_matrices import PAULI, dense, kron, same

from memkern.inputs.matrices import chains, free_fermions, spin_chain


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
