"""Compare gathers and scatters of one's own indices with plain OpenMP loops in C, in turns.

The loops are built by ``gcc -O3 -march=native -fopenmp`` and have static schedules, huge pages and
the same random int32 indices. A ratio is memkern's bandwidth over the loop's, by the shortest
times; its interval comes from the turns::

    python bench/beside_loop.py --turns 7
"""

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from peers import by_form, in_turns, valid_record
from records import Row, add, interval, options, parsed, write

import memkern as mk
from memkern.statistics import ratio_interval

SOURCE = Path(__file__).parent / "indexed_loop.c"
MIB = 2**20
# Number of indices and bytes of the source.
SIZES = ((200_000, MIB), (2_000_000, 8 * MIB), (5_000_000, 512 * MIB), (5_000_000, 4096 * MIB))


def compared(args: argparse.Namespace, folder: str, number: int, source_B: int) -> list[Row]:
    """Return the rows of a number of indices into a source."""
    program, file, elements = f"{folder}/loop", f"{folder}/indices", source_B // 8
    indices = np.random.default_rng(0).integers(0, elements, number, dtype=np.int32)
    indices.tofile(file)
    how = {"index_dtype": "int32", "threads": args.threads, "pages": "thp"}
    cases = {
        name: mk.case(name, pattern=indices, budget_s=args.seconds / 2, runs=None, **how)
        for name in ("gather", "scatter")
    }
    threads = {"OMP_NUM_THREADS": str(args.threads), "OMP_PROC_BIND": "true"}

    def seconds(name: str, _: int) -> dict[str, float]:
        if name in cases:
            return {name: valid_record(cases[name], name)["time_min_s"]}
        done = subprocess.run(
            [program, file, str(elements), str(args.seconds)],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, **threads, "OMP_PLACES": "threads"},
        )
        found = (line.split() for line in done.stdout.splitlines())
        return {form: float(shortest) for form, shortest, _ in found}

    found = in_turns([*cases, "loop"], args.turns, seconds)
    theirs = by_form(found.pop("loop"))
    rows: list[Row] = []
    for name, ours in by_form(one for some in found.values() for one in some).items():
        row: Row = {"kernel": name, "indices, million": number / 1e6, "source, MiB": source_B / MIB}
        row["memkern, GB/s"] = 8 * number / np.median(ours) / 1e9
        row["loop, GB/s"] = 8 * number / np.median(theirs[name]) / 1e9
        add(rows, row | interval("ratio", ratio_interval(theirs[name], ours, paired=True)))
    return rows


def main() -> None:
    """Print and write ratios."""
    parser = options(__doc__, turns=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    args = parsed(parser)
    with tempfile.TemporaryDirectory() as folder:
        words = ("-O3", "-march=native", "-fopenmp", str(SOURCE), "-o", f"{folder}/loop")
        subprocess.run(["gcc", *words], check=True)
        rows = [row for size in SIZES for row in compared(args, folder, *size)]
    write(args, rows)


if __name__ == "__main__":
    main()
