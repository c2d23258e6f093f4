"""Compare the medians of ten samples with those of a thousand, in turns.

The medians agree only if the data of the first sample are already in the caches.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from peers import in_turns
from records import Row, interval, program

import memkern as mk
from memkern.results.slowdowns import compare_turns

FEW, MANY = 10, 1000


def cases(threads: int) -> dict[str, mk.Case]:
    """Return cases from L1 to the last cache."""
    how: dict[str, Any] = {"threads": threads, "variant": "simd", "runs": FEW}
    return {
        "triad, 4096 elements": mk.stream("triad", elements=4096, **how),
        "BS2, 8192 elements": mk.bs(2, elements=8192, **how),
        "copy, 65,536 elements": mk.stream("copy", elements=2**16, **how),
        "gather from 2 MiB": mk.gather("UNIFORM:8:8:NR", count=4096, **how),
        "dot, 524,288 elements": mk.loops("dot", elements=2**19, **how),
        "triad, 2,097,152 elements": mk.stream("triad", elements=2**21, **how),
    }


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Yield the ratios of the times."""
    every = {(name, n): case for n in (1, 2) for name, case in cases(n).items()}

    def many_and_few(key: tuple[str, int]) -> list[dict[str, Any]]:
        return [every[key].with_(runs=runs).measure().record for runs in (MANY, FEW)]

    for (name, threads), found in in_turns(every, args.turns, many_and_few).items():
        median_us = 1e6 * found[-1][0]["time_median_s"]
        row = {"case": name, "threads": threads, "median, us": median_us}
        yield row | interval("few over many", compare_turns(found, 0.95))


main = program(__name__, __doc__, measured, turns=12)
