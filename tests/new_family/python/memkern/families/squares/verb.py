"""The verb squares."""

from __future__ import annotations

import argparse

from memkern.cli.options import MEASURE, Parser, grouped, verb
from memkern.shared.streaming_verbs import kernels_of, measure_kernels, streaming_options


def _squares(args: argparse.Namespace) -> int:
    return measure_kernels(args, kernels_of(args))


@grouped(MEASURE, "memkern squares", "memkern squares -n 1000", "memkern squares -t 1,2")
@verb("squares", _squares, "squares of elements")
def _squares_options(sub: Parser) -> None:
    streaming_options(sub)
