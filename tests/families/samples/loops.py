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


def unrolls(kernel: str, variant: str) -> set[int]:
    """Return the unrolling factors of the paper."""
    return {*range(17)} if variant == "simd" else {0}
