"""The verb machine instructions: throughput and latency of instructions at each width."""

from __future__ import annotations

import argparse

from memkern.cli.measuring import exit_code, measure
from memkern.cli.options import (
    UNDERSTAND,
    argument,
    argument_group,
    each,
    knobs_of,
    measuring_options,
    refuse,
    verb,
    words,
)
from memkern.cli.tables import MEDIAN, VARIANT, Table, cell
from memkern.families.instructions.kernels import INSTRUCTIONS, QUANTITIES

_TABLE = Table(
    (
        cell("instruction", "<22"),
        cell("index_stride", "<7", "indices"),
        cell("vector_bits", "<4", "bits"),
        VARIANT,
        cell("quantity", "<10"),
        cell("cycles_per_access", ">7.2f", "cycles"),
        cell("ns_per_access", ">7.2f", "ns"),
        MEDIAN,
    )
)


def _instructions(args: argparse.Namespace) -> int:
    from memkern.studies.machine_file import instruction_cases

    refuse(args, "in instructions, which chooses the variants", variant=None)
    knobs = {k: v for k, v in knobs_of(args).items() if k not in ("threads", "dtype", "isa")}
    lists = {"names": args.instruction, "quantities": args.quantity, "isas": args.isa}
    chosen = {name: each(words) for name, words in lists.items() if words is not None}
    args.isa = None  # each instruction set has separate cases
    cases = instruction_cases(**{"budget_s": 0.1, **knobs, **chosen})
    return exit_code(measure(cases, args, _TABLE))


INSTRUCTIONS_VERB = verb(
    "machine instructions",
    UNDERSTAND,
    "throughput and latency of single instructions on one core",
    _instructions,
    (
        "memkern machine instructions --instruction fma,gather",
        "memkern machine instructions --quantity latency --isa avx2",
        "memkern machine instructions --quick -o instructions.parquet",
    ),
    argument_group(
        "instructions",
        argument(
            "--instruction", type=words, metavar="NAME,...", help=", ".join(INSTRUCTIONS) + " (all)"
        ),
        argument(
            "--quantity", type=words, metavar="NAME,...", help=", ".join(QUANTITIES) + " (both)"
        ),
    ),
    measuring_options(dtypes=("float64",)),
)
