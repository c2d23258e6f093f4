"""Cases of kernels by their names, and shapes that the samples of several families share."""

from typing import Any

import memkern as mk
from memkern.spec.case import Case, KernelSpec
from memkern.spec.registry import of_family, options_of, registry


def built(kernel: str, **options: Any) -> Case:
    """Return a case of a kernel by its name in the registry, without knobs that it ignores."""
    name, _, definition = kernel.partition("@")
    for knob in registry()[kernel].limits.idle_knobs:
        options.pop(knob, None)
    return mk.case(name, definition=definition or "paper", **options)


# Lengths around vectors and blocks, every schedule and repetition.
STREAMING_SHAPES: list[dict[str, Any]] = [
    {"elements": 1},
    {"elements": 7},
    {"elements": 64, "seed": 3},
    {"elements": 1001},
    {"elements": 2**17 + 13},
    {"elements": 1001, "chunk": 17},
    {"elements": 1001, "chunk": 9, "schedule": "dynamic"},
    {"elements": 333, "repetition": "barrier"},
    {"elements": 333, "repetition": "spin"},
    {"elements": 1003, "prefetch": 50},
    {"elements": 1003, "offset": 40},
    {"elements": 333, "repetition": "free"},
]


def over_length(spec: KernelSpec) -> bool:
    """Return whether all arrays of a kernel have the length `elements`."""
    lengths = all(array.shape in ("(elements,)", "(1,)") for array in spec.arrays)
    return lengths and "elements" in options_of(spec)


def streaming_samples(family: str) -> dict[str, list[Case]]:
    """Return the cases of a family's kernels over arrays of one length, without indices."""
    return {
        name: [built(name, **shape) for shape in STREAMING_SHAPES]
        for name, spec in of_family(family).items()
        if over_length(spec) and not spec.indices
    }
