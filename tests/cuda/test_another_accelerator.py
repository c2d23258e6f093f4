"""Another accelerator is one row: its cases are built, planned, measured and refused."""

import sys

import pytest
from checking import refused
from device_under_test import CUDA

import memkern as mk
from memkern import backends
from memkern.backends import BACKENDS, GPUS, Backend
from memkern.engine.public import planned
from memkern.machine import gpu
from memkern.machine.topology import workers_of
from memkern.spec.options import Knobs

HIP = Backend("hip", "HIP", GPUS, "hip", compiler="hipcc", sector_B=64)
COPY = {"elements": 1000, "device": "hip", "runs": 2}


@pytest.fixture(autouse=True)
def hip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "BACKENDS", (*BACKENDS, HIP))
    monkeypatch.setitem(sys.modules, "memkern._memkern_hip", CUDA)


def test_its_cases_are_built_planned_and_measured() -> None:
    case = mk.stream("copy", **COPY)
    assert (case.knobs.backend, case.knobs.device) == (HIP, "hip:0")
    assert (case.placements, case.line_B, case.allocates) == (1, 64, False)
    assert planned([case], 1.0) == [case]
    assert "hip:0" in gpu.devices() and workers_of("hip:0") == workers_of("cuda:0")
    record = case.measure().record
    assert record["valid"] and record["launch_s"] > 0
    assert (record["backend"], record["device"], record["variant"]) == ("hip", "hip:0", "simt")
    assert record["platform"] == gpu.facts("cuda:0")["name"]
    assert gpu.why_no_energy("hip:0") == "energy is not measured: memkern has no meter of HIP"


def test_what_it_lacks_is_refused(monkeypatch):
    with refused("pages is for processors: leave it out on hip:0"):
        Knobs(device="hip", pages="4k")
    with refused("device must be cpu, cuda, cuda:N, mpi, shmem, hip or hip:N, not 'hip:x'"):
        Knobs(device="hip:x")
    with refused("peer must be another GPU than hip:0, such as hip:1, not 'cuda:1'"):
        mk.transfers("between", device="hip", peer="cuda:1")
    monkeypatch.setitem(sys.modules, "memkern._memkern_hip", None)
    with refused("built without its HIP part: with a HIP Toolkit, whose hipcc is on PATH"):
        mk.stream("copy", **COPY).prepare()
