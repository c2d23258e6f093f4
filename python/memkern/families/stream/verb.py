"""The verb stream."""

from __future__ import annotations

import argparse

from memkern.cli.options import Parser, verb
from memkern.shared.streaming_verbs import kernels_of, measure_kernels, streaming_options

_ROTATION = "stream.rotation"


def _stream(args: argparse.Namespace) -> int:
    names = kernels_of(args)
    if args.kernel is None:
        # By default the four kernels in turn, and in a sweep over sizes each alone.
        names = [name for name in names if (name == _ROTATION) == (args.sizes is None)]
    return measure_kernels(args, names)


@verb("stream", _stream, "STREAM: its four kernels in turn, or single ones")
def _stream_options(sub: Parser) -> None:
    streaming_options(sub)
