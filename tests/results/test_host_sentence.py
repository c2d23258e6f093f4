"""The sentence about the states of the hosts of records."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from memkern.results.hosts import host_sentence


def record(**changes: Any) -> dict[str, Any]:
    shares = {"core_share": 1.0, "waited_share": 0.0, "absent_share": 0.0}
    return {"state": "shared", "shared_with": "", "states": "", **shares, **changes}


def states(*of: tuple[float, float]) -> str:
    return json.dumps([{"exchange_ns": ns, "share": share} for ns, share in of])


def test_a_quiet_host_needs_no_sentence() -> None:
    assert host_sentence([]) == ""
    assert host_sentence([{}, record(state="quiet"), record(state="disturbed")]) == ""


def test_states_are_those_of_all_records() -> None:
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
def test_what_is_known_of_the_cause_is_told(changes: dict[str, Any], text: str) -> None:
    quiet = record(state="quiet", core_share=1.0)
    assert text in host_sentence([quiet, record(**changes), record(**changes)])
    assert text not in host_sentence([record(), record(core_share=math.nan)])
