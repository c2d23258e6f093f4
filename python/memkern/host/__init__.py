"""What is known of this host until the next boot, beyond what the system reports.

It may touch one file, and depends on the facts of the machine below it. Only `capacity` measures,
since sizes of cases depend on it; everything else is measured by the engine above.
"""

from __future__ import annotations

import atexit
import functools
import math
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from memkern import small
from memkern.host.distances import QUANTITIES, RUNS, History, Spread, packaged
from memkern.host.file import File, Section, usual_path
from memkern.host.rates import RATES, CoreRates
from memkern.limits import control_groups
from memkern.machine.environment import now

Rates = Mapping[str, Mapping[str, float]]


Round = Mapping[str, float]
"""Logarithm of a time by the variant and instruction set, as ``simd/avx2``."""

_MOST_ROUNDS = 12
_MOST_CASES = 200  # the most recently tried ones

Rounds = Mapping[str, Sequence[Round]]


def _numbers(content: Mapping[str, Any]) -> dict[str, float]:
    """Return finite numbers by name.

    Raises
    ------
    AttributeError, TypeError, ValueError, OverflowError
        It has others.
    """
    found = {str(name): float(value) for name, value in content.items()}
    if not all(map(math.isfinite, found.values())):
        raise ValueError("a number is not finite")
    return found


def _last(known: Rounds, new: Rounds) -> Rounds:
    """Return the last rounds of the cases that were tried last."""
    tried = {name: [*known.get(name, ()), *rounds][-_MOST_ROUNDS:] for name, rounds in new.items()}
    others = {name: rounds for name, rounds in known.items() if name not in new}
    return dict([*others.items(), *tried.items()][-_MOST_CASES:])


CHOICES: Section[Rounds] = Section(
    "choices",
    {},
    lambda content: {name: [_numbers(one) for one in rounds] for name, rounds in content.items()},
    _last,
)


class Choices:
    """Rounds of trials of variants since the boot, by the name of a case, or of its parts.

    A choice starts from the rounds of earlier choices of the same case, so that it needs fewer new
    rounds to distinguish two candidates, and equal commands make the same choice. Only the last
    rounds are kept, so that a wrong choice is not permanent.

    Parameters
    ----------
    earlier : mapping of str to sequence of Round
        Of earlier processes.
    """

    def __init__(self, earlier: Rounds) -> None:
        self._known = earlier
        self.added: Rounds = {}
        """The rounds of this process."""

    def known(self, name: str) -> list[Round]:
        """Return the last rounds of a name."""
        return list(self._known.get(name, ()))

    def add(self, name: str, one: Round) -> None:
        """Keep a round for later choices."""
        self._known, self.added = (
            _last(every, {name: [one]}) for every in (self._known, self.added)
        )


class Capacity(NamedTuple):
    """Bytes of all last-level caches.

    Attributes
    ----------
    sized_B : int
        Capacity from which sizes are chosen: a power of two, which does not change until the next
        boot.
    largest_B : int
        Largest capacity that was measured since the boot.
    system_B : int
        Size that the system reports.
    """

    sized_B: int
    largest_B: int
    system_B: int

    def may_hold(self, footprint_B: float) -> bool:
        """Return whether a case was large enough for memory, but larger caches could hold it.

        The system may report larger caches, or smaller ones than were found.
        """
        most_B = 2 * self.system_B if self.largest_B <= self.system_B else math.inf
        return 2 * self.sized_B <= footprint_B < most_B

    def has_grown(self, footprint_B: float) -> bool:
        """Return whether caches hold more than half of a case that was large enough for memory."""
        return self.may_hold(footprint_B) and footprint_B < 2 * self.largest_B


class Caches(NamedTuple):
    """Measured caches.

    Attributes
    ----------
    system : list of dict
        The caches by the system, as in an environment: the rest is valid only with these.
    sizes_B : dict of str to int
        Bytes of an instance of each measured cache, by its name, such as ``L3``.
    created : str
        Date and time of this measurement in UTC.
    sized_B, largest_B, system_B : int
        See `Capacity`.
    tried_s : float
        Time of the last measurement of the capacity, in seconds since 1970.
    """

    system: list[Mapping[str, Any]]
    sizes_B: dict[str, int]
    created: str
    sized_B: int
    largest_B: int
    system_B: int
    tried_s: float


class Health(NamedTuple):
    """A verdict of `memkern.doctor` on a control group, with its date and time in UTC."""

    summary: str
    cgroup: str
    created: str


def _largest(known: Rates, new: Rates) -> Rates:
    best = dict(known)
    for which, rates in new.items():
        before = best.get(which, {})
        best[which] = {**before, **{k: max(x, before.get(k, 0.0)) for k, x in rates.items()}}
    return best


_CACHES: Section[Caches | None] = Section(
    "caches",
    None,
    lambda content: Caches(
        list(content["system"]),
        {str(name): int(size) for name, size in content["sizes_B"].items()},
        str(content["created"]),
        int(content["sized_B"]),
        int(content["largest_B"]),
        int(content["system_B"]),
        float(content["tried_s"]),
    ),
    content=lambda caches: caches._asdict() if caches else None,
)
_HEALTH: Section[Health | None] = Section(
    "doctor",
    None,
    lambda content: Health(*(str(content[name]) for name in Health._fields)),
    content=lambda health: health._asdict() if health else None,
)
_CEILINGS: Section[Rates] = Section(
    "ceilings",
    {},
    lambda content: {str(k): _numbers(rates) for k, rates in content.items()},
    _largest,
)
_COUNTERS: Section[Mapping[str, float]] = Section(
    "counters", {}, _numbers, lambda known, new: {**known, **new}
)


class Host:
    """What is known of a host until its next boot.

    Parameters
    ----------
    path : Path, optional
        Of the file that all processes of this user share; without one, values are kept in memory.

    Attributes
    ----------
    measured : dict
        Values of this process for its records, such as launch costs, by what they depend on; see
        `memkern.engine.placing.costs`.
    again_s : dict
        Times after which values that are not among `measured`, since their samples were disturbed,
        are measured again, on the clock of `time.perf_counter`.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._file = File(path)
        self.measured: dict[Any, Any] = {}
        self.again_s: dict[Any, float] = {}

    @functools.cached_property
    def cores(self) -> CoreRates:
        """The rates of the cores."""
        return CoreRates(self._file.get(RATES))

    @functools.cached_property
    def choices(self) -> Choices:
        """The rounds of trials of variants."""
        return Choices(self._file.get(CHOICES))

    @functools.cached_property
    def _history(self) -> History:
        return History(self._file.get(RUNS))

    def spread(self, name: str) -> Spread:
        """Return the distances between runs of a class, from other hosts and from this boot."""
        known = (self._history.known(f"{name}, {quantity}") for quantity in QUANTITIES)
        return packaged(name) + Spread(*known)

    def add_record(self, identity: str, name: str, record: Mapping[str, Any], now_s: float) -> None:
        """Add an undisturbed record to the distances between runs.

        Parameters
        ----------
        identity : str
            Of the case, the machine, the build and the state of the host.
        name : str
            Class of the case.
        record : mapping
        now_s : float
            Seconds since 1970.
        """
        prior = packaged(name)
        for quantity, column in QUANTITIES.items():
            of_case, of_class = f"{identity} {quantity}", f"{name}, {quantity}"
            self._history.add(of_case, of_class, record[column], getattr(prior, quantity), now_s)

    @property
    def caches(self) -> Caches | None:
        """The measured caches, None where there are none."""
        return self._file.get(_CACHES)

    def keep_caches(self, caches: Caches) -> bool:
        """Store measured caches; return whether they could be stored."""
        return self._file.put((_CACHES, caches))

    @property
    def health(self) -> str:
        """The verdict of `memkern.doctor` with its age; empty if unknown.

        In another control group, with other limits, it is unknown.
        """
        known = self._file.get(_HEALTH)
        if known is None or small.wanted() or known.cgroup != control_groups():
            return ""
        age = datetime.fromisoformat(now()) - datetime.fromisoformat(known.created)
        hours = int(age.total_seconds() // 3600)
        before = f"{hours} hour{'s' * (hours > 1)}" if hours > 0 else "less than an hour"
        return f"{known.summary} ({before} before)"

    def keep_health(self, summary: str) -> None:
        """Store the verdict of `memkern.doctor` (see `memkern.machine.health.summary`)."""
        self._file.put((_HEALTH, Health(summary, control_groups(), now())))

    def best_rates(self, which: str, rates: Mapping[str, float]) -> Mapping[str, float]:
        """Store bandwidths, and return the largest values measured since the system was booted.

        Parameters
        ----------
        which : str
            Name of the group of cases.
        rates : mapping of str to float
            In any unit, by name.
        """
        known = self._file.get(_CEILINGS)
        best = _largest(known, {which: rates})
        if best != known:
            self._file.put((_CEILINGS, {which: rates}))
        return best[which]

    @property
    def counters(self) -> Mapping[str, float]:
        """By event, its count divided by the true one (see `memkern machine counters --check`)."""
        return self._file.get(_COUNTERS)

    def keep_counters(self, ratios: Mapping[str, float]) -> None:
        """Store ratios of some events."""
        self._file.put((_COUNTERS, ratios))

    def save(self) -> None:
        """Merge what this process has added into the file; do nothing if it can't be written."""
        live = vars(self)
        sections = (("cores", RATES), ("choices", CHOICES), ("_history", RUNS))
        added = [(section, live[name].added) for name, section in sections if name in live]
        changes = [(section, values) for section, values in added if any(values.values())]
        if changes:
            self._file.put(*changes)


def this_host() -> Host:
    """Return the default host, with the file of this user; small cases are kept in memory."""
    return _default(None if small.wanted() else usual_path())


@functools.lru_cache(maxsize=1)
def _default(path: Path | None) -> Host:
    host = Host(path)
    atexit.register(host.save)
    # A process that is forked from this one must not save the same again.
    os.register_at_fork(after_in_child=lambda: atexit.unregister(host.save))
    return host
