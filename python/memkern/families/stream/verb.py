"""The verb stream."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from memkern.cli.measuring import beside, health_of
from memkern.cli.options import MEASURE, verb
from memkern.shared.streaming_verbs import kernels_of, measure_kernels, streaming_options
from memkern.spec.kernel import DTYPES, INTEGER_DTYPES

if TYPE_CHECKING:
    from memkern.formats import ResultSet

_ROTATION = "stream.rotation"


def _stream(args: argparse.Namespace) -> int:
    names = kernels_of(args)
    if args.kernel is None:
        # By default the four kernels in turn, and in a sweep over sizes each alone.
        names = [name for name in names if (name == _ROTATION) == (args.sizes is None)]
    return measure_kernels(args, names, answers=[_beside_stream, health_of])


def _beside_stream(results: ResultSet) -> str:
    """Return why the rotation differs from STREAM, and from kernels on their own; else nothing."""
    statistic = "both take the shortest time without that of the first turn"
    sentence = beside("STREAM", statistic)(results.filter(kernel=_ROTATION))
    alone = (
        "`-k triad` measures a kernel on its own, in the variant that is fastest for it, and "
        "differs from the rotation, in which other kernels use the caches in between"
    )
    return f"{sentence}\n{alone}" if sentence else ""


STREAM_VERB = verb(
    "stream",
    MEASURE,
    "STREAM: its four kernels in turn, or single ones",
    _stream,
    (
        "memkern stream",
        "memkern stream -k copy,triad -t 1,2",
        "memkern stream -k triad --sizes 16KiB:1GiB:40 -o stream.parquet",
    ),
    *streaming_options(
        "stream",
        (*DTYPES, *INTEGER_DTYPES),
        "rotation: all in turn, as STREAM; with --sizes each of the others",
    ),
)
