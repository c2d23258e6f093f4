"""Explain cases whose cause is known by construction, and try options that do and do not help.

Each case with a known cause is explained as often as ``--turns`` says, and is right if the first
cause is that one. Of the cases of which an option helps, it must be among those that are suggested;
of the others, nothing may be.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from records import Row, program

import memkern as mk
from memkern.host.capacity import data_caches, last_level_cache_B

LAST_B = last_level_cache_B()
L1_B, L2_B = (next(c["size_B"] for c in data_caches() if c["level"] == level) for level in (1, 2))
FAR = max(4 * LAST_B // 8, 2**25)  # elements of an array beyond the caches
RNG = np.random.default_rng(0)


def random_product(rows: int, each: int, columns: int) -> Any:
    """Return a matrix with the same number of nonzeros in each row, in random columns."""
    from scipy.sparse import csr_array

    starts = np.arange(0, rows * each + 1, each)
    places = RNG.integers(0, columns, rows * each)
    return csr_array((np.ones(rows * each), places, starts), shape=(rows, columns))


def uneven_product(rows: int) -> Any:
    """Return a matrix whose first rows have nearly all nonzeros."""
    from scipy.sparse import csr_array

    lengths = np.ones(rows, dtype=np.int64)
    lengths[: rows // 64] = 256
    starts = np.concatenate([[0], np.cumsum(lengths)])
    # Neighbouring columns, so that x is read from the caches.
    columns = np.concatenate([(k + np.arange(n)) % rows for k, n in enumerate(lengths)])
    return csr_array((np.ones(len(columns)), columns, starts), shape=(rows, rows))


def stencil() -> mk.Case:
    """Return a stencil from memory whose rows are too long for the layer condition in any cache."""
    columns = LAST_B // 8 // 2
    return mk.loops("stencil", rows=8, columns=columns, threads=1)


class Known(NamedTuple):
    """A case, its first cause ('' if it is not judged), and options that help.

    One of the options is at least 1.2 times as fast; none helps if there are none, and None are not
    judged.
    """

    build: Callable[[], mk.Case]
    cause: str = ""
    options: tuple[str, ...] | None = None


KNOWN = {
    "a loop in L1": Known(
        lambda: mk.loops("load", elements=L1_B // 16, repetition="free", threads=1),
        "the core and L1",
    ),
    "copy with ordinary stores from memory": Known(
        lambda: mk.stream("copy", elements=FAR, variant="simd"),
        "reads of written lines",
        ("--variant nt",),
    ),
    "chase over small pages": Known(
        lambda: mk.case("latency.chase", size_B=8 * FAR, pages="4k", threads=1),
        "page walks",
        ("--pages thp",),
    ),
    "random gather by one thread": Known(
        lambda: mk.gather(RNG.integers(0, LAST_B // 16, 2**20), count=1, threads=1),
        "the order of the indices",
    ),
    "gather of one line by all threads": Known(
        lambda: mk.gather("UNIFORM:8:1", delta=0, count=2**18),
        "index and instruction work",
        (),
    ),
    # Stores to a single line are merged before they need it, and others than these go to memory.
    "scatter of two threads into the same lines": Known(
        lambda: mk.scatter("UNIFORM:64:8", delta=0, count=2**14, threads=2, variant="simd"),
        "contention of the threads",
    ),
    "false sharing of atomics": Known(
        lambda: mk.amo("central", sharing="private", threads=2),
        "false sharing",
        ("--padding 128", "--sharing private --padding 128", "--threads 1"),
    ),
    "triad of 64 elements": Known(
        lambda: mk.stream("triad", elements=64), "launch and barrier", ("--threads 1",)
    ),
    "product with random columns": Known(
        lambda: mk.spmv(random_product(2**17, 32, max(2 * LAST_B // 8, 2**23))), "irregular x"
    ),
    "product with a few long rows": Known(
        lambda: mk.spmv(uneven_product(2**18), threads=2), "uneven rows", ("--balance nnz",)
    ),
    "stencil beyond its layer condition": Known(stencil, "broken reuse"),
    "copy from memory by all threads": Known(
        lambda: mk.stream("copy", elements=FAR), "bandwidth of memory", ()
    ),
    "gather over small pages": Known(
        lambda: mk.gather(RNG.integers(0, FAR, 2**20), count=1, threads=1, pages="4k"),
        options=("--pages thp",),
    ),
    "sum by scalars in L1": Known(
        lambda: mk.loops("sum", elements=L1_B // 16, variant="scalar", threads=1),
        options=("--variant simd", "--variant auto"),
    ),
    "load by scalars in L2": Known(
        lambda: mk.loops("load", elements=L2_B // 16, variant="scalar", threads=1),
        options=("--variant simd", "--variant auto"),
    ),
    "triad from memory": Known(lambda: mk.stream("triad", elements=FAR), options=()),
    "load in L1": Known(
        lambda: mk.loops("load", elements=L1_B // 8, repetition="free"), options=()
    ),
    "triad in L2": Known(lambda: mk.stream("triad", footprint_B=L2_B), options=()),
    "chase over huge pages": Known(
        lambda: mk.case("latency.chase", size_B=8 * FAR, pages="thp", threads=1), options=()
    ),
    "regular product": Known(lambda: mk.spmv("hpcg:64"), options=()),
    "arithmetic": Known(lambda: mk.loops("peakflops", elements=10**7), options=()),
}


def told(name: str, case: mk.Case, seconds: float) -> tuple[Row, set[str]]:
    """Return a row with what an explanation says, and the options that it suggests."""
    one = mk.explain(case, seconds=seconds)
    cause, share = one.first
    row: Row = {"case": name, "cause": cause, "share": share}
    row |= {f"in {each.cause}": each.ratio for each in one.levels}
    row["try"] = "; ".join(f"{each.option} {1 / each.ratio:.2f}" for each in one.advice)
    return row, {each.option for each in one.advice}


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Yield what is found for each case, and whether it is right."""
    for name, (build, cause, options) in KNOWN.items():
        if args.only not in name:
            continue
        for _ in range(args.turns) if cause else ():
            row, _ = told(name, build(), args.seconds)
            yield {**row, "judged": "cause", "right": row["cause"] == cause}
        if options is not None:
            row, found = told(name, build(), args.seconds)
            right = bool(found & set(options)) if options else not found
            yield {**row, "judged": "options" if options else "no option", "right": right}


def all_right(rows: list[Row]) -> bool:
    """Print how many are right and repeat, and return whether all are right."""
    for what in dict.fromkeys(row["judged"] for row in rows if "judged" in row):
        own = [row for row in rows if row["judged"] == what]
        causes = {(row["case"], row["cause"]) for row in own}
        cases = {row["case"] for row in own}
        same = f"; {2 * len(cases) - len(causes)} the same in all turns" if what == "cause" else ""
        print(f"{what}: {sum(row['right'] for row in own)} of {len(own)} right{same}")
    return all(row.get("right", True) for row in rows)


OPTIONS = {
    "--seconds": (10.0, "of an explanation (10)"),
    "--only": ("", "cases whose name contains this"),
}
main = program(__name__, __doc__, measured, OPTIONS, turns=2, judge=all_right)
