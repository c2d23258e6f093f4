"""Costs of barriers: each kind is measured in a separate process."""

import dataclasses
import math

import pytest

from memkern.engine.placing.run import CaseRun
from memkern.engine.recording.taken import Placement
from memkern.errors import InputError
from memkern.families.launch.barrier import KINDS, barrier_cost, measure_here
from memkern.families.launch.verb import _TABLE


@pytest.mark.usefixtures("users_files")
def test_every_kind_is_measured():
    results = barrier_cost([1, 2], runs=4)
    assert [(r["barrier"], r["threads"]) for r in results] == [
        (k, t) for k in KINDS for t in (1, 2)
    ]
    for record, samples in zip(results, results.samples, strict=True):
        assert record["kernel"] == "launch.barrier"
        assert record["barrier_low_s"] <= record["barrier_s"] <= record["barrier_high_s"]
        assert record["samples"] == len(samples) == 4
        assert record["invocations"] >= 1000
        assert record["repetition"] == ("spin" if record["barrier"] == "spin" else "barrier")
        assert record["pin_requested"] == "auto" and record["pin"] != "none"
    assert len(results.environments) >= 1


@pytest.mark.parametrize("which", ["free", "spin"])
def test_a_cost_has_the_marks_of_both_measurements(which, monkeypatch):
    place = CaseRun.place

    def placed(run: CaseRun) -> Placement:
        placement = place(run)
        if run.case.knobs.repetition == which:
            wrong = dataclasses.replace(placement.check, valid=False)
            run.placements[-1] = dataclasses.replace(placement, check=wrong)
            run.disturb()
        return run.placements[-1]

    (record,) = measure_here("spin", [1], 3, "auto")
    assert record["valid"] and not record["disturbed"]
    monkeypatch.setattr(CaseRun, "place", placed)
    (record,) = measure_here("spin", [1], 3, "auto")
    assert not record["valid"] and record["disturbed"]
    assert math.isnan(record["ci_relative"]) and record["ci_scope"] == "none"


def test_wrong_arguments_are_refused():
    with pytest.raises(InputError, match="'sleep' is not one of"):
        barrier_cost([1], kinds=["sleep"])
    with pytest.raises(InputError, match="pin"):
        barrier_cost([1], kinds=["spin"], pin="sideways")
    with pytest.raises(InputError, match="must name a barrier"):
        barrier_cost([1], kinds=[])


def test_a_cost_within_the_noise_is_printed_as_a_bound():
    def cells(middle, low, high):
        times = {"barrier_s": middle, "barrier_low_s": low, "barrier_high_s": high}
        row = {"barrier": "spin", "threads": 2, "clock_GHz": 2.0, "valid": True, **times}
        return _TABLE.row(0, row).split()[2:]

    assert cells(1e-6, 5e-7, 2e-6) == ["1000.0", "500.0", "2000.0", "2000"]
    assert cells(1e-9, -5e-9, 2e-9) == ["1.0", "0.0", "2.0", "2"]
    assert " ".join(cells(-1e-9, -5e-9, 2e-9)) == "below 2.0"
    assert " ".join(cells(-3e-9, -5e-9, -1e-9)) == "below the noise of the work"
