"""Repeat one command in turns with BabelStream, and see how much both vary between runs.

Every turn runs ``memkern stream -k copy,triad`` with an empty cache folder (cold), with one that
all turns share (warm), and BabelStream, in random order. Afterwards the chosen variants run by
name, in turns with each other. The rows leave out disturbed records, and have the loss of a chosen
variant in comparison with the fastest one::

    python bench/repeat_stream.py --babelstream /path/to/omp-stream --turns 30
"""

import json
import random
import sys
import tempfile
import time
from typing import Any

import numpy as np
import pandas as pd
from beside_stream import babelstream_found
from peers import printed
from records import Row, add, options, parsed, write

KERNELS = ("stream.copy", "stream.triad")
WAYS = ("memkern, cold", "memkern, warm", "BabelStream")
_NAMED_TURNS = 7


def memkern(elements: int, cache: str, *words: str) -> list[dict[str, Any]]:
    """Return the records of the command."""
    command = [sys.executable, "-m", "memkern", "stream", "-k", "copy,triad", "-n", str(elements)]
    output = printed([*command, "--json", "-q", *words], {"XDG_CACHE_HOME": cache}, huge=True)
    return [one for one in json.loads(output) if one["kernel"] in KERNELS]


def turn(way: str, args: Any, warm: str) -> list[Row]:
    """Return a row for each kernel: bandwidth in GB/s, and memkern's choice."""
    begin = time.perf_counter()
    if way == "BabelStream":
        command = [args.babelstream, "-s", str(args.elements), "-n", str(args.times), "--csv"]
        found = babelstream_found(printed(command, {}, huge=True))
        arrays = {"stream.copy": 2, "stream.triad": 3}
        rows: list[Row] = [
            {"kernel": k, "GB/s": 8e-9 * arrays[k] * args.elements / found[k].shortest}
            for k in KERNELS
        ]
    else:
        with tempfile.TemporaryDirectory() as cold:
            records = memkern(args.elements, cold if way == "memkern, cold" else warm)
        names = ["state", "states", "shared_with", "variant_loss"]
        names += ["time_min_ci_low_s", "time_min_ci_high_s"]
        rows = [
            {
                "kernel": record["kernel"],
                "GB/s": record["bandwidth_GBps"],
                "median GB/s": record["bandwidth_median_GBps"],
                "variant": f"{record['variant']}/{record['isa']}",
                "time_min_s": record["time_min_s"],
                **{name: record[name] for name in names},
            }
            for record in records
        ]
    wall_s = time.perf_counter() - begin
    return [{"way": way, **row, "wall, s": wall_s} for row in rows]


def losses(args: Any, chosen: set[tuple[str, str]], warm: str) -> dict[tuple[str, str], float]:
    """Return the share of bandwidth lost against the fastest variant, by kernel and variant."""
    variants = sorted({variant for _, variant in chosen})
    rates: dict[tuple[str, str], list[float]] = {}
    for _ in range(_NAMED_TURNS if len(variants) > 1 else 0):
        for variant in random.sample(variants, len(variants)):
            name, isa = variant.split("/")
            for one in memkern(args.elements, warm, "--variant", name, "--isa", isa):
                rates.setdefault((one["kernel"], variant), []).append(one["bandwidth_GBps"])
    found: dict[tuple[str, str], float] = {}
    for kernel in KERNELS:
        own = {key: np.log(values) for key, values in rates.items() if key[0] == kernel}
        best = max(own.values(), key=lambda x: float(np.median(x)), default=np.zeros(1))
        found |= {key: -float(np.expm1(np.median(x - best))) for key, x in own.items()}
    return found


def main() -> None:
    """Take turns, and print and write a row for each kernel and way."""
    parser = options(__doc__, turns=30)
    parser.add_argument("--babelstream", required=True, metavar="PATH")
    parser.add_argument("--elements", type=int, default=2**25)
    parser.add_argument("--times", type=int, default=20, help="invocations by BabelStream")
    args = parsed(parser)
    runs: list[Row] = []
    with tempfile.TemporaryDirectory() as warm:
        for number in range(args.turns):
            for way in random.sample(WAYS, len(WAYS)):
                runs += [{"turn": number, **row} for row in turn(way, args, warm)]
            print(f"turn {number + 1} of {args.turns}", file=sys.stderr)
        frame = pd.DataFrame(runs)
        chosen = frame.dropna(subset="variant")
        lost = losses(args, set(zip(chosen["kernel"], chosen["variant"], strict=True)), warm)
    rows: list[Row] = []
    for kernel in KERNELS:
        for way in WAYS:
            mine = frame[frame["kernel"].eq(kernel) & frame["way"].eq(way)]
            row: Row = {"kernel": kernel, "command": way, "runs": len(mine)}
            if way != "BabelStream":
                row["disturbed"] = int(mine["state"].eq("disturbed").sum())
                mine = mine[mine["state"].ne("disturbed")]
            row["median of runs, GB/s"] = float(mine["GB/s"].median())
            row["standard deviation, %"] = 100 * float(np.log(mine["GB/s"]).std())
            row["wall, median, s"] = float(mine["wall, s"].median())
            if way != "BabelStream":
                counts = mine["variant"].value_counts()
                row["chosen"] = ", ".join(f"{name} {n}" for name, n in counts.items())
                row["most that a chosen one loses, %"] = 100 * max(
                    lost.get((kernel, name), 0.0) for name in counts.index
                )
                # The next run of the same command, regardless of its state.
                following = mine["time_min_s"].shift(-1).iloc[:-1]
                low, high = (mine[f"time_min_ci_{end}_s"].iloc[:-1] for end in ("low", "high"))
                row["hold the next run, %"] = 100 * float(following.between(low, high).mean())
            add(rows, row)
    write(args, rows, runs=runs)


if __name__ == "__main__":
    main()
