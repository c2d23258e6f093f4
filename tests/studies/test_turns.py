"""Cases measured in turns, whose times are added to their records."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import memkern as mk
from memkern.errors import InputError
from memkern.results.ratios import ratio, turns_of
from memkern.studies import ratios
from memkern.studies.ratios import add_turns

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
        ready = ratios.ready

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

        monkeypatch.setattr(ratios, "ready", placed)
        monkeypatch.setattr(ratios, "take_samples", samples)
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
