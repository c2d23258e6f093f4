"""Measure ten cases again and again, and count how many printed intervals hold for all runs.

An interval holds if it contains the median of its case's medians over all runs::

    memkern calibrate
    python bench/intervals_hold.py --runs 40 --minutes 20
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import Any

import numpy as np
import pandas as pd

import memkern as mk
from memkern import _memkern


def cases() -> list[mk.Case]:
    """Return ten cases from L1 to memory with one worker and with all."""
    brief: dict[str, Any] = {"budget_s": 0.25, "runs": None}
    memory_B = 2 * _memkern.topology()["last_level_cache_B"]
    made = []
    for threads in (1, 0):
        how = {**brief, "threads": threads}
        made += [
            mk.stream("copy", elements=1024, **how),
            mk.stream("triad", elements=32768, **how),
            mk.gather("UNIFORM:8:4:NR", count=2**15, **how),
            mk.loops("dot", elements=2**20, **how),
            mk.stream("copy", footprint_B=memory_B, **how),
        ]
    return made


def judge(frame: pd.DataFrame) -> None:
    """Print coverage and widths of each case and of all."""
    print(
        f"{'case':<30} {'held':>9} {'sd of runs':>10} {'half width':>10} {'of 1.96 sd':>10} "
        f"{'within run held':>15}"
    )
    held_all, total, widths = 0, 0, []
    for name, rows in frame.groupby("case", sort=False):
        clean = rows[~rows["disturbed"]]
        target = clean["time_median_s"].median()
        held = ((clean["time_ci_low_s"] <= target) & (target <= clean["time_ci_high_s"])).sum()
        within = (
            (clean["within_ci_low_s"] <= target) & (target <= clean["within_ci_high_s"])
        ).sum()
        sd = float(np.log(clean["time_median_s"]).std())
        half = float(np.log(clean["time_ci_high_s"] / clean["time_ci_low_s"]).median() / 2)
        held_all, total = held_all + held, total + len(clean)
        widths.append(half / (1.96 * sd))
        print(
            f"{name:<30} {held:>4}/{len(clean):<4} {sd:>10.2%} {half:>10.2%} "
            f"{half / (1.96 * sd):>10.2f} {within:>10}/{len(clean):<4}"
        )
    print(
        f"held: {held_all} of {total}, {held_all / total:.1%}; median half width over "
        f"1.96 standard deviations: {np.median(widths):.2f}; disturbed: "
        f"{frame['disturbed'].sum()} of {len(frame)}; scope {set(frame['ci_scope'])}"
    )


def main() -> None:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=20.0, help="least time for all runs")
    parser.add_argument("-o", "--output", help="CSV file of all records")
    args = parser.parse_args()
    every, rows, begin = cases(), [], time.perf_counter()
    for run in range(args.runs):
        for number in random.sample(range(len(every)), len(every)):
            record = every[number].measure().record
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
            label = f"{record['kernel']} {record['footprint_B']} B, {record['threads']} threads"
            rows.append({"run": run, "case": label, **{n: record[n] for n in names}})
        print(f"run {run + 1}, {time.perf_counter() - begin:.0f} s", file=sys.stderr)
        if run + 1 < args.runs:
            due = begin + (run + 1) * 60 * args.minutes / args.runs
            time.sleep(max(0.0, due - time.perf_counter()))
    frame = pd.DataFrame(rows).sort_values(["case", "run"])
    if args.output:
        frame.to_csv(args.output, index=False)
    judge(frame)


if __name__ == "__main__":
    main()
