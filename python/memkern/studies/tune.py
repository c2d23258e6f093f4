"""Search for the fastest options of a case."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from memkern import checks
from memkern.engine.public import Measurement, in_rounds, measure, prepare, to_result_set
from memkern.errors import InputError
from memkern.formats import ResultSet
from memkern.host.environment import machine_environment
from memkern.isolating import isolates
from memkern.progress import announce
from memkern.results.ratios import TURNS, ratio
from memkern.spec.case import Case, does_nothing
from memkern.studies.turns import Trial, add_turns, as_measured, take_turns

Choice = Mapping[str, Any]

_BRIEF = 0.25  # share of the time of a trial for its record
_TURNS = 4  # time in turns, in times of a last measurement
TUNED_ON_DEVICE: dict[str, tuple[Any, ...]] = {
    "unroll": (0, 1, 2, 4, 8),
    "block_threads": (0, 64, 128, 256, 512, 1024),
}
TUNED: dict[str, tuple[Any, ...]] = {
    "pages": ("default", "4k", "thp", "hugetlb-2m"),
    "prefetch": (0, 1, 2, 4, 8, 16, 32, 64),
    "chunk": (0, 16, 256, 4096),
}


@isolates
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
        Called with the share of the search that is done, from 0 to 1.

    Returns
    -------
    best : Case
        The case with the best knobs found.
    search : ResultSet
        Every trial, in order; column ``tune_step`` names the varied option. At the end are records
        of the first case (``base``), unless it is the best one, and of the best case (``best``),
        measured again and compared in turns.

    Raises
    ------
    InputError
        If the budget is not a positive number, or a knob of `knobs` has no effect on the kernel.
    """
    steps: dict[str, Sequence[Choice]] = {"variant": _variants(case)}
    for knob, values in (usual_knobs(case) if knobs is None else knobs).items():
        if knob in case.idle_knobs:
            raise does_nothing(knob, case.spec.kernel, [case.idle_knobs[knob]])
        steps[knob] = [{knob: value} for value in values]
    return search(lambda **choice: case.with_(**choice), {}, steps, budget_s, progress=progress)


def usual_knobs(case: Case) -> dict[str, tuple[Any, ...]]:
    """Return the values that are tried by default, by knob: those that affect the kernel."""
    tuned = TUNED if case.knobs.backend.on_processors else TUNED_ON_DEVICE
    # Chunks have no effect on one thread.
    idle = (*case.idle_knobs, *["chunk"] * (case.knobs.threads == 1))
    return {knob: values for knob, values in tuned.items() if knob not in idle}


def gain_of(search: ResultSet) -> str:
    """Return a sentence on how many times as fast the best case of a search is as its first one."""
    base, best = search.records[-2:][0], search.records[-1]
    if base["tune_step"] != "base":
        return "no other values are faster than the first ones by more than the interval of a ratio"
    return f"the best is {ratio(best, base).text()} times as fast as the first case"


def search(
    build: Callable[..., Case],
    chosen: Choice,
    steps: Mapping[str, Sequence[Choice]],
    budget_s: float,
    *,
    extra: Callable[[Choice], Mapping[str, Any]] = lambda _: {},
    progress: Callable[[float], object] | None = None,
) -> tuple[Case, ResultSet]:
    """Vary one option after another, with the best values so far for the others.

    The values of an option are measured briefly, then in turns with the best ones so far, of which
    those are kept that are faster by more than the interval of the ratio. At the end the first case
    is measured in turns with the best one, which is the first one itself if that is not slower.

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
        Seconds for the search including the last measurements, which have their own budget if that
        is less than a twelfth of these seconds.
    extra : callable, optional
        Options to further columns of the record.
    progress : callable, optional
        Called with the share of the search that is done, from 0 to 1.

    Returns
    -------
    best : Case
    search : ResultSet
        As returned by `tune`.

    Raises
    ------
    InputError
        The budget is not a positive number.
    """
    checks.number(budget_s, "budget_s", checks.LEAST)
    found = _Search(build, chosen, steps, budget_s, extra, progress or (lambda _: None))
    interrupted = in_rounds(
        found.step,
        [*steps.items()],
        rounds=1,
        after=lambda _: found.finish(),
        kept=lambda: found.done,
    )
    return build(**found.kept[-1]), to_result_set(found.done, interrupted)


class _Search:
    """A search: the best values so far, and all measurements (see `search`)."""

    def __init__(
        self,
        build: Callable[..., Case],
        chosen: Choice,
        steps: Mapping[str, Sequence[Choice]],
        budget_s: float,
        extra: Callable[[Choice], Mapping[str, Any]],
        progress: Callable[[float], object],
    ) -> None:
        self._build, self._extra, self._progress = build, extra, progress
        trials = sum(len(choices) + 1 for choices in steps.values())
        announce(f"searching through {trials} values of options", budget_s)
        self._budget_s, self._last_s = budget_s, min(build(**chosen).stop.usual_s, budget_s / 12)
        self._trial_s = (budget_s - (_TURNS + 2) * self._last_s) / trials
        self._end_s = time.perf_counter() + trials * self._trial_s
        self._machine = machine_environment()
        self.done: list[Measurement] = []
        self._known: dict[str, Measurement] = {}
        self.kept = [chosen]  # the first values, and those that were faster

    def _measured(self, choice: Choice, step: str, turns: str = "", **knobs: Any) -> Measurement:
        columns = {"tune_step": step, TURNS: turns, **self._extra(choice)}
        case = self._build(**choice).with_(**knobs)
        self.done.append(measure(case, extra=columns, machine=self._machine))
        if self.done[-1].record["stop"] == "interrupted":
            raise KeyboardInterrupt
        return self.done[-1]

    def _trials(self, name: str, choices: Sequence[Choice]) -> list[Trial]:
        """Return the best values so far and those of a step, each measured once."""
        brief: dict[str, Any] = {"budget_s": _BRIEF * self._trial_s, "placements": 1}
        trials: dict[str, Trial] = {}
        for choice in (*([{}] if self.done else []), *choices):
            with suppress(InputError, MemoryError):
                values = {**self.kept[-1], **choice}
                case = self._build(**values)
                one = case.identity()
                if one not in self._known:
                    self._known[one] = self._measured(values, name, **brief)
                if self._known[one].valid and one not in trials:
                    record = self._known[one].record
                    base = self._known[next(iter(trials), one)].record
                    own = math.log(record["time_min_s"] / base["time_min_s"])
                    trials[one] = Trial(as_measured(case, record), values, guess=own)
        return [*trials.values()]

    def step(self, name_and_choices: tuple[str, Sequence[Choice]]) -> bool:
        """Vary one option, and keep its fastest value; return whether that was interrupted."""
        name, choices = name_and_choices
        begins, begin_s = not self.done, time.perf_counter()
        trials = self._trials(name, choices) if begin_s <= self._end_s else []
        if not trials:
            return False
        until_s = min(self._end_s, begin_s + self._trial_s * (len(choices) + 1))
        base_B = int(self.done[-1].record["footprint_B"])
        interrupted = take_turns(trials[0].case, trials[1:], until_s, base_B)
        fastest = min(trials, key=lambda one: sum(one.estimate()))
        if begins and self.kept[0] not in [one.subject for one in trials]:
            self.kept.clear()
        self.kept.append(fastest.subject)
        self._progress(1 - max(self._end_s - time.perf_counter(), 0.0) / self._budget_s)
        return interrupted

    def finish(self) -> None:
        """Compare the first and the best case in turns, and measure both again."""
        ends = {self._build(**one).identity(): one for one in (self.kept[0], self.kept[-1])}
        results = to_result_set([self._known[one] for one in ends if one in self._known])
        pair = [one for one in results if one["case_id"] in ends]
        cases = [self._build(**one) for one in ends.values()]
        if add_turns(results, cases, [pair], _TURNS * self._last_s):
            gain = ratio(pair[1], pair[0])
            if gain.value <= 1 or not gain.decided:
                ends.popitem()
                self.kept = self.kept[:1]
        turns = {one["case_id"]: one[TURNS] for one in pair}
        for step, (one, choice) in zip(("base", "best")[-len(ends) :], ends.items(), strict=True):
            self._measured(choice, step, turns.get(one, ""), budget_s=self._last_s)


def _variants(case: Case) -> list[dict[str, str]]:
    names = ("variant", "isa") if case.knobs.backend.on_processors else ("variant",)
    every = [dict(zip(names, one, strict=False)) for one in prepare(case).native.candidates()]
    own = {name: getattr(case.knobs, name) for name in names}
    return [one for one in every if all(own[name] in ("best", one[name]) for name in names)]
