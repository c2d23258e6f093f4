"""Transfers between a host and a GPU, and between two GPUs.

Memory of the host is ``pageable`` (ordinary memory), ``pinned`` (locked in physical memory, so that
a device can read and write it directly) or ``managed`` (whose pages migrate to the accessing
device). Pageable and pinned memory are copied; a copy from or to pageable memory returns only when
the memory may be reused, so that the two copies of ``both`` are sequential. Managed memory migrates
page by page while the other side reads the first word of each page (variant ``touch``), or is
prefetched as a whole before this read (``prefetch``).
Between devices, data move directly (``direct``) or through memory of the host (``staged``).

An invocation is a single transfer that the host waits for.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from memkern import small
from memkern.errors import InputError
from memkern.inputs.sizes import bytes_of_words, parse_sizes
from memkern.limits import check_memory
from memkern.machine.declarations import declared
from memkern.shared.checking import Values
from memkern.spec.case import Case, Checks, KernelSpec, Limits, Model
from memkern.spec.inputs import Given, row
from memkern.spec.kernel import Check, Native, Traffic, Validation, fill_values
from memkern.spec.options import Knobs
from memkern.spec.registry import case, register, shows_options_of

WAYS = {
    "to_device": "target[:] on a GPU = source[:] of the host",
    "from_device": "target[:] of the host = source[:] on a GPU",
    "both": "both directions at the same time (pageable memory: one after the other)",
    "between": "target[:] on another GPU = source[:] on a GPU",
}
BETWEEN = "transfers.between"
MEMORIES = ("pageable", "pinned", "managed")
# Variants by kind of memory; the first is the default.
VARIANTS = {
    "pageable": ("copy",),
    "pinned": ("copy",),
    "managed": ("prefetch", "touch"),
    "device": ("direct", "staged"),
}
WORD_B = 8
# As in cpp/families/transfers/args.hpp.
_PAGE_B = 4096
_DEFAULT_B = 2**26
_MOST_B = 2**36
# Options that would time anything but single transfers, and why they have no effect.
_ALONE = {
    "timer": "the host waits for each transfer",
    "threads": "one thread of the host starts transfers",
}
# Words that a check compares at once.
_AT_ONCE = 2**20


_SIZE = row(
    "size_B",
    _DEFAULT_B,
    "bytes, log-spaced, or a list (8 to 512 MiB)",
    read=functools.partial(bytes_of_words, most=_MOST_B),
    type="float | str",
    flag="sizes",
    parse=functools.partial(parse_sizes, multiple=WORD_B),
    metavar="LOW:HIGH:COUNT",
    unit="B",
    meaning="Bytes that move in each direction, such as ``64MiB``: a multiple of 8.",
)
_MEMORY = row(
    "memory",
    "pinned",
    "of the host: {choices} (all); managed has variants touch and prefetch",
    choices=MEMORIES,
    several=True,
    metavar="NAME,...",
    column="-",
    meaning="Memory of the host: ``pageable``, ``pinned`` or ``managed``.",
)
_PEER = row(
    "peer",
    "",
    "of between: the other GPU (cuda:1)",
    metavar="NAME",
    meaning="Second device of a transfer between devices, such as ``cuda:1``: the default, or "
    "``cuda:0`` if the case's device is ``cuda:1``.",
)


def _transfer(given: Given) -> Case:
    kernel, knobs = given.spec.name, given.knobs
    if not knobs.backend.is_accelerator:
        raise InputError(f"{kernel} moves data from or to a GPU: give device cuda (--device)")
    words = small.cut(given.size_B // WORD_B, 2**10)
    integers = {"words": words}
    columns: dict[str, Any] = {"size_B": words * WORD_B}
    if kernel == BETWEEN:
        peer, memory = _peer(knobs.device, given.peer), "device"
        integers["peer"], columns["peer"] = int(peer.partition(":")[2]), peer
    else:
        memory = given.memory
        integers["memory"] = MEMORIES.index(memory)
        # A check copies the data that have arrived.
        check_memory(4 * given.size_B, f"a transfer of {given.size_B} bytes")
    return given.case(
        integers=integers,
        columns=columns,
        options={"variant": VARIANTS[memory][0]},
        template_variant=memory,
    )


def _refuse(case: Case) -> None:
    if case.stop.invocations != 1:
        raise InputError("a sample of transfers has one invocation: leave invocations out")


def _peer(device: str, peer: str) -> str:
    """Return the other device of a transfer."""
    name, _, number = device.partition(":")
    other = Knobs(device=peer or f"{name}:{int(number == '0')}")
    if other.device == device or not other.device.startswith(name):
        raise InputError(f"peer must be another GPU than {device}, such as {name}:1, not {peer!r}")
    return other.device


def _targets(case: Case) -> list[tuple[str, str]]:
    """Return source and target of each direction."""
    back = [("back_source", "back_target")] * (case.spec.name == "transfers.both")
    return [("source", "target"), *back]


def _positions(case: Case, first: int, end: int) -> Values:
    """Return the source positions of the words at positions `first` to `end` of the target."""
    step = _PAGE_B // WORD_B if case.template_variant == "managed" else 1
    return np.arange(first, end) * step


def _check(case: Case, native: Native) -> Validation:
    """Compare every word of the targets with the corresponding word of the source."""
    native.fill(outputs=True)
    yield
    arrays = native.arrays()
    wrong = False
    for source, target in _targets(case):
        got = native.copy_out(target).ravel()
        for first in range(0, len(got), _AT_ONCE):
            some = got[first : first + _AT_ONCE]
            positions = _positions(case, first, first + len(some))
            wrong = wrong or bool((some != fill_values(positions, arrays[source])).any())
    return Check(not wrong, np.inf if wrong else 0.0, "whole")


def _reference(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
    length = case.integers["words"]
    if case.template_variant == "managed":
        length = -(-length * WORD_B // _PAGE_B)  # pages
    return {
        target: np.array(arrays[source])[_positions(case, 0, length)]
        for source, target in _targets(case)
    }


for _way, _summary in WAYS.items():
    register(
        KernelSpec(
            name=f"transfers.{_way}",
            summary=_summary,
            source="NVIDIA, CUDA C++ Programming Guide, sections on page-locked and unified memory",
            arrays=declared(f"transfers.{_way}").arrays,
            traffic=lambda case: Traffic(read=len(_targets(case)) * float(case.columns["size_B"])),
            iterations=lambda case: 1,
            checks=Checks(check=_check, reference=_reference),
            model=Model(
                # It is read at one end and written at the other.
                bytes_B=lambda case: 2.0 * case.bytes_B,
            ),
            inputs=(_SIZE, _PEER if _way == "between" else _MEMORY),
            build=_transfer,
            usual={"invocations": 1},
            limits=Limits(dtypes=("uint64",), idle=lambda case: _ALONE, refuse=_refuse),
            template_columns=("memory",),
        )
    )


@shows_options_of("transfers.to_device", BETWEEN)
def transfers(way: str, **options: Any) -> Case:
    """Case of a transfer between a host and a GPU, or between two GPUs.

    Parameters
    ----------
    way : str
        One of `WAYS`.
    """
    return case(f"transfers.{way}", **options)


def gpu_report_cases(device: str, quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return transfers in both directions with each kind of host memory, for several sizes."""
    lengths = [8 * 64**k for k in range(5)] if quick else [8 * 4**k for k in range(13)]
    return [
        transfers(way, size_B=size, memory=memory, variant=variant, device=device, budget_s=0.03)
        for way in WAYS
        if way != "between"
        for memory in MEMORIES
        for variant in VARIANTS[memory]
        for size in lengths
        if size <= memory_B // 8
    ]
