"""Quantum chains: states with a fixed number of up spins or particles on a line or ring of sites.

A state is a binary number with one bit for each site, site 0 being the lowest bit, and states are
numbered in ascending order.  The number of a state is the sum of C(p, j) over its set bits, where p
is the position of the j-th of them (counted from 1): the combinatorial number system. It needs no
table of states in either direction.

The matrices are unfriendly to caches: their rows differ in length, and the distance of their
columns from the diagonal about doubles from bond to bond.
"""

from __future__ import annotations

from math import comb

import numpy as np

from memkern.checks import integer, number
from memkern.inputs.matrices.assembly import (
    CSR,
    Block,
    Bools,
    Integers,
    assemble,
    blocks,
    padded,
)

MAX_SITES = 62
"""The largest number of sites: all binomials of fewer than 63 fit 64 bits."""


def _chain(sites: object, ups: object, what: str, periodic: bool) -> tuple[int, int]:
    """Check the sites of a chain and how many of them are up or hold a particle."""
    checked = integer(sites, "sites", 3 if periodic else 2, MAX_SITES)
    return checked, integer(checked // 2 if ups is None else ups, what, 0, checked)


def _binomials(sites: int, ups: int) -> Integers:
    """Return C(n, k) for n up to `sites` and k up to two more than `ups`."""
    return np.array(
        [[comb(n, k) for k in range(ups + 3)] for n in range(sites + 1)], dtype=np.int64
    )


def _states(ranks: Integers, sites: int, ups: int, choose: Integers) -> tuple[Bools, Integers]:
    """Return which sites are up in states, and how many below each site: shapes (sites, k)."""
    up = np.empty((sites, len(ranks)), dtype=bool)
    below = np.empty((sites, len(ranks)), dtype=np.int64)
    rest, left = ranks.copy(), np.full(len(ranks), ups, dtype=np.int64)
    for site in reversed(range(sites)):
        # The number of states whose remaining ups are all below this site.
        without = choose[site, left]
        up[site] = rest >= without
        rest -= np.where(up[site], without, 0)
        left -= up[site]
        below[site] = left
    return up, below


def _hops(ranks: Integers, sites: int, ups: int, periodic: bool) -> tuple[Integers, Bools]:
    """Return the states after exchanging an up with a neighbouring down.

    Both results have shape (k, 2 bonds + 1): the numbers of the states, ascending among the
    reachable ones, with the state itself in the middle; and whether they are reachable.
    """
    choose = _binomials(sites, ups)
    up, below = _states(ranks, sites, ups, choose)
    bonds = sites if periodic else sites - 1
    columns = np.empty((len(ranks), 2 * bonds + 1), dtype=np.int64)
    present = np.zeros(columns.shape, dtype=bool)
    columns[:, bonds], present[:, bonds] = ranks, True
    for site in range(sites - 1):
        # The j-th up moves between p and p + 1: C(p + 1, j) - C(p, j) = C(p, j - 1).
        distance = choose[site, below[site]]
        low, high = bonds - 1 - site, bonds + 1 + site
        columns[:, low], present[:, low] = ranks - distance, up[site + 1] & ~up[site]
        columns[:, high], present[:, high] = ranks + distance, up[site] & ~up[site + 1]
    if periodic:
        # A hop between the ends of the ring changes j by one for all ups in between.  It changes
        # the number of the state more than any other hop, so its columns are the first and last.
        last = sites - 1
        to_last = np.full(len(ranks), choose[last, ups])
        to_first = np.zeros(len(ranks), dtype=np.int64)
        for site in range(1, last):
            to_last += np.where(up[site], choose[site, below[site]], 0)
            to_first += np.where(up[site], choose[site, below[site] + 2], 0)
        columns[:, 0], present[:, 0] = to_first, up[last] & ~up[0]
        columns[:, -1], present[:, -1] = to_last, up[0] & ~up[last]
    return columns, present


def _sizes(sites: int, ups: int, periodic: bool) -> tuple[int, int, int]:
    """Return the numbers of states, of bonds and of hops."""
    bonds = sites if periodic else sites - 1
    # Each bond has a hop from every state in which exactly one of its sites is up.
    return comb(sites, ups), bonds, 2 * bonds * comb(sites - 2, ups - 1) if ups else 0


def spin_chain(
    sites: int, up: int | None = None, anisotropy: float = 1.0, periodic: bool = False
) -> CSR:
    """Make the Heisenberg chain of spins 1/2 with a fixed number of them up.

    Unfriendly to caches.  Neighbours interact by ``(S+ S- + S- S+) / 2 + anisotropy Sz Sz``: XXX
    if the anisotropy is 1, else XXZ.  An L-site chain with u up has ``C(L, u)`` rows and
    ``C(L, u) + 2 B C(L - 2, u - 1)`` nonzeros, where B is L if periodic and L - 1 if not.  The
    diagonal is stored in full, zeros included.

    Parameters
    ----------
    sites : int
        L, from 2 to 62, and at least 3 if periodic.
    up : int, optional
        u, from 0 to L; half of the sites, rounded down, unless given.
    anisotropy : float
        Any finite number.
    periodic : bool
        Whether the ends are neighbours.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (C(sites, up), C(sites, up))
        Symmetric.  The states are numbered in ascending order, site 0 being the lowest bit.

    Raises
    ------
    InputError
        If a number is out of range, or the matrix is too large for memory.

    Notes
    -----
    Source: Alappat et al., "ECM modeling and performance tuning of SpMV and Lattice QCD on A64FX",
    2021; the open chain of 26 sites has the 145 608 400 nonzeros of Spin-26 of Alappat et al., "A
    Recursive Algebraic Coloring Technique for Hardware-Efficient Symmetric Sparse Matrix-Vector
    Multiplication", 2020.
    """
    sites, up = _chain(sites, up, "up", periodic)
    anisotropy = number(anisotropy, "anisotropy")
    states, bonds, hops = _sizes(sites, up, periodic)

    def part(ranks: Integers) -> Block:
        columns, present = _hops(ranks, sites, up, periodic)
        # A bond of unequal spins has a hop and adds -anisotropy / 4 to the diagonal, a bond of
        # equal ones adds anisotropy / 4.
        differ = np.count_nonzero(present, axis=1) - 1
        values = np.full(present.shape, 0.5)
        values[:, bonds] = anisotropy * (bonds - 2 * differ) / 4
        return padded(columns, present, values)

    return assemble(states, states, states + hops, map(part, blocks(states, 2 * bonds + 1)))


def free_fermions(sites: int, particles: int | None = None, periodic: bool = True) -> CSR:
    """Make a chain of free fermions of one kind that hop between neighbouring sites.

    It has a spin chain's pattern without the diagonal.  The value of a hop is -1, with a change of
    sign for each particle that it passes.  N particles on L sites have ``C(L, N)`` rows and
    ``2 B C(L - 2, N - 1)`` nonzeros, where B is L if periodic and L - 1 if not.

    Parameters
    ----------
    sites : int
        L, from 2 to 62, and at least 3 if periodic.
    particles : int, optional
        N, from 0 to L; half of the sites, rounded down, unless given.
    periodic : bool
        Whether the ends are neighbours.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (C(sites, particles), C(sites, particles))
        Symmetric, with an empty diagonal.  The states are numbered in ascending order, site 0
        being the lowest bit.

    Raises
    ------
    InputError
        If a number is out of range, or the matrix is too large for memory.

    Notes
    -----
    Source: the ring of 26 sites has the 140 616 112 nonzeros of FreeFermionChain-26 of Alappat et
    al., "A Recursive Algebraic Coloring Technique for Hardware-Efficient Symmetric Sparse
    Matrix-Vector Multiplication", 2020.
    """
    sites, particles = _chain(sites, particles, "particles", periodic)
    states, bonds, hops = _sizes(sites, particles, periodic)

    def part(ranks: Integers) -> Block:
        columns, present = _hops(ranks, sites, particles, periodic)
        present[:, bonds] = False
        values = np.full(2 * bonds + 1, -1.0)
        if periodic and particles % 2 == 0:
            # A hop between the ends of the ring passes all other particles, an odd number.
            values[[0, -1]] = 1.0
        return padded(columns, present, values)

    return assemble(states, states, hops, map(part, blocks(states, 2 * bonds + 1)))
