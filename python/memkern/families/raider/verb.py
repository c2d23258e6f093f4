"""The verb raider."""

from __future__ import annotations

import argparse

from memkern.cli.options import Verb
from memkern.families.streaming.verbs import kernels_of, measure_kernels, streaming_verb
from memkern.spec.registry import DEFINITIONS


def _raider(args: argparse.Namespace) -> int:
    return measure_kernels(args, kernels_of(args))


def add_verbs(verb: Verb) -> None:
    """Add the verb raider."""
    what = "RaiderSTREAM: STREAM's kernels regular, gathered, scattered and central"
    sub = streaming_verb(verb, "raider", what, _raider)
    sub.add_argument(
        "--pattern",
        metavar="PATTERN",
        help="order of the indices: permutation, stride1, stride:N, chase, central, "
        "zipf:EXPONENT, hot:ACCESSES:ELEMENTS, or a file",
    )
    sub.add_argument(
        "--allow-repeats",
        action="store_true",
        default=None,
        help="the indices of a file need not be a permutation",
    )
    sub.add_argument("--definition", choices=DEFINITIONS, help="(paper)")
