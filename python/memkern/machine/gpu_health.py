"""Findings of ``memkern doctor`` about a GPU: clocks, power, throttling, link, and memory.

None of them is bad for the machine as a whole, since most cases do not run on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from memkern.machine import gpu
from memkern.machine.health import GOOD, NOTE, UNKNOWN, Finding, first_that_holds

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
    limit, usual = _or_nan(set_to["power_limit_W"]), _or_nan(now["default_power_limit_W"])
    text = f"limit {limit:.0f} W"
    return first_that_holds(
        f"{name} power",
        (math.isnan(limit), UNKNOWN, "the driver does not report the power limit", _NVML),
        (
            limit < usual,
            NOTE,
            f"{text}, {usual:.0f} W by default",
            f"Set the usual limit with `nvidia-smi -pl {usual:.0f}`.",
        ),
        (True, GOOD, text, ""),
    )


def _clocks(name: str, set_to: Mapping[str, Any]) -> Finding:
    most, application = _or_nan(set_to["max_clock_GHz"]), _or_nan(set_to["application_clock_GHz"])
    text = f"at most {most:.2f} GHz"
    return first_that_holds(
        f"{name} clocks",
        (math.isnan(most), UNKNOWN, "the driver does not report the clocks", _NVML),
        (
            application < most,
            NOTE,
            f"{text}, set to {application:.2f} GHz",
            "Reset them with `nvidia-smi -rac`.",
        ),
        (True, GOOD, text, ""),
    )


def _throttling(name: str, now: Mapping[str, Any]) -> Finding:
    reasons = now["throttle"]
    words = [word for word in (reasons or "").split(", ") if word not in ("", "idle")]
    return first_that_holds(
        f"{name} throttling",
        (reasons is None, UNKNOWN, "the driver does not report why clocks are low", _NVML),
        (words, NOTE, ", ".join(words), "Check its temperature and its power supply."),
        (True, GOOD, "none", ""),
    )


def _link(name: str, set_to: Mapping[str, Any], now: Mapping[str, Any]) -> Finding:
    most, found = (
        f"PCI Express {_or_nan(about['link_generation']):.0f} with "
        f"{_or_nan(about['link_width']):.0f} lanes"
        for about in (set_to, now)
    )
    return first_that_holds(
        f"{name} link",
        ("nan" in most + found, UNKNOWN, "the driver does not report its link", _NVML),
        (
            found != most,
            NOTE,
            f"{found}; it supports {most}",
            "Transfers will be slower: check the slot.",
        ),
        (True, GOOD, found, ""),
    )


def _memory(name: str, about: Mapping[str, Any], copy_GBps: float) -> Finding:
    peak = about["peak_GBps"] or math.nan
    ecc = "with" if about["ecc"] else "without"
    text = f"{about['peak_GBps']:.0f} GB/s by clock and width, {ecc} error correction"
    copied = f"{text}; the driver's copy moves {copy_GBps:.0f} GB/s ({copy_GBps / peak:.0%})"
    return first_that_holds(
        f"{name} memory",
        (math.isnan(copy_GBps / peak), UNKNOWN, text, _FREE),
        (copy_GBps < _LEAST_SHARE * peak, NOTE, copied, _FREE),
        (True, GOOD, copied, ""),
    )


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
