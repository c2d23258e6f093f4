"""Cases of gather and scatter."""

from typing import Any

import memkern as mk
from memkern.families.spatter import kernels as spatter
from memkern.spec.case import Case


def spatter_samples(kernel: str) -> list[Case]:
    """Return cases with remainders, overlaps, negative deltas, wraps and every schedule."""
    shapes: list[dict[str, Any]] = [
        {"pattern": "UNIFORM:8:1:NR", "count": 33},
        {"pattern": "UNIFORM:16:24:8", "count": 40, "wrap": 3},
        {"pattern": [0], "delta": 1, "count": 7},
        {"pattern": [5, 0, 3, 3, 1, 9, 2], "delta": 4, "count": 19, "wrap": 2},
        {"pattern": list(range(0, 57, 3)), "delta": -5, "count": 21},
        {"pattern": [2, 0, 0, 0, 2, 0, 0, 1, 4], "delta": [3, 0, -2], "count": 25, "wrap": 4},
        {"pattern": [1, 4, 2, 8], "delta": 0, "count": 12, "wrap": 5},
        {"pattern": "LAPLACIAN:3:1:7", "count": 31, "prefetch": 3},
        {"pattern": "UNIFORM:8:2:NR", "count": 50, "chunk": 4},
        {"pattern": "UNIFORM:8:2:NR", "count": 50, "chunk": 3, "schedule": "dynamic"},
        {"pattern": "UNIFORM:8:2:NR", "count": 50, "repetition": "barrier"},
        {"pattern": "UNIFORM:8:2:NR", "count": 50, "repetition": "free", "wrap": 2},
        # Divided by their indices.
        {"pattern": [(37 * i + 5) % 90 for i in range(100)], "delta": 3, "count": 1},
        {
            "pattern": [(37 * i + 5) % 41 for i in range(100)],
            "delta": [5, -2],
            "count": 3,
            "wrap": 2,
        },
        {"pattern": [(37 * i + 5) % 90 for i in range(150)], "count": 2, "prefetch": 7},
        {"pattern": [(37 * i) % 90 for i in range(90)], "delta": 0, "count": 4, "chunk": 2},
        {"pattern": "UNIFORM:100:2:NR", "count": 2, "chunk": 1, "schedule": "dynamic"},
    ]
    cases = []
    for shape in shapes:
        shape = dict(shape)
        if kernel == "gs":
            pattern = mk.patterns.as_pattern(shape.pop("pattern"))
            shape.pop("wrap", None)
            shape["pattern_gather"] = pattern
            shape["pattern_scatter"] = pattern.indices[::-1].copy()
            shape.setdefault("delta", pattern.delta or 8)
        elif kernel.startswith("multi"):
            outer = mk.patterns.as_pattern(shape["pattern"])
            inner = [(7 * i + 2) % len(outer) for i in range(len(outer) + 2)]
            shape[f"pattern_{kernel.removeprefix('multi')}"] = inner
        cases.append(spatter.case(kernel, **shape))
    return cases


SAMPLES = {f"spatter.{kernel}": spatter_samples(kernel) for kernel in spatter.KERNELS}
MORE_CASES = {
    "spatter.gather": [mk.gather([0, 5], count=9, dtype="float32", device="cuda:1")],
}
SECTORS = tuple(SAMPLES)
