"""Energy of a case: its columns of a record."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memkern.spec.case import Case

__all__ = ["Energy", "columns"]


@dataclass(frozen=True)
class Energy:
    """Power of the machine or GPU while a case runs.

    Attributes
    ----------
    power_W : float
        The total; NaN if it is unknown.
    idle_W : float
        Power while this process sleeps; NaN if unknown.
    powers_W : mapping of str to float
        By meter; NaN if the meter could not be read.
    note : str
        Why the total is unknown; empty if it is known.
    """

    power_W: float = math.nan
    idle_W: float = math.nan
    powers_W: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


def columns(case: Case, found: Energy, median_s: float) -> dict[str, Any]:
    """Return the columns of a record on energy: the power times the median time.

    Parameters
    ----------
    case : Case
    found : Energy
        Energy of the case, or of the case whose invocations include it.
    median_s : float
        Median time of an invocation.
    """
    if found.note:
        return {"energy_note": found.note}
    energy_J = found.power_W * median_s
    flops = case.iterations * case.spec.counts.width(case) * case.spec.counts.flops
    by_meter = {
        # JSON has no NaN.
        name: None if math.isnan(watts) else watts * median_s
        for name, watts in found.powers_W.items()
    }
    return {
        "power_W": found.power_W,
        "idle_power_W": found.idle_W,
        "energy_J": energy_J,
        "energy_delay_Js": energy_J * median_s,
        "energy_per_byte_pJ": 1e12 * energy_J / case.bytes_B if case.bytes_B else math.nan,
        "energy_per_flop_pJ": 1e12 * energy_J / flops if flops else math.nan,
        "energy_meters": json.dumps(by_meter),
        "energy_note": "",
    }
