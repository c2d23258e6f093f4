"""The verb transfers: between a host and a GPU, and between two GPUs."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from typing import Any

from memkern.cli.measuring import exit_code, marks, measure, plus_minus
from memkern.cli.options import (
    MEASURE,
    argument,
    argument_group,
    each,
    knobs_of,
    measuring_options,
    verb,
    words,
)
from memkern.errors import InputError
from memkern.families.transfers.kernels import MEMORIES, VARIANTS, WAYS, WORD_B
from memkern.inputs.sizes import parse_sizes
from memkern.spec import registry
from memkern.spec.sequences import joined, product

# From 8 bytes to 512 MiB.
_SIZES = tuple(WORD_B * 4**power for power in range(14))

_HEADER = (
    f"{'case':<4} {'kernel':<12} {'memory':<9} {'variant':<9} {'size':>11} {'time us':>11} "
    f"{'GB/s':>9} {'±%':>5}"
)


_SHOWN = ("memory", "variant", "size_B")


def _row(number: int, record: dict[str, Any]) -> str:
    return (
        f"{number:<4} {record['kernel'].partition('.')[2]:<12} {record['memory']:<9} "
        f"{record['variant']:<9} {record['size_B']:>11} {1e6 * record['time_min_s']:>11.2f} "
        f"{record['bandwidth_GBps']:>9.3f} {plus_minus(record):>5} {' '.join(marks(record))}"
    ).rstrip()


def _kernels(args: argparse.Namespace) -> list[str]:
    """Return the transfers to measure; between devices only if there are two."""
    from memkern.machine import gpu

    if args.kernel is not None:
        return list(each(args.kernel))
    only_host = args.memory is not None or (args.peer is None and len(gpu.devices()) < 2)
    return [name for name in WAYS if name != "between" or not only_host]


def _direct(device: str, peer: str = "", **_: Any) -> bool:
    """Return whether data can move directly from one GPU to another."""
    from memkern.machine import gpu

    case = registry.case("transfers.between", device=device, peer=peer)
    return gpu.reaches(case.knobs.device, case.columns["peer"])


def _transfers(args: argparse.Namespace) -> int:
    variants, args.variant = args.variant, None  # the variants differ between kinds of memory
    knobs = {"device": "cuda", **knobs_of(args)}
    sizes: Sequence[int] = _SIZES if args.sizes is None else parse_sizes(args.sizes, WORD_B)
    parts = []
    for name in _kernels(args):
        memories = list(MEMORIES) if args.memory is None else each(args.memory)
        if name == "between":
            memories = ["device"]
        own = {"peer": args.peer} if name == "between" and args.peer is not None else {}
        for memory in memories:
            chosen = VARIANTS.get(memory, ("copy",))
            if variants is not None:
                chosen = tuple(v for v in each(variants) if v in chosen)
            elif name == "between" and not _direct(**knobs, **own):
                chosen = ("staged",)
            build = functools.partial(
                registry.case,
                f"transfers.{name}",
                **({"memory": memory} if name != "between" else {}),
                **own,
                **knobs,
            )
            axes: dict[str, Sequence[Any]] = {"variant": chosen, "size_B": sizes}
            parts += [product(build, axes)] * bool(chosen)
    if not parts:
        raise InputError(
            f"none of these transfers has variant {', '.join(map(str, each(variants)))}"
        )
    return exit_code(measure(joined(parts), args, _HEADER, _row, _SHOWN))


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
    argument_group(
        "transfers",
        argument(
            "-k",
            "--kernel",
            type=words,
            metavar="NAME,...",
            help=", ".join(WAYS) + " (all; between where there are two GPUs)",
        ),
        argument(
            "--memory",
            type=words,
            metavar="NAME,...",
            help=f"of the host: {', '.join(MEMORIES)} (all); managed has variants touch and "
            "prefetch",
        ),
        argument(
            "--sizes", metavar="LOW:HIGH:COUNT", help="bytes, log-spaced, or a list (8 to 512 MiB)"
        ),
        argument("--peer", metavar="NAME", help="of between: the other GPU (cuda:1)"),
    ),
    measuring_options(dtypes=("uint64",)),
)
