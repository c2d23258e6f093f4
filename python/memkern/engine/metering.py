"""Energy of a case: the power of the machine or GPU during consecutive invocations.

Between samples are pauses, in which the state of the cores is read and the next sample is prepared.
Therefore the energy is measured in further invocations without pauses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memkern.engine.communication import ranks
from memkern.engine.cores import Neighbour
from memkern.engine.prepared import Prepared
from memkern.engine.process import exclusive
from memkern.errors import warn
from memkern.machine import energy, gpu
from memkern.spec.case import Case
from memkern.spec.options import GPUS, RANKS

__all__ = ["Energy", "columns", "measure", "why_not"]

# Long enough for the slowest meters, including the idle power.
_LONGEST_S = 5.0
# Seconds of invocations that are started at once. Events of a GPU take up to 5 ms before each
# start.
_STARTED_S, _STARTED_ON_GPU_S = 0.01, 0.1
_LEAST_S = 1e-9  # of an invocation


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


def why_not(prepared: Prepared) -> str:
    """Return why the energy of a case can't be measured, in one sentence; empty if it can."""
    knobs = prepared.case.knobs
    if ranks().size > 1 or knobs.place == RANKS:
        return "energy is not measured over ranks: each host has its own meters"
    if knobs.flush:
        return "energy is not measured with flush, whose energy would be included"
    if prepared.case.template_variant == "managed":
        return "energy is not measured for managed memory, which only the first invocation moves"
    if prepared.left_s < _LONGEST_S:
        return "energy is not measured: too little time was left"
    return gpu.why_no_energy(knobs.device) if knobs.place == GPUS else energy.why_none()


def measure(prepared: Prepared, seconds: float, beside: Neighbour | None = None) -> Energy:
    """Run invocations for as long as the meters need, and return the power during this time.

    The invocations change the arrays that the kernel writes.

    Parameters
    ----------
    prepared : Prepared
    seconds : float
        Approximate time of an invocation.
    beside : Neighbour, optional
        Case that runs intentionally at the same time.
    """
    if note := why_not(prepared):
        return Energy(note=note)
    with exclusive(), prepared.switched():
        prepared.warm_up()
        return _measured(prepared, seconds, beside)


def _measured(prepared: Prepared, seconds: float, beside: Neighbour | None) -> Energy:
    """Return the power of invocations, if it can be measured, with the requested settings."""
    knobs = prepared.case.knobs
    started_s = _STARTED_ON_GPU_S if knobs.place == GPUS else _STARTED_S
    invocations = math.ceil(started_s / max(seconds, _LEAST_S))

    def work() -> None:
        prepared.native.run(invocations)

    meters: tuple[energy.Meter, ...] = ()
    if knobs.place == GPUS:
        power_W = gpu.metered_W(knobs.device, work)
        powers_W = {"GPU": power_W}
        lost = f"the power of {knobs.device}"
    else:
        meters = energy.meters()
        powers_W = energy.metered(meters, work)
        power_W = energy.total(meters, powers_W)
        of_total = [meter.name for meter in meters if meter.total]
        lost = ", ".join(name for name in of_total if math.isnan(powers_W[name])) or "every meter"
    if math.isnan(power_W):
        note = f"energy is unknown: {lost} can no longer be read"
        warn(note)
        return Energy(powers_W=powers_W, note=note)
    if knobs.place == GPUS:
        return Energy(power_W, gpu.idle_W(knobs.device, knobs.clock_limit), powers_W)
    # A neighbour consumes power while this process sleeps.
    idle_W = math.nan if beside else energy.idle_W(meters, knobs.clock_limit)
    return Energy(power_W, idle_W, powers_W)


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
