"""The verb dw: the hopping term of the domain-wall operator, in each layout."""

from __future__ import annotations

import argparse
import itertools
from typing import Any

from memkern.cli.measuring import exit_code, measure, plus_minus
from memkern.cli.options import Verb, each, knobs_of, measuring_options, numbers, words
from memkern.cli.refusing import refuse
from memkern.kernels.dw import CUTS, LAYOUTS
from memkern.lattice import PARITIES


def _dw(args: argparse.Namespace) -> int:
    from memkern import dw

    knobs = {"runs": args.runs, **knobs_of(args)}
    if each(args.layout) == ["lexicographic"]:
        refuse(args, "in the lexicographic layout, which has no vectors", cut=None, vector=None)
    if not any(each(args.prefetch or 0)):
        refuse(args, "without a distance, --prefetch", prefetch_into=None)
    # Which sites workers share planes of depends on how many they are.
    teams = each(args.threads) if args.share_planes else [args.threads]
    if args.share_planes:
        args.threads = None
    shared = {
        "order": args.order,
        "block": args.block,
        "share_planes": args.share_planes,
        "prefetch_into": args.prefetch_into or "L2",
        **knobs,
    }
    cases = []
    for lattice, ls, layout, parity in itertools.product(
        args.lattice, each(args.ls), each(args.layout), each(args.parity)
    ):
        # What cuts there are and how wide vectors are is no choice where there are none.
        plain = layout == "lexicographic"
        for cut, vector in itertools.product(
            ["auto"] if plain else each(args.cut or "auto"),
            [0] if plain else each(args.vector or 0),
        ):
            where = {"layout": layout, "cut": cut, "vector": vector, "parity": parity}
            for team in teams:
                how = {**shared, "threads": team} if args.share_planes and team else shared
                cases.append(dw.case(lattice, ls=ls, **where, **how))
    return exit_code(measure(cases, args, _HEADER, _row, ()))


_HEADER = (
    f"{'lattice':<13} {'Ls':>3} {'layout':<13} {'cut':<11} {'bits':>4} {'parity':<6} "
    f"{'variant':<15} {'thr':>3} {'time_min_s':>11} {'GFLOP/s':>8} {'B/update':>8} "
    f"{'roofline':>8} {'±%':>5}"
)


def _row(number: int, record: dict[str, Any]) -> str:
    marks = [word for word in ("disturbed",) if record[word]] + ["INVALID"] * (not record["valid"])
    fraction = record["roofline_fraction"]
    share = f"{100 * fraction:.0f}%" if fraction == fraction else "in cache"
    return (
        f"{record['lattice']:<13} {record['Ls']:>3} {record['layout']:<13} {record['cut']:<11} "
        f"{record['vector_bits']:>4} {record['parity']:<6} "
        f"{record['variant'] + '/' + record['isa']:<15} {record['threads']:>3} "
        f"{record['time_min_s']:>11.4g} {record['performance_GFLOPs']:>8.2f} "
        f"{record['site_B']:>8.0f} {share:>8} {plus_minus(record):>5} "
        f"{' '.join(marks)}"
    ).rstrip()


def add_verbs(verb: Verb) -> None:
    """Add the verb dw."""
    sub = verb("dw", _dw, "the hopping term of the domain-wall operator of lattice QCD")
    add = sub.add_argument_group("lattice").add_argument
    add("--lattice", nargs=4, type=int, action="append", required=True,
        metavar=("X", "Y", "Z", "T"), help="extents; again for one more lattice")  # fmt: skip
    add("--ls", type=numbers(1, "ls"), default=8, metavar="N,...",
        help="extent of the fifth dimension (8)")  # fmt: skip
    add("--parity", type=words, default="full", metavar="NAME,...",
        help="sites that get a result: " + ", ".join(PARITIES))  # fmt: skip
    add = sub.add_argument_group("layout and loops").add_argument
    add("-l", "--layout", type=words, default="RRII", metavar="NAME,...",
        help=", ".join(LAYOUTS) + " (RRII)")  # fmt: skip
    add("--cut", type=words, metavar="WORD,...",
        help="what the numbers of a vector are: " + "; ".join(CUTS) + " (auto)")  # fmt: skip
    add("--vector", type=numbers(0, "vector"), metavar="BITS,...",
        help="128, 256 or 512 (the widest here)")  # fmt: skip
    add("--order", default="tzyx", metavar="TZYX", help="loops from the outermost to the innermost")
    add("--block", nargs=4, type=int, default=(0, 0, 0, 0), metavar=("X", "Y", "Z", "T"),
        help="sites of a block that is gone through before the next one; 0 for all")  # fmt: skip
    add(
        "--share-planes",
        action="store_true",
        help="all workers in the same slice of the outermost loop",
    )
    add("--prefetch-into", choices=("L1", "L2"),
        help="where to, so many sites ahead as --prefetch says (L2)")  # fmt: skip
    measuring_options(sub)
