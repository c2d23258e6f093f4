"""Compare one rank of MPI and one of OpenSHMEM with the same kernels without ranks, in turns.

A rank of one thread runs the same code as a process that no launcher has started, so that the times
should agree within the intervals. All run on the same processing unit and in 4 KiB pages. A ratio
is the time without ranks over the time of the rank, by the medians of the turns in which both
records are undisturbed, if there are at least four; the intervals hold for all ratios together
(Bonferroni's correction). The exit code is 1 if an interval does not contain 1.
"""

import argparse
import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

from peers import ROOT_MAY, in_turns, records_of
from records import Row, interval, program

from memkern.statistics import ratio_interval

_LEAST_TURNS = 4
LIBRARIES = {"mpi": "MPI", "shmem": "OpenSHMEM"}
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


def times(words: list[str], launcher: list[str]) -> dict[str, float]:
    """Return the median seconds of the cases that were not disturbed."""
    return {
        f"{record['kernel']}, {record['footprint_B']} B": float(record["time_median_s"])
        for record in records_of(*words, launcher=launcher)
        if not record["disturbed"]
    }


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each case."""
    os.environ |= ROOT_MAY
    os.sched_setaffinity(0, {args.unit})
    launchers = {"none": [], "mpi": shlex.split(args.mpi), "shmem": shlex.split(args.shmem)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.toml"
        file.write_text(SWEEP)
        found = in_turns(
            launchers,
            args.turns,
            lambda comm: times(["sweep", str(file), "--comm", comm], launchers[comm]),
        )
    alone = found.pop("none")
    cases = dict.fromkeys(case for some in alone for case in some)
    level = 1 - 0.05 / (len(cases) * len(found))
    for case in cases:
        row: Row = {"case": case}
        for comm, ranks in found.items():
            both = [
                (one[case], rank[case])
                for one, rank in zip(alone, ranks, strict=True)
                if case in one and case in rank
            ]
            if len(both) >= _LEAST_TURNS:
                ratio = ratio_interval(*zip(*both, strict=True), level, paired=True)
                row |= interval(LIBRARIES[comm], ratio)
        yield row


def alike(rows: list[Row]) -> bool:
    """Print which intervals do not contain 1, and return whether all do."""
    apart = [
        f"{row['case']} by {name}"
        for row in rows
        for name in LIBRARIES.values()
        if name in row and not row[f"{name} low"] <= 1 <= row[f"{name} high"]
    ]
    print(f"apart from the process without ranks: {', '.join(apart) or 'none'}")
    return not apart


OPTIONS = {
    "--mpi": ("mpirun -n 1 --bind-to none", "launcher of MPI"),
    # Open MPI's OpenSHMEM ends with a segmentation fault in this transport.
    "--shmem": ("oshrun -n 1 --bind-to none --mca btl ^uct", "launcher of OpenSHMEM"),
    "--unit": max(os.sched_getaffinity(0)),
}
main = program(__name__, __doc__, measured, OPTIONS, turns=7, judge=alike)
