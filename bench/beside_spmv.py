"""Compare memkern's sparse products with those of other libraries, in turns.

Each peer is a program, built elsewhere with its library's own flags, that is called as
``PROGRAM FILE THREADS SECONDS``: FILE holds int64 rows, columns and nonzeros, int32 row starts and
columns, and float64 values; it repeats y = y + A x for SECONDS and prints a line for each of its
forms: name, shortest and median seconds of a product. SciPy (one thread) runs in this process.

memkern's forms are CRS and SELL-C-1 with C of 4, 8 and 16. For rows of uneven length there are two
more, balanced by nonzeros: CRS with prefetch of x and, for square matrices, SELL-8 with all rows
sorted by length and columns in the same order. The roofline is that of the bandwidth of loads in
the same turn.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from peers import as_fast, beside, forms_in_turns, printed_seconds, seconds_of
from records import interval, program

import memkern as mk
from memkern.families.spmv.model import SpmvModel
from memkern.statistics import ratio_interval

FORMS: dict[str, dict[str, Any]] = {
    "CRS": {"format": "crs"},
    "CRS, balanced, prefetch": {"format": "crs", "balance": "nnz", "prefetch": 128},
    **{f"SELL-{c}": {"format": "sell", "C": c} for c in (4, 8, 16)},
}
MOVED = "SELL-8, sorted, moved"
SORTED = {"format": "sell", "C": 8, "balance": "nnz", "move_columns": True}


def write_matrix(matrix: Any, path: str) -> None:
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


def compared(args: argparse.Namespace, text: str) -> Iterator[Any]:
    """Yield the rows of all forms of a matrix, and its row."""
    programs = dict(peer.split("=", 1) for peer in args.peer)
    label, matrix = mk.matrices.build(text)
    knobs = {"threads": args.threads, "pages": "4k", "budget_s": args.seconds}
    columns = matrix.shape[1]
    forms = FORMS | ({MOVED: SORTED | {"sigma": columns}} if matrix.shape[0] == columns else {})
    cases = {n: mk.spmv(matrix, name=label, **f, **knobs) for n, f in forms.items()}
    bytes_B = SpmvModel(*matrix.shape, matrix.nnz).bytes_B()
    load = mk.loops("load", footprint_B=bytes_B, **knobs)

    def limit_s() -> dict[str, float]:
        rate_GBps = seconds_of(load, "load", "bandwidth_median_GBps")["load"]
        return {"roofline": bytes_B / rate_GBps / 1e9}

    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        write_matrix(matrix, file.name)
        peers: dict[str, Any] = {"load": limit_s}
        for name, path in programs.items():
            words = [path, file.name, args.threads, args.seconds]
            peers[name] = partial(printed_seconds, words)
        peers["SciPy"] = lambda: {"SciPy": scipy_seconds(matrix, args.seconds)}
        ours, theirs = forms_in_turns(cases, peers, args.turns)
    limit = theirs.pop("roofline")

    flops = 2 * matrix.nnz / 1e9
    shares = {}
    for name, times in (("roofline", limit), *ours.items(), *theirs.items()):
        shares[name] = ratio_interval(limit, times, paired=True)
        row = {"matrix": label, "form": name, "GFLOP/s": flops / np.median(times)}
        yield "forms", row | interval("of the roofline", shares[name])
    row = {"matrix": label, "nonzeros, million": matrix.nnz / 1e6}
    row |= beside("peer", "GFLOP/s", ours, theirs, flops)
    row |= interval("of the roofline", shares[row["form"]])
    yield row | {"peer, of the roofline": shares[row["peer"]].ratio}


def measured(args: argparse.Namespace) -> Iterator[Any]:
    """Yield the rows of all matrices."""
    for text in args.matrices:
        yield from compared(args, text)


OPTIONS = {
    "matrices": {"nargs": "+"},
    "--peer": {"action": "append", "default": [], "metavar": "NAME=PROGRAM"},
    "--threads": 2,
    "--seconds": 0.5,
}
main = program(__name__, __doc__, measured, OPTIONS, turns=7, judge=as_fast)
