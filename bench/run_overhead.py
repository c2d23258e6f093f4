"""What `prepared.run(k)` costs beyond the C++ time of its invocations.

    python bench/run_overhead.py

The difference between the wall time of many calls and the sum of the seconds they returned, in
microseconds a call; the goal is below 5.
"""

from __future__ import annotations

import time

import numpy as np

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
    """Print one line for each way to bind the workers."""
    for threads in (1, 2):
        for pin in ("none", "compact"):
            extra, inside = overhead_us(threads=threads, pin=pin)
            print(
                f"threads {threads}, pin {pin:<8} overhead {extra:.2f} us, C++ time {inside:.2f} us"
            )


if __name__ == "__main__":
    main()
