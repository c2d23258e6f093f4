"""The theoretical bandwidth of the memory that a record used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["peak_GBps", "peak_of_processors"]


def peak_of_processors(environment: Mapping[str, Any]) -> float:
    """Return the theoretical bandwidth of all memory channels of a machine, in GB/s.

    It is NaN if the firmware does not describe the modules, or in a virtual machine, whose firmware
    does not describe those of its host.

    Parameters
    ----------
    environment : mapping
        The environment of a record, with the firmware's description as ``memory``.
    """
    machine, memory = environment.get("machine") or {}, environment.get("memory") or {}
    return math.nan if machine.get("hypervisor") else float(memory.get("peak_GBps") or math.nan)


def peak_GBps(record: Mapping[str, Any], environment: Mapping[str, Any]) -> float:
    """Return the theoretical bandwidth of the memory that a record used, in GB/s.

    That is the memory of its GPU, or that of all sockets of its machine; NaN if it is unknown.

    Parameters
    ----------
    record : mapping
        With the column device; without it, the record is of processors.
    environment : mapping
        Its environment.
    """
    device = str(record.get("device") or "cpu")
    if device == "cpu":
        return peak_of_processors(environment)
    about = (environment.get("devices") or {}).get(device) or {}
    return float(about.get("peak_GBps") or record.get("gpu_peak_GBps") or math.nan)
