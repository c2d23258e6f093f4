"""Arrays that are distributed over ranks, and the methods to move elements of other ranks.

Each rank has an equal part of every array. The variants of a kernel are these methods:

- ``single``: one get or put for each element;
- ``indexed``: one get or put for each rank, with a datatype of all its elements (MPI);
- ``packed``: the rank that has the values packs them for each other rank into persistent messages
  (MPI);
- ``neighbor``: as ``packed``, but with the neighbourhood collective ``MPI_Ineighbor_alltoallv``.
"""

from __future__ import annotations

import numpy as np

from memkern.backends import BACKENDS
from memkern.checks import one_of
from memkern.errors import InputError
from memkern.limits import check_memory
from memkern.machine.remote import description
from memkern.spec.case import Case
from memkern.spec.inputs import Given
from memkern.spec.kernel import IndexArray

PART_B = 8
"""Parts of arrays consist of words of this size."""

_MOST = 2**31 - 1


def refuse(case: Case) -> None:
    """Raise InputError for batches over ranks with a method that may move all elements at once."""
    knobs = case.knobs
    batches = knobs.backend.over_ranks and knobs.flush_every > 1
    if batches and len(knobs.backend.moves) > 1 and knobs.variant != "single":
        raise InputError(
            f"flush_every is for variant single, since others move all elements at once: give "
            f"variant single, not {knobs.variant}"
        )


def ranks_of(given: Given) -> int:
    """Return the number of ranks of a device.

    Raises
    ------
    InputError
        For a variant that its library does not have, and for several threads.
    """
    backend, variant = given.knobs.backend, given.option("variant")
    if variant != "best" and variant not in backend.moves:
        one_of(variant, "variant", [*dict.fromkeys(move for b in BACKENDS for move in b.moves)])
        raise InputError(
            f"{backend.library} has no variant {variant}: choose from {', '.join(backend.moves)}"
        )
    if given.option("threads") > 1:
        raise InputError("one thread of each rank moves elements: leave threads out")
    return description(given.knobs.device).ranks


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
            f"each rank may have at most {_MOST} elements, not {elements}: use smaller arrays"
        )


def check_stored_once(positions: IndexArray) -> None:
    """Raise InputError if an element is stored twice."""
    if len(np.unique(positions)) < positions.size:
        raise InputError(
            "scatters over ranks write each element once, since the order of writes is not known: "
            "use indices without repeats, or bases farther apart"
        )


def owners(positions: IndexArray, size: int, ranks: int, value_B: int) -> IndexArray:
    """Return the rank that has each element.

    Parameters
    ----------
    positions : ndarray of int64
        Positions in an array.
    size : int
        Length of the array.
    ranks, value_B : int
    """
    # As in cpp/backends/ranks/arrays.hpp.
    share_B = max(size * value_B // ranks // PART_B * PART_B, PART_B)
    return np.minimum(positions * value_B // share_B, ranks - 1)
