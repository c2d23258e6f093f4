"""Settings of a machine that a measurement can change: prefetchers, clock limit, cache ways.

Each function returns the changes for `memkern.machine.settings.changed`, or raises an error with
the reason in one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from memkern.errors import InputError
from memkern.limits import read_number, read_text
from memkern.machine import gpu, restoring
from memkern.machine.environment import CPU, cpu_list, numbered
from memkern.machine.events import processor
from memkern.machine.settings import Change, why

# Register of the prefetchers, and the bits that each switch off one prefetcher. Intel: "Disclosure
# of Hardware Prefetcher Control on Some Intel Processors", 2014 (Nehalem to Broadwell), and pepc,
# MiscFeatureControl.py (later ones): L2 stream, L2 adjacent line, L1 next line, L1 by instruction.
# PerfSpect, prefetcher_defs.go: bit 5 of Sapphire, Emerald and Granite Rapids is the L2's adaptive
# multipath prefetcher, bits 6 and 7 of Granite Rapids are the prefetchers of L3 pages and of arrays
# of pointers. Both programs are Intel's own.
_INTEL = 0x1A4
_INTEL_BITS = {
    **dict.fromkeys(
        (26, 30, 31, 46, 37, 44, 47, 42, 45, 58, 62, 60, 63, 69, 70, 61, 71, 79, 86), 0x0F
    ),
    **dict.fromkeys((78, 85, 94, 142, 158, 165, 166, 102, 106, 108, 125, 126, 140, 141, 167), 0x0F),
    **dict.fromkeys((143, 207), 0x2F),
    **dict.fromkeys((173, 174), 0xEF),
}
# AMD: Processor Programming Reference of family 1Ah model 02h (57238), register MSRC000_0108
# PrefetchControl, and LIKWID, sysFeatures_amd.c, for Zen 3 to Zen 5: L1 stream, L1 stride, L1
# region, L2 stream, up/down. The other bits of Zen 5 set how aggressively they prefetch.
_AMD = 0xC0000108
_AMD_FAMILIES, _AMD_BITS = (25, 26), 0x2F
_REGISTER_B = 8
_CLOCKS = ("cpuinfo_min", "cpuinfo_max", "scaling_min", "scaling_max")


def _register(root: Path) -> tuple[int, int]:
    """Return the register of this processor's prefetchers and the bits that switch them off.

    Raises
    ------
    InputError
        No register is published for this processor.
    """
    vendor, family, model = processor(root)
    if (vendor, family) == ("GenuineIntel", 6) and model in _INTEL_BITS:
        return _INTEL, _INTEL_BITS[model]
    if vendor == "AuthenticAMD" and family in _AMD_FAMILIES:
        return _AMD, _AMD_BITS
    raise InputError(
        "the prefetchers can't be switched: no register is published for this processor "
        f"({vendor or 'of unknown vendor'} family {family} model {model})"
    )


def prefetchers_off(root: Path = Path("/")) -> list[Change]:
    """Return the changes that switch the prefetchers of all cores off.

    Parameters
    ----------
    root : Path
        Folder that contains ``proc``, ``sys`` and ``dev``.

    Raises
    ------
    InputError
        They can't be switched here.
    """
    register, bits = _register(root)
    changes = []
    for unit in cpu_list(read_text(root, f"{CPU}/online")) or [0]:
        path = str(root / f"dev/cpu/{unit}/msr")
        try:
            before = restoring.read_value(path, register, _REGISTER_B)
        except OSError as error:
            hint = " (as root: modprobe msr)" if isinstance(error, FileNotFoundError) else ""
            raise InputError(
                f"the prefetchers can't be switched: {why(path, error)}{hint}"
            ) from None
        if len(before) != _REGISTER_B:
            raise InputError(f"the prefetchers can't be switched: {path} lacks 0x{register:x}")
        changes.append(
            Change(
                f"register 0x{register:x} of unit {unit}",
                path,
                (int.from_bytes(before, "little") | bits).to_bytes(_REGISTER_B, "little"),
                before,
                register,
            )
        )
    return changes


def _clock_limits(root: Path) -> list[tuple[Path, dict[str, int]]]:
    """Return the folder of each group of cores and its clocks in kHz, by the names of its files.

    Raises
    ------
    InputError
        The clock can't be limited here.
    """
    policies = numbered(root, f"{CPU}/cpufreq/policy*")
    if not policies:
        raise InputError(
            "the clock can't be limited: this system has no cpufreq (virtual machines rarely have)"
        )
    found = []
    for policy in policies:
        clocks = {name: read_number(policy, f"{name}_freq") for name in _CLOCKS}
        known = {name: kHz for name, kHz in clocks.items() if kHz is not None}
        if len(known) < len(clocks):
            raise InputError(f"the clock can't be limited: {policy} does not report its limits")
        found.append((policy, known))
    return found


def clock_limit(MHz: int, root: Path = Path("/")) -> list[Change]:
    """Return the changes that limit the clock of all cores.

    Raises
    ------
    InputError
        The clock can't be limited here, or not to this value.
    """
    changes = []
    kHz = 1000 * MHz
    for policy, clocks in _clock_limits(root):
        least, most, lower, upper = (clocks[name] for name in _CLOCKS)
        if not least <= kHz <= most:
            raise InputError(
                f"clock_limit {MHz} MHz is outside {least // 1000} to {most // 1000} MHz, the "
                f"limits of {policy.name}"
            )
        limits = [("min", lower, kHz)] if lower > kHz else []
        changes += [
            Change(
                f"the clock limit of {policy.name}",
                str(policy / f"scaling_{end}_freq"),
                str(after).encode(),
                str(before).encode(),
                # The driver rounds it to a clock that the core has.
                read_back=False,
            )
            for end, before, after in (*limits, ("max", upper, kHz))
        ]
    return changes


def gpu_clock_limit(MHz: int, device: str) -> list[Change]:
    """Return the change that limits the clock of a GPU.

    NVML does not report an earlier limit: afterwards there is no limit.

    Raises
    ------
    InputError
        The clock can't be limited here, or not to this value.
    """
    clocks = gpu.clocks_MHz(device)
    if not clocks:
        raise InputError(
            f"the clock of {device} can't be limited: NVML does not report its clocks (pip install "
            "nvidia-ml-py)"
        )
    least, most = min(clocks), max(clocks)
    if not least <= MHz <= most:
        raise InputError(
            f"clock_limit {MHz} MHz is outside {least} to {most} MHz, the clocks of {device}"
        )
    path, value = f"{restoring.GPU}{gpu.facts(device)['bus']}", f"{least},{MHz}".encode()
    return [Change(f"the clock limit of {device}", path, value, b"", read_back=False)]


def _last_cache(root: Path) -> tuple[Path, str, int, int]:
    """Return resctrl's folder, its line of the L3, and the fewest and the most ways.

    Raises
    ------
    InputError
        The system can't divide the cache.
    """
    folder = root / "sys/fs/resctrl"
    if read_text(folder, "schemata") is None:
        if processor(root)[0] == "" and "0x46" in (read_text(root, "proc/cpuinfo") or ""):
            # Fujitsu, A64FX Specification, HPC Extension: registers IMP_SCCR_*, of which the
            # registers of L2 are for the kernel only, and tags in the addresses of loads and
            # stores.
            raise InputError(
                "cache ways can't be limited: Linux has no file for the sector cache of A64FX, "
                "which needs a kernel module for its registers and a compiler that tags addresses"
            )
        raise InputError(
            f"cache ways can't be limited: {folder} is not mounted (as root, where the processor "
            "can: mount -t resctrl resctrl /sys/fs/resctrl)"
        )
    lines = [line.strip() for line in (read_text(folder, "schemata") or "").splitlines()]
    line = next((line for line in lines if line.startswith("L3:")), None)
    mask = read_text(folder, "info/L3/cbm_mask")
    if line is None or mask is None or not re.fullmatch(r"L3:(\d+=[0-9a-f]+;?)+", line):
        raise InputError(
            "cache ways can't be limited: the system can't divide an L3 (see schemata)"
        )
    most, least = int(mask, 16).bit_length(), read_number(folder, "info/L3/min_cbm_bits") or 1
    return folder, line, least, most


def cache_ways(ways: int, root: Path = Path("/")) -> list[Change]:
    """Return the changes that leave programs this many ways of the last cache.

    Raises
    ------
    InputError
        The system can't divide the cache, or has too few ways.
    """
    folder, line, least, most = _last_cache(root)
    if not least <= ways <= most:
        raise InputError(f"cache_ways {ways} is outside {least} to {most}, the ways of this L3")
    caches = re.findall(r"(\d+)=", line)
    after = "L3:" + ";".join(f"{cache}={(1 << ways) - 1:x}" for cache in caches)
    return [
        Change(
            "the ways of the L3",
            str(folder / "schemata"),
            f"{after}\n".encode(),
            f"{line}\n".encode(),
            # The file has a line for each resource.
            read_back=False,
        )
    ]


# Functions that raise InputError if a setting can't be changed.
_CHANGEABLE: dict[str, Callable[[Path], object]] = {
    "prefetchers": prefetchers_off,
    "clock_limit": _clock_limits,
    "cache_ways": _last_cache,
}


def why_not(root: Path = Path("/")) -> dict[str, str]:
    """Return why this machine does not permit each setting; empty if it probably does."""

    def why_no(find: Callable[[Path], object]) -> str:
        try:
            find(root)
        except InputError as error:
            return str(error)
        return ""

    return {name: why_no(find) for name, find in _CHANGEABLE.items()}
