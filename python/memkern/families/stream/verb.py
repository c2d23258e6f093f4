"""The verb stream."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from memkern.cli.measuring import beside, health_of
from memkern.cli.options import measuring_options
from memkern.cli.verbs import kernel_option, kernel_verb, requested_kernels
from memkern.spec.kernel import DTYPES, INTEGER_DTYPES

if TYPE_CHECKING:
    from memkern.formats import ResultSet

_ROTATION = "stream.rotation"


def _kernels(args: argparse.Namespace) -> list[str]:
    """Return by default the four kernels in turn, and in a sweep over sizes each alone."""
    names = requested_kernels(args)
    if args.kernel is None:
        names = [name for name in names if (name == _ROTATION) == (args.sizes is None)]
    return names


def _beside_stream(results: ResultSet) -> str:
    """Return why the rotation differs from STREAM, and from kernels on their own; else nothing."""
    statistic = "both take the shortest time without that of the first turn"
    sentence = beside("STREAM", statistic)(results.filter(kernel=_ROTATION))
    alone = (
        "`-k triad` measures a kernel on its own, in the variant that is fastest for it, and "
        "differs from the rotation, in which other kernels use the caches in between"
    )
    return f"{sentence}\n{alone}" if sentence else ""


STREAM_VERB = kernel_verb(
    "stream",
    "STREAM: its four kernels in turn, or single ones",
    (
        "memkern stream",
        "memkern stream -k copy,triad -t 1,2",
        "memkern stream -k triad --sizes 16KiB:1GiB:40 -o stream.parquet",
    ),
    option=kernel_option(
        "stream", "rotation: all in turn, as STREAM; with --sizes each of the others"
    ),
    kernels=_kernels,
    answers=[_beside_stream, health_of],
    measuring=measuring_options(dtypes=(*DTYPES, *INTEGER_DTYPES)),
)
