"""The loop of rounds: its order, deadline and end, and Ctrl-C wherever it comes."""

import signal
from types import SimpleNamespace
from typing import Any

import pytest

import memkern as mk
from memkern.engine.placing.run import CaseRun
from memkern.engine.sweeping import planning, rounds
from memkern.engine.sweeping.rounds import Collected, in_rounds, place_in_rounds
from memkern.errors import InputError, Interrupted
from memkern.formats.store import open_output

CASES = {k: mk.stream("copy", elements=64 + k, threads=1, variant="scalar") for k in range(2)}


def interrupt() -> None:
    # A signal to the process might arrive later, in another of its threads.
    signal.raise_signal(signal.SIGINT)


def test_every_item_has_a_step_in_every_round():
    steps: list[str] = []
    assert not in_rounds(steps.append, ["a", "b"], rounds=2, after=lambda n: steps.append(str(n)))
    assert steps == ["a", "b", "0", "a", "b", "1"]
    # The loop ends with a round without items.
    steps.clear()
    assert not in_rounds(steps.append, lambda number: "xyz"[number : 2 * (number < 2)])
    assert steps == ["x", "y", "y"]


def test_no_step_begins_after_the_time(monkeypatch):
    now_s = 0.0
    monkeypatch.setattr(rounds, "time", SimpleNamespace(perf_counter=lambda: now_s))
    steps: list[str] = []

    def step(item: str) -> None:
        nonlocal now_s
        now_s += 1.0
        steps.append(item)

    in_rounds(step, "abc", end_s=3.5)
    assert steps == ["a", "b", "c", "a"]
    steps.clear()
    now_s = 0.0
    in_rounds(step, "abc", end_s=0.5, least=2, after=lambda _: steps.append("|"))
    assert steps == [*"abc|abc|"]


@pytest.mark.parametrize("where", ["step", "between", "sink", "said"])
def test_an_interruption_ends_the_loop_with_its_results(where):
    steps: list[str] = []

    def step(item: str) -> bool:
        steps.append(item)
        if where == "step" and len(steps) == 3:
            interrupt()
        return where == "said" and len(steps) == 3

    def items(number: int) -> str:
        if where == "between" and number == 1:
            interrupt()
        return "ab"

    def after(number: int) -> None:
        if where == "sink":
            interrupt()

    assert in_rounds(step, items, after=after)
    assert len(steps) == (3 if where in ("step", "said") else 2)
    steps.clear()
    with pytest.raises(KeyboardInterrupt):
        in_rounds(step, items, after=after, kept=lambda: False)


@pytest.mark.parametrize("where", ["step", "between", "sink"])
def test_a_sweep_keeps_what_was_measured(where, tmp_path, monkeypatch):
    place, release, calls = CaseRun.place, rounds._memkern.release_memory, 0
    cases = [case.with_(placements=2, runs=2) for case in CASES.values()]

    def counted(*how: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            interrupt()
        return place(*how)

    def released(*how: Any) -> None:
        if how:
            interrupt()
        release(*how)

    if where == "step":
        monkeypatch.setattr(CaseRun, "place", counted)
    elif where == "between":
        monkeypatch.setattr(rounds._memkern, "release_memory", released)
    output = tmp_path / "x.db"
    how: dict[str, Any] = {"progress": False, "output": output}
    stop = (lambda _: interrupt()) if where == "sink" else None
    with pytest.warns(UserWarning, match=r"interrupted: . of 2 measurements done, kept in .*x.db"):
        found = mk.sweep(cases, on_result=stop, **how)
    assert found.interrupted and len(found) == 2
    monkeypatch.undo()
    assert len(mk.sweep(cases, resume=True, **how)) == 2


def test_an_error_has_the_file_of_the_results_as_its_cause(tmp_path):
    sink = open_output(tmp_path / "x.parquet", environment={})
    results = Collected(lambda: "1 of 2 steps", sink)
    found = CASES[0].with_(runs=2).measure()

    def step(item: str) -> None:
        if item == "b":
            raise InputError("wrong")
        results.add([found])

    with (
        pytest.warns(UserWarning, match="1 of 2 steps done, kept in"),
        pytest.raises(InputError, match="wrong") as caught,
    ):
        in_rounds(step, "ab", results=results)
    cause = caught.value.__cause__
    assert isinstance(cause, Interrupted) and cause.args == (tmp_path / "x.parquet.db",)
    assert len(mk.load(cause.args[0])) == 1
    # Without results there is nothing to resume.
    empty = Collected(lambda: "", open_output(tmp_path / "y.db", environment={}))
    with pytest.raises(InputError, match="wrong") as caught:
        in_rounds(step, "b", results=empty)
    assert caught.value.__cause__ is None


def test_cases_are_placed_until_an_interruption(monkeypatch):
    monkeypatch.setattr(planning, "rates", lambda device: planning.Rates())
    place, calls = CaseRun.place, 0

    def interrupted(*how: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return place(*how)

    monkeypatch.setattr(CaseRun, "place", interrupted)
    found = place_in_rounds(CASES, rounds=3, seconds=60.0)
    assert found.interrupted and {len(run.placements) for run in found.runs.values()} == {1, 2}
    calls = 3
    with pytest.raises(KeyboardInterrupt):
        place_in_rounds(CASES, rounds=3, seconds=60.0)
