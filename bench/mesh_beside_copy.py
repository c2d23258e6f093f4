"""Compare the bandwidths of BS6, BS7 and BS8 at degree 7 with that of BS1, in turns.

Bytes are from the paper's formulas. The bandwidth of memory that is shared with neighbours changes
from minute to minute, so every ratio is of consecutive measurements::

    python bench/mesh_beside_copy.py
"""

import numpy as np
from peers import in_turns
from records import Row, add, interval, options, parsed, write

import memkern as mk
from memkern.statistics import ratio_interval


def main() -> None:
    """Print and write bandwidths and ratios."""
    parser = options(__doc__, turns=9)
    parser.add_argument("--elements", type=int, default=20, help="K of the mesh")
    parser.add_argument("--pages", default="4k")
    args = parsed(parser)
    knobs = {"pages": args.pages, "budget_s": 0.3}
    nodes = (args.elements * 8) ** 3
    cases = {"bs.bs1": mk.bs(1, elements=nodes, **knobs)}
    for number in (6, 7, 8):
        cases[f"bs.bs{number}"] = mk.bs(number, elements=args.elements, degree=7, **knobs)
    rates = in_turns(cases, args.turns, lambda name, _: cases[name].measure().bandwidth_GBps)
    rows: list[Row] = []
    for name, values in rates.items():
        row = {"pages": args.pages, "kernel": name, "GB/s": np.median(values)}
        if name != "bs.bs1":
            row |= interval("of BS1", ratio_interval(values, rates["bs.bs1"], paired=True))
        add(rows, row)
    write(args, rows)


if __name__ == "__main__":
    main()
