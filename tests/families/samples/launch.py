"""Cases of empty kernels."""

from __future__ import annotations

from shapes import built

SAMPLES = {name: [built(name)] for name in ("launch.empty", "launch.compute")}
