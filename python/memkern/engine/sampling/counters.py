"""Events that can be counted here, and those that the option ``counters`` requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memkern.checks import shown
from memkern.engine.processes.communication import ranks
from memkern.engine.recording.counting import Counting
from memkern.errors import InputError
from memkern.extension import _memkern
from memkern.machine import events

AUTO = "auto"
# Folder that contains proc and sys.
ROOT = Path("/")
_TRAFFIC = tuple(f"{name}_{way}" for name in events.BOUNDARIES for way in events.WAYS)
# Counted with `AUTO` if the system permits it.
_ALWAYS = ("page-faults", "context-switches", "cpu-migrations")


def _event_of(name: str) -> events.Event:
    """Return the event with this name, or the event of the quantity with this name.

    Raises
    ------
    InputError
        It is unknown here.
    """
    if rows := events.quantities(ROOT).get(name):
        return events.of_quantity(name, rows, ROOT)
    if name in (*_TRAFFIC, events.TLB_MISSES):
        raise InputError(f"event {shown(name)} can't be counted: {_lacking()}")
    return events.find(name, ROOT)


def _lacking() -> str:
    """Return a sentence: the table of events lacks this processor, or some of its quantities."""
    if events.quantities(ROOT):
        return "the table of events has no such event for this processor"
    vendor, family, model = events.processor(ROOT)
    what = f"{vendor} family {family} model {model}" if vendor else "unknown"
    return f"the table of events lacks this processor ({what})"


def _why_not(event: events.Event) -> str:
    return next((why for code in event.codes if (why := _memkern.why_not_counted(code))), "")


def _permitted(event: events.Event) -> tuple[events.Event, str]:
    """Return an event as it can be counted here, and why it can't, which is empty if it can.

    If counting in the kernel is not permitted, only user code is counted, as in perf.
    """
    why = _why_not(event)
    reduced = events.of_user_code(event) if why else None
    return (reduced, "") if reduced and not _why_not(reduced) else (event, why)


def event_here(name: str) -> tuple[events.Event | None, str]:
    """Return the event with this name as it can be counted here, and why it can't.

    The reason is the end of a sentence, and empty if it can. The event is None if the system does
    not support it.
    """
    try:
        event = _event_of(name)
    except InputError as error:
        return None, str(error)
    return _permitted(event)


def requested(text: str) -> Counting:
    """Return the counting that the option ``counters`` requests; called by all ranks.

    Raises
    ------
    InputError
        An event that was requested by its name is unknown or can't be counted.
    """
    own = _auto() if text == AUTO else _by_name(text)
    # The events that every rank can count, in the order of the first rank.
    names = ranks().every([event.name for event in own.events])
    common = [name for name in names[0] if all(name in others for others in names)]
    mine = {event.name: event for event in own.events}
    lost = ", ".join(name for name in mine if name not in common)
    notes = filter(None, (own.note, lost and f"{lost} can't be counted on every rank"))
    return Counting(tuple(mine[name] for name in common), "; ".join(notes), ranks().first_of_host)


def _by_name(text: str) -> Counting:
    """Return the counters of a list of names; see `requested` for the errors."""
    found = []
    names = events.names_of(text)
    if AUTO in names:
        raise InputError(f"counters must be auto alone or names without auto, not {shown(text)}")
    for name in names:
        event, why = _permitted(_event_of(name))
        if why:
            raise InputError(f"event '{name}' can't be counted: {why}")
        found.append(event)
    return Counting(tuple(found), "; ".join(_of_user_code(found)))


def _of_user_code(found: Sequence[events.Event]) -> list[str]:
    """Return the remark on events that are counted in user code only, if there are any."""
    names = ", ".join(event.name for event in found if event.user_only)
    return [
        f"{names}: counted in user code only (counts in the kernel need root or "
        "kernel.perf_event_paranoid of at most 1)"
    ] * bool(names)


def _auto() -> Counting:
    """Return the countable events for the traffic of each level, page faults and switches."""
    found: list[events.Event] = []
    missing: dict[str, list[str]] = {}
    known = events.quantities(ROOT)
    for name in (*known, *_ALWAYS):
        event, why = event_here(name)
        if event is None or why:
            missing.setdefault(why, []).append(name)
        else:
            found.append(event)
    if known and (lacking := [name for name in _TRAFFIC if name not in known]):
        missing[_lacking()] = lacking
    notes = [f"{', '.join(names)} can't be counted: {why}" for why, names in missing.items()]
    unknown = [] if known else [f"traffic is not counted: {_lacking()}"]
    return Counting(tuple(found), "; ".join([*notes, *unknown, *_of_user_code(found)]))
