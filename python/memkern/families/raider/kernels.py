"""RaiderSTREAM: STREAM's operations on elements that are accessed through index arrays.

Gather reads by index, scatter writes by index, sg does both, and in central all accesses go to
element 0. The paper indexes one operand of add and triad, the 2024 release both (``@release``).

If an index array has duplicates, several iterations store to one element. The check then requires
the value of the last of these with one worker, and of any of these with several workers.

On ``mpi`` and ``shmem`` all arrays are distributed over all ranks. Each rank executes the
iterations with the numbers of its own elements: it gathers the operands that are accessed by index
into buffers, computes, and scatters the results (see `memkern.shared.over_ranks`).
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from memkern.errors import InputError
from memkern.inputs import indices
from memkern.machine.declarations import declared
from memkern.shared.cache_lines import accessed, partly_accessed
from memkern.shared.checking import (
    Values,
    difference,
    error,
    exactly,
    extent,
    fresh,
    outcome,
    positions,
)
from memkern.shared.elementwise import PATTERN, REPEATS, length, mccalpin, streaming_inputs
from memkern.shared.over_ranks import check_size, check_stored_once, owners, ranks_of, refuse
from memkern.spec.case import Case, Checks, Counts, KernelSpec, Limits, Model, once_for_inputs
from memkern.spec.inputs import Given, index_type
from memkern.spec.kernel import (
    DTYPES,
    INDEX_DTYPES,
    INTEGER_DTYPES,
    IndexArray,
    Native,
    Traffic,
    Transfer,
    Validation,
    crossed,
    fill_values,
)
from memkern.spec.registry import case, register, shows_options_of

RAIDER = "Beebe et al., RaiderSTREAM: Adapting the STREAM Benchmark to Modern HPC Systems, 2022"

Operation = Callable[[list[Values], float], Values]


def _index_of(case: Case, index_name: str, i: IndexArray) -> IndexArray:
    """Return the elements of an array that iterations `i` access; see `_spec`."""
    if index_name == "0":
        return np.zeros_like(i)
    return case.indices[index_name][i] if index_name in case.indices else i


# The kernels of a run share their index arrays. Files are read again, since they may have changed.
_cached_indices = functools.lru_cache(maxsize=4)(indices.build)


def _indexed(given: Given) -> Case:
    n = length(given)
    arrays: dict[str, IndexArray] = {}
    label, seed = "", given.option("seed")
    for number, index_name in enumerate(given.spec.indices):
        pattern = given.pattern
        if isinstance(pattern, str) and not os.path.exists(pattern):
            label, arrays[index_name] = _cached_indices(pattern, n, seed + number, given.repeats)
        else:
            label, arrays[index_name] = indices.build(pattern, n, seed, given.repeats)
    built = given.case(
        integers={"elements": n},
        indices=arrays,
        index_dtype=given.index_dtype if arrays else "",
        columns={"elements": n, "index_pattern": label},
        fixed={"threads": 1} if given.knobs.backend.over_ranks else None,
    )
    return _over_ranks(built, ranks_of(given)) if given.knobs.backend.over_ranks else built


def _over_ranks(case: Case, ranks: int) -> Case:
    """Return a case with the share of remote elements; refuse it if ranks can't run it."""
    if not case.indices:
        raise InputError(f"{case.spec.name} has no indices: leave device out")
    n = case.iterations
    check_size(-(-n // ranks), ranks)
    if case.spec.name.partition(".")[2].startswith("s"):
        # Arrays are accessed by IDX1 first.
        check_stored_once(case.indices["IDX1"])
    rank = owners(np.arange(n), n, ranks, case.value_B)
    remote = [np.mean(rank[index] != rank) for index in case.indices.values()]
    return dataclasses.replace(
        case,
        integers={**case.integers, "workers": ranks},
        columns={**case.columns, "remote_share": float(np.mean(remote))},
    )


def _spec(name: str, text: str, index_names: Mapping[str, str], operation: Operation) -> None:
    """Register a kernel whose arrays, flops and scalars the extension declares.

    `index_names` maps each array to the index array through which it is accessed (``IDX1``, ``i``
    for none, ``0`` for element 0 always); the first array is written, and `operation` computes its
    values from the other arrays and the scalar.
    """
    declaration = declared(f"raider.{name}")
    written, *read = (array.name for array in declaration.arrays)
    idx = tuple(sorted(index for index in index_names.values() if index.startswith("IDX")))

    def traffic(case: Case) -> Traffic:
        size = float(case.value_B)
        return Traffic(
            read=len(read) * size,
            write=size,
            index=len(idx) * float(np.dtype(case.index_dtype or "int64").itemsize),
            write_allocate=filled_B(case) / case.iterations,
        )

    @once_for_inputs
    def lines_of(case: Case) -> dict[str, tuple[int, int]]:
        """Return the numbers of accessed and, on a GPU, of partly accessed lines of each array."""
        n, per_line = case.iterations, case.line_B // case.value_B
        of_index = {"i": (-(-n // per_line), 0)}
        for index_name in {*index_names.values()} - {"i"}:
            # An index array, or 0.
            index = [case.indices.get(index_name, np.zeros(1, dtype=np.int64))]
            on_gpu = case.knobs.backend.is_accelerator
            partial = partly_accessed(accessed(index, n), per_line, n) if on_gpu else 0
            of_index[index_name] = len(accessed(index, n, per_line)), partial
        return {key: of_index[index_name] for key, index_name in index_names.items()}

    def filled_B(case: Case) -> float:
        """Return the bytes of the lines that stores read before they write them."""
        lines, partial = lines_of(case)[written]
        return case.line_B * case.filled(lines, partial)

    def from_memory(case: Case) -> Transfer:
        """Count accessed lines once, and lines that are read before stores once more."""
        loads = sum(lines_of(case)[key][0] for key in read)
        index_B = case.traffic.index * case.iterations
        return Transfer(
            index_B + filled_B(case) + case.line_B * loads,
            case.line_B * float(lines_of(case)[written][0]),
        )

    def transfers(
        case: Case, levels: Sequence[str], caches: Sequence[Mapping[str, Any]]
    ) -> dict[str, Transfer]:
        inner = Transfer(case.traffic.read + case.traffic.index, case.traffic.write)
        outer = Transfer(*(each_B / case.iterations for each_B in from_memory(case)))
        return crossed(levels, inner, outer, bypass=not case.allocates)

    def values_of(case: Case, i: IndexArray, values: Callable[[str, IndexArray], Values]) -> Values:
        operands = [values(key, _index_of(case, index_names[key], i)) for key in read]
        return operation(operands, exactly(case.numbers.get("alpha", 1.0), case.dtype))

    def reference(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
        i = np.arange(case.iterations)
        after = {key: np.array(values, copy=True) for key, values in arrays.items()}
        exact = values_of(case, i, lambda key, at: exactly(arrays[key][at], case.dtype))
        after[written][_index_of(case, index_names[written], i)] = exact
        return after

    def check(case: Case, native: Native) -> Validation:
        n = case.iterations
        filled = native.arrays()
        i = _iterations(case, native, index_names[written])
        target = _index_of(case, index_names[written], i)
        wanted = values_of(
            case, i, lambda key, at: exactly(fill_values(at, filled[key]), case.dtype)
        )
        native.fill(outputs=True)
        yield
        got = native.peek(written, target)
        how = extent(n)
        if native.obtained()["threads"] == 1:
            # The value of the last iteration that stores to an element remains.
            _, backwards = np.unique(target[::-1], return_index=True)
            last = len(target) - 1 - backwards
            worst = error(got[last], wanted[last])
        else:
            stored_once, which = np.unique(target, return_inverse=True)
            nearest = np.full(len(stored_once), np.inf)
            np.minimum.at(nearest, which, difference(got, wanted))
            worst = float(np.max(nearest))
            how = how if len(stored_once) == len(target) else "membership"
        # Elements to which no iteration stores are unchanged.
        stored = _index_of(case, index_names[written], np.arange(n))
        others = np.setdiff1d(positions(n, native), stored)
        worst = max(worst, error(native.peek(written, others), fresh(native, written, others)))
        return outcome(case, worst, how)

    summary = text
    for key, index in index_names.items():
        summary = summary.replace(key, f"{key}[{index + '[i]' if index in idx else index}]")
    register(
        KernelSpec(
            name=f"raider.{name}",
            summary=summary,
            source=RAIDER,
            arrays=declaration.arrays,
            indices=idx,
            traffic=traffic,
            iterations=lambda case: case.integers["elements"],
            checks=Checks(check=check, reference=reference, ulps=4.0),
            model=Model(bytes_B=lambda case: sum(from_memory(case)), transfers=transfers),
            inputs=(
                *streaming_inputs(f"raider.{name}"),
                *((PATTERN, REPEATS, index_type()) if idx else ()),
            ),
            build=_indexed,
            limits=Limits(
                (*DTYPES, *INTEGER_DTYPES), INDEX_DTYPES if idx else ("",), refuse=refuse
            ),
            counts=Counts(flops=declaration.flops),
            numbers=declaration.scalars,
        )
    )


def _iterations(case: Case, native: Native, index_name: str) -> IndexArray:
    """Return the iterations to check: all that store to sampled elements."""
    n = case.iterations
    some = positions(n, native)
    if index_name not in case.indices or len(some) == n:
        return some
    index = case.indices[index_name]
    return np.flatnonzero(np.isin(index, np.concatenate((some, index[some]))))


_OPERATIONS: dict[str, tuple[str, Operation]] = {
    "copy": ("c = a", lambda x, s: x[0]),
    "scale": ("b = s c", lambda x, s: s * x[0]),
    "add": ("c = a + b", lambda x, s: x[0] + x[1]),
    "triad": ("a = b + s c", lambda x, s: x[0] + s * x[1]),
}
# The definition, then the index arrays of the written array and of the operands: in copy and scale,
# in add and triad.
_ACCESSES = {
    "gather": (("", "i", "IDX1"), ("", "i", "i", "IDX1"), ("@release", "i", "IDX1", "IDX2")),
    "scatter": (("", "IDX1", "i"), ("", "IDX1", "i", "i")),
    "sg": (("", "IDX1", "IDX2"), ("", "IDX1", "IDX2", "IDX3")),
    "central": (("", "0", "0"), ("", "0", "0", "0")),
}


mccalpin("raider", RAIDER)
for access, ways in _ACCESSES.items():
    for name, (text, operation) in _OPERATIONS.items():
        arrays = [letter for letter in text if letter in "abc"]
        for definition, *by in ways:
            if len(by) == len(arrays):
                index_names = dict(zip(arrays, by, strict=True))
                _spec(f"{access}_{name}{definition}", text, index_names, operation)


@shows_options_of("raider.gather_triad")
def raider(
    kernel: str, elements: int | None = None, *, definition: str = "paper", **options: Any
) -> Case:
    """Case of RaiderSTREAM, such as ``triad`` or ``gather_triad``.

    Parameters
    ----------
    kernel : str
        ``copy``, ``scale``, ``add``, ``triad``, or one of these after ``gather_``, ``scatter_``,
        ``sg_`` or ``central_``.
    elements : int
        Length of each array.
    definition : str
        Definition of add and triad with indices, ``paper`` or ``release``.
    """
    return case(f"raider.{kernel}", definition=definition, elements=elements, **options)


def _of_paper(quick: bool, bytes_B: int, **options: Any) -> list[Case]:
    """Return the paper's twelve kernels with arrays of this size, or only the triads."""
    return [
        raider(f"{access}{name}", max(bytes_B // 8, 1), budget_s=0.1 if quick else 0.4, **options)
        for access in ("", "gather_", "scatter_")
        for name in (("triad",) if quick else _OPERATIONS)
    ]


def report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return the paper's twelve kernels, or only the triads."""
    return _of_paper(quick, min(2 * cache_B, memory_B // 16))


def gpu_report_cases(device: str, quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return the paper's twelve kernels on a GPU, or only the triads."""
    return _of_paper(quick, min(4 * cache_B, memory_B // 16), device=device)
