"""Compare memkern's hopping term with Grid's, in turns.

The peer is a program, built elsewhere with Grid's own flags, that is called as
``PROGRAM LX LY LZ LT LS THREADS SECONDS``: it applies Grid's Dhop in double precision for SECONDS
with each of its kernels and prints a line for each: ``Dhop_`` (full lattice), ``DhopEO_`` (even
results of odd sites) or ``DhopOE_`` and its name, shortest and median seconds of an application::

    python bench/beside_grid.py --grid /path/to/dhop 8 16 24 [--parity even]

Every turn runs all contestants in rotating order, in 4 KiB pages, on lattices of equal extents. The
peer of a lattice is the kernel that is fastest by its median over all turns. So is memkern's form,
of both layouts with vectors over s and over sites as Grid has them, with and without prefetch, and
one in blocks of four z. Ratios are of times, the peer's over memkern's, with intervals from the
turns.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import numpy as np
from peers import best_of_each, judge, printed_seconds, rotated, valid_record

import memkern as mk
from memkern.statistics import Ratio

PREFIXES = {"full": "Dhop_", "even": "DhopEO_", "odd": "DhopOE_"}
FORMS: dict[str, dict[str, Any]] = {
    f"{layout} {cut} {prefetch}": {"layout": layout, "cut": cut, "prefetch": prefetch}
    for layout, cut, prefetch in itertools.product(("RRII", "RIRI"), ("s", "tzyx"), (0, 3))
}
FORMS["RIRI s 3 z4"] = {"layout": "RIRI", "cut": "s", "prefetch": 3, "block": (0, 0, 4, 0)}


def main() -> None:
    """Print rates and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("extents", nargs="+", type=int)
    parser.add_argument("--grid", required=True, metavar="PROGRAM")
    parser.add_argument("--ls", type=int, default=8)
    parser.add_argument("--parity", choices=PREFIXES, default="full")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.2)
    args = parser.parse_args()
    ratios: dict[str, Ratio] = {}
    for extent, threads in itertools.product(args.extents, args.threads):
        knobs = {"threads": threads, "pages": "4k", "budget_s": args.seconds}
        knobs |= {"ls": args.ls, "parity": args.parity}
        cases = {n: mk.dw.case([extent] * 4, **f, **knobs) for n, f in FORMS.items()}
        theirs: dict[str, list[float]] = {}
        ours: dict[str, list[float]] = {name: [] for name in cases}
        program = [args.grid, *[extent] * 4, args.ls, threads, args.seconds]
        for turn in range(args.turns):
            for name in rotated([*cases, "grid"], turn):
                if name in cases:
                    ours[name].append(valid_record(cases[name], name)["time_median_s"])
                else:
                    for kernel, seconds in printed_seconds(program, PREFIXES[args.parity]).items():
                        theirs.setdefault(kernel, []).append(seconds)
        sites = extent**4 // (1 if args.parity == "full" else 2)
        gigaflops = 1320 * sites * args.ls / 1e9
        title = f"{extent}^4 {args.parity}, Ls {args.ls}, threads {threads}"
        print(title)
        for name, times in (*ours.items(), *theirs.items()):
            print(f"  {name:<14} {gigaflops / np.median(times):7.2f} GFLOP/s")
        ratios[title] = best_of_each(ours, theirs)
    judge(ratios)


if __name__ == "__main__":
    main()
