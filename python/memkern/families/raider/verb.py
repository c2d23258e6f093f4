"""The verb raider."""

from __future__ import annotations

import argparse

from memkern.cli.options import MEASURE, argument, verb
from memkern.shared.streaming_verbs import kernels_of, measure_kernels, streaming_options
from memkern.spec.kernel import DTYPES, INTEGER_DTYPES
from memkern.spec.registry import DEFINITIONS


def _raider(args: argparse.Namespace) -> int:
    return measure_kernels(args, kernels_of(args))


RAIDER_VERB = verb(
    "raider",
    MEASURE,
    "RaiderSTREAM: STREAM's kernels regular, gathered, scattered and central",
    _raider,
    (
        "memkern raider -k triad,gather_triad",
        "memkern raider --pattern zipf:1.2",
        "memkern raider -k gather_copy --pattern stride:8 -n 1000000",
    ),
    *streaming_options("raider", (*DTYPES, *INTEGER_DTYPES)),
    argument(
        "--pattern",
        metavar="PATTERN",
        help="order of the indices: permutation, stride1, stride:N, chase, central, "
        "zipf:EXPONENT, hot:ACCESSES:ELEMENTS, or a file",
    ),
    argument(
        "--allow-repeats",
        action="store_true",
        default=None,
        help="allow repeated indices in a file",
    ),
    argument("--definition", choices=DEFINITIONS, help="definition of the kernels (paper)"),
)
