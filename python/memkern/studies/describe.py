"""The description of this machine and build that ``memkern info`` shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from memkern.backends import BACKENDS
from memkern.engine.public import copy_GBps, device_launch_cost_s, launch_cost_s
from memkern.errors import InputError
from memkern.extension import _memkern
from memkern.host.environment import machine_environment
from memkern.limits import UNLIMITED_B
from memkern.machine import energy, gpu, remote, settings, switches


def _device(name: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a device: its description, bandwidth of copies and launch times.

    If it can't be used, ``unavailable`` is the reason.
    """
    if "unavailable" in about:
        return dict(about)
    try:
        return {
            **about,
            "copy_GBps": copy_GBps(name),
            "state": gpu.readings(name),
            "no_energy": gpu.why_no_energy(name),
            "launch_s": _known(device_launch_cost_s(name, "host")),
            "launch_single_s": _known(device_launch_cost_s(name, "host", 1)),
            "launch_graph_s": _known(device_launch_cost_s(name, "graph")),
        }
    except (InputError, MemoryError, RuntimeError) as error:
        return {**about, "unavailable": str(error)}


def _known(seconds: float) -> float | None:
    return None if math.isnan(seconds) else seconds


def describe() -> dict[str, Any]:
    """Return the contents of ``memkern info``: machine, caches, instruction sets, launch cost.

    Times whose samples were disturbed are None, and so is available memory that no limit tells.
    """
    available, limit = _memkern.memory_limit()
    return {
        "topology": _memkern.topology(),
        "build": _memkern.build(),
        "clock_tick_s": _memkern.clock_tick(),
        "memory_available_B": available if available < UNLIMITED_B else None,
        "memory_limit": limit,
        "launch_s": _known(launch_cost_s(0, "none", "fork")),
        "backends": [b.name for b in BACKENDS if b.on_processors or remote.is_built(b.name)],
        "devices": {name: _device(name, about) for name, about in gpu.describe_all().items()},
        "no_devices": gpu.why_no_devices(),
        "energy_meters": [meter.name for meter in energy.meters()],
        "no_energy": energy.why_none(),
        **{f"no_{name}": why for name, why in switches.why_not(settings.ROOT).items()},
        "environment": machine_environment(),
    }
