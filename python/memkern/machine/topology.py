"""The machine, as the extension and the system show it: cores, caches, instruction sets, load."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memkern import _memkern
from memkern.errors import InputError
from memkern.machine import environment, gpu


def machine_environment() -> dict[str, Any]:
    """Describe this machine and build, as stored beside every run's records."""
    found = environment.collect(_memkern.build())
    if gpu.devices():
        found["devices"] = {name: gpu.describe(name) for name in gpu.devices()}
    return found


def forms(kernel: str, isa: str = "best") -> set[str]:
    """Return the forms that a kernel is built with for what this machine, or one `isa`, runs."""
    isas = [name for name in _memkern.supported_isas() if isa in ("best", name)]
    return {entry[6] for entry in _memkern.entries() if entry[0] == kernel and entry[2] in isas}


@dataclass(frozen=True)
class Declaration:
    """What the extension declares of a kernel beside its operation.

    `roles` are ``write``, ``read`` or ``update`` by array, in the order in which the body takes
    them; `flops` are those of an element; `scalars` have their defaults.
    """

    roles: Mapping[str, str]
    flops: float
    scalars: Mapping[str, float]


_ROLES = {"r": "read", "w": "write", "u": "update"}


@functools.cache
def _declarations() -> dict[str, Declaration]:
    found = {}
    for kernel, arrays, flops, scalars in _memkern.declarations():
        roles = {name: _ROLES[role] for name, role in (word.split(":") for word in arrays.split())}
        numbers = {name: float(v) for name, v in (word.split("=") for word in scalars.split())}
        found[kernel] = Declaration(roles, flops, numbers)
    return found


def declared(kernel: str) -> Declaration:
    """Return what the extension declares of a kernel.

    Raises
    ------
    InputError
        It declares no such kernel.
    """
    known = _declarations()
    if kernel not in known:
        raise InputError(
            f"kernel {kernel!r} is not declared in the extension: its family's entries.inc lacks it"
        )
    return known[kernel]


def last_level_cache_B() -> int:
    """Return the size of the last-level caches together."""
    return int(_memkern.topology()["last_level_cache_B"])


def copy_GBps(device: str) -> float:
    """Return what the driver's copy moves, NaN where the device has no room for it."""
    try:
        return gpu.copy_GBps(device)
    except MemoryError:
        return math.nan


def workers_of(device: str) -> int:
    """Return how many threads keep a device busy: 1024 on each multiprocessor of a GPU."""
    if device == "cpu":
        return len(os.sched_getaffinity(0))
    return 1024 * int(gpu.describe(device)["units"])
