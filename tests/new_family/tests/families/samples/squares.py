"""Cases of squares."""

from __future__ import annotations

from plotting import common_columns
from shapes import streaming_samples

SAMPLES = streaming_samples("squares")
PER_ELEMENT = {"squares.square": (16, 1)}


def everything() -> list[dict[str, object]]:
    """Return made-up records, of which figures and tables are made."""
    about = common_columns("squares.square", 4, "Own Machine 3000") | {"bandwidth_GBps": 100.0}
    return [about | {"footprint_B": size_B} for size_B in (2**14, 2**20, 2**26)]
