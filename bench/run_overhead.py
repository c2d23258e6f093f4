"""Measure the overhead of `prepared.run(k)` over the C++ time of its invocations.

    python bench/run_overhead.py

The difference between the wall time of many calls and the sum of the seconds they returned, in
microseconds per call; the goal is below 5.
"""

import time

import numpy as np
from records import Row, add, options, parsed, write

import memkern as mk

CALLS = 5000


def overhead_us(**knobs: object) -> tuple[float, float]:
    """Return the median overhead and the median C++ time of a call, in microseconds."""
    run = mk.gather([0], count=1, variant="scalar", **knobs).prepare().run
    overheads, inside = [], []
    for _ in range(CALLS):
        start = time.perf_counter()
        seconds = run(1)
        overheads.append(time.perf_counter() - start - seconds)
        inside.append(seconds)
    return 1e6 * float(np.median(overheads)), 1e6 * float(np.median(inside))


def main() -> None:
    """Print and write a row for each way to bind the workers."""
    args = parsed(options(__doc__))
    rows: list[Row] = []
    for pin in ("none", "compact"):
        for threads in (1, 2):
            extra, inside = overhead_us(threads=threads, pin=pin)
            row = {"workers": threads, "pin": pin, "overhead, us": extra, "in C++, us": inside}
            add(rows, row)
    write(args, rows)


if __name__ == "__main__":
    main()
