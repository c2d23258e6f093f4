"""Sentences on whether what was measured is healthy, and on what bounds it."""

import math
import re
from typing import Any

import pytest

from memkern.models.answers import (
    health_sentence,
    is_healthy,
    limit_sentence,
    most_of_a_core_GBps,
    peer_sentence,
)
from memkern.models.expected import expected

COPY: dict[str, Any] = {
    "kernel": "stream.copy", "backend": "openmp", "threads": 4, "bandwidth_GBps": 40.0,
    "caches_multiple": 4.0, "valid": True, "disturbed": False, "doctor": "",
    "environment_id": "e1",
}  # fmt: skip
CHASE = {
    **COPY, "kernel": "latency.chase", "ns_per_access": 120.0, "order": "random", "chains": 1,
}  # fmt: skip


def test_bandwidths_of_many_cores_are_in_full():
    many = {**COPY, "threads": 400, "bandwidth_GBps": 99999.0}
    text = health_sentence([many], {"e1": {"machine": {"cores": 400}}})
    assert "better than is known" in text and "e+" not in text


def test_without_a_range_that_decides_there_is_no_verdict():
    text = health_sentence([COPY])
    assert text.startswith(
        "copy 40 GB/s: no verdict, since no value of this processor is published"
    )
    assert "40.0 GB/s" not in text and "to" not in text.split()
    triad = {**COPY, "kernel": "stream.triad", "bandwidth_GBps": 30.0}
    chases = [CHASE, {**CHASE, "chains": 32, "ns_per_access": 3.0}]
    chases = [{**one, "threads": 1, "size_B": 2**26, "line_B": 64} for one in chases]
    two = {"e1": {"machine": {"cores": 2}, "memory": {"peak_GBps": 100.0}}}
    text = health_sentence([{**COPY, "bandwidth_GBps": 28.0}, triad, *chases], two)
    assert (
        text.startswith("triad 30 GB/s: no verdict") and "30 % of the 100 GB/s of channels" in text
    )
    assert "1.4 times" not in text and "70 % of the 42.7 GB/s of the loads in flight" in text
    wide = {**COPY, "time_min_ci_relative": 0.36, "bandwidth_GBps": 37.74}
    assert health_sentence([wide]).startswith("copy 38 GB/s: no verdict")
    # A part of a socket has as much as others leave.
    part = {"e1": {"machine": {**EPYC["machine"], "cores": 2, "hypervisor": "kvm"}}}
    text = health_sentence([{**COPY, "kernel": "loops.load", "threads": 2}], part)
    assert "no verdict, since others may use the rest of the socket" in text
    assert is_healthy([COPY], two)
    # No core has that much from memory, nor more than the modules' peak.
    for GBps, environment in (
        (1.01 * 4 * most_of_a_core_GBps(), {}),
        (42.0, {"machine": {"cores": 4}, "memory": {"peak_GBps": 41.0}}),
    ):
        far = [COPY, {**COPY, "bandwidth_GBps": GBps}]
        text = health_sentence(far, {"e1": environment})
        assert re.search(r": better .* memory, against 2?4[13] GB/s by (the|chan)", text)
        assert "larger size" in text
        assert not is_healthy(far, {"e1": environment}) and is_healthy([COPY], {"e1": environment})
    # The best record from memory counts, and the last verdict of memkern doctor is repeated.
    told = health_sentence([{**COPY, "bandwidth_GBps": 0.1, "doctor": "fit"}, COPY])
    assert told.startswith("copy 40 GB/s") and told.endswith("found this machine fit")


EPYC = {"machine": {"model": "AMD EPYC 7742 64-Core Processor", "cores": 64, "sockets": 1}}


def test_values_of_the_same_processor_are_preferred_if_not_disturbed():
    record = {**COPY, "kernel": "stream.triad", "variant": "nt", "threads": 64}
    known = expected("triad", EPYC, 64)
    assert known is not None and known.published and not known.shared
    text = health_sentence([{**record, "bandwidth_GBps": 1.01 * known.low}], {"e1": EPYC})
    assert f": healthy, against {known.low:.3g} to {known.high:.3g} GB/s of this processor" in text
    assert known.sources[0].title in text
    slow = {**record, "bandwidth_GBps": 0.9 * known.low}
    assert ": not healthy, against" in health_sentence([slow], {"e1": EPYC})
    fast = {**record, "bandwidth_GBps": 1.01 * known.high}
    assert ": better than is known from memory" in health_sentence([fast], {"e1": EPYC})
    assert not is_healthy([fast], {"e1": EPYC})
    # Nothing is healthy beside disturbed records, or on a machine that was disturbed.
    good = {**record, "bandwidth_GBps": 1.01 * known.low}
    for some in ([good | {"doctor": "disturbed: swap"}], [good, good | {"disturbed": True}]):
        text = health_sentence(some, {"e1": EPYC})
        assert "healthy" not in text and ": as is usual, against" in text
    # Others may use a shared host.
    guest = {"machine": {**EPYC["machine"], "hypervisor": "kvm"}}
    text = health_sentence([slow], {"e1": guest})
    assert "worse than is usual" in text and "no sign of a fault" in text


def test_latency_is_compared_with_published_ones():
    text = health_sentence([CHASE, {**CHASE, "ns_per_access": 1.0, "caches_multiple": 0.1}])
    assert text == (
        "latency of memory 120 ns: no verdict, since no value of this processor is published"
    )
    assert ": no verdict" in health_sentence([{**CHASE, "ns_per_access": 250.0}])
    for ns in (21.0, 39.0):
        assert ": better than is known from" in health_sentence([{**CHASE, "ns_per_access": ns}])
    ranges = expected("latency", EPYC, 1)
    assert ranges is not None and ranges.low > 40
    good = health_sentence([{**CHASE, "ns_per_access": 1.01 * ranges.low}], {"e1": EPYC})
    assert f"healthy, against {ranges.low:.3g} to {ranges.high:.3g} ns of this processor" in good
    near = {**CHASE, "ns_per_access": 0.99 * ranges.low}
    assert ": better than is known from memory" in health_sentence([near], {"e1": EPYC})
    hidden = [{**CHASE, "ns_per_access": 9.0, **how} for how in ({"chains": 8}, {"order": "pairs"})]
    assert "memory 120 ns" in health_sentence([CHASE, *hidden])


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"disturbed": True}, "copy 40 GB/s: whether this is"),
        ({"valid": False}, "since samples are disturbed"),
        ({"caches_multiple": 1.5}, "no data come from memory alone"),
        ({"caches_multiple": math.nan}, "no data come from memory alone"),
        ({"kernel": "amo.rand"}, "no value is known to compare it with"),
        ({"kernel": "stream.rotation"}, "no value is known to compare it with"),
        ({"backend": "cuda"}, "no value is known to compare it with"),
    ],
)
def test_why_health_can_not_be_told(changes, why):
    text = health_sentence([COPY | changes])
    assert why in text and "healthy can't be told" in text


BOUND: dict[str, Any] = {
    "valid": True, "disturbed": False, "bound": "memory", "roofline_min_fraction": 0.5,
    "machine_file": "host, 2026-01-01", "kernel": "stream.triad", "backend": "openmp",
}  # fmt: skip


def test_the_bound_is_told_with_its_share_and_how_to_know_why():
    text = limit_sentence([BOUND])
    told = "bound by memory: 50% of the roofline by host, 2026-01-01"
    assert text == f"{told}; add --explain to see why and what helps"
    for columns in ({"backend": "cuda"}, {"ranks": 2}, {"explained_by": "{}"}):
        assert limit_sentence([BOUND | columns]) == told
    near = [{**BOUND, "roofline_min_fraction": share} for share in (0.95, 0.85)]
    text = limit_sentence(near)
    assert text.startswith("bound by memory: 85% to 95% of the roofline")
    others = [{**BOUND, "bound": bound} for bound in ("L2", "core")]
    text = limit_sentence([BOUND, BOUND, *others])
    assert text.startswith("bound by memory (2 of 4 records): 50% of the roofline")
    unknown = limit_sentence([{**BOUND, "roofline_min_fraction": math.nan}])
    assert "was faster than in host" in unknown and "measure that file again" in unknown


def test_why_a_bound_can_not_be_told():
    assert limit_sentence([{**BOUND, "bound": ""}]).endswith("no record has a roofline")
    assert limit_sentence([{**BOUND, "disturbed": True}]).endswith("all records are disturbed")


def test_differences_from_a_peer_are_told():
    row = {**COPY, "variant": "nt", "isa": "avx2", "pages": "thp", "pin": "0,1"}
    text = peer_sentence("STREAM", [row, row], "both take the shortest time")
    assert text == (
        "differences from STREAM: both take the shortest time; the code is variant nt/avx2 with "
        "non-temporal stores, that of STREAM as its compiler makes it; pages are thp and workers "
        "pinned, with STREAM as the system chooses"
    )
    several = [{**row, "variant": name, "pin": "none"} for name in ("a", "b", "c", "d")]
    text = peer_sentence("Spatter", several, "x")
    assert "variant a/avx2, b/avx2, c/avx2, ..., that of" in text and "not pinned" in text
    assert peer_sentence("Spatter", [{**row, "backend": "cuda"}], "x") == ""
