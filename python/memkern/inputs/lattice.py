"""Lattice fields of the domain-wall kernel, and its reference in NumPy.

Links and spinors are NumPy arrays whose axes are t, z, y, x from outermost to innermost.  The four
extents have the opposite order, (Lx, Ly, Lz, Lt), and directions are mu = 0, 1, 2, 3 for x, y, z,
t.  The gamma matrices are those of Grid's chiral basis, and a forward hop has the factor
1 + gamma_mu; other codes have 1 - gamma_mu there, as `hop` with `dagger` does.

Source: Alappat et al., "ECM modeling and performance tuning of SpMV and Lattice QCD on A64FX",
2021, section on lattice QCD; basis and conventions from Grid (Boyle et al.).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError

__all__ = [
    "GAMMA",
    "GAMMA5",
    "PARITIES",
    "Extents",
    "Parity",
    "check_extents",
    "check_fields",
    "check_parity",
    "hop",
    "random_field",
    "random_links",
]
__dir__ = __all__.copy  # public names only

Complex = npt.NDArray[np.complex128]
Extents: TypeAlias = tuple[int, int, int, int]
"""Extents of a lattice: (Lx, Ly, Lz, Lt)."""

Parity: TypeAlias = Literal["full", "even", "odd"]
PARITIES: tuple[Parity, ...] = ("full", "even", "odd")
"""Sites that get a result: all, or those whose x + y + z + t is even or odd."""

GAMMA: Complex = np.array(
    [
        [[0, 0, 0, 1j], [0, 0, 1j, 0], [0, -1j, 0, 0], [-1j, 0, 0, 0]],
        [[0, 0, 0, -1], [0, 0, 1, 0], [0, 1, 0, 0], [-1, 0, 0, 0]],
        [[0, 0, 1j, 0], [0, 0, 0, -1j], [-1j, 0, 0, 0], [0, 1j, 0, 0]],
        [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]],
    ],
    dtype=np.complex128,
)
"""gamma_mu for mu = x, y, z, t, shape (4, 4, 4): Hermitian, anticommuting, each its own inverse."""
GAMMA.setflags(write=False)

GAMMA5: Complex = np.diag([1, 1, -1, -1]).astype(np.complex128)
"""gamma_x gamma_y gamma_z gamma_t, shape (4, 4): diagonal, because the basis is chiral."""
GAMMA5.setflags(write=False)


def _is_count(n: object) -> bool:
    return isinstance(n, (int, np.integer)) and not isinstance(n, bool) and int(n) >= 1


def _check_dtype(dtype: npt.DTypeLike, what: str) -> np.dtype[Any]:
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if found not in (np.dtype(np.complex64), np.dtype(np.complex128)):
        raise InputError(
            f"{what} must be complex64 or complex128, not {dtype if found is None else found}"
        )
    return found


def _check_ls(ls: int) -> int:
    if not _is_count(ls):
        raise InputError(f"Ls must be an integer of at least 1, not {ls}")
    return int(ls)


def check_extents(extents: Sequence[int]) -> Extents:
    """Check the extents of a lattice.

    Parameters
    ----------
    extents : sequence of int
        (Lx, Ly, Lz, Lt).

    Returns
    -------
    tuple of int
        The same four.

    Raises
    ------
    InputError
        If they are not four integers of at least 1.
    """
    found = tuple(extents) if isinstance(extents, Iterable) else ()
    if len(found) != 4 or not all(map(_is_count, found)):
        raise InputError(
            f"extents must be four integers of at least 1, of x, y, z and t, not {extents!r}"
        )
    x, y, z, t = (int(n) for n in found)
    return x, y, z, t


def walk(at: npt.NDArray[Any], order: str, blocks: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the order in which nested loops in blocks visit sites.

    Parameters
    ----------
    at : array of int, shape (4, sites)
        Coordinates x, y, z and t of the sites.
    order : str
        The loops from the outermost to the innermost, such as ``tzyx``.
    blocks : sequence of int
        Extents of a block along x, y, z and t; 0 if a direction is not blocked.

    Returns
    -------
    array of int, shape (sites,)
        Numbers of the sites.
    """
    positions, sizes = dict(zip("xyzt", at, strict=True)), dict(zip("xyzt", blocks, strict=True))
    within = [positions[d] % sizes[d] if sizes[d] else positions[d] for d in order]
    between = [positions[d] // sizes[d] if sizes[d] else np.zeros_like(positions[d]) for d in order]
    return np.lexsort([*within[::-1], *between[::-1]])


def check_parity(parity: str, extents: Extents) -> Parity:
    """Check the parity of the sites that get a result.

    Parameters
    ----------
    parity : str
        One of `PARITIES`.
    extents : tuple of int
        (Lx, Ly, Lz, Lt).

    Returns
    -------
    str
        The parity.

    Raises
    ------
    InputError
        If there is no such parity, or if an odd extent makes sites of one parity neighbours.
    """
    for known in PARITIES:
        if parity == known:
            if known != "full" and any(n % 2 for n in extents):
                raise InputError(
                    f"parity {known} needs extents that are all even, not "
                    f"{' '.join(map(str, extents))}"
                )
            return known
    raise InputError(f"parity must be full, even or odd, not {parity!r}")


def check_fields(links: npt.NDArray[Any], psi: npt.NDArray[Any]) -> tuple[Extents, int]:
    """Check that links and a spinor field are complex and on the same lattice.

    Parameters
    ----------
    links : numpy.ndarray of complex64 or complex128, shape (Lt, Lz, Ly, Lx, 4, 3, 3)
        U_mu(n), mu = x, y, z, t; their values are not checked.
    psi : numpy.ndarray of complex64 or complex128, shape (Lt, Lz, Ly, Lx, Ls, 4, 3)
        Spins before colours.

    Returns
    -------
    extents : tuple of int
        (Lx, Ly, Lz, Lt).
    ls : int
        Ls.

    Raises
    ------
    InputError
        If a shape or dtype is wrong, an extent or Ls is 0, or the extents of the two differ.
    """
    for name, field, ending, shape in (
        ("links", links, (4, 3, 3), "(Lt, Lz, Ly, Lx, 4, 3, 3)"),
        ("psi", psi, (4, 3), "(Lt, Lz, Ly, Lx, Ls, 4, 3)"),
    ):
        if not isinstance(field, np.ndarray):
            raise InputError(f"{name} must be a NumPy array, not a {type(field).__name__}")
        if field.ndim != 7 or field.shape[-len(ending) :] != ending:
            raise InputError(f"{name} must have the shape {shape}, not {field.shape}")
        _check_dtype(field.dtype, name)
    if links.shape[:4] != psi.shape[:4]:
        raise InputError(
            f"links and psi must have the same extents (Lt, Lz, Ly, Lx), not {links.shape[:4]} "
            f"and {psi.shape[:4]}"
        )
    return check_extents(psi.shape[3::-1]), _check_ls(psi.shape[4])


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Complex:
    return rng.standard_normal((*shape, 2)).view(np.complex128)[..., 0]


def random_links(
    extents: Sequence[int], *, seed: int = 0, dtype: npt.DTypeLike = np.complex128
) -> npt.NDArray[Any]:
    """Make links, uniformly distributed over SU(3).

    Parameters
    ----------
    extents : sequence of int
        (Lx, Ly, Lz, Lt): x first, as in ``--lattice X Y Z T``, in contrast to the result's axes.
    seed : int
        At least 0.
    dtype : dtype
        complex64 or complex128.

    Returns
    -------
    numpy.ndarray of `dtype`, shape (Lt, Lz, Ly, Lx, 4, 3, 3)
        U_mu(n), mu = x, y, z, t.

    Raises
    ------
    InputError
        If the extents are not four integers of at least 1, or the dtype is another.
    """
    kind = _check_dtype(dtype, "links")
    shape = (*check_extents(extents)[::-1], 4, 3, 3)
    q, r = np.linalg.qr(_normal(np.random.default_rng(seed), shape))
    # The decomposition is unique, and q uniform, only with a positive diagonal of r.
    diagonal = np.diagonal(r, axis1=-2, axis2=-1)
    q = q * (diagonal / np.abs(diagonal))[..., None, :]
    links: Complex = q / np.linalg.det(q)[..., None, None] ** (1 / 3)
    return links.astype(kind, copy=False)


def random_field(
    extents: Sequence[int], ls: int, *, seed: int = 0, dtype: npt.DTypeLike = np.complex128
) -> npt.NDArray[Any]:
    """Make a spinor field whose real and imaginary parts are normally distributed.

    Parameters
    ----------
    extents : sequence of int
        (Lx, Ly, Lz, Lt): x first, as in ``--lattice X Y Z T``, in contrast to the result's axes.
    ls : int
        Extent of the fifth dimension, at least 1.
    seed : int
        At least 0.
    dtype : dtype
        complex64 or complex128.

    Returns
    -------
    numpy.ndarray of `dtype`, shape (Lt, Lz, Ly, Lx, Ls, 4, 3)
        Spins before colours.

    Raises
    ------
    InputError
        If the extents are not four integers of at least 1, Ls is below 1, or the dtype is another.
    """
    kind = _check_dtype(dtype, "psi")
    shape = (*check_extents(extents)[::-1], _check_ls(ls), 4, 3)
    return _normal(np.random.default_rng(seed), shape).astype(kind, copy=False)


def hop(
    links: npt.NDArray[Any],
    psi: npt.NDArray[Any],
    *,
    dagger: bool = False,
    antiperiodic_t: bool = False,
    parity: Parity = "full",
) -> Complex:
    """Apply the hopping term of the Wilson and domain-wall operators.

    psi'(n, s) is the sum over mu = x, y, z, t of U_mu(n) (1 + gamma_mu) psi(n + mu, s) and
    U_mu(n - mu)^dagger (1 - gamma_mu) psi(n - mu, s), with periodic boundaries.  This direct
    evaluation in double precision is the reference of the kernels.

    Parameters
    ----------
    links : numpy.ndarray of complex64 or complex128, shape (Lt, Lz, Ly, Lx, 4, 3, 3)
        U_mu(n), mu = x, y, z, t; any matrices, unitary or not.
    psi : numpy.ndarray of complex64 or complex128, shape (Lt, Lz, Ly, Lx, Ls, 4, 3)
        Spins before colours.
    dagger : bool
        Apply the Hermitian conjugate: both signs of gamma change.
    antiperiodic_t : bool
        Change the sign of terms across the boundary in t, in both directions.
    parity : {"full", "even", "odd"}
        Which sites get a result; the others are 0.  The sites of one parity read psi at those of
        the other.

    Returns
    -------
    numpy.ndarray of complex128, shape (Lt, Lz, Ly, Lx, Ls, 4, 3)
        psi'.

    Raises
    ------
    InputError
        If shapes or types are wrong, or if an extent is odd and the parity not ``"full"``.
    """
    extents, _ = check_fields(links, psi)
    parity = check_parity(parity, extents)
    links, psi = links.astype(np.complex128, copy=False), psi.astype(np.complex128, copy=False)
    result = np.zeros(psi.shape, dtype=np.complex128)
    sign = -1 if dagger else 1
    for mu, axis in enumerate((3, 2, 1, 0)):  # of x, y, z, t
        u = links[..., mu, :, :]
        ahead, behind = np.roll(psi, -1, axis), np.roll(psi, 1, axis)
        if antiperiodic_t and mu == 3:
            ahead[-1] *= -1
            behind[0] *= -1
        ahead = np.einsum("ij,...jb->...ib", np.eye(4) + sign * GAMMA[mu], ahead)
        behind = np.einsum("ij,...jb->...ib", np.eye(4) - sign * GAMMA[mu], behind)
        result += np.einsum("tzyxab,tzyxsjb->tzyxsja", u, ahead)
        result += np.einsum("tzyxba,tzyxsjb->tzyxsja", np.roll(u, 1, axis).conj(), behind)
    if parity != "full":
        even = np.indices(psi.shape[:4]).sum(axis=0) % 2 == 0
        result[even if parity == "odd" else ~even] = 0
    return result
