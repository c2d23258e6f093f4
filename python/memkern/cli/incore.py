"""The verb incore: cycles of loops in L1, measured and by static analysis."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from memkern.cli.measuring import line, show_progress, wait_until_quiet, warn, warn_if_not_quiet
from memkern.cli.options import GOOD, Verb, each, positive, wait_option, words
from memkern.errors import InputError


def _incore(args: argparse.Namespace) -> int:
    from memkern.measuring.incore import llvm_mca, measured_in_core, osaca

    if args.arch and osaca() is None:
        raise InputError("OSACA is not installed, which --arch is for: `pip install osaca`")
    warn_if_not_quiet(wait_until_quiet(args), args)
    if llvm_mca() is None:
        warn("llvm-mca is not installed: there is no prediction by it beside the measurement")
    kernels = None if args.kernel is None else [f"loops.{name}" for name in each(args.kernel)]
    with show_progress(args) as progress:
        rows = measured_in_core(
            kernels, seconds=args.seconds, progress=progress, cpu=args.cpu, arch=args.arch
        )
    if args.json:
        print(json.dumps([_finite(row) for row in rows], indent=1))
    elif not args.quiet:
        line(
            f"{'kernel':<17} {'variant':<15} {'vectors':>7} {'measured':>9} {'llvm-mca':>9} "
            f"{'meas/mca':>8} {'OSACA':>9} {'spread':>7}"
        )
        for row in rows:
            line(_row(row))
    return GOOD


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


def _row(row: dict[str, Any]) -> str:
    def text(value: float, form: str) -> str:
        return format(value, form) if math.isfinite(value) else ""

    predicted = row["llvm_mca_cycles"]
    return (
        f"{row['kernel']:<17} {row['variant'] + '/' + row['isa']:<15} {row['vectors']:>7g} "
        f"{row['measured_cycles']:>9.3f} {text(predicted, '.3f'):>9} "
        f"{text(row['measured_cycles'] / predicted, '.2f'):>8} "
        f"{text(row['osaca_cycles'], '.3f'):>9} {text(row['spread'], '.1%'):>7} "
        f"{'disturbed' if row['disturbed'] else ''}"
    ).rstrip()


def add_verbs(verb: Verb) -> None:
    """Add the verb incore."""
    sub = verb(
        "incore", _incore, "cycles of loops in the core, measured in L1 and by static analysis"
    )
    sub.add_argument("-k", "--kernel", type=words, metavar="NAME,...", help="loops (all)")
    sub.add_argument(
        "--cpu", default="native", metavar="NAME", help="processor as llvm-mca names it (native)"
    )
    sub.add_argument(
        "--arch",
        default="",
        metavar="NAME",
        help="microarchitecture as OSACA names it, such as ZEN4 or ICX: also predict by OSACA",
    )
    sub.add_argument(
        "--seconds", type=positive, default=60.0, metavar="N", help="measure at most so long (60)"
    )
    sub.add_argument("--json", action="store_true", help="the table as JSON on standard output")
    wait_option(sub)
    sub.add_argument("-q", "--quiet", action="store_true", help="no table and no progress")
