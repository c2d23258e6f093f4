"""The finite-element streaming tests BS0 to BS5; those over meshes are in `mesh`."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from memkern.families.bs import mesh
from memkern.families.bs.mesh import BS, INVOCATIONS
from memkern.inputs.sizes import sizes
from memkern.shared.elementwise import (
    ELEMENTS,
    RESULT,
    Arrays,
    dot,
    regular,
)
from memkern.shared.without_arrays import register_without_arrays
from memkern.spec.case import Case
from memkern.spec.registry import case, shows_options_of

# The verb names the length by --entries, since --elements are those of the mesh of BS6 to BS8.
_ENTRIES = ELEMENTS._replace(
    option=replace(
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


mesh.register_tests()


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
    cases = [
        bs(n, footprint_B=size, **brief) for n in range(1, 2 if quick else 6) for size in lengths
    ]
    return [bs(0, **brief), *cases, *mesh.report_cases(quick, cache_B, memory_B)]


def gpu_report_cases(device: str, quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return the empty launch and the tests BS1 to BS5 on a GPU, from its cache to its memory."""
    brief: dict[str, Any] = {"budget_s": 0.03 if quick else 0.12, "device": device}
    lengths = sizes(2**16, min(16 * cache_B, memory_B // 4), 6 if quick else 13)
    return [
        bs(0, **brief),
        *[bs(n, footprint_B=size, **brief) for n in range(1, 6) for size in lengths],
    ]
