"""Sweeps: resuming, repeats, interruption, time limits, order, duplicates."""

import os
import signal
import threading
import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import memkern as mk
from memkern.engine.placing.run import CaseRun
from memkern.engine.recording.record import measurement_of
from memkern.engine.sampling import series as sampling
from memkern.engine.sweeping import sweep as sweeping
from memkern.errors import InputError
from memkern.host.distances import Distances, Spread
from memkern.spec.case import Case
from memkern.spec.sequences import product


def test_sweep_stores_every_case_and_resumes(tmp_path, case):
    cases = mk.vary(case.with_(runs=3), pages=["4k", "default"], threads=[1, 2])
    path = tmp_path / "out.db"
    seen: list[str] = []
    results = mk.sweep(
        cases[:2], output=path, progress=False, on_result=lambda m: seen.append(m.record["case_id"])
    )
    assert len(results) == len(seen) == 2
    with pytest.raises(InputError, match="--resume"):
        mk.sweep(cases, output=path, progress=False)
    more = mk.sweep(
        cases,
        output=path,
        progress=False,
        resume=True,
        on_result=lambda m: seen.append(m.record["case_id"]),
    )
    assert [r["case_id"] for r in more] == seen == [c.identity() for c in cases]
    loaded = mk.load(path)
    assert [r["bandwidth_GBps"] for r in loaded] == [r["bandwidth_GBps"] for r in more]


def test_a_kept_record_of_a_smaller_budget_is_told(tmp_path, case):
    path = tmp_path / "x.json"
    mk.sweep([case.with_(budget_s=0.5)], output=path, progress=False)
    # Without a warning.
    mk.sweep([case.with_(budget_s=0.5)], output=path, resume=True, progress=False)
    mk.sweep([case.with_(budget_s=0.1)], output=path, resume=True, progress=False)
    with pytest.warns(UserWarning, match="1 kept measurement had a smaller budget"):
        kept = mk.sweep([case.with_(budget_s=3.0)], output=path, resume=True, progress=False)
    assert [record["budget_s"] for record in kept] == [0.5]


@pytest.mark.parametrize("cases", [list, iter])
def test_every_repeat_is_measured(case, cases):
    results = mk.sweep(cases([case.with_(runs=3)]), repeats=3, progress=False)
    assert [record["repeat"] for record in results] == [0, 1, 2]
    assert len({record["case_id"] for record in results}) == 1


def test_interrupt_keeps_the_samples_taken(tmp_path, case, monkeypatch):
    # Ctrl-C while the extension takes samples. A tight target does not suffice: with a coarse
    # clock all samples may be equal, and their interval has no width.
    endless = case.with_(ci=0.5, budget_s=60.0, max_samples=10**6, prefetch=1)
    path = tmp_path / "out.db"
    sample = sampling.sample

    def interrupted(prepared: Any, judge: Any, out: Any, *how: Any, **options: Any) -> None:
        ended = threading.Event()

        def interrupt() -> None:
            # After the first sample, which may take long on a busy machine.
            while np.isnan(out[0, 0]) and not ended.wait(0.001):
                pass
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            sample(prepared, judge, out, *how, **options)
        finally:
            ended.set()
            thread.join()

    with warnings.catch_warnings(record=True) as caught, monkeypatch.context() as patch:
        warnings.simplefilter("always")
        patch.setattr(mk.statistics.StopRule, "next_count", lambda *_: 10**6)
        patch.setattr(sampling, "sample", interrupted)
        results = mk.sweep([endless, case], output=path, progress=False, order="declared")
    assert [record["stop"] for record in results] == ["interrupted"]
    assert 0 < results.records[0]["samples"] == len(results.samples[0]) < 10**6
    assert any("0 of 2" in str(w.message) for w in caught)
    # The interrupted case is measured again.
    again = mk.sweep([endless, case], output=path, resume=True, progress=False)
    assert len(again) == 2
    assert "interrupted" not in {record["stop"] for record in again}


def endless(placements: int) -> list[Case]:
    """Return cases that end only by the time limit of their sweep."""
    cases = [mk.gather([0, 1], count=n, threads=1, variant="scalar") for n in (64, 65, 66)]
    how = {"runs": None, "ci": 1e-12, "budget_s": 1e6, "max_samples": 10**7}
    return [case.with_(placements=placements, **how) for case in cases]


def test_a_sweep_divides_its_time_among_its_cases(tmp_path):
    path = tmp_path / "results.json"
    results = mk.sweep(endless(placements=2), time_s=2.0, output=path, progress=False)
    assert [record["stop"] for record in results] == ["budget"] * 3
    assert not results.interrupted
    again = mk.sweep(endless(placements=2), output=path, resume=True, progress=False)
    assert [record["started"] for record in again] == [record["started"] for record in results]


def test_a_sweep_leaves_out_what_it_has_no_time_for(tmp_path):
    path = tmp_path / "results.json"
    with pytest.warns(
        UserWarning, match="3 of 3 measurements are left out: 1e-09 s did not suffice"
    ):
        none = mk.sweep(endless(placements=50), time_s=1e-9, output=path, progress=False)
    assert (len(none), none.left_out) == (0, 3)
    few = mk.sweep(endless(placements=2), time_s=2.0, output=path, resume=True, progress=False)
    assert (len(few), few.left_out) == (3, 0)
    with pytest.raises(InputError, match="time_s must be a positive"):
        mk.sweep(endless(placements=1), time_s=0.0)


def test_a_sweep_without_time_left_generates_no_more_cases(case):
    more = product(case.with_, {"offset": range(0, 8 * 10**8, 8)})
    with pytest.warns(UserWarning, match="100000000 of 100000000 measurements are left out"):
        assert len(mk.sweep(more, time_s=1e-9, progress=False)) == 0


def test_rounds_of_a_sweep_follow_the_recorded_order(case, monkeypatch):
    placed: list[int] = []
    place = CaseRun.place

    def noted(run: CaseRun) -> Any:
        placed.append(run.case.integers["count"])
        return place(run)

    monkeypatch.setattr(CaseRun, "place", noted)
    counts = list(range(64, 70))
    cases = [mk.gather([0, 1], count=n, threads=1, variant="scalar", runs=None) for n in counts]
    brief = [c.with_(budget_s=0.001, max_samples=10, placements=3) for c in cases]
    orders = []
    for _ in range(2):
        placed.clear()
        results = mk.sweep((c for c in brief), progress=False, order_seed=7)
        assert [record["count"] for record in results] == counts  # in the declared order
        rounds = [placed[k : k + 6] for k in range(0, 18, 6)]
        assert [sorted(r) for r in rounds] == [counts] * 3
        assert len({tuple(r) for r in rounds}) > 1
        assert {record["case_order_seed"] for record in results} == {7}
        assert {record["case_order"] for record in results} == {"random"}
        orders.append(list(placed))
    assert orders[0] == orders[1]
    placed.clear()
    results = mk.sweep(brief, progress=False, order="declared")
    assert placed == counts * 3
    assert {record["case_order_seed"] for record in results} == {None}
    with pytest.raises(InputError, match="order 'backwards' is not"):
        mk.sweep(brief, order="backwards")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What records are made of during the test."""
    every: list[Any] = []

    def noted(taken: Any, *how: Any, **named: Any) -> mk.Measurement:
        every.append(taken)
        return measurement_of(taken, *how, **named)

    monkeypatch.setattr("memkern.engine.placing.run.measurement_of", noted)
    return every


@pytest.mark.parametrize("stored", [True, False])
def test_records_are_made_once_and_get_intervals_by_other_cases(
    case, stored, made, tmp_path, monkeypatch
):
    def uncertain(runs: Sequence[CaseRun], machine: dict[str, Any]) -> dict[str, Any]:
        wide = Distances(10.0, 10.0)
        return {run.class_of(machine): Spread(wide, wide) for run in runs}

    monkeypatch.setattr(sweeping, "_spreads", uncertain)
    cases = [case.with_(seed=n, runs=None, max_samples=30, placements=3) for n in range(3)]
    output = tmp_path / "x.json" if stored else None
    results = mk.sweep(cases, output=output, progress=False)
    assert sorted(one.case_id for one in made) == sorted(one.identity() for one in cases)
    assert all(record["ci_relative"] > 0.3 and record["placements"] == 3 for record in results)
    if output is not None:
        assert mk.load(output) == results


def test_records_of_many_placements_are_made_twice(case, made, tmp_path, monkeypatch):
    known = Spread(Distances(3.0, 0.003), Distances(3.0, 0.003))
    monkeypatch.setattr("memkern.host.packaged", lambda name: known)
    monkeypatch.setattr(CaseRun, "imprecise", lambda run, spread: len(run.placements) < 7)
    brief = case.with_(runs=None, max_samples=30, placements=3, precision=0.999)
    for output in (None, tmp_path / "x.db"):
        made.clear()
        (record,) = mk.sweep([brief], output=output, progress=False).records
        # After the requested placements, in case the rest is lost, and after all.
        assert [len(one.placements) for one in made] == [3, 7] and record["placements"] == 7
    assert mk.load(tmp_path / "x.db")[0]["placements"] == 7


def test_time_that_is_left_is_spent_on_the_widest_interval(monkeypatch):
    def run(name: str, placements: int) -> Any:
        made = type("Run", (), {})()
        vars(made).update(
            case=SimpleNamespace(placements=2), placements=[0] * placements,
            class_of=lambda machine: name, imprecise=lambda spread: False,
        )  # fmt: skip
        return made

    spreads = {
        name: Spread(Distances(3.0, 3 * mean))
        for name, mean in (("wide", 0.05), ("wider", 0.09), ("narrow", 0.001))
    }
    monkeypatch.setattr(sweeping, "_spreads", lambda runs, machine: spreads)
    plan: Any = SimpleNamespace(suffices=lambda run: True)
    runs = [run("wide", 2), run("wider", 3), run("wider", 2), run("narrow", 2)]
    assert sweeping._again(runs, {}, plan) == [runs[2]]
    # No case has more than three times the requested placements, and none without a limited time.
    assert sweeping._again([run("wider", 6)], {}, plan) == []
    assert sweeping._again([run("wider", 0), run("narrow", 2)], {}, plan) == []
    assert sweeping._again(runs, {}, None) == []
    plan.suffices = lambda run: run is runs[0]
    assert sweeping._again(runs, {}, plan) == [runs[0]]


@pytest.mark.parametrize("suffix", ["", ".db", ".csv"])
def test_duplicate_cases_are_measured_once_with_a_warning(tmp_path, suffix):
    one, other = (mk.stream("copy", elements=n, threads=1, runs=1) for n in (64, 128))
    cases = [one, other, one.with_(name="again"), other, one]
    output = tmp_path / f"x{suffix}" if suffix else None
    with pytest.warns(UserWarning, match="6 of the cases equal an earlier one"):
        results = mk.sweep(iter(cases), repeats=2, output=output)
    assert sorted((r["elements"], r["repeat"]) for r in results) == [
        (64, 0), (64, 1), (128, 0), (128, 1),
    ]  # fmt: skip
    if output is not None:
        # Cases measured by an earlier run are not duplicates, of which a warning tells.
        assert len(mk.sweep([one, other], repeats=2, output=output, resume=True)) == 4


@pytest.mark.parametrize("progress", [True, False])
def test_what_is_known_so_far_is_shown_beside_the_progress(progress, case, monkeypatch, capsys):
    monkeypatch.setattr(sweeping, "_FIRST_LOOK_S", 0.0)
    cases = mk.vary(case.with_(budget_s=0.01, placements=2), pages=["4k", "default"])
    seen: list[int] = []

    def learned(results: mk.ResultSet) -> str:
        seen.append(len(results))
        return f"{len(results)} known" if len(results) > 1 else ""

    mk.sweep(cases, progress=progress, learned=learned)
    err = capsys.readouterr().err
    assert seen == ([1, 2, 2, 2] if progress else [])
    assert err.count("memkern: so far 2 known") == (3 if progress else 0)
