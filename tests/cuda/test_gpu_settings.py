"""Settings of GPUs, which environments, the doctor and `info` show."""

from typing import Any

import numpy as np
from checking import output_of
from device_under_test import CUDA, ONLY_EMULATED

from memkern.host.environment import machine_environment
from memkern.machine import environment, gpu
from memkern.machine.gpu_health import card_findings
from memkern.machine.health import NOTE
from memkern.studies import doctor


@ONLY_EMULATED
def test_the_environment_has_the_gpus_and_their_settings(nvml):
    def machine() -> dict[str, Any]:
        gpu.facts.cache_clear()
        return machine_environment()

    nvml.settings = {"MigMode": (0, 1), "PersistenceMode": 1, "EnforcedPowerLimit": 700_000}
    before = machine()
    about = before["devices"]["cuda:0"]
    assert (about["peak_GBps"], about["ecc"], about["driver"]) == (256.0, True, 0)
    assert about["settings"]["power_limit_W"] == 700.0
    assert (about["settings"]["mig"], about["settings"]["persistence"]) == (0.0, 1.0)
    assert about["settings"]["max_clock_GHz"] is None
    assert about["architectures"] == CUDA.architectures
    nvml.settings["EnforcedPowerLimit"] = 500_000
    after = machine()
    assert environment.differences(before, after) == [
        "devices.cuda:0.settings.power_limit_W: 700.0 -> 500.0"
    ]
    assert environment.identity(before) != environment.identity(after)


@ONLY_EMULATED
def test_the_doctor_judges_gpus(nvml):
    def states(copy_GBps: float = 240.0) -> dict[str, tuple[str, str]]:
        gpu.facts.cache_clear()
        found = card_findings("cuda:0", copy_GBps)
        return {f.subject.removeprefix("cuda:0 "): (f.state, f.text) for f in found}

    # States that the driver does not report are unknown.
    assert {state for state, _ in states(np.nan).values()} == {"unknown", "good"}
    nvml.settings = {
        "EnforcedPowerLimit": 700_000, "PowerManagementDefaultLimit": 700_000,
        "MaxClockInfo": 1980, "ApplicationsClock": 1980,
        "GpuMaxPcieLinkGeneration": 5, "MaxPcieLinkGeneration": 4, "MaxPcieLinkWidth": 16,
        "CurrPcieLinkGeneration": 5, "CurrPcieLinkWidth": 16,
    }  # fmt: skip
    nvml.reasons = lambda: 0x1
    good = states()
    assert {state for state, _ in good.values()} == {"good"}
    assert good["memory"][1] == (
        "256 GB/s by clock and width, with error correction; the driver's copy moves 240 GB/s (94%)"
    )
    assert good["link"][1] == "PCI Express 5 with 16 lanes"
    nvml.settings |= {
        "EnforcedPowerLimit": 350_000, "ApplicationsClock": 1200, "CurrPcieLinkWidth": 8,
    }  # fmt: skip
    nvml.reasons = lambda: 0x24
    worse = states(100.0)
    assert {state for state, _ in worse.values()} == {"note"}
    assert worse["power"][1] == "limit 350 W, 700 W by default"
    assert worse["clocks"][1] == "at most 1.98 GHz, set to 1.20 GHz"
    assert worse["throttling"][1] == "power cap, temperature"
    assert "5 with 8 lanes; it supports PCI Express 5 with 16 lanes" in worse["link"][1]


@ONLY_EMULATED
def test_a_card_in_a_narrow_slot_is_compared_with_what_it_can_have(
    nvml, monkeypatch, capsys, tmp_path
):
    # NVML's maximum is limited by the slot; the system's files have the maximum of the card.
    nvml.settings = {
        "MaxPcieLinkGeneration": 3, "MaxPcieLinkWidth": 4,
        "CurrPcieLinkGeneration": 3, "CurrPcieLinkWidth": 4,
    }  # fmt: skip
    gpu.facts.cache_clear()
    assert "PCI Express 3 of 3, 4 of 4 lanes" in output_of(capsys, "info")[0]
    bus = gpu.facts("cuda:0")["bus"].lower()
    folder = tmp_path / f"{bus.partition(':')[0][-4:]}:{bus.partition(':')[2]}"
    folder.mkdir()
    (folder / "max_link_speed").write_text("16.0 GT/s PCIe\n")
    (folder / "max_link_width").write_text("16\n")
    monkeypatch.setattr(gpu, "_PCI", tmp_path)
    (link,) = (f for f in card_findings("cuda:0") if f.subject == "cuda:0 link")
    assert link.state == "note"
    assert link.text == ("PCI Express 3 with 4 lanes; it supports PCI Express 4 with 16 lanes")
    assert "PCI Express 3 of 4, 4 of 16 lanes" in output_of(capsys, "info")[0]


@ONLY_EMULATED
def test_the_doctor_names_a_gpu_that_is_unavailable(monkeypatch):
    monkeypatch.setenv("MEMKERN_EMULATED_FAIL", "cudaGetDeviceProperties")
    for known in (gpu.facts, gpu.copy_GBps):
        known.cache_clear()
    (found,) = card_findings("cuda:0")
    assert doctor._cards() == [found] and (found.subject, found.state) == ("cuda:0", NOTE)
    assert "querying the properties of a device failed" in found.text and found.advice
    gpu.copy_GBps.cache_clear()


@ONLY_EMULATED
def test_info_shows_the_settings_of_gpus(nvml, capsys):
    nvml.settings = {"EnforcedPowerLimit": 700_000, "MaxClockInfo": 1980, "CurrPcieLinkWidth": 16}
    nvml.reasons = lambda: 0x4
    text, _ = output_of(capsys, "info")
    assert (
        "at most 1.98 GHz, memory at most 1.98 GHz, limit 700 W, 16 lanes, throttled by power cap, "
        "with error correction"
    ) in text
    assert " of 256 GB/s" in text
