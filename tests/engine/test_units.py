"""Processing units and quotas that change while cases are measured."""

import os
from typing import Any

import pytest

import memkern as mk
from memkern.engine.placing import run as run_module
from memkern.engine.placing.preparing import ready
from memkern.engine.placing.run import CaseRun
from memkern.engine.processes.communication import Ranks
from memkern.engine.sampling import prepared as prepared_module
from memkern.engine.sampling.activity import names_of_cores
from memkern.errors import InputError
from memkern.spec.case import Case


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The units of this process, from which a test takes some."""
    units = {0, 1}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(units))
    return units


@pytest.mark.parametrize("within", ["ready", "take_samples"])
def test_what_was_placed_is_kept_when_units_are_lost(case, left, within, monkeypatch, tmp_path):
    cases, target = [case.with_(threads=0, placements=3, runs=12)], tmp_path / "kept.db"
    function = getattr(run_module, within)

    def taking(*given: Any) -> Any:
        found = function(*given)
        left.discard(1)
        return found

    monkeypatch.setattr(run_module, within, taking)
    why = "may only use processing units 0 now, too few for 2 threads"
    kept = pytest.warns(UserWarning, match="interrupted: 0 of 1 measurements done, kept in .*")
    with kept, pytest.warns(UserWarning, match=why):
        results = mk.sweep(cases, output=target, progress=False)
    assert results.interrupted
    (record,) = results
    assert (record["stop"], record["placements"], record["threads"]) == ("interrupted", 1, 2)
    # The worker of the lost unit ran on another one meanwhile.
    assert record["disturbed"]
    monkeypatch.setattr(run_module, within, function)
    left.add(1)
    (again,) = mk.sweep(cases, output=target, resume=True, progress=False)
    assert (again["stop"], again["placements"], again["threads"]) == ("runs", 3, 2)


def test_other_cases_are_kept_when_one_has_lost_its_unit(case, left, monkeypatch, tmp_path):
    first, second = case.with_(threads=1, pin="0", runs=6), case.with_(threads=1, pin="1", runs=6)

    def refusing(wanted: Case, *how: Any) -> Any:
        if wanted.knobs.pin == "1":
            raise InputError("pin names processing unit 1, which this process may not use")
        return ready(wanted, *how)

    monkeypatch.setattr(run_module, "ready", refusing)
    # If it never had the unit, nothing is written.
    with pytest.raises(InputError, match="unit 1"):
        mk.sweep([second], output=tmp_path / "a.db", progress=False)
    assert not list(tmp_path.iterdir())

    def lose() -> None:
        left.discard(1)

    done = pytest.warns(UserWarning, match="interrupted: 1 of 2 measurements done")
    ends = pytest.warns(UserWarning, match="which this process may not use: measuring ends here")
    with done, ends:
        found = mk.sweep([first, second], progress=False, order="declared", on_begin=lose)
    assert found.interrupted and [record["pin"] for record in found] == ["0"]


def test_a_measured_case_that_can_not_be_placed_again_has_the_placements_before(case, monkeypatch):
    def refusing(wanted: Case, chosen: Any, *how: Any) -> Any:
        if chosen is not None:
            raise MemoryError("this case needs 1 GB")
        return ready(wanted, chosen, *how)

    monkeypatch.setattr(run_module, "ready", refusing)
    with pytest.warns(UserWarning, match="needs 1 GB: measuring ends here"):
        record = case.with_(placements=3, runs=12).measure().record
    assert (record["placements"], record["valid"]) == (1, True)


def test_a_case_keeps_its_number_of_threads(case, monkeypatch):
    quotas = iter([1, 2, 2])
    monkeypatch.setattr(prepared_module, "workers_by_quota", lambda: next(quotas, 2))
    run = CaseRun(case.with_(threads=0, placements=3, runs=12))
    assert [run.place().obtained["threads"] for _ in range(3)] == [1, 1, 1]


def test_lost_units_have_cores_of_some_kind():
    assert names_of_cores({"pin": "0,99999", "threads": 2})


def test_a_process_is_crowded_by_the_units_that_it_has_now(left):
    alone = Ranks()
    assert not alone.crowded(2)
    left.discard(0)
    assert alone.crowded(2) and not alone.crowded(1)
