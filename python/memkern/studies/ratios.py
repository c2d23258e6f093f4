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

import numpy as np

from memkern import small
from memkern.engine.public import ALL_B, in_rounds, ranks, ready, take_samples
from memkern.errors import InputError
from memkern.extension import _memkern
from memkern.formats import ResultSet
from memkern.machine.environment import now
from memkern.progress import announce
from memkern.results.ratios import TURNS, in_turns, turns_of
from memkern.spec.case import Case
from memkern.studies.comparison_worker import short

_TURNS = 3  # in a placement
_LEAST, _MOST = 4, 40  # placements; at least 4 regardless of the time
_LOOKS = (10, 14, 20, 28)  # placements after which a group may be narrow enough
_NARROW = 0.015  # half-width of ratios that need no more placements


def _placement(cases: Sequence[Case], rng: random.Random) -> list[list[float]]:
    """Place all cases, and return their times in turns, each of all cases in random order."""
    every = range(len(cases))
    prepared = {k: ready(short(cases[k])) for k in rng.sample(every, len(every))}
    for one in prepared.values():
        one.set_steady_inputs()
    turns: list[list[float]] = [[] for _ in every]
    for _ in range(_TURNS):
        for k in rng.sample(every, len(every)):
            samples = take_samples(prepared[k])
            if samples.stop == "interrupted":
                raise KeyboardInterrupt
            turns[k].append(float(samples.seconds[:, 0].min()))
    return turns


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
        chosen = [
            known[one["case_id"]].with_(variant=one["variant"], isa=one["isa"]) for one in every[k]
        ]
        try:
            times[k].append(_placement(chosen, rng))
        except (InputError, MemoryError):
            todo.remove(k)  # not possible here, or no longer
        else:
            base, *others = np.swapaxes(times[k], 0, 1)
            if len(base) in _LOOKS and all(
                in_turns(one, base).half_width <= _NARROW for one in others
            ):
                todo.remove(k)
        # Otherwise the next placement would get the same memory.
        _memkern.release_memory(ALL_B)

    in_rounds(
        place,
        lambda _: [*todo],
        rounds=small.cut(_MOST, 3),
        end_s=time.perf_counter() + time_s,
        least=_LEAST,
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
