"""Compare memkern's atomics with CircusTent's OpenMP, MPI or OpenSHMEM build, in turns.

Its eight ADD kernels perform the same operation. Its CAS kernels can't be compared: the expected
value is the target itself or the value of the last round, so that no swap or most swaps fail. Both
sides have the same VAL, iterations, workers and rule of indices, in 4 KiB pages. CircusTent times
one pass; memkern's median over several passes is compared with the median of the same number of
CircusTent's runs.

CircusTent's pointer chase soon repeats a short cycle, which differs between runs. The rate of two
workers depends on whether they end in the same cycle, so the chase here has one worker, and
different indices in each turn.

Over ranks with one thread each, all operations access words of the next rank, as in CircusTent,
except the chase, which accesses random ranks. VAL of a rank has one word per iteration.
CircusTent's MPI flushes each operation; `--flush-every` is memkern's number of operations in a
batch.
"""

import argparse
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from peers import as_fast, beside, in_turns, launcher, printed, records_of, seconds_of
from records import Row, program

import memkern as mk
from memkern.families.amo.kernels import PATTERNS


def circustent_s(args: argparse.Namespace, pattern: str, workers: int, memsize: int) -> float:
    """Return the seconds of one pass by CircusTent."""
    words = [*args.launcher, args.circustent, "-b", f"{pattern.upper()}_ADD", "-m", memsize]
    words += ["-p", workers, "-i", args.iters]
    if pattern == "striden":
        words += ["-s", args.stride]
    found = re.search(r"Timing \(secs\)\s*:\s*(\S+)", printed(words))
    if found is None:
        raise SystemExit(f"{' '.join(map(str, words))} printed no timing")
    return float(found[1])


def memkern_s(args: argparse.Namespace, pattern: str, workers: int) -> float:
    """Return the median seconds of memkern's passes, over ranks or threads."""
    seed = random.randrange(2**31)
    how: dict[str, Any] = {"iters": args.iters, "runs": args.runs, "seed": seed}
    how |= {"stride": args.stride} if pattern == "striden" else {}
    if args.device:
        how |= {"device": args.device, "returns": "used", "flush-every": args.flush_every}
        how |= {"targets": "random" if pattern == "ptrchase" else "ring"}
        words = [word for name, value in how.items() for word in (f"--{name}", value)]
        (record,) = records_of("amo", "--kernel", pattern, *words, launcher=args.launcher)
        return float(record["time_median_s"])
    how |= {"threads": workers, "pages": "4k", "pin": "compact"}
    kernel = mk.registry()[f"amo.{pattern}"]
    how |= {"indices": "circustent"} if kernel.indices else {}
    if "memsize" in kernel.inputs:
        how["memsize"] = args.memsize
    return seconds_of(mk.amo(pattern, **how), pattern)[pattern]


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each pattern."""
    args.device = "mpi" if args.mpi else "shmem" if args.shmem else ""
    args.circustent = args.circustent or args.mpi or args.shmem
    if not args.circustent:
        raise SystemExit("name CircusTent's executable: --circustent, --mpi or --shmem")
    args.launcher = launcher(args.device, args.threads) if args.device else []
    workers = dict.fromkeys(args.patterns.split(","), args.threads)
    if not args.device and "ptrchase" in workers:
        workers["ptrchase"] = 1

    def both_s(name: str) -> tuple[float, float]:
        stride = args.stride if name == "striden" else 1
        memsize = 8 * args.iters * stride if args.device else args.memsize
        theirs = [circustent_s(args, name, workers[name], memsize) for _ in range(args.runs)]
        return memkern_s(args, name, workers[name]), float(np.median(theirs))

    for name, found in in_turns(workers, args.turns, both_s).items():
        ours, theirs = zip(*found, strict=True)
        millions = args.iters * workers[name] * mk.registry()[f"amo.{name}"].counts.amos / 1e6
        row = {"pattern": name, "workers": workers[name]}
        yield row | beside("CircusTent", "million/s", {"": ours}, {"": theirs}, millions)


OPTIONS = {
    "--circustent": {"metavar": "PATH", "help": "executable of the OpenMP build"},
    "--mpi": {"metavar": "PATH", "help": "executable of the MPI build"},
    "--shmem": {"metavar": "PATH", "help": "executable of the OpenSHMEM build"},
    "--runs": (5, "passes of each side a turn"),
    "--threads": (2, "or ranks"),
    "--iters": 2_000_000,
    "--memsize": 256_000_000,
    "--stride": 8,
    "--flush-every": 1,
    "--patterns": ",".join(PATTERNS),
}
main = program(__name__, __doc__, measured, OPTIONS, turns=7, judge=as_fast)
