"""Records that are compared."""

import math
from typing import Any


def record(elements: int = 64, time_s: float = 1e-3, **more: Any) -> dict[str, Any]:
    return {
        "kernel": "stream.copy", "definition": "", "name": "", "case_columns": "elements",
        "elements": elements, "threads": 1, "pages_requested": "4k", "variant_requested": "simd",
        "time_min_s": 0.9 * time_s, "time_median_s": time_s, "bytes_B": 16 * elements,
        "bandwidth_GBps": 16 * elements / time_s / 0.9e9,
        "bandwidth_median_GBps": 16 * elements / time_s / 1e9,
        "rate_GAMS": math.nan, "performance_GFLOPs": math.nan,
        "valid": True, "disturbed": False, **more,
    }  # fmt: skip
