"""Compare memkern's sparse products with those of other libraries, in turns.

Each peer is a program, built elsewhere with its library's own flags, that is called as
``PROGRAM FILE THREADS SECONDS``: FILE holds int64 rows, columns and nonzeros, int32 row starts and
columns, and float64 values; it repeats y = y + A x for SECONDS and prints a line for each of its
forms: name, shortest and median seconds of a product. SciPy (one thread) runs in this process::

    python bench/beside_spmv.py --peer eigen=/path/a --peer mkl=/path/b hpcg:128 rmat:20

Every turn runs all contestants in rotating order, in 4 KiB pages, and a loop that loads as many
bytes as the matrix has. The peer of a matrix is the form that is fastest by its median over all
turns; memkern's forms are CRS, SELL-C-1 with C of 4, 8 and 16, and for rows of uneven length CRS
that prefetches x and, of square matrices, SELL-8 with all rows sorted by length and columns moved
like them, both balanced by nonzeros. Ratios are of times, the peer's or the roofline's over
memkern's, with intervals from the turns; the roofline uses the bandwidth of the loads in the same
turn.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import numpy as np
from peers import best_of_each, judge, printed_seconds, rotated, valid_record, with_interval

import memkern as mk
from memkern.families.spmv.model import SpmvModel
from memkern.statistics import Ratio, ratio_interval

FORMS: dict[str, dict[str, Any]] = {
    "crs": {"format": "crs"},
    "crs-nnz": {"format": "crs", "balance": "nnz", "prefetch": 128},
    **{f"sell-{c}": {"format": "sell", "C": c} for c in (4, 8, 16)},
}
MOVED = {"format": "sell", "C": 8, "balance": "nnz", "move_columns": True}


def write(matrix: Any, path: str) -> None:
    """Write a matrix in the format that peers read."""
    with open(path, "wb") as file:
        np.array([*matrix.shape, matrix.nnz], dtype=np.int64).tofile(file)
        matrix.indptr.astype(np.int32).tofile(file)
        matrix.indices.astype(np.int32).tofile(file)
        matrix.data.astype(np.float64).tofile(file)


def scipy_seconds(matrix: Any, seconds: float) -> float:
    """Return the median seconds of SciPy's product, which has one thread."""
    x, y = np.ones(matrix.shape[1]), np.zeros(matrix.shape[0])
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        begin = time.perf_counter()
        y += matrix @ x
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def main() -> None:
    """Print times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("matrices", nargs="+")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PROGRAM")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5)
    args = parser.parse_args()
    programs = dict(peer.split("=", 1) for peer in args.peer)
    ratios: dict[str, Ratio] = {}
    for text in args.matrices:
        label, matrix = mk.matrices.build(text)
        knobs = {"threads": args.threads, "pages": "4k", "budget_s": args.seconds}
        rows, columns = matrix.shape
        forms = FORMS | ({"sell-moved": {**MOVED, "sigma": rows}} if rows == columns else {})
        cases = {n: mk.spmv.case(matrix, name=label, **f, **knobs) for n, f in forms.items()}
        model = SpmvModel(*matrix.shape, matrix.nnz)
        load = mk.loops("load", footprint_B=model.bytes_B(), **knobs)
        theirs: dict[str, list[float]] = {}
        ours: dict[str, list[float]] = {name: [] for name in cases}
        limit: list[float] = []
        with tempfile.NamedTemporaryFile(suffix=".bin") as file:
            write(matrix, file.name)
            contestants = ["load", *cases, *programs, "scipy"]
            for turn in range(args.turns):
                for name in rotated(contestants, turn):
                    if name in cases:
                        record = valid_record(cases[name], f"{name} of {label}")
                        ours[name].append(record["time_median_s"])
                    elif name == "load":
                        rate = load.measure().record["bandwidth_median_GBps"]
                        limit.append(model.bytes_B() / rate / 1e9)
                    elif name == "scipy":
                        theirs.setdefault(name, []).append(scipy_seconds(matrix, args.seconds))
                    else:
                        words = [programs[name], file.name, args.threads, args.seconds]
                        for form, seconds in printed_seconds(words).items():
                            theirs.setdefault(form, []).append(seconds)
        flops = 2 * matrix.nnz / 1e9
        print(f"{label}: {matrix.nnz} nonzeros, roofline {flops / np.median(limit):.2f} GFLOP/s")
        for name, times in (*ours.items(), *theirs.items()):
            share = with_interval(ratio_interval(limit, times, paired=True))
            print(f"  {name:<14} {flops / np.median(times):7.3f} GFLOP/s, of the roofline {share}")
        ratios[label] = best_of_each(ours, theirs)
    judge(ratios)


if __name__ == "__main__":
    main()
