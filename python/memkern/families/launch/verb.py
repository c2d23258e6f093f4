"""The verb machine barrier."""

from __future__ import annotations

import argparse
from typing import Any

from memkern.cli.measuring import (
    check_output,
    exit_code,
    marks,
    save_and_show,
    wait_until_quiet,
    warn_if_not_quiet,
)
from memkern.cli.options import FORCE, UNDERSTAND, WAIT, argument, count, each, numbers, verb


def _barrier(args: argparse.Namespace) -> int:
    from memkern.families.launch.barrier import barrier_cost

    check_output(args)
    warn_if_not_quiet(wait_until_quiet(args), args)
    threads = None if args.threads is None else each(args.threads)
    results = barrier_cost(threads, kinds=args.kinds.split(","), runs=args.runs, pin=args.pin)
    if save_and_show(results, args):
        print(
            f"{'barrier':<12} {'threads':>7} {'ns':>9} {'least':>9} {'greatest':>9} {'cycles':>9}"
        )
        for r in results:
            words = " ".join(marks(r))
            print(f"{r['barrier']:<12} {r['threads']:>7} {_barrier_cells(r)} {words}".rstrip())
    return exit_code(results)


def _barrier_cells(record: dict[str, Any]) -> str:
    """Return the columns of times, or an upper bound if the noise exceeds the barrier's cost."""
    middle, low, high = (1e9 * record[f"barrier_{end}s"] for end in ("", "low_", "high_"))
    if middle <= 0:
        return f"below {high:.1f}" if high > 0 else "below the noise of the work"
    return f"{middle:>9.1f} {max(low, 0):>9.1f} {high:>9.1f} {middle * record['clock_GHz']:>9.0f}"


BARRIER_VERB = verb(
    "machine barrier",
    UNDERSTAND,
    "cost of a barrier, over numbers of threads",
    _barrier,
    (
        "memkern machine barrier",
        "memkern machine barrier -t 1,2,4 --kinds spin",
        "memkern machine barrier --quick --json",
    ),
    argument(
        *("-t", "--threads"),
        type=numbers(1, "threads"),
        metavar="N,...",
        help="numbers of threads (from 1 to all processing units)",
    ),
    argument(
        "--kinds",
        default="omp-passive,omp-active,spin",
        metavar="NAME,...",
        help="barriers: omp-passive, omp-active, spin (all)",
    ),
    argument("--runs", type=count(1), default=10, metavar="N", help="samples (10)"),
    argument(
        "--quick",
        action="store_const",
        dest="runs",
        const=3,
        help="3 runs, about 0.1 s for each number of threads",
    ),
    argument("--pin", default="auto", metavar="HOW", help="auto, none, compact, spread or a list"),
    argument("-o", "--output", metavar="PATH", help=".db, .parquet, .csv or .json"),
    argument("--json", action="store_true", help="records as JSON on standard output"),
    WAIT,
    FORCE,
    argument("-q", "--quiet", action="store_true", help="no table"),
)
