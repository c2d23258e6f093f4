"""Records of loops with the times of a model."""

import numpy as np

from memkern.formats import ResultSet
from memkern.models import Ecm, EcmLevel, Overlap
from memkern.spec.kernel import Traffic

LEVELS = ("L1", "L2", "memory")
LOOPS = {
    "loops.load": (64, 0, 0, 0),
    "loops.copy": (64, 64, 64, 0),
    "loops.triad": (128, 64, 64, 16),
    "loops.daxpy": (128, 64, 0, 16),
    "loops.schoenauer": (192, 64, 64, 16),
}
MODEL = Ecm(
    (EcmLevel("L1", 128, 64), EcmLevel("L2", 48, 24), EcmLevel("memory", 5, 4)),
    Overlap.parse("L1 load + L1 store + L2 + memory"),
    2.0,
)


def records(**changes):
    """Return records of loops with the model's times, of a million vectors per invocation."""
    rows = []
    for kernel, (read, write, allocate, flops) in LOOPS.items():
        moved = Traffic(read=read, write=write, write_allocate=allocate).transfers(LEVELS)
        for level in LEVELS:
            cycles = MODEL.predict(moved, at=level).cycles
            seconds = cycles * 1e6 / 2e9
            row = {
                "kernel": kernel, "name": level, "platform": "Some CPU, 1 thread", "threads": 1,
                "environment_id": "here", "valid": True, "disturbed": False, "variant": "simd",
                "footprint_B": 2**20, "clock_GHz": 2.0, "time_min_s": seconds,
                "time_median_s": seconds, "cycles_per_vector": cycles, "placement_sd": 0.01,
                "dtype": "float64", "performance_GFLOPs": flops * 1e6 / seconds / 1e9 or np.nan,
            }  # fmt: skip
            for name, (load_B, store_B) in moved.items():
                row |= {f"{name}_load_B": load_B * 1e6, f"{name}_store_B": store_B * 1e6}
            rows.append({**row, **changes})
    return ResultSet(rows, [np.empty(0)] * len(rows), {})
