"""Compare gathers and scatters of one's own indices with plain OpenMP loops in C, in turns.

The loops are built by ``gcc -O3 -march=native -fopenmp`` and have static schedules, huge pages and
the same random int32 indices. The shortest times are compared.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from peers import ON_CORES, as_fast, beside, forms_in_turns, printed_seconds
from records import Row, program

import memkern as mk

SOURCE = Path(__file__).parent / "indexed_loop.c"
MIB = 2**20
# Number of indices and bytes of the source.
SIZES = ((200_000, MIB), (2_000_000, 8 * MIB), (5_000_000, 512 * MIB), (5_000_000, 4096 * MIB))


def compared(args: argparse.Namespace, folder: str, number: int, source_B: int) -> Iterator[Row]:
    """Yield the rows of a number of indices into a source."""
    program, file, elements = f"{folder}/loop", f"{folder}/indices", source_B // 8
    indices = np.random.default_rng(0).integers(0, elements, number, dtype=np.int32)
    indices.tofile(file)
    how = {"index_dtype": "int32", "threads": args.threads, "pages": "thp"}
    cases = {
        name: mk.case(name, pattern=indices, budget_s=args.seconds / 2, runs=None, **how)
        for name in ("gather", "scatter")
    }
    threads = {**ON_CORES, "OMP_NUM_THREADS": str(args.threads), "OMP_PLACES": "threads"}
    how = {"column": 1, "variables": threads, "huge": True}
    loop = partial(printed_seconds, [program, file, elements, args.seconds], **how)
    found, theirs = forms_in_turns(cases, {"loop": loop}, args.turns, "time_min_s")
    for name, ours in found.items():
        row: Row = {"kernel": name, "indices, million": number / 1e6, "source, MiB": source_B / MIB}
        yield row | beside("loop", "GB/s", {"": ours}, {"": theirs[name]}, 8 * number / 1e9)


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Build the loops, and yield the rows of all sizes."""
    with tempfile.TemporaryDirectory() as folder:
        words = ("-O3", "-march=native", "-fopenmp", str(SOURCE), "-o", f"{folder}/loop")
        subprocess.run(["gcc", *words], check=True)
        for size in SIZES:
            yield from compared(args, folder, *size)


main = program(
    __name__, __doc__, measured, {"--threads": 2, "--seconds": 1.0}, turns=7, judge=as_fast
)
