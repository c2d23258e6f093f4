"""Compare the bandwidths of BS6, BS7 and BS8 at degree 7 with that of BS1, in turns.

Bytes are from the paper's formulas. The bandwidth of memory that is shared with neighbours changes
from minute to minute, so every ratio is of consecutive measurements::

    python bench/mesh_beside_copy.py
"""

import argparse
from collections.abc import Iterator

import numpy as np
from peers import in_turns
from records import Row, interval, program

import memkern as mk
from memkern.statistics import ratio_interval


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Yield bandwidths and ratios."""
    how = {"pages": args.pages, "budget_s": 0.3}
    cases = {1: mk.bs(1, elements=(args.elements * 8) ** 3, **how)}
    cases |= {n: mk.bs(n, elements=args.elements, degree=7, **how) for n in (6, 7, 8)}
    rates = in_turns(cases, args.turns, lambda number: cases[number].measure().bandwidth_GBps)
    for number, values in rates.items():
        row = {"pages": args.pages, "kernel": f"bs.bs{number}", "GB/s": np.median(values)}
        ratio = ratio_interval(values, rates[1], paired=True)
        yield row | (interval("of BS1", ratio) if number > 1 else {})


OPTIONS = {"--elements": (20, "K of the mesh"), "--pages": "4k"}
main = program(__doc__, measured, OPTIONS, turns=9)

if __name__ == "__main__":
    raise SystemExit(main())
