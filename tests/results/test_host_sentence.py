"""The sentence about the states of the hosts of records."""

import json
import math
from typing import Any

import numpy as np
import pytest

import memkern as mk
from memkern.cli.measuring import marks, tell_host
from memkern.engine.placing import run
from memkern.results.hosts import host_sentence, memory_notes


def record(**changes: Any) -> dict[str, Any]:
    shares = {"core_share": 1.0, "waited_share": 0.0, "absent_share": 0.0}
    return {"state": "shared", "shared_with": "", "states": "", **shares, **changes}


def states(*of: tuple[float, float]) -> str:
    return json.dumps([{"exchange_ns": ns, "share": share} for ns, share in of])


def test_a_quiet_host_needs_no_sentence():
    assert host_sentence([]) == ""
    assert host_sentence([{}, record(state="quiet"), record(state="disturbed")]) == ""


def test_states_are_those_of_all_records():
    found = host_sentence(
        [
            record(states=states((60.0, 0.9), (215.0, 0.1))),
            record(states=states((64.0, 0.7), (40.0, 0.3))),
            record(),
        ]
    )
    assert found.startswith(
        "this host is shared: its processors exchange a line in 62 ns 80% of the time and in "
        "40 ns 15% of the time and in 215 ns 5% of the time; "
    )
    # A single state is not reported.
    assert "exchange" not in host_sentence([record(states=states((60.0, 1.0)))])


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"core_share": 0.76}, "its cores have 76% of their best throughput"),
        ({"waited_share": 0.03}, "workers waited for 3% of the time"),
        ({"absent_share": 0.2}, "the hypervisor took processors away for 20% of the time"),
        ({"shared_with": "sh (process 7)"}, "this host is shared with sh;"),
    ],
)
def test_what_is_known_of_the_cause_is_told(changes, text):
    quiet = record(state="quiet", core_share=1.0)
    assert text in host_sentence([quiet, record(**changes), record(**changes)])
    assert text not in host_sentence([record(), record(core_share=math.nan)])


def test_what_delays_memory_is_told(capsys):
    unknown = dict.fromkeys(("memory_errors", "moved_pages", "misplaced_share"), math.nan)
    assert memory_notes({}) == memory_notes(unknown) == {}
    assert memory_notes({**unknown, "misplaced_share": 0.02}) == {}
    every = {"memory_errors": 1.0, "moved_pages": 12.0, "misplaced_share": 0.5}
    records = [{"valid": True, **every}, {"valid": True, "moved_pages": 3.0}]
    assert marks(records[0]) == [*every]
    tell_host(mk.ResultSet(records, [np.ones(1)] * 2, {}), quiet=False)
    told = capsys.readouterr().err
    assert "in 1 of 2 records the memory corrected errors" in told
    assert "in 2 of 2 records the kernel moved pages between NUMA nodes" in told
    assert "in 1 of 2 records pages are on another NUMA node" in told


def test_records_have_what_delays_memory(monkeypatch):
    counts = iter([(5, 2), (7, 2), (7, 2), (8, 6)])
    names = ("memory_errors", "moved_pages")
    monkeypatch.setattr(run, "memory_counters", lambda: dict(zip(names, next(counts), strict=True)))
    case = mk.stream("copy", elements=1024, threads=1, budget_s=0.01, placements=2)
    record = case.measure().record
    assert (record["memory_errors"], record["moved_pages"]) == (3, 4)
    # It is unknown on a described machine.
    assert math.isnan(record["misplaced_share"])


@pytest.mark.usefixtures("this_machine")
def test_pages_are_on_the_nodes_of_their_workers():
    assert (
        not mk.stream("copy", elements=2**20, threads=1, runs=1).measure().record["misplaced_share"]
        > 0
    )  # NaN where the system does not tell it
