"""The loop kernels of Alappat et al. 2021, with `update` and `nstream`.

The loops over rows and columns are in `stencil_matvec`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from memkern.families.loops.stencil_matvec import LOOPS
from memkern.inputs.sizes import sizes
from memkern.shared.elementwise import (
    POSITION,
    RESULT,
    dot,
    regular,
)
from memkern.spec.case import Case, Limits
from memkern.spec.kernel import DTYPES
from memkern.spec.registry import case, shows_options_of

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
    loads = [
        loops("load", footprint_B=size, repetition="free", **brief)
        for size in sizes(2**14, most_B, 25)
    ]
    return [*loads, *(loops("peakflops", 10**7, dtype=dtype, **brief) for dtype in DTYPES)]


def gpu_report_cases(device: str, quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return loads on a GPU from its cache to its memory, and its peak floating-point rate."""
    brief: dict[str, Any] = {"budget_s": 0.03 if quick else 0.12, "device": device}
    loads = [
        loops("load", footprint_B=size, **brief)
        for size in sizes(2**16, min(16 * cache_B, memory_B // 4), 6 if quick else 13)
    ]
    return [*loads, *(loops("peakflops", dtype=dtype, **brief) for dtype in DTYPES)]
