"""The accelerators of this machine, and their clocks and energy.

Devices come from the extension modules of backends, such as ``_memkern_cuda``, which is built if
there is a CUDA Toolkit; clocks and energy come from their meters, such as ``nvidia-ml-py``, if it
is installed.
"""

from __future__ import annotations

import functools
import importlib
import math
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memkern import backends, small
from memkern.errors import InputError
from memkern.limits import read_number, read_text

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
# Reasons that slow a device down temporarily: hardware, temperature, power brake.
_SLOWS = 0x00E8
_INTERVAL_S = 0.01  # between two readings
# A GPU runs for this time before it is timed, since its clocks rise only under load. It runs for
# less time once its clock is within this share of an earlier clock under load.
WARM_S = 0.2
_LEAST_WARM_S, _SAME_CLOCK = 0.02, 0.99
_CLOCKS_UNDER_LOAD: dict[str, float] = {}
# Meters of GPUs are updated about ten times per second, so a shorter time would show their steps.
METERED_S = 1.0
_REST_S = 0.5  # until the power of a used GPU has dropped to the idle power


def _module(name: str) -> Any:
    """Return the extension module of a device.

    Raises
    ------
    InputError
        memkern was built without it.
    """
    backend = backends.of(name)
    try:
        return importlib.import_module(f"memkern._memkern_{backend.name}")
    except ImportError:
        raise InputError(
            f"memkern was built without its {backend.library} part: with a {backend.library} "
            f"Toolkit, whose {backend.compiler} is on PATH, pip install . in memkern's folder adds "
            "it"
        ) from None


def _number(name: str) -> int:
    return int(name.partition(":")[2])


def _called(name: str, function: str, *arguments: int) -> Any:
    """Return the result of a function of the extension module for a device.

    Raises
    ------
    InputError
        It fails, with the reason.
    """
    try:
        return getattr(_module(name), function)(_number(name), *arguments)
    except (RuntimeError, ValueError) as error:
        raise InputError(str(error)) from None


def handle(name: str) -> Any:
    """Return the extension's object for a device, None for ``cpu``, and occupy the device.

    Raises
    ------
    InputError
        There is no such device, or it is not available, with the reason.
    """
    return _called(name, "device") if backends.of(name).is_accelerator else None


@functools.cache
def facts(name: str) -> dict[str, Any]:
    """Return the facts of a device such as ``cuda:0``, by their names.

    name, isa, bus, memory_B, l2_B, peak_GBps (of the memory, by its clock and width), ecc, units,
    max_threads (of a block), driver and runtime (versions), architectures (for which the extension
    was compiled, as CMake names them).

    The device is not occupied: it may be busy.

    Raises
    ------
    InputError
        There is no such device, or it can't be described, with the reason.
    """
    return {**_called(name, "describe"), "architectures": _module(name).architectures}


def describe_all() -> dict[str, dict[str, Any]]:
    """Return `facts` and `settings` of each device, or ``unavailable`` with the reason."""
    found = {}
    for name in devices():
        try:
            found[name] = {**facts(name), "settings": settings(name)}
        except InputError as error:
            found[name] = {"unavailable": str(error)}
    return found


@functools.cache
def copy_GBps(name: str, size_B: int = 0) -> float:
    """Return the bandwidth of the driver's copy within a device, read plus written, in 1e9 B/s.

    The median of 20 copies of buffers of `size_B`, by default eight times as large as the L2 cache,
    after the device has run for `WARM_S`.
    """
    size_B = size_B or max(8 * facts(name)["l2_B"], 2**24)
    seconds = float(_module(name).copy_s(_number(name), size_B, 20, small.cut(WARM_S, 0.001)))
    return 2 * int(size_B) / seconds / 1e9


def devices() -> list[str]:
    """Return the names of the usable GPUs, such as ``cuda:0``."""
    return _search()[0]


def why_no_devices() -> str:
    """Return why there is no GPU; empty if there is one."""
    names, reasons = _search()
    return "" if names else "; ".join(reasons)


def _search() -> tuple[list[str], list[str]]:
    """Return the names of the usable devices, and why other backends have none."""
    names, reasons = [], []
    for name in (b.device for b in backends.BACKENDS if b.is_accelerator):
        try:
            names += [f"{name}:{k}" for k in range(_module(name).device_count())]
        except (InputError, RuntimeError) as error:
            reasons.append(str(error))
    return names, reasons


def reaches(name: str, peer: str) -> bool:
    """Return whether data can go directly from one device to another.

    Raises
    ------
    InputError
        One of them does not exist.
    """
    return bool(_called(name, "reaches", _number(peer)))


@functools.cache
def _nvml(name: str) -> Any:
    """Return the NVML module, or what has its functions, and its handle of a device; or None."""
    try:
        pynvml: Any = importlib.import_module(backends.of(name).meter)
    except (ImportError, ValueError):  # ValueError without a meter
        return None
    try:
        pynvml.nvmlInit()
        # By PCI bus address, since CUDA and NVML number devices differently.
        return pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(facts(name)["bus"].encode())
    except (pynvml.NVMLError, KeyError):
        return None


def _query(name: str, function: str, *arguments: Any) -> float:
    """Return the result of an NVML function for a device, NaN where it is not available."""
    known = _nvml(name)
    if known is None:
        return math.nan
    nvml, device = known
    try:
        found = getattr(nvml, function)(device, *arguments)
    except (nvml.NVMLError, AttributeError):
        return math.nan
    # NVML returns modes that a restart can change as a pair: current, pending.
    return float(found[0] if isinstance(found, (list, tuple)) else found)


# Settings of a device that affect its speed: name to function of NVML, its arguments, and the unit
# in which NVML counts.
_SETTINGS: dict[str, tuple[str, tuple[int, ...], float]] = {
    "application_clock_GHz": ("nvmlDeviceGetApplicationsClock", (1,), 1e-3),
    "application_memory_clock_GHz": ("nvmlDeviceGetApplicationsClock", (2,), 1e-3),
    "max_clock_GHz": ("nvmlDeviceGetMaxClockInfo", (1,), 1e-3),
    "max_memory_clock_GHz": ("nvmlDeviceGetMaxClockInfo", (2,), 1e-3),
    "power_limit_W": ("nvmlDeviceGetEnforcedPowerLimit", (), 1e-3),
    "persistence": ("nvmlDeviceGetPersistenceMode", (), 1.0),
    "mig": ("nvmlDeviceGetMigMode", (), 1.0),
    "compute_mode": ("nvmlDeviceGetComputeMode", (), 1.0),
}


# Generation of PCI Express, by the 1e9 transfers per second of a lane as the system writes them.
_GENERATIONS = {"2.5": 1.0, "5.0": 2.0, "8.0": 3.0, "16.0": 4.0, "32.0": 5.0, "64.0": 6.0}
_PCI = Path("/sys/bus/pci/devices")


def settings(name: str) -> dict[str, float | None]:
    """Return the settings of a device that affect its speed; None where they are unknown.

    The set clocks and power limit, persistence mode and MIG (1 is on), the number of the compute
    mode, and the largest generation and width of the PCI Express link that the device supports, in
    any slot.
    """
    found = {
        key: _query(name, function, *arguments) * unit
        for key, (function, arguments, unit) in _SETTINGS.items()
    }
    found |= _capable_link(name)
    return {key: None if math.isnan(value) else value for key, value in found.items()}


def _capable_link(name: str) -> dict[str, float]:
    """Return the largest generation and width of a device's link, NaN where they are unknown.

    The maximum width of NVML, and the maximum generation of an older NVML, depend on the slot of
    the device, so the system's files have precedence.
    """
    # Both contain the domain, which has at least four digits in the system's files.
    domain, _, rest = str(facts(name).get("bus", "")).lower().partition(":")
    folder = _PCI / f"{domain[-4:]}:{rest}"
    width = read_number(folder, "max_link_width")
    generations = [
        _GENERATIONS.get((read_text(folder, "max_link_speed") or "").partition(" ")[0], math.nan),
        _query(name, "nvmlDeviceGetGpuMaxPcieLinkGeneration"),
        _query(name, "nvmlDeviceGetMaxPcieLinkGeneration"),
    ]
    widths = [float(width or math.nan), _query(name, "nvmlDeviceGetMaxPcieLinkWidth")]
    return {
        key: next((value for value in values if not math.isnan(value)), math.nan)
        for key, values in (("link_generation", generations), ("link_width", widths))
    }


def readings(name: str) -> dict[str, Any]:
    """Return the current state of a device; None for unknown values.

    ``throttle`` (reasons for clocks below the maximum, separated by commas), the default limit of
    power, and generation and width of the PCI Express link.
    """
    found = {
        "default_power_limit_W": _query(name, "nvmlDeviceGetPowerManagementDefaultLimit") / 1e3,
        "link_generation": _query(name, "nvmlDeviceGetCurrPcieLinkGeneration"),
        "link_width": _query(name, "nvmlDeviceGetCurrPcieLinkWidth"),
    }
    reasons = _reasons(name)
    return {
        "throttle": None if math.isnan(reasons) else _words(int(reasons)),
        **{key: None if math.isnan(value) else value for key, value in found.items()},
    }


def _reasons(name: str) -> float:
    """Return the bits of `_REASONS` that currently apply; NaN if unknown."""
    # The second function is the older name of the first.
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    values = (_query(name, function) for function in names)
    return next((value for value in values if not math.isnan(value)), math.nan)


def _words(reasons: int) -> str:
    return ", ".join(word for bit, word in _REASONS.items() if reasons & bit)


def energy_J(name: str) -> float:
    """Return the energy in joules that a device has used so far, NaN if unknown."""
    return _query(name, "nvmlDeviceGetTotalEnergyConsumption") / 1e3


def clocks_MHz(name: str) -> list[int]:
    """Return the clocks of the cores that a device can have, empty if they are unknown."""
    known = _nvml(name)
    if known is None:
        return []
    nvml, device = known
    try:
        memory = nvml.nvmlDeviceGetSupportedMemoryClocks(device)
        every = (nvml.nvmlDeviceGetSupportedGraphicsClocks(device, clock) for clock in memory)
        return sorted({int(clock) for clocks in every for clock in clocks})
    except (nvml.NVMLError, AttributeError):
        return []


def why_no_energy(name: str) -> str:
    """Return why the energy of a device can't be measured, in one sentence; empty if it can."""
    if not (math.isnan(energy_J(name)) and math.isnan(_read(name).power_W)):
        return ""
    reason, backend = f"NVML does not report the power of {name}", backends.of(name)
    if not backend.meter:
        reason = f"memkern has no meter of {backend.library}"
    elif _nvml(name) is None:
        reason = f"NVML is missing or does not know {name} (pip install {backend.install})"
    return f"energy is not measured: {reason}"


def warm_up(name: str, work: Callable[[], object]) -> int:
    """Call `work` until a device has its clock under load; return the number of calls.

    It takes `WARM_S` the first time, or if the clock is unknown.
    """
    calls, spent_s = 0, 0.0
    begin_s, known = time.perf_counter(), _CLOCKS_UNDER_LOAD.get(name, math.inf)
    while not calls or spent_s < small.cut(WARM_S, 0.001):
        work()
        calls += 1
        spent_s = time.perf_counter() - begin_s
        if spent_s >= _LEAST_WARM_S and _clock_GHz(name) >= _SAME_CLOCK * known:
            return calls
    _CLOCKS_UNDER_LOAD[name] = _clock_GHz(name)
    return calls


def metered_W(name: str, work: Callable[[], object]) -> float:
    """Return the mean power in watts of a device while `work` is called for `METERED_S`."""
    with Watch(name) as watch:
        begin_s, begin_J = time.perf_counter(), energy_J(name)
        seconds = 0.0
        while seconds < small.cut(METERED_S, 0.05):
            work()
            seconds = time.perf_counter() - begin_s
        used_J = energy_J(name) - begin_J
    # A device without an energy counter reports its power.
    return watch.power_W(begin_s) if math.isnan(used_J) else used_J / seconds


@functools.cache
def idle_W(name: str, clock_limit: int) -> float:
    """Return the power of a device while this process does not use it; NaN if it is unknown.

    Measured once for each clock limit, which the caller has set. Other programs may use the device.
    """
    if why_no_energy(name):
        return math.nan
    time.sleep(small.cut(_REST_S, 0.01))
    return metered_W(name, lambda: time.sleep(small.cut(METERED_S, 0.05)))


class Reading(NamedTuple):
    """State of a device at a time on the clock of `time.perf_counter`; NaN where it is unknown."""

    at_s: float
    clock_GHz: float
    memory_clock_GHz: float
    reasons: int
    power_W: float


def _clock_GHz(name: str) -> float:
    return _query(name, "nvmlDeviceGetClockInfo", 1) / 1e3


def _read(name: str) -> Reading:
    reasons = _reasons(name)
    return Reading(
        time.perf_counter(),
        _clock_GHz(name),
        _query(name, "nvmlDeviceGetClockInfo", 2) / 1e3,
        0 if math.isnan(reasons) else int(reasons),
        _query(name, "nvmlDeviceGetPowerUsage") / 1e3,
    )


class Watch:
    """Context manager that reads the state of a device periodically in a thread.

    Parameters
    ----------
    name : str
        Such as ``cuda:0``.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._end = threading.Event()
        self._readings: list[Reading] = []
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        """Begin to read."""
        self._read()
        if _nvml(self._name) is not None:
            self._thread = threading.Thread(target=self._keep_reading, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop, after a last reading."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        self._read()

    def _keep_reading(self) -> None:
        while not self._end.wait(_INTERVAL_S):
            self._read()

    def _read(self) -> None:
        self._readings.append(_read(self._name))

    def slowed(self, began: Sequence[float]) -> npt.NDArray[np.bool_]:
        """Return the samples during which the device was slowed down.

        Parameters
        ----------
        began : sequence of float
            Times at which the samples began, one after the other until now, on the clock of
            `time.perf_counter`.

        Returns
        -------
        ndarray of bool, shape (n,)
            True if the first reading after the sample's beginning, or a reading until its end, has
            a reason of `_SLOWS`. A power limit is no such reason: it is the normal state of a
            device.
        """
        self._read()
        bounds = np.array([*began, math.inf])
        # Both threads append readings, each some time after it started reading.
        readings = sorted(self._readings)
        at_s = np.array([reading.at_s for reading in readings])
        slow = np.array([bool(reading.reasons & _SLOWS) for reading in readings])
        return np.array(
            [slow[i : max(j, i + 1)].any() for i, j in pairwise(np.searchsorted(at_s, bounds))],
            dtype=np.bool_,
        )

    def power_W(self, since_s: float) -> float:
        """Return the mean power from a time until now, NaN if it is unknown."""
        self._read()
        watts = [r.power_W for r in self._readings if r.at_s >= since_s]
        return statistics.fmean(watts) if watts else math.nan

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of a record, after the end.

        ``gpu_clock_GHz`` and ``gpu_memory_clock_GHz`` (medians) and ``gpu_throttle`` (all reasons
        for clocks below the maximum, separated by commas); NaN and '' where they are unknown.
        """
        # The device may still be idle at the first reading.
        while_it_ran = self._readings[1:]
        return {
            "gpu_clock_GHz": statistics.median(r.clock_GHz for r in while_it_ran),
            "gpu_memory_clock_GHz": statistics.median(r.memory_clock_GHz for r in while_it_ran),
            "gpu_throttle": _words(int(np.bitwise_or.reduce([r.reasons for r in while_it_ran]))),
        }
