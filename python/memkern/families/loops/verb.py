"""The verb loops."""

from __future__ import annotations

import argparse

from memkern.cli.verbs import kernel_verb, requested_kernels


def _kernels(args: argparse.Namespace) -> list[str]:
    """Return by default the kernels over arrays of rows and columns if these are given."""
    if args.kernel is None and args.layer_condition is not None:
        return ["loops.stencil"]
    if args.kernel is None and args.rows is not None:
        return ["loops.stencil", "loops.matvec"]
    return requested_kernels(args)


LOOPS_VERB = kernel_verb(
    "loops",
    "the loop kernels of the ECM studies",
    (
        "memkern loops -k triad --unroll 1,2,4,8 -t 1",
        "memkern loops -k stencil --layer-condition L1,L2",
        "memkern loops -k load,copy --sizes 16KiB:64MiB:20 -o loops.parquet",
    ),
    kernels=_kernels,
)
