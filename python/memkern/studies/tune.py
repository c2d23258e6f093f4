"""Search of the fastest options of a case."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memkern.engine import Measurement, measure, prepare, to_result_set
from memkern.errors import InputError
from memkern.formats import ResultSet
from memkern.machine.topology import machine_environment
from memkern.spec.case import Case, does_nothing

Choice = Mapping[str, Any]

_TRIES = 3  # of a disturbed trial
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

    The variant and instruction set, where they are ``best``, are searched first, then each knob
    with the best values so far. Where trials of a knob stay disturbed, it keeps its value, with a
    warning.

    Parameters
    ----------
    case : Case
    budget_s : float
        Seconds for the search; knobs that have not been tried by then keep their values.
    knobs : mapping, optional
        Values to try by knob; by default those of `usual_knobs`.
    progress : callable, optional
        Called with the share of trials done, from 0 to 1.

    Returns
    -------
    best : Case
        The case with the best knobs found.
    search : ResultSet
        Every trial, in order; column ``tune_step`` names what was varied. The last record is
        the best case, measured once more.

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
    """Raise InputError if the seconds of a search are not positive and finite."""
    if not 0 < budget_s < math.inf:
        raise InputError(f"budget must be a positive number of seconds, not {budget_s}")


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

    A disturbed trial is repeated. Where it stays disturbed, nothing is chosen in its step, with a
    warning.

    Parameters
    ----------
    build : callable
        Options by keyword to case. Choices for which it or the measurement raises `InputError` or
        `MemoryError` are not available here and are left out; so are cases that were tried before.
    chosen : mapping
        Initial values of the options.
    steps : mapping
        By the name of a step, the values of options that are tried in it.
    budget_s : float
        Seconds for the search from the end of its first trial on, since the first trial may include
        one-time measurements of the machine.
    extra : callable, optional
        Options to further columns of the record.
    progress : callable, optional
        Called with the share of trials done, from 0 to 1.

    Returns
    -------
    best : Case
    search : ResultSet
        As returned by `tune`.
    """
    trials = sum(len(choices) for choices in steps.values())
    brief = {"budget_s": budget_s / trials / 2, "max_samples": 200, "placements": 1}
    machine = machine_environment()
    end, best_s = math.inf, math.inf
    done: list[Measurement] = []
    # Undisturbed median times by identity, infinite for cases whose results are wrong.
    times: dict[str, float] = {}

    def measured(case: Case, choice: Choice, step: str, repeat: int = 0) -> Measurement:
        columns = {"tune_step": step, **(extra(choice) if extra is not None else {})}
        done.append(measure(case, repeat=repeat, extra=columns, machine=machine))
        return done[-1]

    def trial(choice: Choice, step: str) -> float | None:
        """Return the median time; None if it is disturbed each of a few times."""
        nonlocal end
        case = build(**choice).with_(**brief)
        for repeat in range(_TRIES):
            if case.identity() in times or (repeat and time.perf_counter() > end):
                break
            found = measured(case, choice, step, repeat)
            end = min(end, time.perf_counter() + budget_s)
            if not found.disturbed:
                seconds = found.record["time_median_s"] if found.valid else math.inf
                times[case.identity()] = seconds
        return times.get(case.identity())

    over = 0
    for step, choices in steps.items():
        base, base_s, disturbed = dict(chosen), best_s, False
        for choice in choices:
            if time.perf_counter() > end:
                break
            over += 1
            try:
                seconds = trial({**base, **choice}, step)
            except (InputError, MemoryError):
                continue  # not available on this machine
            if progress is not None:
                progress(over / trials)
            disturbed |= seconds is None
            if seconds is not None and seconds < best_s:
                chosen, best_s = {**base, **choice}, seconds
        if disturbed:
            # What was disturbed may be the fastest.
            chosen, best_s = base, base_s
            warnings.warn(f"trials of {step} were disturbed: it stays as it was", stacklevel=3)
    measured(build(**chosen), chosen, "best")
    return build(**chosen), to_result_set(done)


def _variants(case: Case) -> list[dict[str, str]]:
    asked = case.knobs
    candidates = [
        (variant, isa)
        for variant, isa in prepare(case).native.candidates()
        if asked.variant in ("best", variant) and asked.isa in ("best", isa)
    ]
    if asked.device != "cpu":
        return [{"variant": variant} for variant, _ in candidates]
    return [{"variant": variant, "isa": isa} for variant, isa in candidates]
