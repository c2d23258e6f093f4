"""The hopping term of the domain-wall operator on the caller's arrays: apply and measure.

`hop` takes links and spinors in the layout of `memkern.lattice` and converts them for the kernel;
`measure` times only the kernel, with the same options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.engine import public as engine
from memkern.errors import InputError
from memkern.families.dw.kernels import dw as case
from memkern.families.dw.layout import CUTS, LAYOUTS, Layout, layout_of, of_parity, sites_of
from memkern.inputs.lattice import GAMMA5, check_fields
from memkern.spec.case import Case
from memkern.spec.kernel import IndexArray

__all__ = ["CUTS", "LAYOUTS", "case", "hop", "lay_out", "measure", "take_back"]


def hop(
    links: npt.NDArray[Any],
    psi: npt.NDArray[Any],
    *,
    layout: str = "RRII",
    dagger: bool = False,
    antiperiodic_t: bool = False,
    parity: str = "full",
    **options: Any,
) -> npt.NDArray[Any]:
    """Apply the hopping term; see `memkern.lattice.hop` for the formula and its signs.

    Parameters
    ----------
    links : numpy.ndarray of complex64 or complex128, shape (Lt, Lz, Ly, Lx, 4, 3, 3)
        U_mu(n), mu = x, y, z, t.
    psi : numpy.ndarray of the same type, shape (Lt, Lz, Ly, Lx, Ls, 4, 3)
        Spins before colours.
    layout : str
        Layout in the kernel: ``RRII``, ``RIRI`` or ``lexicographic``.
    dagger : bool
        Apply the Hermitian conjugate.
    antiperiodic_t : bool
        Whether terms that cross the boundary in t change their sign.
    parity : str
        ``full``, or ``even`` or ``odd`` for the sites that get a result; the others are 0.
    **options
        As for `memkern.families.dw.kernels.dw`, except lattice, Ls and dtype.

    Returns
    -------
    numpy.ndarray of psi's type and shape
        psi'.

    Raises
    ------
    InputError, MemoryError
        Shapes or types are wrong, the lattice can't be cut as requested, or memory is insufficient.
    """
    extents, ls = check_fields(links, psi)
    if links.dtype != psi.dtype:
        raise InputError(
            f"links and psi must have the same type, not {links.dtype} and {psi.dtype}"
        )
    for given in ("lattice", "ls", "dtype"):
        if given in options:
            raise InputError(f"{given} follows from psi: leave it out")
    dtype = "float32" if psi.dtype == np.complex64 else "float64"
    options = {"layout": layout, "parity": parity, "dtype": dtype, **options}
    prepared = engine.prepare(case(extents, ls=ls, **options))
    native, where = prepared.native, layout_of(prepared.case)
    # The conjugate is gamma_5 D gamma_5, and gamma_5 changes the signs of two spins.
    turn = np.diag(GAMMA5 if dagger else np.eye(4)).real.astype(dtype)[:, None]
    matrices = np.empty(native.arrays()["links"]["columns"], dtype)
    for slab, sites in _slabs(where, parity):
        at = where.links_at(sites)
        for mu in range(4):
            behind = sites[:, mu] == 0
            ahead = sites[:, mu] == extents[mu] - 1
            crosses = np.array([1, -1 if antiperiodic_t and mu == 3 else 1], dtype)
            u = links[slab][..., mu, :, :] * crosses[ahead.astype(int)][:, None, None]
            before = sites.copy()
            before[:, mu] = (before[:, mu] - 1) % extents[mu]
            v = links[tuple(before.T[::-1])][..., mu, :, :].conj().swapaxes(-1, -2)
            v = v * crosses[behind.astype(int)][:, None, None]
            matrices[at[:, mu]] = _parts(u)
            matrices[at[:, 4 + mu]] = _parts(v)
    native.copy_in("links", matrices)

    read = {"full": "full", "even": "odd", "odd": "even"}[parity]
    native.copy_in("psi", lay_out(prepared.case, psi * turn, read))
    prepared.run(1)
    result: npt.NDArray[Any] = take_back(prepared.case, native.copy_out("result"), parity) * turn
    return result


def lay_out(case: Case, psi: npt.NDArray[Any], parity: str = "full") -> npt.NDArray[Any]:
    """Convert a spinor field to the layout of a case, exactly.

    Parameters
    ----------
    case : Case
    psi : numpy.ndarray of complex64 or complex128, shape (Lt, Lz, Ly, Lx, Ls, 4, 3)
    parity : str
        ``full``, or ``even`` or ``odd`` for the sites of a case of one parity.

    Returns
    -------
    numpy.ndarray of the case's type, shape (2 * 12 * Ls * sites,)
    """
    where = layout_of(case)
    sites = prod(where.extents) // (1 if where.parity == "full" else 2)
    values = np.empty(2 * 12 * where.ls * sites, case.dtype)
    for slab, at in _slabs(where, parity):
        values[where.spinors_at(at)] = _parts(psi[slab])
    return values


def take_back(case: Case, values: npt.NDArray[Any], parity: str = "full") -> npt.NDArray[Any]:
    """Return the field of which `lay_out` returns `values`; sites of the other parity are 0."""
    where = layout_of(case)
    kind = np.complex64 if case.dtype == "float32" else np.complex128
    psi = np.zeros((*where.extents[::-1], where.ls, 4, 3), kind)
    for slab, at in _slabs(where, parity):
        psi[slab] = values[where.spinors_at(at)].view(kind)[..., 0]
    return psi


def _slabs(where: Layout, parity: str) -> Iterator[tuple[tuple[IndexArray, ...], IndexArray]]:
    """Yield the sites of a parity for each t in turn: indices (t, z, y, x), then coordinates."""
    x, y, z, t = where.extents
    for k in range(t):
        sites = sites_of((x, y, z, 1), "full")
        sites[:, 3] = k
        sites = of_parity(parity, sites)
        yield tuple(sites.T[::-1]), sites


def _parts(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return real and imaginary parts along a new last axis."""
    return np.stack([numbers.real, numbers.imag], axis=-1)


def measure(lattice: Sequence[int], **options: Any) -> engine.Measurement:
    """Measure only the kernel.

    Parameters
    ----------
    lattice : sequence of int
        (Lx, Ly, Lz, Lt).
    **options
        As for `memkern.families.dw.kernels.dw`.

    Returns
    -------
    Measurement
    """
    return engine.measure(case(lattice, **options))


# `mk.dw` is the function that builds cases, with the public names as attributes.
vars(case).update({name: globals()[name] for name in __all__})
