"""Compare memkern's hopping term with Grid's, in turns.

The peer is a program, built elsewhere with Grid's own flags, that is called as
``PROGRAM LX LY LZ LT LS THREADS SECONDS``: it applies Grid's Dhop in double precision for SECONDS
with each of its kernels and prints a line for each: ``Dhop_`` (full lattice), ``DhopEO_`` (even
results of odd sites) or ``DhopOE_`` and its name, shortest and median seconds of an application::

    python tests/bench/beside_grid.py --grid /path/to/dhop 8 16 24 [--parity even]

Every turn runs all contestants in rotating order, in 4 KiB pages, on lattices of equal extents. The
peer of a lattice is the kernel that is fastest by its median over all turns. So is memkern's form,
of both layouts with vectors over s and over sites as Grid has them, with and without prefetch, and
one in blocks of four z. Ratios are of times, the peer's over memkern's, with intervals from the
turns.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
from typing import Any

import numpy as np
from peers import FLOOR, no_huge_pages, with_interval

import memkern as mk
from memkern.statistics import geometric_mean, ratio_interval

PREFIXES = {"full": "Dhop_", "even": "DhopEO_", "odd": "DhopOE_"}
FORMS: dict[str, dict[str, Any]] = {
    f"{layout} {cut} {prefetch}": {"layout": layout, "cut": cut, "prefetch": prefetch}
    for layout, cut, prefetch in itertools.product(("RRII", "RIRI"), ("s", "tzyx"), (0, 3))
}
FORMS["RIRI s 3 z4"] = {"layout": "RIRI", "cut": "s", "prefetch": 3, "block": (0, 0, 4, 0)}


def peer_seconds(program: str, extent: int, threads: int, args: Any) -> dict[str, float]:
    """Return the median seconds of each of the peer's kernels."""
    done = subprocess.run(
        [program, *[str(extent)] * 4, str(args.ls), str(threads), str(args.seconds)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_PROC_BIND": "true", "OMP_PLACES": "cores"},
        preexec_fn=no_huge_pages,
    )
    rows = (line.split() for line in done.stdout.splitlines())
    return {
        row[0]: float(row[2]) for row in rows if row and row[0].startswith(PREFIXES[args.parity])
    }


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
    ratios = []
    for extent, threads in itertools.product(args.extents, args.threads):
        knobs = {"threads": threads, "pages": "4k", "budget_s": args.seconds}
        knobs |= {"ls": args.ls, "parity": args.parity}
        cases = {n: mk.dw.case([extent] * 4, **f, **knobs) for n, f in FORMS.items()}
        theirs: dict[str, list[float]] = {}
        ours: dict[str, list[float]] = {name: [] for name in cases}
        contestants = [*cases, "grid"]
        for turn in range(args.turns):
            k = turn % len(contestants)
            for name in contestants[k:] + contestants[:k]:
                if name in cases:
                    record = cases[name].measure().record
                    if not record["valid"]:
                        raise SystemExit(f"{name} failed its validation")
                    ours[name].append(record["time_median_s"])
                else:
                    for kernel, seconds in peer_seconds(args.grid, extent, threads, args).items():
                        theirs.setdefault(kernel, []).append(seconds)
        sites = extent**4 // (1 if args.parity == "full" else 2)
        gigaflops = 1320 * sites * args.ls / 1e9
        print(f"{extent}^4 {args.parity}, Ls {args.ls}, threads {threads}")
        for name, times in (*ours.items(), *theirs.items()):
            print(f"  {name:<14} {gigaflops / np.median(times):7.2f} GFLOP/s")
        best = min(ours, key=lambda name: float(np.median(ours[name])))
        peer = min(theirs, key=lambda name: float(np.median(theirs[name])))
        ratio = ratio_interval(theirs[peer], ours[best], paired=True)
        ratios.append(ratio)
        print(f"  {best} over {peer}: {with_interval(ratio)}", flush=True)
    mean = geometric_mean([ratio.ratio for ratio in ratios])
    below = sum(ratio.high < FLOOR for ratio in ratios)
    print(f"geometric mean {mean:.3f}, wholly below {FLOOR}: {below}")


if __name__ == "__main__":
    main()
