"""Record raw samples of twenty cases, with the state of the host during each, in many runs.

    python bench/host_samples.py --runs 40 --samples bench/hosts/zen5.parquet
    python bench/host_samples.py --runs 12 --device cuda:0 --samples bench/hosts/h100.parquet

Every run is a new process, which places each case once, in random order and in a fixed variant, and
takes samples of it for some time. ``--beside`` lists other processes, with runs for each entry:
``compute:2`` are two processes that compute, ``stream:1`` is one that copies memory.

The file has a row for each sample: ``run``, ``beside``, ``case``, ``block`` (samples of a block
were taken in one call of the extension), ``t_s`` (end of the block since the first run began),
``seconds`` (of an invocation), and the conditions of the extension. The record has a row for each
case, with the spread of its shortest times and medians between runs.
"""

import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from records import Row, add, options, parsed, write

import memkern as mk
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


def one_run(seed: int, seconds: float, device: str, target: str) -> None:
    """Take the samples of one run and write them to a file."""
    every, found = gpu_cases(device) if device else cases(), {}
    for name in random.Random(seed).sample(list(every), len(every)):
        blocks = samples_of(every[name], seconds)
        numbers = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
        found[name] = np.column_stack((numbers, np.concatenate(blocks)))
    with open(target, "wb") as file:
        np.savez(file, **found)


@contextlib.contextmanager
def competitors(beside: str) -> Iterator[None]:
    """Let other processes run until the end of the context."""
    kind, _, number = beside.partition(":")
    words = [sys.executable, "-c", _PROGRAMS.get(kind, "")]
    started = [subprocess.Popen(words) for _ in range(int(number or 0))]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def frame_of(run: int, beside: str, file: Path, begin: float) -> pd.DataFrame:
    """Return the samples of a run as a table."""
    parts = []
    with np.load(file) as found:
        for name, rows in found.items():
            part = pd.DataFrame(rows, columns=["block", "t_s", "seconds", *CONDITIONS])
            kept = np.linspace(0, part["block"].max(), _MOST_BLOCKS).astype(int)
            part = part[part["block"].isin(kept)]
            parts.append(part.assign(case=name, run=run, beside=beside))
    frame = pd.concat(parts, ignore_index=True)
    frame["t_s"] = (frame["t_s"] - begin).round(3)
    for name in ("seconds", *CONDITIONS):
        with np.errstate(divide="ignore"):
            size = np.floor(np.log10(frame[name].abs())).replace(-np.inf, 0)
        scale = 10.0 ** (_DIGITS - 1 - size)
        frame[name] = (frame[name] * scale).round() / scale
    small = {"run": "int16", "block": "int32", "case": "category", "beside": "category"}
    return frame.astype(small | dict.fromkeys(("t_s", *CONDITIONS), "float32"))


def summary(frame: pd.DataFrame) -> list[Row]:
    """Print and return how much the runs of each case differ."""
    rows: list[Row] = []
    for (beside, name), some in frame.groupby(["beside", "case"], observed=True):
        runs = some.groupby("run")["seconds"].agg(["min", "median"])
        spread = 100 * np.log(runs).std()
        row: Row = {"case": name, "beside": beside or "nothing", "runs": len(runs)}
        row["shortest, standard deviation of runs, %"] = spread["min"]
        add(rows, row | {"median, standard deviation of runs, %": spread["median"]})
    return rows


def main() -> None:
    """Record, or take the samples of one run."""
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=40, help="for each of --beside")
    parser.add_argument("--seconds", type=float, default=0.25, help="of each case in a run")
    parser.add_argument("--beside", default="", help="such as ,compute:1,stream:2 (none first)")
    parser.add_argument("--samples", metavar="FILE", help="parquet file of all samples")
    parser.add_argument("--device", default="", help="GPU, such as cuda:0")
    parser.add_argument("--one", type=int, metavar="SEED", help="take one run, for this script")
    args = parsed(parser)
    if args.one is not None:
        one_run(args.one, args.seconds, args.device, args.samples)
        return
    kinds, parts, begin = args.beside.split(","), [], time.monotonic()
    progress = bar(True, total=args.runs * len(kinds), unit="runs")
    with tempfile.TemporaryDirectory() as folder:
        for run in range(args.runs):
            for beside in random.sample(kinds, len(kinds)):
                file = Path(folder) / "samples.npz"
                words = ["--one", str(run), "--seconds", str(args.seconds), "--samples", str(file)]
                words += ["--device", args.device]
                with competitors(beside):
                    subprocess.run([sys.executable, __file__, *words], check=True)
                parts.append(frame_of(run, beside, file, begin))
                progress.update()
    progress.close()
    frame = pd.concat(parts, ignore_index=True)
    frame = frame.astype({"case": "category", "beside": "category"})
    if args.samples is not None:
        frame.to_parquet(args.samples, compression="zstd", index=False)
    rows = summary(frame)
    alone = [row for row in rows if row["beside"] == "nothing"]
    write(args, alone, beside=[row for row in rows if row["beside"] != "nothing"])


if __name__ == "__main__":
    main()
