"""The verb messages: latency, rate and bandwidth of messages between ranks."""

from __future__ import annotations

import argparse
import functools
import re
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
    numbers,
    verb,
    words,
)
from memkern.errors import InputError
from memkern.families.messages import pairs
from memkern.families.messages.kernels import OPERATIONS, WORD_B, most_window
from memkern.inputs.sizes import parse_sizes
from memkern.machine.remote import description
from memkern.spec import registry
from memkern.spec.options import Knobs
from memkern.spec.sequences import joined, product

_SIZES = tuple(WORD_B * 4**power for power in range(10))
_WINDOWS = (1, 64)
# Windows larger than 1 are measured up to this number of bytes in flight.
_MOST_B = 2**21

_HEADER = (
    f"{'case':<4} {'kernel':<10} {'pairs':<12} {'distance':<10} {'size':>8} {'window':>6} "
    f"{'latency us':>10} {'messages/s':>11} {'GB/s':>8} {'±%':>5}"
)


_SHOWN = ("pairs", "distance", "size_B", "window")


def _row(number: int, record: dict[str, Any]) -> str:
    latency = record["ns_per_access"] / 1e3
    shown = f"{latency:.3f}" if latency == latency else ""
    chosen = record["pairs"] if len(record["pairs"]) <= 12 else f"{record['origins']} pairs"
    return (
        f"{number:<4} {record['kernel'].partition('.')[2]:<10} {chosen:<12} "
        f"{record['distance']:<10} {record['size_B']:>8} {record['window']:>6} {shown:>10} "
        f"{record['messages_per_second']:>11.4g} {record['bandwidth_GBps']:>8.3f} "
        f"{plus_minus(record, 'median'):>5} {' '.join(marks(record))}"
    ).rstrip()


def _pairs(given: str | None, device: str) -> list[str]:
    """Return the pairs of each case."""
    if not Knobs(device=device).backend.over_ranks:
        return [""]  # the kernels refuse the device
    nodes = description(device).nodes
    if given is None:
        return [word for word in pairs.NEIGHBOURS if pairs.neighbours(word, nodes)] or [""]
    parts = [part.strip() for part in given.split(",")]
    listed = [part for part in parts if re.match("[0-9]", part)]
    found = [part for part in dict.fromkeys(parts) if part not in (*listed, "each")]
    if "each" in parts:
        found += [pairs.written([pair]) for pair in pairs.every(nodes)]
    return found + [",".join(listed)] * bool(listed)


def _messages(args: argparse.Namespace) -> int:
    device = args.device or Knobs().device
    known = [name for name in OPERATIONS if name != "send" or Knobs(device=device).backend.sends]
    names = known if args.kernel is None else each(args.kernel)
    knobs = knobs_of(args)
    chosen = _pairs(args.pairs, device)
    windows = _WINDOWS if args.window is None else each(args.window)
    parts = []
    for name in names:
        sizes: Sequence[int] = _SIZES if args.sizes is None else parse_sizes(args.sizes, WORD_B)
        if name == "fetch_add" and (args.kernel is None or args.sizes is None):
            sizes = (WORD_B,)
        build = functools.partial(registry.case, f"messages.{name}", **knobs)
        for window in windows:
            if args.kernel is None and window > most_window(f"messages.{name}", device):
                continue
            most = _MOST_B if args.window is None and window > 1 else max(sizes) * window
            fitting = [size for size in sizes if size * window <= most]
            axes: dict[str, Sequence[Any]] = {
                "pairs": chosen,
                "window": [window],
                "size_B": fitting,
            }
            parts += [product(build, axes)] * bool(fitting)
    if not parts:
        raise InputError(f"no window fits {args.sizes}: give --window")
    return exit_code(measure(joined(parts), args, _HEADER, _row, _SHOWN))


MESSAGES_VERB = verb(
    "messages",
    MEASURE,
    "latency, rate and bandwidth of messages between ranks",
    _messages,
    (
        "memkern messages --device mpi",
        "memkern messages --device mpi -k put,get --sizes 8,1MiB",
        "memkern messages --device shmem --pairs other -o messages.parquet",
    ),
    argument_group(
        "messages",
        argument(
            "-k",
            "--kernel",
            type=words,
            metavar="NAME,...",
            help=", ".join(OPERATIONS) + " (all that the library has)",
        ),
        argument(
            "--sizes",
            metavar="LOW:HIGH:COUNT",
            help="bytes of a message, log-spaced, or a list (8 to 2 MiB); a fetch_add has 8",
        ),
        argument(
            "-w",
            "--window",
            type=numbers(1, "window"),
            metavar="N,...",
            help="messages that are started before the first one is complete (1, and 64 up to 2 "
            "MiB of them)",
        ),
        argument(
            "--pairs",
            metavar="PAIRS",
            help="node: neighbours on a node; other: each rank and its counterpart on another "
            "node; each: every pair separately; or origins and targets: 0-1,2-3 (node and other)",
        ),
    ),
    measuring_options(dtypes=("uint64",)),
)
