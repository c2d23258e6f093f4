"""Show what aggregation is worth: a gather and a scatter between ranks, by every method, in turns.

Every element is on another rank. The table has the nanoseconds of an element by each method and
number of elements that a rank moves, and how many times as long a single get or put for each of
them takes as the fastest method::

    mpirun -n 2 python bench/aggregation.py
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import memkern as mk
from memkern.families.spatter.over_ranks import METHODS
from memkern.measuring.ranks import ranks
from memkern.spec.case import Case

_LENGTH = 8


def cases_of(kernel: str, elements: int, flush_every: int, budget_s: float) -> dict[str, Case]:
    """Return the case of every method, in which each rank moves so many elements."""
    count = ranks().size * elements // _LENGTH
    shape: dict[str, Any] = {"pattern": f"UNIFORM:{_LENGTH}:1:NR", "count": count}
    # Descending, so that the elements of the first instances are on the last rank.
    how = {"delta": -_LENGTH, "device": "mpi", "budget_s": budget_s, "placements": 1}
    return {
        method: mk.case(
            kernel,
            variant=method,
            flush_every=flush_every if method == "single" else 1,
            **shape,
            **how,
        )
        for method in METHODS["mpi"]
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--flush-every", type=int, default=1, help="of the method single")
    parser.add_argument("--budget", type=float, default=0.2, help="seconds of a measurement")
    args = parser.parse_args()
    if ranks().size % 2:
        parser.error("the elements of the middle one of an odd number of ranks are its own")
    if ranks().number == 0:
        heads = "".join(f"{method:>10}" for method in METHODS["mpi"])
        print(f"{'kernel':<16} {'elements':>8}{heads}   single/best")
    for kernel in ("spatter.gather", "spatter.scatter"):
        for elements in (_LENGTH * 8**power for power in range(5)):
            cases = cases_of(kernel, elements, args.flush_every, args.budget)
            times: dict[str, list[float]] = {method: [] for method in cases}
            for _ in range(args.turns):
                for method, case in cases.items():
                    record = case.measure().record
                    assert record["valid"] and record["remote_share"] == 1.0
                    moved = record["count"] * _LENGTH / ranks().size
                    times[method].append(record["time_median_s"] / moved * 1e9)
            found = {method: float(np.median(some)) for method, some in times.items()}
            if ranks().number == 0:
                columns = "".join(f"{ns:>10.4g}" for ns in found.values())
                worth = found["single"] / min(found.values())
                print(f"{kernel:<16} {elements:>8}{columns}   {worth:.3g}")


if __name__ == "__main__":
    main()
