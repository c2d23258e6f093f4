"""Costs beside a record: launches, bandwidths from memory, and when they are measured again."""

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import memkern as mk
from memkern import cli
from memkern.engine.placing import costs
from memkern.engine.placing.costs import launch_cost_s
from memkern.engine.placing.run import CaseRun
from memkern.engine.recording.record import CEILINGS, LAUNCH, Need
from memkern.engine.sampling import series
from memkern.engine.sampling.prepared import Prepared
from memkern.errors import InputError
from memkern.host import Capacity, Host, this_host
from memkern.host.environment import machine_environment
from memkern.spec.case import Case
from memkern.spec.kernel import Ceilings


def test_short_cases_report_the_time_without_the_launch():
    # A single thread waits for no others: its shortest sample is short on busy machines too.
    short = mk.gather([0, 1], count=2, threads=1, variant="scalar", budget_s=0.1).measure().record
    net_s = short["time_min_s"] - short["launch_s"]
    assert short["time_net_s"] == net_s if net_s > 0 else np.isnan(short["time_net_s"])
    long = mk.gather("UNIFORM:8:1:NR", count=2**16, threads=1, runs=3).measure().record
    assert np.isnan(long["time_net_s"])
    launch_s = launch_cost_s(1, "auto", "fork")
    assert long["launch_s"] == launch_s > 0
    # Its four kernels are launched one by one.
    rotation = mk.stream(elements=64, threads=1, runs=3).measure()
    assert rotation.record["launch_s"] == 4 * launch_s
    assert [part.record["launch_s"] for part in rotation.parts] == [launch_s] * 4
    assert rotation.record["time_net_s"] == rotation.record["time_min_s"] - 4 * launch_s


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """Return a host of which nothing is known, with small caches."""
    monkeypatch.setattr(costs, "capacity", lambda host: Capacity(2**20, 2**20, 2**20))
    return Host()


CEILINGS_OF_ONE = Need(CEILINGS, (1, "auto", "default"))


def test_ceilings_are_the_largest_since_the_boot(host, monkeypatch):
    measured: dict[str, float] = {}

    def best(_: Host, which: str, rates: Mapping[str, float]) -> dict[str, float]:
        assert which == "1 auto default 1"
        measured.update(rates)
        return {"load": 4 * rates["load"], "triad": 2 * rates["triad"]}

    monkeypatch.setattr(Host, "best_rates", best)
    found = costs.measured(CEILINGS_OF_ONE, host)
    assert found.load_GBps == 4 * measured["load"] > 0
    assert found.triad_GBps == 2 * measured["triad"] > 0
    assert found.ceiling_share == 0.25
    assert found.times(3).load_GBps == 3 * found.load_GBps
    assert found.times(3).ceiling_share == 0.25


def test_ceilings_fit_into_a_small_memory(host, monkeypatch):
    sizes_B: list[float] = []

    def sized(kernel: str, footprint_B: float, **knobs: Any) -> Case:
        sizes_B.append(footprint_B)
        return mk.case(kernel, footprint_B=2**16, **knobs)

    monkeypatch.setattr(costs, "case", sized)
    monkeypatch.setattr(costs, "memory_left", lambda: (6 * 2**20, "the group"))
    assert costs.measured(CEILINGS_OF_ONE, host).load_GBps > 0
    assert sizes_B == [2 * 2**20, 3 * 2**20]
    monkeypatch.setattr(costs, "memory_left", lambda: (4 * 2**20, "the group"))
    assert math.isnan(costs.measured(CEILINGS_OF_ONE, Host()).load_GBps)
    assert len(sizes_B) == 2


def test_a_case_has_what_its_record_needs_before_its_first_sample(host, monkeypatch):
    monkeypatch.setitem(costs._MEASURES, CEILINGS, lambda *_: Ceilings(20.0, 15.0, 10.0))
    run = CaseRun(mk.case("spmv.crs", matrix="hpcg:4", threads=1, runs=1), host=host)
    sample = series.sample

    def checked(prepared: Prepared, *others: Any, **options: Any) -> None:
        if prepared.case is run.case and "candidates" not in options:
            assert {need.kind for need in host.measured} == {LAUNCH, CEILINGS}
        sample(prepared, *others, **options)

    monkeypatch.setattr(series, "sample", checked)
    run.place()
    before = dict(host.measured)
    run.measurement(machine_environment(), spread=run.spread(machine_environment()))
    assert host.measured == before


def test_costs_of_options_that_are_refused_by_now_are_unknown(host, monkeypatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise InputError("pin names processing unit 1, which this process may not use")

    monkeypatch.setattr(costs, "ready", refuse)
    assert math.isnan(costs.measured(Need(LAUNCH, (1, "1", "fork")), host))
    assert math.isnan(costs.measured(CEILINGS_OF_ONE, host).load_GBps)


@pytest.mark.usefixtures("host")
def test_costs_by_disturbed_samples_are_unknown_and_measured_again(monkeypatch, capsys):
    monkeypatch.setattr(costs, "_AGAIN_SHARE", math.inf)
    this_host().measured = {}
    product = mk.case("spmv.crs", matrix="hpcg:4", threads=1, variant="scalar", runs=3)
    bandwidths = ("load_GBps", "triad_GBps", "store_GBps")
    with monkeypatch.context() as patch:
        patch.setattr(series, "disturbed_samples", lambda share, *_: share == share)
        assert np.isnan(launch_cost_s(0, "none", "fork"))
        with pytest.warns(UserWarning, match="records have no roofline, because"):
            record = product.measure().record
        assert all(np.isnan(record[name]) for name in (*bandwidths, "roofline_fraction"))
        assert record["machine_file"] == ""
        assert cli.main(["info"]) == 0
        assert "parallel region takes an unknown time (disturbed)" in capsys.readouterr().out
        assert mk.describe()["launch_s"] is None
    assert launch_cost_s(0, "none", "fork") == launch_cost_s(0, "none", "fork") > 0
    record = product.measure().record
    assert all(record[name] > 0 for name in (*bandwidths, "roofline_fraction"))


def test_costs_by_disturbed_samples_are_not_measured_for_every_record(monkeypatch):
    now_s, calls = 0.0, 0
    monkeypatch.setattr(costs, "time", SimpleNamespace(perf_counter=lambda: now_s))

    def measure(host: Host, disturbed: bool) -> float:
        nonlocal now_s, calls
        calls += 1
        now_s += 1.0
        if disturbed:
            raise costs._DisturbedError
        return 1.0

    monkeypatch.setitem(costs._MEASURES, LAUNCH, measure)
    host = Host()

    def cost_s(disturbed: bool) -> float:
        return float(costs.measured(Need(LAUNCH, (disturbed,)), host))

    assert [cost_s(False) for _ in range(3)] == [1.0] * 3 and calls == 1
    assert all(math.isnan(cost_s(True)) for _ in range(3)) and calls == 2
    # Measuring again takes at most a twentieth of the time.
    now_s = 21.9
    assert math.isnan(cost_s(True)) and calls == 2
    now_s = 22.0
    assert math.isnan(cost_s(True)) and calls == 3
