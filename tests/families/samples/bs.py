"""Cases of the finite-element streaming tests."""

from typing import Any

from shapes import built, streaming_samples

import memkern as mk

# Small meshes of low and high degree, with and without a masked boundary.
MESH_SHAPES: list[dict[str, Any]] = [
    {"elements": 1, "degree": 1},
    {"elements": 2, "degree": 1, "masked": "boundary"},
    {"elements": 3, "degree": 3},
    {"elements": 2, "degree": 7, "chunk": 11},
    {"elements": 4, "degree": 2, "masked": "boundary", "repetition": "barrier"},
    {"elements": 3, "degree": 5, "offset": 24, "chunk": 50, "schedule": "dynamic"},
]
FORMULAS = ("bs.bs6", "bs.bs7", "bs.bs8")
SAMPLES = {
    **streaming_samples("bs"),
    **{name: [built(name, **shape) for shape in MESH_SHAPES] for name in FORMULAS},
    "bs.bs0": [built("bs.bs0")],
}
MORE_CASES = {"bs.bs6": [mk.bs(6, elements=2, degree=3, dtype="float32", index_dtype="int32")]}
SECTORS = ("bs.bs7",)
PER_ELEMENT = {
    **{"bs.bs1": (16, 0), "bs.bs2": (24, 3), "bs.bs3": (8, 2), "bs.bs4": (16, 2)},
    **{"bs.bs5": (48, 6), "bs.bs5@release": (24, 4)},
}
