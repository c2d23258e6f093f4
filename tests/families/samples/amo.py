"""Cases of atomic operations."""

from typing import Any

from shapes import built

import memkern as mk
from memkern.families.amo import kernels as amo
from memkern.spec.case import Case

# Options of cases by identity, to rebuild them with other numbers of threads.
SHAPES: dict[str, dict[str, Any]] = {}


def amo_samples(kernel: str) -> list[Case]:
    """Return cases with few and many iterations, every sharing, and both kinds of indices."""
    pattern = kernel.removeprefix("amo.")
    shapes: list[dict[str, Any]] = [
        {"iters": 1},
        {"iters": 300, "seed": 3},
        # A pointer chase has no padding.
        {"iters": 77, "sharing": "private", **({"padding": 64} if pattern != "ptrchase" else {})},
        {"iters": 50, "sharing": "shared", "repetition": "barrier"},
        {"iters": 64, "repetition": "spin", "offset": 16},
    ]
    if pattern in ("rand", "ptrchase", "scatter", "gather", "sg"):
        shapes.append({"iters": 200, "indices": "circustent"})
    if pattern == "striden":
        shapes.append({"iters": 20, "stride": 5})
    if pattern == "central":
        shapes += [{"iters": 30, "hot": 3}, {"iters": 30, "hot": 2, "sharing": "private"}]
    cases = [built(kernel, threads=1, **shape) for shape in shapes]
    SHAPES.update({c.identity(): s for c, s in zip(cases, shapes, strict=True)})
    return cases


SAMPLES = {f"amo.{pattern}": amo_samples(f"amo.{pattern}") for pattern in amo.PATTERNS}
MORE_CASES = {"amo.gather": [mk.amo("gather", iters=4, threads=1, indices=[3, 0, 2, 1, 3])]}
SCALAR = BASELINE = SECTORS = tuple(SAMPLES)


def with_threads(case: Case, threads: int) -> Case:
    """Return the case with another number of threads."""
    return built(case.spec.name, **{**SHAPES[case.identity()], "threads": threads})
