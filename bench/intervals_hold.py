"""Count how many printed intervals contain the next run: of cases, commands or reports.

Ten cases are measured repeatedly. An interval holds if it contains the value of the next run of its
case; pairs of runs in different states of the host (column ``states``) are ignored. Intervals of
the shortest time and of the median are judged separately. Scores are Winkler's of the logarithms
(width, and 40 times what is missed), over those of an oracle, the 2.5 and 97.5 % quantiles of the
runs of the case in its most frequent state, and over those of the best constant width.

With ``--first``, each run is the first command after a boot; ``--precision 5`` gives each run this
precision. With ``--beside``, runs alternate with runs beside other programs (of
``host_samples.py``): a record marked as quiet must be right, its interval, widened by half,
contains the median of the shortest times of the runs alone, and a record with programs beside it
names them. ``--commands`` runs three command lines instead, of which the second one has indices of
its own and the third one a matrix with random columns; they vary beside BabelStream, or are those
of an earlier build (``--site``, of ``pip install --target SITE memkern==...``). Files are records
of reports that follow each other, judged by class of cases; the oracle knows the 95 % quantile of
the differences between the reports in the class.
"""

import argparse
import json
import math
import os
import random
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from beside_stream import babelstream_found
from host_samples import competitors
from peers import printed, records_of
from records import Row, program

import memkern as mk
from memkern import _memkern
from memkern.engine.placing.run import LARGE_B, CaseRun, calibrated
from memkern.host import Host, this_host
from memkern.host.environment import machine_environment
from memkern.machine.caches import data_caches, ends, level_of

QUANTITIES = {"shortest": ("time_min_s", "time_min_ci"), "median": ("time_median_s", "time_ci")}
_LEAST_PAIRS = 10  # of a case with a score
_APART = 1.3  # exchanges within this factor are of one state
# Columns of the records that are kept.
_NAMES = (
    "time_min_s time_min_ci_low_s time_min_ci_high_s time_median_s time_ci_low_s "
    "time_ci_high_s disturbed state states shared_with placements placement_sd wall_s stop variant "
    "isa"
)


def cases(budget_s: float = 0.25, **how: Any) -> dict[str, mk.Case]:
    """Return ten cases from L1 to memory with one worker and with all."""
    brief: dict[str, Any] = {"budget_s": budget_s, "runs": None, **how}
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


def record_of(site: str, words: list[str]) -> dict[str, Any]:
    """Return the record that a command of memkern prints, or the times of BabelStream's triad."""
    begin = time.perf_counter()
    if os.path.isfile(words[0]):
        shortest, mean = babelstream_found(printed(words, {}, huge=True))["stream.triad"]
        wall_s = time.perf_counter() - begin
        return {"time_min_s": shortest, "time_median_s": mean, "wall_s": wall_s}
    variables = {"PYTHONPATH": site} if site else {}
    return records_of(*words, valid=False, variables=variables, huge=True)[0]


def winkler(half: Any, distance: Any) -> float:
    """Return the mean score of intervals, by half-width and distance of the next value."""
    return float(np.mean(2 * half + 40 * np.maximum(distance - half, 0.0)))


def scores(pairs: pd.DataFrame) -> tuple[float, float]:
    """Return the score of intervals over the oracle's, and over that of the best constant."""
    of_class = pairs["case"].nunique() > 1
    if not of_class:
        states = pairs["exchange_ns"]
        pairs = pairs[max((same(states, other) for other in states), key=sum, default=[])]
    if len(pairs) < _LEAST_PAIRS:
        return math.nan, math.nan
    apart = np.abs(np.log(pairs["target"] / pairs["value"])).to_numpy()
    low, high = np.quantile(np.log(pairs["target"]), (0.025, 0.975))
    oracle = winkler(
        (high - low) / 2, np.abs(np.log(pairs["target"]) - (low + high) / 2).to_numpy()
    )
    if of_class:
        oracle = winkler(np.quantile(apart, 0.95), apart)
    own = winkler(pairs["half"].to_numpy(), apart)
    return own / oracle, own / min(winkler(half, apart) for half in apart)


def state_of(states: str) -> float:
    """Return the time of an exchange, in ns, in the states of the samples that count."""
    known = states if isinstance(states, str) and states else "[]"
    counted = [state["exchange_ns"] for state in json.loads(known) if state["counts"]]
    return counted[0] if len(counted) == 1 else math.nan


def same(some_ns: pd.Series, other_ns: pd.Series | float) -> pd.Series:
    """Return which records are in the same state, by the times of an exchange; NaN if unknown."""
    other = pd.Series(other_ns, some_ns.index)
    ratio = np.exp(np.abs(np.log(some_ns / other)))
    return (ratio < _APART) | (some_ns.isna() & other.isna())


def with_next(frame: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Return runs with their value and half-width, and whether the interval holds the next run.

    Those of a case beside the same programs follow each other; `judged` are those with an interval
    whose next run is in the same state.
    """
    value, ends = QUANTITIES[quantity]
    frame = frame.assign(exchange_ns=frame["states"].map(state_of))
    groups = frame.groupby(["case", "beside"], sort=False)
    low, high, target = frame[f"{ends}_low_s"], frame[f"{ends}_high_s"], groups[value].shift(-1)
    judged = same(groups["exchange_ns"].shift(-1), frame["exchange_ns"]) & target.notna()
    judged &= low.notna() & groups["run"].shift(-1).eq(frame["run"] + 1)
    return frame.assign(
        value=frame[value], target=target, half=np.log(high / low) / 2, judged=judged,
        held=judged & target.between(low, high),
    )  # fmt: skip


def judged(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield coverage and widths of each group of cases and of all, for both quantities."""
    for quantity in QUANTITIES:
        found = with_next(frame, quantity)
        of_groups: list[tuple[float, float]] = []
        for name, some in (*found.groupby("group", sort=False), ("all", found)):
            deviation = np.log(some["value"]).groupby(some["case"]).var().mean() ** 0.5
            row: Row = {"quantity": quantity, "case": name, "records": len(some)}
            row["with an interval, %"] = 100 * float(some["half"].notna().mean())
            row["judged"] = int(some["judged"].sum())
            row["hold, %"] = 100 * float(some["held"].sum() / max(row["judged"], 1))
            row["half-width, median, %"] = 100 * float(some["half"].median())
            row["standard deviation of runs, %"] = 100 * float(deviation)
            if name != "all":
                of_groups.append(scores(some[some["judged"]]))
                means = of_groups[-1]
            else:
                means = tuple(np.exp(np.nanmean(np.log(of_groups), axis=0)))
            row["score over the oracle's"], row["score over the best constant's"] = means
            yield row
    words = frame["state"].value_counts(normalize=True)
    print("; ".join(f"{word} {share:.0%}" for word, share in words.items()))


def beside_others(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield the shares of records that are right, and that hold for the next run."""
    frame = with_next(frame, "shortest")
    alone = frame[frame["beside"] == ""]
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
    for beside, some in frame.assign(outside=outside).groupby("beside"):
        row: Row = {"competitors": beside or "0", "records": len(some)}
        for state in ("quiet", "shared", "disturbed"):
            row[f"{state}, %"] = 100 * float((some["state"] == state).mean())
        wrong = some["outside"] & some["state"].eq("quiet")
        row["quiet and wrong, %"] = 100 * float(wrong.mean())
        row["names a program, %"] = 100 * float(some["shared_with"].ne("").mean())
        row["holds the next run, %"] = 100 * float(some["held"][some["judged"]].mean())
        ones = some[some["case"].str.endswith("1 thread")]
        yield row | {"interval, 1 thread, %": 100 * float(ones["half"].notna().mean())}


def of_reports(files: list[str]) -> pd.DataFrame:
    """Return the records of reports as runs, whose groups are classes of cases."""
    frames = [mk.load(file).to_frame().assign(run=n) for n, file in enumerate(files)]
    frame = pd.concat(frames, ignore_index=True).query("valid == True and backend == 'openmp'")
    frame = frame[frame["time_min_s"].notna() & frame["footprint_B"].notna()]
    caches = data_caches(machine_environment())
    level = [
        level_of(size_B, ends(caches, int(threads)))
        for size_B, threads in zip(frame["footprint_B"], frame["threads"], strict=True)
    ]
    workers = np.where(frame["threads"] == 1, "one thread", "several threads")
    number = frame.groupby(["run", "case_id"]).cumcount().astype(str)
    return frame.assign(
        beside="",
        group=[f"{a}, {b}" for a, b in zip(level, workers, strict=True)],
        case=frame["case_id"].astype(str) + " " + number,
    ).sort_values(["group", "run"])


def measured(args: argparse.Namespace) -> Iterator[Any]:
    """Yield the rows of all cases, commands or classes."""
    if args.files:
        yield from judged(of_reports(args.files))
        return
    how = {"precision": args.precision / 100, "budget_s": None} if args.precision else {}
    every: dict[str, Any] = {name: case.with_(**how) for name, case in cases().items()}
    measure: Any = first_of if args.first else lambda case: case.measure().record
    if args.commands:
        every, measure = commands(Path(tempfile.mkdtemp())), partial(record_of, args.site)
        if args.babelstream:
            every["BabelStream"] = [args.babelstream, "-s", str(2**25), "-n", "20", "--csv"]
    rows, begin, kinds = [], time.perf_counter(), args.beside.split(",")
    for run in range(args.runs):
        for beside in random.sample(kinds, len(kinds)):
            with competitors(beside):
                for name in random.sample(list(every), len(every)):
                    record = measure(every[name])
                    known = {n: record.get(n) for n in _NAMES.split()}
                    known = {n: math.nan if v is None else v for n, v in known.items()}
                    rows.append({"run": run, "case": name, "beside": beside, **known})
                    yield "runs", rows[-1]
        if run + 1 < args.runs:
            due = begin + (run + 1) * 60 * args.minutes / args.runs
            time.sleep(max(0.0, due - time.perf_counter()))
    frame = pd.DataFrame(rows).sort_values(["case", "run"])
    yield from beside_others(frame) if args.beside else judged(frame.assign(group=frame["case"]))


OPTIONS = {
    "files": {"nargs": "*", "metavar": "FILE", "help": "records of a report"},
    "--runs": 40,
    "--minutes": (20.0, "least time for all runs"),
    "--first": (False, "each run as the first of a boot"),
    "--commands": (False, "three commands in turns"),
    "--precision": {"type": float, "help": "percent"},
    "--beside": ("", "such as ,compute:1,pinned-compute:2 (none first)"),
    "--babelstream": {"metavar": "PATH", "help": "repeated beside the commands"},
    "--site": ("", "folder of the build that runs the commands"),
}
main = program(__name__, __doc__, measured, OPTIONS)
