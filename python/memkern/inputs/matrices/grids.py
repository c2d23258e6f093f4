"""Matrices of grids and lattices: stencils, tight-binding and disordered models.

Sites are numbered in lexicographic order, x fastest: ``x + NX (y + NY z)``.  All matrices are
symmetric and benign: neighbouring rows read the same few parts of the vector, from a cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from memkern.checks import integer, number
from memkern.errors import InputError
from memkern.inputs.indices import seeded
from memkern.inputs.matrices.assembly import (
    CSR,
    Block,
    Bools,
    Floats,
    Integers,
    assemble,
    blocks,
    padded,
)

# Steps to neighbours along (x, y, z).
_STAR = [(0, 0, -1), (0, -1, 0), (-1, 0, 0), (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
_CUBE = [(x, y, z) for z in (-1, 0, 1) for y in (-1, 0, 1) for x in (-1, 0, 1)]


def _check_shape(shape: Sequence[object], periodic: Sequence[bool] = (False,) * 3) -> list[int]:
    """Check the sites along each axis: a periodic one needs three for two different neighbours."""
    checked = []
    for size, name, ring in zip(shape, ("nx", "ny", "nz"), periodic, strict=False):
        number_of_sites = integer(size, name, 1)
        if ring and number_of_sites < 3:
            raise InputError(
                f"{name} must be at least 3 where the lattice is periodic, not {number_of_sites}"
            )
        checked.append(number_of_sites)
    return checked


def _neighbours(
    sites: Integers,
    shape: Sequence[int],
    steps: Integers,
    periodic: Sequence[bool] = (False,) * 3,
) -> tuple[Integers, Bools]:
    """Return the sites after steps, and whether they are on the lattice.

    `sites` has shape (k,), `shape` is (nx, ny, nz), `steps` has shape (w, 3) or (k, w, 3), and
    both results have shape (k, w).
    """
    nx, ny, nz = shape
    rest, x = np.divmod(sites, nx)
    z, y = np.divmod(rest, ny)
    pitches = (1, nx, nx * ny)
    reached = sites[:, None] + steps @ np.array(pitches)
    present = np.ones(reached.shape, dtype=bool)
    for axis, (position, size, ring) in enumerate(
        zip((x, y, z), (nx, ny, nz), periodic, strict=True)
    ):
        at, step = position[:, None], steps[..., axis]
        if ring:
            reached += pitches[axis] * ((at + step) % size - (at + step))
        else:
            present &= (at >= -step) & (at < size - step)
    return reached, present


def _sorted(columns: Integers, present: Bools, values: Floats) -> tuple[Integers, Bools, Floats]:
    """Return the three arrays, shape (k, w), with each row in ascending order of its columns."""
    order = np.argsort(columns, axis=1)
    return (
        np.take_along_axis(columns, order, 1),
        np.take_along_axis(present, order, 1),
        np.take_along_axis(values, order, 1),
    )


def _stencil(
    shape: Sequence[int], steps: list[tuple[int, int, int]], diagonal: float
) -> Iterator[Block]:
    """Yield the rows of a stencil that has `diagonal` in the middle and -1 around it."""
    # Ascending by z, y and x, the steps lead to ascending sites as long as they stay on the grid.
    values = np.where(np.any(steps, axis=1), -1.0, diagonal)
    for sites in blocks(shape[0] * shape[1] * shape[2], len(steps)):
        columns, present = _neighbours(sites, shape, np.array(steps))
        yield padded(columns, present, values)


def hpcg(nx: int = 128, ny: int | None = None, nz: int | None = None) -> CSR:
    """Make HPCG's matrix: a 27-point stencil, 26 in the middle and -1 around it.

    Benign.  It has ``(3 nx - 2) (3 ny - 2) (3 nz - 2)`` nonzeros.

    Parameters
    ----------
    nx, ny, nz : int
        Points along each axis, at least 1; `nx` alone makes a cube.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (nx ny nz, nx ny nz)

    Raises
    ------
    InputError
        If a number is not positive, only one of `ny` and `nz` is given, or the matrix is too
        large for memory.

    Notes
    -----
    Source: Dongarra, Heroux and Luszczek, "HPCG Benchmark: a New Metric for Ranking High
    Performance Computing Systems", 2015; used by Alappat et al., "ECM modeling and performance
    tuning of SpMV and Lattice QCD on A64FX", 2021.
    """
    if (ny is None) != (nz is None):
        raise InputError("hpcg needs nx alone, or all of nx, ny and nz")
    nx, ny, nz = shape = _check_shape([nx, nx if ny is None else ny, nx if nz is None else nz])
    rows, nonzeros = nx * ny * nz, (3 * nx - 2) * (3 * ny - 2) * (3 * nz - 2)
    return assemble(rows, rows, nonzeros, _stencil(shape, _CUBE, 26.0))


def five_point(nx: int, ny: int) -> CSR:
    """Make the Laplacian of a square grid: 4 in the middle and -1 around it.

    Benign.  Values outside the grid are zero (Dirichlet), so that it is positive definite.  It has
    ``5 nx ny - 2 nx - 2 ny`` nonzeros.

    Parameters
    ----------
    nx, ny : int
        Points along each axis, at least 1.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (nx ny, nx ny)

    Raises
    ------
    InputError
        If a number is not positive, or the matrix is too large for memory.
    """
    nx, ny = _check_shape([nx, ny])
    nonzeros = 5 * nx * ny - 2 * (nx + ny)
    return assemble(nx * ny, nx * ny, nonzeros, _stencil((nx, ny, 1), _STAR[1:-1], 4.0))


def seven_point(nx: int, ny: int, nz: int) -> CSR:
    """Make the Laplacian of a cubic grid: 6 in the middle and -1 around it.

    Benign.  Values outside the grid are zero (Dirichlet), so that it is positive definite.  It has
    ``7 nx ny nz - 2 (nx ny + ny nz + nz nx)`` nonzeros.

    Parameters
    ----------
    nx, ny, nz : int
        Points along each axis, at least 1.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (nx ny nz, nx ny nz)

    Raises
    ------
    InputError
        If a number is not positive, or the matrix is too large for memory.
    """
    nx, ny, nz = shape = _check_shape([nx, ny, nz])
    rows = nx * ny * nz
    nonzeros = 7 * rows - 2 * (nx * ny + ny * nz + nz * nx)
    return assemble(rows, rows, nonzeros, seven_point_blocks(shape))


def seven_point_blocks(shape: Sequence[int]) -> Iterator[Block]:
    """Yield the rows of `seven_point` for a shape (nx, ny, nz)."""
    return _stencil(shape, _STAR, 6.0)


def anderson(
    nx: int, ny: int, nz: int, disorder: float = 16.5, seed: int = 0, periodic: bool = True
) -> CSR:
    """Make Anderson's model: hopping of -1 between neighbours and a random energy on each site.

    Benign.  It has ``7 nx ny nz`` nonzeros if periodic, else
    ``7 nx ny nz - 2 (nx ny + ny nz + nz nx)``.

    Parameters
    ----------
    nx, ny, nz : int
        Sites along each axis, at least 1, and at least 3 if periodic.
    disorder : float
        W, at least 0: the energies are uniform from -W/2 to W/2.  All of them are stored, zeros
        included.  At the default, the states in the middle of the band become localised.
    seed : int
        At least 0.
    periodic : bool
        Whether the ends of each axis are neighbours.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (nx ny nz, nx ny nz)

    Raises
    ------
    InputError
        If a number is out of range, or the matrix is too large for memory.

    Notes
    -----
    Source: Anderson, "Absence of Diffusion in Certain Random Lattices", Physical Review 109
    (1958); the matrix Anderson-16.5 of Alappat et al., "A Recursive Algebraic Coloring Technique
    for Hardware-Efficient Symmetric Sparse Matrix-Vector Multiplication", 2020.
    """
    rings = (bool(periodic),) * 3
    nx, ny, nz = shape = _check_shape([nx, ny, nz], rings)
    disorder, generator = number(disorder, "disorder", 0), seeded(seed)
    rows = nx * ny * nz
    nonzeros = 7 * rows - (0 if periodic else 2 * (nx * ny + ny * nz + nz * nx))

    def part(sites: Integers) -> Block:
        columns, present = _neighbours(sites, shape, np.array(_STAR), rings)
        values = np.full(present.shape, -1.0)
        values[:, _STAR.index((0, 0, 0))] = disorder * (generator.random(len(sites)) - 0.5)
        return padded(*_sorted(columns, present, values))

    return assemble(rows, rows, nonzeros, map(part, blocks(rows, len(_STAR))))


# Steps (x, y) from a site of the brick wall with even x + y to its neighbours, ascending by y and
# x, and their kind: 0 is the site itself, 1 a first, 2 a second and 3 a third neighbour.  If x + y
# is odd, y changes its sign.
_HONEYCOMB = [
    *((-1, -1, 2), (0, -1, 3), (1, -1, 2)),
    *((-2, 0, 2), (-1, 0, 1), (0, 0, 0), (1, 0, 1), (2, 0, 2)),
    *((-2, 1, 3), (-1, 1, 2), (0, 1, 1), (1, 1, 2), (2, 1, 3)),
]
_HOPPING = (0.0, -1.0, -0.1, -0.05)


def graphene(nx: int, ny: int, neighbours: int = 3, disorder: float = 1.0, seed: int = 0) -> CSR:
    """Make a sheet of graphene: hopping on a honeycomb and a random energy on each site.

    Benign.  The honeycomb is a brick wall of nx times ny sites with open ends: the first
    neighbours of a site are those left and right of it and the one above it if x + y is even, else
    the one below.  Second neighbours are their neighbours, third ones are across a hexagon; hopping
    is -1, -0.1 and -0.05.  Far from the ends a row has 4, 10 or 13 nonzeros.  With
    ``E = ceil(nx (ny - 1) / 2)`` vertical bonds there are ``nx ny + 2 (nx - 1) ny + 2 E`` nonzeros
    of the diagonal and first neighbours, ``4 (nx - 1) (ny - 1) + 2 max(nx - 2, 0) ny`` of second
    neighbours, and ``2 (nx (ny - 1) - E) + 4 ceil(max(nx - 2, 0) (ny - 1) / 2)`` of third ones.

    Parameters
    ----------
    nx, ny : int
        Sites along each axis, at least 1.
    neighbours : {1, 2, 3}
        The farthest neighbours to which there is hopping.
    disorder : float
        W, at least 0: the energies are uniform from -W/2 to W/2.  All of them are stored, zeros
        included.
    seed : int
        At least 0.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (nx ny, nx ny)

    Raises
    ------
    InputError
        If a number is out of range, or the matrix is too large for memory.

    Notes
    -----
    Source: Castro Neto et al., "The electronic properties of graphene", Reviews of Modern Physics
    81 (2009); with 4096 x 4096 sites and third neighbours it has the nonzeros of Graphene-4096 of
    Alappat et al., "A Recursive Algebraic Coloring Technique for Hardware-Efficient Symmetric
    Sparse Matrix-Vector Multiplication", 2020.
    """
    nx, ny = _check_shape([nx, ny])
    neighbours = integer(neighbours, "neighbours", 1, 3)
    disorder, generator = number(disorder, "disorder", 0), seeded(seed)
    rows = nx * ny
    rungs, below, beyond = -(-nx * (ny - 1) // 2), nx * (ny - 1), max(nx - 2, 0)
    nonzeros = rows + 2 * (nx - 1) * ny + 2 * rungs
    if neighbours > 1:
        nonzeros += 4 * (nx - 1) * (ny - 1) + 2 * beyond * ny
    if neighbours > 2:
        nonzeros += 2 * (below - rungs) + 4 * -(-beyond * (ny - 1) // 2)
    even = [step for step in _HONEYCOMB if step[2] <= neighbours]
    odd = sorted(((x, -y, kind) for x, y, kind in even), key=lambda step: (step[1], step[0]))
    table = np.array([even, odd])
    kinds = table[..., 2]
    steps = np.where(np.arange(3) < 2, table, 0)

    def part(sites: Integers) -> Block:
        parity = (sites // nx + sites % nx) % 2
        columns, present = _neighbours(sites, (nx, ny, 1), steps[parity])
        values = np.array(_HOPPING)[kinds[parity]]
        values[kinds[parity] == 0] = disorder * (generator.random(len(sites)) - 0.5)
        return padded(columns, present, values)

    return assemble(rows, rows, nonzeros, map(part, blocks(rows, len(even))))


# Hopping along x, y and z from each of the four orbitals leads to the same orbital and to the one
# in this table: the columns of the off-diagonal entries of Dirac's matrices.
_PARTNERS = np.array([[3, 2, 1, 0], [3, 2, 1, 0], [2, 3, 0, 1]])


def topological_insulator(nx: int, ny: int, nz: int, disorder: float = 0.0, seed: int = 0) -> CSR:
    """Make the pattern of a topological insulator: sites with four orbitals, and Dirac's matrices.

    Benign.  The Hamiltonian is ``sum over n, j of (T_j of n to n + e_j, and its adjoint)
    + sum over n of (V_n + 2 G1)`` with ``T_j = -(G1 - i G_(j+1)) / 2``, periodic along x and y and
    open along z.  It is complex, and no choice of Dirac's matrices makes all of it real.
    **The matrix has its diagonal, and elsewhere the absolute values of its entries, all 1/2**: it
    has the Hamiltonian's sparsity and symmetry, not its spectrum.  Far from the open ends a row has
    13 nonzeros, and the matrix has ``52 nx ny nz - 16 nx ny``.

    Parameters
    ----------
    nx, ny : int
        Sites along the periodic axes, at least 3.
    nz : int
        Sites along the open axis, at least 1.
    disorder : float
        W, at least 0: the potentials V_n are uniform from -W/2 to W/2.
    seed : int
        At least 0.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (4 nx ny nz, 4 nx ny nz)
        The orbitals of a site have consecutive rows.

    Raises
    ------
    InputError
        If a number is out of range, or the matrix is too large for memory.

    Notes
    -----
    Source: Kreutzer et al., "Performance Engineering of the Kernel Polynomial Method on
    Large-Scale CPU-GPU Systems", IPDPS 2015.  Dirac's matrices are ``G1 = tau_z x 1`` and
    ``G2, G3, G4 = tau_x x (sigma_x, sigma_y, sigma_z)``.
    """
    rings = (True, True, False)
    nx, ny, nz = shape = _check_shape([nx, ny, nz], rings)
    disorder, generator = number(disorder, "disorder", 0), seeded(seed)
    rows = 4 * nx * ny * nz
    nonzeros = 13 * rows - 16 * nx * ny
    # The step of each entry of a row, and its orbital by the orbital of the row.
    around = [step for step in _STAR if any(step)]
    steps = np.array([(0, 0, 0), *around, *around])
    own = np.tile(np.arange(4), (1 + len(around), 1))
    orbitals = np.concatenate([own, _PARTNERS[np.abs(around).argmax(axis=1)]]).T

    def part(sites: Integers) -> Block:
        reached, present = _neighbours(sites, shape, steps, rings)
        columns = (4 * reached[:, None, :] + orbitals).reshape(-1, len(steps))
        values = np.full(columns.shape, 0.5)
        potential = disorder * (generator.random(len(sites)) - 0.5)
        values[:, 0] = (potential[:, None] + (2.0, 2.0, -2.0, -2.0)).ravel()
        return padded(*_sorted(columns, present.repeat(4, axis=0), values))

    return assemble(rows, rows, nonzeros, map(part, blocks(rows // 4, 4 * len(steps))))
