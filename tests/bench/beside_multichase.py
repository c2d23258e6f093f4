"""Compare memkern's latencies with those of multichase and its pingpong, in turns.

They are built elsewhere with their own flags; this script only runs them::

    python tests/bench/beside_multichase.py --folder /path/to/multichase

Each turn measures every case on both sides in rotating order: a chase through 64-byte lines in
random order over the whole buffer (``-T`` of its size), chains in parallel, and a line that two
cores write in turn without pauses (``-u -r 0``), in 4 KiB pages. A ratio is the other program's
time over memkern's; equal latencies have ratio 1. The published method of core-to-core-latency, in
which both cores compare and swap one flag, is measured by ``pingpong -l -r 0``.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
from peers import FLOOR, no_huge_pages, with_interval

import memkern as mk
from memkern.statistics import geometric_mean, ratio_interval

SIZES = {"L1": 2**14, "L2": 2**19, "L3": 2**23, "memory": 2**28}
CHAINS = (2, 4, 6)


def printed(words: list[object]) -> str:
    """Return what a program prints, run on 4 KiB pages."""
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, check=True, preexec_fn=no_huge_pages
    )
    return done.stdout


def multichase(folder: Path, size_B: int, chains: int, samples: int) -> float:
    """Return the mean ns of a dereference of multichase."""
    kind = "simple" if chains == 1 else f"parallel{chains}"
    words = [folder / "multichase", "-a", "-c", kind, "-m", size_B, "-s", 64, "-T", size_B]
    return float(printed([*words, "-n", samples]).split()[-1])


def pingpong(folder: Path, kind: str) -> float:
    """Return the ns from one core to the other of the first two units."""
    output = printed([folder / "pingpong", kind, "-r", 0, "-c", 2])
    found = re.search(r"(?m)^ *0: +([0-9.]+)", output)
    if found is None:
        raise SystemExit(f"pingpong printed no time:\n{output}")
    return float(found[1])


def main() -> None:
    """Print latencies and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", required=True, type=Path, help="of multichase and pingpong")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--samples", type=int, default=2, help="half seconds of multichase a turn")
    args = parser.parse_args()
    how = {"pages": "4k", "pin": "compact", "line_B": 64, "budget_s": 0.5}
    cases: dict[str, tuple[mk.Case, Callable[[], float]]] = {}
    for where, size_B in SIZES.items():
        cases[f"chase, {where}"] = (
            mk.latency(size_B, **how),
            lambda size_B=size_B: multichase(args.folder, size_B, 1, args.samples),
        )
    for chains in CHAINS:
        cases[f"{chains} chains, memory"] = (
            mk.latency(SIZES["memory"], chains=chains, **how),
            lambda chains=chains: multichase(args.folder, SIZES["memory"], chains, args.samples),
        )
    for kind, take_by in (("-u", "load"), ("-l", "swap")):
        cases[f"a line by {take_by}"] = (
            mk.case("latency.ping_pong", take_by=take_by, pin="0,1", pages="4k", budget_s=0.5),
            lambda kind=kind: pingpong(args.folder, kind),
        )
    ours: dict[str, list[float]] = {name: [] for name in cases}
    theirs: dict[str, list[float]] = {name: [] for name in cases}
    names = list(cases)
    for turn in range(args.turns):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            case, peer = cases[name]
            measured = case.measure()
            if not measured.valid:
                raise SystemExit(f"{name} failed its validation")
            ours[name].append(measured.record["ns_per_access"])
            theirs[name].append(peer())
    ratios = []
    for name in names:
        ratio = ratio_interval(theirs[name], ours[name], paired=True)
        ratios.append(ratio)
        print(
            f"{name:<18} {np.median(ours[name]):8.2f} ns, multichase "
            f"{np.median(theirs[name]):8.2f} ns, ratio {with_interval(ratio)}"
        )
    mean = geometric_mean([ratio.ratio for ratio in ratios])
    below = [name for name, ratio in zip(names, ratios, strict=True) if ratio.high < FLOOR]
    print(f"geometric mean {mean:.3f}, wholly below {FLOOR}: {below}")


if __name__ == "__main__":
    main()
