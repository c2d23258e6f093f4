"""Findings of ``memkern doctor`` about a GPU: clocks, power, throttling, link, and memory.

None of them is bad for the machine as a whole, since most cases do not run on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from memkern.machine import gpu
from memkern.machine.health import GOOD, NOTE, UNKNOWN, Finding

# A copy by the driver reaches about nine tenths of the theoretical bandwidth.
_LEAST_SHARE = 0.8
_NVML = "Install nvidia-ml-py (pip install nvidia-ml-py), and a driver that has NVML."
_FREE = "Look for other programs on the GPU with `nvidia-smi`."


def card_findings(name: str, copy_GBps: float = math.nan) -> list[Finding]:
    """Return the findings about a GPU.

    Parameters
    ----------
    name : str
        Such as ``cuda:0``.
    copy_GBps : float
        Bandwidth of the driver's copy, measured immediately before: an idle GPU lowers its clocks
        and the speed of its link.

    Returns
    -------
    list of Finding
    """
    about = gpu.describe_all()[name]
    if "unavailable" in about:
        return [Finding(name, NOTE, about["unavailable"], "Free it, or leave it out.")]
    set_to, now = about["settings"], gpu.readings(name)
    return [
        _power(name, set_to, now),
        _clocks(name, set_to),
        _throttling(name, now),
        _link(name, set_to, now),
        _memory(name, about, copy_GBps),
    ]


def _power(name: str, set_to: Mapping[str, Any], now: Mapping[str, Any]) -> Finding:
    subject, limit, usual = f"{name} power", set_to["power_limit_W"], now["default_power_limit_W"]
    if limit is None:
        return Finding(subject, UNKNOWN, "the driver does not report the power limit", _NVML)
    text = f"limit {limit:.0f} W"
    if usual is None or limit >= usual:
        return Finding(subject, GOOD, text)
    advice = f"Set the usual limit with `nvidia-smi -pl {usual:.0f}`."
    return Finding(subject, NOTE, f"{text}, {usual:.0f} W by default", advice)


def _clocks(name: str, set_to: Mapping[str, Any]) -> Finding:
    subject, most = f"{name} clocks", set_to["max_clock_GHz"]
    if most is None:
        return Finding(subject, UNKNOWN, "the driver does not report the clocks", _NVML)
    text = f"at most {most:.2f} GHz"
    application = set_to["application_clock_GHz"]
    if application is None or application >= most:
        return Finding(subject, GOOD, text)
    return Finding(
        subject, NOTE, f"{text}, set to {application:.2f} GHz", "Reset them with `nvidia-smi -rac`."
    )


def _throttling(name: str, now: Mapping[str, Any]) -> Finding:
    subject, reasons = f"{name} throttling", now["throttle"]
    if reasons is None:
        return Finding(subject, UNKNOWN, "the driver does not report why clocks are low", _NVML)
    words = [word for word in reasons.split(", ") if word not in ("", "idle")]
    if not words:
        return Finding(subject, GOOD, "none")
    return Finding(subject, NOTE, ", ".join(words), "Check its temperature and its power supply.")


def _link(name: str, set_to: Mapping[str, Any], now: Mapping[str, Any]) -> Finding:
    subject = f"{name} link"
    most = (set_to["link_generation"], set_to["link_width"])
    found = (now["link_generation"], now["link_width"])
    if None in most or None in found:
        return Finding(subject, UNKNOWN, "the driver does not report its link", _NVML)
    text = f"PCI Express {found[0]:.0f} with {found[1]:.0f} lanes"
    if found == most:
        return Finding(subject, GOOD, text)
    can = f"it supports PCI Express {most[0]:.0f} with {most[1]:.0f} lanes"
    return Finding(subject, NOTE, f"{text}; {can}", "Transfers will be slower: check the slot.")


def _memory(name: str, about: Mapping[str, Any], copy_GBps: float) -> Finding:
    subject, peak = f"{name} memory", about["peak_GBps"]
    ecc = "with" if about["ecc"] else "without"
    text = f"{peak:.0f} GB/s by clock and width, {ecc} error correction"
    if math.isnan(copy_GBps) or not peak:
        return Finding(subject, UNKNOWN, text, _FREE)
    text += f"; the driver's copy moves {copy_GBps:.0f} GB/s ({copy_GBps / peak:.0%})"
    if copy_GBps >= _LEAST_SHARE * peak:
        return Finding(subject, GOOD, text)
    return Finding(subject, NOTE, text, _FREE)
