"""Cases measured in turns: those whose times are added to records, and those tried with a base."""

import math
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import memkern as mk
from memkern.errors import InputError
from memkern.results.ratios import ratio, turns_of
from memkern.studies import turns
from memkern.studies.turns import Trial, add_turns, take_turns

RATE = "bandwidth_GBps"
ONE, TWO, FOUR = (f"UNIFORM:8:{stride}" for stride in (1, 2, 4))
TIMES_S = {ONE: 1e-3, TWO: 2e-3, FOUR: 9e-3}


@pytest.fixture
def cases() -> list[mk.Case]:
    return [
        mk.gather(f"UNIFORM:8:{stride}:NR", count=512, threads=1, variant="scalar", runs=2)
        for stride in (1, 2, 4)
    ]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """Replace samples by the times of patterns, and return the patterns in each turn."""

    def use(refused: str = "", most_turns: int = 10**6) -> list[list[str]]:
        seen: list[list[str]] = []
        ready = turns.ready

        def placed(case: mk.Case) -> Any:
            if case.input_columns["pattern"] == refused:
                raise InputError("no memory")
            return ready(case)

        def samples(prepared: Any) -> Any:
            pattern = prepared.case.input_columns["pattern"]
            if not seen or pattern in seen[-1]:
                seen.append([])
            seen[-1].append(pattern)
            # The host becomes slower with every turn.
            seconds = np.array([[2.0], [1.0]]) * TIMES_S[pattern] * len(seen)
            stop = "interrupted" if len(seen) > most_turns else "budget"
            return SimpleNamespace(seconds=seconds, stop=stop)

        monkeypatch.setattr(turns, "ready", placed)
        monkeypatch.setattr(turns, "take_samples", samples)
        return seen

    return use


def test_cases_are_placed_together_and_sampled_in_random_order(cases, scripted):
    results = mk.sweep(cases, progress=False)
    seen = scripted()
    assert add_turns(results, cases, [results.records[:2]], 60.0)
    first, second, third = results.records
    (times,) = turns_of(first).values()
    # Equal ratios are narrow at the first look, after ten placements of three turns.
    assert np.shape(times) == (10, 3) and len(seen) == 30
    names = first["pattern"], second["pattern"]
    assert {*map(tuple, seen)} == {names, names[::-1]}
    work, of_first = (one[RATE] * one["time_min_s"] for one in (second, first))
    expected = TIMES_S[names[0]] / TIMES_S[names[1]] * work / of_first
    assert ratio(second, first, RATE).value == pytest.approx(expected)
    # A case that nothing is compared with has no times.
    assert third["turns_s"] == ""


def test_later_turns_are_added_to_earlier_ones(cases, scripted):
    results = mk.sweep(cases, progress=False)
    scripted()
    first, second, third = results.records
    assert add_turns(results, cases, [[first, second], [first, third]], 60.0)
    assert [len(turns_of(record)) for record in results] == [2, 1, 1]
    assert turns_of(second).keys() | turns_of(third).keys() == turns_of(first).keys()


@pytest.mark.parametrize(
    "limits, budget_s, placements",
    [({}, 1e-9, 4), ({"most_turns": 10}, 60.0, 3)],
    ids=["time", "Ctrl-C"],
)
def test_turns_end_after_complete_placements(limits, budget_s, placements, cases, scripted):
    results = mk.sweep(cases, progress=False)
    scripted(**limits)
    assert add_turns(results, cases, [results.records[:2]], budget_s)
    for record in results.records[:2]:
        (times,) = turns_of(record).values()
        assert np.shape(times) == (placements, 3)


def test_groups_that_can_not_be_placed_are_left_out(cases, scripted):
    results = mk.sweep(cases, progress=False)
    scripted(refused=TWO)
    by = {record["pattern"]: record for record in results}
    groups = [[by[ONE], by[TWO]], [by[ONE], by[FOUR]]]
    assert add_turns(results, cases, groups, 60.0)
    assert [len(turns_of(by[name])) for name in (ONE, TWO, FOUR)] == [1, 0, 1]
    # Repeats are one case, which has no other to be measured beside.
    for none in ([], [[by[ONE]]], [[by[ONE], dict(by[ONE])]]):
        assert not add_turns(results, cases, none, 60.0)
    assert not add_turns(results, cases[:0], groups, 60.0)


def test_real_samples_give_a_ratio(cases):
    results = mk.sweep(cases, progress=False)
    assert add_turns(results, cases, [results.records[:2]], 1e-9)
    first, second, _ = results.records
    found = ratio(second, first, RATE)
    assert found.in_turns and found.value > 0 and found.half_width > 0


def trial_of(case: mk.Case, **options: Any) -> Trial:
    return Trial(case, case.input_columns["pattern"], **options)


def test_trials_are_begun_in_their_order_and_end_when_they_are_decided(
    cases, scripted, monkeypatch
):
    seen = scripted()
    # As many as fit in memory together with the base.
    monkeypatch.setattr(turns, "memory_left", lambda: (10 * 100, math.inf))
    monkeypatch.setattr(turns, "_MEMORY_SHARE", 0.2)
    base, *others = cases
    trials = [trial_of(one) for one in others]
    told: list[None] = []
    assert not take_turns(base, trials, math.inf, 100, lambda: told.append(None))
    every = [name for turn in seen for name in turn]
    # Three placements of three turns each.
    assert [name for name in every if name != ONE] == [TWO] * 9 + [FOUR] * 9
    assert len(told) == 6 and every.count(ONE) == 18
    seen.clear()
    monkeypatch.setattr(turns, "memory_left", lambda: (10**9, math.inf))
    trials = [trial_of(one, work=2.0) for one in others]
    take_turns(base, trials, math.inf, 100)
    assert {len(one) for one in seen} == {3} and len(seen) == 9
    for one in trials:
        effect, half = one.estimate()
        expected = TIMES_S[one.subject] / TIMES_S[ONE] / 2
        assert math.exp(effect) == pytest.approx(expected) and half < 0.02


def test_trials_that_can_not_be_placed_are_removed(cases, scripted):
    seen = scripted(refused=TWO)
    base, *others = cases
    trials = [trial_of(one) for one in others]
    assert not take_turns(base, trials, math.inf, 100)
    assert [one.subject for one in trials] == [FOUR]
    assert len(trials[0].placements) == 3 and {*seen[0]} == {ONE, FOUR}


def test_a_trial_is_undecided_until_its_interval_is_narrow_or_it_is_not_faster(cases):
    def with_ratios(spread: float, middle: float, **options: Any) -> Trial:
        one = trial_of(cases[0], **options)
        for _ in range(4):
            one.add(np.exp([middle - spread, middle + spread]), [1.0, 1.0])
        return one

    assert with_ratios(0.1, -0.5).undecided
    assert not with_ratios(0.001, -0.5).undecided
    assert not with_ratios(0.1, 0.5).undecided
    assert with_ratios(0.1, 0.5, is_rough=True).undecided
    assert not with_ratios(0.03, 0.5, is_rough=True).undecided
    few = trial_of(cases[0], guess=0.25)
    assert few.undecided and few.estimate() == (0.25, 0.0)
    few.add([0.5, 0.5], [1.0, 1.0])
    assert few.undecided and few.estimate() == (pytest.approx(math.log(0.5)), 0.0)
    wide = with_ratios(1.0, -0.5)
    while wide.undecided:
        wide.add([0.5, 2.0], [1.0, 1.0])
    assert len(wide.placements) == 40


def test_the_time_and_ctrl_c_end_trials(cases, scripted):
    base, *others = cases
    scripted()
    trials = [trial_of(one) for one in others]
    assert not take_turns(base, trials, time.perf_counter() - 1.0, 100)
    assert [one.placements for one in trials] == [[], []]
    scripted(most_turns=4)
    assert take_turns(base, trials, math.inf, 100)
    assert [len(one.placements) for one in trials] == [1, 1]
    scripted(most_turns=2)
    with pytest.raises(KeyboardInterrupt):
        take_turns(base, [trial_of(one) for one in others], math.inf, 100)
