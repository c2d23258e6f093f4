"""Tuning judges values in turns with the best so far, and records its whole search."""

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import memkern as mk
from memkern.engine.placing.run import measure
from memkern.spec.case import Case
from memkern.studies import tune as tune_module
from memkern.studies import turns


@pytest.fixture
def case() -> Case:
    return mk.gather("UNIFORM:8:4:NR", count=512, threads=1, variant="scalar", budget_s=0.2)


def test_tune_records_the_whole_search(case):
    best, search = mk.tune(
        case.with_(variant="best"), budget_s=3.0, knobs={"prefetch": [0, 2], "chunk": [0, 8]}
    )
    steps = [record["tune_step"] for record in search]
    assert steps[-1] == "best"
    assert set(steps) <= {"variant", "prefetch", "chunk", "base", "best"}
    assert steps.count("prefetch") == 1
    final = search.records[-1]
    assert final["variant_requested"] == best.knobs.variant
    keys = ("variant", "isa", "prefetch", "chunk")
    tried = {tuple(record[key] for key in keys) for record in search.records[:-1]}
    assert tuple(getattr(best.knobs, key) for key in keys) in tried


Times = Callable[[Case], float]


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[int]]]:
    """Replace times of records and of samples in turns, and return the distances in each turn."""

    def use(of_records: Times, in_turns: Times, invalid: int = -1) -> list[list[int]]:
        seen: list[list[int]] = []

        def trial(case: Case, *args: Any, **options: Any) -> mk.Measurement:
            measurement = measure(case, *args, **options)
            wrong = {"valid": False} if case.knobs.prefetch == invalid else {}
            times = dict.fromkeys(("time_min_s", "time_median_s"), of_records(case))
            record = {**measurement.record, **times, "disturbed": True, **wrong}
            return dataclasses.replace(measurement, record=record)

        def samples(prepared: Any) -> Any:
            distance = prepared.case.knobs.prefetch
            if not seen or distance in seen[-1]:
                seen.append([])
            seen[-1].append(distance)
            # The host becomes slower with every turn.
            seconds = np.array([[in_turns(prepared.case) * len(seen)]])
            return SimpleNamespace(seconds=seconds, stop="budget")

        monkeypatch.setattr(tune_module, "measure", trial)
        monkeypatch.setattr(turns, "take_samples", samples)
        return seen

    return use


def by_distance(times: dict[int, float]) -> Times:
    return lambda case: times[case.knobs.prefetch]


@pytest.mark.parametrize(
    ("seconds", "kept"),
    [
        ((1.0, 0.8, 1.5), 2),
        ((1.0, 0.8, 0.5), 4),
        ((1.0, 1.2, 1.1), 0),
        # Not by more than the interval of a ratio.
        ((1.0, 0.995, 0.999), 0),
        ((1.0, 0.8, 0.799), 2),
    ],
    ids=["second", "last", "first", "equal", "two equal"],
)
def test_values_that_are_faster_in_turns_are_kept(case, timed, seconds, kept):
    """Records call the last value the fastest, but a slow moment may have met the others."""
    in_turns = by_distance(dict(zip((0, 2, 4), seconds, strict=True)))
    seen = timed(lambda one: 5.0 - one.knobs.prefetch, in_turns)
    steps = {str(value): [{"prefetch": value}] for value in (0, 2, 4)}
    best, search = tune_module.search(lambda **choice: case.with_(**choice), {}, steps, 20.0)
    assert best.knobs.prefetch == kept
    # Each value with the best so far.
    so_far = 2 if seconds[1] < 0.99 else 0
    assert {tuple(sorted(one)) for one in seen} >= {(0, 2), tuple(sorted((so_far, 4)))}
    sentence = tune_module.gain_of(search)
    if kept == 0:
        assert sentence.startswith("no other values are faster than the first ones")
        assert [one["tune_step"] for one in search.records] == ["0", "2", "4", "best"]
    else:
        ratio = {2: "1.25", 4: "2.00"}[kept]
        assert sentence.startswith(f"the best is {ratio} ± 0.0")
        assert [one["tune_step"] for one in search.records[-2:]] == ["base", "best"]


def test_the_best_is_the_first_if_it_is_not_faster_in_the_last_turns(case, timed):
    slow = [4]
    seen = timed(lambda one: 1.0, lambda one: 0.5 if one.knobs.prefetch in slow else 1.0)
    add_turns = tune_module.add_turns

    def later(*args: Any) -> bool:
        slow.clear()
        return add_turns(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tune_module, "add_turns", later)
        best, search = mk.tune(case, budget_s=20.0, knobs={"prefetch": [0, 4]})
    assert best.knobs.prefetch == 0 and {*map(len, seen)} <= {1, 2}
    assert tune_module.gain_of(search).startswith("no other values are faster")


def test_a_value_is_measured_once_and_values_without_turns_are_judged_by_it(case, timed):
    """As if memory did not suffice for two cases at once."""

    def no_memory(_: Case) -> float:
        raise MemoryError

    timed(by_distance({0: 3.0, 2: 1.0, 4: 1.2}), no_memory)
    best, search = mk.tune(case, budget_s=2.0, knobs={"prefetch": [0, 2, 4, 2]})
    assert best.knobs.prefetch == 2
    trials = [r["prefetch"] for r in search if r["tune_step"] in ("variant", "prefetch")]
    assert sorted({*trials}) == [0, 2, 4] and trials.count(2) == trials.count(4) == 1


def test_tuning_leaves_out_what_is_wrong_or_refused(case, timed):
    def times(case: Case) -> float:
        if case.knobs.prefetch == 4:
            raise MemoryError
        return 1e-9 if case.knobs.prefetch == 2 else 1.0

    seen = timed(times, times, invalid=2)
    best, search = mk.tune(case, budget_s=2.0, knobs={"prefetch": [8, 2, 4]})
    assert best.knobs.prefetch in (0, 8)
    assert {record["prefetch"] for record in search} == {0, 2, 8}
    assert {distance for turn in seen for distance in turn} <= {0, 8}


def test_an_interrupted_search_keeps_its_records_and_the_best_so_far(case, timed, monkeypatch):
    seen = timed(lambda one: 1.0, by_distance({0: 1.0, 2: 0.5, 4: 0.25}))
    in_turns = turns.times_in_turns

    def interrupted(cases: Any, *options: Any) -> list[list[float]]:
        if any(one.knobs.prefetch == 4 for one in cases):
            raise KeyboardInterrupt
        return in_turns(cases, *options)

    monkeypatch.setattr(turns, "times_in_turns", interrupted)
    steps = {str(value): [{"prefetch": value}] for value in (0, 2, 4)}
    best, search = tune_module.search(lambda **choice: case.with_(**choice), {}, steps, 20.0)
    assert search.interrupted and best.knobs.prefetch == 2 and seen
    assert [one["prefetch"] for one in search] == [0, 2, 4]


def test_options_of_several_threads_are_not_tried_with_one(case, monkeypatch):
    assert "chunk" not in tune_module.usual_knobs(case)
    assert "chunk" in tune_module.usual_knobs(case.with_(threads=2))
    monkeypatch.setattr("memkern.families.spmv.product.search", lambda *args, **_: args[2])
    for threads, balances in ((1, 0), (2, 2)):
        steps: Any = mk.spmv.tune("hpcg:3", threads=threads)
        assert len(steps["balance"]) == balances
