"""Loops of the ECM studies over two-dimensional arrays: the five-point stencil and y += A x."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memkern import small
from memkern.checks import integer, one_of, shown
from memkern.errors import InputError
from memkern.host.capacity import data_caches
from memkern.machine.caches import MEMORY, shares
from memkern.machine.declarations import declared
from memkern.shared.checking import Values, error, extent, fresh, outcome, positions
from memkern.shared.elementwise import footprint, memory_sized, scalars, value_B
from memkern.spec.case import Case, Checks, Counts, KernelSpec, Model
from memkern.spec.kernel import Native, Traffic, Transfer, Validation
from memkern.spec.registry import find, register

if TYPE_CHECKING:
    from memkern.models.layer_conditions import StencilConditions

LOOPS = "Alappat et al., ECM modeling and performance tuning of SpMV and lattice QCD, 2021"
# Levels that may hold three rows of the stencil until they are reused.
HOLDERS = ("L1", "L2", "L3", "memory")
_COLUMNS = 192  # of the matrix, as in the paper


def _points(elements: int | None, footprint_B: float | None, dtype: str, arrays: int) -> float:
    """Return the elements of each array, given by `elements`, `footprint_B` or neither."""
    if footprint_B is not None:
        return footprint(footprint_B) / (arrays * value_B(dtype))
    if elements is None:
        return float(memory_sized(dtype, element_B=arrays * value_B(dtype)))
    return float(integer(elements, "elements", 1))


def _side(value: int | None, name: str, least: int) -> int:
    return small.cut(integer(value, name, least, 2**40), 128)


def stencil(
    kernel: str,
    *,
    rows: int | None = None,
    columns: int | None = None,
    elements: int | None = None,
    footprint_B: float | None = None,
    layer_condition: str = "",
    dtype: str = "float64",
    alpha: float | None = None,
    **options: Any,
) -> Case:
    """Build a case of the two-dimensional five-point stencil.

    Parameters
    ----------
    kernel : str
        ``loops.stencil``.
    rows, columns : int, optional
        Outer and inner dimension, both at least 3.
    elements, footprint_B : optional
        Points of the grid (by default each array is four times the last-level caches) or bytes of
        both arrays, instead of `rows` and `columns`; the inner dimension is then twice the outer.
    layer_condition : str
        The smallest cache that should hold three rows of a worker, ``L1``, ``L2`` or ``L3``, or
        ``memory`` if three rows should exceed all caches. The columns follow from the caches of
        this machine (see `rows_held`), the rows from `elements` or `footprint_B`. Models determine
        from sizes and caches which cache holds the rows.
    dtype, alpha, **options
        As for `memkern.shared.elementwise.case_of`; alpha is a quarter by default. The variant
        ``pipelined`` interleaves stages of several vectors, so that no instruction of an iteration
        depends on another one of it (section 4 of the paper).

    Raises
    ------
    InputError
        A size is out of range, or given in two ways.
    """
    spec = find(kernel)
    if (rows is None) != (columns is None) or sum(
        x is not None for x in (rows, elements, footprint_B)
    ) > 1:
        raise InputError("loops.stencil takes either rows and columns, or elements, or footprint_B")
    one_of(layer_condition, "layer_condition", ("", *HOLDERS))
    if layer_condition and rows is not None:
        raise InputError("layer_condition chooses rows and columns: leave these out")
    if rows is None:
        points = _points(elements, footprint_B, dtype, arrays=2)
        if layer_condition:
            workers = options.get("threads") or len(os.sched_getaffinity(0))
            # One worker's share of each cache.
            each_B = {one.name: one.size_B // one.workers for one in shares(data_caches(), workers)}
            columns = rows_held(layer_condition, each_B, dtype)
            rows = max(3, int(points / columns))
        else:
            rows = max(3, round((points / 2) ** 0.5))
            columns = 2 * rows
    rows, columns = _side(rows, "rows", 3), _side(columns, "columns", 3)
    numbers = scalars(spec, dtype, alpha=alpha)
    return Case(
        spec,
        integers={"rows": rows, "columns": columns},
        numbers=numbers,
        dtype=dtype,
        columns={
            "elements": rows * columns,
            "rows": rows,
            "columns": columns,
            "layer_condition": layer_condition,
            **numbers,
        },
    ).with_(**options)


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


def matvec(
    kernel: str,
    *,
    rows: int | None = None,
    columns: int = _COLUMNS,
    elements: int | None = None,
    footprint_B: float | None = None,
    dtype: str = "float64",
    **options: Any,
) -> Case:
    """Build a case of the dense column-major product y += A x.

    Parameters
    ----------
    kernel : str
        ``loops.matvec``.
    rows, columns : int
        Length of y and of x; 192 columns by default, as in the paper.
    elements, footprint_B : optional
        Entries (by default four times the last-level caches) or bytes of the matrix, instead of
        `rows`.
    dtype, **options
        As for `memkern.shared.elementwise.case_of`. Variant ``nta`` loads the matrix
        with a non-temporal prefetch hint.

    Raises
    ------
    InputError
        A size is out of range, or given in two ways.
    """
    if sum(x is not None for x in (rows, elements, footprint_B)) > 1:
        raise InputError("loops.matvec takes one of rows, elements and footprint_B")
    columns = _side(columns, "columns", 1)
    if rows is None:
        rows = max(1, int(_points(elements, footprint_B, dtype, arrays=1) / columns))
    rows = _side(rows, "rows", 1)
    return Case(
        find(kernel),
        integers={"rows": rows, "columns": columns},
        dtype=dtype,
        columns={"elements": rows * columns, "rows": rows, "columns": columns},
    ).with_(**options)


def _five_points(case: Case, i: Values, at: Any) -> Values:
    row = case.integers["columns"]
    around = at(i) + at(i - 1) + at(i + 1) + at(i - row) + at(i + row)
    return np.asarray(case.numbers["alpha"] * around)


def _check_stencil(case: Case, native: Native) -> Validation:
    rows, columns = case.integers["rows"], case.integers["columns"]
    at = positions(rows * columns, native)
    row, column = np.divmod(at, columns)
    inner = (row > 0) & (row < rows - 1) & (column > 0) & (column < columns - 1)
    wanted = fresh(native, "a", at)  # the edge stays as it is
    wanted[inner] = _five_points(case, at[inner], lambda i: fresh(native, "b", i))
    native.fill(outputs=True)
    yield
    return outcome(case, error(native.peek("a", at), wanted), extent(rows * columns))


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
    native.fill(outputs=True)
    yield
    return outcome(case, error(native.peek("y", at), wanted), extent(rows))


def _reference_matvec(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
    matrix = arrays["A"].reshape(case.integers["columns"], case.integers["rows"])
    y = arrays["y"].astype(np.float64) + np.sum(
        matrix.astype(np.float64).T * arrays["x"].astype(np.float64), axis=1
    )
    return {"y": y.astype(case.dtype), "A": arrays["A"], "x": arrays["x"]}


def _traffic_matvec(case: Case) -> Traffic:
    """Count the entries of one row, and y once, as if the caches held it between columns."""
    size = float(case.value_B)
    return Traffic(read=(case.integers["columns"] + 1) * size, write=size)


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
        build=stencil,
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
        traffic=_traffic_matvec,
        iterations=lambda case: case.integers["rows"],
        checks=Checks(
            check=_check_matvec, reference=_reference_matvec, ulps=64.0, idempotent=False
        ),
        model=Model(transfers=_matvec_transfers),
        build=matvec,
        counts=Counts(
            elementwise=True,
            width=lambda case: case.integers["columns"],
            flops=declared("loops.matvec").flops,
        ),
    )
)
