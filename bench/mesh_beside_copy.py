"""Compare the bandwidths of BS6, BS7 and BS8 at degree 7 with that of BS1, in turns.

Bytes are those of the paper's formulas. Memory that is shared with neighbours changes its
bandwidth from minute to minute, so that every ratio is one of neighbouring measurements::

    python bench/mesh_beside_copy.py
"""

from __future__ import annotations

import argparse

import numpy as np
from peers import with_interval

import memkern as mk
from memkern.statistics import ratio_interval


def main() -> None:
    """Print bandwidths and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--elements", type=int, default=20, help="K of the mesh")
    parser.add_argument("--pages", default="4k")
    args = parser.parse_args()
    knobs = {"pages": args.pages, "budget_s": 0.3}
    nodes = (args.elements * 8) ** 3
    cases = {
        "bs1": mk.bs(1, elements=nodes, **knobs),
        **{
            f"bs{number}": mk.bs(number, elements=args.elements, degree=7, **knobs)
            for number in (6, 7, 8)
        },
    }
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(args.turns):
        for name, case in cases.items():
            rates[name].append(case.measure().bandwidth_GBps)
    for name, values in rates.items():
        ratio = ratio_interval(values, rates["bs1"], paired=True)
        print(f"{name}: {np.median(values):.1f} GB/s, of BS1 {with_interval(ratio)}")


if __name__ == "__main__":
    main()
