"""Quantum chains: states with a fixed number of up spins or particles on a line or ring of sites.

A state is a row of bits, one for each site, and states are numbered as these bits ascend when read
as a number, site 0 being the lowest bit.  The number of a state is the sum of C(p, j) over its set
bits, p being the position of the j-th of them (counted from 1): the combinatorial number system.
No table of states is needed, neither from numbers to states nor back.

Spin chains are a family of their own: rows of different length reach far into the vector, with
steps that double from bond to bond, and next to nothing of it stays in a cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

import numpy as np
import numpy.typing as npt

from memkern.checks import integer
from memkern.inputs.matrices.assembly import CSR, Block, Integers, assemble, blocks, number, padded

__all__ = ["free_fermions", "spin_chain"]

MAX_SITES = 62
"""The most sites: all binomials of fewer than 63 fit 64 bits."""

_Bools = npt.NDArray[np.bool_]


def _chain(sites: object, ups: object, what: str, periodic: bool) -> tuple[int, int]:
    """Check the sites of a chain and how many of them are up or hold a particle."""
    checked = integer(sites, "sites", 3 if periodic else 2, MAX_SITES)
    return checked, integer(checked // 2 if ups is None else ups, what, 0, checked)


def _binomials(sites: int, ups: int) -> Integers:
    """Return C(n, k) for n up to `sites` and k up to two more than `ups`."""
    return np.array(
        [[comb(n, k) for k in range(ups + 3)] for n in range(sites + 1)], dtype=np.int64
    )


def _states(ranks: Integers, sites: int, ups: int, choose: Integers) -> tuple[_Bools, Integers]:
    """Return which sites are up in states, and how many below each site: shapes (sites, k)."""
    up = np.empty((sites, len(ranks)), dtype=bool)
    below = np.empty((sites, len(ranks)), dtype=np.int64)
    rest, left = ranks.copy(), np.full(len(ranks), ups, dtype=np.int64)
    for site in reversed(range(sites)):
        # So many states have all ups that are left below this site.
        without = choose[site, left]
        up[site] = rest >= without
        rest -= np.where(up[site], without, 0)
        left -= up[site]
        below[site] = left
    return up, below


def _hops(ranks: Integers, sites: int, ups: int, periodic: bool) -> tuple[Integers, _Bools]:
    """Return where an up moves to if it swaps with a neighbouring down, for each pair of sites.

    What is returned has shape (k, 2 bonds + 1): the numbers of the states, ascending where there
    is a hop, with the state itself in the middle; and whether there is one.
    """
    choose = _binomials(sites, ups)
    up, below = _states(ranks, sites, ups, choose)
    bonds = sites if periodic else sites - 1
    columns = np.empty((len(ranks), 2 * bonds + 1), dtype=np.int64)
    there = np.zeros(columns.shape, dtype=bool)
    columns[:, bonds], there[:, bonds] = ranks, True
    for site in range(sites - 1):
        # The j-th up moves between p and p + 1: C(p + 1, j) - C(p, j) = C(p, j - 1).
        distance = choose[site, below[site]]
        low, high = bonds - 1 - site, bonds + 1 + site
        columns[:, low], there[:, low] = ranks - distance, up[site + 1] & ~up[site]
        columns[:, high], there[:, high] = ranks + distance, up[site] & ~up[site + 1]
    if periodic:
        # Between the ends of the ring: the ups between change their place in the count by one.
        # No other hop changes a state as much as one from the last site to the first or back.
        last = sites - 1
        to_last = np.full(len(ranks), choose[last, ups])
        to_first = np.zeros(len(ranks), dtype=np.int64)
        for site in range(1, last):
            to_last += np.where(up[site], choose[site, below[site]], 0)
            to_first += np.where(up[site], choose[site, below[site] + 2], 0)
        columns[:, 0], there[:, 0] = to_first, up[last] & ~up[0]
        columns[:, -1], there[:, -1] = to_last, up[0] & ~up[last]
    return columns, there


def _sizes(sites: int, ups: int, periodic: bool) -> tuple[int, int, int]:
    """Return the numbers of states, of bonds and of hops."""
    bonds = sites if periodic else sites - 1
    # Over each bond hop all states in which one of its sites is up.
    hops = 2 * bonds * comb(sites - 2, ups - 1) if ups else 0
    return comb(sites, ups), bonds, hops


def spin_chain(
    sites: int, up: int | None = None, anisotropy: float = 1.0, periodic: bool = False
) -> CSR:
    """Make the Heisenberg chain of spins 1/2 with a fixed number of them up.

    A spin chain.  Neighbours interact by ``(S+ S- + S- S+) / 2 + anisotropy Sz Sz``: XXX
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
        Symmetric.  The states are numbered as their bits ascend, site 0 being the lowest bit.

    Raises
    ------
    InputError
        If a number is out of range, or the matrix is absurdly large.

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

    def parts() -> Iterator[Block]:
        for ranks in blocks(states, 2 * bonds + 1):
            columns, there = _hops(ranks, sites, up, periodic)
            # Neighbours that differ can hop, and add -1/4 to the diagonal where others add 1/4.
            differ = np.count_nonzero(there, axis=1) - 1
            values = np.full(there.shape, 0.5)
            values[:, bonds] = anisotropy * (bonds - 2 * differ) / 4
            yield padded(columns, there, values)

    return assemble(states, states, states + hops, parts())


def free_fermions(sites: int, particles: int | None = None, periodic: bool = True) -> CSR:
    """Make a chain of free fermions of one kind that hop between neighbouring sites.

    It has a spin chain's pattern without the diagonal.  A hop has the value -1, times the sign of
    the particles that it passes.  N particles on L sites have ``C(L, N)`` rows and
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
        Symmetric, with an empty diagonal.  The states are numbered as their bits ascend, site 0
        being the lowest bit.

    Raises
    ------
    InputError
        If a number is out of range, or the matrix is absurdly large.

    Notes
    -----
    Source: the ring of 26 sites has the 140 616 112 nonzeros of FreeFermionChain-26 of Alappat et
    al., "A Recursive Algebraic Coloring Technique for Hardware-Efficient Symmetric Sparse
    Matrix-Vector Multiplication", 2020.
    """
    sites, particles = _chain(sites, particles, "particles", periodic)
    states, bonds, hops = _sizes(sites, particles, periodic)

    def parts() -> Iterator[Block]:
        for ranks in blocks(states, 2 * bonds + 1):
            columns, there = _hops(ranks, sites, particles, periodic)
            there[:, bonds] = False
            values = np.full(2 * bonds + 1, -1.0)
            if periodic and particles % 2 == 0:
                # Between the ends of the ring a particle passes all the others.
                values[[0, -1]] = 1.0
            yield padded(columns, there, values)

    return assemble(states, states, hops, parts())
