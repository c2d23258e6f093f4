"""Cases measured in turns, for their ratios (see `memkern.results.ratios`).

Groups of cases are placed in rounds and sampled in turns (see `memkern.studies.turns`), until the
ratios are narrow or the time is over.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from memkern import small
from memkern.engine.public import in_rounds, ranks
from memkern.formats import ResultSet
from memkern.machine.environment import now
from memkern.progress import announce
from memkern.results.ratios import TURNS, in_turns, turns_of
from memkern.spec.case import Case
from memkern.studies.turns import as_measured, times_in_turns

_LEAST, _MOST = 4, 40  # placements; at least 4 regardless of the time
_LOOKS = (10, 14, 20, 28)  # placements after which a group may be narrow enough
_NARROW = 0.015  # half-width of ratios that need no more placements


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
        if len(base) in _LOOKS and all(in_turns(one, base).half_width <= _NARROW for one in others):
            todo.remove(k)

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
