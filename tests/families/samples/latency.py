"""Cases of latency."""

from typing import Any

from shapes import built

from memkern.spec.case import Case

# Options of small cases with fixed numbers of threads.
SHAPES: dict[str, list[dict[str, Any]]] = {
    "latency.chase": [
        {"size_B": 2**13},
        {"size_B": 2**15, "chains": 3, "order": "in-page", "repetition": "barrier"},
        {"size_B": 2**14, "steps": 7, "order": [5, 0, 9], "offset": 24, "seed": 3},
        {"size_B": 2**13, "line_B": 8, "order": "sequential", "chunk": 100},
        {"size_B": 2**14, "order": "pairs", "distance_B": 64},
    ],
    "latency.loaded": [{"size_B": 2**13, "traffic_B": 2**12, "threads": 2, "loads": 3}],
    "latency.ping_pong": [{"turns": 20}, {"turns": 3, "lines": 2, "repetition": "fork"}],
}
SAMPLES = {name: [built(name, **shape) for shape in shapes] for name, shapes in SHAPES.items()}
BOUND = True
# tests/cpp/latency_test.cpp tests every number of chains.
OWN_ENTRIES = ("latency.chase",)
SCALAR = BASELINE = ("latency.ping_pong",)


def only_writes(case: Case) -> bool:
    """Return False: the kernels' stores are not part of their bytes."""
    return False


def with_threads(case: Case, threads: int) -> Case:
    """Return the case itself, whose number of threads is fixed."""
    return case
