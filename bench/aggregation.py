"""Show the benefit of aggregation: gather and scatter between ranks, by every method, in turns.

Every element is on another rank. The table has the nanoseconds per element for each method and
number of elements per rank::

    mpirun -n 2 python bench/aggregation.py
"""

from typing import Any

import numpy as np
from peers import in_turns
from records import Row, add, options, parsed, write

import memkern as mk
from memkern import backends
from memkern.engine.processes.communication import ranks
from memkern.spec.case import Case

_LENGTH = 8


def cases_of(kernel: str, elements: int, flush_every: int, budget_s: float) -> dict[str, Case]:
    """Return the case of every method, in which each rank moves this number of elements."""
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
        for method in backends.of("mpi").moves
    }


def element_ns(case: Case) -> float:
    """Return the nanoseconds per element."""
    record = case.measure().record
    assert record["valid"] and record["remote_share"] == 1.0
    return float(record["time_median_s"] / (record["count"] * _LENGTH / ranks().size) * 1e9)


def main() -> None:
    """Measure, and print and write the rows."""
    parser = options(__doc__, turns=7)
    parser.add_argument("--flush-every", type=int, default=1, help="of the method single")
    parser.add_argument("--budget", type=float, default=0.2, help="seconds of a measurement")
    args = parsed(parser)
    if ranks().size % 2:
        parser.error("the elements of the middle one of an odd number of ranks are its own")
    rows: list[Row] = []
    for kernel in ("spatter.gather", "spatter.scatter"):
        for elements in (_LENGTH * 8**power for power in range(5)):
            cases = cases_of(kernel, elements, args.flush_every, args.budget)
            times = in_turns(
                cases, args.turns, lambda name, _, cases=cases: element_ns(cases[name])
            )
            if ranks().number == 0:
                found = {f"{method}, ns": float(np.median(some)) for method, some in times.items()}
                add(rows, {"kernel": kernel, "elements": elements, **found})
    if ranks().number == 0:
        write(args, rows)


if __name__ == "__main__":
    main()
