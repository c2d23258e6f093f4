"""The description of this machine and build that ``memkern info`` shows."""

from __future__ import annotations

from typing import Any

from memkern import _memkern
from memkern.machine import gpu
from memkern.machine.topology import copy_GBps, machine_environment
from memkern.measuring.costs import device_launch_cost_s, launch_cost_s


def _device(name: str) -> dict[str, Any]:
    """Return the facts of a device: its description, bandwidth of copies and launch times."""
    return {
        **gpu.describe(name),
        "copy_GBps": copy_GBps(name),
        "launch_s": device_launch_cost_s(name, "host"),
        "launch_single_s": device_launch_cost_s(name, "host", 1),
        "launch_graph_s": device_launch_cost_s(name, "graph"),
    }


def describe() -> dict[str, Any]:
    """Return what ``memkern info`` shows: machine, caches, instruction sets, launch cost."""
    available, limit = _memkern.memory_limit()
    return {
        "topology": _memkern.topology(),
        "build": _memkern.build(),
        "clock_tick_s": _memkern.clock_tick(),
        "memory_available_B": available,
        "memory_limit": limit,
        "launch_s": launch_cost_s(0, "none", "fork"),
        "backends": ["openmp", *(["cuda"] if gpu.built() else [])],
        "devices": {name: _device(name) for name in gpu.devices()},
        "no_devices": gpu.why_no_devices(),
        "environment": machine_environment(),
    }
