"""The verb squares."""

from __future__ import annotations

import argparse

from memkern.cli.options import MEASURE, verb
from memkern.shared.streaming_verbs import kernels_of, measure_kernels, streaming_options


def _squares(args: argparse.Namespace) -> int:
    return measure_kernels(args, kernels_of(args))


SQUARES_VERB = verb(
    "squares",
    MEASURE,
    "squares of elements",
    _squares,
    ("memkern squares", "memkern squares -n 1000", "memkern squares -t 1,2"),
    *streaming_options("squares"),
)
