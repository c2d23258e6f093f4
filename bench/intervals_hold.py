"""Measure ten cases again and again, and count how many printed intervals hold for all runs.

An interval holds if it contains the median of its case's medians over all runs::

    memkern calibrate
    python bench/intervals_hold.py --runs 40 --minutes 20
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import numpy as np
import pandas as pd
from records import Row, add, options, parsed, write

import memkern as mk
from memkern import _memkern


def cases() -> dict[str, mk.Case]:
    """Return ten cases from L1 to memory with one worker and with all."""
    brief: dict[str, Any] = {"budget_s": 0.25, "runs": None}
    memory_B = 2 * _memkern.topology()["last_level_cache_B"]
    made = {}
    for threads, words in ((1, "1 thread"), (0, "all threads")):
        how = {**brief, "threads": threads}
        made |= {
            f"copy in 16 KiB, {words}": mk.stream("copy", elements=1024, **how),
            f"triad in 768 KiB, {words}": mk.stream("triad", elements=32768, **how),
            f"gather from 8 MiB, {words}": mk.gather("UNIFORM:8:4:NR", count=2**15, **how),
            f"dot in 16 MiB, {words}": mk.loops("dot", elements=2**20, **how),
            f"copy from memory, {words}": mk.stream("copy", footprint_B=memory_B, **how),
        }
    return made


def judged(frame: pd.DataFrame) -> list[Row]:
    """Print and return coverage and widths of each case and of all."""
    clean = frame[~frame["disturbed"]].copy()
    target = clean.groupby("case")["time_median_s"].transform("median")
    clean["held"] = target.between(clean["time_ci_low_s"], clean["time_ci_high_s"])
    clean["within"] = target.between(clean["within_ci_low_s"], clean["within_ci_high_s"])
    clean["half"] = np.log(clean["time_ci_high_s"] / clean["time_ci_low_s"]) / 2

    def counted(name: str, some: pd.DataFrame) -> Row:
        held, within = some["held"].sum(), some["within"].sum()
        return {"case": name, "records": len(some), "held": held, "held within the run": within}

    rows: list[Row] = []
    width = "half-width over 1.96 of it"
    for name, some in clean.groupby("case", sort=False):
        sd = np.log(some["time_median_s"]).std()
        row = counted(name, some) | {"standard deviation of runs, %": 100 * sd}
        add(rows, row | {width: some["half"].median() / (1.96 * sd)})
    middle = np.median([row[width] for row in rows])
    add(rows, counted("all", clean) | {width: middle})
    add(rows, counted("those marked next run", clean[clean["ci_scope"] == "next run"]))
    print(f"disturbed: {frame['disturbed'].sum()} of {len(frame)}")
    return rows


def main() -> None:
    """Measure and judge."""
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=20.0, help="least time for all runs")
    args = parsed(parser)
    every, rows, begin = cases(), [], time.perf_counter()
    for run in range(args.runs):
        for name in random.sample(list(every), len(every)):
            record = every[name].measure().record
            names = (
                "time_median_s",
                "time_ci_low_s",
                "time_ci_high_s",
                "within_ci_low_s",
                "within_ci_high_s",
                "ci_scope",
                "disturbed",
                "placement_sd",
                "variant",
                "isa",
            )
            rows.append({"run": run, "case": name, **{n: record[n] for n in names}})
        print(f"run {run + 1}, {time.perf_counter() - begin:.0f} s", file=sys.stderr)
        if run + 1 < args.runs:
            due = begin + (run + 1) * 60 * args.minutes / args.runs
            time.sleep(max(0.0, due - time.perf_counter()))
    frame = pd.DataFrame(rows).sort_values(["case", "run"])
    write(args, judged(frame), runs=frame.to_dict("records"))


if __name__ == "__main__":
    main()
