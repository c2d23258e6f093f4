"""Gather and scatter over ranks with a distributed sparse array.

Each rank has an equal part of the sparse array, an equal part of the instances, and a dense buffer
with a row for each of its instances. The variants are methods to move elements of other ranks:

- ``single``: one get or put for each element;
- ``indexed``: one get or put for each rank, with a datatype of all its elements (MPI);
- ``packed``: the owner packs elements for each rank (gather), or each rank packs elements for their
  owners (scatter), into persistent messages (MPI);
- ``neighbor``: as ``packed``, but with the neighbourhood collective ``MPI_Ineighbor_alltoallv``.
"""

from __future__ import annotations

import numpy as np

from memkern.backends import BACKENDS, Backend
from memkern.checks import one_of
from memkern.errors import InputError
from memkern.limits import check_memory
from memkern.spec.kernel import IndexArray

_MOST = 2**31 - 1
_PART_B = 8


def refuse(backend: Backend, kernel: str, variant: str, *, threads: int) -> None:
    """Raise InputError for options that a library or the kernels over ranks do not support."""
    if kernel == "gs":
        raise InputError(f"{kernel} has one sparse array too many for {backend.device}: use gather")
    if variant != "best" and variant not in backend.moves:
        one_of(variant, "variant", [*dict.fromkeys(move for b in BACKENDS for move in b.moves)])
        raise InputError(
            f"{backend.library} has no variant {variant}: choose from {', '.join(backend.moves)}"
        )
    if threads > 1:
        raise InputError("one thread of each rank moves elements: leave threads out")


def rows(wrap: int, count: int, ranks: int, row_B: int) -> int:
    """Return the rows of the dense buffer of each rank, at least its number of instances plus one.

    The additional row has the effect that ranks use different rows for the same instance, and thus
    scatter different values.

    Parameters
    ----------
    wrap : int
        Requested number of rows, 1 by default.
    count : int
        Instances of all ranks.
    ranks, row_B : int
        Number of ranks, and bytes of a row.

    Raises
    ------
    InputError
        Another number of rows was requested.
    """
    needed = -(-count // ranks) + 1
    needed += needed * row_B % _PART_B > 0
    if wrap not in (1, needed):
        raise InputError(
            f"over ranks the dense buffer must have {needed} rows, one more than a rank has "
            "instances: leave wrap out"
        )
    return needed


def check_size(elements: int, ranks: int) -> None:
    """Raise InputError if a rank has too many elements for a library's counts, or for its memory.

    Parameters
    ----------
    elements : int
        Number of elements of each rank.
    ranks : int
    """
    check_memory(40 * elements * ranks, f"an index array of {elements * ranks} elements")
    if elements > _MOST:
        raise InputError(
            f"each rank may have at most {_MOST} elements, not {elements}: use a smaller count"
        )


def remote_share(positions: IndexArray, size: int, ranks: int, value_B: int) -> float:
    """Return the share of elements that are owned by another rank than the one that moves them.

    Parameters
    ----------
    positions : ndarray of int64, shape (instances, L)
        Positions in the sparse array.
    size : int
        Length of the sparse array.
    ranks, value_B : int
    """
    count = len(positions)
    # As in cpp/backends/ranks/arrays.hpp and cpp/core/sampler.hpp.
    share_B = max(size * value_B // ranks // _PART_B * _PART_B, _PART_B)
    owner = np.minimum(positions * value_B // share_B, ranks - 1)
    each, rest = divmod(count, ranks)
    begins = each * np.arange(ranks) + np.minimum(np.arange(ranks), rest)
    mover = np.searchsorted(begins, np.arange(count), side="right") - 1
    return float(np.mean(owner != mover[:, None]))
