"""Record brief placements of eighteen cases in rounds, to replay runs of any number of them.

    python bench/host_rounds.py --placements bench/rounds/zen5.parquet
    python bench/host_rounds.py --rounds 8 --burst 10 --placements bench/rounds/zen5_bursts.parquet

In each round of a process, every case is placed, in random order and in a fixed variant, and
sampled for ``--seconds``: once, as by a sweep, or ``--burst`` times in a row, as by a command for
one case. The file has a row for each placement, with the columns of its record that a rule for
intervals may use. The record has a row for each case: by how much runs of some consecutive
placements differ.
"""

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
from memkern.engine.public import LARGE_B
from memkern.host.capacity import beyond_caches_B, data_caches
from memkern.progress import bar

_COLUMNS = (
    "time_min_s time_median_s variant state exchange_ns core_share clock_GHz waited_share wall_s"
)
# Placements of a run in the record.
_RUNS = (1, 5, 10, 20)


def cases(seconds: float) -> dict[str, mk.Case]:
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


def one_process(rounds: int, burst: int, seconds: float, target: str) -> None:
    """Place all cases in rounds, and write a row for each placement."""
    every, rows = cases(seconds), []
    for number in range(rounds):
        for name in random.sample(list(every), len(every)):
            for _ in range(burst):
                _memkern.release_memory(LARGE_B)
                record = every[name].measure().record
                row = {column: record[column] for column in _COLUMNS.split()}
                rows.append({"round": number, "case": name, "time_s": time.time(), **row})
    pd.DataFrame(rows).to_parquet(target, index=False)


def differences(logarithms: np.ndarray, placements: int) -> np.ndarray:
    """Return the distances between the shortest times of consecutive runs."""
    runs = len(logarithms) // placements
    shortest = logarithms[: runs * placements].reshape(runs, placements).min(axis=1)
    return np.abs(np.diff(shortest))


def summary(frame: pd.DataFrame) -> list[Row]:
    """Print and return within what 90 % of the next runs of each case are, by placements."""
    rows: list[Row] = []
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
        add(rows, row)
    return rows


def main() -> None:
    """Record, or place the cases of one process."""
    parser = options(__doc__)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=80, help="of each process")
    parser.add_argument("--burst", type=int, default=1, help="placements in a row")
    parser.add_argument("--seconds", type=float, default=0.06, help="of each placement")
    parser.add_argument("--placements", metavar="FILE", help="parquet file of all placements")
    parser.add_argument("--one", metavar="FILE", help="place the cases of one process")
    args = parsed(parser)
    if args.one is not None:
        one_process(args.rounds, args.burst, args.seconds, args.one)
        return
    parts, progress = [], bar(True, total=args.processes, unit="processes")
    with tempfile.TemporaryDirectory() as folder:
        for process in range(args.processes):
            file = Path(folder) / "placements.parquet"
            words = ["--one", str(file), "--rounds", str(args.rounds)]
            words += ["--burst", str(args.burst), "--seconds", str(args.seconds)]
            subprocess.run([sys.executable, __file__, *words], check=True)
            parts.append(pd.read_parquet(file).assign(process=process))
            progress.update()
    progress.close()
    frame = pd.concat(parts, ignore_index=True)
    if args.placements is not None:
        frame.to_parquet(args.placements, compression="zstd", index=False)
    write(args, summary(frame))


if __name__ == "__main__":
    main()
