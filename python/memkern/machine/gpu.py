"""The GPUs of this machine: what there are, and what their driver says while one works.

The compiled part for them is a module of its own, which is built where there is a CUDA Toolkit;
clocks and energy come from ``nvidia-ml-py``, where that is installed.
"""

from __future__ import annotations

import functools
import importlib
import math
from typing import Any

from memkern.errors import InputError

__all__ = ["built", "copy_GBps", "describe", "devices", "handle", "read", "since", "why_none"]

_NOT_BUILT = (
    "memkern was built without its CUDA part: install a CUDA Toolkit, so that nvcc is on PATH, and "
    "install memkern again"
)
# Bits of NVML's reasons for a clock below the highest, by the names that a record has.
_REASONS = {
    0x0001: "idle",
    0x0002: "application clocks",
    0x0004: "power cap",
    0x0008: "hardware",
    0x0010: "sync boost",
    0x0020: "temperature",
    0x0040: "hardware temperature",
    0x0080: "power brake",
    0x0100: "display clocks",
}


def _module() -> Any:
    try:
        return importlib.import_module("memkern._memkern_cuda")
    except ImportError:
        raise InputError(_NOT_BUILT) from None


def _number(name: str) -> int:
    return int(name.partition(":")[2])


def handle(name: str) -> Any:
    """Return a device as the compiled part takes it: None for ``cpu``.

    Raises
    ------
    InputError
        There is no such device, with the reason.
    """
    if name == "cpu":
        return None
    try:
        return _module().device(_number(name))
    except (RuntimeError, ValueError) as error:
        raise InputError(str(error)) from None


@functools.cache
def describe(name: str) -> dict[str, Any]:
    """Return name, isa, memory_B, l2_B, units, driver and runtime of a device such as ``cuda:0``.

    Raises
    ------
    InputError
        There is no such device.
    """
    handle(name)
    return dict(_module().describe(_number(name)))


@functools.cache
def copy_GBps(name: str) -> float:
    """Return what the driver's own copy moves within a device, read and written, in decimal GB/s.

    Of buffers eight times as large as the last cache: what kernels can be compared with.
    """
    size_B = max(8 * describe(name)["l2_B"], 2**24)
    seconds = float(_module().copy_s(_number(name), size_B, 10))
    return 2 * int(size_B) / seconds / 1e9


def devices() -> list[str]:
    """Return the devices of this machine, none where there is none."""
    try:
        return [f"cuda:{k}" for k in range(_module().device_count())]
    except (InputError, RuntimeError):
        return []


def built() -> bool:
    """Say whether this build has the part for GPUs, whether or not there is one here."""
    try:
        _module()
    except InputError:
        return False
    return True


def why_none() -> str:
    """Say why there is no device; empty where there is one."""
    try:
        _module().device_count()
    except (InputError, RuntimeError) as error:
        return str(error)
    return ""


@functools.cache
def _nvml(name: str) -> Any:
    """Return NVML and its handle of a device; None where there is no NVML."""
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        # By the bus, since CUDA numbers its devices in its own way.
        return pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(describe(name)["bus"].encode())
    except (pynvml.NVMLError, KeyError):
        return None


def _asked(name: str, question: str, *arguments: Any) -> float:
    """Return a number that NVML knows of a device, NaN where it does not."""
    known = _nvml(name)
    if known is None:
        return math.nan
    nvml, device = known
    try:
        return float(getattr(nvml, question)(device, *arguments))
    except (nvml.NVMLError, AttributeError):
        return math.nan


def read(name: str) -> float:
    """Return the energy in joules that a device has used so far, NaN where it is not known."""
    return _asked(name, "nvmlDeviceGetTotalEnergyConsumption") / 1e3


def since(name: str, energy_J: float) -> dict[str, Any]:
    """Return the columns of a record on what a device did since `read`.

    Parameters
    ----------
    name : str
        Such as ``cuda:0``.
    energy_J : float
        What `read` returned.

    Returns
    -------
    dict
        ``gpu_clock_GHz``, ``gpu_memory_clock_GHz``, ``gpu_throttle`` (reasons for clocks below the
        highest, with commas between) and ``gpu_energy_J``; NaN and '' where they are not known.
    """
    reasons = _asked(name, "nvmlDeviceGetCurrentClocksThrottleReasons")
    words = [] if math.isnan(reasons) else [w for bit, w in _REASONS.items() if int(reasons) & bit]
    return {
        "gpu_clock_GHz": _asked(name, "nvmlDeviceGetClockInfo", 1) / 1e3,
        "gpu_memory_clock_GHz": _asked(name, "nvmlDeviceGetClockInfo", 2) / 1e3,
        "gpu_throttle": ", ".join(words),
        "gpu_energy_J": read(name) - energy_J,
    }
