"""Explain cases whose cause is known by construction, and try options that do and do not help.

python bench/explain.py --turns 2

Each case is explained as often as ``--turns`` says. A cause is right if it is one of the expected
ones. Of the cases of which an option helps, it must be among those that are suggested; of the
others, nothing may be.
"""

from typing import Any

import numpy as np
from records import Row, add, options, parsed, write

import memkern as mk
from memkern.host.capacity import data_caches, last_level_cache_B
from memkern.spec.experiments import LEVEL

LAST_B = last_level_cache_B()
L1_B, L2_B = (next(c["size_B"] for c in data_caches() if c["level"] == level) for level in (1, 2))
FAR = max(4 * LAST_B // 8, 2**25)  # elements of an array beyond the caches
RNG = np.random.default_rng(0)
NONE: set[str] = set()


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


# By name: the case, and the first causes that are right.
CAUSES = {
    "a loop in L1": (
        lambda: mk.loops("load", elements=L1_B // 16, repetition="free", threads=1),
        {"the core and L1"},
    ),
    "copy with ordinary stores from memory": (
        lambda: mk.stream("copy", elements=FAR, variant="simd"),
        {"reads of written lines"},
    ),
    "chase over small pages": (
        lambda: mk.case("latency.chase", size_B=8 * FAR, pages="4k", threads=1),
        {"page walks"},
    ),
    "random gather by one thread": (
        lambda: mk.gather(RNG.integers(0, LAST_B // 16, 2**20), count=1, threads=1),
        {"the order of the indices"},
    ),
    "gather of one line by all threads": (
        lambda: mk.gather("UNIFORM:8:1", delta=0, count=2**18),
        {"index and instruction work"},
    ),
    # Stores to a single line are merged before they need it, and others than these go to memory.
    "scatter of two threads into the same lines": (
        lambda: mk.scatter("UNIFORM:64:8", delta=0, count=2**14, threads=2, variant="simd"),
        {"contention of the threads"},
    ),
    "false sharing of atomics": (
        lambda: mk.amo("central", sharing="private", threads=2),
        {"false sharing"},
    ),
    "triad of 64 elements": (lambda: mk.stream("triad", elements=64), {"launch and barrier"}),
    "product with random columns": (
        lambda: mk.spmv(random_product(2**17, 32, max(2 * LAST_B // 8, 2**23))),
        {"irregular x"},
    ),
    "product with a few long rows": (
        lambda: mk.spmv(uneven_product(2**18), threads=2),
        {"uneven rows"},
    ),
    "stencil beyond its layer condition": (stencil, {"broken reuse"}),
    "copy from memory by all threads": (
        lambda: mk.stream("copy", elements=FAR),
        {"bandwidth of memory"},
    ),
}
# By name: the case, and options of which one is at least 1.2 times as fast; none if nothing is.
OPTIONS = {
    "gather over small pages": (
        lambda: mk.gather(RNG.integers(0, FAR, 2**20), count=1, threads=1, pages="4k"),
        {"--pages thp"},
    ),
    "chase over small pages": (CAUSES["chase over small pages"][0], {"--pages thp"}),
    "copy with ordinary stores": (
        CAUSES["copy with ordinary stores from memory"][0],
        {"--variant nt"},
    ),
    "triad of 64 elements": (CAUSES["triad of 64 elements"][0], {"--threads 1"}),
    "false sharing of atomics": (
        CAUSES["false sharing of atomics"][0],
        {"--padding 128", "--sharing private --padding 128", "--threads 1"},
    ),
    "sum by scalars in L1": (
        lambda: mk.loops("sum", elements=L1_B // 16, variant="scalar", threads=1),
        {"--variant simd", "--variant auto"},
    ),
    "load by scalars in L2": (
        lambda: mk.loops("load", elements=L2_B // 16, variant="scalar", threads=1),
        {"--variant simd", "--variant auto"},
    ),
    "product with a few long rows": (
        CAUSES["product with a few long rows"][0],
        {"--balance nnz"},
    ),
    "copy from memory": (CAUSES["copy from memory by all threads"][0], NONE),
    "triad from memory": (lambda: mk.stream("triad", elements=FAR), NONE),
    "load in L1": (lambda: mk.loops("load", elements=L1_B // 8, repetition="free"), NONE),
    "triad in L2": (lambda: mk.stream("triad", footprint_B=L2_B), NONE),
    "gather of one line": (CAUSES["gather of one line by all threads"][0], NONE),
    "chase over huge pages": (
        lambda: mk.case("latency.chase", size_B=8 * FAR, pages="thp", threads=1),
        NONE,
    ),
    "regular product": (lambda: mk.spmv("hpcg:64"), NONE),
    "arithmetic": (lambda: mk.loops("peakflops", elements=10**7), NONE),
}


def told(name: str, build: Any, seconds: float) -> tuple[Row, Any]:
    """Return a row with what an explanation says, and the explanation."""
    one = mk.explain(build(), seconds=seconds)
    cause, share = one.first
    frame = {row.cause: row.ratio for row in one.tried if row.role == LEVEL}
    advice = "; ".join(f"{row.option} {1 / row.ratio:.2f}" for row in one.advice)
    return {
        "case": name,
        "cause": cause,
        "share": share,
        "in L1": frame.get("L1"),
        "try": advice,
    }, one


def main() -> None:
    """Print and write what is found for each case."""
    parser = options(__doc__, turns=2)
    parser.add_argument("--seconds", type=float, default=10.0, help="of an explanation (10)")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    args = parsed(parser)
    rows: list[Row] = []
    right, same, good = 0, 0, {True: 0, False: 0}
    for name, (build, causes) in CAUSES.items():
        if args.only not in name:
            continue
        found = [told(name, build, args.seconds)[0] for _ in range(args.turns)]
        right += found[0]["cause"] in causes
        same += len({row["cause"] for row in found}) == 1
        for row in found:
            add(rows, row | {"right": row["cause"] in causes})
    for name, (build, wanted) in OPTIONS.items():
        if args.only not in name:
            continue
        row, one = told(name, build, args.seconds)
        options_found = {each.option for each in one.advice}
        is_right = bool(options_found & wanted) if wanted else not options_found
        good[bool(wanted)] += is_right
        add(rows, row | {"right": is_right})
    write(args, rows)
    print(
        f"causes right: {right} of {len(CAUSES)}; the same in all turns: {same}; options that help "
        f"found: {good[True]} of 8; nothing suggested where nothing helps: {good[False]} of 8"
    )


if __name__ == "__main__":
    main()
