"""The finite-element streaming tests BS0 to BS8.

BS6 (gather), BS7 (scatter) and BS8 (both) are on a mesh, a box of hexahedra that is stored as an
unstructured mesh: Z^T by row starts and columns, Z by the global id of every local node.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from memkern import small
from memkern.inputs.mesh import HexMesh, rows_of
from memkern.inputs.partition import entries_of, equal_parts
from memkern.inputs.sizes import sizes
from memkern.machine.declarations import declared
from memkern.shared.cache_lines import partly_accessed
from memkern.shared.checking import (
    SALT,
    Values,
    compared,
    error,
    extent,
    fresh,
    outcome,
    positions,
)
from memkern.shared.elementwise import ELEMENTS, RESULT, Arrays, dot, regular
from memkern.shared.without_arrays import register_without_arrays
from memkern.spec.case import HALOS, Case, Checks, Counts, KernelSpec, Limits, Model, Part
from memkern.spec.inputs import Given, index_type, row
from memkern.spec.kernel import (
    Exchange,
    IndexArray,
    Native,
    Traffic,
    Transfer,
    Validation,
    fill_values,
)
from memkern.spec.registry import case, register, shows_options_of

BS = "Chalmers and Warburton, Portable high-order finite element kernels I, 2020"
# As in the paper; the cost of reading the clock is then negligible.
INVOCATIONS = 20
# The released code invokes BS8 more often than the others.
_INVOCATIONS = {"bs.bs8": 50}
# Hardware does not predict the order in which a mesh is read: without software prefetch, gathers
# from memory take two to three times as long. (A scatter writes in order and reads nearby nodes.)
_PREFETCH = {"bs.bs6": 1024, "bs.bs7": 256, "bs.bs8": 1024}


@functools.lru_cache(maxsize=2)
def _mesh(
    elements: int, degree: int, masked: str, numbering: str
) -> tuple[HexMesh, IndexArray, IndexArray]:
    mesh = HexMesh(elements, degree, masked, numbering)
    return (mesh, *mesh.gather_rows())


_INPUTS = (
    row(
        "elements",
        20,
        "mesh of K x K x K elements for BS6 to BS8 (20)",
        least=1,
        several=True,
        metavar="K,...",
        column="mesh_elements",
        meaning="K of the mesh of K x K x K elements.",
    ),
    row(
        "degree",
        7,
        "polynomial degree for BS6 to BS8 (7)",
        least=1,
        several=True,
        metavar="N,...",
        meaning="Polynomial degree N: an element has (N + 1)^3 nodes.",
    ),
    row(
        "masked",
        "none",
        "nodes that BS6 to BS8 leave out (none)",
        choices=("none", "boundary"),
        meaning="``none``, or ``boundary`` to leave out the nodes on the surface of the box.",
    ),
    row(
        "numbering",
        "elements",
        "order of the mesh's unique nodes (elements)",
        choices=("elements", "lexicographic"),
        meaning="Numbering of the unique nodes: ``elements``, in the order of their first "
        "occurrence in the elements, as in the released code, or ``lexicographic``.",
    ),
    row(
        "halo",
        None,
        "one mesh of all ranks for BS6 to BS8, which exchange values of shared nodes in each "
        "invocation: without computing (blocking), or during independent work (overlap)",
        choices=HALOS,
        meaning="Distribute the elements of one mesh over all ranks instead of giving each rank "
        "its own mesh. Each invocation exchanges the values of shared nodes: ``blocking``, while "
        "nothing is computed, or ``overlap``, with computation that does not depend on them.",
    ),
    index_type("int32"),
)


def _meshed(given: Given) -> Case:
    elements, kernel = small.cut(given.elements, 2), given.spec.name
    mesh, row_starts, columns = _mesh(elements, given.degree, given.masked, given.numbering)
    sizes = {"local_nodes": mesh.local_nodes, "global_nodes": mesh.global_nodes}
    rows = {"row_starts": row_starts, "columns": columns}
    return given.case(
        integers=sizes,
        indices={"ids": mesh.ids} if kernel == "bs.bs7" else rows,
        index_dtype=given.index_dtype,
        columns={"mesh_elements": elements, **sizes},
        options={"prefetch": _PREFETCH[kernel]} if given.knobs.backend.on_processors else None,
    )


def _summed(case: Case, native: Native, rows: IndexArray) -> tuple[IndexArray, IndexArray, Values]:
    """Return the local nodes of rows of Z^T, the row of each, and the sums of the rows."""
    entries, counts = entries_of(case.indices["row_starts"], rows)
    at = case.indices["columns"][entries]
    row = np.repeat(np.arange(len(rows)), counts)
    return at, row, np.bincount(row, fresh(native, "xl", at), len(rows))


def _check_gather(case: Case, native: Native) -> Validation:
    rows = positions(case.integers["global_nodes"], native)
    sums = _summed(case, native, rows)[2]
    return (yield from compared(case, native, "xg", rows, sums, extent(case.iterations)))


def _check_scatter(case: Case, native: Native) -> Validation:
    at = positions(case.integers["local_nodes"], native)
    ids = case.indices["ids"][at]
    wanted = np.where(ids < 0, fresh(native, "xl", at), fresh(native, "xg", np.maximum(ids, 0)))
    return (yield from compared(case, native, "xl", at, wanted, extent(case.iterations)))


def _check_both(case: Case, native: Native) -> Validation:
    at, row, sums = _summed(case, native, positions(case.integers["global_nodes"], native))
    others = positions(case.integers["local_nodes"], native)
    others = others[~np.isin(others, case.indices["columns"])]
    native.fill(outputs=True)
    yield
    worst = max(
        error(native.peek("xl", at), sums[row]),
        error(native.peek("xl", others), fresh(native, "xl", others)),
    )
    return outcome(case, worst, extent(case.iterations))


def _rows_of_columns(case: Case) -> IndexArray:
    """Return the row of Z^T of each entry of `columns`."""
    starts = case.indices["row_starts"]
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def _gathered(case: Case, local: Values) -> Values:
    """Return Z^T x, independently of the order in which rows are summed."""
    weights = local[case.indices["columns"]].astype(np.float64)
    return np.bincount(_rows_of_columns(case), weights, case.integers["global_nodes"])


def _reference_scatter(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
    ids = case.indices["ids"]
    local = np.where(ids < 0, arrays["xl"], arrays["xg"][np.maximum(ids, 0)])
    return {"xg": arrays["xg"], "xl": local}


def _reference_both(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
    local = np.array(arrays["xl"], copy=True)
    local[case.indices["columns"]] = _gathered(case, local)[_rows_of_columns(case)]
    return {"xl": local}


def _filled_B(case: Case) -> float:
    """Return the bytes of the sectors that a GPU reads because masked nodes are not written."""
    if not case.knobs.backend.is_accelerator or "ids" not in case.indices:
        return 0.0
    ids = case.indices["ids"]
    return case.line_B * partly_accessed(
        np.flatnonzero(ids >= 0), case.line_B // case.value_B, len(ids)
    )


def _idle(case: Case) -> dict[str, str]:
    """Return that no other variant than the balanced one has blocks of so many nodes."""
    others = case.knobs.variant not in ("best", "balanced")
    return {"nodes_per_block": "only the variant balanced has it"} if others else {}


# ------------------------------------------------------------------------------- distributed meshes
# A rank has contiguous elements with all their local nodes, and the corresponding distinct nodes.
# The first rank that has a distinct node owns it. As in gather-scatter libraries (ogs, gslib), in a
# gather the owner adds the sums of other ranks to its own sum (BS6), in a scatter it sends its
# value to the others (BS7), and in both together all ranks that share a node add each other's sums
# (BS8).


@dataclasses.dataclass(frozen=True)
class _Distributed:
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
        # The last element is for masked nodes.
        position = np.full(len(self.owner) + 1, -1)
        position[nodes] = np.arange(len(nodes))
        return position[np.maximum(self.ids[self.own], -1)]


def distributed(case: Case, rank: int, ranks: int) -> _Distributed:
    """Return the mesh of a case distributed over ranks."""
    n = case.integers
    if "ids" in case.indices:
        ids = np.asarray(case.indices["ids"], dtype=np.int64)
    else:
        ids = np.full(n["local_nodes"], -1, dtype=np.int64)
        ids[case.indices["columns"]] = _rows_of_columns(case)
    first = equal_parts(len(ids) // _nodes_per_element(case), ranks) * _nodes_per_element(case)
    nodes = [np.unique(part[part >= 0]) for part in np.split(ids, first[1:-1])]
    owner = np.full(n["global_nodes"], ranks, dtype=np.int64)
    for number in reversed(range(ranks)):
        owner[nodes[number]] = number
    return _Distributed(ids, slice(int(first[rank]), int(first[rank + 1])), nodes, owner, rank)


def _nodes_per_element(case: Case) -> int:
    return (int(case.columns["degree"]) + 1) ** 3


def _local(
    case: Case, mesh: _Distributed, nodes: int, indices: Mapping[str, IndexArray], split: int
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


def _gather(case: Case, mesh: _Distributed) -> Part:
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
    local = _local(case, mesh, len(nodes), {"row_starts": starts, "columns": columns}, len(foreign))

    def check(native: Native) -> Validation:
        values = fill_values(np.arange(len(mesh.ids)), {"salt": SALT})
        kept = mesh.ids >= 0
        wanted = np.bincount(mesh.ids[kept], values[kept], case.integers["global_nodes"])[owned]
        given = {"xl": values[mesh.own], "xg": np.full(len(nodes), np.nan)}
        at = len(foreign) + np.arange(len(owned))
        return (yield from compared(case, native, "xg", at, wanted, "whole", given))

    return Part(local, exchange, check, len(foreign) / max(len(nodes), 1))


def _scatter(case: Case, mesh: _Distributed) -> Part:
    """Return a rank's part of BS7. Nodes of other ranks come last, ordered by owner.

    With ``overlap``, elements without such nodes come first.
    """
    owner = mesh.owner[mesh.mine]
    nodes = mesh.mine[np.argsort(np.where(owner == mesh.rank, -1, owner), kind="stable")]
    owned = nodes[: int((owner == mesh.rank).sum())]
    ids = mesh.numbered(nodes)
    foreign = ids >= len(owned)
    in_order = np.arange(len(ids))
    split = 0
    if case.halo == "overlap":
        elements = foreign.reshape(-1, _nodes_per_element(case))
        needs = elements.any(axis=1)
        in_order = in_order.reshape(elements.shape)[np.argsort(needs, kind="stable")].reshape(-1)
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
    local = _local(case, mesh, len(nodes), {"ids": ids[in_order]}, split)

    def check(native: Native) -> Validation:
        values = fill_values(np.arange(case.integers["global_nodes"]), {"salt": SALT})
        its = mesh.ids[mesh.own][in_order]
        at = np.arange(len(its))
        wanted = np.where(its < 0, fresh(native, "xl", at), values[np.maximum(its, 0)])
        given = {"xg": np.concatenate((values[owned], np.full(len(arrived), np.nan)))}
        return (yield from compared(case, native, "xl", at, wanted, "whole", given))

    return Part(local, exchange, check, float(foreign.mean()) if len(ids) else 0.0)


def _both(case: Case, mesh: _Distributed) -> Part:
    """Return a rank's part of BS8. Nodes that ranks share come first."""
    sharers = np.bincount(np.concatenate(mesh.nodes), minlength=case.integers["global_nodes"])
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
    local = _local(case, mesh, len(nodes), {"row_starts": starts, "columns": columns}, len(shared))

    def check(native: Native) -> Validation:
        values = fill_values(np.arange(len(mesh.ids)), {"salt": SALT})
        kept = mesh.ids >= 0
        sums = np.bincount(mesh.ids[kept], values[kept], case.integers["global_nodes"])
        its = mesh.ids[mesh.own]
        wanted = np.where(its < 0, values[mesh.own], sums[np.maximum(its, 0)])
        at, given = np.arange(len(its)), {"xl": values[mesh.own]}
        return (yield from compared(case, native, "xl", at, wanted, "whole", given))

    return Part(local, exchange, check, len(shared) / max(len(nodes), 1))


# ------------------------------------------------------------------------------------------ kernels


def _spec(
    name: str,
    summary: str,
    iterations: str,
    check: Callable[[Case, Native], Validation],
    reference: Callable[[Case, Mapping[str, Values]], dict[str, Values]],
    part: Callable[[Case, _Distributed], Part],
    steady_inputs: Mapping[str, float] | None = None,
) -> None:
    """Register a kernel that moves each of its arrays once, and its indices."""
    nodes = {"xl": "local_nodes", "xg": "global_nodes"}
    arrays = declared(name).arrays
    roles = {array.name: array.role for array in arrays}

    def traffic(case: Case) -> Traffic:
        size = case.value_B
        # Bytes of whole arrays, divided equally among the iterations.
        share = {key: case.integers[nodes[key]] * size / case.integers[iterations] for key in roles}
        new = [key for key, role in roles.items() if role == "write"]
        index = sum(len(values) for values in case.indices.values())
        return Traffic(
            read=sum(share[key] for key, role in roles.items() if role != "write"),
            write=sum(share[key] for key, role in roles.items() if role != "read"),
            index=index * np.dtype(case.index_dtype).itemsize / case.integers[iterations],
            write_allocate=sum(share[key] for key in new)
            if case.allocates
            else _filled_B(case) / case.integers[iterations],
        )

    def transfers(
        case: Case, levels: Sequence[str], caches: Sequence[Mapping[str, Any]]
    ) -> dict[str, Transfer]:
        """Count each local node's value between registers and L1, and arrays once beyond L1."""
        moved = traffic(case)
        local_B = case.integers["local_nodes"] * case.value_B / case.integers[iterations]
        return {
            **moved.transfers(levels, bypass=not case.allocates),
            levels[0]: Transfer(local_B + moved.index, moved.write),
        }

    register(
        KernelSpec(
            name=name,
            summary=summary,
            source=BS,
            arrays=arrays,
            traffic=traffic,
            iterations=lambda case: case.integers[iterations],
            checks=Checks(
                check=check,
                reference=reference,
                ulps=8.0,
                idempotent=steady_inputs is None,
                steady_inputs=steady_inputs or {},
            ),
            model=Model(transfers=transfers),
            inputs=_INPUTS,
            build=_meshed,
            usual={"invocations": _INVOCATIONS.get(name, INVOCATIONS)},
            limits=Limits(
                index_dtypes=("int32", "int64"),
                own_knobs=("nodes_per_block",) if name == "bs.bs6" else (),
                idle=_idle,
            ),
            counts=Counts(indices=True),
            part=lambda case, rank, ranks: part(case, distributed(case, rank, ranks)),
        )
    )


# The verb names the length by --entries, since --elements are those of the mesh of BS6 to BS8.
_ENTRIES = ELEMENTS._replace(
    option=dataclasses.replace(
        ELEMENTS.option,
        flag="entries",
        help="length of each array of BS1 to BS5 (four times the last-level caches)",
    )
)
_test = functools.partial(regular, source=BS, usual={"invocations": INVOCATIONS}, elements=_ENTRIES)

register_without_arrays(
    "bs.bs0", "empty launch", "Chalmers and Warburton 2020, BS0: cost of launching a kernel, T0"
)
_test("bs.bs1", "y = x", lambda v, s, t: {"y": v["x"]})
_test("bs.bs2", "y = s x + t y", lambda v, s, t: {"y": s * v["x"] + t * v["y"]})
_test("bs.bs3", "x . x", lambda v, s, t: {RESULT: dot(v["x"], v["x"])}, combine=np.sum)
_test("bs.bs4", "x . y", lambda v, s, t: {RESULT: dot(v["x"], v["y"])}, combine=np.sum)


def _cg_update(v: Arrays, s: float, _: float) -> dict[str, Any]:
    r = v["r"] - s * v["Ap"]
    return {"x": v["x"] + s * v["p"], "r": r, RESULT: dot(r, r)}


_test("bs.bs5", "x += s p; r -= s Ap; r . r", _cg_update, combine=np.sum)

# The released code does not update x.
_test(
    "bs.bs5@release",
    "r -= s Ap; r . r",
    lambda v, s, t: {"r": (r := v["r"] - s * v["Ap"]), RESULT: dot(r, r)},
    combine=np.sum,
)

_spec(
    "bs.bs6",
    "xg = Z^T xl",
    "global_nodes",
    _check_gather,
    lambda case, arrays: {
        "xl": arrays["xl"],
        "xg": _gathered(case, arrays["xl"]).astype(case.dtype),
    },
    _gather,
)
_spec(
    "bs.bs7",
    "xl = Z xg, masked nodes untouched",
    "local_nodes",
    _check_scatter,
    _reference_scatter,
    _scatter,
)
_spec(
    "bs.bs8",
    "xl = Z Z^T xl",
    "global_nodes",
    _check_both,
    _reference_both,
    _both,
    # The values of shared nodes grow with every invocation, unless they are zero.
    steady_inputs={"xl": 0.0},
)


@shows_options_of("bs.bs2", "bs.bs6")
def bs(number: int, *, definition: str = "paper", **options: Any) -> Case:
    """Case of a finite-element streaming test BS0 to BS8.

    Parameters
    ----------
    number : int
        0 to 8.
    definition : str
        ``paper`` or ``release``, of BS5.
    elements : int
        Of BS1 to BS5 the length of each array, by default as `memory_sized`; of BS6 to BS8 the
        number K of the mesh of K x K x K elements, by default 20.
    """
    return case(f"bs.bs{number}", definition=definition, **options)


def report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return the tests BS0 to BS8 from the caches to memory."""
    most_B = min(4 * cache_B, memory_B // 2)
    brief: dict[str, Any] = {"budget_s": 0.03 if quick else 0.12}
    # Enough sizes within and beyond the caches for separate fits.
    beyond = sizes(min(2 * cache_B, most_B), min(8 * cache_B, memory_B // 2), 5)
    lengths = [*sizes(2**16, cache_B // 2, 7), *beyond]
    return [
        bs(0, **brief),
        *(
            bs(n, footprint_B=size, **brief)
            for n in range(1, 2 if quick else 6)
            for size in lengths
        ),
        *_meshed_report_cases(quick, cache_B, memory_B),
    ]


def gpu_report_cases(device: str, quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return the empty launch and the tests BS1 to BS5 on a GPU, from its cache to its memory."""
    brief: dict[str, Any] = {"budget_s": 0.03 if quick else 0.12, "device": device}
    lengths = sizes(2**16, min(16 * cache_B, memory_B // 4), 6 if quick else 13)
    tests = [bs(n, footprint_B=size, **brief) for n in range(1, 6) for size in lengths]
    return [bs(0, **brief), *tests]


def _meshed_report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return BS6 to BS8 at degree 7 for several sizes, and at lower degrees for the largest."""
    if quick:
        return []

    def elements(footprint_B: float, degree: int) -> int:
        """Return the elements along an axis of a mesh with `footprint_B` of values and indices."""
        return max(2, int(np.cbrt(footprint_B / (20 * (degree + 1) ** 3)) + 0.5))

    # Enough sizes within and beyond the caches for separate fits.
    # The indices of all meshes are held at the same time: together at most a quarter of the memory.
    most_B = min(3.5 * cache_B, memory_B / 32)
    inside = sizes(cache_B // 64, cache_B // 2, 4)
    beyond = sizes(min(1.5 * cache_B, most_B), most_B, 4)
    shapes = [
        *((7, elements(size, 7)) for size in (*inside, *beyond)),
        *((degree, elements(most_B, degree)) for degree in (1, 2, 3, 5)),
    ]
    # The three tests of a shape are adjacent, so that its mesh is built once.
    return [
        case(f"bs.bs{number}", elements=k, degree=degree, budget_s=0.15)
        for degree, k in dict.fromkeys(shapes)
        for number in (6, 7, 8)
    ]
