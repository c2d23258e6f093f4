"""Measure forty cases together with 0, 1, 2 and 4 busy loops, pinned and not pinned.

A record that is not marked as disturbed must be right: its median differs from that of the quiet
runs by at most 10 %, or by at most the width of their 5th to 95th percentile where that is wider.
Quiet runs that are disturbed by neighbours are repeated; the reference of a case are its
undisturbed quiet runs::

    python bench/beside_competitors.py --rounds 7
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pandas as pd
from records import Row, add, options, parsed, write

import memkern as mk
from memkern import _memkern
from memkern.engine.run import CaseRun
from memkern.machine.topology import machine_environment

# Cases with fewer undisturbed quiet runs are not judged.
LEAST_QUIET = 7


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
    every: list[mk.Case], chosen: set[int], order: random.Random, how: dict[str, Any]
) -> list[dict[str, Any]]:
    """Measure the chosen cases once, in random order."""
    machine, rows = machine_environment(), []
    for number in order.sample(sorted(chosen), len(chosen)):
        run = CaseRun(every[number])
        start = time.perf_counter()
        for _ in range(every[number].placements):
            run.place()
        record = run.measurement(machine).record
        names = (
            "kernel",
            "threads",
            "variant",
            "isa",
            "variant_choice",
            "time_median_s",
            "disturbed",
            "ci_relative",
            "cpu_share",
            "core_share",
            "samples",
            "samples_disturbed",
            "valid",
        )
        rows.append(
            {
                **{n: record[n] for n in names},
                **how,
                "case": number,
                "seconds": time.perf_counter() - start,
            }
        )
    return rows


def judged(frame: pd.DataFrame) -> list[Row]:
    """Print and return how many records were wrong without being marked."""
    quiet = frame[(frame["competitors"] == 0) & ~frame["disturbed"]].groupby("case")[
        "time_median_s"
    ]
    low, middle, high = quiet.quantile(0.05), quiet.median(), quiet.quantile(0.95)
    few = sorted(set(frame["case"]) - set(quiet.size()[quiet.size() >= LEAST_QUIET].index))
    print(
        f"undisturbed quiet runs of a case: {quiet.size().min()} to {quiet.size().max()}; "
        f"not judged, with fewer than {LEAST_QUIET}: {len(few)} of {frame['case'].nunique()}"
    )
    frame = frame[~frame["case"].isin(few) & (frame["attempt"] == 0)].copy()
    at = frame["case"]
    time_s = frame["time_median_s"]
    spread = at.map((high - low) / middle)
    frame["off"] = time_s / at.map(middle) - 1
    frame["wrong"] = (frame["off"].abs() > spread.clip(lower=0.10)) & ~frame["disturbed"]
    frame["tight"] = frame["wrong"] & (frame["off"].abs() > frame["ci_relative"])
    frame["near"] = (frame["off"].abs() <= spread.clip(lower=0.05)) & ~frame["disturbed"]
    frame["single"] = frame["threads"] == 1
    rows: list[Row] = []
    for (count, pinned), some in frame.groupby(["competitors", "pinned"]):
        how = f", {'pinned' if pinned else 'free'}" if count else ""
        row = {"competitors": f"{count}{how}", "records": len(some)}
        for name, values in {
            "disturbed": some["disturbed"],
            "wrong and not marked": some["wrong"],
            "interval excludes the quiet value": some["tight"],
            "near, 1 thread": some.loc[some["single"], "near"],
        }.items():
            row[f"{name}, %"] = 100 * values.mean()
        add(rows, row)
    print(
        f"wrong and not marked: {frame['wrong'].sum()} of {len(frame)}, "
        f"{frame['wrong'].mean():.2%}; with an interval that excludes the quiet value: "
        f"{frame['tight'].mean():.2%}"
    )
    worst = frame[frame["wrong"]].sort_values("off", key=abs, ascending=False).head(12)
    columns = [
        "kernel",
        "case",
        "threads",
        "variant",
        "isa",
        "variant_choice",
        "competitors",
        "pinned",
        "off",
        "ci_relative",
        "cpu_share",
        "core_share",
        "samples",
        "samples_disturbed",
    ]
    print(worst[columns].to_string(index=False, float_format=lambda x: f"{x:.3f}"))
    return rows


def main() -> None:
    """Measure and judge."""
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=float, default=0.1, help="seconds for a case")
    parser.add_argument("--attempts", type=int, default=4, help="at an undisturbed quiet run")
    args = parsed(parser)
    order, every, rows = random.Random(args.seed), cases(args.budget), []
    loaded = [(count, pinned) for count in (1, 2, 4) for pinned in (False, True)]
    begin = time.perf_counter()
    for number in range(args.rounds):
        turns = order.sample(loaded, len(loaded))
        # Two quiet runs among the loaded ones of every round.
        for count, pinned in [(0, False), *turns[:3], (0, False), *turns[3:]]:
            with competitors(count, pinned):
                how = {"competitors": count, "pinned": pinned, "round": number}
                left = set(range(len(every)))
                for attempt in range(1 if count else args.attempts):
                    found = measure_all(every, left, order, {**how, "attempt": attempt})
                    left = {row["case"] for row in found if row["disturbed"]}
                    rows += found
            print(
                f"round {number + 1}, {count} competitors, {time.perf_counter() - begin:.0f} s",
                file=sys.stderr,
            )
    frame = pd.DataFrame(rows)
    write(args, judged(frame), runs=frame.to_dict("records"))


if __name__ == "__main__":
    main()
