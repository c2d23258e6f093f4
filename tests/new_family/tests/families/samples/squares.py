"""Cases of squares."""

from __future__ import annotations

from shapes import streaming_samples

SAMPLES = streaming_samples("squares")
PER_ELEMENT = {"squares.square": (16, 1)}
