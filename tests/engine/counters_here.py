"""What tests of counters share."""

import pytest

from memkern import _memkern
from memkern.machine import events

ELEMENTS = 2**17

COMMAND = ("loops", "-k", "update", "--elements", str(ELEMENTS), "--runs", "3", "-q")


def counted(name: str) -> bool:
    """Return whether the system permits this user to count an event."""
    return not _memkern.why_not_counted(events.find(name).codes[0])


# The events that ordinary users may count depend on kernel.perf_event_paranoid.
OF_ALL_CODE = counted("page-faults")

NEEDS_COUNTERS = pytest.mark.skipif(
    not counted("page-faults:u"), reason="the system permits this user no counters"
)
