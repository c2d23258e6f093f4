"""The loop kernels of Alappat et al. 2021, with `update` and `nstream`.

Those over rows and columns stand in `stencil_matvec`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from memkern.families.loops.stencil_matvec import LOOPS
from memkern.families.streaming.elementwise import (
    POSITION,
    RESULT,
    THREE,
    dot,
    regular,
)
from memkern.inputs.sizes import sizes
from memkern.spec.case import Case
from memkern.spec.kernel import DTYPES
from memkern.spec.registry import case

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
    lambda v, s, t: {RESULT: dot(v["a"], v["b"])},
    flops=2,
    combine=np.sum,
)
regular(
    *("loops.init", "a = s", LOOPS, "a:w"),
    lambda v, s, t: {"a": np.full(len(v["a"]), s)},
    numbers=THREE,
)
regular(
    *("loops.init4", "a = b = c = d = s", LOOPS, "a:w b:w c:w d:w"),
    lambda v, s, t: {name: np.full(len(v["a"]), s) for name in "abcd"},
    numbers=THREE,
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
    numbers=THREE,
)
regular(
    *("loops.triad", "a = b + s c", LOOPS, "a:w b:r c:r"),
    lambda v, s, t: {"a": v["b"] + s * v["c"]},
    flops=2,
    numbers=THREE,
)
regular(
    *("loops.nstream", "a += b + s c", LOOPS, "a:u b:r c:r"),
    lambda v, s, t: {"a": v["a"] + v["b"] + s * v["c"]},
    flops=3,
    numbers=THREE,
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


def loops(kernel: str, elements: int | None = None, **options: Any) -> Case:
    """Case of a loop kernel of the ECM studies; parameters as for `case_of`."""
    return case(f"loops.{kernel}", elements=elements, **options)


def report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return loads at every size, and the peak of floating-point operations."""
    if quick:
        return []
    brief: dict[str, Any] = {"budget_s": 0.12}
    loads = [
        loops("load", footprint_B=size, repetition="free", **brief)
        for size in sizes(2**14, min(4 * cache_B, memory_B // 2), 25)
    ]
    return [*loads, *(loops("peakflops", 10**7, dtype=dtype, **brief) for dtype in DTYPES)]
