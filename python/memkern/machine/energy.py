"""Energy that the machine uses, by the meters of the processor and of the board.

Meters are RAPL's zones (``/sys/class/powercap``), the energy counters of hwmon and, where there are
none, the power sensors of hwmon, which tell the present power only. `root` replaces ``/`` to read
other trees.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from memkern.machine.limits import read_number, read_text

__all__ = [
    "LEAST_S",
    "ROOT",
    "Meter",
    "Reading",
    "idle_W",
    "joules",
    "meters",
    "read",
    "total_J",
    "why_none",
]

# Folder that contains sys.
ROOT = Path("/")
# Meters are updated about every millisecond: over a shorter time than this their steps matter.
LEAST_S = 0.02
_IDLE_S = 0.3


@dataclass(frozen=True)
class Meter:
    """A meter of energy or power.

    Attributes
    ----------
    name : str
        Such as ``package-0`` or ``package-0 dram``; unique.
    path : str
        File with microjoules or, of a sensor of power, microwatts.
    range_uJ : int
        Value from which the counter begins at 0 again; 0 for a sensor of power.
    total : bool
        Whether it counts in the total: others measure a part of what is measured already.
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
    """Return the meters that can be read: those of RAPL, else the counters or sensors of hwmon."""
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
    """Return RAPL's zones: packages, and their parts, of which memory is outside the package."""
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
            # psys measures the packages once more.
            inside = name.startswith("package")
            found.append(Meter(name, f"{folder}/energy_uj", most, inside))
    return found


def _hwmon(root: Path) -> list[Meter]:
    """Return the energy counters and power sensors of hwmon; those of cores do not count."""
    found = []
    for folder in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        chip = read_text(folder, "name") or folder.name
        for path in sorted(folder.glob("energy*_input")):
            label = read_text(folder, path.name.replace("_input", "_label")) or path.name[:-6]
            # Counters of 64 bits.
            found.append(Meter(f"{chip} {label}", str(path), 2**64, "core" not in label.lower()))
        for kind in ("average", "input"):
            for path in sorted(folder.glob(f"power*_{kind}")):
                label = path.name.partition("_")[0]
                label = read_text(folder, f"{label}_label") or label
                name = f"{chip} {label}"
                if all(meter.name != name for meter in found):
                    found.append(Meter(name, str(path), 0, True))
    return found


def why_none(root: Path | None = None) -> str:
    """Return why no energy can be measured, in one sentence; empty if it can."""
    base = ROOT if root is None else root
    if meters(base):
        return ""
    if found := [*_powercap(base), *_hwmon(base)]:
        return f"energy is not measured: only root may read {found[0].path}"
    return (
        "energy is not measured: this system has no meter in /sys/class/powercap or "
        "/sys/class/hwmon (virtual machines rarely have one)"
    )


def read(those: Sequence[Meter]) -> Reading:
    """Return the present values of meters."""
    values = tuple(read_number(Path("/"), meter.path) for meter in those)
    return Reading(time.perf_counter(), values)


def joules(those: Sequence[Meter], before: Reading, after: Reading) -> dict[str, float]:
    """Return the joules between two readings by meter, NaN where a meter could not be read.

    A counter may have begun again once in between. The power of a sensor is the mean of both ends.
    """
    seconds = after.time_s - before.time_s
    found = {}
    for meter, first, last in zip(those, before.values, after.values, strict=True):
        if first is None or last is None:
            found[meter.name] = math.nan
        elif meter.range_uJ:
            found[meter.name] = (last - first) % meter.range_uJ * 1e-6
        else:
            found[meter.name] = (first + last) / 2 * seconds * 1e-6
    return found


def total_J(those: Sequence[Meter], by_meter: Mapping[str, float]) -> float:
    """Return the joules of all meters that count in the total; NaN without any."""
    counted = [by_meter[meter.name] for meter in those if meter.total]
    return sum(counted) if counted else math.nan


@cache
def idle_W(those: tuple[Meter, ...]) -> float:
    """Return the power in watts by the meters while this process sleeps for 0.3 s; NaN without any.

    Measured once. Other programs that run at that time use power too.
    """
    if not those:
        return math.nan
    before = read(those)
    time.sleep(_IDLE_S)
    after = read(those)
    return total_J(those, joules(those, before, after)) / (after.time_s - before.time_s)
