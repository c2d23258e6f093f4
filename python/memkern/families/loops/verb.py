"""The verb loops."""

from __future__ import annotations

import argparse
from typing import Any

from memkern.cli.options import Verb, count, each
from memkern.cli.refusing import refuse
from memkern.errors import InputError
from memkern.families.loops.stencil_matvec import rows_held
from memkern.families.streaming.elementwise import memory_sized
from memkern.families.streaming.verbs import kernels_of, measure_kernels, streaming_verb
from memkern.spec.kernel import DTYPES

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
    """Return memory-sized shapes of the stencil whose rows the requested levels hold."""
    from memkern.measuring.describe import describe

    if args.kernel not in (None, "stencil"):
        raise InputError("--layer-condition is the stencil's: use it with --kernel stencil")
    dtype = args.dtype or DTYPES[0]
    points = args.elements or memory_sized(dtype)
    topology = describe()["topology"]
    # A worker's share of each cache.
    share = max(1, max(each(args.threads or len(topology["units"]))))
    caches_B = {
        f"L{cache['level']}": cache["size_B"] // min(share, max(1, cache["shared_by"]))
        for cache in topology["caches"]
    }
    shapes = []
    for holder in args.layer_condition.split(","):
        columns = rows_held(holder, caches_B, dtype)
        rows = max(3, points // columns)
        shapes.append({"rows": rows, "columns": columns, "layer_condition": holder})
    return shapes


def add_verbs(verb: Verb) -> None:
    """Add the verb loops."""
    sub = streaming_verb(verb, "loops", "the loop kernels of the ECM studies", _loops)
    sub.add_argument(
        "--layer-condition",
        metavar="WHERE,...",
        help="stencil whose three rows are held in L1, L2, L3 or memory",
    )
    for side in ("rows", "columns"):
        help = f"{side} of stencil and matvec"
        sub.add_argument(f"--{side}", type=count(1), metavar="N", help=help)
