"""The gather and scatter of finite elements: which local nodes share a global node.

Every element of a mesh has its own copy of the nodes on its surface.  The matrix Z copies the
values of the global nodes to these local nodes (scatter), and its transpose sums the copies
(gather).  Z has a single 1 in each row, so one global id for each local node describes it.

Source: Chalmers and Warburton, "Portable high-order finite element kernels I: Streaming
Operations", 2020, tests BS6 to BS8.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from memkern.checks import FromFields, integer, shown
from memkern.errors import InputError
from memkern.inputs.indices import whole_numbers
from memkern.limits import check_memory

MAX_NODES = 2**40
"""The largest number of nodes (8 TiB of ids)."""


@dataclass(frozen=True)
class HexMesh(FromFields):
    """A box of K x K x K hexahedra of polynomial degree N, not periodic.

    Elements are numbered ``ex + K (ey + K ez)`` and the nodes of each
    ``i + (N+1) (j + (N+1) k)``.

    Parameters
    ----------
    elements : int
        K, the elements along each axis, at least 1.
    degree : int
        N, at least 1.
    masked : {"none", "boundary"}
        ``boundary`` masks the nodes on the surface of the box, as a Dirichlet condition does:
        scatter leaves their copies untouched and gather ignores them.
    numbering : {"elements", "lexicographic"}
        Of the global nodes: in the order of their first appearance in the elements, as in the
        released code, or ``x + (K N + 1) (y + (K N + 1) z)``.

    Raises
    ------
    InputError
        If a number is below 1, the mesh has more than 2**40 local nodes, or a word is unknown.
    """

    elements: int
    degree: int
    masked: str = "none"
    numbering: str = "elements"

    def __post_init__(self) -> None:
        """Validate the fields."""
        object.__setattr__(self, "elements", integer(self.elements, "elements", 1))
        object.__setattr__(self, "degree", integer(self.degree, "degree", 1))
        if self.local_nodes > MAX_NODES:
            raise InputError(
                f"elements and degree must give at most {MAX_NODES} local nodes, but "
                f"{self.elements} and {self.degree} give {shown(self.local_nodes)}"
            )
        if self.masked not in ("none", "boundary"):
            raise InputError(f"masked must be none or boundary, not {shown(self.masked)}")
        if self.numbering not in ("elements", "lexicographic"):
            raise InputError(
                f"numbering must be elements or lexicographic, not {shown(self.numbering)}"
            )

    @property
    def local_nodes(self) -> int:
        """Number of local nodes, N_L = (K (N + 1))**3."""
        return (self.elements * (self.degree + 1)) ** 3

    @property
    def global_nodes(self) -> int:
        """Number of global nodes, N_G = (K N + 1)**3, those that are masked included."""
        return (self.elements * self.degree + 1) ** 3

    @cached_property
    def ids(self) -> npt.NDArray[np.int64]:
        """Global id of each local node, -1 if masked: int64, shape (N_L,), read-only."""
        # For ids, masks and the transpose, with temporaries.
        check_memory(40 * self.local_nodes, f"a mesh of {self.local_nodes} local nodes")
        first = self.degree * np.arange(self.elements, dtype=np.int64)
        axis = first[:, None] + np.arange(self.degree + 1, dtype=np.int64)
        # In the order of the numbering, the fastest index last: ez, ey, ex, k, j, i.
        x = axis[None, None, :, None, None, :]
        y = axis[None, :, None, None, :, None]
        z = axis[:, None, None, :, None, None]
        last = self.elements * self.degree
        ids: npt.NDArray[np.int64] = x + (last + 1) * (y + (last + 1) * z)
        if self.numbering == "elements":
            ids = _by_appearance(ids.reshape(-1), self.global_nodes).reshape(ids.shape)
        if self.masked == "boundary":
            for along in (x, y, z):
                ids = np.where((along == 0) | (along == last), -1, ids)
        ids = ids.reshape(-1)
        ids.setflags(write=False)
        return ids

    @cached_property
    def multiplicity(self) -> npt.NDArray[np.int64]:
        """Unmasked copies of each global node: int64, shape (N_G,), read-only."""
        multiplicity = np.bincount(self.ids[self.ids >= 0], minlength=self.global_nodes)
        multiplicity.setflags(write=False)
        return multiplicity

    def gather_rows(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the rows of the transpose of Z, as `rows_of` does.

        Returns
        -------
        row_starts : numpy.ndarray of int64, shape (N_G + 1,)
            The row of a masked global node is empty.
        columns : numpy.ndarray of int64, shape (number of unmasked local nodes,)
            The local nodes of each row, ascending.
        """
        return rows_of(self.ids, self.global_nodes)


def _by_appearance(ids: npt.NDArray[np.int64], global_nodes: int) -> npt.NDArray[np.int64]:
    """Return ids renumbered in the order in which they first appear."""
    first = np.empty(global_nodes, dtype=np.int64)
    # In reverse, so that the first position of each id is written last.
    first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
    appears = np.zeros(len(ids), dtype=np.int64)
    appears[first] = 1
    rank = np.cumsum(appears)[first] - 1
    return np.asarray(rank[ids])


def rows_of(
    ids: npt.ArrayLike, global_nodes: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the transpose of Z in compressed rows: the local nodes of each global node.

    All values are 1 and are not stored.

    Parameters
    ----------
    ids : array_like of int, shape (N_L,)
        The global id of each local node; a negative id masks the node.
    global_nodes : int
        N_G, from 1 to 2**40.

    Returns
    -------
    row_starts : numpy.ndarray of int64, shape (N_G + 1,)
        Row g is ``columns[row_starts[g]:row_starts[g + 1]]``.
    columns : numpy.ndarray of int64, shape (number of unmasked local nodes,)
        The local nodes of each row, ascending.

    Raises
    ------
    InputError
        If the ids are not one-dimensional, not integers or not below `global_nodes`.

    Examples
    --------
    >>> starts, columns = rows_of([0, 1, 1, -1], 3)
    >>> starts.tolist(), columns.tolist()
    ([0, 1, 3, 3], [0, 1, 2])
    """
    global_nodes = integer(global_nodes, "global_nodes", 1, MAX_NODES)
    numbers = whole_numbers(ids, "ids")
    if len(numbers) and numbers.max() >= global_nodes:
        position = int(np.argmax(numbers >= global_nodes))
        raise InputError(
            f"ids[{position}] must be below the number of global nodes, {global_nodes}, not "
            f"{numbers[position]}"
        )
    unmasked = numbers[numbers >= 0]
    row_starts = np.zeros(global_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(unmasked, minlength=global_nodes), out=row_starts[1:])
    # Masked nodes are negative and come first; stable keeps the columns of a row ascending.
    columns = np.argsort(numbers, kind="stable")[len(numbers) - len(unmasked) :]
    return row_starts, columns
