"""Compare memkern's atomics with CircusTent's OpenMP build, in turns.

CircusTent is built elsewhere with its own flags; this script only runs it::

    python tests/bench/beside_circustent.py --circustent /path/to/circustent

Its eight ADD kernels perform the same operation. Its CAS kernels can't be compared: they expect the
target itself or the value of the last round, so that most of their swaps fail or none can. Each
turn runs every kernel on both sides in rotating order, with the same VAL, iterations, workers and
rule of indices, in 4 KiB pages. CircusTent times one pass; memkern's median over several passes is
compared with the median of as many runs of CircusTent.

CircusTent's pointer chase soon repeats a short cycle, another one in each run. The rate of two
workers depends on whether they end in the same cycle, so that the chase has one worker here, and
other indices in each turn.
"""

from __future__ import annotations

import argparse
import re

import numpy as np
from peers import judge, printed, rotated, valid_record, with_interval

import memkern as mk
from memkern.families.amo.kernels import PATTERNS
from memkern.statistics import Ratio, ratio_interval


def workers(args: argparse.Namespace, pattern: str) -> int:
    """Return the number of workers for a pattern."""
    return 1 if pattern == "ptrchase" else args.threads


def circustent(args: argparse.Namespace, pattern: str) -> float:
    """Return the seconds of one pass."""
    sizes = {"-m": args.memsize, "-p": workers(args, pattern), "-i": args.iters}
    words = [args.circustent, "-b", f"{pattern.upper()}_ADD"]
    for flag, value in sizes.items():
        words += [flag, value]
    if pattern == "striden":
        words += ["-s", args.stride]
    found = re.search(r"Timing \(secs\)\s*:\s*(\S+)", printed(words))
    if found is None:
        raise SystemExit(f"{' '.join(map(str, words))} printed no timing")
    return float(found[1])


def main() -> None:
    """Print rates and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--circustent", required=True, help="executable")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--runs", type=int, default=5, help="passes of each side a turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--iters", type=int, default=2_000_000)
    parser.add_argument("--memsize", type=int, default=256_000_000)
    parser.add_argument("--stride", type=int, default=8)
    parser.add_argument("--patterns", default=",".join(PATTERNS))
    args = parser.parse_args()
    names = args.patterns.split(",")

    def case_of(name: str, seed: int) -> mk.Case:
        indexed = mk.registry()[f"amo.{name}"].indices
        return mk.amo(
            name,
            iters=args.iters,
            memsize=args.memsize,
            threads=workers(args, name),
            stride=args.stride if name == "striden" else 1,
            indices="circustent" if indexed else "random",
            pages="4k",
            pin="compact",
            runs=args.runs,
            seed=seed,
        )

    ours: dict[str, list[float]] = {name: [] for name in names}
    theirs: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(args.turns):
        for name in rotated(names, turn):
            ours[name].append(valid_record(case_of(name, turn), name)["time_median_s"])
            passes = [circustent(args, name) for _ in range(args.runs)]
            theirs[name].append(float(np.median(passes)))
    ratios: dict[str, Ratio] = {}
    for name in names:
        case = case_of(name, 0)
        ratios[name] = ratio_interval(theirs[name], ours[name], paired=True)
        amos = case.iterations * case.spec.amos / 1e9
        print(
            f"{name:<9} {amos / np.median(ours[name]):8.4f} GAMS, CircusTent "
            f"{amos / np.median(theirs[name]):8.4f}, ratio {with_interval(ratios[name])}"
        )
    judge(ratios)


if __name__ == "__main__":
    main()
