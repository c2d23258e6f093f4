"""Findings of memkern doctor: judgements of samples, records, caches and a baseline."""

import json
import math
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import memkern as mk
from memkern.engine.placing.watching import CoreWatch
from memkern.engine.sampling import series as sampling
from memkern.engine.sampling.activity import Activity
from memkern.host import Host
from memkern.host.distances import packaged
from memkern.host.rates import CoreRates
from memkern.machine.health import BAD, GOOD, NOTE, UNKNOWN, Finding
from memkern.machine.smbios import Module, Population
from memkern.statistics import half_width
from memkern.studies import doctor as doctoring
from memkern.studies import doctor_findings
from memkern.studies.doctor import (
    against,
    cache_sizes,
    core_findings,
    loads_beside_triad,
    other_programs,
    share_of_peak,
    steal_time,
)


def watched(n: int = 200, **columns: Any) -> Any:
    """Return a watch of equal samples of a millisecond, except for the given columns."""
    values: dict[str, Any] = dict.fromkeys(("seconds", *sampling.CONDITIONS), 0.0)
    values |= {"seconds": 1e-3, "cpu_share": 1.0, "throughput": 2.0, "clock_Hz": 3e9}
    values |= dict.fromkeys(("exchange_s", "exchange_least_s"), 5e-8)
    watch = CoreWatch(Host())
    watch.watched_s = 0.2
    watch._judge = SimpleNamespace(cores="2", exchanging="exchanges between units 0,1")
    given = {name: columns.get(name, value) for name, value in values.items()}
    watch._rows = [np.column_stack([np.broadcast_to(value, n) for value in given.values()])]
    return watch


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Finding]]:
    """Return a function that judges a watch on a machine whose best rates are known."""

    def findings(watch: Any, hypervisor: str | None = None) -> dict[str, Finding]:
        known = CoreRates()
        known.add(np.linspace(1.98, 2.0, 50), "2")
        with np.errstate(divide="ignore"):
            known.add(1 / watch.column("exchange_s"), "exchanges between units 0,1")
        monkeypatch.setattr(watch._host, "cores", known)
        found = core_findings(watch, {"machine": {"hypervisor": hypervisor, "caches": CACHES}})
        for finding in found:
            assert bool(finding.advice) == (finding.state != GOOD)
        return {finding.subject: finding for finding in found}

    return findings


CACHES = [
    {"level": level, "size_B": 2**size, "type": "unified", "instances": 1}
    for level, size in ((1, 15), (2, 20), (3, 25))
]


def some(value: float, share: float, otherwise: float, n: int = 200) -> np.ndarray:
    """Return `value` in a share of the samples, `otherwise` in the others."""
    return np.where(np.arange(n) < round(share * n), value, otherwise)


def test_quiet_cores_are_good(judged):
    found = judged(watched())
    assert {finding.state for finding in found.values()} == {GOOD}
    assert "100.0% of the time" in found["processor time"].text
    assert "100% of their best" in found["core share"].text
    assert "3.00 GHz" in found["clock"].text
    assert "50 ns 100% of the time" in found["exchanges"].text
    within = math.sinh(packaged("memory, 1 thread, 10 placements").floor.within())
    text = found["next runs"].text
    levels = ", ".join(rf"{name} (?:±[\d.]+%|×÷[\d.]+)" for name in ("L1", "L2", "L3", "memory"))
    assert re.search(f"within {levels} by one thread and L1 ", text)
    assert f"memory {half_width(within, '±{}%')} by one thread" in text


def test_without_samples_nothing_is_known(judged):
    unknown = dict.fromkeys(("cpu_share", "throughput", "clock_Hz", "exchange_s"), math.nan)
    for watch in (watched(0), watched(**unknown)):
        found = judged(watch)
        assert found.pop("next runs").state == GOOD
        assert {finding.state for finding in found.values()} == {UNKNOWN}


def test_unknown_run_queue_delays_are_a_finding():
    assert doctoring.run_queue_delays(True).state == GOOD
    found = doctoring.run_queue_delays(False)
    assert found.state == UNKNOWN
    assert "CPU time against wall time" in found.text and found.advice


@pytest.mark.parametrize(
    "subject, column, value, share, state",
    [
        ("core share", "throughput", 1.8, 0.04, GOOD),
        ("core share", "throughput", 1.8, 0.4, NOTE),
        ("core share", "throughput", 1.92, 0.9, GOOD),
        ("clock", "clock_Hz", 2.9e9, 0.5, GOOD),
        ("clock", "clock_Hz", 2.7e9, 0.5, NOTE),
        ("clock", "clock_Hz", 2.0e9, 0.5, BAD),
    ],
)
def test_cores_by_the_share_of_probes(judged, subject, column, value, share, state):
    usual = {"throughput": 2.0, "clock_Hz": 3e9}[column]
    watch = watched(**{column: some(value, share, usual)})
    found = judged(watch)
    assert found.pop(subject).state == state
    assert {finding.state for finding in found.values()} == {GOOD}
    # The clock of a virtual machine can't be fixed from inside.
    if state == BAD:
        in_machine = judged(watch, "KVM")["clock"]
        assert in_machine.state == NOTE and "cpupower" not in in_machine.advice


@pytest.mark.parametrize(
    "away, waited, state",
    [
        (0.005, 0.005, GOOD),
        (0.02, 0.02, NOTE),
        (0.25, 0.25, BAD),
        # The hypervisor, or a cause unknown to the system, took the processors.
        (0.25, 0.0, NOTE),
        (0.25, math.nan, BAD),
    ],
)
def test_waits_are_worse_than_absence(judged, away, waited, state):
    found = judged(watched(cpu_share=1 - away, waited_share=waited))
    assert found["processor time"].state == state


def test_a_long_wait_counts_by_its_duration(judged):
    seconds, share = some(0.1, 0.005, 1e-3), some(0.01, 0.005, 1.0)
    watch = watched(seconds=seconds, cpu_share=share, waited_share=1 - share)
    assert judged(watch)["processor time"].state == BAD


def test_states_of_the_host_are_told_with_their_shares(judged):
    exchange_s = some(2e-7, 0.25, 5e-8)
    found = judged(watched(exchange_s=exchange_s, exchange_least_s=exchange_s))["exchanges"]
    assert found.state == NOTE
    assert "in 50 ns 75% of the time, in 200 ns 25% of the time, each for 0.2 s" in found.text


def test_next_runs_on_a_shared_host_vary_more(judged):
    found = judged(watched(throughput=1.4))["next runs"]
    assert found.state == NOTE and "memory ×÷1.4 by one thread" in found.text


@pytest.mark.parametrize(
    "others, processors, state, text",
    [
        ((), 0.02, GOOD, "0.02 processors"),
        ((), -0.01, GOOD, "0.00 processors"),
        ((), 0.3, NOTE, "0.30 processors"),
        ((), 0.9, BAD, "0.90 processors"),
        (((7994, "sh", 1),), 0.02, NOTE, "sh (process 7994) ran"),
        (((7994, "sh", 1),), 0.2, BAD, "sh (process 7994) ran"),
        (((7994, "sh", 1),), math.nan, BAD, "sh (process 7994) ran"),
        ((), math.nan, UNKNOWN, "nothing else was seen"),
    ],
)
def test_other_programs(others, processors, state, text):
    found = other_programs(Activity(others, 0.0), processors)
    assert found.state == state and text in found.text
    assert bool(found.advice) == (state != GOOD)


@pytest.mark.parametrize(
    "share, state", [(0.0, GOOD), (0.005, GOOD), (0.05, NOTE), (0.3, NOTE), (math.nan, UNKNOWN)]
)
def test_steal_time(share, state):
    found = steal_time(share)
    assert found.state == state
    assert bool(found.advice) == (state != GOOD)


@pytest.mark.parametrize(
    "model_B, hypervisor, modules, state, text",
    [
        (16e9, None, 1, GOOD, "16.0 GB/s are 62% of the theoretical peak of 25.6 GB/s"),
        (8e9, None, 1, NOTE, "31%"),
        (30e9, None, 1, UNKNOWN, "miscounted"),
        (16e9, "Amazon EC2", 1, UNKNOWN, "unknown"),
        (16e9, None, 0, UNKNOWN, "unknown"),
    ],
)
def test_share_of_peak(model_B, hypervisor, modules, state, text):
    module = Module(2**34, "DDR4", 3200, 3200, "DIMM_A1", "")
    memory = Population((module,) * modules, (), modules, "by EDAC")
    records = [
        {"kernel": kernel, "bytes_model_B": B, "time_median_s": 1.0, "disturbed": False}
        for kernel, B in (("stream.triad", model_B), ("loops.load", 4e9), ("latency.chase", 4e99))
    ]
    machine = {"machine": {"hypervisor": hypervisor}}
    found = share_of_peak(records, machine, memory)
    assert found.state == state and text in found.text
    assert share_of_peak(records, machine, None).state == UNKNOWN
    # A disturbed record is ignored if there is another, and gives no result alone.
    records[0]["disturbed"] = True
    if hypervisor is None and modules:
        assert "4.0 GB/s" in share_of_peak(records, machine, memory).text
    records[1]["disturbed"] = True
    assert share_of_peak(records, machine, memory).state == UNKNOWN
    assert share_of_peak([], machine, memory).state == UNKNOWN


@pytest.mark.parametrize(
    "changes, state, text",
    [
        ({}, GOOD, "2.0% standard deviation over 3 placements"),
        ({"placement_sd": 0.08}, NOTE, "8.0%"),
        ({"placement_sd": 0.3}, NOTE, "30.0%"),
        ({"placement_sd": 0.3, "state": "shared"}, NOTE, "over 3 placements in memory"),
        ({"placement_sd": math.nan}, UNKNOWN, "placed once"),
        ({"disturbed": True, "shared_with": "sh (process 9)"}, BAD, "beside sh (process 9)"),
        ({"disturbed": True}, BAD, "waited for processors"),
        ({"valid": False}, BAD, "results are wrong"),
    ],
)
def test_records_are_judged_by_their_spread(changes, state, text):
    record = {
        "kernel": "loops.load", "threads": 2, "footprint_B": 2**27, "valid": True,
        "disturbed": False, "state": "quiet", "shared_with": "", "placement_sd": 0.02,
        "placements": 3, "bandwidth_median_GBps": 25.0,
    }  # fmt: skip
    measurement = mk.Measurement(record | changes, np.ones(1), {})
    found = doctoring.measured("loops.load", measurement, "")
    assert (found.subject, found.state) == ("load", state)
    assert text in found.text and "25.0 GB/s with 2 threads in 128 MiB" in found.text
    # The state of the host is said once, not by each finding.
    assert "host is shared" not in found.text


def test_a_long_latency_is_noted():
    record = {
        "kernel": "latency.chase", "threads": 1, "footprint_B": 2**27, "valid": True,
        "disturbed": False, "state": "quiet", "placement_sd": 0.01, "placements": 3,
    }  # fmt: skip
    for ns, judged in ((110.0, GOOD), (320.0, NOTE)):
        measurement = mk.Measurement(record | {"ns_per_access": ns}, np.ones(1), {})
        found = doctoring.measured("latency.chase", measurement, "")
        assert found.state == judged and bool(found.advice) == (judged == NOTE)
        assert ("less than 200 ns" in found.text) == (judged == NOTE)


@pytest.mark.parametrize(
    "measured, state, text",
    [
        (None, UNKNOWN, "follow the caches that the system reports"),
        ({"L1": 2**15, "L3": 2**25}, GOOD, "measured latencies of L1, L3"),
        ({"L1": 2**15, "L3": 2**23}, NOTE, "from 8192 KiB on, while the system reports 32768 KiB"),
        ({"L2": 2**20}, GOOD, "measured latencies of L2"),
    ],
)
def test_measured_caches_beside_those_of_the_system(measured, state, text):
    # Cores of two kinds have an L2 of 2 MiB or of 1 MiB.
    caches = [
        {"level": level, "size_B": size_B, "type": kind, "instances": 1}
        for level, size_B, kind in (
            (1, 2**15, "data"), (1, 2**15, "instruction"), (2, 2**21, "unified"),
            (2, 2**20, "unified"), (3, 2**25, "unified"),
        )
    ]  # fmt: skip
    machine: dict[str, Any] = {"machine": {"caches": caches}}
    if measured is not None:
        machine["measured_caches"] = {"sizes_B": measured}
    found = cache_sizes(machine)
    assert found.state == state and text in found.text
    assert bool(found.advice) == (state != GOOD)
    assert "L2" not in found.text or state == GOOD


def test_caches_that_are_not_reported_are_named():
    caches = [{"level": level, "size_B": 2**15 * level, "instances": 1} for level in (1, 2)]
    machine = {"machine": {"caches": caches}, "measured_caches": {"sizes_B": {"L3": 2**25}}}
    found = cache_sizes(machine)
    assert found.state == NOTE and found.text.endswith("reports no KiB of L3")
    assert "from 32768 KiB on" in found.text


def test_what_was_not_measured_is_unknown():
    found = doctoring.measured("latency.chase", None, "")
    assert found.state == UNKNOWN and "time was over" in found.text


def results_of(
    seconds: float, sd: float = 0.001, environment: str = "x", **changes: Any
) -> mk.ResultSet:
    """Return records of doctor's kernels that were placed five times."""
    records = [
        {
            "kernel": kernel, "case_columns": "", "time_median_s": seconds, "time_min_s": seconds,
            "bytes_B": 10**9, "placements": 5, "placement_sd": sd, "valid": True,
            "disturbed": False, "environment_id": environment, **changes,
        }
        for kernel in ("loops.load", "stream.triad", "latency.chase")
    ]  # fmt: skip
    return mk.ResultSet(records, [np.ones(1)] * 3, {environment: {"machine": changes}})


def test_slow_loads_are_measured_again_in_turns(monkeypatch):
    def in_turns(found: mk.ResultSet, cases: Any, groups: Any, time_s: float) -> None:
        assert [[record["kernel"] for record in group] for group in groups] == [
            ["stream.triad", "loops.load"]
        ]
        for record in found:
            record["turns_s"] = json.dumps({"now": [[1.0] * 3] * 4})

    monkeypatch.setattr(doctor_findings, "add_turns", in_turns)
    results = results_of(1.0, bandwidth_GBps=32.0)
    for number, record in enumerate(results):
        record |= {"case_id": f"{number}", "bandwidth_median_GBps": 32.2}
    assert loads_beside_triad(results, []) == []
    results[0]["bandwidth_median_GBps"] = 14.2
    (found,) = loads_beside_triad(results, [])
    assert found.state == NOTE and "in turns, loads have 1.00 ± 0.01 times" in found.text
    assert loads_beside_triad(results_of(1.0).filter(kernel="loops.load"), []) == []


def test_the_comparison_with_a_baseline():
    same = against(results_of(1.0), results_of(1.0))
    assert (same.state, same.advice) == (GOOD, "")
    assert "all cases in the range" in same.text and "1 earlier look, 1 round" in same.text
    slower = against(results_of(1.0), results_of(9.0))
    assert slower.state == BAD and "all cases slower (+" in slower.text
    assert "faster (-" in against(results_of(9.0), results_of(1.0)).text
    assert against(results_of(1.0), results_of(9.0, disturbed=True)).state == UNKNOWN
    assert against(results_of(1.0), mk.ResultSet([], [])).state == UNKNOWN
    other = results_of(1.0, environment="y", vendor="A")
    assert "machine.vendor: None (most: A)" in against(other, results_of(1.0)).text
