"""Compare one rank of MPI and one of OpenSHMEM with the same kernels without ranks, in turns.

A rank of one thread runs the same code as a process that no launcher has started, so that the times
should agree within the intervals::

    python bench/one_rank.py --turns 7

Every turn measures all kernels in the three ways, in rotating order, on the same processing unit
and in 4 KiB pages. A ratio is the time without ranks over the time of the rank, by the medians of
the turns in which both records are undisturbed, if there are at least four; the intervals hold for
all ratios together (Bonferroni's correction). The exit code is 1 if an interval does not contain 1.
"""

import json
import os
import shlex
import sys
import tempfile
from pathlib import Path

from peers import in_turns, printed
from records import Row, add, interval, options, parsed, write

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
    """Run the comparison, and print and write a row for each case."""
    parser = options(__doc__, turns=7)
    parser.add_argument("--mpi", default="mpirun -n 1 --bind-to none", help="launcher of MPI")
    parser.add_argument(
        "--shmem",
        # Open MPI's OpenSHMEM ends with a segmentation fault in this transport.
        default="oshrun -n 1 --bind-to none --mca btl ^uct",
        help="launcher of OpenSHMEM",
    )
    parser.add_argument("--unit", type=int, default=max(os.sched_getaffinity(0)))
    args = parsed(parser)
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    os.sched_setaffinity(0, {args.unit})
    launchers = {"none": [], "mpi": shlex.split(args.mpi), "shmem": shlex.split(args.shmem)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.toml"
        file.write_text(SWEEP)
        own = [sys.executable, "-m", "memkern", "sweep", str(file), "--json", "-q", "--comm"]
        found = in_turns(
            launchers, args.turns, lambda comm, _: times([*launchers[comm], *own, comm])
        )
    alone = found.pop("none")
    cases = dict.fromkeys(case for some in alone for case in some)
    level = 1 - 0.05 / (len(cases) * len(found))
    rows: list[Row] = []
    apart = []
    for case in cases:
        row: Row = {"case": case}
        for comm, ranks in found.items():
            both = [
                (one[case], rank[case])
                for one, rank in zip(alone, ranks, strict=True)
                if case in one and case in rank
            ]
            if len(both) < _LEAST_TURNS:
                continue
            ratio = ratio_interval(*zip(*both, strict=True), level, paired=True)
            row |= interval(LIBRARIES[comm], ratio)
            if not ratio.low <= 1 <= ratio.high:
                apart.append(f"{case} by {LIBRARIES[comm]}")
        add(rows, row)
    write(args, rows)
    print(f"apart from the process without ranks: {', '.join(apart) or 'none'}")
    return 1 if apart else 0


if __name__ == "__main__":
    raise SystemExit(main())
