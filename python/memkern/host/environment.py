"""The environment of a record: the machine, its settings, this build and the measured caches."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from memkern.extension import _memkern
from memkern.host.capacity import capacity, measured_caches
from memkern.machine import environment, gpu, smbios, tlbs


def machine_environment() -> dict[str, Any]:
    """Return the environment of this machine and build, as stored with every run's records."""
    capacity()  # measured once per boot
    found = environment.collect(_memkern.build())
    found["machine"]["tlbs"] = tlbs.read(_memkern.cpuid) or None
    parts = {
        "measured_caches": measured_caches(),
        "memory": dict(_memory()),
        "devices": gpu.describe_all(),
    }
    return found | {name: part for name, part in parts.items() if part}


@functools.cache
def _memory() -> dict[str, Any]:
    return smbios.columns(smbios.population(Path("/")))
