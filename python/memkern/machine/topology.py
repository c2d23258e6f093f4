"""The machine and the kernels, as the extension describes them."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memkern import _memkern
from memkern.errors import InputError
from memkern.machine import caches, environment, gpu, remote, tlbs


def machine_environment() -> dict[str, Any]:
    """Return the environment of this machine and build, as stored with every run's records."""
    found = environment.collect(_memkern.build())
    found["machine"]["tlbs"] = tlbs.describe(_memkern.cpuid) or None
    if measured := caches.load(found["machine"]["caches"] or ()):
        found["measured_caches"] = measured
    if devices := gpu.describe_all():
        found["devices"] = devices
    return found


def supported_isas() -> list[str]:
    """Return the instruction sets of this build that the processor supports, widest first."""
    return list(_memkern.supported_isas())


def template_variants(kernel: str, isa: str = "best", variant: str = "best") -> set[str]:
    """Return a kernel's template variants for this machine's instruction sets, or for `isa`.

    They are those of all variants, or of one.
    """
    isas = [name for name in supported_isas() if isa in ("best", name)]
    return {
        entry[6]
        for entry in _memkern.entries()
        if entry[0] == kernel and entry[2] in isas and variant in ("best", entry[1])
    }


@dataclass(frozen=True)
class ArrayRole:
    """One array of a kernel.

    `shape` is text that uses the kernel's parameters; `role` is ``read``, ``write`` or ``update``
    (read and written).
    """

    name: str
    shape: str
    role: str


@dataclass(frozen=True)
class Declaration:
    """The extension's declaration of a kernel.

    `arrays` are in the order of the body's arguments; `flops` are per element, `amos` (atomic
    operations) per iteration; `scalars` have their defaults.
    """

    arrays: tuple[ArrayRole, ...]
    flops: float
    scalars: Mapping[str, float]
    amos: float


_ROLES = {"r": "read", "w": "write", "u": "update"}


@functools.cache
def _declarations() -> dict[str, Declaration]:
    found = {}
    for kernel, arrays, flops, scalars, amos in _memkern.declarations():
        roles = tuple(
            ArrayRole(name, f"({shape})" if "," in shape else f"({shape},)", _ROLES[role])
            for name, role, shape in arrays
        )
        numbers = {name: float(v) for name, v in (word.split("=") for word in scalars.split())}
        found[kernel] = Declaration(roles, flops, numbers, amos)
    return found


def declared(kernel: str) -> Declaration:
    """Return the extension's declaration of a kernel.

    Raises
    ------
    InputError
        It declares no such kernel.
    """
    known = _declarations()
    if kernel not in known:
        raise InputError(
            f"kernel {kernel!r} is not declared in the extension: its family's entries.inc or "
            "case.cpp lacks it"
        )
    return known[kernel]


def physical_cores() -> list[list[int]]:
    """Return the processing units that this process may use, by physical core.

    Cores that share caches or a NUMA node follow each other.
    """
    topology = _memkern.topology()
    cores: dict[int, list[int]] = {}
    for unit, core in zip(topology["units"], topology["core_of_unit"], strict=True):
        cores.setdefault(core, []).append(unit)
    return list(cores.values())


def numa_nodes() -> list[int]:
    """Return the numbers of the NUMA nodes whose memory this process may use."""
    return [int(node) for node in _memkern.topology()["numa_nodes"]]


def last_level_cache_B(largest: bool = True) -> int:
    """Return the total size of all last-level caches in bytes.

    By default it is what data in memory must exceed, the larger one of the size that the system
    reports and the measured one; else the measured one, where it is known.
    """
    reported_B = int(_memkern.topology()["last_level_cache_B"])
    known_B = caches.last_level_B(_with_caches(), largest)
    return max(reported_B, known_B) if largest else known_B or reported_B


def data_caches() -> list[dict[str, Any]]:
    """Return the data caches of this machine, with measured sizes where they are known.

    They are those of its environment (see `memkern.machine.caches.data_caches`).
    """
    return caches.data_caches(_with_caches())


def _with_caches() -> dict[str, Any]:
    """Return the part of the environment that describes the caches."""
    system = caches.reported()
    return {"machine": {"caches": system}, "measured_caches": caches.load(system)}


def beyond_caches_B() -> int:
    """Return the size of data that lie in memory: four times the caches, and at least 64 MiB."""
    return max(caches.MULTIPLE * last_level_cache_B(), 2**26)


def workers_of(device: str) -> int:
    """Return the default number of workers.

    As many as processing units, 1024 for each multiprocessor of a GPU, and 1 for each rank.
    """
    if device in remote.DEVICES:
        return 1
    if device == "cpu":
        return len(os.sched_getaffinity(0))
    return 1024 * int(gpu.describe(device)["units"])
