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

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from memkern import small
from memkern.checks import one_of
from memkern.errors import InputError
from memkern.inputs.sizes import parse_bytes
from memkern.limits import check_memory
from memkern.machine.declarations import declared
from memkern.shared.checking import Values
from memkern.spec.case import Case, Checks, KernelSpec, Limits, Model
from memkern.spec.kernel import Check, Native, Traffic, Validation, fill_values
from memkern.spec.options import Knobs, Stop
from memkern.spec.registry import case, find, register, shows_options_of

WAYS = {
    "to_device": "target[:] on a GPU = source[:] of the host",
    "from_device": "target[:] of the host = source[:] on a GPU",
    "both": "both directions at the same time (pageable memory: one after the other)",
    "between": "target[:] on another GPU = source[:] on a GPU",
}
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
# Words that a check compares at once.
_AT_ONCE = 2**20


def transfer_case(
    kernel: str,
    *,
    size_B: float | str = _DEFAULT_B,
    memory: str = "",
    peer: str = "",
    dtype: str = "uint64",
    **options: Any,
) -> Case:
    """Build a case of transfers from or to a GPU.

    Parameters
    ----------
    kernel : str
        Such as ``transfers.to_device``.
    size_B : float or str
        Bytes that move in each direction, such as ``64MiB``: a multiple of 8.
    memory : str
        Memory of the host, one of `MEMORIES` (pinned); not for transfers between devices.
    peer : str
        Second device of a transfer between devices, such as ``cuda:1`` (the default, or ``cuda:0``
        if the case's device is ``cuda:1``).
    dtype : str
        ``uint64``, the words that move.
    **options
        Labels and fields of `memkern.Knobs` and `memkern.Stop`; the device is a GPU, and the
        variant by default the first of `VARIANTS`.

    Raises
    ------
    InputError
        Something is out of range, or the device is no GPU.
    """
    knobs = Knobs(device=options.get("device", "cpu"))
    if not knobs.backend.is_accelerator:
        raise InputError(f"{kernel} moves data from or to a GPU: give device cuda (--device)")
    _refuse(options)
    size = parse_bytes(size_B)
    if not WORD_B <= size <= _MOST_B or size % WORD_B:
        raise InputError(
            f"size_B of {kernel} must be a multiple of 8 up to {_MOST_B}, not {size_B}"
        )
    words = small.cut(int(size) // WORD_B, 2**10)
    integers = {"words": words}
    columns: dict[str, Any] = {"size_B": words * WORD_B}
    if kernel == "transfers.between":
        if memory:
            raise InputError(f"{kernel} uses no memory of the host: leave memory out")
        number = _peer(knobs, peer)
        name = f"{knobs.backend.device}:{number}"
        integers["peer"], columns["peer"], memory = number, name, "device"
    else:
        if peer:
            raise InputError(f"{kernel} is between the host and {knobs.device}: leave peer out")
        memory = memory or "pinned"
        one_of(memory, "memory", MEMORIES)
        integers["memory"] = MEMORIES.index(memory)
        # A check copies the data that have arrived.
        check_memory(4 * int(size), f"a transfer of {size_B} bytes")
    return Case(
        find(kernel),
        integers=integers,
        dtype=dtype,
        template_variant=memory,
        knobs=knobs,
        stop=Stop(),
        columns=columns,
    ).with_(**{"variant": VARIANTS[memory][0], "invocations": 1, **options})


def _refuse(options: Mapping[str, Any]) -> None:
    """Refuse options that would time anything but single transfers."""
    if options.get("timer", "host") != "host":
        raise InputError(
            f"timer {options['timer']!r} does not time transfers, for which the host waits: use "
            "host"
        )
    if options.get("invocations") not in (None, 1):
        raise InputError("a sample of transfers has one invocation: leave invocations out")
    if options.get("threads", 0):
        raise InputError("one thread of the host starts transfers: leave threads out")


def _peer(knobs: Knobs, peer: str) -> int:
    """Return the number of the other device of a transfer."""
    own = int(knobs.device.partition(":")[2])
    if not peer:
        return 0 if own else 1
    other = Knobs(device=peer)
    if other.backend is not knobs.backend or other.device == knobs.device:
        raise InputError(
            f"peer must be another GPU than {knobs.device}, such as {knobs.backend.device}:1, not "
            f"{peer!r}"
        )
    return int(other.device.partition(":")[2])


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
    return Check(not wrong, math.inf if wrong else 0.0, "whole")


def _reference(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
    length = case.integers["words"]
    if case.template_variant == "managed":
        length = -(-length * WORD_B // _PAGE_B)  # pages
    return {
        target: np.array(arrays[source])[_positions(case, 0, length)]
        for source, target in _targets(case)
    }


def _register(way: str, summary: str) -> None:
    kernel = f"transfers.{way}"
    directions = 2 if way == "both" else 1
    register(
        KernelSpec(
            name=kernel,
            summary=summary,
            source="NVIDIA, CUDA C++ Programming Guide, sections on page-locked and unified memory",
            arrays=declared(kernel).arrays,
            traffic=lambda case: Traffic(read=float(directions * case.integers["words"] * WORD_B)),
            iterations=lambda case: 1,
            checks=Checks(check=_check, reference=_reference),
            model=Model(
                # It is read at one end and written at the other.
                bytes_B=lambda case: 2.0 * case.bytes_B,
            ),
            build=transfer_case,
            limits=Limits(dtypes=("uint64",)),
            template_columns=("memory",),
        )
    )


for _name, _summary in WAYS.items():
    _register(_name, _summary)


@shows_options_of("transfers.to_device")
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
