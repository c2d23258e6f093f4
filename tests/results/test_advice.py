"""Advice is true of the records, and leads to the experiments that there are."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import memkern as mk
from memkern import reference
from memkern.cli.measuring import tell_host
from memkern.discovery import family_module
from memkern.machine.caches import PUBLISHED_LATENCIES
from memkern.models import answers
from memkern.results import explanation, hosts
from memkern.results.explanation import has_experiments
from memkern.studies import doctor_findings

NOTHING: dict[str, Any] = {
    "kernel": "stream.triad", "backend": "openmp", "threads": 2, "placements": 5,
    "numa_requested": "first-touch", "pin_requested": "auto", "environment_id": "e1",
    "valid": True, "disturbed": False, "misplaced_share": 0.5, "doctor": "", "state": "quiet",
    "shared_with": "", "placement_sd": 0.3, "footprint_B": 2**26, "bandwidth_median_GBps": 10.0,
    "ns_per_access": 300.0,
}  # fmt: skip


def of_doctor(kernel: str, **columns: Any) -> str:
    """Return the advice of the doctor on a record."""
    record = {**NOTHING, "kernel": kernel, "misplaced_share": 0.0, **columns}
    measurement: Any = SimpleNamespace(record=record, valid=True, disturbed=False)
    return doctor_findings.measured(kernel, measurement, "").advice


@pytest.mark.parametrize("threads", [1, 2])
def test_fewer_threads_are_advised_where_there_are_several(threads, capsys):
    record = {**NOTHING, "disturbed": True, "threads": threads}
    tell_host(mk.ResultSet([record], [np.ones(1)]), quiet=False)
    told = capsys.readouterr().err
    assert ("fewer --threads, " in told) == (threads > 1)
    assert "other processors (--pin) or an end of other programs" in told


def test_advice_for_what_experiments_can_not_say():
    assert "--numa node:N" in hosts.memory_notes(NOTHING)["misplaced_share"]
    assert hosts.memory_notes(NOTHING | {"misplaced_share": 0.05}) == {}
    assert of_doctor("stream.triad").endswith("with more --placements")


def test_the_doctor_leads_to_the_experiments_of_a_slow_latency(monkeypatch):
    monkeypatch.setattr(explanation, "family_module", lambda family, name: (family, name))
    slow = {"placement_sd": 0.001}
    assert of_doctor("latency.chase", **slow).endswith("latency --explain tells what helps")
    monkeypatch.setattr(explanation, "family_module", lambda family, name: None)
    assert of_doctor("latency.chase", **slow).endswith("in the firmware's setup")


def test_only_records_whose_time_experiments_can_explain_have_them():
    assert has_experiments(NOTHING) and family_module("stream", "experiments")
    assert has_experiments(NOTHING | {"ranks": 1, "explained_by": ""})
    for columns in (
        {"backend": "cuda"},
        {"backend": "mpi", "ranks": 2},
        {"ranks": 2},
        {"kernel": "barrier.spin"},
        {"kernel": None},
        {"explained_by": "{}"},
    ):
        assert not has_experiments(NOTHING | columns)


def test_the_limits_of_a_latency_are_outside_of_the_published_ones():
    found = [row["value"] for row in reference.rows("published-figures") if row["unit"] == "ns"]
    assert f"{min(found):g} to {max(found):.0f} ns" in PUBLISHED_LATENCIES
    assert min(found) > answers.LEAST_MEMORY_S * 1e9
    assert max(found) < doctor_findings._MOST_LATENCY_NS
