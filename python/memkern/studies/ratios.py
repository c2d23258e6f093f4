"""Cases measured in turns, for their ratios (see `memkern.results.ratios`).

In each round a group of cases is placed anew, and its cases are sampled in a few turns, each in
random order and for 10 ms, so that the samples of a turn are of one state of the host. Groups are
measured in rounds as well, until the ratios are narrow or the time is over.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memkern import small
from memkern.engine.public import in_rounds, ranks, ready, take_samples
from memkern.errors import InputError
from memkern.extension import _memkern
from memkern.formats import ResultSet
from memkern.machine.environment import now
from memkern.progress import announce
from memkern.results.ratios import TURNS, in_turns, turns_of
from memkern.spec.case import Case
from memkern.studies.comparison_worker import short

Group = Sequence[Mapping[Any, Any]]
"""Records of cases that are compared with the first one."""

_TURNS = 3  # in a placement
_LEAST, _MOST = 4, 40  # placements; at least 4 regardless of the time
_LOOKS = (10, 14, 20, 28)  # placements after which a group may be narrow enough
_NARROW = 0.015  # half-width of ratios that need no more placements


class _Turns:
    """The times of a group's cases in turns."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self._cases = [short(case) for case in cases]
        self.times: list[list[list[float]]] = [[] for _ in cases]
        self.todo = True

    def place(self, rng: random.Random) -> None:
        """Place all cases, and sample each in every turn, in random order."""
        every = range(len(self._cases))
        try:
            prepared = {k: ready(self._cases[k]) for k in rng.sample(every, len(every))}
        except (InputError, MemoryError):
            self.todo = False  # not possible here, or no longer
            return
        for one in prepared.values():
            one.set_steady_inputs()
        turns: list[list[float]] = [[] for _ in every]
        for _ in range(_TURNS):
            for k in rng.sample(every, len(every)):
                samples = take_samples(prepared[k])
                if samples.stop == "interrupted":
                    raise KeyboardInterrupt
                turns[k].append(float(samples.seconds[:, 0].min()))
        for times, of_case in zip(self.times, turns, strict=True):
            times.append(of_case)
        del prepared, one
        # Otherwise the next placement would get the same memory.
        _memkern.release_memory()
        if len(self.times[0]) in _LOOKS:
            widths = [in_turns(times, self.times[0]).half_width for times in self.times[1:]]
            self.todo = max(widths) > _NARROW


def add_turns(
    results: ResultSet, cases: Iterable[Case], groups: Sequence[Group], time_s: float
) -> bool:
    """Measure cases in turns, and add the times to their records (column ``turns_s``).

    Cases on GPUs and over ranks are left out. After Ctrl-C, the times so far are added.

    Parameters
    ----------
    results : ResultSet
        Records of the cases, which are changed.
    cases : iterable of Case
        All cases of the records.
    groups : sequence of Group
        Cases that are compared with the first one of their group. A group that can't be placed
        here, for example because memory does not suffice for all its cases at once, is left out.
    time_s : float
        Seconds after which no further placement begins.

    Returns
    -------
    bool
        Whether there are new times.
    """
    wanted = {record["case_id"] for group in groups for record in group}
    if not wanted or ranks().size > 1:
        return False
    known = {case.identity(): case for case in cases if case.knobs.device == "cpu"}
    every = [
        (
            group,
            _Turns(
                [
                    known[record["case_id"]].with_(variant=record["variant"], isa=record["isa"])
                    for record in group
                ]
            ),
        )
        for group in groups
        if known.keys() >= {record["case_id"] for record in group}
    ]
    announce(f"measuring {len(wanted)} of the cases in turns", time_s)
    rng, begun = random.Random(0), now()
    in_rounds(
        lambda turns: turns.place(rng),
        lambda _: [turns for _, turns in every if turns.todo],
        rounds=small.cut(_MOST, 2),
        end_s=time.perf_counter() + time_s,
        least=_LEAST,
    )
    added: dict[str, dict[str, Any]] = {}
    for number, (group, turns) in enumerate(every):
        for record, times in zip(group, turns.times, strict=True):
            if len(times) > 1:
                added.setdefault(record["case_id"], {})[f"{begun} {number}"] = times
    for record in results.records:
        found = turns_of(record) | added.get(record["case_id"], {})
        record[TURNS] = json.dumps(found) if found else ""
    return bool(added)
