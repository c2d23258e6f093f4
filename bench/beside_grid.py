"""Compare memkern's hopping term with Grid's, in turns.

The peer is a program, built elsewhere with Grid's own flags, that is called as
``PROGRAM LX LY LZ LT LS THREADS SECONDS``: it applies Grid's Dhop in double precision for SECONDS
with each of its kernels and prints a line for each: ``Dhop_`` (full lattice), ``DhopEO_`` (even
results of odd sites) or ``DhopOE_`` and its name, shortest and median seconds of an application.
Lattices have equal extents, in 4 KiB pages. memkern's forms are both layouts, with vectors over s
or over sites (as in Grid), with or without prefetch, and one form in blocks of four z.
"""

import argparse
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from peers import as_fast, beside, forms_in_turns, printed_seconds
from records import program

import memkern as mk

PREFIXES = {"full": "Dhop_", "even": "DhopEO_", "odd": "DhopOE_"}
_CUTS = {"s": "s", "sites": "tzyx"}
_PREFETCH = {"": 0, ", prefetch": 3}
FORMS: dict[str, dict[str, Any]] = {
    f"{layout}, lanes over {lanes}{prefetch}": {
        "layout": layout,
        "cut": _CUTS[lanes],
        "prefetch": _PREFETCH[prefetch],
    }
    for layout, lanes, prefetch in itertools.product(("RRII", "RIRI"), _CUTS, _PREFETCH)
}
_PREFETCHED = "RIRI, lanes over s, prefetch"
FORMS[f"{_PREFETCHED}, blocks of four z"] = {**FORMS[_PREFETCHED], "block": (0, 0, 4, 0)}


def compared(args: argparse.Namespace, extent: int, threads: int) -> Iterator[Any]:
    """Yield the rows of all forms of a lattice, and its row."""
    knobs = {"threads": threads, "pages": "4k", "budget_s": args.seconds}
    knobs |= {"ls": args.ls, "parity": args.parity}
    cases = {n: mk.dw([extent] * 4, **f, **knobs) for n, f in FORMS.items()}
    words = [args.grid, *[extent] * 4, args.ls, threads, args.seconds]
    prefix = PREFIXES[args.parity]

    def grid() -> dict[str, float]:
        return {k: s for k, s in printed_seconds(words).items() if k.startswith(prefix)}

    ours, theirs = forms_in_turns(cases, {"grid": grid}, args.turns)
    gigaflops = 1320 * extent**4 / (1 if args.parity == "full" else 2) * args.ls / 1e9
    size = {"lattice": f"{extent}^4", "threads": threads}
    for name, times in (*ours.items(), *theirs.items()):
        yield "forms", {**size, "form": name, "GFLOP/s": gigaflops / np.median(times)}
    yield size | beside("Grid", "GFLOP/s", ours, theirs, gigaflops)


def measured(args: argparse.Namespace) -> Iterator[Any]:
    """Yield the rows of all lattices."""
    for extent, threads in itertools.product(args.extents, args.threads):
        yield from compared(args, extent, threads)


OPTIONS = {
    "extents": {"nargs": "+", "type": int},
    "--grid": {"required": True, "metavar": "PROGRAM"},
    "--ls": 8,
    "--parity": {"choices": tuple(PREFIXES), "default": "full"},
    "--threads": {"type": int, "nargs": "+", "default": [1, 2]},
    "--seconds": 0.2,
}
main = program(__name__, __doc__, measured, OPTIONS, turns=7, judge=as_fast)
