"""The verb machine instructions: throughput and latency of instructions at each width."""

from __future__ import annotations

import argparse
from typing import Any

from memkern.cli.measuring import exit_code, marks, measure, plus_minus
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
from memkern.families.instructions.kernels import INSTRUCTIONS, QUANTITIES

_HEADER = (
    f"{'instruction':<22} {'indices':<7} {'bits':<4} {'variant':<15} {'quantity':<10} "
    f"{'cycles':>7} {'ns':>7} {'±%':>5}"
)


_SHOWN = ("instruction", "index_stride", "vector_bits", "variant", "isa", "quantity")


def _row(number: int, record: dict[str, Any]) -> str:
    stride = record.get("index_stride", "")
    return (
        f"{record['instruction']:<22} {stride or '':<7} {record.get('vector_bits') or '':<4} "
        f"{record['variant'] + '/' + record['isa']:<15} {record['quantity']:<10} "
        f"{record['cycles_per_access']:>7.2f} {record['ns_per_access']:>7.2f} "
        f"{plus_minus(record, 'median'):>5} {' '.join(marks(record))}"
    ).rstrip()


def _instructions(args: argparse.Namespace) -> int:
    from memkern.studies.machine_file import instruction_cases

    refuse(args, "in instructions, which chooses the variants", variant=None)
    knobs = {k: v for k, v in knobs_of(args).items() if k not in ("threads", "dtype", "isa")}
    lists = {"names": args.instruction, "quantities": args.quantity, "isas": args.isa}
    chosen = {name: each(words) for name, words in lists.items() if words is not None}
    args.isa = None  # each instruction set has separate cases
    cases = instruction_cases(**{"budget_s": 0.1, **knobs, **chosen})
    return exit_code(measure(cases, args, _HEADER, _row, _SHOWN))


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
