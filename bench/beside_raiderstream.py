"""Compare memkern's RaiderSTREAM kernels over ranks with RaiderSTREAM's own, in turns.

The peer is built elsewhere with its own release flags; this script only runs it::

    python bench/beside_raiderstream.py --raiderstream /path/to/raiderstream-mpi
    export SHMEM_SYMMETRIC_HEAP_SIZE=1G LAUNCHER="oshrun --mca btl ^uct"
    python bench/beside_raiderstream.py --comm shmem --launcher "$LAUNCHER" --raiderstream PATH

Both are started by the same launcher, with one thread per rank, in 4 KiB pages, with the same total
number of elements. RaiderSTREAM runs every kernel once. Its sequential kernels come first and are
left out: copy, scale and triad include the page faults of c, b and a, and add reads a before it is
written. memkern's time of a turn is the median of its samples. Bandwidths are memkern's bytes over
each side's time.
"""

import json
import re
import shlex
import sys

import numpy as np
from peers import in_turns, judge, printed
from records import Row, add, interval, options, parsed, write

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


def peer(words: list[str], elements: int, ranks: int) -> list[float]:
    """Return the seconds that RaiderSTREAM prints, in the order of the kernels."""
    text = printed([*words, "-k", "all", "-s", elements, "-np", ranks])
    rows = dict(re.findall(r"^([A-Z][A-Za-z -]+?)\s+([0-9.]+)\s", text, re.MULTILINE))
    return [float(rows[name]) for name in KERNELS]


def main() -> int:
    """Print and write rates and ratios."""
    parser = options(__doc__, turns=7)
    parser.add_argument("--raiderstream", required=True, help="executable of the peer")
    parser.add_argument("--comm", choices=("mpi", "shmem"), default="mpi")
    parser.add_argument("--launcher", default="mpirun", help="with its options")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--elements", type=int, default=20_000_000, help="of all ranks together")
    args = parsed(parser)
    launch = [*shlex.split(args.launcher), "-n", str(args.ranks)]
    own = [*launch, sys.executable, "-m", "memkern", "raider", "-k", ",".join(KERNELS.values())]
    own += ["-n", str(args.elements // args.ranks), "-t", "1", "--pages", "4k", "--json", "-q"]
    own += ["--budget", "0.5", "--definition", "release", "--comm", args.comm]
    bytes_B: dict[str, int] = {}

    def seconds(who: str, _: int) -> list[float]:
        if who == "peer":
            return peer([*launch, args.raiderstream], args.elements, args.ranks)
        records = {r["kernel"].partition(".")[2]: r for r in json.loads(printed(own))}
        bytes_B.update({name: records[name]["bytes_B"] for name in KERNELS.values()})
        return [records[name]["time_median_s"] for name in KERNELS.values()]

    found = in_turns(("memkern", "peer"), args.turns, seconds)
    rows: list[Row] = []
    ratios = {}
    sides = (np.transpose(found[who]) for who in ("memkern", "peer"))
    for name, ours, theirs in zip(KERNELS.values(), *sides, strict=True):
        ratios[name] = ratio_interval(theirs, ours, paired=True)
        own_GBps, GBps = (bytes_B[name] / np.median(side) / 1e9 for side in (ours, theirs))
        row = {"kernel": name, "memkern, GB/s": own_GBps, "RaiderSTREAM, GB/s": GBps}
        add(rows, row | interval("ratio", ratios[name]))
    write(args, rows)
    return 0 if judge(ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
