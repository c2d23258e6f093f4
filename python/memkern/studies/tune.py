"""Search for the fastest options of a case."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memkern import checks
from memkern.engine.public import Measurement, in_rounds, measure, prepare, to_result_set
from memkern.errors import InputError
from memkern.extension import _memkern
from memkern.formats import ResultSet
from memkern.host.environment import machine_environment
from memkern.progress import announce
from memkern.results.ratios import TURNS, ratio
from memkern.spec.case import Case, does_nothing
from memkern.studies.ratios import add_turns

Choice = Mapping[str, Any]
_Round = dict[int, float]
"""Logarithms of the shortest times of the choices."""

_ROUNDS = 3
_SAMPLED = 0.75  # share of the time of a trial
_OF_SEVERAL = ("chunk", "balance")  # options without effect on one thread
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
    check_budget(budget_s)
    steps: dict[str, Sequence[Choice]] = {"variant": _variants(case)}
    for knob, values in (usual_knobs(case) if knobs is None else knobs).items():
        if knob in case.idle_knobs:
            raise does_nothing(knob, case.spec.kernel, [case.idle_knobs[knob]])
        steps[knob] = [{knob: value} for value in values]
    return search(lambda **choice: case.with_(**choice), {}, steps, budget_s, progress=progress)


def usual_knobs(case: Case) -> dict[str, tuple[Any, ...]]:
    """Return the values that are tried by default, by knob: those that affect the kernel."""
    tuned = TUNED if case.knobs.backend.on_processors else TUNED_ON_DEVICE
    return {knob: values for knob, values in tuned.items() if knob not in case.idle_knobs}


def gain_of(search: ResultSet) -> str:
    """Return a sentence on how many times as fast the best case of a search is as its first one."""
    base, best = search.records[-2:][0], search.records[-1]
    if base["tune_step"] != "base":
        return "no other values are faster than the first ones by more than the interval of a ratio"
    return f"the best is {ratio(best, base).text()} times as fast as the first case"


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
    shortest times in the same rounds. At the end the first case and those of the first and of the
    last two steps are measured in turns: the best is the earliest that is not slower than the
    fastest.

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
    """
    trials = sum(len(choices) + 1 for choices in steps.values())
    announce(f"searching through {trials} values of options", budget_s)
    found = _Search(build, chosen, trials, budget_s, extra or (lambda _: {}))

    def step(name_and_choices: tuple[str, Sequence[Choice]]) -> None:
        if time.perf_counter() <= found.end_s:
            found.step(*name_and_choices)
            if progress is not None:
                progress(1 - max(found.end_s - time.perf_counter(), 0.0) / budget_s)

    interrupted = in_rounds(
        step,
        list(steps.items()),
        rounds=1,
        after=lambda _: found.finish(),
        kept=lambda: found.done,
    )
    return build(**found.chosen), to_result_set(found.done, interrupted)


class _Search:
    """A search: the best values so far, and all measurements (see `search`)."""

    def __init__(
        self,
        build: Callable[..., Case],
        chosen: Choice,
        trials: int,
        budget_s: float,
        extra: Callable[[Choice], Mapping[str, Any]],
    ) -> None:
        self._build, self.chosen, self._extra = build, chosen, extra
        self._last_s = min(build(**chosen).stop.usual_s, budget_s / 12)
        self._trial_s = (budget_s - (_TURNS + 2) * self._last_s) / trials
        self.end_s = time.perf_counter() + trials * self._trial_s
        self._machine, self._order = machine_environment(), random.Random(0)
        self.done: list[Measurement] = []
        self._path: list[Choice] = []  # the first values, and those that steps kept
        self._turns: dict[str, str] = {}

    def _measured(self, choice: Choice, step: str, repeat: int = 0, **knobs: Any) -> Measurement:
        case = self._build(**choice).with_(**knobs)
        turns = self._turns.get(case.identity(), "")
        columns = {"tune_step": step, TURNS: turns, **self._extra(choice)}
        self.done.append(measure(case, repeat=repeat, extra=columns, machine=self._machine))
        if self.done[-1].record["stop"] == "interrupted":
            raise KeyboardInterrupt
        return self.done[-1]

    def _available(self, choices: Sequence[Choice]) -> list[Choice]:
        """Return the values of a step, and the best so far, of different cases."""
        found: dict[str, Choice] = {}
        for choice in (*([{}] if self.done else []), *choices):
            with contextlib.suppress(InputError, MemoryError):
                one = {**self.chosen, **choice}
                found.setdefault(self._build(**one).identity(), one)
        return list(found.values())

    def step(self, name: str, choices: Sequence[Choice]) -> None:
        """Vary one option, and keep its fastest value."""
        case = self._build(**self.chosen)
        threads = case.knobs.threads or len(_memkern.topology()["units"])
        if name in _OF_SEVERAL and case.working_threads(threads) == 1:
            return
        tried = self._available(choices)
        rounds: list[_Round] = []
        brief = {"budget_s": _SAMPLED * self._trial_s / _ROUNDS, "placements": 1}

        def try_one(position: int) -> None:
            with contextlib.suppress(InputError, MemoryError):
                one = self._measured(tried[position], name, len(rounds) - 1, **brief)
                rounds[-1][position] = math.log(one.record["time_min_s"]) if one.valid else math.inf

        def begin(number: int) -> Sequence[int]:
            """Return the places of the choices that were available in the first round."""
            rounds.append({})
            todo = range(len(tried)) if number == 0 else sorted(rounds[0])
            return self._order.sample(todo, len(todo))

        in_rounds(
            try_one,
            begin,
            rounds=_ROUNDS,
            end_s=min(self.end_s, time.perf_counter() + self._trial_s * (len(choices) + 1)),
            least=1,
            kept=lambda: False,
        )
        complete = [one for one in rounds if one.keys() == rounds[0].keys()]
        if rounds and rounds[0]:
            fastest = min(rounds[0], key=lambda k: sum(one[k] for one in complete))
            first = [self.chosen] * (self.chosen in [tried[k] for k in rounds[0]])
            self.chosen = tried[fastest]
            self._path = [*(self._path or first), self.chosen]

    def finish(self) -> None:
        """Compare what the steps kept in turns, and measure the first and the best case again.

        The best is the first that is not slower than the fastest; of cases that can't be measured
        in turns it is the last one.
        """
        kept = {self._build(**one).identity(): one for one in self._path}
        names = [*list(kept)[:2], *list(kept)[2:][-2:]]
        results = to_result_set(self.done)
        group = {one["case_id"]: one for one in results if one["case_id"] in names}
        cases = [self._build(**kept[name]) for name in names]
        if add_turns(results, cases, [[group[name] for name in names]], _TURNS * self._last_s):
            self._turns = {one["case_id"]: one[TURNS] for one in results}
            first = group[names[0]]
            fastest = max(group.values(), key=lambda one: ratio(one, first).value)
            lost = {name: ratio(fastest, group[name]) for name in names}
            equal = [name for name, one in lost.items() if one.value <= 1 or not one.decided]
            self.chosen = kept[equal[0]]
        if self._path and self.chosen != self._path[0]:
            self._measured(self._path[0], "base", budget_s=self._last_s)
        self._measured(self.chosen, "best", budget_s=self._last_s)


def _variants(case: Case) -> list[dict[str, str]]:
    knobs = case.knobs
    candidates = [
        (variant, isa)
        for variant, isa in prepare(case).native.candidates()
        if knobs.variant in ("best", variant) and knobs.isa in ("best", isa)
    ]
    if not knobs.backend.on_processors:
        return [{"variant": variant} for variant, _ in candidates]
    return [{"variant": variant, "isa": isa} for variant, isa in candidates]
