"""Compare memkern's atomics with CircusTent's OpenMP, MPI or OpenSHMEM build, in turns.

CircusTent is built elsewhere with its own flags; this script only runs it::

    python bench/beside_circustent.py --circustent /path/to/circustent
    python bench/beside_circustent.py --mpi /path/to/circustent-mpi
    python bench/beside_circustent.py --shmem /path/to/circustent-shmem

Its eight ADD kernels perform the same operation. Its CAS kernels can't be compared: the expected
value is the target itself or the value of the last round, so that no swap or most swaps fail. Each
turn runs every kernel on both sides in rotating order, with the same VAL, iterations, workers and
rule of indices, in 4 KiB pages. CircusTent times one pass; memkern's median over several passes is
compared with the median of the same number of CircusTent's runs.

CircusTent's pointer chase soon repeats a short cycle, which differs between runs. The rate of two
workers depends on whether they end in the same cycle, so the chase here has one worker, and
different indices in each turn.

Over ranks with one thread each, all operations access words of the next rank, as in CircusTent,
except the chase, which accesses random ranks. VAL of a rank has one word per iteration.
CircusTent's MPI flushes each operation; `--flush-every` is memkern's number of operations in a
batch.
"""

import argparse
import re
from typing import Any

import numpy as np
from peers import in_turns, judge, launcher, printed, printed_record, valid_record
from records import Row, add, interval, options, parsed, write

import memkern as mk
from memkern.families.amo.kernels import PATTERNS
from memkern.statistics import Ratio, ratio_interval


def workers(args: argparse.Namespace, pattern: str) -> int:
    """Return the number of workers for a pattern."""
    return 1 if pattern == "ptrchase" and not args.device else args.threads


def circustent(args: argparse.Namespace, pattern: str) -> float:
    """Return the seconds of one pass."""
    sizes = {"-m": args.memsize, "-p": workers(args, pattern), "-i": args.iters}
    words = [*args.launcher, args.circustent, "-b", f"{pattern.upper()}_ADD"]
    for flag, value in sizes.items():
        words += [flag, value]
    if pattern == "striden":
        words += ["-s", args.stride]
    found = re.search(r"Timing \(secs\)\s*:\s*(\S+)", printed(words))
    if found is None:
        raise SystemExit(f"{' '.join(map(str, words))} printed no timing")
    return float(found[1])


def in_this_process(args: argparse.Namespace, name: str, seed: int) -> float:
    """Return the median seconds of memkern's passes."""
    own: dict[str, Any] = {"stride": args.stride} if name == "striden" else {}
    if mk.registry()[f"amo.{name}"].indices:
        own["indices"] = "circustent"
    case = mk.amo(
        name,
        iters=args.iters,
        memsize=args.memsize,
        threads=workers(args, name),
        pages="4k",
        pin="compact",
        runs=args.runs,
        seed=seed,
        **own,
    )
    return float(valid_record(case, name)["time_median_s"])


def over_ranks(args: argparse.Namespace, name: str, seed: int) -> float:
    """Return the median seconds of memkern's passes over ranks."""
    words: list[object] = ["amo", "--kernel", name]
    options = {
        "--device": args.device,
        "--targets": "random" if name == "ptrchase" else "ring",
        "--returns": "used",
        "--iters": args.iters,
        "--flush-every": args.flush_every,
        "--runs": args.runs,
        "--seed": seed,
    }
    for flag, value in options.items():
        words += [flag, value]
    if name == "striden":
        words += ["--stride", args.stride]
    return float(printed_record(args.launcher, words)["time_median_s"])


def main() -> None:
    """Print and write rates and ratios."""
    parser = options(__doc__, turns=7)
    peer = parser.add_mutually_exclusive_group(required=True)
    peer.add_argument("--circustent", metavar="PATH", help="executable of the OpenMP build")
    peer.add_argument("--mpi", metavar="PATH", help="executable of the MPI build")
    peer.add_argument("--shmem", metavar="PATH", help="executable of the OpenSHMEM build")
    parser.add_argument("--runs", type=int, default=5, help="passes of each side a turn")
    parser.add_argument("--threads", type=int, default=2, help="or ranks")
    parser.add_argument("--iters", type=int, default=2_000_000)
    parser.add_argument("--memsize", type=int, default=256_000_000)
    parser.add_argument("--stride", type=int, default=8)
    parser.add_argument("--flush-every", type=int, default=1)
    parser.add_argument("--patterns", default=",".join(PATTERNS))
    args = parsed(parser)
    args.device = "mpi" if args.mpi else "shmem" if args.shmem else ""
    args.launcher = []
    if args.device:
        args.circustent = args.mpi or args.shmem
        args.launcher = launcher(args.device, args.threads)
    memkern = over_ranks if args.device else in_this_process

    def both(name: str, turn: int) -> tuple[float, float]:
        if args.device:
            args.memsize = 8 * args.iters * (args.stride if name == "striden" else 1)
        ours = memkern(args, name, turn)
        return ours, float(np.median([circustent(args, name) for _ in range(args.runs)]))

    rows: list[Row] = []
    ratios: dict[str, Ratio] = {}
    for name, found in in_turns(args.patterns.split(","), args.turns, both).items():
        ours, theirs = np.transpose(found)
        ratios[name] = ratio_interval(theirs, ours, paired=True)
        number = workers(args, name)
        millions = args.iters * number * mk.registry()[f"amo.{name}"].counts.amos / 1e6
        row = {"pattern": name, "workers": number, "memkern, million/s": millions / np.median(ours)}
        row |= {"CircusTent, million/s": millions / np.median(theirs)}
        add(rows, row | interval("ratio", ratios[name]))
    write(args, rows)
    judge(ratios)


if __name__ == "__main__":
    main()
