"""Experiments: changed cases whose times, in turns with a case, explain the time of the case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from memkern.machine.caches import Share
from memkern.spec.case import Case

LEVEL, WITHOUT, LEFT, LIMIT, TRIED = "level", "without", "left", "limit", "tried"
"""Roles of experiments (see `Experiment`)."""
MODEL = "model"
"""Role of what a model predicts, which is no experiment."""


class Setting(NamedTuple):
    """What a case was measured with, and the machine's caches.

    Attributes
    ----------
    threads, units : int
        Threads of the case, and processing units that it may use.
    pages : str
        Page size of the arrays, as the system reports it.
    variants : tuple of str
        Variants that the kernel has here.
    requested : bool
        Whether the variant was requested; otherwise it is the fastest one.
    footprint_B : int
        Bytes of all arrays.
    level : str
        The smallest level that holds them: a cache, or ``memory``.
    seconds : float
        Shortest time of an invocation.
    caches : mapping of str to Share
        Data caches by name, from the innermost one; the last one is as large as measured.
    last_B : int
        Bytes of all last-level caches, which data in memory exceed.
    """

    threads: int
    units: int
    pages: str
    variants: tuple[str, ...]
    requested: bool
    footprint_B: int
    level: str
    seconds: float
    caches: Mapping[str, Share]
    last_B: int


Change = Callable[[Case, Setting], Case | None]
"""(case, setting) to the changed case; None, or an InputError, where it does not apply."""


@dataclass(frozen=True)
class Experiment:
    """A changed case whose time is compared with that of the case, in turns.

    Times are those of equal bytes, by the paper's formula.

    Parameters
    ----------
    name : str
        The change in a few words, such as ``indices in ascending order``.
    change : callable
        See `Change`.
    cause : str
        What the change removes, such as ``order of the indices``. Of a `LEVEL` the name of the
        cache that holds the changed case, of a `LIMIT` the limit that is reached by the changed
        case, of `LEFT` what remains in it.
    role : str
        ``level``: the same instructions with data in a cache. ``without``: the case without one
        cause, whose share is the fall of the time. ``left``: the case without all but one cause,
        whose share is the remaining time. ``limit``: the least time for the same bytes, by the
        model of the traffic. ``tried``: nothing but options that may be faster.
    within : str
        The cause that contains this one.
    option : str
        What a user can write to have the change, such as ``--pages thp``, with ``{units}`` for the
        number of processing units; empty for what is only possible in an experiment.
    """

    name: str
    change: Change
    cause: str = ""
    role: str = WITHOUT
    within: str = ""
    option: str = ""


def knob(name: str, value: Any, cause: str = "", **facts: Any) -> Experiment:
    """Return the experiment with another value of an option of all cases, as a user may give it."""
    text = f"--{name.replace('_', '-')} {value}"

    def change(case: Case, setting: Setting) -> Case | None:
        return None if getattr(case.knobs, name) == value else case.with_(**{name: value})

    role = WITHOUT if cause else TRIED
    return Experiment(text, change, cause, **{"role": role, "option": text, **facts})
