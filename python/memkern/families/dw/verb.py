"""The verb dw: the hopping term of the domain-wall operator, in each layout."""

from __future__ import annotations

import argparse
import functools
from typing import Any

from memkern.checks import read_integer
from memkern.cli.measuring import exit_code, marks, measure, plus_minus
from memkern.cli.options import (
    MEASURE,
    argument,
    argument_group,
    checked,
    each,
    given,
    knobs_of,
    measuring_options,
    numbers,
    refuse,
    verb,
    words,
)
from memkern.families.dw.layout import CUTS, LAYOUTS
from memkern.inputs.lattice import PARITIES
from memkern.spec import registry
from memkern.spec.sequences import joined, product


def _dw(args: argparse.Namespace) -> int:
    knobs = knobs_of(args)
    if args.layout is not None and each(args.layout) == ["lexicographic"]:
        refuse(args, "in the lexicographic layout, which has no vectors", cut=None, vector=None)
    if not any(each(args.prefetch or 0)):
        refuse(args, "without a distance, --prefetch", prefetch_into=None)
    # The planes that workers share depend on the number of workers.
    listed = {"lattice": args.lattice, "ls": args.ls, "parity": args.parity}
    if args.share_planes:
        knobs.pop("threads", None)
        listed["threads"], args.threads = args.threads, None
    knobs |= given(args, "order", "block", "share_planes", "prefetch_into")
    parts = []
    for layout in [None] if args.layout is None else each(args.layout):
        # The lexicographic layout has no vectors, and so no width and no cut.
        vectors = {} if layout == "lexicographic" else {"cut": args.cut, "vector": args.vector}
        lists = {**listed, "layout": layout, **vectors}
        axes = {name: each(value) for name, value in lists.items() if value is not None}
        parts.append(product(functools.partial(registry.case, "dw.hop", **knobs), axes))
    return exit_code(measure(joined(parts), args, _HEADER, _row, _SHOWN))


_HEADER = (
    f"{'lattice':<15} {'Ls':>3} {'layout':<13} {'cut':<11} {'bits':>4} {'parity':<6} "
    f"{'variant':<15} {'thr':>3} {'time_min_s':>11} {'GFLOP/s':>8} {'B/update':>8} "
    f"{'roofline':>8} {'±%':>5}"
)


_SHOWN = ("lattice", "Ls", "layout", "cut", "vector_bits", "parity", "variant", "isa", "threads")


def _row(number: int, record: dict[str, Any]) -> str:
    from memkern.families.dw.data import site_B

    fraction = record["roofline_min_fraction"]
    # Unknown if the caches are unknown.
    moved_B = site_B(record) if "memory_load_B" in record else None
    moved = "" if moved_B is None else f"{moved_B:.0f}"
    # The roofline is unknown if the measurement of its bandwidths was disturbed.
    share = "in cache" if moved_B == 0 else ""
    if fraction == fraction:
        share = f"{100 * fraction:.0f}%"
    return (
        f"{record['lattice']:<15} {record['Ls']:>3} {record['layout']:<13} {record['cut']:<11} "
        f"{record['vector_bits']:>4} {record['parity']:<6} "
        f"{record['variant'] + '/' + record['isa']:<15} {record['threads']:>3} "
        f"{record['time_min_s']:>11.4g} {record['performance_GFLOPs']:>8.2f} "
        f"{moved:>8} {share:>8} {plus_minus(record):>5} "
        f"{' '.join(marks(record))}"
    ).rstrip()


DW_VERB = verb(
    "dw",
    MEASURE,
    "the hopping term of the domain-wall operator of lattice QCD",
    _dw,
    (
        "memkern dw --lattice 16 16 16 16",
        "memkern dw --lattice 24 24 24 24 --ls 8 --layout RRII,RIRI",
        "memkern dw --lattice 16 16 16 16 --dtype float32 --prefetch 2",
    ),
    argument_group(
        "lattice",
        argument(
            "--lattice",
            nargs=4,
            type=checked(read_integer),
            action="append",
            required=True,
            metavar=("X", "Y", "Z", "T"),
            help="extents; once for each lattice",
        ),
        argument(
            "--ls", type=numbers(1, "ls"), metavar="N,...", help="extent of the fifth dimension (8)"
        ),
        argument(
            "--parity",
            type=words,
            metavar="NAME,...",
            help="sites that are computed: " + ", ".join(PARITIES) + " (full)",
        ),
    ),
    argument_group(
        "layout and loops",
        argument("--layout", type=words, metavar="NAME,...", help=", ".join(LAYOUTS) + " (RRII)"),
        argument(
            "--cut",
            type=words,
            metavar="WORD,...",
            help="dimensions of vectors: " + "; ".join(CUTS) + " (auto)",
        ),
        argument(
            "--vector",
            type=numbers(0, "vector"),
            metavar="BITS,...",
            help="bits of a vector: 128, 256 or 512 (the widest here)",
        ),
        argument(
            "--order", metavar="TZYX", help="loops from the outermost to the innermost (tzyx)"
        ),
        argument(
            "--block",
            nargs=4,
            type=checked(read_integer),
            metavar=("X", "Y", "Z", "T"),
            help="sites of a block, which is finished before the next one; 0 for all",
        ),
        argument(
            "--share-planes",
            action="store_true",
            default=None,
            help="all workers share each slice of the outermost loop",
        ),
        argument(
            "--prefetch-into",
            choices=("L1", "L2"),
            help="cache to prefetch into, --prefetch sites ahead (L2)",
        ),
    ),
    measuring_options(),
)
