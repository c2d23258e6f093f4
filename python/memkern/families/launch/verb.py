"""The verb machine barrier."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

from memkern.cli.measuring import (
    check_output,
    exit_code,
    save_and_show,
    wait_until_quiet,
    warn_if_not_quiet,
)
from memkern.cli.options import FORCE, UNDERSTAND, WAIT, argument, count, each, numbers, verb
from memkern.cli.tables import Record, Table, cell


def _barrier(args: argparse.Namespace) -> int:
    from memkern.families.launch.barrier import barrier_cost

    check_output(args)
    warn_if_not_quiet(wait_until_quiet(args), args)
    threads = None if args.threads is None else each(args.threads)
    results = barrier_cost(threads, kinds=args.kinds.split(","), runs=args.runs, pin=args.pin)
    if save_and_show(results, args):
        print("\n".join(_TABLE.lines(results)))
    return exit_code(results)


def _time(end: str) -> Callable[[Record], Any]:
    """Return the column of a time, or for the middle an upper bound if noise exceeds the cost."""

    def value(record: Record) -> Any:
        ns, high_ns = 1e9 * record[f"barrier_{end}s"], 1e9 * record["barrier_high_s"]
        if record["barrier_s"] > 0:
            return max(ns, 0.0)
        if end:
            return ""
        return f"below {high_ns:.1f}" if high_ns > 0 else "below the noise of the work"

    return value


def _cycles(record: Record) -> float:
    return 1e9 * record["barrier_s"] * record["clock_GHz"] if record["barrier_s"] > 0 else math.nan


_TABLE = Table(
    (
        cell("barrier", "<12"),
        cell("threads", ">7"),
        cell("ns", ">9.1f", value=_time("")),
        cell("least", ">9.1f", value=_time("low_")),
        cell("greatest", ">9.1f", value=_time("high_")),
        cell("cycles", ">9.0f", value=_cycles),
    )
)


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
