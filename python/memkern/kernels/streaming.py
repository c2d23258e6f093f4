"""Regular streaming: loops over arrays of one length.

``stream``
    McCalpin's STREAM: copy, scale, add and triad, with its scalar 3.
``bs``
    The finite-element streaming tests BS1 to BS5 of Chalmers and Warburton 2020.
``loops``
    The loop kernels of Alappat et al. 2021, with `update` and `nstream`.

Sums are accurate: blocks are summed in the type of the values by several accumulators, the
blocks' sums are added in double, the workers' in their order. A team under a static schedule
always finds the same result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError
from memkern.patterns import integer
from memkern.spec import (
    ArrayRole,
    Case,
    Check,
    Invoke,
    KernelSpec,
    Native,
    Traffic,
    fill_values,
    register,
    registry,
)

Values = npt.NDArray[Any]
Arrays = Mapping[str, Values]

STREAM = "McCalpin, STREAM: Sustainable Memory Bandwidth in High Performance Computers"
BS = "Chalmers and Warburton, Portable high-order finite element kernels I, 2020"
LOOPS = "Alappat et al., ECM modeling and performance tuning of SpMV and lattice QCD, 2021"

# Elements up to which a case is checked whole.
_WHOLE = 2**20
_SAMPLES = 4_000
_WINDOW = 4_096
# Parts whose sums must add up to the whole's; odd, so that no worker's share is one of them.
_PARTS = 13
RESULT = "result"
FAMILIES = ("stream", "bs", "loops")


def _spec(
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
        stores = 0.0 if case.knobs.variant == "nt" else allocated * size
        return Traffic(read=read * size, write=written * size, write_allocate=stores)

    def model_bytes(case: Case) -> float:
        return traffic(case).view(write_allocate=True) * case.iterations

    def constants(case: Case) -> tuple[float, float]:
        return case.numbers.get("alpha", 1.0), case.numbers.get("beta", 1.0)

    def reference(case: Case, arrays: Arrays) -> dict[str, Values]:
        exact = {key: values.astype(np.float64) for key, values in arrays.items()}
        after = {key: np.array(values, copy=True) for key, values in arrays.items()}
        for key, values in operation(exact, *constants(case)).items():
            after[key][:] = values
        return after

    def fresh(native: Native, positions: npt.NDArray[np.int64]) -> dict[str, Values]:
        return {
            key: fill_values(positions, array)
            for key, array in native.arrays().items()
            if key != RESULT
        }

    def check(case: Case, native: Native, invoke: Invoke) -> Check:
        rng = np.random.default_rng(0)
        n = case.iterations
        whole = n <= _WHOLE
        seams = np.linspace(0, n - 1, 4 * native.obtained()["threads"] + 1).astype(np.int64)
        near = np.clip(seams[:, None] + np.arange(-2, 3), 0, n - 1).ravel()
        positions = np.arange(n) if whole else np.unique([*near, *rng.integers(0, n, _SAMPLES)])
        wanted = operation(fresh(native, positions), *constants(case))
        total = wanted.pop(RESULT, None)
        native.fill(outputs=True)
        invoke()
        error = max(
            (_error(native.peek(key, positions), values) for key, values in wanted.items()),
            default=0.0,
        )
        if combine is not None:
            error = max(error, _check_result(case, native, None if not whole else total))
        limit = case.spec.ulps * float(np.finfo(case.dtype).eps)
        return Check(error <= limit, error, "whole" if whole else "sampled")

    def _check_result(case: Case, native: Native, total: Any) -> float:
        got = native.peek(RESULT, np.zeros(1, dtype=np.int64))
        if total is not None:
            return _error(got, np.atleast_1d(total))
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
        error = _error(got, np.atleast_1d(combine(np.array(parts))))
        native.fill(outputs=True)
        for begin in cuts[:-1]:
            window = np.arange(begin, begin + _WINDOW)
            native.run_range(int(begin), int(begin) + _WINDOW)
            known = operation(fresh(native, window), *constants(case))[RESULT]
            error = max(error, _error(native.peek(RESULT, zero), np.atleast_1d(known)))
        return error

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
            flops=flops,
            numbers=numbers or {},
            # An accumulator takes a thousand values, and squares of whole numbers are
            # rounded down more often than up.
            ulps=4.0 if combine is None else 128.0,
            # What reads its own result, or adds to a running sum, changes with every invocation.
            idempotent=combine is None and all(a.role != "update" for a in arrays),
        )
    )


def _error(got: Values, wanted: Values) -> float:
    """Return the largest difference over the largest value; infinite where one is NaN."""
    difference = np.abs(np.asarray(got, dtype=np.float64) - wanted)
    if np.isnan(difference).any():
        return float("inf")
    scale = max(float(np.max(np.abs(wanted))), 1.0)
    return float(np.max(difference)) / scale


def _dot(x: Values, y: Values) -> Any:
    """Return x . y by NumPy's pairwise sum: its ``@`` was seen to be off by 3000 roundings."""
    return np.sum(x * y)


_Q = {"alpha": 3.0}

_spec("stream.copy", "c = a", STREAM, "c:w a:r", lambda v, s, t: {"c": v["a"]})
_spec(
    *("stream.scale", "b = s c", STREAM, "b:w c:r"),
    lambda v, s, t: {"b": s * v["c"]},
    flops=1,
    numbers=_Q,
)
_spec(
    *("stream.add", "c = a + b", STREAM, "c:w a:r b:r"),
    lambda v, s, t: {"c": v["a"] + v["b"]},
    flops=1,
)
_spec(
    *("stream.triad", "a = b + s c", STREAM, "a:w b:r c:r"),
    lambda v, s, t: {"a": v["b"] + s * v["c"]},
    flops=2,
    numbers=_Q,
)

_spec("bs.bs1", "y = x", BS, "y:w x:r", lambda v, s, t: {"y": v["x"]})
_spec(
    *("bs.bs2", "y = s x + t y", BS, "y:u x:r"),
    lambda v, s, t: {"y": s * v["x"] + t * v["y"]},
    flops=3,
    # Two invocations with t = -1 give y back, so that it stays bounded.
    numbers={"alpha": 3.0, "beta": -1.0},
)
_spec(
    *("bs.bs3", "x . x", BS, "x:r"),
    lambda v, s, t: {RESULT: _dot(v["x"], v["x"])},
    flops=2,
    combine=np.sum,
)
_spec(
    *("bs.bs4", "x . y", BS, "x:r y:r"),
    lambda v, s, t: {RESULT: _dot(v["x"], v["y"])},
    flops=2,
    combine=np.sum,
)


def _cg_update(v: Arrays, s: float, _: float) -> dict[str, Any]:
    r = v["r"] - s * v["Ap"]
    return {"x": v["x"] + s * v["p"], "r": r, RESULT: _dot(r, r)}


_spec(
    *("bs.bs5", "x += s p; r -= s Ap; r . r", BS, "x:u r:u p:r Ap:r"),
    _cg_update,
    flops=6,
    numbers={"alpha": 0.5},
    combine=np.sum,
)

_spec(
    *("loops.load", "largest of a", LOOPS, "a:r"),
    lambda v, s, t: {RESULT: np.max(v["a"])},
    combine=np.max,
)
_spec(
    *("loops.sum", "sum of a", LOOPS, "a:r"),
    lambda v, s, t: {RESULT: np.sum(v["a"])},
    flops=1,
    combine=np.sum,
)
_spec(
    *("loops.dot", "a . b", LOOPS, "a:r b:r"),
    lambda v, s, t: {RESULT: _dot(v["a"], v["b"])},
    flops=2,
    combine=np.sum,
)
_spec(
    *("loops.init", "a = s", LOOPS, "a:w"),
    lambda v, s, t: {"a": np.full(len(v["a"]), s)},
    numbers=_Q,
)
_spec("loops.copy", "a = b", LOOPS, "a:w b:r", lambda v, s, t: {"a": v["b"]})
_spec(
    *("loops.update", "a = s a", LOOPS, "a:u"),
    lambda v, s, t: {"a": s * v["a"]},
    flops=1,
    numbers={"alpha": -1.0},
)
_spec(
    *("loops.daxpy", "a += s b", LOOPS, "a:u b:r"),
    lambda v, s, t: {"a": v["a"] + s * v["b"]},
    flops=2,
    numbers=_Q,
)
_spec(
    *("loops.triad", "a = b + s c", LOOPS, "a:w b:r c:r"),
    lambda v, s, t: {"a": v["b"] + s * v["c"]},
    flops=2,
    numbers=_Q,
)
_spec(
    *("loops.nstream", "a += b + s c", LOOPS, "a:u b:r c:r"),
    lambda v, s, t: {"a": v["a"] + v["b"] + s * v["c"]},
    flops=3,
    numbers=_Q,
)
_spec(
    *("loops.schoenauer", "a = b + c d", LOOPS, "a:w b:r c:r d:r"),
    lambda v, s, t: {"a": v["b"] + v["c"] * v["d"]},
    flops=2,
)


def case(
    kernel: str,
    *,
    elements: int,
    dtype: str = "float64",
    alpha: float | None = None,
    beta: float | None = None,
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
        Length of each array.
    dtype : str
        ``float64`` or ``float32``.
    alpha, beta : float, optional
        The kernel's scalars, where it has them; by default the spec's.
    name, suite : str
        Labels of the record.
    **options
        Fields of `memkern.spec.Knobs` and `memkern.spec.Stop`.

    Raises
    ------
    InputError
        The kernel is unknown or has no such scalar, or a value is out of range.
    """
    kernels = {k: s for k, s in registry().items() if k.partition(".")[0] in FAMILIES}
    if kernel not in kernels:
        raise InputError(f"kernel {kernel!r} is not one of {', '.join(kernels)}")
    spec = kernels[kernel]
    numbers = dict(spec.numbers)
    for key, value in (("alpha", alpha), ("beta", beta)):
        if value is None:
            continue
        if key not in numbers:
            raise InputError(f"kernel {kernel!r} has no scalar {key}")
        if not np.isfinite(value):
            raise InputError(f"{key} must be finite, not {value}")
        numbers[key] = float(value)
    elements = integer(elements, "elements", 1)
    return Case(
        spec,
        integers={"elements": elements},
        numbers=numbers,
        dtype=dtype,
        columns={"elements": elements, **numbers},
        labels={"name": name, "suite": suite},
    ).with_(**options)


def stream(kernel: str, elements: int, **options: Any) -> Case:
    """Case of STREAM's copy, scale, add or triad; parameters as for `case`."""
    return case(f"stream.{kernel}", elements=elements, **options)


def bs(number: int, elements: int, **options: Any) -> Case:
    """Case of the streaming test BS1 to BS5; parameters as for `case`."""
    return case(f"bs.bs{number}", elements=elements, **options)


def loops(kernel: str, elements: int, **options: Any) -> Case:
    """Case of a loop kernel of the ECM studies; parameters as for `case`."""
    return case(f"loops.{kernel}", elements=elements, **options)
