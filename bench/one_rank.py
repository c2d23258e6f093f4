"""Compare one rank of MPI and one of OpenSHMEM with the same kernels without ranks, in turns.

A rank of one thread runs the same code as a process that no launcher has started, so that the times
should agree within the intervals::

    python bench/one_rank.py --turns 7

Every turn measures all kernels in the three ways, in rotating order, on the same processing unit
and in 4 KiB pages. A ratio is the time without ranks over that of the rank, by the medians of the
undisturbed records of those turns in which both are; the intervals hold for all ratios together
(Bonferroni's correction). The exit code is 1 if one of them does not contain 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from peers import printed, rotated, with_interval

from memkern.statistics import ratio_interval

_LEAST_TURNS = 4
# Streams and chases in a cache and in memory, indexed accesses, atomics.
SWEEP = """
[defaults]
threads = 1
pages = "4k"

[[case]]
kernel = ["stream.copy", "stream.triad", "loops.dot"]
elements = [1024, 8388608]

[[case]]
kernel = ["gather", "scatter"]
pattern = "UNIFORM:8:8:NR"
count = 262144

[[case]]
kernel = "amo.rand"
iters = 1000000

[[case]]
kernel = "latency.chase"
size_B = ["16KiB", "64MiB"]
"""


def times(words: list[str]) -> dict[str, float]:
    """Return the median seconds of the cases that were not disturbed."""
    found = {}
    for record in json.loads(printed(words)):
        case = f"{record['kernel']}, {record['footprint_B']} B"
        if not record["valid"]:
            raise SystemExit(f"{case} failed its validation")
        if not record["disturbed"]:
            found[case] = float(record["time_median_s"])
    return found


def main() -> int:
    """Run the comparison and print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--mpi", default="mpirun -n 1 --bind-to none", help="launcher of MPI")
    parser.add_argument(
        "--shmem",
        # Open MPI's OpenSHMEM ends with a segmentation fault in this transport.
        default="oshrun -n 1 --bind-to none --mca btl ^uct",
        help="launcher of OpenSHMEM",
    )
    parser.add_argument("--unit", type=int, default=max(os.sched_getaffinity(0)))
    args = parser.parse_args()
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    os.sched_setaffinity(0, {args.unit})
    launchers = {"none": [], "mpi": shlex.split(args.mpi), "shmem": shlex.split(args.shmem)}
    # Seconds by case and turn.
    found: dict[str, dict[str, dict[int, float]]] = {comm: defaultdict(dict) for comm in launchers}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.toml"
        file.write_text(SWEEP)
        own = [sys.executable, "-m", "memkern", "sweep", str(file), "--json", "-q", "--comm"]
        for turn in range(args.turns):
            for comm in rotated(list(launchers), turn):
                for case, seconds in times([*launchers[comm], *own, comm]).items():
                    found[comm][case][turn] = seconds
            print(f"  turn {turn + 1} of {args.turns} done", file=sys.stderr)
    alone = found.pop("none")
    level = 1 - 0.05 / (len(alone) * len(found))
    apart = []
    for case, by_turn in alone.items():
        words = []
        for comm, ranks in found.items():
            turns = sorted(by_turn.keys() & ranks[case].keys())
            without, with_ranks = (
                [side[turn] for turn in turns] for side in (by_turn, ranks[case])
            )
            if len(turns) < _LEAST_TURNS:
                words.append(f"{comm} {len(turns)} turns undisturbed")
                continue
            ratio = ratio_interval(without, with_ranks, level, paired=True)
            words.append(f"{comm} {with_interval(ratio)}")
            if not ratio.low <= 1 <= ratio.high:
                apart.append(f"{case} by {comm}")
        print(f"{case:<32} {'  '.join(words)}")
    print(f"apart from the process without ranks: {', '.join(apart) or 'none'}")
    return 1 if apart else 0


if __name__ == "__main__":
    raise SystemExit(main())
