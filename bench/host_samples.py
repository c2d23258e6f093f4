"""Record raw samples of many cases, with the state of the host, or brief placements, in many runs.

Every run is a new process, which places each case once, in random order and in a fixed variant, and
takes samples of it for some time. ``--beside`` lists other processes, with runs for each entry:
``compute:2`` are two processes that compute, ``stream:1`` is one that copies memory, and those of
``pinned-compute:2`` are bound to a processing unit each.

The file has a row for each sample: ``run``, ``beside``, ``case``, ``block`` (samples of a block
were taken in one call of the extension), ``t_s`` (end of the block since the first run began),
``seconds`` (of an invocation), and the conditions of the extension. The record has a row for each
case, with the spread of its shortest times and medians between runs.

With ``--rounds``, eighteen cases are placed in each round of a run: once, as by a sweep, or
``--burst`` times in a row, as by a command for one case. The file then has a row for each
placement, with the columns of its record that a rule for intervals may use, and the record tells by
how much runs of some consecutive placements differ.
"""

import argparse
import contextlib
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from records import Row, program

import memkern as mk
from memkern import _memkern
from memkern.engine.public import LARGE_B
from memkern.engine.recording.samples import CONDITIONS
from memkern.engine.sampling import series as sampling
from memkern.engine.sampling.prepared import Prepared
from memkern.host.capacity import beyond_caches_B, data_caches
from memkern.machine import gpu
from memkern.progress import bar

_BLOCK = 20
# Number of evenly spaced blocks kept of a case in a run, and significant digits of all columns.
_MOST_BLOCKS, _DIGITS = 20, 4
_PROGRAMS = {
    "compute": "while True: pass",
    "stream": "import numpy as np\na = np.ones(2**23)\nb = a.copy()\nwhile True: b[:] = a",
}
_COLUMNS = (
    "time_min_s time_median_s variant state exchange_ns core_share clock_GHz waited_share wall_s"
)
# Placements of a run in the record.
_RUNS = (1, 5, 10, 20)


def cases() -> dict[str, mk.Case]:
    """Return cases in each level of the memory, with one worker and with all."""
    levels = {f"L{c['level']}": int(c["size_B"]) // 2 for c in data_caches()}
    made: dict[str, mk.Case] = {}
    for threads, words in ((1, "1 thread"), (0, "all threads")):
        how: dict[str, Any] = {"threads": threads, "variant": "simd"}
        for level, size_B in levels.items():
            size_B *= 1 if threads == 1 or level == "L3" else 2
            made[f"copy in {level}, {words}"] = mk.loops("copy", footprint_B=size_B, **how)
        size_B = beyond_caches_B()
        made |= {
            f"load from memory, {words}": mk.loops("load", footprint_B=size_B, **how),
            f"triad from memory, {words}": mk.stream("triad", footprint_B=size_B, **how),
            f"copy to memory by nt, {words}": mk.loops(
                "copy", footprint_B=size_B, threads=threads, variant="nt"
            ),
            f"gather from memory, {words}": mk.gather(
                "UNIFORM:8:8:NR", count=size_B // 512, threads=threads, variant="auto"
            ),
            f"atomics in L2, {words}": mk.amo("rand", iters=4096, words=2**14, threads=threads),
            f"empty, {words}": mk.case("launch.empty", threads=threads),
        }
    made["loads in L3, one by one"] = mk.case("latency.chase", size_B=levels.get("L3", 2**22))
    made["loads in memory, one by one"] = mk.case("latency.chase", size_B=size_B)
    return made


def gpu_cases(device: str) -> dict[str, mk.Case]:
    """Return cases in each level of the memory of a GPU, and between it and the host."""
    l2_B = int(gpu.facts(device)["l2_B"])
    how: dict[str, Any] = {"device": device}
    made: dict[str, mk.Case] = {}
    for level, size_B in (("L2", l2_B // 4), ("memory", 8 * l2_B)):
        shape: dict[str, Any] = {"count": size_B // 2048, "delta": 256, **how}
        made |= {
            f"copy in {level}, GPU": mk.loops("copy", footprint_B=size_B, **how),
            f"dot in {level}, GPU": mk.bs(4, footprint_B=size_B, variant="one-kernel", **how),
            f"triad in {level}, GPU": mk.stream("triad", footprint_B=size_B, **how),
            f"gather in {level}, GPU": mk.gather("UNIFORM:256:1", **shape),
            f"scatter in {level}, GPU": mk.scatter("UNIFORM:256:1", **shape),
            f"loads in {level}, one by one, GPU": mk.case("latency.chase", size_B=size_B, **how),
        }
    for name, size_B in (("small transfers {} the device, L2", 2**12),
                         ("large transfers {} the device, memory", 2**25)):  # fmt: skip
        for way in ("to", "from"):
            made[f"{name.format(way)}, GPU"] = mk.transfers(
                f"{way}_device", size_B=size_B, memory="pinned", **how
            )
    made["atomics in L2, GPU"] = mk.amo("central", iters=64, variant="device", **how)
    made["empty, GPU"] = mk.case("bs.bs0", **how)
    return made


def samples_of(case: mk.Case, seconds: float) -> list[npt.NDArray[np.float64]]:
    """Return blocks of samples of a case: end on the clock, seconds and conditions of each."""
    prepared, blocks = Prepared(case), []
    judge, end = sampling.Judge(prepared), time.perf_counter() + seconds
    prepared.set_steady_inputs()
    prepared.warm_up()
    while not blocks or time.perf_counter() < end:
        rows = np.full((_BLOCK, 1 + len(CONDITIONS)), np.nan)
        sampling.sample(prepared, judge, rows, prepared.invocations, end - time.perf_counter())
        rows = rows[~np.isnan(rows[:, 0])]
        blocks.append(np.column_stack((np.full(len(rows), time.monotonic()), rows)))
    return blocks


def brief_cases(seconds: float) -> dict[str, mk.Case]:
    """Return cases in each level of the memory, with one worker and with all."""
    held = {f"L{c['level']}": int(c["size_B"]) for c in data_caches()}
    made: dict[str, mk.Case] = {}
    for threads in (1, len(mk.describe()["topology"]["units"])):
        how: dict[str, Any] = {"threads": threads, "variant": "simd"}
        # Half of the first cache for each worker, and a quarter of the last one for all.
        made |= {
            f"copy L1 {threads}": mk.loops("copy", footprint_B=threads * held["L1"] // 2, **how),
            f"triad L2 {threads}": mk.loops("triad", footprint_B=threads * held["L2"] // 2, **how),
            f"dot L3 {threads}": mk.loops("dot", footprint_B=held.get("L3", 2**23) // 4, **how),
        }
        how["footprint_B"] = beyond_caches_B()
        made |= {
            f"load mem {threads}": mk.loops("load", **how),
            f"copy mem {threads}": mk.loops("copy", **how | {"variant": "nt"}),
            f"triad mem {threads}": mk.loops("triad", **how | {"variant": "nt"}),
        }
        count = how["footprint_B"] // 512
        for stride in (1, 8):
            made[f"gather s{stride} mem {threads}"] = mk.gather(
                f"UNIFORM:8:{stride}:NR", count=count, threads=threads, variant="auto"
            )
    made["chase L3 1"] = mk.case("latency.chase", size_B=held.get("L3", 2**23) // 4)
    made["chase mem 1"] = mk.case("latency.chase", size_B=beyond_caches_B())
    return {name: c.with_(placements=1, budget_s=seconds) for name, c in made.items()}


def samples(args: argparse.Namespace) -> pd.DataFrame:
    """Return the samples of one run as a table."""
    every, parts = gpu_cases(args.device) if args.device else cases(), []
    for name in random.sample(list(every), len(every)):
        blocks = samples_of(every[name], args.seconds)
        numbers = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
        rows = np.column_stack((numbers, np.concatenate(blocks)))
        part = pd.DataFrame(rows, columns=["block", "t_s", "seconds", *CONDITIONS])
        kept = np.linspace(0, part["block"].max(), _MOST_BLOCKS).astype(int)
        parts.append(part[part["block"].isin(kept)].assign(case=name))
    frame = pd.concat(parts, ignore_index=True)
    frame["t_s"] = (frame["t_s"] - args.begin).round(3)
    for name in ("seconds", *CONDITIONS):
        with np.errstate(divide="ignore"):
            size = np.floor(np.log10(frame[name].abs())).replace(-np.inf, 0)
        scale = 10.0 ** (_DIGITS - 1 - size)
        frame[name] = (frame[name] * scale).round() / scale
    return frame.astype({"block": "int32"} | dict.fromkeys(("t_s", *CONDITIONS), "float32"))


def placements(args: argparse.Namespace) -> pd.DataFrame:
    """Place all cases in rounds, and return a row for each placement."""
    every, rows = brief_cases(args.seconds), []
    for number in range(args.rounds):
        for name in random.sample(list(every), len(every)):
            for _ in range(args.burst):
                _memkern.release_memory(LARGE_B)
                record = every[name].measure().record
                row = {column: record[column] for column in _COLUMNS.split()}
                rows.append({"round": number, "case": name, "time_s": time.time(), **row})
    return pd.DataFrame(rows)


@contextlib.contextmanager
def competitors(beside: str) -> Iterator[None]:
    """Let other processes run until the end of the context, such as ``pinned-compute:2``."""
    kind, _, number = beside.partition(":")
    units = sorted(os.sched_getaffinity(0))

    def bind(k: int) -> None:
        if kind.startswith("pinned-"):
            os.sched_setaffinity(0, {units[k % len(units)]})

    words = [sys.executable, "-c", _PROGRAMS.get(kind.removeprefix("pinned-"), "")]
    started = [
        subprocess.Popen(words, preexec_fn=partial(bind, k)) for k in range(int(number or 0))
    ]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def differences(logarithms: np.ndarray, placements: int) -> np.ndarray:
    """Return the distances between the shortest times of consecutive runs."""
    runs = len(logarithms) // placements
    shortest = logarithms[: runs * placements].reshape(runs, placements).min(axis=1)
    return np.abs(np.diff(shortest))


def of_samples(frame: pd.DataFrame) -> Iterator[Any]:
    """Yield how much the runs of each case differ; with other programs beside, as finer rows."""
    for (beside, name), some in frame.groupby(["beside", "case"], observed=True):
        runs = some.groupby("run")["seconds"].agg(["min", "median"])
        spread = 100 * np.log(runs).std()
        row: Row = {"case": name, "beside": beside or "nothing", "runs": len(runs)}
        row["shortest, standard deviation of runs, %"] = spread["min"]
        row["median, standard deviation of runs, %"] = spread["median"]
        yield ("beside", row) if beside else row


def of_placements(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield within what 90 % of the next runs of each case are, by placements."""
    for name, some in frame.groupby("case"):
        row: Row = {"case": str(name), "placements": len(some)}
        for number in _RUNS:
            each = [
                differences(np.log(one.sort_values("time_s")["time_min_s"].to_numpy()), number)
                for _, one in some.groupby("process")
            ]
            found = np.concatenate(each)
            share = 100 * float(np.quantile(found, 0.9)) if len(found) else math.nan
            row[f"90 % of next runs of {number} within, %"] = share
        yield row


def measured(args: argparse.Namespace) -> Iterator[Any]:
    """Record all runs and yield how they differ, or take one run."""
    if args.one is not None:
        (placements if args.rounds else samples)(args).to_parquet(args.one, index=False)
        return
    kinds, parts, begin = args.beside.split(","), [], time.monotonic()
    progress = bar(True, total=args.runs * len(kinds), unit="runs")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "one.parquet"
        for run in range(args.runs):
            for beside in random.sample(kinds, len(kinds)):
                words = ["--one", str(file), "--begin", str(begin), "--force"]
                with competitors(beside):
                    subprocess.run([sys.executable, *sys.argv, *words], check=True)
                which = {"process": run} if args.rounds else {"run": run, "beside": beside}
                parts.append(pd.read_parquet(file).assign(**which))
                progress.update()
    progress.close()
    frame = pd.concat(parts, ignore_index=True)
    if not args.rounds:
        frame = frame.astype({"run": "int16", "case": "category", "beside": "category"})
    if args.samples is not None:
        frame.to_parquet(args.samples, compression="zstd", index=False)
    yield from of_placements(frame) if args.rounds else of_samples(frame)


OPTIONS = {
    "--runs": (40, "for each of --beside"),
    "--seconds": (0.25, "of each case in a run, or of a placement"),
    "--beside": ("", "such as ,compute:1,stream:2 (none first)"),
    "--rounds": (0, "of brief placements in a run"),
    "--burst": (1, "placements in a row"),
    "--samples": {"metavar": "FILE", "help": "parquet file of all samples or placements"},
    "--device": ("", "GPU, such as cuda:0"),
    "--one": {"metavar": "FILE", "help": "take one run, for this script"},
    "--begin": (0.0, "of the first run, for this script"),
}
main = program(__name__, __doc__, measured, OPTIONS)
