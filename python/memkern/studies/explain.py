"""Experiments that explain the time of a case, measured in turns with it.

Each experiment changes one thing of the case (see `memkern.spec.experiments`). They are tried
in the order in which they tell most, until the time is over (see `memkern.studies.turns`).
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from memkern import small
from memkern.checks import LEAST, number
from memkern.discovery import family_module
from memkern.engine.public import measure, prepare, ranks
from memkern.errors import InputError
from memkern.extension import _memkern
from memkern.host.capacity import data_caches, last_level_cache_B
from memkern.isolating import isolates
from memkern.machine import gpu
from memkern.machine.caches import MEMORY, ends, level_of, shares
from memkern.progress import announce
from memkern.results.explanation import Explanation, Tried
from memkern.spec.case import Case
from memkern.spec.experiments import LEFT, LEVEL, LIMIT, MODEL, WITHOUT, Experiment, Setting
from memkern.studies.turns import Trial, as_measured, take_turns

# Least share of the samples in a state that is told.
_OFTEN = 0.1


def _work(case: Case, role: str) -> float:
    """Return the work of an invocation, by which times are compared."""
    return float((case.bytes_model_B if role == LIMIT else case.bytes_B) or case.iterations or 1)


@isolates
def explain(
    case: Case,
    *,
    seconds: float = 10.0,
    record: Mapping[str, Any] | None = None,
    progress: Callable[[float], object] | None = None,
) -> Explanation:
    """Explain the time of a case by experiments.

    Parameters
    ----------
    case : Case
    seconds : float
        Longest duration.
    record : mapping, optional
        A record of the case on this machine; by default it is measured first.
    progress : callable, optional
        Called with the share of the time that is over, from 0 to 1.

    Returns
    -------
    Explanation

    Raises
    ------
    InputError
        There are no experiments for the case, or it can't be measured.
    KeyboardInterrupt
        It was interrupted.
    """
    seconds = small.cut(number(seconds, "seconds", LEAST), 0.5)
    end_s = time.perf_counter() + seconds
    if ranks().size > 1:
        raise InputError("a case of several ranks can't be explained: leave out --comm and --ranks")
    module = family_module(case.spec.kernel.partition(".")[0], "experiments")
    if module is None or (
        not case.knobs.backend.on_processors and not case.knobs.backend.is_accelerator
    ):
        raise InputError(f"there are no experiments for {case.spec.kernel} on {case.knobs.device}")
    if record is None:
        record = measure(case.with_(budget_s=min(seconds / 10, 1.0), placements=2)).record
    base = as_measured(case.with_(invocations=min(case.stop.invocations, 1)), record)
    setting = _setting(case, base, record)
    trials = [*_trials(base, module.EXPERIMENTS, setting)]
    announce(f"explaining {case.spec.kernel} by {len(trials)} experiments", seconds)

    tell = progress or (lambda _: None)
    if take_turns(
        *(base, trials, end_s, setting.footprint_B),
        told=lambda: tell(1 - max(end_s - time.perf_counter(), 0.0) / seconds),
    ):
        raise KeyboardInterrupt
    unit, number_of = getattr(module, "unit", _unit)(case)
    tried = [_outcome(one) for one in trials if one.estimate()[1]]
    if setting.level not in {MEMORY, *(one.cause for one in tried)}:
        # Not measured: the case itself.
        held = Tried(f"data in {setting.level}", LEVEL, setting.level, "", "", 1.0, 0.0, 0)
        tried.insert(sum(one.role == LEVEL for one in tried), held)
    tried += [*_of_states(record), *_predicted(record)]
    return Explanation(
        case.spec.kernel,
        unit,
        record["time_min_s"] / number_of,
        tuple(tried),
        tuple(one.subject.name for one in trials if not one.estimate()[1]),
    )


def _setting(case: Case, base: Case, record: Mapping[str, Any]) -> Setting:
    threads, footprint_B = int(record["threads"]), int(record["footprint_B"])
    caches, last_B = data_caches(), 0
    if case.knobs.backend.is_accelerator:
        last_B = int(gpu.facts(case.knobs.device)["l2_B"])
        caches = [{"level": 2, "size_B": last_B, "instances": 1, "shared_by": threads}]
    return Setting(
        threads=threads,
        units=len(_memkern.topology()["units"]),
        pages=str(record["pages"]),
        variants=tuple(dict(prepare(base).native.candidates())),
        requested=case.knobs.variant != "best",
        footprint_B=footprint_B,
        level=level_of(footprint_B, ends(caches, threads)),
        seconds=float(record["time_min_s"]),
        caches={one.name: one for one in shares(caches, threads)},
        last_B=last_B or last_level_cache_B(),
    )


def _trials(base: Case, experiments: Iterable[Experiment], setting: Setting) -> Iterable[Trial]:
    """Yield the experiments that apply to a case, and differ from it and from each other."""
    known = {base.identity()}
    for one in experiments:
        with suppress(InputError):
            changed = one.change(base, setting)
            # All is left of a case that is not changed, and it may be its own limit.
            new = changed is not None and changed.identity() not in known
            if changed is not None and (new or one.role in (LEFT, LIMIT)):
                known.add(changed.identity())
                # An option leaves the work as it is, though bytes may be counted otherwise.
                work = 1.0 if one.option else _work(changed, one.role) / _work(base, one.role)
                one = dataclasses.replace(one, option=one.option.format(units=setting.units))
                yield Trial(changed, one, work, is_rough=one.role in (LEVEL, LIMIT))


def _outcome(trial: Trial) -> Tried:
    one, (effect, half) = trial.subject, trial.estimate()
    rounds = len(trial.placements)
    return Tried(
        one.name, one.role, one.cause, one.within, one.option, math.exp(effect), half, rounds
    )


def _of_states(record: Mapping[str, Any]) -> list[Tried]:
    """Return the fall of the typical time in the best state of the host, if there were several."""
    states = [one for one in json.loads(record.get("states") or "[]") if one["share"] > _OFTEN]
    if len(states) < 2:
        return []
    times = [one["time_median_s"] for one in states]
    typical = np.average(times, weights=[one["share"] for one in states])
    half = math.log1p(record.get("within_ci_relative") or 0.0)
    name, cause = "in the best state of the host", "other states of the host"
    return [Tried(name, WITHOUT, cause, "", "", min(times) / float(typical), half, len(states))]


def _predicted(record: Mapping[str, Any]) -> list[Tried]:
    """Return the time by the roofline of a machine file; none without one."""
    share = record.get("roofline_min_fraction") or math.nan
    return (
        [Tried("predicted by the roofline", MODEL, "", "", "", share, 0.0, 0)] if share > 0 else []
    )


def _unit(case: Case) -> tuple[str, float]:
    """Return what the time of an invocation is divided by, and its number."""
    counts, n = case.spec.counts, case.iterations
    if counts.accesses is not None:
        return "an access", counts.accesses(case)
    if counts.amos:
        return "an atomic operation", counts.amos * n
    if counts.elementwise:
        return "an element", n * counts.width(case)
    return "an invocation", 1
