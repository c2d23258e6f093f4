"""The GPUs of this machine, and their clocks and energy.

Devices come from the extension module ``_memkern_cuda``, which is built where there is a CUDA
Toolkit; clocks and energy come from ``nvidia-ml-py``, where that is installed.
"""

from __future__ import annotations

import functools
import importlib
import math
from typing import Any

from memkern.errors import InputError

__all__ = [
    "built",
    "columns_since",
    "copy_GBps",
    "describe",
    "devices",
    "energy_J",
    "handle",
    "why_no_devices",
]

_NOT_BUILT = (
    "memkern was built without its CUDA part: install a CUDA Toolkit, so that nvcc is on PATH, and "
    "install memkern again"
)
# NVML's reasons for clocks below the maximum: bit to name in a record.
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
    """Return the extension's object for a device, None for ``cpu``.

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
    """Return the bandwidth of the driver's copy within a device, read plus written, in 1e9 B/s.

    The buffers are eight times as large as the L2 cache.
    """
    size_B = max(8 * describe(name)["l2_B"], 2**24)
    seconds = float(_module().copy_s(_number(name), size_B, 10))
    return 2 * int(size_B) / seconds / 1e9


def devices() -> list[str]:
    """Return the names of the usable GPUs, such as ``cuda:0``."""
    try:
        return [f"cuda:{k}" for k in range(_module().device_count())]
    except (InputError, RuntimeError):
        return []


def built() -> bool:
    """Return whether this build has the CUDA module, with or without a GPU here."""
    try:
        _module()
    except InputError:
        return False
    return True


def why_no_devices() -> str:
    """Return why there is no GPU; empty where there is one."""
    try:
        _module().device_count()
    except (InputError, RuntimeError) as error:
        return str(error)
    return ""


@functools.cache
def _nvml(name: str) -> Any:
    """Return the NVML module and its handle of a device; None without NVML."""
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        # By PCI bus address, since CUDA and NVML number devices differently.
        return pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(describe(name)["bus"].encode())
    except (pynvml.NVMLError, KeyError):
        return None


def _query(name: str, function: str, *arguments: Any) -> float:
    """Return the result of an NVML function for a device, NaN where it is not available."""
    known = _nvml(name)
    if known is None:
        return math.nan
    nvml, device = known
    try:
        return float(getattr(nvml, function)(device, *arguments))
    except (nvml.NVMLError, AttributeError):
        return math.nan


def energy_J(name: str) -> float:
    """Return the energy in joules that a device has used so far, NaN if unknown."""
    return _query(name, "nvmlDeviceGetTotalEnergyConsumption") / 1e3


def columns_since(name: str, before_J: float) -> dict[str, Any]:
    """Return the columns of a record on a device's clocks now and its energy since `before_J`.

    Parameters
    ----------
    name : str
        Such as ``cuda:0``.
    before_J : float
        Earlier result of `energy_J`.

    Returns
    -------
    dict
        ``gpu_clock_GHz``, ``gpu_memory_clock_GHz``, ``gpu_throttle`` (reasons for clocks below the
        maximum, separated by commas) and ``gpu_energy_J``; NaN and '' where they are unknown.
    """
    reasons = _query(name, "nvmlDeviceGetCurrentClocksThrottleReasons")
    words = [] if math.isnan(reasons) else [w for bit, w in _REASONS.items() if int(reasons) & bit]
    return {
        "gpu_clock_GHz": _query(name, "nvmlDeviceGetClockInfo", 1) / 1e3,
        "gpu_memory_clock_GHz": _query(name, "nvmlDeviceGetClockInfo", 2) / 1e3,
        "gpu_throttle": ", ".join(words),
        "gpu_energy_J": energy_J(name) - before_J,
    }
