"""Energy of a case: the power of the machine or GPU during consecutive invocations.

Between samples are pauses, in which the state of the cores is read and the next sample is prepared.
Therefore the energy is measured in further invocations without pauses.
"""

from __future__ import annotations

import math

from memkern.engine.processes.communication import exclusive, ranks
from memkern.engine.recording.taken import Energy
from memkern.engine.sampling.activity import Neighbour
from memkern.engine.sampling.prepared import Prepared
from memkern.errors import warn
from memkern.machine import energy, gpu

# Long enough for the slowest meters, including the idle power.
_LONGEST_S = 5.0
# Seconds of invocations that are started at once. Events of a GPU take up to 5 ms before each
# start.
_STARTED_S, _STARTED_ON_GPU_S = 0.01, 0.1


def why_not(prepared: Prepared) -> str:
    """Return why the energy of a case can't be measured, in one sentence; empty if it can."""
    knobs = prepared.case.knobs
    if ranks().size > 1 or knobs.backend.over_ranks:
        return "energy is not measured over ranks: each host has its own meters"
    if knobs.flush:
        return "energy is not measured with flush, whose energy would be included"
    if prepared.case.template_variant == "managed":
        return "energy is not measured for managed memory, which only the first invocation moves"
    if prepared.left_s < _LONGEST_S:
        return "energy is not measured: too little time was left"
    return gpu.why_no_energy(knobs.device) if knobs.backend.is_accelerator else energy.why_none()


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
    started_s = _STARTED_ON_GPU_S if knobs.backend.is_accelerator else _STARTED_S
    invocations = math.ceil(started_s / max(seconds, 1e-9))

    def work() -> None:
        prepared.native.run(invocations)

    meters: tuple[energy.Meter, ...] = ()
    if knobs.backend.is_accelerator:
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
    if knobs.backend.is_accelerator:
        return Energy(power_W, gpu.idle_W(knobs.device, knobs.clock_limit), powers_W)
    # A neighbour consumes power while this process sleeps.
    idle_W = math.nan if beside else energy.idle_W(meters, knobs.clock_limit)
    return Energy(power_W, idle_W, powers_W)
