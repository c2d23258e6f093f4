"""Search for the fastest options of a case."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern import checks
from memkern.engine.public import Measurement, in_rounds, measure, prepare, to_result_set
from memkern.errors import InputError
from memkern.formats import ResultSet
from memkern.host.environment import machine_environment
from memkern.progress import announce
from memkern.spec.case import Case, does_nothing

Choice = Mapping[str, Any]
_Round = dict[int, npt.NDArray[np.float64]]
"""Logarithms of the shortest and of the median time of each choice."""

_ROUNDS = 3
_SAMPLED = 0.75  # share of the time of a trial
_EQUAL = 0.01  # shortest times whose logarithms differ by less are equal
TUNED_ON_DEVICE: dict[str, tuple[Any, ...]] = {
    "unroll": (0, 1, 2, 4, 8),
    "block_threads": (0, 64, 128, 256, 512, 1024),
}
TUNED: dict[str, tuple[Any, ...]] = {
    "pages": ("default", "4k", "thp", "hugetlb-2m"),
    "prefetch": (0, 1, 2, 4, 8, 16, 32, 64),
    "chunk": (0, 16, 256, 4096),
}


def tune(
    case: Case,
    *,
    budget_s: float = 30.0,
    knobs: Mapping[str, Sequence[Any]] | None = None,
    progress: Callable[[float], object] | None = None,
) -> tuple[Case, ResultSet]:
    """Search the knobs of a case, one after another, within a time budget.

    The variant and instruction set, if they are ``best``, are searched first, then each knob with
    the best values so far. Values are tried in turns (see `search`).

    Parameters
    ----------
    case : Case
    budget_s : float
        Seconds for the search; knobs that have not been tried by then keep their values.
    knobs : mapping, optional
        Values to try by knob; by default the values of `usual_knobs`.
    progress : callable, optional
        Called with the share of trials done, from 0 to 1.

    Returns
    -------
    best : Case
        The case with the best knobs found.
    search : ResultSet
        Every trial, in order; column ``tune_step`` names the varied option. The last record is of
        the best case, measured again.

    Raises
    ------
    InputError
        If the budget is not a positive number, or a knob of `knobs` has no effect on the kernel.
    """
    check_budget(budget_s)
    steps: dict[str, Sequence[Choice]] = {"variant": _variants(case)}
    for knob, values in (usual_knobs(case) if knobs is None else knobs).items():
        if knob in case.idle_knobs:
            raise does_nothing(knob, case.spec.kernel, [case.idle_knobs[knob]])
        steps[knob] = [{knob: value} for value in values]
    return search(lambda **choice: case.with_(**choice), {}, steps, budget_s, progress=progress)


def usual_knobs(case: Case) -> dict[str, tuple[Any, ...]]:
    """Return the values that are tried by default, by knob: those that affect the kernel."""
    tuned = TUNED if case.knobs.device == "cpu" else TUNED_ON_DEVICE
    return {knob: values for knob, values in tuned.items() if knob not in case.idle_knobs}


def check_budget(budget_s: float) -> None:
    """Raise InputError if the seconds of a search are not a positive number."""
    checks.number(budget_s, "budget_s", checks.LEAST)


def search(
    build: Callable[..., Case],
    chosen: Choice,
    steps: Mapping[str, Sequence[Choice]],
    budget_s: float,
    *,
    extra: Callable[[Choice], Mapping[str, Any]] | None = None,
    progress: Callable[[float], object] | None = None,
) -> tuple[Case, ResultSet]:
    """Vary one option after another, with the best values so far for the others.

    The values of an option are tried in rounds, each in random order, and compared by their
    shortest times in the same rounds; medians decide between equal ones.

    Parameters
    ----------
    build : callable
        Options by keyword to case. Choices for which `build` or the measurement raises `InputError`
        or `MemoryError` are not available here and are left out.
    chosen : mapping
        Initial values of the options.
    steps : mapping
        The values of options that a step tries, by the name of the step.
    budget_s : float
        Seconds for the search including the last measurement, which has its own budget if that is
        less than a quarter of these seconds.
    extra : callable, optional
        Options to further columns of the record.
    progress : callable, optional
        Called with the share of the search that is done, from 0 to 1.

    Returns
    -------
    best : Case
    search : ResultSet
        As returned by `tune`.
    """
    trials = sum(len(choices) + 1 for choices in steps.values())
    announce(f"searching through {trials} values of options", budget_s)
    last_s = min(build(**chosen).stop.usual_s, budget_s / 4)
    budget_s -= last_s
    brief = {"budget_s": _SAMPLED * budget_s / trials / _ROUNDS, "placements": 1}
    machine, order = machine_environment(), random.Random(0)
    done: list[Measurement] = []
    end, over = time.perf_counter() + budget_s, 0

    def measured(choice: Choice, step: str, repeat: int = 0, **knobs: Any) -> Measurement:
        columns = {"tune_step": step, **(extra(choice) if extra is not None else {})}
        case = build(**choice).with_(**knobs)
        done.append(measure(case, repeat=repeat, extra=columns, machine=machine))
        if done[-1].record["stop"] == "interrupted":
            raise KeyboardInterrupt
        return done[-1]

    def step(name_and_choices: tuple[str, Sequence[Choice]]) -> None:
        """Vary one option, and keep its fastest value."""
        nonlocal chosen, over
        if time.perf_counter() > end:
            return
        name, choices = name_and_choices
        available: dict[str, Choice] = {}
        for choice in (*([{}] if done else []), *choices):
            with contextlib.suppress(InputError, MemoryError):
                one = {**chosen, **choice}
                available.setdefault(build(**one).identity(), one)
        tried = list(available.values())
        rounds: list[_Round] = []

        def try_one(position: int) -> None:
            with contextlib.suppress(InputError, MemoryError):
                one = measured(tried[position], name, len(rounds) - 1, **brief)
                times = [one.record[column] for column in ("time_min_s", "time_median_s")]
                rounds[-1][position] = np.log(times if one.valid else [math.inf, math.inf])

        def begin(number: int) -> Sequence[int]:
            """Return the places of the choices that were available in the first round."""
            rounds.append({})
            todo = range(len(tried)) if number == 0 else sorted(rounds[0])
            return order.sample(todo, len(todo))

        share_s = budget_s * (len(choices) + 1) / trials
        in_rounds(
            try_one,
            begin,
            rounds=_ROUNDS,
            end_s=min(end, time.perf_counter() + share_s),
            least=1,
            kept=lambda: False,
        )
        complete = [one for one in rounds if one.keys() == rounds[0].keys()]
        if rounds and rounds[0]:
            chosen = tried[sorted(rounds[0])[_fastest(complete)]]
        over += len(choices) + 1
        if progress is not None:
            progress(over / trials)

    interrupted = in_rounds(
        step,
        list(steps.items()),
        rounds=1,
        after=lambda _: measured(chosen, "best", budget_s=last_s),
        kept=lambda: done,
    )
    return build(**chosen), to_result_set(done, interrupted)


def _fastest(rounds: Sequence[_Round]) -> int:
    """Return the index of the fastest choice, by the times in rounds with all choices."""
    times = np.array([[one[position] for position in sorted(one)] for one in rounds])
    shortest, median = times.mean(axis=0).T
    equal = shortest <= shortest.min() + _EQUAL
    return int(np.where(equal, median, math.inf).argmin())


def _variants(case: Case) -> list[dict[str, str]]:
    knobs = case.knobs
    candidates = [
        (variant, isa)
        for variant, isa in prepare(case).native.candidates()
        if knobs.variant in ("best", variant) and knobs.isa in ("best", isa)
    ]
    if knobs.device != "cpu":
        return [{"variant": variant} for variant, _ in candidates]
    return [{"variant": variant, "isa": isa} for variant, isa in candidates]
