"""Gather and scatter over ranks with a distributed sparse array.

Each rank has an equal part of the sparse array, an equal part of the instances, and a dense buffer
with a row for each of its instances (see `memkern.shared.over_ranks`).
"""

from __future__ import annotations

import numpy as np

from memkern.errors import InputError
from memkern.shared.over_ranks import PART_B, owners
from memkern.spec.kernel import IndexArray


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
    needed += needed * row_B % PART_B > 0
    if wrap not in (1, needed):
        raise InputError(
            f"over ranks the dense buffer must have {needed} rows, one more than a rank has "
            "instances: leave wrap out"
        )
    return needed


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
    # As in cpp/core/sampler.hpp.
    each, rest = divmod(count, ranks)
    begins = each * np.arange(ranks) + np.minimum(np.arange(ranks), rest)
    mover = np.searchsorted(begins, np.arange(count), side="right") - 1
    return float(np.mean(owners(positions, size, ranks, value_B) != mover[:, None]))
