"""Compare memkern's hopping term with Grid's, in turns.

The peer is a program, built elsewhere with Grid's own flags, that is called as
``PROGRAM LX LY LZ LT LS THREADS SECONDS``: it applies Grid's Dhop in double precision for SECONDS
with each of its kernels and prints a line for each: ``Dhop_`` (full lattice), ``DhopEO_`` (even
results of odd sites) or ``DhopOE_`` and its name, shortest and median seconds of an application::

    python bench/beside_grid.py --grid /path/to/dhop 8 16 24 [--parity even]

Every turn runs all contestants in rotating order, in 4 KiB pages, on lattices of equal extents. The
peer of a lattice is the kernel with the smallest median over all turns. memkern's form is chosen in
the same way: of both layouts, with vectors over s or over sites (as in Grid), with or without
prefetch, and one form in blocks of four z. Ratios are the peer's times over memkern's, with
intervals from the turns.
"""

import argparse
import itertools
from functools import partial
from typing import Any

import numpy as np
from peers import best_of_each, by_form, compare_all, in_turns, printed_seconds, valid_record
from records import Row, add, interval, options, parsed

import memkern as mk
from memkern.statistics import Ratio

PREFIXES = {"full": "Dhop_", "even": "DhopEO_", "odd": "DhopOE_"}
_CUTS = {"s": "s", "sites": "tzyx"}
_PREFETCH = {"": 0, ", prefetch": 3}
FORMS: dict[str, dict[str, Any]] = {
    f"{layout}, lanes over {lanes}{prefetch}": {
        "layout": layout,
        "cut": _CUTS[lanes],
        "prefetch": _PREFETCH[prefetch],
    }
    for layout, lanes, prefetch in itertools.product(("RRII", "RIRI"), _CUTS, _PREFETCH)
}
_PREFETCHED = "RIRI, lanes over s, prefetch"
FORMS[f"{_PREFETCHED}, blocks of four z"] = {**FORMS[_PREFETCHED], "block": (0, 0, 4, 0)}


def compared(args: argparse.Namespace, extent: int, threads: int) -> tuple[Row, list[Row], Ratio]:
    """Return the row of a lattice, the rows of all forms, and memkern's ratio."""
    knobs = {"threads": threads, "pages": "4k", "budget_s": args.seconds}
    knobs |= {"ls": args.ls, "parity": args.parity}
    cases = {n: mk.dw([extent] * 4, **f, **knobs) for n, f in FORMS.items()}
    program = [args.grid, *[extent] * 4, args.ls, threads, args.seconds]

    def seconds(name: str, _: int) -> dict[str, float]:
        if name in cases:
            return {name: valid_record(cases[name], name)["time_median_s"]}
        return printed_seconds(program, PREFIXES[args.parity])

    found = in_turns([*cases, "grid"], args.turns, seconds)
    theirs = by_form(found.pop("grid"))
    ours = by_form(one for some in found.values() for one in some)
    best, peer, ratio = best_of_each(ours, theirs)
    gigaflops = 1320 * extent**4 / (1 if args.parity == "full" else 2) * args.ls / 1e9
    size = {"lattice": f"{extent}^4", "threads": threads}
    every: list[Row] = []
    for name, times in (*ours.items(), *theirs.items()):
        add(every, {**size, "form": name, "GFLOP/s": gigaflops / np.median(times)})
    row = {**size, "form": best, "memkern, GFLOP/s": gigaflops / np.median(ours[best])}
    row |= {"Grid's kernel": peer, "Grid, GFLOP/s": gigaflops / np.median(theirs[peer])}
    return row | interval("ratio", ratio), every, ratio


def main() -> None:
    """Print and write rates and ratios."""
    parser = options(__doc__, turns=7)
    parser.add_argument("extents", nargs="+", type=int)
    parser.add_argument("--grid", required=True, metavar="PROGRAM")
    parser.add_argument("--ls", type=int, default=8)
    parser.add_argument("--parity", choices=PREFIXES, default="full")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=0.2)
    args = parsed(parser)
    each = itertools.product(args.extents, args.threads)
    compare_all(args, {f"{n}^4, {k} threads": partial(compared, args, n, k) for n, k in each})


if __name__ == "__main__":
    main()
