"""Measure ten cases repeatedly, and count how many printed intervals contain the next run.

An interval holds if it contains the value of the next run of its case; pairs of runs in different
states of the host (column ``states``) are ignored. Intervals of the shortest time and of the median
are judged separately. Scores are Winkler's of the logarithms (width, and 40 times what is missed),
over those of an oracle, the 2.5 and 97.5 % quantiles of the runs of the case in its most frequent
state, and over those of the best constant width. With ``--first``, each run is the first command
after a boot; ``--commands`` runs three command lines instead, of which the second one has indices
of its own and the third one a matrix with random columns; ``--precision 5`` gives each run this
precision::

    python bench/intervals_hold.py --first --runs 40 --minutes 10
    XDG_CACHE_HOME=/tmp/empty python bench/intervals_hold.py --commands --runs 30
    python bench/intervals_hold.py --precision 5 --runs 8
"""

import json
import math
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from records import Row, add, options, parsed, write

import memkern as mk
from memkern import _memkern
from memkern.engine.placing.run import LARGE_B, CaseRun, calibrated
from memkern.host import Host, this_host
from memkern.host.environment import machine_environment

_LEAST_PAIRS = 10  # of a case with a score
_APART = 1.3  # exchanges within this factor are of one state
# Columns of the records that are kept.
_NAMES = (
    "time_min_s time_min_ci_low_s time_min_ci_high_s time_median_s time_ci_low_s "
    "time_ci_high_s disturbed state states shared_with placements placement_sd wall_s stop variant "
    "isa"
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


def first_of(case: mk.Case) -> dict[str, Any]:
    """Return the record of a case as the first command after a boot would measure it."""
    known, host = this_host(), Host()
    host.measured = known.measured
    if known.caches is not None:
        host.keep_caches(known.caches)
    run, machine = CaseRun(case, host=host), machine_environment()
    while not run.complete:
        if run.placements:
            _memkern.release_memory(LARGE_B)
        run.place()
    return calibrated(run, machine).record


def commands(folder: Path) -> dict[str, list[str]]:
    """Return command lines by name, and write what they read to a folder."""
    rng, rows = np.random.default_rng(1), 20_000
    (folder / "own.json").write_text(
        json.dumps(
            [
                {
                    "kernel": "Gather",
                    "delta": 8,
                    "count": 2**15,
                    "pattern": rng.integers(0, 2**16, 64).tolist(),
                }
            ]
        )
    )
    columns = rng.integers(0, rows, (rows, 20))
    entries = [f"{row + 1} {column + 1} 1.0" for row in range(rows) for column in columns[row]]
    lines = ["%%MatrixMarket matrix coordinate real general", f"{rows} {rows} {len(entries)}"]
    (folder / "random.mtx").write_text("\n".join([*lines, *entries]) + "\n")
    return {
        "stream": ["stream", "-k", "triad"],
        "own indices": ["spatter", "-f", str(folder / "own.json")],
        "random columns": ["spmv", str(folder / "random.mtx"), "--format", "crs"],
    }


def record_of(words: list[str]) -> dict[str, Any]:
    """Return the record that a command prints."""
    command = [sys.executable, "-m", "memkern", *words, "--json", "-q"]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    record: dict[str, Any] = json.loads(found.stdout)[0]
    return {name: math.nan if value is None else value for name, value in record.items()}


def winkler(half: Any, distance: Any) -> float:
    """Return the mean score of intervals, by half-width and distance of the next value."""
    return float(np.mean(2 * half + 40 * np.maximum(distance - half, 0.0)))


def scores(some: pd.DataFrame, value: str) -> tuple[float, float]:
    """Return the score of a case's intervals over the oracle's, and over the best constant's."""
    pairs = some[some["judged"]]
    alike = max((same(pairs["in"], other) for other in pairs["in"]), key=sum, default=[])
    pairs = pairs[alike]
    apart = np.abs(np.log(pairs["target"] / pairs[value])).to_numpy()
    if len(pairs) < _LEAST_PAIRS:
        return math.nan, math.nan
    own = winkler(pairs["half"].to_numpy(), apart)
    low, high = np.quantile(np.log(pairs["target"]), (0.025, 0.975))
    centre, oracle = (low + high) / 2, (high - low) / 2
    return (
        own / winkler(oracle, np.abs(np.log(pairs["target"]) - centre).to_numpy()),
        own / min(winkler(half, apart) for half in apart),
    )


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
            half=np.log(high / low) / 2, judged=judged, held=judged & target.between(low, high),
            target=target, **{"in": state},
        )  # fmt: skip
        of_cases: list[tuple[float, float]] = []
        for name, some in (*found.groupby("case", sort=False), ("all", found)):
            logarithms = np.log(some[value]).groupby(some["case"])
            deviation = float(np.sqrt(logarithms.var().mean()))
            row: Row = {"quantity": quantity, "case": name, "records": len(some)}
            row["with an interval, %"] = 100 * float(some["half"].notna().mean())
            row["judged"] = int(some["judged"].sum())
            row["hold, %"] = 100 * float(some["held"].sum() / max(row["judged"], 1))
            row["half-width, median, %"] = 100 * float(some["half"].median())
            row["standard deviation of runs, %"] = 100 * deviation
            if name != "all":
                of_cases.append(scores(some, value))
                means = of_cases[-1]
            else:
                means = tuple(np.exp(np.nanmean(np.log(of_cases), axis=0)))
            row["score over the oracle's"], row["score over the best constant's"] = means
            add(rows, row)
    words = frame["state"].value_counts(normalize=True)
    print("; ".join(f"{word} {share:.0%}" for word, share in words.items()))
    return rows


def main() -> None:
    """Measure and judge."""
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=20.0, help="least time for all runs")
    parser.add_argument("--first", action="store_true", help="each run as the first of a boot")
    parser.add_argument("--commands", action="store_true", help="three commands in turns")
    parser.add_argument("--precision", type=float, help="percent")
    args = parsed(parser)
    how: dict[str, Any] = {}
    if args.precision:
        how = {"precision": args.precision / 100, "budget_s": None}
    every: dict[str, Any] = {name: case.with_(**how) for name, case in cases().items()}
    measure: Any = first_of if args.first else lambda case: case.measure().record
    rows, begin, folder = [], time.perf_counter(), Path(tempfile.mkdtemp())
    if args.commands:
        every, measure = commands(folder), record_of
    for run in range(args.runs):
        for name in random.sample(list(every), len(every)):
            record = measure(every[name])
            rows.append({"run": run, "case": name, **{n: record[n] for n in _NAMES.split()}})
        print(f"run {run + 1}, {time.perf_counter() - begin:.0f} s", file=sys.stderr)
        if run + 1 < args.runs:
            due = begin + (run + 1) * 60 * args.minutes / args.runs
            time.sleep(max(0.0, due - time.perf_counter()))
    frame = pd.DataFrame(rows).sort_values(["case", "run"])
    write(args, judged(frame), runs=frame.to_dict("records"))


if __name__ == "__main__":
    main()
