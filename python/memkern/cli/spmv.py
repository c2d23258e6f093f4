"""The verb spmv: how fast a matrix is multiplied in each format, and what the limit is."""

from __future__ import annotations

import argparse
import itertools
from typing import Any

from memkern.cli.measuring import exit_code, line, measure, plus_minus
from memkern.cli.options import Verb, each, knobs_of, measuring_options, numbers, words
from memkern.cli.refusing import refuse
from memkern.errors import InputError
from memkern.kernels.spmv import BALANCES, FORMATS, MVE


def _tuned(args: argparse.Namespace) -> int:
    from memkern import spmv
    from memkern.results import check_output

    if args.output:
        check_output(args.output, args.force)
    searched = {"format": ["crs", "sell"], "C": 8, "sigma": 1, "mve": 0, "balance": "rows"}
    searched |= {"rcm": False, "move_columns": False, "unroll": 0, "prefetch": None}
    refuse(args, "with --tune, which searches by itself", **searched)
    refuse(args, "with --tune, which stops by --budget", runs=None, repeats=1, resume=False)
    knobs = knobs_of(argparse.Namespace(**{**vars(args), "budget": None}))
    records = None
    for text in args.matrices:
        knobs["accumulate"] = not args.write
        _, search = spmv.tune(text, budget_s=args.budget or 30.0, **knobs)
        records = search if records is None else records + search
        if not (args.json or args.quiet):
            line(f"{'step':<9} {_HEADER}")
            for number, record in enumerate(search):
                line(f"{record['tune_step']:<9} {_row(number, record)}")
    assert records is not None
    if args.output:
        records.save(args.output)
    if args.json:
        print(records.to_json_text())
    return exit_code(records)


def _spmv(args: argparse.Namespace) -> int:
    from memkern import matrices, spmv

    if args.tune:
        return _tuned(args)
    knobs = {"runs": args.runs, **knobs_of(args)}
    owners = {"C": (8, "sell"), "sigma": (1, "sell"), "move_columns": (False, "sell")}
    owners |= {"mve": (0, "crs"), "unroll": (0, "crs")}
    # Accumulators are unrolling by another name.
    knobs.pop("unroll", None)
    for option, (default, owner) in owners.items():
        if getattr(args, option) != default and owner not in each(args.format):
            raise InputError(
                f"--{option.replace('_', '-')} is for the format {owner}, which --format leaves out"
            )
    cases = []
    for text, rcm in itertools.product(args.matrices, each(args.rcm)):
        label, matrix = matrices.build(text, knobs.get("seed", 0), rcm=rcm)
        for form, balance in itertools.product(each(args.format), each(args.balance)):
            shared = {**knobs, "balance": balance, "accumulate": not args.write, "name": label}
            if form == "sell":
                cases += [
                    spmv.case(matrix, form, C=c, sigma=s, move_columns=args.move_columns, **shared)
                    for c, s in itertools.product(each(args.C), each(args.sigma))
                ]
            elif form == "crs":
                cases += [
                    spmv.case(matrix, form, mve=u, **shared) for u in each(args.mve or args.unroll)
                ]
            else:
                cases.append(spmv.case(matrix, form, **shared))
    args.unroll = 0
    return exit_code(measure(cases, args, _HEADER, _row, ("unroll",)))


_HEADER = (
    f"{'matrix':<24} {'format':<13} {'variant':<15} {'thr':>3} {'balance':<7} {'time_min_s':>11} "
    f"{'GFLOP/s':>8} {'GB/s':>7} {'roofline':>8} {'beta':>6} {'convert_s':>9} {'±%':>5}"
)


def _row(number: int, record: dict[str, Any]) -> str:
    label = record["name"] or record["matrix"]
    form = record["kernel"].partition(".")[2]
    if form == "sell":
        form = f"sell-{record['C']}-{record['sigma']}"
    elif record["unroll"]:
        form = f"{form} mve {record['unroll']}"
    marks = [word for word in ("disturbed",) if record[word]] + ["INVALID"] * (not record["valid"])
    return (
        f"{label if len(label) <= 24 else label[:23] + '…':<24} {form:<13} "
        f"{record['variant'] + '/' + record['isa']:<15} {record['threads']:>3} "
        f"{record['balance']:<7} {record['time_min_s']:>11.4g} "
        f"{record['performance_GFLOPs']:>8.3f} {record['bandwidth_GBps']:>7.2f} "
        f"{100 * record['roofline_fraction']:>7.0f}% {record['beta']:>6.3f} "
        f"{record['convert_s']:>9.3g} {plus_minus(record):>5} {' '.join(marks)}"
    ).rstrip()


def _accumulators(text: str) -> Any:
    return text if text == "auto" else numbers(0, "mve")(text)


def add_verbs(verb: Verb) -> None:
    """Add the verb spmv."""
    sub = verb("spmv", _spmv, "sparse matrix-vector products of a matrix, in each format")
    sub.add_argument(
        "matrices",
        nargs="+",
        metavar="MATRIX",
        help="a Matrix Market file, or a generator such as hpcg:64",
    )
    add = sub.add_argument_group("formats").add_argument
    add("-f", "--format", type=words, default=["crs", "sell"], metavar="NAME,...",
        help=", ".join(FORMATS) + " (crs,sell)")  # fmt: skip
    add("-C", "--C", type=numbers(1, "C"), default=8, metavar="ROWS,...",
        help="rows of a chunk of sell (8)")  # fmt: skip
    add("--sigma", type=numbers(1, "sigma"), default=1, metavar="ROWS,...",
        help="rows of a block that is sorted by length (1)")  # fmt: skip
    add("--move-columns", action="store_true", help="columns of a square matrix, like its rows")
    add("--rcm", action="store_true", help="reverse Cuthill-McKee first")
    add("--balance", type=words, default="rows", metavar="HOW,...", help=", ".join(BALANCES))
    add("--mve", type=_accumulators, default=0, metavar="N,...",
        help="accumulators of a row of crs: " + ", ".join(map(str, MVE)) + " or auto")  # fmt: skip
    add("--tune", action="store_true", help="search the best form within --budget (30 s)")
    add("--write", action="store_true", help="y = A x in place of y = y + A x")
    measuring_options(sub)
