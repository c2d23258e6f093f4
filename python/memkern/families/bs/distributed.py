"""A mesh whose elements are distributed over ranks, which share the nodes between their elements.

A rank has contiguous elements with all their local nodes, and the corresponding distinct nodes. The
first rank that has a distinct node owns it. As in gather-scatter libraries (ogs, gslib), in a
gather the owner adds the sums of other ranks to its own sum (BS6), in a scatter it sends its value
to the others (BS7), and in both together all ranks that share a node add each other's sums (BS8).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from memkern.inputs.mesh import rows_of
from memkern.inputs.partition import entries_of, equal_parts
from memkern.shared.checking import Values, error, fresh, outcome
from memkern.spec.case import Case, Part
from memkern.spec.kernel import Exchange, IndexArray, Native, Validation, fill_values

# Salt of the values for checks of distributed cases; no array is filled with these values.
_SALT = 0x5EED


@dataclass(frozen=True)
class _Mesh:
    """A distributed mesh with the part of one rank.

    Parameters
    ----------
    ids : ndarray of int64, shape (local nodes of all ranks,)
        Global node of each local node, negative if it is masked.
    own : slice
        The rank's local nodes.
    nodes : list of ndarray of int64
        The distinct nodes of each rank, ascending.
    owner : ndarray of int64, shape (global nodes,)
        The first rank that has a node.
    rank : int
    """

    ids: IndexArray
    own: slice
    nodes: list[IndexArray]
    owner: IndexArray
    rank: int

    @property
    def mine(self) -> IndexArray:
        """The rank's distinct nodes."""
        return self.nodes[self.rank]

    @property
    def others(self) -> list[int]:
        """The other ranks."""
        return [other for other in range(len(self.nodes)) if other != self.rank]

    def numbered(self, nodes: IndexArray) -> IndexArray:
        """Return for each of the rank's local nodes its position in `nodes`, -1 if masked."""
        ids = self.ids[self.own]
        order = np.argsort(nodes)
        if not len(nodes):
            return np.full(len(ids), -1)
        at = order[np.searchsorted(nodes, np.maximum(ids, nodes[order[0]]), sorter=order)]
        return np.where(ids < 0, -1, at)


def _mesh(case: Case, rank: int, ranks: int) -> _Mesh:
    n = case.integers
    if "ids" in case.indices:
        ids = np.asarray(case.indices["ids"], dtype=np.int64)
    else:
        ids = np.full(n["local_nodes"], -1, dtype=np.int64)
        starts, columns = case.indices["row_starts"], case.indices["columns"]
        ids[columns] = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    first = equal_parts(len(ids) // _nodes_per_element(case), ranks) * _nodes_per_element(case)
    nodes = []
    for begin, end in itertools.pairwise(first):
        distinct = np.unique(ids[begin:end])
        nodes.append(distinct[distinct >= 0])
    owner = np.full(n["global_nodes"], ranks, dtype=np.int64)
    for number in reversed(range(ranks)):
        owner[nodes[number]] = number
    return _Mesh(ids, slice(int(first[rank]), int(first[rank + 1])), nodes, owner, rank)


def _nodes_per_element(case: Case) -> int:
    return (int(case.columns["degree"]) + 1) ** 3


def _local(
    case: Case, mesh: _Mesh, nodes: int, indices: Mapping[str, IndexArray], split: int
) -> Case:
    """Return a rank's case with this number of distinct nodes, split if the exchange overlaps.

    Kernels need at least one local and one distinct node.
    """
    local_nodes = mesh.own.stop - mesh.own.start
    if "ids" in indices and not local_nodes:
        indices = {"ids": np.array([-1])}
    elif "ids" not in indices and not nodes:
        indices = {"row_starts": np.array([0, 1]), "columns": np.array([0])}
    integers = {
        **case.integers,
        "local_nodes": max(local_nodes, 1),
        "global_nodes": max(nodes, 1),
        **({"split_at": split} if case.halo == "overlap" and mesh.others else {}),
    }
    return dataclasses.replace(case, integers=integers, indices=indices, request=None)


def _gather(case: Case, mesh: _Mesh) -> Part:
    """Return a rank's part of BS6. Nodes of other ranks come first, ordered by owner."""
    foreign = mesh.mine[mesh.owner[mesh.mine] != mesh.rank]
    foreign = foreign[np.argsort(mesh.owner[foreign], kind="stable")]
    owned = mesh.mine[mesh.owner[mesh.mine] == mesh.rank]
    nodes = np.concatenate((foreign, owned))
    starts, columns = rows_of(mesh.numbered(nodes), max(len(nodes), 1))
    neighbours, to = [], [np.zeros(0, dtype=np.int64)]
    for other in mesh.others:
        sent = np.flatnonzero(mesh.owner[foreign] == other)
        theirs = mesh.nodes[other]
        coming = theirs[mesh.owner[theirs] == mesh.rank]
        if len(sent) or len(coming):
            neighbours.append((other, sent, len(coming)))
            to.append(len(foreign) + np.searchsorted(owned, coming))
    added = np.concatenate(to)
    exchange = Exchange("xg", neighbours, added, np.arange(len(added)), adds=True)
    indices = {"row_starts": starts, "columns": columns}
    local = _local(case, mesh, len(nodes), indices, len(foreign))

    def check(native: Native) -> Validation:
        values = _whole(len(mesh.ids))
        kept = mesh.ids >= 0
        wanted = np.bincount(mesh.ids[kept], values[kept], case.integers["global_nodes"])[owned]
        given = {"xl": values[mesh.own], "xg": np.full(len(nodes), np.nan)}
        return (yield from _checked(case, native, given, "xg", wanted, len(foreign)))

    return Part(local, exchange, check, len(foreign) / max(len(nodes), 1))


def _scatter(case: Case, mesh: _Mesh) -> Part:
    """Return a rank's part of BS7. Nodes of other ranks come last, ordered by owner.

    With ``overlap``, elements without such nodes come first.
    """
    owner = mesh.owner[mesh.mine]
    nodes = mesh.mine[np.argsort(np.where(owner == mesh.rank, -1, owner), kind="stable")]
    owned = nodes[: int((owner == mesh.rank).sum())]
    ids = mesh.numbered(nodes)
    foreign = ids >= len(owned)
    positions = np.arange(len(ids))
    split = 0
    if case.halo == "overlap":
        elements = foreign.reshape(-1, _nodes_per_element(case))
        needs = elements.any(axis=1)
        order = np.argsort(needs, kind="stable")
        positions = positions.reshape(elements.shape)[order].reshape(-1)
        split = int((~needs).sum()) * elements.shape[1]
    neighbours = []
    for other in mesh.others:
        theirs = mesh.nodes[other]
        sent = np.searchsorted(owned, theirs[mesh.owner[theirs] == mesh.rank])
        received = int((owner == other).sum())
        if len(sent) or received:
            neighbours.append((other, sent, received))
    arrived = np.arange(len(nodes) - len(owned))
    exchange = Exchange("xg", neighbours, len(owned) + arrived, arrived)
    local = _local(case, mesh, len(nodes), {"ids": ids[positions]}, split)

    def check(native: Native) -> Validation:
        values = _whole(case.integers["global_nodes"])
        its = mesh.ids[mesh.own][positions]
        before = fresh(native, "xl", np.arange(len(its)))
        wanted = np.where(its < 0, before, values[np.maximum(its, 0)])
        given = {"xg": np.concatenate((values[owned], np.full(len(arrived), np.nan)))}
        return (yield from _checked(case, native, given, "xl", wanted))

    return Part(local, exchange, check, float(foreign.mean()) if len(ids) else 0.0)


def _both(case: Case, mesh: _Mesh) -> Part:
    """Return a rank's part of BS8. Nodes that ranks share come first."""
    sharers = np.zeros(case.integers["global_nodes"], dtype=np.int64)
    for theirs in mesh.nodes:
        sharers[theirs] += 1
    is_shared = sharers[mesh.mine] > 1
    nodes = mesh.mine[np.argsort(~is_shared, kind="stable")]
    shared = nodes[: int(is_shared.sum())]
    starts, columns = rows_of(mesh.numbered(nodes), max(len(nodes), 1))
    neighbours, to, of = [], [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    received = 0
    for other in mesh.others:
        common = np.intersect1d(shared, mesh.nodes[other], assume_unique=True)
        if not len(common):
            continue
        rows = np.searchsorted(shared, common)
        # The kernel writes the sum to every copy.
        neighbours.append((other, columns[starts[rows]], len(common)))
        entries, counts = entries_of(starts, rows)
        to.append(columns[entries])
        of.append(np.repeat(received + np.arange(len(common)), counts))
        received += len(common)
    exchange = Exchange("xl", neighbours, np.concatenate(to), np.concatenate(of), adds=True)
    indices = {"row_starts": starts, "columns": columns}
    local = _local(case, mesh, len(nodes), indices, len(shared))

    def check(native: Native) -> Validation:
        values = _whole(len(mesh.ids))
        kept = mesh.ids >= 0
        sums = np.bincount(mesh.ids[kept], values[kept], case.integers["global_nodes"])
        its = mesh.ids[mesh.own]
        wanted = np.where(its < 0, values[mesh.own], sums[np.maximum(its, 0)])
        return (yield from _checked(case, native, {"xl": values[mesh.own]}, "xl", wanted))

    return Part(local, exchange, check, len(shared) / max(len(nodes), 1))


def _whole(n: int) -> Values:
    """Return values for all ranks together."""
    return fill_values(np.arange(n), {"salt": _SALT})


def _checked(
    case: Case,
    native: Native,
    given: Mapping[str, Values],
    name: str,
    wanted: Values,
    first: int = 0,
) -> Validation:
    """Set the first elements of arrays, and compare those of one from `first` with `wanted`."""
    native.fill(outputs=True)
    for key, values in given.items():
        array = native.arrays()[key]
        whole = np.zeros(array["columns"], dtype=array["dtype"])
        whole[: len(values)] = values
        native.copy_in(key, whole)
    yield
    found = native.peek(name, first + np.arange(len(wanted)))
    return outcome(case, error(found, wanted), "whole")


_PARTS = {"bs.bs6": _gather, "bs.bs7": _scatter, "bs.bs8": _both}


def part(case: Case, rank: int, ranks: int) -> Part:
    """Return a rank's part of BS6, BS7 or BS8."""
    return _PARTS[case.spec.name](case, _mesh(case, rank, ranks))
