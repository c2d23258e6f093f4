"""Cases measured in turns with a base, so that all meet the same states of the host.

In each round the base and some cases are placed anew and sampled in a few turns, each in random
order and for 10 ms: first a few cases at a time, until they have the least number of rounds, then
those that are undecided, until the time is over (`take_turns`).

Groups of cases whose ratios are told (see `memkern.results.ratios`) are measured in the same way,
until these are narrow or the time is over (`add_turns`).
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from memkern import small
from memkern.engine.public import ALL_B, in_rounds, ranks, ready, take_samples
from memkern.errors import DeviceError, InputError
from memkern.extension import _memkern
from memkern.formats import ResultSet
from memkern.limits import memory_left
from memkern.machine.environment import now
from memkern.progress import announce
from memkern.results.ratios import TURNS, in_turns, turns_of
from memkern.results.verdicts import LEAST_EFFECT, yuen
from memkern.spec.case import Case
from memkern.studies.comparison_worker import short

_TURNS = 3  # in a placement
_LONG_S = 0.1  # of a case in a turn, after which there are no further ones
# Rounds before a case may be decided, and most rounds.
_LEAST, _MOST = 3, 40
# Half-width of an interval that needs no more rounds, and of a rough one.
_NARROW, _WIDE = 0.02, 0.08
# Share of the time that a case must certainly not be faster by, to be dropped.
_NOTHING = 0.05
# Placements of a group for ratios, at least four regardless of the time; after how many of them it
# may be narrow enough, and the half-width of its ratios then.
_LEAST_OF_GROUP, _MOST_OF_GROUP = 4, 40
_LOOKS, _NARROWER = (10, 14, 20, 28), 0.015
# Share of the remaining memory for the cases that are placed at the same time, and their number.
_MEMORY_SHARE, _TOGETHER = 0.4, 8


class Trial:
    """A case that is compared with a base.

    Parameters
    ----------
    case : Case
    subject : object
        What the case is tried for.
    work : float
        Work of an invocation, in times of that of the base: times are those of equal work.
    guess : float
        Logarithm of the ratio of the times before the first round.
    is_rough : bool
        Whether a wide interval suffices, also of a case that is not faster.

    Attributes
    ----------
    placements : list of list of float
        Logarithms of the ratio of the times, one for each turn of each placement.
    """

    def __init__(
        self,
        case: Case,
        subject: Any,
        work: float = 1.0,
        *,
        guess: float = math.inf,
        is_rough: bool = False,
    ) -> None:
        self.case, self.subject, self._guess, self._is_rough = case, subject, guess, is_rough
        self._work = math.log(work)
        self.placements: list[list[float]] = []

    def add(self, times: Sequence[float], of_base: Sequence[float]) -> None:
        """Add the times of a placement in turns."""
        self.placements.append((np.log(times) - np.log(of_base) - self._work).tolist())

    def estimate(self) -> tuple[float, float]:
        """Return the logarithm of the ratio, and half its interval; 0 before two placements."""
        every = [ratio for one in self.placements for ratio in one]
        n = len(self.placements)
        if n < 2 or len(every) < 3:
            return float(np.mean(every or [self._guess])), 0.0
        found = yuen(np.zeros(len(every)), every)
        # Turns of a placement share its pages.
        apart = 2 * np.std([np.median(one) for one in self.placements], ddof=1) / math.sqrt(n)
        return found.effect, max(found.half_width, float(apart), math.log1p(LEAST_EFFECT))

    @property
    def undecided(self) -> bool:
        """Whether further rounds may change what is told of it."""
        n, (effect, half) = len(self.placements), self.estimate()
        nothing = not self._is_rough and effect - half > math.log1p(-_NOTHING)
        enough = nothing or half <= (_WIDE if self._is_rough else _NARROW)
        return n < small.cut(_MOST, 3) and not (enough and n >= _LEAST)


def as_measured(case: Case, record: Mapping[Any, Any]) -> Case:
    """Return the case with the variant, instruction set and threads of a record of it."""
    own = {"variant": record["variant"]}
    if case.knobs.backend.on_processors:
        own |= {"isa": record["isa"], "threads": int(record["threads"])}
    return case.with_(**own)


def times_in_turns(
    cases: Sequence[Case], rng: random.Random, most_s: float = math.inf
) -> list[list[float]]:
    """Place all cases, and return their times in turns, each of all cases in random order.

    No turn but the first begins after `most_s`. There are no times if the cases can't be placed
    here, for example because memory does not suffice for all at once.
    """
    # Otherwise this placement would get the memory of the last one.
    _memkern.release_memory(ALL_B)
    every = range(len(cases))
    turns: list[list[float]] = [[] for _ in every]
    try:
        prepared = {k: ready(short(cases[k])) for k in rng.sample(every, len(every))}
        for one in prepared.values():
            one.set_steady_inputs()
        end_s = time.perf_counter() + most_s
        for turn in range(_TURNS):
            if turn and time.perf_counter() > end_s:
                break
            for k in rng.sample(every, len(every)):
                with prepared[k].switched():
                    samples = take_samples(prepared[k])
                if samples.stop == "interrupted":
                    raise KeyboardInterrupt
                turns[k].append(float(samples.seconds[:, 0].min()))
    except (InputError, MemoryError, DeviceError):
        return []
    return turns


def take_turns(
    base: Case,
    trials: list[Trial],
    end_s: float,
    base_B: int,
    told: Callable[[], object] = lambda: None,
) -> bool:
    """Compare cases with a base in rounds, until all are decided or the time is over.

    Parameters
    ----------
    base : Case
    trials : list of Trial
        In the order in which they are begun. Those that can't be placed here are removed.
    end_s : float
        No placement ends much later, on the clock of `time.perf_counter`.
    base_B : int
        Bytes of the base: as many cases are placed at once as fit in memory.
    told : callable
        Called after each placement.

    Returns
    -------
    bool
        Whether it was interrupted.

    Raises
    ------
    KeyboardInterrupt
        It was interrupted before there were ratios.
    """
    rng, longest_s = random.Random(0), 0.0

    def place(group: Sequence[Trial]) -> None:
        nonlocal longest_s
        begin_s = time.perf_counter()
        times = times_in_turns([base, *(one.case for one in group)], rng, _LONG_S * len(group))
        for one, own in zip(group, times[1:], strict=False):
            one.add(own, times[0])
        if not times and len(group) == 1:
            trials.remove(group[0])
        elif not times:
            for one in group:
                place([one])
        longest_s = max(longest_s, time.perf_counter() - begin_s)
        told()

    def groups(_: int) -> Sequence[Sequence[Trial]]:
        if time.perf_counter() + longest_s > end_s:
            return []
        todo = [one for one in trials if one.undecided]
        begun = [one for one in todo if len(one.placements) >= _LEAST]
        most = max(1, min(_TOGETHER, int(_MEMORY_SHARE * memory_left()[0] // max(base_B, 1)) - 1))
        if len(begun) < len(todo):
            return [[one for one in todo if one not in begun][:most]]
        rng.shuffle(todo)
        return [todo[k : k + most] for k in range(0, len(todo), most)]

    return in_rounds(place, groups, end_s=end_s, kept=lambda: any(one.placements for one in trials))


def add_turns(
    results: ResultSet,
    cases: Iterable[Case],
    groups: Iterable[Sequence[Mapping[Any, Any]]],
    time_s: float,
) -> bool:
    """Measure cases in turns, and add the times to their records (column ``turns_s``).

    Cases on GPUs and over ranks are left out. After Ctrl-C, the times so far are added.

    Parameters
    ----------
    results : ResultSet
        Records of the cases, which are changed.
    cases : iterable of Case
        All cases of the records.
    groups : iterable of sequence of mapping
        Records of cases that are compared with the first one of their group. A group is left out if
        two are of the same case, or if it can't be placed here, for example because memory does not
        suffice for all its cases at once.
    time_s : float
        Seconds after which no further placement begins.

    Returns
    -------
    bool
        Whether there are new times.
    """
    known = {case.identity(): case for case in cases if case.knobs.backend.on_processors}
    every = [
        group
        for group in groups
        if len(known.keys() & {one["case_id"] for one in group}) == len(group) > 1
    ]
    if not every or ranks().size > 1:
        return False
    announce("measuring cases that are compared in turns", time_s)
    rng, begun = random.Random(0), now()
    todo, times = [*range(len(every))], [list[list[list[float]]]() for _ in every]

    def place(k: int) -> None:
        placed = times_in_turns([as_measured(known[one["case_id"]], one) for one in every[k]], rng)
        if not placed:
            todo.remove(k)  # not possible here, or no longer
            return
        times[k].append(placed)
        base, *others = np.swapaxes(times[k], 0, 1)
        if len(base) in _LOOKS and all(
            in_turns(one, base).half_width <= _NARROWER for one in others
        ):
            todo.remove(k)

    in_rounds(
        place,
        lambda _: [*todo],
        rounds=small.cut(_MOST_OF_GROUP, 3),
        end_s=time.perf_counter() + time_s,
        least=_LEAST_OF_GROUP,
    )
    added = {
        f"{begun} {k}": {
            one["case_id"]: turns
            for one, turns in zip(group, np.swapaxes(times[k], 0, 1).tolist(), strict=True)
        }
        for k, group in enumerate(every)
        if len(times[k]) > 2
    }
    for record in results.records:
        found = turns_of(record) | {
            name: of[record["case_id"]] for name, of in added.items() if record["case_id"] in of
        }
        record[TURNS] = json.dumps(found) if found else ""
    return bool(added)
