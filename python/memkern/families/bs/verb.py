"""The verb bs."""

from __future__ import annotations

import argparse

from memkern.cli.analysis import fit_text
from memkern.cli.options import argument, each, measuring_options, numbers
from memkern.cli.verbs import kernel_verb, kernels_of


def _kernels(args: argparse.Namespace) -> list[str]:
    tests = range(9) if args.tests is None else each(args.tests)
    return [f"bs.bs{number}" for number in tests]


BS_VERB = kernel_verb(
    "bs",
    "the finite-element streaming tests BS0 to BS8",
    (
        "memkern bs 1 --sizes 64KiB:512MiB:60",
        "memkern bs 1,2 -n 10000000",
        "memkern bs 6 --degree 3,7 --elements 20",
    ),
    option=argument(
        "tests", nargs="?", type=numbers(0, "tests"), metavar="NUMBERS", help="0..8, or 1,2,6 (all)"
    ),
    kernels=_kernels,
    # An empty launch has no variants.
    owners={"variant": [name for name in kernels_of("bs") if name != "bs.bs0"]},
    answers=[fit_text],
    measuring=measuring_options(elsewhere=("halo",)),
)
