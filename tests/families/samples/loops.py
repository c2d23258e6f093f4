"""Cases of the loop kernels."""

from typing import Any

from shapes import built, streaming_samples

# Narrow, square and long two-dimensional arrays.
PLANE_SHAPES: list[dict[str, Any]] = [
    {"rows": 3, "columns": 3},
    {"rows": 40, "columns": 37, "chunk": 7},
    {"rows": 301, "columns": 5, "prefetch": 64, "offset": 16},
    {"rows": 5, "columns": 517, "repetition": "barrier"},
    {"elements": 4000},
    {"footprint_B": 5e4},
]
FORMULAS = ("loops.stencil", "loops.matvec")
SAMPLES = {
    **streaming_samples("loops"),
    **{name: [built(name, **shape) for shape in PLANE_SHAPES] for name in FORMULAS},
}
SECTORS = ("loops.stencil",)
PER_ELEMENT = {
    **{"loops.load": (8, 0), "loops.load4": (32, 0), "loops.sum": (8, 1), "loops.dot": (16, 2)},
    **{"loops.init": (8, 0), "loops.init4": (32, 0), "loops.copy": (16, 0)},
    **{"loops.update": (16, 1), "loops.daxpy": (24, 2), "loops.triad": (24, 2)},
    **{"loops.nstream": (32, 3), "loops.schoenauer": (32, 2), "loops.peakflops": (0, 2)},
}


# The best unrollings in table 3 of the paper that only some loops have.
PUBLISHED = {
    **{"loops.copy": {13}, "loops.init": {7, 13}, "loops.triad": {11}, "loops.load": {10}},
    **{"loops.sum": {9, 11, 15}, "loops.schoenauer": {14}, "loops.stencil": {7, 9, 10}},
}


def unrolls(kernel: str, variant: str) -> set[int]:
    """Return the unrolling factors of the paper."""
    if variant != "simd":
        return {0}
    return {0, 1, 2, 3, 4, 6, 8, 12, 16} | PUBLISHED.get(kernel, set())
