"""Streaming kernels in which each iteration processes one element of every array.

Sums are accurate: several accumulators sum each block in the type of the values, the sums of blocks
are added in double precision, and the sums of workers are added in order. With a static schedule
and a fixed number of workers the result is reproducible.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from memkern import small
from memkern.errors import InputError
from memkern.host.capacity import from_memory
from memkern.inputs.sizes import parse_sizes
from memkern.machine import gpu
from memkern.machine.caches import MULTIPLE
from memkern.machine.declarations import declared
from memkern.shared.checking import WHOLE, Values, error, exactly, extent, fresh, outcome, positions
from memkern.spec.case import Case, Checks, Counts, KernelSpec, Limits
from memkern.spec.inputs import Given, row, scalar
from memkern.spec.kernel import DTYPES, INTEGER_DTYPES, IndexArray, Native, Traffic, Validation
from memkern.spec.options import Declared, Knobs
from memkern.spec.registry import register

Arrays = Mapping[str, Values]

_WINDOW = 4_096
# Number of parts whose sums must add up to the total; odd, so that the parts differ from the
# workers' shares.
_PARTS = 13
RESULT = "result"
# Key of the elements' indices among an operation's arrays.
POSITION = "i"


def regular(
    name: str,
    summary: str,
    operation: Callable[[Arrays, float, float], dict[str, Any]],
    *,
    source: str,
    combine: Callable[[Values], Any] | None = None,
    elements: Declared | None = None,
    usual: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
) -> None:
    """Register a kernel whose arrays, flops and scalars the extension declares.

    `operation` maps the arrays' values, alpha and beta to the values of the written arrays;
    `combine` combines partial results of a reduction; `elements` declares the length, by default
    `ELEMENTS`; `usual` and `limits` are as in `KernelSpec`. Values of integer types are computed
    modulo their range.
    """
    declaration = declared(name)
    arrays = [array for array in declaration.arrays if array.name != RESULT]
    read = sum(a.role != "write" for a in arrays)
    written = sum(a.role != "read" for a in arrays)
    allocated = sum(a.role == "write" for a in arrays)

    def traffic(case: Case) -> Traffic:
        size = float(case.value_B)
        return Traffic(
            read=read * size,
            write=written * size,
            write_allocate=allocated * size if case.allocates else 0.0,
        )

    def constants(case: Case) -> list[float]:
        return [exactly(case.numbers.get(name, 1.0), case.dtype) for name in ("alpha", "beta")]

    def reference(case: Case, arrays: Arrays) -> dict[str, Values]:
        exact: dict[str, Values] = {k: exactly(v, case.dtype) for k, v in arrays.items()}
        exact[POSITION] = np.arange(case.iterations)
        after = {key: np.array(values, copy=True) for key, values in arrays.items()}
        for key, values in operation(exact, *constants(case)).items():
            after[key][:] = values
        return after

    def values_at(case: Case, native: Native, at: IndexArray) -> dict[str, Values]:
        return {
            POSITION: at,
            **{a.name: exactly(fresh(native, a.name, at), case.dtype) for a in arrays},
        }

    def check(case: Case, native: Native) -> Validation:
        n = case.iterations
        at = positions(n, native)
        wanted = operation(values_at(case, native, at), *constants(case))
        total = wanted.pop(RESULT, None)
        native.fill(outputs=True)
        yield
        worst = max(
            (error(native.peek(key, at), values) for key, values in wanted.items()), default=0.0
        )
        if combine is not None:
            worst = max(worst, _check_result(case, native, total if n <= WHOLE else None))
        return outcome(case, worst, extent(n))

    def _check_result(case: Case, native: Native, total: Any) -> float:
        got = native.peek(RESULT, np.zeros(1, dtype=np.int64))
        if total is not None:
            return error(got, np.atleast_1d(total))
        # Combined results of parts are compared with the total, short windows with `operation`.
        assert combine is not None
        zero = np.zeros(1, dtype=np.int64)
        boundaries = np.linspace(0, case.iterations, _PARTS + 1).astype(np.int64)
        native.fill(outputs=True)
        parts = []
        for begin, end in itertools.pairwise(boundaries):
            native.run_range(int(begin), int(end))
            parts.append(native.peek(RESULT, zero)[0])
        worst = error(got, np.atleast_1d(combine(np.array(parts))))
        native.fill(outputs=True)
        for begin in boundaries[:-1]:
            window = np.arange(begin, begin + _WINDOW)
            native.run_range(int(begin), int(begin) + _WINDOW)
            known = operation(values_at(case, native, window), *constants(case))[RESULT]
            worst = max(worst, error(native.peek(RESULT, zero), np.atleast_1d(known)))
        return worst

    register(
        KernelSpec(
            name=name,
            summary=summary,
            source=source,
            arrays=declaration.arrays,
            traffic=traffic,
            iterations=lambda case: case.integers["elements"],
            checks=Checks(
                check=check,
                reference=reference,
                # An accumulator sums a thousand values, and squares of integers are rounded down
                # more often than up.
                ulps=4.0 if combine is None else 128.0,
                # If a kernel updates an array or a running sum, the results of invocations differ.
                idempotent=combine is None and all(a.role != "update" for a in arrays),
            ),
            inputs=streaming_inputs(name, elements or ELEMENTS),
            build=case_of,
            usual=usual or {},
            counts=Counts(flops=declaration.flops, elementwise=True),
            numbers=declaration.scalars,
            limits=limits or Limits(),
        )
    )


def case_of(given: Given) -> Case:
    """Return the case of a kernel whose arrays have one length."""
    elements = length(given)
    return given.case(integers={"elements": elements}, columns={"elements": elements})


def length(given: Given) -> int:
    """Return the length of each array, by the inputs `ELEMENTS`, `FOOTPRINT` or neither."""
    spec, dtype, device = given.spec, given.dtype, given.option("device")
    streams = sum(array.name != RESULT for array in spec.arrays)
    if given.elements is not None:
        return _cut(given.elements)
    if given.footprint_B is not None:
        return _cut(max(1, int(given.footprint_B / (max(1, streams) * value_B(dtype)))))
    if not streams:
        # On a GPU, 65536 iterations of each of the 2048 threads of a multiprocessor take about a
        # millisecond, much longer than a launch.
        return _cut(int(_of_gpu(device).get("units", 0)) * 2048 * 2**16 or memory_sized(dtype))
    # Indices are copied once.
    return _cut(memory_sized(dtype, device, streams * value_B(dtype) + 16 * len(spec.indices)))


ELEMENTS = row(
    "elements",
    None,
    "length of each array (four times the last-level caches, at least a million)",
    least=1,
    short="-n",
    metavar="N",
    meaning="Length of each array; by default as `memkern.shared.elementwise.memory_sized`.",
)
FOOTPRINT = row(
    "footprint_B",
    None,
    "total bytes of all arrays, log-spaced, such as 16KiB:1GiB:400; or a list",
    low=1,
    high=2**62,
    excludes=("elements",),
    flag="sizes",
    parse=parse_sizes,
    metavar="LOW:HIGH:COUNT",
    column="-",
    meaning="Total bytes of all arrays, instead of `elements`.",
)
PATTERN = row(
    "pattern",
    "permutation",
    "order of the indices: permutation, stride1, stride:N, chase, central, zipf:EXPONENT, "
    "hot:ACCESSES:ELEMENTS, or a file",
    type="indices.IndicesLike",
    metavar="PATTERN",
    column="-",
    meaning="``permutation``, ``stride1``, ``stride:N``, ``chase``, ``central``, "
    "``zipf:EXPONENT``, ``hot:ACCESSES:ELEMENTS``, a file, or the indices themselves, shape "
    "(elements,). Where a kernel has several index arrays, they are drawn with different seeds.",
)
REPEATS = row(
    "repeats",
    False,
    "allow repeated indices in a file",
    flag="allow_repeats",
    column="-",
    meaning="Whether given indices may have duplicates.",
)
SCALARS = {
    name: scalar(
        name,
        help,
        f"The kernel's {help.partition(' of')[0]}, 3 by default. A whole number with integers.",
    )
    for name, help in (("alpha", "scalar of the kernel"), ("beta", "second scalar of the kernel"))
}


def streaming_inputs(kernel: str, elements: Declared = ELEMENTS) -> tuple[Declared, ...]:
    """Return the inputs of a kernel whose arrays have one length: length, size and scalars."""
    return (elements, FOOTPRINT, *(SCALARS[name] for name in declared(kernel).scalars))


def value_B(dtype: str) -> int:
    """Return the bytes of a value; 8 for unknown types, which the case refuses later."""
    return 4 if dtype.endswith("32") else 8


def _cut(elements: int) -> int:
    """Reduce a length if cases are to be small; lengths that differ by a factor stay different."""
    return small.cut(elements, 2**14 + elements.bit_length())


def memory_sized(dtype: str, device: str = "cpu", element_B: float = 0) -> int:
    """Return STREAM's length: each array four times the last-level caches, at least a million.

    It is shorter if memory can't hold all arrays, which together need `element_B` per element.
    """
    if l2_B := _of_gpu(device).get("l2_B"):
        return max(MULTIPLE * int(l2_B) // value_B(dtype), 10**6)
    return from_memory(value_B(dtype), max(element_B, value_B(dtype)), 10**6)


def _of_gpu(device: str) -> dict[str, Any]:
    """Return the description of a GPU; nothing for other devices, or if there is no such GPU."""
    try:
        knobs = Knobs(device=device)
        return gpu.facts(knobs.device) if knobs.backend.is_accelerator else {}
    except InputError:
        return {}


def dot(x: Values, y: Values) -> Any:
    """Return x . y by NumPy's pairwise sum, since ``@`` was observed to err by 3000 roundings."""
    return np.sum(x * y)


def mccalpin(family: str, source: str) -> None:
    """Register copy, scale, add and triad as STREAM has them."""
    add = functools.partial(regular, source=source, limits=Limits((*DTYPES, *INTEGER_DTYPES)))
    add(f"{family}.copy", "c = a", lambda v, s, t: {"c": v["a"]})
    add(f"{family}.scale", "b = s c", lambda v, s, t: {"b": s * v["c"]})
    add(f"{family}.add", "c = a + b", lambda v, s, t: {"c": v["a"] + v["b"]})
    add(f"{family}.triad", "a = b + s c", lambda v, s, t: {"a": v["b"] + s * v["c"]})
