"""Compare memkern's RaiderSTREAM kernels over ranks with RaiderSTREAM's own, in turns.

The peer is built elsewhere with its own release flags; this script only runs it::

    python bench/beside_raiderstream.py --raiderstream /path/to/raiderstream-mpi
    export SHMEM_SYMMETRIC_HEAP_SIZE=1G LAUNCHER="oshrun --mca btl ^uct"
    python bench/beside_raiderstream.py --comm shmem --launcher "$LAUNCHER" --raiderstream PATH

Both are started by the same launcher, one thread a rank, in 4 KiB pages, with as many elements in
all. RaiderSTREAM runs every kernel once. Its sequential kernels come first, and are left out: copy,
scale and triad take the page faults of c, b and a, and add reads a before anything was written to
it. memkern's time of a turn is the median of its samples. Bandwidths are memkern's bytes over each
side's time.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections import defaultdict

import numpy as np
from peers import judge, printed, rotated, with_interval

from memkern.statistics import ratio_interval

# The peer's names of the kernels, in the order in which it runs and prints them.
KERNELS = {
    "Gather Copy": "gather_copy",
    "Gather Scale": "gather_scale",
    "Gather Add": "gather_add",
    "Gather Triad": "gather_triad",
    "Scatter Copy": "scatter_copy",
    "Scatter Scale": "scatter_scale",
    "Scatter Add": "scatter_add",
    "Scatter Triad": "scatter_triad",
    "Scatter-Gather Copy": "sg_copy",
    "Scatter-Gather Scale": "sg_scale",
    "Scatter-Gather Add": "sg_add",
    "Scatter-Gather Triad": "sg_triad",
}


def peer(words: list[str], elements: int, ranks: int) -> dict[str, float]:
    """Return the seconds that RaiderSTREAM prints, by memkern's names."""
    text = printed([*words, "-k", "all", "-s", elements, "-np", ranks])
    rows = dict(re.findall(r"^([A-Z][A-Za-z -]+?)\s+([0-9.]+)\s", text, re.MULTILINE))
    return {ours: float(rows[theirs]) for theirs, ours in KERNELS.items()}


def main() -> int:
    """Run the comparison and print a line for each kernel."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--raiderstream", required=True, help="executable of the peer")
    parser.add_argument("--comm", choices=("mpi", "shmem"), default="mpi")
    parser.add_argument("--launcher", default="mpirun", help="with its options")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--elements", type=int, default=20_000_000, help="of all ranks together")
    parser.add_argument("--turns", type=int, default=7)
    args = parser.parse_args()
    launch = [*shlex.split(args.launcher), "-n", str(args.ranks)]
    own = [*launch, sys.executable, "-m", "memkern", "raider", "-k", ",".join(KERNELS.values())]
    own += ["-n", str(args.elements // args.ranks), "-t", "1", "--pages", "4k", "--json", "-q"]
    own += ["--budget", "0.5", "--definition", "release", "--comm", args.comm]
    bytes_B: dict[str, int] = {}
    times: dict[str, dict[str, list[float]]] = {
        "memkern": defaultdict(list),
        "peer": defaultdict(list),
    }
    for turn in range(args.turns):
        for who in rotated(list(times), turn):
            if who == "peer":
                found = peer([*launch, args.raiderstream], args.elements, args.ranks)
            else:
                records = json.loads(printed(own))
                found = {r["kernel"].partition(".")[2]: r["time_median_s"] for r in records}
                bytes_B |= {r["kernel"].partition(".")[2]: r["bytes_B"] for r in records}
            for name, seconds in found.items():
                times[who][name].append(seconds)
        print(f"  turn {turn + 1} of {args.turns} done", file=sys.stderr)
    ratios = {}
    for name in KERNELS.values():
        ours, theirs = (np.array(times[who][name]) for who in ("memkern", "peer"))
        ratios[name] = ratio_interval(theirs, ours, paired=True)
        speeds = (bytes_B[name] / float(np.median(side)) / 1e9 for side in (ours, theirs))
        print(
            "  {:<14} {:6.2f} GB/s  peer {:6.2f}  ratio ".format(name, *speeds)
            + with_interval(ratios[name])
        )
    return 0 if judge(ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
