"""Measure forty cases together with 0, 1, 2 and 4 busy loops, pinned and not pinned.

A record marked as quiet must be right: its interval, widened by half, contains the median of the
shortest times of the runs without loops. A record with loops names them, and its interval contains
the next run with the same number of loops. Only records in the same state of the host are
compared::

    python bench/beside_competitors.py --rounds 7
"""

import argparse
import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pandas as pd
from intervals_hold import same, with_next
from records import Row, program

import memkern as mk
from memkern import _memkern
from memkern.engine.placing.run import CaseRun, calibrated
from memkern.host.environment import machine_environment

_NAMES = (
    "kernel threads variant isa variant_loss time_min_s time_min_ci_low_s time_min_ci_high_s "
    "time_median_s disturbed state states shared_with cpu_share waited_share core_share "
    "samples samples_disturbed valid"
)


def cases(budget_s: float) -> list[mk.Case]:
    """Return twenty cases from L1 to memory, each with one worker and with all."""
    brief: dict[str, Any] = {"budget_s": budget_s, "runs": None}
    memory_B = 2 * _memkern.topology()["last_level_cache_B"]
    made = []
    for threads in (1, 0):
        how = {**brief, "threads": threads}
        made += [
            mk.stream(k, elements=n, **how) for k in ("copy", "triad") for n in (1024, 65536, 2**21)
        ]
        made += [mk.loops("load", elements=2048, repetition="free", **how)]
        made += [mk.loops("dot", elements=n, **how) for n in (4096, 2**19)]
        made += [
            mk.gather(f"UNIFORM:8:{s}:NR", count=c, **how)
            for s, c in ((1, 4096), (8, 4096), (4, 2**17))
        ]
        made += [mk.scatter("UNIFORM:8:4:NR", count=c, **how) for c in (512, 2**15)]
        made += [mk.bs(2, elements=n, **how) for n in (8192, 2**20)]
        made += [mk.raider("triad", 2**18, **how)]
        made += [mk.amo("stride1", iters=2**14, **how), mk.amo("rand", iters=2**12, **how)]
        made += [mk.stream("copy", footprint_B=memory_B, **how)]
    return made


@contextlib.contextmanager
def competitors(count: int, pinned: bool) -> Iterator[None]:
    """Run busy loops, pinned to one unit each (shared if there are too few) or not pinned."""
    units = sorted(os.sched_getaffinity(0))

    def bind(k: int) -> None:
        if pinned:
            os.sched_setaffinity(0, {units[k % len(units)]})

    loops = [
        subprocess.Popen(["sh", "-c", "while :; do :; done"], preexec_fn=lambda k=k: bind(k))
        for k in range(count)
    ]
    time.sleep(0.1 if count else 0.0)
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure_all(
    every: list[mk.Case], order: random.Random, how: dict[str, Any]
) -> list[dict[str, Any]]:
    """Measure all cases once, in random order."""
    machine, rows = machine_environment(), []
    for number in order.sample(range(len(every)), len(every)):
        run = CaseRun(every[number])
        start = time.perf_counter()
        for _ in range(every[number].placements):
            run.place()
        record = calibrated(run, machine).record
        found = {name: record[name] for name in _NAMES.split()}
        rows.append({**found, **how, "case": number, "seconds": time.perf_counter() - start})
    return rows


def judged(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield the shares of records that are right, and that hold for the next run."""
    by = ("case", "competitors", "pinned")
    frame = with_next(frame.assign(run=frame.groupby(list(by)).cumcount()), "shortest", by)
    alone = frame[frame["competitors"] == 0]
    target = pd.Series(
        [
            alone["value"][alone["case"].eq(case) & same(alone["exchange_ns"], ns)].median()
            for case, ns in zip(frame["case"], frame["exchange_ns"], strict=True)
        ],
        frame.index,
    )
    low, high = frame["time_min_ci_low_s"], frame["time_min_ci_high_s"]
    wider = (frame["value"] / low) ** 0.5
    outside = (target < low / wider) | (target > high * wider)
    frame = frame.assign(
        wrong=outside & frame["state"].eq("quiet"), named=frame["shared_with"].ne("")
    )
    for (count, pinned), some in frame.groupby(["competitors", "pinned"]):
        how = f", {'pinned' if pinned else 'free'}" if count else ""
        row: Row = {"competitors": f"{count}{how}", "records": len(some)}
        for state in ("quiet", "shared", "disturbed"):
            row[f"{state}, %"] = 100 * float((some["state"] == state).mean())
        row["quiet and wrong, %"] = 100 * float(some["wrong"].mean())
        row["names a program, %"] = 100 * float(some["named"].mean())
        row["holds the next run, %"] = 100 * float(some["held"][some["judged"]].mean())
        ones = some[some["threads"] == 1]
        yield row | {"interval, 1 thread, %": 100 * float(ones["time_min_ci_low_s"].notna().mean())}


def measured(args: argparse.Namespace) -> Iterator[Any]:
    """Measure beside loops, and judge."""
    order, every, rows = random.Random(args.seed), cases(args.budget), []
    loaded = [(count, pinned) for count in (1, 2, 4) for pinned in (False, True)]
    for number in range(args.rounds):
        turns = order.sample(loaded, len(loaded))
        # Two runs without loops among the runs with loops of every round.
        for count, pinned in [(0, False), *turns[:3], (0, False), *turns[3:]]:
            with competitors(count, pinned):
                how = {"competitors": count, "pinned": pinned, "round": number}
                rows += measure_all(every, order, how)
            print(f"round {number + 1}, {count} competitors", file=sys.stderr)
    yield from judged(pd.DataFrame(rows))
    for row in rows:
        yield "runs", row


OPTIONS = {"--rounds": 7, "--seed": 1, "--budget": (0.1, "seconds for a case")}
main = program(__doc__, measured, OPTIONS)

if __name__ == "__main__":
    raise SystemExit(main())
