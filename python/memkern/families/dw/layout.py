"""Layouts of a lattice's fields: positions in memory, cuts into the lanes of vectors, and sites."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from memkern.errors import InputError
from memkern.inputs.lattice import Extents, Parity
from memkern.spec.case import Case
from memkern.spec.kernel import IndexArray

LAYOUTS = ("RRII", "RIRI", "lexicographic")
CUTS = ("auto", "s", "t, z, y and x in any order, such as tz or x")
LINKS = 8 * 9  # complex numbers of a site
SPINOR = 12


@dataclass(frozen=True)
class Layout:
    """Positions in memory of the numbers of a lattice's fields.

    Parameters
    ----------
    extents : tuple of int
        (Lx, Ly, Lz, Lt).
    ls : int
        Extent of the fifth dimension.
    reals : int
        Real numbers of a vector; 1 for the lexicographic layout.
    split : bool
        Whether real and imaginary parts are in separate vectors (RRII).
    cuts : tuple of int
        Numbers of parts into which x, y, z and t are cut; a vector has a number of each part.
    shared : bool
        Whether a vector holds several s of one site instead of several sites.
    parity : str
        ``full``, ``even`` or ``odd``: the sites that get a result.
    """

    extents: Extents
    ls: int
    reals: int
    split: bool
    cuts: tuple[int, int, int, int] = (1, 1, 1, 1)
    shared: bool = True
    parity: Parity = "full"

    @property
    def numbers(self) -> int:
        """Complex numbers of a vector."""
        return self.reals if self.split else self.reals // 2

    @property
    def inner(self) -> int:
        """Vectors for each of the twelve components of a site's spinors."""
        return self.ls // self.numbers if self.shared else self.ls

    @property
    def local(self) -> tuple[int, int, int, int]:
        """Extents of a part."""
        x, y, z, t = (n // c for n, c in zip(self.extents, self.cuts, strict=True))
        return x, y, z, t

    @property
    def sites(self) -> int:
        """Sites of a part that get a result."""
        return prod(self.local) // (1 if self.parity == "full" else 2)

    def positions(self, sites: IndexArray) -> tuple[IndexArray, IndexArray]:
        """Return the index of each site within its part and parity, and the index of the part.

        Parameters
        ----------
        sites : ndarray of int64, shape (..., 4)
            x, y, z, t.
        """
        part, rest = np.divmod(sites, np.array(self.local))
        which = rest @ _strides(self.local)
        return (which if self.parity == "full" else which // 2), part @ _strides(self.cuts)

    def spinors_at(self, sites: IndexArray) -> IndexArray:
        """Return positions of spinors, shape (..., Ls, 4, 3, 2) for sites of shape (..., 4)."""
        which, lane = (found[..., None] for found in self.positions(sites))
        s = np.arange(self.ls)
        if self.shared:
            s, lane = s // self.numbers, s % self.numbers
        else:
            lane = np.broadcast_to(lane, (*which.shape[:-1], self.ls))
        vectors = (which * self.inner + s)[..., None] * SPINOR + np.arange(SPINOR)
        found = self._numbers_at(vectors, lane[..., None], self.numbers)
        return found.reshape(*sites.shape[:-1], self.ls, 4, 3, 2)

    def links_at(self, sites: IndexArray) -> IndexArray:
        """Return positions of links, shape (..., 8, 3, 3, 2) for sites of shape (..., 4)."""
        which, lane = self.positions(sites)
        vectors = which[..., None] * LINKS + np.arange(LINKS)
        found = self._numbers_at(vectors, lane[..., None], 1 if self.shared else self.numbers)
        return found.reshape(*sites.shape[:-1], 8, 3, 3, 2)

    def _numbers_at(self, vectors: IndexArray, lane: IndexArray, lanes: int) -> IndexArray:
        part = np.arange(2)
        if self.split:
            return (vectors[..., None] * 2 + part) * lanes + lane[..., None]
        return (vectors * lanes + lane)[..., None] * 2 + part

    def neighbours(self) -> tuple[IndexArray, IndexArray]:
        """Return the sites that the kernel reads for each site, and the permutations of lanes.

        Returns
        -------
        neighbours : ndarray of int64, shape (sites, 8)
            For each direction, forward and then backward, twice the index of the neighbour, plus
            one if it is in another part.
        permutations : ndarray of int64, shape (8, reals)
            For each direction, the real number of a vector from which each one is taken.
        """
        sites = sites_of(self.local, self.parity)
        found = np.empty((len(sites), 8), dtype=np.int64)
        permutations = np.empty((8, self.reals), dtype=np.int64)
        parts = sites_of(self.cuts, "full")
        each = self.reals // len(parts)  # real numbers of a part
        for direction in range(8):
            mu, step = direction % 4, 1 if direction < 4 else -1
            beyond = sites.copy()
            beyond[:, mu] += step
            crosses = (beyond[:, mu] < 0) | (beyond[:, mu] >= self.local[mu])
            beyond[:, mu] %= self.local[mu]
            found[:, direction] = 2 * self.positions(beyond)[0] + (crosses & (self.cuts[mu] > 1))
            ahead = parts.copy()
            ahead[:, mu] = (ahead[:, mu] + step) % self.cuts[mu]
            lane = ahead @ _strides(self.cuts)
            permutations[direction] = (each * lane[:, None] + np.arange(each)).ravel()
        return found, permutations


def _strides(extents: Extents) -> IndexArray:
    """Return the distances between neighbours in x, y, z and t, where x is fastest."""
    return np.cumprod((1, *extents[:3]))


def sites_of(extents: Extents, parity: str) -> IndexArray:
    """Return the sites of a parity, shape (sites, 4), x fastest."""
    t, z, y, x = np.indices(extents[::-1]).reshape(4, -1)
    return of_parity(parity, np.stack([x, y, z, t], axis=1))


def of_parity(parity: str, sites: IndexArray) -> IndexArray:
    """Return the sites that have a parity."""
    if parity == "full":
        return sites
    found: IndexArray = sites[sites.sum(axis=-1) % 2 == (parity == "odd")]
    return found


def layout_of(case: Case) -> Layout:
    """Return the layout of a case's fields."""
    n = case.integers
    return Layout(
        extents=(n["Lx"], n["Ly"], n["Lz"], n["Lt"]),
        ls=n["Ls"],
        reals=n["reals"],
        split=bool(n["split"]),
        cuts=(n["cut_x"], n["cut_y"], n["cut_z"], n["cut_t"]),
        shared=bool(n["shared"]),
        parity=case.columns["parity"],
    )


def widths(isa: str = "best") -> list[int]:
    """Return the vector widths, in bits, that are built and supported here, widest first."""
    from memkern.machine.declarations import template_variants

    found = {name.split("/")[2] for name in template_variants("dw.hop", isa) if "/" in name}
    return sorted(map(int, found), reverse=True)


def _cuts(lanes: int, extents: Extents, order: str, even: bool) -> tuple[int, int, int, int]:
    """Halve the dimensions in turn until there are as many parts as lanes."""
    cuts = dict.fromkeys("xyzt", 1)
    for k in range(lanes.bit_length() - 1):
        cuts[order[k % len(order)]] *= 2
    for (name, cut), extent in zip(cuts.items(), extents, strict=True):
        unit = cut * (2 if even else 1)
        if extent % unit:
            raise InputError(
                f"the extent of {name} must be a multiple of {unit} for {lanes} parts, of which "
                f"{cut} are along {name}, not {extent}: use other extents, another cut or a "
                "narrower vector"
            )
    return cuts["x"], cuts["y"], cuts["z"], cuts["t"]


def choose_layout(
    extents: Extents, ls: int, layout: str, cut: str, vector: int, real_B: int, parity: Parity
) -> Layout:
    """Return the requested layout; with an ``auto`` cut, one that fits the extents."""
    lexicographic = Layout(extents, ls, 1, True, parity=parity)
    if layout == "lexicographic":
        if cut != "auto" or vector:
            raise InputError("the lexicographic layout has no vectors: leave out cut and vector")
        return lexicographic
    reals, split = vector // (8 * real_B), layout == "RRII"
    lanes = reals if split else reals // 2
    if cut == "s" or (cut == "auto" and ls % lanes == 0):
        if ls % lanes:
            raise InputError(
                f"Ls must be a multiple of the {lanes} complex numbers of a vector, not {ls}"
            )
        return Layout(extents, ls, reals, split, parity=parity)
    try:
        cuts = _cuts(lanes, extents, "tzyx" if cut == "auto" else cut, parity != "full")
    except InputError:
        if cut != "auto":
            raise
        return lexicographic
    return Layout(extents, ls, reals, split, cuts, False, parity)
