"""Cases of empty kernels."""

from shapes import built

SAMPLES = {name: [built(name)] for name in ("launch.empty", "launch.compute")}
