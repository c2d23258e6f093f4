"""Measure ten cases repeatedly, and count how many printed intervals contain the next run.

An interval holds if it contains the value of the next run of its case; pairs of runs in different
states of the host (column ``states``) are ignored. Intervals of the shortest time and of the median
are judged separately. With an empty cache folder, the first runs use the variances of other hosts::

    XDG_CACHE_HOME=/tmp/empty python bench/intervals_hold.py --runs 40 --minutes 20
"""

import json
import math
import random
import sys
import time
from typing import Any

import numpy as np
import pandas as pd
from records import Row, add, options, parsed, write

import memkern as mk
from memkern import _memkern

_APART = 1.3  # exchanges within this factor are of one state
# Columns of the records that are kept.
_NAMES = (
    "time_min_s time_min_ci_low_s time_min_ci_high_s time_median_s time_ci_low_s "
    "time_ci_high_s disturbed state states shared_with placement_sd wall_s variant isa"
)


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


def state_of(states: str) -> float:
    """Return the time of an exchange, in ns, in the states of the samples that count."""
    counted = [state["exchange_ns"] for state in json.loads(states or "[]") if state["counts"]]
    return counted[0] if len(counted) == 1 else math.nan


def same(some_ns: pd.Series, other_ns: pd.Series | float) -> pd.Series:
    """Return which records are in the same state, by the times of an exchange; NaN if unknown."""
    other = pd.Series(other_ns, some_ns.index)
    ratio = np.exp(np.abs(np.log(some_ns / other)))
    return (ratio < _APART) | (some_ns.isna() & other.isna())


def judged(frame: pd.DataFrame) -> list[Row]:
    """Print and return coverage and widths of each case and of all, for both quantities."""
    rows: list[Row] = []
    state = frame["states"].map(state_of)
    in_one = same(state.groupby(frame["case"]).shift(-1), state)
    for quantity, value, ends in (
        ("shortest", "time_min_s", "time_min_ci"),
        ("median", "time_median_s", "time_ci"),
    ):
        low, high = frame[f"{ends}_low_s"], frame[f"{ends}_high_s"]
        target = frame.groupby("case")[value].shift(-1)
        judged = in_one & target.notna() & low.notna()
        found = frame.assign(
            half=np.log(high / low) / 2, judged=judged, held=judged & target.between(low, high)
        )
        for name, some in (*found.groupby("case", sort=False), ("all", found)):
            logarithms = np.log(some[value]).groupby(some["case"])
            deviation = float(np.sqrt(logarithms.var().mean()))
            row: Row = {"quantity": quantity, "case": name, "records": len(some)}
            row["with an interval, %"] = 100 * float(some["half"].notna().mean())
            row["judged"] = int(some["judged"].sum())
            row["hold, %"] = 100 * float(some["held"].sum() / max(row["judged"], 1))
            row["half-width, median, %"] = 100 * float(some["half"].median())
            row["standard deviation of runs, %"] = 100 * deviation
            row["half-width over 1.96 of it"] = float(some["half"].median()) / (1.96 * deviation)
            add(rows, row)
    words = frame["state"].value_counts(normalize=True)
    print("; ".join(f"{word} {share:.0%}" for word, share in words.items()))
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
            rows.append({"run": run, "case": name, **{n: record[n] for n in _NAMES.split()}})
        print(f"run {run + 1}, {time.perf_counter() - begin:.0f} s", file=sys.stderr)
        if run + 1 < args.runs:
            due = begin + (run + 1) * 60 * args.minutes / args.runs
            time.sleep(max(0.0, due - time.perf_counter()))
    frame = pd.DataFrame(rows).sort_values(["case", "run"])
    write(args, judged(frame), runs=frame.to_dict("records"))


if __name__ == "__main__":
    main()
