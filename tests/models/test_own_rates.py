"""Bandwidths of the same machine that one is set against: channels, streams, loads in flight."""

import math
from typing import Any

import pytest

from memkern.models.answers import own_rates

ENVIRONMENT = {"machine": {"cores": 2}}


def stream(kernel: str, GBps: float, **columns: Any) -> dict[str, Any]:
    common = {"valid": True, "disturbed": False, "caches_multiple": 4.0, "threads": 4}
    return {"kernel": kernel, "bandwidth_GBps": GBps, **common, **columns}


def chase(chains: int, ns: float, **columns: Any) -> dict[str, Any]:
    own = {"chains": chains, "ns_per_access": ns, "order": "random", "size_B": 2**26, "line_B": 64}
    return stream("latency.chase", math.nan, **{"threads": 1, **own, **columns})


COPY = stream("stream.copy", 20.0)


def test_a_bandwidth_is_set_against_the_best_of_the_same_run():
    records = [COPY, stream("stream.triad", 24.0), stream("loops.load", 25.0)]
    (best,) = own_rates(COPY, records, ENVIRONMENT, math.nan)
    assert (best.name, best.GBps) == ("best", 25.0)
    assert best.beside(20.0) == "80 % of the 25 GB/s of the best of copy, load and triad (load)"
    # The best one has nothing to be set against, and neither has a kernel alone.
    assert own_rates(records[2], records, ENVIRONMENT, math.nan) == []
    assert own_rates(COPY, [COPY], ENVIRONMENT, math.nan) == []


@pytest.mark.parametrize(
    "change", [{"disturbed": True}, {"valid": False}, {"caches_multiple": 1.0}, {"threads": 1}]
)
def test_only_sure_records_from_memory_with_as_many_threads_count(change):
    other = stream("loops.load", 25.0, **change)
    assert own_rates(COPY, [COPY, other], ENVIRONMENT, math.nan) == []
    if "threads" not in change:
        chases = [chase(1, 100.0), chase(32, 5.0, **change)]
        assert own_rates(COPY, chases, ENVIRONMENT, math.nan) == []


def test_loads_in_flight_sustain_lines_over_the_latency():
    """Little's law: 20 lines of 64 B in 100 ns are 12.8 GB/s by each of two cores."""
    records = [chase(1, 2.0, size_B=2**14), chase(1, 100.0), chase(8, 12.5), chase(32, 5.0)]
    records += [chase(32, 1.0, order="pairs"), chase(32, 0.1, size_B=2**14)]
    (rate,) = own_rates(COPY, records, ENVIRONMENT, math.nan)
    assert (rate.name, rate.GBps) == ("in flight", pytest.approx(25.6))
    assert "2 cores can sustain (20 lines of 64 B)" in rate.what
    assert rate.beside(51.2).startswith("200 % of the 25.6 GB/s of the loads in flight")
    # Streams with prefetchers have more.
    assert own_rates(COPY | {"bandwidth_GBps": 26.0}, records, ENVIRONMENT, math.nan) == []
    (alone,) = own_rates(
        COPY | {"threads": 1, "bandwidth_GBps": 9.0}, records, ENVIRONMENT, math.nan
    )
    assert alone.GBps == pytest.approx(12.8) and "1 core can sustain" in alone.what
    assert own_rates(COPY, records[:2], ENVIRONMENT, math.nan) == []


def test_channels_are_told_where_their_rate_is_known():
    (peak,) = own_rates(COPY, [], {}, 80.0)
    assert peak.beside(20.0) == "25 % of the 80 GB/s of channels x rate"
