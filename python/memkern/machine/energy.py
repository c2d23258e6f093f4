"""Energy that the machine uses, from the meters of the processor and of the board.

Meters are RAPL's zones (``/sys/class/powercap``), the energy counters of hwmon and, if there are
none, the power sensors of hwmon, which report the mean power of about the last second. `root`
replaces ``/`` to read other trees.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

from memkern import small
from memkern.limits import read_number, read_text
from memkern.machine.settings import ROOT, why

# Counters are updated about every millisecond: over a time a hundred times longer, steps are small.
_COUNTER_S = 0.1
# Sensors may report the mean power of the last second, so only the later half of this time counts.
_SENSOR_S = 2.0
_IDLE_S = 0.3
_REST_S = 0.2  # until waiting workers sleep
# Chips of hwmon that measure processors or boards, and the beginnings of the labels of meters that
# count in the total. The cores of amd_energy are parts of their socket. On Grace, a module contains
# the socket named Grace (and a GPU), and the socket contains its CPU and its I/O. Other chips
# measure other parts, such as a GPU, or the same power several times, such as power supplies.
_CHIPS = {
    "amd_energy": "Esocket",
    "amd_hsmp_hwmon": "",
    "fam15h_power": "",
    "power_meter": r"(?!(Module|CPU|SysIO) Power)",
}


@dataclass(frozen=True)
class Meter:
    """A meter of energy or power.

    Attributes
    ----------
    name : str
        Such as ``package-0`` or ``package-0 dram``; unique.
    path : str
        File with microjoules or, for a power sensor, microwatts.
    range_uJ : int
        Value at which the counter wraps to 0; 0 for a power sensor.
    total : bool
        Whether it counts in the total: other meters measure a part of another meter's energy.
    """

    name: str
    path: str
    range_uJ: int
    total: bool


@dataclass(frozen=True)
class Reading:
    """Values of meters, None for one that can't be read, at a time of `time.perf_counter`."""

    time_s: float
    values: tuple[int | None, ...]


def meters(root: Path | None = None) -> tuple[Meter, ...]:
    """Return the meters that can be read: RAPL's, else the counters, else the sensors of hwmon."""
    base = ROOT if root is None else root
    of_board = _hwmon(base)
    for found in (
        _powercap(base),
        [meter for meter in of_board if meter.range_uJ],
        [meter for meter in of_board if not meter.range_uJ],
    ):
        readable = [meter for meter in found if read_number(Path("/"), meter.path) is not None]
        if any(meter.total for meter in readable):
            return tuple(readable)
    return ()


def _powercap(root: Path) -> list[Meter]:
    """Return RAPL's zones: packages and their parts; memory is not included in the package."""
    found = []
    for folder in sorted((root / "sys/class/powercap").glob("intel-rapl:*")):
        name = read_text(folder, "name") or folder.name
        most = read_number(folder, "max_energy_range_uj")
        if most is None:
            continue
        parts = folder.name.split(":")
        if len(parts) > 2:
            above = read_text(folder.parent, f"{':'.join(parts[:2])}/name") or parts[1]
            found.append(Meter(f"{above} {name}", f"{folder}/energy_uj", most, name == "dram"))
        else:
            # psys includes the packages.
            found.append(Meter(name, f"{folder}/energy_uj", most, name.startswith("package")))
    return found


def _hwmon(root: Path) -> list[Meter]:
    """Return the energy counters and power sensors of the chips in `_CHIPS`."""
    found: dict[str, Meter] = {}
    for folder in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        chip = read_text(folder, "name") or read_text(folder, "device/name") or ""
        if chip not in _CHIPS:
            continue
        # Some drivers have their files in the folder of the device.
        paths = (
            path
            for directory in (folder, folder / "device")
            for pattern in ("energy*_input", "power*_average", "power*_input")
            for path in sorted(directory.glob(pattern))
        )
        for path in paths:
            number = path.name.partition("_")[0]
            found.setdefault(f"{folder.name} {number}", _of_chip(chip, path, number))
    names = Counter(meter.name for meter in found.values())
    # With a chip for each socket, several meters have the same name.
    return [
        replace(meter, name=f"{meter.name} ({which})") if names[meter.name] > 1 else meter
        for which, meter in found.items()
    ]


def _of_chip(chip: str, path: Path, number: str) -> Meter:
    """Return the meter of a file of a chip, named by its label."""
    labels = (read_text(path.parent, f"{number}_{kind}") for kind in ("label", "oem_info"))
    label = next(filter(None, labels), number)
    # Counters have 64 bits.
    range_uJ = 2**64 if number.startswith("energy") else 0
    return Meter(f"{chip} {label}", str(path), range_uJ, bool(re.match(_CHIPS[chip], label)))


def why_none(root: Path | None = None) -> str:
    """Return why no energy can be measured, in one sentence; empty if it can."""
    base = ROOT if root is None else root
    if meters(base):
        return ""
    found = [meter for meter in (*_powercap(base), *_hwmon(base)) if meter.total]
    if not found:
        return (
            "energy is not measured: this system has no meter of a processor or a board in "
            "/sys/class/powercap or /sys/class/hwmon (virtual machines rarely have one)"
        )
    path = found[0].path
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace").strip()
        reason = f"{path} must contain a number, not {text!r}"
    except OSError as error:
        reason = why(path, error)
    return f"energy is not measured: {reason}"


def read(those: Sequence[Meter]) -> Reading:
    """Return the current values of meters."""
    values = tuple(read_number(Path("/"), meter.path) for meter in those)
    return Reading(time.perf_counter(), values)


def joules(those: Sequence[Meter], readings: Sequence[Reading]) -> dict[str, float]:
    """Return the joules from the first to the last reading by meter, NaN if one lacks a value.

    A counter may have wrapped once between two readings. The power of a sensor is the mean of the
    readings in the later half of the time.
    """
    begin_s, end_s = readings[0].time_s, readings[-1].time_s
    late = [reading.time_s >= (begin_s + end_s) / 2 for reading in readings]
    found = {}
    for number, meter in enumerate(those):
        values = [reading.values[number] for reading in readings]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            found[meter.name] = math.nan
        elif meter.range_uJ:
            steps = ((last - first) % meter.range_uJ for first, last in pairwise(known))
            found[meter.name] = sum(steps) * 1e-6
        else:
            counted = [value for value, counts in zip(known, late, strict=True) if counts]
            found[meter.name] = sum(counted) / len(counted) * (end_s - begin_s) * 1e-6
    return found


def metered(those: Sequence[Meter], work: Callable[[], object]) -> dict[str, float]:
    """Return the mean power in watts by meter while `work` is called again and again.

    It is called at least once, and for as long as the meters need. NaN if a meter could not be
    read.
    """
    sensors = any(not meter.range_uJ for meter in those)
    least_s = small.cut(_SENSOR_S if sensors else _COUNTER_S, 0.001)
    readings = [read(those)]
    while len(readings) < 2 or readings[-1].time_s - readings[0].time_s < least_s:
        work()
        readings.append(read(those))
    seconds = readings[-1].time_s - readings[0].time_s
    return {name: used_J / seconds for name, used_J in joules(those, readings).items()}


def total(those: Sequence[Meter], by_meter: Mapping[str, float]) -> float:
    """Return the sum over all meters that count in the total; NaN without any."""
    counted = [by_meter[meter.name] for meter in those if meter.total]
    return sum(counted) if counted else math.nan


@cache
def idle_W(those: tuple[Meter, ...], clock_limit: int) -> float:
    """Return the power in watts by the meters while this process sleeps; NaN without any.

    Measured once for each clock limit, which the caller has set. It includes the power of other
    programs.
    """
    if not those:
        return math.nan
    time.sleep(_REST_S)
    return total(those, metered(those, lambda: time.sleep(_IDLE_S)))
