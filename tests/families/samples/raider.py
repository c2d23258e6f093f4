"""Cases of RaiderSTREAM."""

from typing import Any

from shapes import built, over_length, streaming_samples

from memkern.spec.registry import of_family

# Every index pattern, without and with repeats.
INDEXED_SHAPES: list[dict[str, Any]] = [
    {"elements": 1},
    {"elements": 7, "pattern": "stride:3"},
    {"elements": 64, "seed": 3},
    {"elements": 1001, "pattern": "chase", "chunk": 17},
    {"elements": 1001, "pattern": "stride1", "chunk": 9, "schedule": "dynamic"},
    {"elements": 333, "pattern": "zipf:1.2"},
    {"elements": 333, "pattern": "hot:0.9:0.1", "repetition": "barrier"},
    {"elements": 100, "pattern": "central"},
    {"elements": 5, "pattern": [4, 0, 0, 2, 4], "repeats": True},
    {"elements": 1003, "prefetch": 50, "offset": 8, "repetition": "free"},
]
SAMPLES = {
    **streaming_samples("raider"),
    **{
        name: [built(name, **shape) for shape in INDEXED_SHAPES]
        for name, spec in of_family("raider").items()
        if over_length(spec) and spec.indices
    },
}
SCALAR = tuple(name for name in SAMPLES if "central" in name)
SECTORS = tuple(SAMPLES)
PER_ELEMENT = {
    **{"raider.copy": (16, 0), "raider.scale": (16, 1), "raider.add": (24, 1)},
    **{"raider.triad": (24, 2), "raider.gather_triad": (24, 2), "raider.sg_add": (24, 1)},
}
