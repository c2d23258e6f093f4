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
import numpy.typing as npt

from memkern import small
from memkern.checks import integer, number
from memkern.errors import InputError
from memkern.machine.declarations import declared
from memkern.shared.checking import WHOLE, error, exactly, extent, fresh, outcome, positions
from memkern.spec.case import Case, Checks, Counts, KernelSpec, Limits
from memkern.spec.kernel import DTYPES, INTEGER_DTYPES, Native, Traffic, Validation
from memkern.spec.options import Stop
from memkern.spec.registry import find, register

Values = npt.NDArray[Any]
Arrays = Mapping[str, Values]

_WINDOW = 4_096
# With scalars up to this, sums of squared products in float32 do not overflow.
_MOST_SCALAR = 1e9
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
    build: Callable[..., Case] | None = None,
    idle_knobs: tuple[str, ...] = (),
    dtypes: tuple[str, ...] = DTYPES,
) -> None:
    """Register a kernel whose arrays, flops and scalars the extension declares.

    `operation` maps the arrays' values, alpha and beta to the values of the written arrays;
    `combine` combines partial results of a reduction. `build`, by default `case_of`, makes cases.
    Values of integer types are computed modulo their range.
    """
    declaration = declared(name)
    arrays = [array for array in declaration.arrays if array.name != RESULT]
    read = sum(a.role != "write" for a in arrays)
    written = sum(a.role != "read" for a in arrays)
    allocated = sum(a.role == "write" for a in arrays)

    def traffic(case: Case) -> Traffic:
        size = float(case.value_B)
        stores = allocated * size if case.allocates else 0.0
        return Traffic(read=read * size, write=written * size, write_allocate=stores)

    def constants(case: Case) -> list[float]:
        return [exactly(case.numbers.get(name, 1.0), case.dtype) for name in ("alpha", "beta")]

    def reference(case: Case, arrays: Arrays) -> dict[str, Values]:
        exact: dict[str, Values] = {k: exactly(v, case.dtype) for k, v in arrays.items()}
        exact[POSITION] = np.arange(case.iterations)
        after = {key: np.array(values, copy=True) for key, values in arrays.items()}
        for key, values in operation(exact, *constants(case)).items():
            after[key][:] = values
        return after

    def values_at(case: Case, native: Native, at: npt.NDArray[np.int64]) -> dict[str, Values]:
        filled = {a.name: exactly(fresh(native, a.name, at), case.dtype) for a in arrays}
        return {POSITION: at, **filled}

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
        n = case.iterations
        zero = np.zeros(1, dtype=np.int64)
        boundaries = np.linspace(0, n, _PARTS + 1).astype(np.int64)
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
            build=build or case_of,
            counts=Counts(flops=declaration.flops, elementwise=True),
            numbers=declaration.scalars,
            limits=Limits(dtypes, idle_knobs=idle_knobs),
        )
    )


def case_of(
    kernel: str,
    *,
    elements: int | None = None,
    footprint_B: float | None = None,
    dtype: str = "float64",
    alpha: float | None = None,
    beta: float | None = None,
    runs: int | None = None,
    **options: Any,
) -> Case:
    """Build the case of one streaming kernel.

    Parameters
    ----------
    kernel : str
        Such as ``stream.triad``, ``bs.bs5`` or ``loops.daxpy``.
    elements : int
        Length of each array; by default as `memory_sized`.
    footprint_B : float
        Total bytes of all arrays, instead of `elements`.
    dtype : str
        ``float64`` or ``float32``; STREAM and RaiderSTREAM also have ``int64`` and ``int32``.
    alpha, beta : float, optional
        The kernel's scalars, if it has them; by default the spec's. Whole numbers with integers.
    runs : int, optional
        Exact number of samples; 10 by default for ``stream.rotation``.
    **options
        Fields of `memkern.Knobs` and `memkern.Stop`, and the labels `name` and `suite`.

    Raises
    ------
    InputError
        The kernel has no such scalar, or a value is out of range.
    """
    spec = find(kernel)
    elements = length(spec, elements, footprint_B, dtype, options.get("device", "cpu"))
    numbers = scalars(spec, dtype, alpha=alpha, beta=beta)
    return Case(
        spec,
        integers={"elements": elements},
        numbers=numbers,
        dtype=dtype,
        stop=Stop(runs=runs),
        columns={"elements": elements, **numbers},
    ).with_(**options)


def length(
    spec: KernelSpec,
    elements: int | None,
    footprint_B: float | None,
    dtype: str,
    device: str = "cpu",
) -> int:
    """Return the length of each array, given by `elements`, `footprint_B` or neither."""
    if elements is not None and footprint_B is not None:
        raise InputError(f"{spec.name} takes elements or footprint_B, not both")
    streams = sum(array.name != RESULT for array in spec.arrays)
    if elements is None and footprint_B is None:
        if not streams:
            return _cut(_arithmetic_sized(dtype, device))
        # Indices are copied once.
        element_B = streams * value_B(dtype) + 16 * len(spec.indices)
        return _cut(memory_sized(dtype, device, element_B))
    if footprint_B is None:
        return _cut(integer(elements, "elements", 1))
    return _cut(max(1, int(footprint(footprint_B) / (max(1, streams) * value_B(dtype)))))


def footprint(footprint_B: float) -> float:
    """Return a footprint after checking that it is a number of bytes."""
    return number(footprint_B, "footprint_B", 1, 2**62)


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
    from memkern.host.capacity import from_memory
    from memkern.machine.caches import MULTIPLE

    if l2_B := _of_gpu(device).get("l2_B"):
        return max(MULTIPLE * int(l2_B) // value_B(dtype), 10**6)
    return from_memory(value_B(dtype), max(element_B, value_B(dtype)), 10**6)


def _arithmetic_sized(dtype: str, device: str) -> int:
    """Return a number of iterations without arrays that takes much longer than a launch.

    On a GPU, 65536 for each thread of multiprocessors with 2048 threads: about a millisecond.
    """
    units = _of_gpu(device).get("units")
    return int(units) * 2048 * 2**16 if units else memory_sized(dtype)


def _of_gpu(device: str) -> dict[str, Any]:
    """Return the description of a GPU; nothing for other devices, or if there is no such GPU."""
    from memkern.machine import gpu
    from memkern.spec.options import Knobs

    try:
        knobs = Knobs(device=device)
        return gpu.facts(knobs.device) if knobs.backend.is_accelerator else {}
    except InputError:
        return {}


def scalars(spec: KernelSpec, dtype: str, **given: float | None) -> dict[str, float]:
    """Return the kernel's scalars: the given values, and defaults for the others."""
    found = dict(spec.numbers)
    for key, value in given.items():
        if value is None:
            continue
        if key not in found:
            raise InputError(f"kernel {spec.name!r} has no scalar {key}")
        found[key] = number(value, key, -_MOST_SCALAR, _MOST_SCALAR)
        if dtype in INTEGER_DTYPES and found[key] % 1:
            raise InputError(f"{key} must be a whole number with {dtype}, not {value!r}")
    return found


def dot(x: Values, y: Values) -> Any:
    """Return x . y by NumPy's pairwise sum, since ``@`` was observed to err by 3000 roundings."""
    return np.sum(x * y)


def mccalpin(family: str, source: str) -> None:
    """Register copy, scale, add and triad as STREAM has them."""
    add = functools.partial(regular, source=source, dtypes=(*DTYPES, *INTEGER_DTYPES))
    add(f"{family}.copy", "c = a", lambda v, s, t: {"c": v["a"]})
    add(f"{family}.scale", "b = s c", lambda v, s, t: {"b": s * v["c"]})
    add(f"{family}.add", "c = a + b", lambda v, s, t: {"c": v["a"] + v["b"]})
    add(f"{family}.triad", "a = b + s c", lambda v, s, t: {"a": v["b"] + s * v["c"]})
