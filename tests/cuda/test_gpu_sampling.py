"""Clocks, throttling, warm-up and energy of GPUs while samples are taken."""

import functools
import json
import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checking import Changed, measured, output_of, refused_words
from device_under_test import ONLY_EMULATED, Nvml

import memkern as mk
from memkern import small
from memkern.backends import GPUS
from memkern.engine.placing import costs
from memkern.engine.placing import preparing as variants
from memkern.engine.placing.run import CaseRun
from memkern.engine.processes import communication
from memkern.engine.processes.communication import ranks
from memkern.engine.recording import record as recording
from memkern.engine.recording.record import DEVICE_CEILINGS, DEVICE_LAUNCH, Need
from memkern.engine.sampling import series as sampling
from memkern.engine.sampling.prepared import Prepared
from memkern.engine.sweeping import planning
from memkern.host import Host, this_host
from memkern.host.environment import machine_environment
from memkern.machine import gpu, restoring, settings
from memkern.studies import comparison_worker


def test_the_drivers_copy_is_not_timed_while_another_thread_measures(monkeypatch):
    free = []

    def try_to_measure() -> None:
        free.append(communication._lock.acquire(blocking=False))
        if free[-1]:
            communication._lock.release()

    def copies(name: str) -> float:
        other = threading.Thread(target=try_to_measure)
        other.start()
        other.join()
        return 1.0

    monkeypatch.setattr(gpu, "copy_GBps", copies)
    assert costs.copy_GBps("cuda:0") == 1.0
    assert free == [False]


def test_nvml_is_optional(nvml, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with gpu.Watch("cuda:0") as watch:
        assert not watch.slowed([0.0, 1.0]).any()
    found = watch.columns
    assert np.isnan(found["gpu_clock_GHz"]) and found["gpu_throttle"] == ""
    assert np.isnan(watch.power_W(0.0)) and np.isnan(gpu.idle_W("cuda:0", 0))
    assert gpu.clocks_MHz("cuda:0") == []


def test_clocks_and_throttling_are_read_while_kernels_run(nvml):
    states = iter([0x1, 0x4, 0x20, 0x4])
    nvml.reasons = lambda: next(states, 0x4)
    with gpu.Watch("cuda:0") as watch:
        time.sleep(0.05)
    # The first reading, of an idle device, is left out.
    assert watch.columns == {
        "gpu_clock_GHz": 1.98,
        "gpu_memory_clock_GHz": 3.201,
        "gpu_throttle": "power cap, temperature",
    }
    assert watch.power_W(0.0) == 350


def test_readings_count_by_their_times(nvml):
    watch = gpu.Watch("cuda:0")
    # The thread started the reading at time 2 before the one at time 3, and finished it later.
    watch._readings = [gpu.Reading(at, 1.0, 1.0, reasons, 1.0) for at, reasons in
                       ((1.0, 0), (3.0, 0), (2.0, 0x8), (4.0, 0), (5.0, 0))]  # fmt: skip
    assert watch.slowed([0.5, 1.5, 2.5, 3.5]).tolist() == [False, True, False, False]


@pytest.mark.parametrize("name", ["CurrentClocksEventReasons", "CurrentClocksThrottleReasons"])
def test_reasons_are_read_by_either_name(name, nvml, monkeypatch):
    # Versions of NVML have one of these functions only.
    monkeypatch.setattr(Nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", property())
    nvml.settings = {name: 0x40}
    assert gpu.readings("cuda:0")["throttle"] == "hardware temperature"
    with gpu.Watch("cuda:0") as watch:
        pass
    assert watch.columns["gpu_throttle"] == "hardware temperature"


def test_costs_are_not_kept_from_a_gpu_that_slows_down(nvml, monkeypatch):
    # Arrays of a few KiB instead of many MiB.
    about = {**gpu.facts("cuda:0"), "l2_B": 2**12}
    monkeypatch.setattr(gpu, "facts", functools.cache(lambda name: about))
    launch = Need(DEVICE_LAUNCH, ("cuda:0", "host", 0))
    ceilings = Need(DEVICE_CEILINGS, ("cuda:0",))
    host = Host()
    nvml.reasons = lambda: 0x40
    assert np.isnan(costs.measured(launch, host))
    assert np.isnan(costs.measured(ceilings, host)["read"])
    host = Host()
    nvml.reasons = lambda: 0
    assert costs.measured(launch, host) > 0
    assert costs.measured(ceilings, host)["read"] > 0


def test_samples_of_a_gpu_that_slows_down_are_repeated(nvml, monkeypatch):
    # Read only at the beginning and after each block of samples.
    monkeypatch.setattr(gpu, "_INTERVAL_S", 60.0)
    case = mk.stream("copy", elements=1000, device="cuda", runs=30, placements=1)
    # A power limit is part of a device's normal operation.
    nvml.reasons = lambda: 0x4
    record = case.measure().record
    assert (record["samples"], record["samples_disturbed"]) == (30, 0)
    assert record["gpu_throttle"] == "power cap"

    # Hot during the first samples, which are repeated.
    read = iter([0x40, 0x40])
    nvml.reasons = lambda: next(read, 0)
    record = case.measure().record
    assert record["samples"] == 30 and record["samples_disturbed"] >= 30
    assert not record["disturbed"] and record["gpu_throttle"] == "hardware temperature"

    # Always hot: the samples are kept, and the record is marked as disturbed.
    nvml.reasons = lambda: 0x8
    record = case.with_(budget_s=0.05).measure().record
    assert record["disturbed"] and record["samples"] > 0
    assert record["samples_disturbed"] >= record["samples"]
    assert record["shared_with"] == "" and record["gpu_throttle"] == "hardware"


def test_trials_of_a_gpu_that_slows_down_are_repeated(nvml, monkeypatch):
    monkeypatch.setattr(gpu, "_INTERVAL_S", 60.0)
    dot = mk.case("bs.bs4", elements=64, device="cuda").prepare()
    candidates = [(variant, dot.obtained["isa"]) for variant in ("one-kernel", "two-kernel")]
    # Hot during the first trials of both candidates.
    read = iter([0x40] * 3)
    nvml.reasons = lambda: next(read, 0)
    trials: list[str] = []

    def run(_: int) -> float:
        trials.append(dot.obtained["variant"])
        fast = "one-kernel" if len(trials) <= 10 else "two-kernel"
        return 1e-6 if trials[-1] == fast else 2e-6

    monkeypatch.setattr(dot, "run", run)
    assert variants.fastest(dot, candidates)[0] == candidates[1]
    assert trials == ["one-kernel", "two-kernel"] * 10
    # Always hot: the trials count nevertheless.
    nvml.reasons = lambda: 0x8
    assert variants.fastest(dot, candidates)[0] == candidates[1]
    assert len(trials) == 60
    case = mk.case("bs.bs4", elements=64, device="cuda", runs=2, budget_s=0.05)
    assert case.measure().record["variant_choice"] == "trial"
    one = case.with_(variant="two-kernel")
    _, search = mk.tune(one, budget_s=5.0, knobs={"block_threads": (64, 256)})
    assert {record["block_threads_requested"] for record in search} == {0, 64, 256}


def test_a_gpu_is_warm_before_it_is_timed(monkeypatch):
    calls: list[int] = []

    def run(invocations: int) -> float:
        calls.append(invocations)
        return 1e-6

    prepared = mk.stream("copy", elements=64, device="cuda").prepare()
    prepared.native = Changed(prepared.native, run=run)
    assert prepared.invocations == 20
    calls.clear()
    monkeypatch.setattr("memkern.machine.gpu.WARM_S", 0.01)
    begin = time.perf_counter()
    prepared.warm_up()
    assert time.perf_counter() - begin >= 0.01
    assert set(calls) == {20}
    # Variants are tried with the same number of invocations as measured, on a warm device.
    dot = mk.case("bs.bs4", elements=64, device="cuda").prepare()
    dot.native = Changed(dot.native, run=run)
    assert dot.invocations == 20
    calls.clear()
    variants.fastest(
        dot, [("one-kernel", dot.obtained["isa"]), ("two-kernel", dot.obtained["isa"])]
    )
    assert len(calls) > 10 and set(calls) == {20}


@pytest.mark.parametrize("seconds, invocations", [(1e-6, 20), (4.9e-3, 4), (0.03, 1)])
def test_samples_of_long_kernels_have_fewer_launches(seconds, invocations):
    prepared = mk.stream("copy", elements=64, device="cuda").prepare()
    prepared.native = Changed(prepared.native, run=lambda _: seconds)
    assert prepared.invocations == invocations


@pytest.mark.parametrize(
    "kernel, shape",
    [
        ("stream.rotation", {"elements": 64}),  # grows
        ("bs.bs3", {"elements": 64}),
        ("latency.chase", {"size_B": 4096, "steps": 100}),
    ],
)
def test_a_gpu_is_warmed_up_immediately_before_its_samples(kernel, shape, monkeypatch):
    calls: list[str] = []

    def spy(owner: Any, name: str) -> None:
        method = getattr(owner, name)

        def called(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            return method(*arguments, **options)

        monkeypatch.setattr(owner, name, called)

    for name in ("check", "set_steady_inputs", "warm_up"):
        spy(Prepared, name)
    spy(sampling._Series, "take")
    case = mk.case(kernel, device="cuda", runs=4, placements=2, **shape)
    assert case.measure().valid
    assert calls.count("take") >= 2
    before = [calls[at - 1] for at, name in enumerate(calls) if name == "take"]
    assert set(before) == {"warm_up"}
    # Interleaved comparisons also warm the device up before their samples.
    calls.clear()
    assert comparison_worker.seconds_of(comparison_worker.short(case))[0] > 0
    assert calls[-2:] == ["warm_up", "take"]


def test_launches_are_subtracted_only_from_single_ones(monkeypatch):
    calls: list[tuple[str, str, int]] = []

    def cost_s(host: Host, *which: Any) -> float:
        calls.append(which)
        return 1e-9

    this_host().measured = {}
    monkeypatch.setitem(costs._MEASURES, DEVICE_LAUNCH, cost_s)
    case = mk.stream("copy", elements=64, device="cuda", runs=3)
    assert np.isnan(case.measure().record["time_net_s"])
    case.with_(invocations=1, timer="events").measure()
    assert calls == [("cuda:0", "host", 20), ("cuda:0", "events", 1)]
    this_host().measured = {}
    monkeypatch.setitem(costs._MEASURES, DEVICE_LAUNCH, lambda *_: 1e-7)
    monkeypatch.setattr(recording, "_SHORT_LAUNCHES", math.inf)
    assert np.isnan(case.measure().record["time_net_s"])
    alone = case.with_(invocations=1).measure().record
    assert alone["time_net_s"] == alone["time_min_s"] - 1e-7


def test_energy_of_an_invocation(monkeypatch):
    # A device that always uses 300 W.
    monkeypatch.setattr(gpu, "energy_J", lambda name: 300 * time.perf_counter())
    monkeypatch.setattr(gpu, "METERED_S", 0.1)
    gpu.idle_W.cache_clear()
    record = mk.stream("copy", elements=4096, device="cuda", runs=2).measure().record
    assert record["power_W"] == pytest.approx(300, rel=0.05)
    assert record["idle_power_W"] == pytest.approx(300, rel=0.05)
    assert record["energy_J"] == pytest.approx(record["power_W"] * record["time_median_s"])
    assert json.loads(record["energy_meters"]) == {"GPU": record["energy_J"]}
    assert record["energy_note"] == ""
    # The meter is updated about ten times a second, so a short measurement would be meaningless.
    begin = time.perf_counter()
    gpu.metered_W("cuda:0", lambda: None)
    assert time.perf_counter() - begin >= gpu.METERED_S
    gpu.idle_W.cache_clear()


def test_a_gpu_without_a_meter_of_energy_tells_its_power(nvml, monkeypatch):
    monkeypatch.setattr(gpu, "METERED_S", 0.05)
    case = mk.stream("copy", elements=4096, device="cuda", runs=2)
    record = case.measure().record
    assert record["power_W"] == pytest.approx(350) and record["idle_power_W"] == pytest.approx(350)
    assert record["energy_J"] == pytest.approx(350 * record["time_median_s"])
    assert not {"gpu_power_W", "gpu_energy_J"} & set(record)


def test_records_say_why_the_energy_of_a_gpu_is_unknown(nvml, monkeypatch, capsys):
    case = mk.stream("copy", elements=4096, device="cuda", runs=2)
    monkeypatch.setattr(Nvml, "nvmlDeviceGetPowerUsage", property())
    record = case.measure().record
    assert (
        record["energy_note"] == "energy is not measured: NVML does not report the power of cuda:0"
    )
    assert "energy_J" not in record
    monkeypatch.setitem(sys.modules, "pynvml", None)
    gpu._nvml.cache_clear()
    why = "NVML is missing or does not know cuda:0 (pip install nvidia-ml-py)"
    assert case.measure().record["energy_note"] == f"energy is not measured: {why}"
    assert why in output_of(capsys, "info")[0]


def test_energy_of_pages_that_move_once_is_not_measured(nvml):
    how = {"size_B": 4096, "device": "cuda", "runs": 2}
    assert mk.transfers("to_device", memory="pinned", **how).measure().record["power_W"] == 350
    record = mk.transfers("to_device", memory="managed", **how).measure().record
    assert "which only the first invocation moves" in record["energy_note"]
    assert "energy_J" not in record


def test_a_meter_of_a_gpu_that_vanishes_is_named(nvml, monkeypatch):
    native = gpu.metered_W

    def vanishing(name: str, work: Callable[[], object]) -> float:
        monkeypatch.setattr(Nvml, "nvmlDeviceGetPowerUsage", property())
        return native(name, work)

    monkeypatch.setattr(gpu, "metered_W", vanishing)
    note = "energy is unknown: the power of cuda:0 can no longer be read"
    with pytest.warns(UserWarning, match=note):
        record = mk.stream("copy", elements=4096, device="cuda", runs=2).measure().record
    assert record["energy_note"] == note and "energy_J" not in record


# The guardian of a killed test would remove all clock limits of a real GPU, even earlier ones.
@ONLY_EMULATED
def test_the_clock_is_limited_while_samples_are_taken(nvml, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(settings.FOLDER, str(tmp_path / "state"))
    nvml.settings = {
        "SupportedMemoryClocks": [3201, 2619], "SupportedGraphicsClocks": [1980, 1500, 210]
    }  # fmt: skip
    limits = [""]
    seen = set()
    monkeypatch.setattr(restoring, "_limit_clock", lambda bus, limit: limits.append(limit))
    native = sampling.sample

    def spy(*arguments: Any, **options: Any) -> None:
        seen.add(limits[-1])
        native(*arguments, **options)

    monkeypatch.setattr(sampling, "sample", spy)
    words = ("stream", "-k", "copy", "--elements", "4096", "--device", "cuda", "--runs", "2", "-q")
    rows = measured(capsys, *words, "--clock-limit", "1500,1980")
    assert {row["clock_limit"] for row in rows} == {1500, 1980}
    assert seen == {"210,1500", "210,1980"} and limits[-1] == ""
    # Variants are tried within the limit, too.
    seen.clear()
    limits[:] = [""]
    monkeypatch.setattr(Prepared, "run", lambda self, k: (seen.add(limits[-1]), k * 1e-6)[1])
    case = mk.case("bs.bs4", elements=64, device="cuda", runs=2, clock_limit=1500)
    assert case.measure().record["variant_choice"] == "trial"
    assert seen == {"210,1500"} and limits[-1] == ""
    assert "outside 210 to 1980 MHz" in refused_words(capsys, *words, "--clock-limit", "100")


def test_a_gpu_is_warmed_up_until_it_has_the_clock_of_before(monkeypatch):
    monkeypatch.delenv(small.VARIABLE, raising=False)
    for name, value in {"WARM_S": 0.05, "_LEAST_WARM_S": 0.002, "_CLOCKS_UNDER_LOAD": {}}.items():
        monkeypatch.setattr(gpu, name, value)
    clocks: list[float] = []
    monkeypatch.setattr(gpu, "_clock_GHz", lambda name: clocks.pop(0) if clocks else 1.98)

    def warmed_s() -> float:
        begin_s = time.perf_counter()
        assert gpu.warm_up("cuda:0", lambda: time.sleep(0.001)) > 0
        return time.perf_counter() - begin_s

    assert warmed_s() >= 0.05
    assert warmed_s() < 0.05
    clocks += [0.3] * 1000  # it was idle
    assert warmed_s() >= 0.05
    monkeypatch.setattr(gpu, "_clock_GHz", lambda name: math.nan)
    assert warmed_s() >= 0.05 and warmed_s() >= 0.05


def test_records_of_a_gpu_have_intervals_and_workers_of_their_own(monkeypatch):
    machine, l2_B = machine_environment(), int(gpu.facts("cuda:0")["l2_B"])
    for footprint_B, level in ((l2_B // 2, "L2"), (4 * l2_B, "memory")):
        name = f"{level}, GPU, 1 placement"
        run = CaseRun(mk.stream("copy", footprint_B=footprint_B, device="cuda", runs=2))
        monkeypatch.setattr(type(ranks()), "crowded", lambda *_: True)
        run.place()
        assert run.class_of(machine) == name
        # Its workers are not threads of the host.
        assert not run.measurement(machine, spread=this_host().spread(name)).record[
            "oversubscribed"
        ]


def test_what_placements_cost_is_measured_on_the_gpu(monkeypatch):
    monkeypatch.delenv(small.VARIABLE, raising=False)
    planning.rates.cache_clear()
    calls: list[str] = []
    place = CaseRun.place
    monkeypatch.setattr(
        CaseRun, "place", lambda run: (calls.append(run.case.knobs.device), place(run))[1]
    )
    monkeypatch.setitem(planning._PROBES, GPUS, ((2**12, 2**16), "simt"))
    case = mk.stream("copy", elements=64, device="cuda", runs=1, placements=1)
    assert planning.planned([case], 100.0) == [case]
    assert calls == ["cuda:0"] * 3
    planning.rates.cache_clear()
