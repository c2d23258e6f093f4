"""The verb dw: the hopping term of the domain-wall operator, in each layout."""

from __future__ import annotations

import argparse
import math
from typing import Any

from memkern.cli.measuring import exit_code, measure
from memkern.cli.options import MEASURE, each, measuring_options, refuse, verb
from memkern.cli.tables import INTERVAL, SHORTEST, THREADS, VARIANT, Record, Table, cell
from memkern.cli.verbs import input_cases, input_options
from memkern.spec.sequences import joined


def _dw(args: argparse.Namespace) -> int:
    layouts = ["RRII"] if args.layout is None else each(args.layout)
    if layouts == ["lexicographic"]:
        refuse(args, "in the lexicographic layout, which has no vectors", cut=None, vector=None)
    if not any(each(args.prefetch or 0)):
        refuse(args, "without a distance, --prefetch", prefetch_into=None)
    axes: dict[str, list[Any]] = {}
    if args.share_planes and args.threads is not None:
        # The planes that workers share depend on the number of workers.
        axes["threads"], args.threads = each(args.threads), None
    # The lexicographic layout has no vectors, and so no width and no cut.
    plain: dict[str, list[Any]] = {"cut": ["auto"], "vector": [0]}
    parts = [
        {**axes, "layout": [layout], **(plain if layout == "lexicographic" else {})}
        for layout in layouts
    ]
    cases = joined(input_cases(args, ["dw.hop"], parts=lambda kernel: parts))
    return exit_code(measure(cases, args, TABLE))


def _update_B(record: Record) -> float:
    """Return the bytes of an update from and to memory; NaN if the caches are unknown."""
    from memkern.families.dw.data import site_B

    return float(site_B(record)) if "memory_load_B" in record else math.nan


def _share(record: Record) -> float | str:
    """Return the share of the roofline; NaN if the measurement of its bandwidths was disturbed."""
    share: float = record["roofline_min_fraction"]
    return "in cache" if math.isnan(share) and _update_B(record) == 0 else share


TABLE = Table(
    (
        cell("lattice", "<15"),
        cell("Ls", ">3"),
        cell("layout", "<13"),
        cell("cut", "<11"),
        cell("vector_bits", ">4", "bits"),
        cell("parity", "<6"),
        VARIANT,
        THREADS,
        SHORTEST,
        cell("performance_GFLOPs", ">8.2f", "GFLOP/s"),
        cell("B/update", ">8.0f", value=_update_B),
        cell("roofline", ">8.0%", value=_share),
        INTERVAL,
    )
)

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
    *input_options("dw"),
    measuring_options(),
)
