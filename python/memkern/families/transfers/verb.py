"""The verb transfers: between a host and a GPU, and between two GPUs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from memkern.cli.measuring import exit_code, measure
from memkern.cli.options import MEASURE, each, measuring_options, verb
from memkern.cli.tables import CASE, INTERVAL, Table, cell, kernel_of
from memkern.cli.verbs import input_cases, input_options, kernel_option, requested_kernels
from memkern.errors import InputError
from memkern.families.transfers.kernels import BETWEEN, MEMORIES, VARIANTS, WORD_B
from memkern.machine import gpu
from memkern.spec import registry
from memkern.spec.sequences import joined

# From 8 bytes to 512 MiB.
_SIZES = tuple(WORD_B * 4**power for power in range(14))

_TABLE = Table(
    (
        CASE,
        cell("kernel", "<12", value=kernel_of),
        cell("memory", "<9"),
        cell("variant", "<9"),
        cell("size_B", ">11", "size"),
        cell("time us", ">11.2f", value=lambda record: 1e6 * record["time_min_s"], shows=()),
        cell("bandwidth_GBps", ">9.3f", "GB/s"),
        INTERVAL,
    )
)


def _kernels(args: argparse.Namespace) -> list[str]:
    """Return the transfers to measure; between devices only if there are two."""
    only_host = args.memory is not None or (args.peer is None and len(gpu.devices()) < 2)
    return [
        name
        for name in requested_kernels(args)
        if name != BETWEEN or args.kernel is not None or not only_host
    ]


def _direct(args: argparse.Namespace) -> bool:
    """Return whether data can move directly from one GPU to another."""
    case = registry.case(BETWEEN, device=args.device or "cuda", peer=args.peer or "")
    return gpu.reaches(case.knobs.device, case.columns["peer"])


def _transfers(args: argparse.Namespace) -> int:
    variants, args.variant = args.variant, None  # the variants differ between kinds of memory
    memories = MEMORIES if args.memory is None else each(args.memory)

    def parts(kernel: str) -> list[dict[str, Sequence[Any]]]:
        known = {memory: VARIANTS.get(memory, ("copy",)) for memory in memories}
        if kernel == BETWEEN:
            direct = variants is not None or _direct(args)
            known = {"": VARIANTS["device"] if direct else ("staged",)}
        return [
            {
                **({"memory": [memory]} if memory else {}),
                "variant": [v for v in known[memory] if variants is None or v in each(variants)],
                **({"size_B": _SIZES} if args.sizes is None else {}),
            }
            for memory in known
        ]

    cases = joined(input_cases(args, _kernels(args), parts=parts, device="cuda"))
    if not cases:
        raise InputError(f"none of these transfers has variant {', '.join(each(variants))}")
    return exit_code(measure(cases, args, _TABLE))


TRANSFERS_VERB = verb(
    "transfers",
    MEASURE,
    "transfers between a host and a GPU, and between two GPUs",
    _transfers,
    (
        "memkern transfers -o transfers.parquet",
        "memkern transfers -k to_device --memory pinned",
        "memkern transfers --sizes 1MiB:1GiB:11",
    ),
    kernel_option("transfers", "all; between where there are two GPUs"),
    *input_options("transfers"),
    measuring_options(dtypes=("uint64",)),
)
