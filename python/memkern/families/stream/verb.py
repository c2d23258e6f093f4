"""The verb stream."""

from __future__ import annotations

import argparse

from memkern.cli.options import Verb
from memkern.families.streaming.verbs import kernels_of, measure_kernels, streaming_verb

_ROTATION = "stream.rotation"


def _stream(args: argparse.Namespace) -> int:
    names = kernels_of(args)
    if args.kernel is None:
        # By default the four kernels in turn, and in a sweep over sizes each alone.
        names = [name for name in names if (name == _ROTATION) == (args.sizes is None)]
    return measure_kernels(args, names)


def add_verbs(verb: Verb) -> None:
    """Add the verb stream."""
    what = "STREAM: its four kernels in turn, or some of them on their own"
    streaming_verb(verb, "stream", what, _stream)
