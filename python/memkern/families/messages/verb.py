"""The verb messages: latency, rate and bandwidth of messages between ranks."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from memkern.cli.measuring import exit_code, measure
from memkern.cli.options import MEASURE, each, measuring_options, verb
from memkern.cli.tables import CASE, MEDIAN, Record, Table, cell, kernel_of
from memkern.cli.verbs import input_cases, input_options, kernel_option, requested_kernels
from memkern.errors import InputError
from memkern.families.messages import pairs
from memkern.families.messages.kernels import WORD_B, most_window
from memkern.inputs.sizes import parse_sizes
from memkern.machine.remote import description
from memkern.spec.options import Knobs
from memkern.spec.sequences import joined

_SIZES = tuple(WORD_B * 4**power for power in range(10))
_WINDOWS = (1, 64)
# Windows larger than 1 are measured up to this number of bytes in flight.
_MOST_B = 2**21


def _chosen(record: Record) -> str:
    """Return the pairs of a record, or their number if they are many."""
    pairs = str(record["pairs"])
    return pairs if len(pairs) <= 12 else f"{record['origins']} pairs"


_TABLE = Table(
    (
        CASE,
        cell("kernel", "<10", value=kernel_of),
        cell("pairs", "<12", value=_chosen),
        cell("distance", "<10"),
        cell("size_B", ">8", "size"),
        cell("window", ">6"),
        cell("latency us", ">10.3f", value=lambda record: record["ns_per_access"] / 1e3),
        cell("messages_per_second", ">11.4g", "messages/s"),
        cell("bandwidth_GBps", ">8.3f", "GB/s"),
        MEDIAN,
    )
)


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
    return found + [",".join(listed)] * bool(listed) or [""]


def _messages(args: argparse.Namespace) -> int:
    device = args.device or Knobs.device
    kernels = requested_kernels(args)
    if args.kernel is None and not Knobs(device=device).backend.sends:
        kernels.remove("messages.send")
    chosen = _pairs(args.pairs, device)
    windows = _WINDOWS if args.window is None else each(args.window)

    def parts(kernel: str) -> Iterator[dict[str, Sequence[Any]]]:
        sizes: Sequence[int] = _SIZES if args.sizes is None else parse_sizes(args.sizes, WORD_B)
        if kernel == "messages.fetch_add" and (args.kernel is None or args.sizes is None):
            sizes = (WORD_B,)
        for window in windows:
            if args.kernel is not None or window <= most_window(kernel, device):
                most = math.inf if window == 1 or args.window is not None else _MOST_B
                yield {
                    "pairs": chosen,
                    "window": [window],
                    "size_B": [size for size in sizes if size * window <= most],
                }

    cases = joined(input_cases(args, kernels, parts=parts))
    if not cases:
        raise InputError(f"no window fits {args.sizes}: give --window")
    return exit_code(measure(cases, args, _TABLE))


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
    kernel_option("messages", "all that the library has"),
    *input_options("messages"),
    measuring_options(dtypes=("uint64",)),
)
