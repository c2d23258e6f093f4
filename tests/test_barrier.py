"""The barrier's cost: every kind in a process of its own."""

from __future__ import annotations

import pytest

from memkern.barrier import KINDS, barrier_cost
from memkern.errors import InputError


def test_every_kind_is_measured() -> None:
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
    assert len(results.environments) >= 1


def test_wrong_barriers_are_refused() -> None:
    with pytest.raises(InputError, match="'sleep' is not one of"):
        barrier_cost([1], kinds=["sleep"])
    with pytest.raises(InputError, match="pin"):
        barrier_cost([1], kinds=["spin"], pin="sideways")
    with pytest.raises(InputError, match="must name a barrier"):
        barrier_cost([1], kinds=[])
