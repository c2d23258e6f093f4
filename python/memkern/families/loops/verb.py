"""The verb loops."""

from __future__ import annotations

import argparse
from typing import Any

from memkern.cli.options import MEASURE, argument, count, refuse, verb
from memkern.errors import InputError
from memkern.shared.streaming_verbs import kernels_of, measure_kernels, streaming_options

# Kernels over arrays of rows and columns.
_SHAPED = ["loops.stencil", "loops.matvec"]


def _loops(args: argparse.Namespace) -> int:
    names = kernels_of(args)
    if args.layer_condition is not None:
        where = "with --layer-condition, which chooses rows and columns"
        refuse(args, where, sizes=None, rows=None, columns=None)
        return measure_kernels(args, ["loops.stencil"], _layer_conditions(args))
    if args.rows is not None:
        refuse(args, "with --rows, which determines the size", sizes=None, elements=None)
        if args.kernel is None:
            names = _SHAPED
    return measure_kernels(args, names)


def _layer_conditions(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the options of stencils for the levels that should hold their rows."""
    if args.kernel not in (None, "stencil"):
        raise InputError("--layer-condition is for the stencil: use it with --kernel stencil")
    size = {} if args.elements is None else {"elements": args.elements}
    return [{"layer_condition": holder, **size} for holder in args.layer_condition.split(",")]


LOOPS_VERB = verb(
    "loops",
    MEASURE,
    "the loop kernels of the ECM studies",
    _loops,
    (
        "memkern loops -k triad --unroll 1,2,4,8 -t 1",
        "memkern loops -k stencil --layer-condition L1,L2",
        "memkern loops -k load,copy --sizes 16KiB:64MiB:20 -o loops.parquet",
    ),
    *streaming_options("loops"),
    argument(
        "--layer-condition",
        metavar="WHERE,...",
        help="stencil of a size for which this level (L1, L2, L3 or memory) holds three rows",
    ),
    *(
        argument(f"--{side}", type=count(1), metavar="N", help=f"{side} of stencil and matvec")
        for side in ("rows", "columns")
    ),
)
