"""What the record of a case needs besides its samples, which `Host.measured` holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from memkern.spec.case import Case
from memkern.spec.kernel import Ceilings
from memkern.spec.options import GPUS, PROCESSORS

LAUNCH, DEVICE_LAUNCH = "launch", "launch on a device"
CEILINGS, DEVICE_CEILINGS = "ceilings", "ceilings of a device"

UNKNOWN: dict[str, Any] = {
    LAUNCH: math.nan,
    DEVICE_LAUNCH: math.nan,
    CEILINGS: Ceilings(math.nan, math.nan, math.nan, math.nan),
    DEVICE_CEILINGS: dict.fromkeys(("read", "copy"), math.nan),
}
"""Values by kind before they are known."""


class Need(NamedTuple):
    """A value by its kind, and the values of options on which it depends."""

    kind: str
    of: tuple[Any, ...]


def needs_of(case: Case, threads: int, invocations: Callable[[], int]) -> list[Need]:
    """Return what the record of a case needs.

    Parameters
    ----------
    case : Case
    threads : int
        Number of its workers.
    invocations : callable
        Returns the invocations of a sample; called only for cases on a GPU.
    """
    knobs, found = case.knobs, []
    if case.bytes_B and knobs.place == GPUS:
        found.append(Need(DEVICE_LAUNCH, (knobs.device, knobs.timer, invocations())))
    if case.bytes_B and knobs.place == PROCESSORS:
        found.append(Need(LAUNCH, (threads, knobs.pin, knobs.repetition)))
    if case.spec.model.measures_ceilings:
        found.append(Need(CEILINGS, (threads, knobs.pin, knobs.pages)))
    return found
