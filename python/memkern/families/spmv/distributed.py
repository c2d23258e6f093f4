"""A matrix whose rows are distributed over ranks, each with its part of both vectors.

A rank has contiguous rows. Its x consists of its own elements, which for a square matrix correspond
to its rows, followed by the halo: the elements of other ranks that its rows multiply, in ascending
order. Own elements that other ranks multiply are sent to these ranks for each product.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from memkern.inputs.partition import entries_of, equal_parts
from memkern.spec.case import Case
from memkern.spec.kernel import Exchange, IndexArray, Indices


@dataclasses.dataclass(frozen=True)
class Share:
    """A rank's part of a distributed matrix.

    Parameters
    ----------
    case : Case
        The rank's rows, whose columns are indices into its x. A rank without nonzeros has one
        additional row, with a zero in the first column, because kernels need a nonzero.
    exchange : Exchange
    rows : ndarray of int64, shape (n,)
        The matrix's row of each row of `case`, except the additional one.
    own : range
        The elements of the vector that belong to this rank.
    halo : ndarray of int64, shape (h,)
        The elements of other ranks that follow them.
    dependent : float
        Share of the rows that multiply elements of the halo.
    """

    case: Case
    exchange: Exchange
    rows: IndexArray
    own: range
    halo: IndexArray
    dependent: float


def boundaries(starts: Indices, ranks: int, balance: str) -> IndexArray:
    """Return the first row of each rank, and the end of the last.

    Parameters
    ----------
    starts : ndarray of int, shape (rows + 1,)
    ranks : int
    balance : str
        Ranks get equal numbers of ``rows``, or nearly equal numbers of nonzeros (``nnz``).
    """
    rows = len(starts) - 1
    if balance == "rows":
        return equal_parts(rows, ranks)
    wanted = equal_parts(int(starts[-1]), ranks)
    after = np.clip(np.searchsorted(starts, wanted), 1, rows)
    found = np.where(wanted - starts[after - 1] < starts[after] - wanted, after - 1, after)
    found[0], found[-1] = 0, rows
    return np.maximum.accumulate(found)


def share_of(case: Case, rank: int, ranks: int) -> Share:
    """Return a rank's part of a case's matrix.

    With ``overlap``, rows without elements of the halo come first, in their order, and the integer
    ``split_at`` of the case is their number; in SELL it is the number of their whole chunks.
    """
    n = case.integers
    starts = np.asarray(case.indices["starts"], dtype=np.int64)
    columns = case.indices["columns"]
    first_rows = boundaries(starts, ranks, case.columns["balance"])
    first_columns = first_rows if n["rows"] == n["columns"] else equal_parts(n["columns"], ranks)
    begin, end = first_rows[rank], first_rows[rank + 1]
    own = range(int(first_columns[rank]), int(first_columns[rank + 1]))

    entries = slice(starts[begin], starts[end])
    its_columns = np.asarray(columns[entries], dtype=np.int64)
    foreign = (its_columns < own.start) | (its_columns >= own.stop)
    halo = np.unique(its_columns[foreign])
    its_columns -= own.start
    its_columns[foreign] = len(own) + np.searchsorted(halo, columns[entries][foreign])
    received = np.diff(np.searchsorted(halo, first_columns))

    neighbours = []
    for other in range(ranks):
        theirs = columns[starts[first_rows[other]] : starts[first_rows[other + 1]]]
        mine = (theirs >= own.start) & (theirs < own.stop) & (other != rank)
        sent = np.unique(theirs[mine]).astype(np.int64) - own.start
        if len(sent) or received[other]:
            neighbours.append((other, sent, int(received[other])))
    arrived = np.arange(len(halo))
    exchange = Exchange("x", neighbours, len(own) + arrived, arrived)

    its_starts = starts[begin : end + 1] - starts[begin]
    values = case.data["values"][entries]
    rows = np.arange(begin, end)
    needs = np.zeros(len(rows), dtype=bool)
    needs[np.repeat(np.arange(len(rows)), np.diff(its_starts))[foreign]] = True
    integers = dict(n)
    if case.halo == "overlap" and ranks > 1:
        order = np.argsort(needs, kind="stable")
        rows = rows[order]
        in_order, lengths = entries_of(its_starts, order)
        its_starts = np.concatenate(([0], np.cumsum(lengths)))
        its_columns, values = its_columns[in_order], values[in_order]
        integers["split_at"] = int((~needs).sum()) // n["chunk"]
    if not len(its_columns):
        its_starts = np.append(its_starts, 1)
        its_columns, values = np.zeros(1, dtype=np.int64), np.zeros(1)
    integers |= {
        "rows": len(its_starts) - 1,
        "columns": max(len(own) + len(halo), 1),
        "nonzeros": len(its_columns),
    }
    local = dataclasses.replace(
        case,
        integers=integers,
        indices={"starts": its_starts, "columns": its_columns},
        data={"values": values},
        request=None,
    )
    return Share(local, exchange, rows, own, halo, float(needs.mean()) if len(rows) else 0.0)
