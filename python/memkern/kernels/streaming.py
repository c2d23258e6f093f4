"""Regular streaming: loops over arrays of one length.

``stream``
    McCalpin's STREAM: copy, scale, add and triad, with its scalar 3, each on its own or, as
    ``stream.rotation``, in turn.
``raider``
    The same four as RaiderSTREAM has them.
``bs``
    The finite-element streaming tests BS1 to BS5 of Chalmers and Warburton 2020.
``loops``
    The loop kernels of Alappat et al. 2021, with `update` and `nstream`.

Sums are accurate: blocks are summed in the type of the values by several accumulators, the
blocks' sums are added in double, the workers' in their order. A team under a static schedule
always finds the same result.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern import small
from memkern.errors import InputError
from memkern.kernels import case
from memkern.kernels.checking import WHOLE, error, extent, fresh, positions, verdict
from memkern.options import Stop
from memkern.patterns import integer, shown
from memkern.sizes import sizes
from memkern.spec import (
    DTYPES,
    ArrayRole,
    Case,
    Check,
    Invoke,
    KernelSpec,
    Native,
    Traffic,
    register,
    registry,
)

Values = npt.NDArray[Any]
Arrays = Mapping[str, Values]

STREAM = "McCalpin, STREAM: Sustainable Memory Bandwidth in High Performance Computers"
BS = "Chalmers and Warburton, Portable high-order finite element kernels I, 2020"
RAIDER = "Beebe et al., RaiderSTREAM: Adapting the STREAM Benchmark to Modern HPC Systems, 2022"
LOOPS = "Alappat et al., ECM modeling and performance tuning of SpMV and lattice QCD, 2021"

_WINDOW = 4_096
# Parts whose sums must add up to the whole's; odd, so that no worker's share is one of them.
_PARTS = 13
RESULT = "result"
# As in the paper: enough that reading the clock costs nothing.
INVOCATIONS = 20
# Where an operation finds the numbers of the elements.
POSITION = "i"


def regular(
    name: str,
    summary: str,
    source: str,
    roles: str,
    operation: Callable[[Arrays, float, float], dict[str, Any]],
    *,
    flops: float = 0.0,
    numbers: Mapping[str, float] | None = None,
    combine: Callable[[Values], Any] | None = None,
) -> None:
    """Register a kernel.

    `roles` lists the arrays in the order in which the body takes them; `operation` maps their
    values, alpha and beta to the values of those written; `combine` joins partial results of a
    reduction.
    """
    words = {"r": "read", "w": "write", "u": "update"}
    arrays = [
        ArrayRole(word.partition(":")[0], "(elements,)", words[word.partition(":")[2]])
        for word in roles.split()
    ]
    read = sum(a.role != "write" for a in arrays)
    written = sum(a.role != "read" for a in arrays)
    allocated = sum(a.role == "write" for a in arrays)
    if combine is not None:
        arrays.append(ArrayRole(RESULT, "(1,)", "write"))

    def traffic(case: Case) -> Traffic:
        size = float(np.dtype(case.dtype).itemsize)
        stores = allocated * size if case.allocates else 0.0
        return Traffic(read=read * size, write=written * size, write_allocate=stores)

    def model_bytes(case: Case) -> float:
        return traffic(case).view(write_allocate=True) * case.iterations

    def constants(case: Case) -> tuple[float, float]:
        return case.numbers.get("alpha", 1.0), case.numbers.get("beta", 1.0)

    def reference(case: Case, arrays: Arrays) -> dict[str, Values]:
        exact: dict[str, Values] = {k: v.astype(np.float64) for k, v in arrays.items()}
        exact[POSITION] = np.arange(case.iterations)
        after = {key: np.array(values, copy=True) for key, values in arrays.items()}
        for key, values in operation(exact, *constants(case)).items():
            after[key][:] = values
        return after

    def values_at(native: Native, at: npt.NDArray[np.int64]) -> dict[str, Values]:
        names = [array.name for array in arrays if array.name != RESULT]
        return {POSITION: at, **{name: fresh(native, name, at) for name in names}}

    def check(case: Case, native: Native, invoke: Invoke) -> Check:
        n = case.iterations
        at = positions(n, native)
        wanted = operation(values_at(native, at), *constants(case))
        total = wanted.pop(RESULT, None)
        native.fill(outputs=True)
        invoke()
        worst = max(
            (error(native.peek(key, at), values) for key, values in wanted.items()), default=0.0
        )
        if combine is not None:
            worst = max(worst, _check_result(case, native, total if n <= WHOLE else None))
        return verdict(case, worst, extent(n))

    def _check_result(case: Case, native: Native, total: Any) -> float:
        got = native.peek(RESULT, np.zeros(1, dtype=np.int64))
        if total is not None:
            return error(got, np.atleast_1d(total))
        # The parts' results make the whole's, and those of short windows are known.
        assert combine is not None
        n = case.iterations
        zero = np.zeros(1, dtype=np.int64)
        cuts = np.linspace(0, n, _PARTS + 1).astype(np.int64)
        native.fill(outputs=True)
        parts = []
        for begin, end in itertools.pairwise(cuts):
            native.run_range(int(begin), int(end))
            parts.append(native.peek(RESULT, zero)[0])
        worst = error(got, np.atleast_1d(combine(np.array(parts))))
        native.fill(outputs=True)
        for begin in cuts[:-1]:
            window = np.arange(begin, begin + _WINDOW)
            native.run_range(int(begin), int(begin) + _WINDOW)
            known = operation(values_at(native, window), *constants(case))[RESULT]
            worst = max(worst, error(native.peek(RESULT, zero), np.atleast_1d(known)))
        return worst

    register(
        KernelSpec(
            name=name,
            summary=summary,
            source=source,
            arrays=tuple(arrays),
            traffic=traffic,
            iterations=lambda case: case.integers["elements"],
            check=check,
            reference=reference,
            model_bytes=model_bytes,
            build=case_of,
            flops=flops,
            numbers=numbers or {},
            # An accumulator takes a thousand values, and squares of whole numbers are
            # rounded down more often than up.
            ulps=4.0 if combine is None else 128.0,
            # What reads its own result, or adds to a running sum, changes with every invocation.
            idempotent=combine is None and all(a.role != "update" for a in arrays),
            elementwise=True,
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
    name: str = "",
    suite: str = "",
    **options: Any,
) -> Case:
    """Build the case of one streaming kernel.

    Parameters
    ----------
    kernel : str
        Such as ``stream.triad``, ``bs.bs5`` or ``loops.daxpy``.
    elements : int
        Length of each array; by default four times the last-level caches (see `memory_sized`).
    footprint_B : float
        Bytes of all arrays together, in place of `elements`.
    dtype : str
        ``float64`` or ``float32``.
    alpha, beta : float, optional
        The kernel's scalars, where it has them; by default the spec's.
    runs : int, optional
        Exactly so many samples; ``stream.rotation`` takes 10 by default.
    name, suite : str
        Labels of the record.
    **options
        Fields of `memkern.options.Knobs` and `memkern.options.Stop`.

    Raises
    ------
    InputError
        The kernel has no such scalar, or a value is out of range.
    """
    spec = registry()[kernel]
    elements = length(spec, elements, footprint_B, dtype)
    numbers = scalars(spec, alpha=alpha, beta=beta)
    if kernel.startswith("bs."):
        options = {"invocations": INVOCATIONS, **options}
    return Case(
        spec,
        integers={"elements": elements},
        numbers=numbers,
        dtype=dtype,
        stop=Stop(runs=runs),
        columns={"elements": elements, **numbers},
        labels={"name": name, "suite": suite},
    ).with_(**options)


def length(spec: KernelSpec, elements: int | None, footprint_B: float | None, dtype: str) -> int:
    """Return the arrays' length from one of the two ways to say it."""
    if elements is not None and footprint_B is not None:
        raise InputError(f"{spec.name} takes elements or footprint_B, not both")
    if footprint_B is None:
        return _cut(memory_sized(dtype) if elements is None else integer(elements, "elements", 1))
    if not isinstance(footprint_B, Real) or not 0 < footprint_B < 2**62:
        raise InputError(
            f"footprint_B must be a positive number of bytes, not {shown(footprint_B)}"
        )
    streams = sum(array.name != RESULT for array in spec.arrays)
    size = 4 if dtype == "float32" else 8
    return _cut(max(1, int(footprint_B / (max(1, streams) * size))))


def _cut(elements: int) -> int:
    """Cut a length where cases are to be small; lengths that differ by a factor still do."""
    return small.cut(elements, 2**14 + elements.bit_length())


def memory_sized(dtype: str) -> int:
    """Elements by STREAM's rule: each array four times the last-level caches, or a million."""
    from memkern.machine import last_level_cache_B

    return max(4 * last_level_cache_B() // (4 if dtype == "float32" else 8), 10**6)


def scalars(spec: KernelSpec, **given: float | None) -> dict[str, float]:
    """Return the kernel's scalars, with what is given in place of the defaults."""
    found = dict(spec.numbers)
    for key, value in given.items():
        if value is None:
            continue
        if key not in found:
            raise InputError(f"kernel {spec.name!r} has no scalar {key}")
        if not isinstance(value, Real) or not np.isfinite(value):
            raise InputError(f"{key} must be a finite number, not {shown(value)}")
        found[key] = float(value)
    return found


def _dot(x: Values, y: Values) -> Any:
    """Return x . y by NumPy's pairwise sum: its ``@`` was seen to be off by 3000 roundings."""
    return np.sum(x * y)


_Q = {"alpha": 3.0}

for _family, _source in (("stream", STREAM), ("raider", RAIDER)):
    regular(f"{_family}.copy", "c = a", _source, "c:w a:r", lambda v, s, t: {"c": v["a"]})
    regular(
        *(f"{_family}.scale", "b = s c", _source, "b:w c:r"),
        lambda v, s, t: {"b": s * v["c"]},
        flops=1,
        numbers=_Q,
    )
    regular(
        *(f"{_family}.add", "c = a + b", _source, "c:w a:r b:r"),
        lambda v, s, t: {"c": v["a"] + v["b"]},
        flops=1,
    )
    regular(
        *(f"{_family}.triad", "a = b + s c", _source, "a:w b:r c:r"),
        lambda v, s, t: {"a": v["b"] + s * v["c"]},
        flops=2,
        numbers=_Q,
    )

regular("bs.bs1", "y = x", BS, "y:w x:r", lambda v, s, t: {"y": v["x"]})
regular(
    *("bs.bs2", "y = s x + t y", BS, "y:u x:r"),
    lambda v, s, t: {"y": s * v["x"] + t * v["y"]},
    flops=3,
    # Two invocations with t = -1 give y back, so that it stays bounded.
    numbers={"alpha": 3.0, "beta": -1.0},
)
regular(
    *("bs.bs3", "x . x", BS, "x:r"),
    lambda v, s, t: {RESULT: _dot(v["x"], v["x"])},
    flops=2,
    combine=np.sum,
)
regular(
    *("bs.bs4", "x . y", BS, "x:r y:r"),
    lambda v, s, t: {RESULT: _dot(v["x"], v["y"])},
    flops=2,
    combine=np.sum,
)


def _cg_update(v: Arrays, s: float, _: float) -> dict[str, Any]:
    r = v["r"] - s * v["Ap"]
    return {"x": v["x"] + s * v["p"], "r": r, RESULT: _dot(r, r)}


regular(
    *("bs.bs5", "x += s p; r -= s Ap; r . r", BS, "x:u r:u p:r Ap:r"),
    _cg_update,
    flops=6,
    numbers={"alpha": 0.5},
    combine=np.sum,
)

# The released code leaves x out.
regular(
    *("bs.bs5@release", "r -= s Ap; r . r", BS, "r:u Ap:r"),
    lambda v, s, t: {"r": (r := v["r"] - s * v["Ap"]), RESULT: _dot(r, r)},
    flops=4,
    numbers={"alpha": 0.5},
    combine=np.sum,
)

regular(
    *("loops.load", "largest of a", LOOPS, "a:r"),
    lambda v, s, t: {RESULT: np.max(v["a"])},
    combine=np.max,
)
regular(
    *("loops.load4", "largest of a, b, c and d", LOOPS, "a:r b:r c:r d:r"),
    lambda v, s, t: {RESULT: max(np.max(v[name]) for name in "abcd")},
    combine=np.max,
)
regular(
    *("loops.sum", "sum of a", LOOPS, "a:r"),
    lambda v, s, t: {RESULT: np.sum(v["a"])},
    flops=1,
    combine=np.sum,
)
regular(
    *("loops.dot", "a . b", LOOPS, "a:r b:r"),
    lambda v, s, t: {RESULT: _dot(v["a"], v["b"])},
    flops=2,
    combine=np.sum,
)
regular(
    *("loops.init", "a = s", LOOPS, "a:w"),
    lambda v, s, t: {"a": np.full(len(v["a"]), s)},
    numbers=_Q,
)
regular(
    *("loops.init4", "a = b = c = d = s", LOOPS, "a:w b:w c:w d:w"),
    lambda v, s, t: {name: np.full(len(v["a"]), s) for name in "abcd"},
    numbers=_Q,
)
regular("loops.copy", "a = b", LOOPS, "a:w b:r", lambda v, s, t: {"a": v["b"]})
regular(
    *("loops.update", "a = s a", LOOPS, "a:u"),
    lambda v, s, t: {"a": s * v["a"]},
    flops=1,
    numbers={"alpha": -1.0},
)
regular(
    *("loops.daxpy", "a += s b", LOOPS, "a:u b:r"),
    lambda v, s, t: {"a": v["a"] + s * v["b"]},
    flops=2,
    numbers=_Q,
)
regular(
    *("loops.triad", "a = b + s c", LOOPS, "a:w b:r c:r"),
    lambda v, s, t: {"a": v["b"] + s * v["c"]},
    flops=2,
    numbers=_Q,
)
regular(
    *("loops.nstream", "a += b + s c", LOOPS, "a:u b:r c:r"),
    lambda v, s, t: {"a": v["a"] + v["b"] + s * v["c"]},
    flops=3,
    numbers=_Q,
)
regular(
    *("loops.schoenauer", "a = b + c d", LOOPS, "a:w b:r c:r d:r"),
    lambda v, s, t: {"a": v["b"] + v["c"] * v["d"]},
    flops=2,
)


# Every element adds one to an accumulator, by a multiplication with one and an addition of one.
regular(
    *("loops.peakflops", "x = 1 x + 1, in registers", LOOPS, ""),
    lambda v, s, t: {RESULT: float(len(v[POSITION]))},
    flops=2,
    combine=np.sum,
)


# STREAM copies, scales, adds and multiplies in turn, so that every pass grows a fifteenfold.
_ROTATION = ("stream.copy", "stream.scale", "stream.add", "stream.triad")
_RUNS = 10


def _rotate(v: Arrays, s: float) -> dict[str, Any]:
    c = v["a"]
    b = s * c
    c = v["a"] + b
    return {"a": b + s * c, "b": b, "c": c}


def _check_rotation(case: Case, native: Native, invoke: Invoke) -> Check:
    n = case.iterations
    at = positions(n, native)
    values = {name: fresh(native, name, at) for name in "abc"}
    native.fill(outputs=True)
    for _ in range(invoke()):
        values = _rotate(values, case.numbers["alpha"])
    # STREAM's own rule: the average error of each array over its average value.
    worst = 0.0
    for name, wanted in values.items():
        off = np.abs(native.peek(name, at) - wanted)
        worst = max(worst, float(np.mean(np.where(np.isnan(off), np.inf, off)) / np.mean(wanted)))
    return Check(worst <= _STREAM_ERROR[case.dtype], worst, extent(n))


_STREAM_ERROR = {"float64": 1e-13, "float32": 1e-6}


@functools.wraps(case_of)  # whose options it takes
def _rotation_case(kernel: str, *, runs: int | None = None, **options: Any) -> Case:
    runs = _RUNS if runs is None else runs
    return case_of(kernel, runs=runs, invocations=1, **options)


register(
    KernelSpec(
        name="stream.rotation",
        summary="copy, scale, add and triad in turn over the same arrays",
        source=STREAM,
        arrays=(
            ArrayRole("a", "(elements,)", "update"),
            ArrayRole("b", "(elements,)", "write"),
            ArrayRole("c", "(elements,)", "write"),
        ),
        traffic=lambda case: sum(
            (registry()[name].traffic(case) for name in _ROTATION), start=Traffic()
        ),
        iterations=lambda case: case.integers["elements"],
        check=_check_rotation,
        reference=lambda case, arrays: {
            name: values.astype(case.dtype)
            for name, values in _rotate(arrays, case.numbers["alpha"]).items()
        },
        model_bytes=lambda case: sum(registry()[name].model_bytes(case) for name in _ROTATION),
        build=_rotation_case,
        flops=4,
        numbers=_Q,
        ulps=4.0,
        idempotent=False,
        repeatable_check=True,
        most_runs={"float64": 200, "float32": 10},
    )
)


def stream(kernel: str = "rotation", elements: int | None = None, **options: Any) -> Case:
    """Case of one of STREAM's kernels, or of all in turn; parameters as for `case_of`."""
    return case(f"stream.{kernel}", elements=elements, **options)


def bs(number: int, **options: Any) -> Case:
    """Case of a finite-element streaming test BS0 to BS8.

    Parameters
    ----------
    number : int
        0 to 8. BS1 to BS5 take `elements` or `footprint_B` as in `case_of`; BS6 to BS8 take
        `elements` and `degree` of a mesh as in `memkern.kernels.mesh`.
    **options
        See there.
    """
    return case(f"bs.bs{number}", **options)


def loops(kernel: str, elements: int | None = None, **options: Any) -> Case:
    """Case of a loop kernel of the ECM studies; parameters as for `case_of`."""
    return case(f"loops.{kernel}", elements=elements, **options)


def report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return loops at every size, STREAM at memory's, and the tests BS0 to BS5."""
    most_B = min(4 * cache_B, memory_B // 2)
    brief: dict[str, Any] = {"budget_s": 0.03 if quick else 0.12}
    cases = [
        case(kernel, footprint_B=size, repetition="free", **brief)
        for kernel in ("stream.copy", "stream.triad", "loops.load")[: 2 if quick else 3]
        for size in sizes(2**14, most_B, 8 if quick else 25)
    ]
    steady: dict[str, Any] = {"budget_s": 0.1 if quick else 0.5, "footprint_B": 3 * most_B // 2}
    cases += [
        stream(kernel, variant=variant, **steady)
        for kernel in (("copy", "triad") if quick else ("copy", "scale", "add", "triad"))
        for variant in ("best", "auto")
    ]
    # On both sides of the caches as many sizes as a line needs.
    beyond = sizes(min(2 * cache_B, most_B), min(8 * cache_B, memory_B // 2), 5)
    lengths = [*sizes(2**16, cache_B // 2, 7), *beyond]
    cases += [
        bs(n, footprint_B=size, **brief) for n in range(1, 2 if quick else 6) for size in lengths
    ]
    if not quick:
        cases += [loops("peakflops", 10**7, dtype=dtype, **brief) for dtype in DTYPES]
    return [bs(0, **brief), *cases]
