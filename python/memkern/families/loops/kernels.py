"""The loop kernels of Alappat et al. 2021, with `update` and `nstream`.

Two of them are loops over the rows and columns of arrays: the five-point stencil and y += A x.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from memkern import small
from memkern.checks import shown
from memkern.errors import InputError
from memkern.host.capacity import data_caches
from memkern.inputs.sizes import sizes
from memkern.machine.caches import MEMORY, shares
from memkern.machine.declarations import declared
from memkern.shared.checking import Values, compared, extent, fresh, positions
from memkern.shared.elementwise import (
    POSITION,
    RESULT,
    dot,
    memory_sized,
    regular,
    streaming_inputs,
    value_B,
)
from memkern.spec.case import Case, Checks, Counts, KernelSpec, Limits, Model
from memkern.spec.inputs import Given, row
from memkern.spec.kernel import DTYPES, Native, Traffic, Transfer, Validation
from memkern.spec.options import Declared
from memkern.spec.registry import case, register, shows_options_of

if TYPE_CHECKING:
    from memkern.models.layer_conditions import StencilConditions

LOOPS = "Alappat et al., ECM modeling and performance tuning of SpMV and lattice QCD, 2021"
# Levels that may hold three rows of the stencil until they are reused.
HOLDERS = ("L1", "L2", "L3", "memory")
_COLUMNS = 192  # of the matrix, as in the paper


ROWS, COLUMNS = (
    row(
        name,
        None,
        f"{name} of stencil and matvec",
        least=3,
        most=2**40,
        least_given=1,
        metavar="N",
        meaning=f"{dimension} dimension of the stencil, at least 3.",
    )
    for name, dimension in (("rows", "Outer"), ("columns", "Inner"))
)
LAYER_CONDITION = row(
    "layer_condition",
    "",
    "stencil of a size for which this level (L1, L2, L3 or memory) holds three rows",
    choices=("", *HOLDERS),
    several=True,
    metavar="WHERE,...",
    meaning="The smallest cache that should hold three rows of a worker, ``L1``, ``L2`` or ``L3``, "
    "or ``memory`` if three rows should exceed all caches. The columns follow from the caches of "
    "this machine (see `rows_held`), the rows from `elements` or `footprint_B`. Models determine "
    "from sizes and caches which cache holds the rows.",
)


def _points(given: Given, arrays: int) -> float:
    """Return the elements of each array, given by `elements`, `footprint_B` or neither."""
    size_B = arrays * value_B(given.dtype)
    if given.footprint_B is not None:
        return float(given.footprint_B / size_B)
    return float(given.elements or memory_sized(given.dtype, element_B=size_B))


def _shaped(given: Given, rows: int, columns: int) -> Case:
    shape = {"rows": small.cut(rows, 128), "columns": small.cut(columns, 128)}
    return given.case(integers=shape, columns={"elements": prod(shape.values()), **shape})


def _stencil(given: Given) -> Case:
    rows, columns, holder = given.rows, given.columns, given.layer_condition
    sizes = (rows, given.elements, given.footprint_B)
    if holder and (rows, columns) != (None, None):
        raise InputError("layer_condition chooses rows and columns: leave these out")
    if (rows is None) != (columns is None) or sum(x is not None for x in sizes) > 1:
        raise InputError("loops.stencil takes either rows and columns, or elements, or footprint_B")
    if rows is None:
        points = _points(given, arrays=2)
        if holder:
            workers = given.option("threads") or len(os.sched_getaffinity(0))
            # One worker's share of each cache.
            each_B = {one.name: one.size_B // one.workers for one in shares(data_caches(), workers)}
            columns = rows_held(holder, each_B, given.dtype)
            rows = max(3, int(points / columns))
        else:
            rows = max(3, round((points / 2) ** 0.5))
            columns = 2 * rows
    return _shaped(given, rows, columns)


def rows_held(holder: str, caches_B: Mapping[str, int], dtype: str = "float64") -> int:
    """Return an inner dimension of the stencil for which a cache just holds three rows.

    Parameters
    ----------
    holder : str
        One of `HOLDERS`.
    caches_B : mapping
        Bytes of each cache that one worker can use, by its name, such as ``L1``.
    dtype : str

    Returns
    -------
    int
        Three rows take up half of the cache, or for ``memory`` twice the largest cache.

    Raises
    ------
    InputError
        There is no such cache, or half of it is no larger than a smaller cache.
    """
    if holder not in HOLDERS or (holder != "memory" and holder not in caches_B):
        known = ", ".join([*caches_B, "memory"])
        raise InputError(f"layer_condition must be one of {known} here, not {shown(holder)}")
    room = 2 * max(caches_B.values()) if holder == "memory" else caches_B[holder] / 2
    smaller = [size for level, size in caches_B.items() if level < holder or holder == "memory"]
    if any(room <= size for size in smaller):
        raise InputError(f"{holder} holds no more rows than a smaller cache")
    return max(3, int(room / (3 * value_B(dtype))))


def _matvec(given: Given) -> Case:
    if sum(x is not None for x in (given.rows, given.elements, given.footprint_B)) > 1:
        raise InputError("loops.matvec takes one of rows, elements and footprint_B")
    columns = small.cut(given.columns, 128)
    return _shaped(given, given.rows or max(1, int(_points(given, arrays=1) / columns)), columns)


def _check_stencil(case: Case, native: Native) -> Validation:
    rows, columns = case.integers["rows"], case.integers["columns"]
    at = positions(rows * columns, native)
    row, column = np.divmod(at, columns)
    inner = (row > 0) & (row < rows - 1) & (column > 0) & (column < columns - 1)
    wanted = fresh(native, "a", at)  # the edge stays as it is
    steps = (0, -1, 1, -columns, columns)
    around = sum(fresh(native, "b", at[inner] + step) for step in steps)
    wanted[inner] = case.numbers["alpha"] * around
    return (yield from compared(case, native, "a", at, wanted, extent(rows * columns)))


def _reference_stencil(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
    shape = case.integers["rows"], case.integers["columns"]
    b = arrays["b"].astype(np.float64).reshape(shape)
    a = np.array(arrays["a"], copy=True).reshape(shape)
    a[1:-1, 1:-1] = case.numbers["alpha"] * (
        b[1:-1, 1:-1] + b[:-2, 1:-1] + b[2:, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:]
    )
    return {"a": a.ravel(), "b": arrays["b"]}


def _traffic_stencil(case: Case) -> Traffic:
    """Count each point read and written once; an iteration is a row."""
    row_B = float((case.integers["columns"] - 2) * case.value_B)
    stores = row_B if case.allocates else _filled_B(case) / case.iterations
    return Traffic(read=row_B, write=row_B, write_allocate=stores)


def _filled_B(case: Case) -> float:
    """Return the bytes of the sectors that a GPU reads because they are only partly interior."""
    if not case.knobs.backend.is_accelerator:
        return 0.0
    columns, per_sector = case.integers["columns"], case.line_B // case.value_B
    begins = columns * np.arange(1, case.integers["rows"] - 1) + 1
    bounds = np.concatenate([begins, begins + columns - 2])
    # Consecutive rows may end and begin in one sector.
    partial = np.unique(bounds[bounds % per_sector != 0] // per_sector)
    return case.line_B * case.filled(0.0, len(partial))


def _model_stencil(case: Case) -> float:
    """Return the bytes from memory by the layer condition that this machine's caches fulfil."""
    caches = data_caches() if case.knobs.backend.on_processors else []
    if not caches:
        return case.traffic.view(write_allocate=True) * case.iterations
    last = f"L{caches[-1]['level']}"
    return sum(_stencil_transfers(case, (last, MEMORY), caches)[MEMORY]) * case.iterations


def _stencil_model(case: Case) -> StencilConditions:
    from memkern.models.layer_conditions import StencilConditions

    rows = case.integers["rows"]
    threads = case.knobs.threads or len(os.sched_getaffinity(0))
    return StencilConditions(
        rows,
        case.integers["columns"],
        value_B=case.value_B,
        write_factor=2 if case.allocates else 1,
        threads=min(threads, rows),
    )


def _stencil_transfers(
    case: Case, levels: Sequence[str], caches: Sequence[Mapping[str, Any]]
) -> dict[str, Transfer]:
    """Return the data that a row moves across each boundary, by the caches that hold three rows."""
    points = case.spec.counts.width(case)
    moved = _stencil_model(case).transfers(levels, caches)
    return {
        level: Transfer(points * load_B, points * store_B)
        for level, (load_B, store_B) in moved.items()
    }


def _stencil_conditions(case: Case, caches: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return whether each cache holds three rows."""
    model = _stencil_model(case)
    return {
        name: "rows" if model.holds(size_B, sharing) else "none"
        for name, size_B, sharing in shares(caches, model.threads)
    }


def _matvec_transfers(
    case: Case, levels: Sequence[str], caches: Sequence[Mapping[str, Any]]
) -> dict[str, Transfer]:
    """Return the data that a row moves across each boundary: y once per column unless cached."""
    from memkern.models.layer_conditions import held_by

    size, columns = float(case.value_B), case.integers["columns"]
    each = Transfer(2 * columns * size, columns * size)
    threads = case.knobs.threads or len(os.sched_getaffinity(0))
    found = {levels[0]: each}
    for cache, level in itertools.pairwise(levels):
        # A column of the matrix passes through the cache between two uses of y.
        held = held_by(2 * case.integers["rows"] * size / threads, cache, caches, threads)
        found[level] = case.traffic.transfers(levels)[level] if held else each
    return found


def _check_matvec(case: Case, native: Native) -> Validation:
    rows, columns = case.integers["rows"], case.integers["columns"]
    at = positions(rows, native)
    x = fresh(native, "x", np.arange(columns))
    wanted = fresh(native, "y", at)
    for c in range(columns):
        wanted = wanted + fresh(native, "A", c * rows + at) * x[c]
    return (yield from compared(case, native, "y", at, wanted, extent(rows)))


def _reference_matvec(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
    matrix = arrays["A"].reshape(case.integers["columns"], case.integers["rows"])
    y = arrays["y"].astype(np.float64) + np.sum(
        matrix.astype(np.float64).T * arrays["x"].astype(np.float64), axis=1
    )
    return {"y": y.astype(case.dtype), "A": arrays["A"], "x": arrays["x"]}


def _of_matvec(side: Declared, default: int | None, meaning: str) -> Declared:
    return Declared(side.name, default, replace(side.option, least=1, meaning=meaning))


register(
    KernelSpec(
        name="loops.stencil",
        summary="a = s (sum of b at the point and its four neighbours)",
        source=LOOPS,
        arrays=declared("loops.stencil").arrays,
        traffic=_traffic_stencil,
        iterations=lambda case: case.integers["rows"] - 2,
        checks=Checks(check=_check_stencil, reference=_reference_stencil, ulps=8.0),
        model=Model(
            bytes_B=_model_stencil, transfers=_stencil_transfers, conditions=_stencil_conditions
        ),
        inputs=(
            *streaming_inputs("loops.stencil"),
            LAYER_CONDITION,
            ROWS,
            COLUMNS,
        ),
        build=_stencil,
        counts=Counts(
            elementwise=True,
            width=lambda case: case.integers["columns"] - 2,
            flops=declared("loops.stencil").flops,
        ),
        numbers=declared("loops.stencil").scalars,
    )
)
register(
    KernelSpec(
        name="loops.matvec",
        summary="y += A x, column by column",
        source=LOOPS + ", figure 4",
        arrays=declared("loops.matvec").arrays,
        # The entries of one row, and y once, as if the caches held it between columns.
        traffic=lambda case: Traffic(
            read=(case.integers["columns"] + 1.0) * case.value_B, write=float(case.value_B)
        ),
        iterations=lambda case: case.integers["rows"],
        checks=Checks(
            check=_check_matvec, reference=_reference_matvec, ulps=64.0, idempotent=False
        ),
        model=Model(transfers=_matvec_transfers),
        inputs=(
            *streaming_inputs("loops.matvec"),
            _of_matvec(ROWS, None, "Length of y."),
            _of_matvec(COLUMNS, _COLUMNS, "Length of x; 192 as in the paper."),
        ),
        build=_matvec,
        counts=Counts(
            elementwise=True,
            width=lambda case: case.integers["columns"],
            flops=declared("loops.matvec").flops,
        ),
    )
)


_loop = functools.partial(regular, source=LOOPS)

_loop("loops.load", "maximum of a", lambda v, s, t: {RESULT: np.max(v["a"])}, combine=np.max)
_loop(
    "loops.load4",
    "maximum of a, b, c and d",
    lambda v, s, t: {RESULT: max(np.max(v[name]) for name in "abcd")},
    combine=np.max,
)
_loop("loops.sum", "sum of a", lambda v, s, t: {RESULT: np.sum(v["a"])}, combine=np.sum)
_loop("loops.dot", "a . b", lambda v, s, t: {RESULT: dot(v["a"], v["b"])}, combine=np.sum)
_loop("loops.init", "a = s", lambda v, s, t: {"a": np.full(len(v["a"]), s)})
_loop(
    "loops.init4",
    "a = b = c = d = s",
    lambda v, s, t: {name: np.full(len(v["a"]), s) for name in "abcd"},
)
_loop("loops.copy", "a = b", lambda v, s, t: {"a": v["b"]})
_loop("loops.update", "a = s a", lambda v, s, t: {"a": s * v["a"]})
_loop("loops.daxpy", "a += s b", lambda v, s, t: {"a": v["a"] + s * v["b"]})
_loop("loops.triad", "a = b + s c", lambda v, s, t: {"a": v["b"] + s * v["c"]})
_loop("loops.nstream", "a += b + s c", lambda v, s, t: {"a": v["a"] + v["b"] + s * v["c"]})
_loop("loops.schoenauer", "a = b + c d", lambda v, s, t: {"a": v["b"] + v["c"] * v["d"]})


# Every element adds one to an accumulator, by a multiplication with one and an addition of one.
_loop(
    "loops.peakflops",
    "x = 1 x + 1, in registers",
    lambda v, s, t: {RESULT: float(len(v[POSITION]))},
    combine=np.sum,
    limits=Limits(idle_knobs=("prefetch", "offset")),
)


@shows_options_of("loops.triad", "loops.stencil", "loops.matvec")
def loops(kernel: str, elements: int | None = None, **options: Any) -> Case:
    """Case of a loop kernel of the ECM studies.

    Parameters
    ----------
    kernel : str
        Such as ``triad``, ``load`` or ``stencil``.
    """
    return case(f"loops.{kernel}", elements=elements, **options)


def report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return loads at every size, and the peak floating-point rate."""
    most_B = min(4 * cache_B, memory_B // 2)
    if quick:
        return [loops("load", footprint_B=most_B, budget_s=0.1)]
    brief: dict[str, Any] = {"budget_s": 0.12}
    return [
        *(
            loops("load", footprint_B=size, repetition="free", **brief)
            for size in sizes(2**14, most_B, 25)
        ),
        *(loops("peakflops", 10**7, dtype=dtype, **brief) for dtype in DTYPES),
    ]


def gpu_report_cases(device: str, quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return loads on a GPU from its cache to its memory, and its peak floating-point rate."""
    brief: dict[str, Any] = {"budget_s": 0.03 if quick else 0.12, "device": device}
    return [
        *(
            loops("load", footprint_B=size, **brief)
            for size in sizes(2**16, min(16 * cache_B, memory_B // 4), 6 if quick else 13)
        ),
        *(loops("peakflops", dtype=dtype, **brief) for dtype in DTYPES),
    ]
