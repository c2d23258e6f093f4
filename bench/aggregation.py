"""Show the benefit of aggregation: gather and scatter between ranks, by every method, in turns.

Every element is on another rank. The table has the nanoseconds per element for each method and
number of elements per rank::

    mpirun -n 2 python bench/aggregation.py
"""

import argparse
from collections.abc import Iterator

import numpy as np
from peers import in_turns
from records import Row, program

import memkern as mk
from memkern import backends
from memkern.engine.processes.communication import ranks

_LENGTH = 8


def element_ns(args: argparse.Namespace, kernel: str, elements: int, method: str) -> float:
    """Return the nanoseconds per element if each rank moves this number of elements."""
    record = (
        mk.case(
            kernel,
            variant=method,
            flush_every=args.flush_every if method == "single" else 1,
            pattern=f"UNIFORM:{_LENGTH}:1:NR",
            count=ranks().size * elements // _LENGTH,
            # Descending, so that the elements of the first instances are on the last rank.
            delta=-_LENGTH,
            device="mpi",
            budget_s=args.budget,
            placements=1,
        )
        .measure()
        .record
    )
    assert record["valid"] and record["remote_share"] == 1.0
    return float(record["time_median_s"] / elements * 1e9)


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each kernel and number of elements, on the first rank."""
    if ranks().size % 2:
        raise SystemExit("the elements of the middle one of an odd number of ranks are its own")
    for kernel in ("spatter.gather", "spatter.scatter"):
        for elements in (_LENGTH * 8**power for power in range(5)):
            times = in_turns(
                backends.of("mpi").moves,
                args.turns,
                lambda method, kernel=kernel, n=elements: element_ns(args, kernel, n, method),
            )
            if ranks().number == 0:
                found = {f"{method}, ns": float(np.median(some)) for method, some in times.items()}
                yield {"kernel": kernel, "elements": elements, **found}


OPTIONS = {
    "--flush-every": (1, "of the method single"),
    "--budget": (0.2, "seconds of a measurement"),
}
main = program(__doc__, measured, OPTIONS, turns=7)

if __name__ == "__main__":
    raise SystemExit(main())
