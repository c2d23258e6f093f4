"""Tuning judges values by ratios within rounds, and records its whole search."""

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import pytest

import memkern as mk
from memkern.engine.placing.run import measure
from memkern.spec.case import Case
from memkern.studies import tune as tune_module


@pytest.fixture
def case() -> Case:
    return mk.gather("UNIFORM:8:4:NR", count=512, threads=1, variant="scalar", budget_s=0.2)


def test_tune_records_the_whole_search(case):
    best, search = mk.tune(
        case.with_(variant="best"), budget_s=3.0, knobs={"prefetch": [0, 2], "chunk": [0, 8]}
    )
    steps = [record["tune_step"] for record in search]
    assert steps[-1] == "best"
    assert set(steps) <= {"variant", "prefetch", "chunk", "best"}
    assert steps.count("variant") >= 3
    final = search.records[-1]
    assert final["variant_requested"] == best.knobs.variant
    keys = ("variant", "isa", "prefetch", "chunk")
    tried = {tuple(record[key] for key in keys) for record in search.records[:-1]}
    assert tuple(getattr(best.knobs, key) for key in keys) in tried
    # One thread has no chunks.
    assert {record["chunk"] for record in search} == {0}


@pytest.mark.parametrize(
    ("seconds", "kept"),
    [((1.0, 1.001, 0.999), 0), ((1.0, 0.8, 0.801), 2), ((1.0, 1.5, 0.5), 4), ((1.0, 1.2, 1.1), 0)],
    ids=["equal", "two equal", "last", "first"],
)
def test_the_first_that_is_not_slower_than_the_fastest_in_turns_is_the_best(
    case, monkeypatch, seconds, kept
):
    """Trials call the last value the fastest, but a slow moment may have met the others."""
    values = (0, 2, 4)

    def trial(case: Case, *args: Any, **options: Any) -> mk.Measurement:
        measurement = measure(case, *args, **options)
        times = {name: 5.0 - case.knobs.prefetch for name in ("time_min_s", "time_median_s")}
        return dataclasses.replace(measurement, record={**measurement.record, **times})

    def turns(results: mk.ResultSet, cases: Any, groups: Any, time_s: float) -> bool:
        ((*group,),) = groups
        assert [one["prefetch"] for one in group] in ([0, 2, 4], [0, 4])
        time_of = dict(zip(values, seconds, strict=True))
        for record in results.records:
            one_s = time_of[record["prefetch"]]
            record["turns_s"] = json.dumps({"now": [[one_s, one_s * 1.01]] * 4})
        return True

    monkeypatch.setattr("memkern.studies.tune.measure", trial)
    monkeypatch.setattr("memkern.studies.tune.add_turns", turns)
    steps = [{"prefetch": [0]}, {"prefetch": [2]}, {"prefetch": [4]}]
    best, search = tune_module.search(
        lambda **choice: case.with_(**choice),
        {},
        {
            str(k): [{"prefetch": value} for value in step["prefetch"]]
            for k, step in enumerate(steps)
        },
        2.0,
    )
    assert best.knobs.prefetch == kept
    sentence = tune_module.gain_of(search)
    if kept == 0:
        assert sentence.startswith("no other values are faster than the first ones")
    else:
        ratio = {2: "1.25", 4: "2.00"}[kept]
        assert sentence.startswith(f"the best is {ratio} ± 0.0")
        assert [one["tune_step"] for one in search.records[-2:]] == ["base", "best"]


def test_tuning_judges_by_ratios_within_rounds(case, monkeypatch):
    """The host is slower in each round."""

    def scripted(case: Case, *args: Any, repeat: int = 0, **options: Any) -> mk.Measurement:
        measurement = measure(case, *args, repeat=repeat, **options)
        shortest = {0: 3.0, 2: 1.0, 4: 1.2}[case.knobs.prefetch]
        if case.knobs.prefetch == 0 and repeat == 0:
            shortest = 0.5  # in the first round only
        disturbed = case.knobs.prefetch == 2
        times = {"time_min_s": shortest * 5**repeat, "disturbed": disturbed}
        record = {**measurement.record, **times}
        return dataclasses.replace(measurement, record=record)

    monkeypatch.setattr("memkern.studies.tune.measure", scripted)
    for module in ("studies.tune", "engine.sweeping.rounds"):
        monkeypatch.setattr(f"memkern.{module}.time", SimpleNamespace(perf_counter=lambda: 0.0))
    monkeypatch.setattr("memkern.studies.tune.add_turns", lambda *_: False)
    best, search = mk.tune(case, budget_s=2.0, knobs={"prefetch": [0, 2, 4]})
    assert best.knobs.prefetch == 2
    trials = [(r["repeat"], r["prefetch"]) for r in search if r["tune_step"] == "prefetch"]
    assert sorted(trials) == [(turn, value) for turn in range(3) for value in (0, 2, 4)]
    assert [turn for turn, _ in trials] == sorted(turn for turn, _ in trials)


def test_tuning_leaves_out_what_is_wrong_or_refused(case, monkeypatch):
    def scripted(case: Case, *args: Any, **options: Any) -> mk.Measurement:
        if case.knobs.prefetch == 4:
            raise MemoryError
        measurement = measure(case, *args, **options)
        wrong = {"valid": False, "time_min_s": 1e-9, "time_median_s": 1e-9}
        record = {**measurement.record, **(wrong if case.knobs.prefetch == 2 else {})}
        return dataclasses.replace(measurement, record=record)

    monkeypatch.setattr("memkern.studies.tune.measure", scripted)
    monkeypatch.setattr("memkern.studies.tune.add_turns", lambda *_: False)
    best, search = mk.tune(case, budget_s=2.0, knobs={"prefetch": [8, 2, 4]})
    assert best.knobs.prefetch in (0, 8)
    assert {record["prefetch"] for record in search} == {0, 2, 8}
