"""The CUDA backend: results and records of GPUs, and errors without one.

Without a GPU the same kernels run on this processor, block by block (tests/emulated). That does not
test what only a device has: its atomics, shuffles, clocks and speed.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checking import REQUEST, Changed, checked, refused
from test_kernels import AMO_SHAPES, SAMPLES, built, inputs

import memkern as mk
from memkern import _memkern
from memkern.cli import main
from memkern.families.checking import rounding
from memkern.families.spatter import kernels as spatter
from memkern.machine import gpu
from memkern.spec.case import Case
from memkern.spec.options import Knobs
from memkern.spec.registry import registry

TREE = Path(__file__).parents[1]
FAMILIES = ("spatter", "launch", "stream", "raider", "bs", "loops", "amo")
# Kernels whose instances may write the same element, in any order.
RACES = ("spatter.scatter", "spatter.gs", "spatter.multiscatter", "raider.scatter", "raider.sg")
MODULE = "memkern._memkern_cuda"


def emulated() -> Any:
    """Return the module whose device is this processor."""
    folder = Path(os.environ.get("MEMKERN_EMULATED", TREE / "build" / "release" / "emulated"))
    found = sorted(folder.glob("_memkern_cuda*.so"))
    if not found:
        pytest.fail(f"{folder} has no emulated device: `make test` builds it")
    # The real module may be imported already, so the name must differ.
    spec = importlib.util.spec_from_file_location("emulated._memkern_cuda", found[0])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HAS_GPU = bool(gpu.devices())
CUDA = importlib.import_module(MODULE) if HAS_GPU else emulated()
ENTRIES = CUDA.entries()


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, MODULE, CUDA)
    gpu.describe.cache_clear()
    yield
    gpu.describe.cache_clear()


def on_device(case: Case, **knobs: Any) -> Case:
    """Return a case without the knobs of processors."""
    own = {"offset": case.knobs.offset, "seed": case.knobs.seed, "device": "cuda", **knobs}
    changes = {k: own.pop(k) for k in ("dtype", "index_dtype", "template_variant") if k in own}
    if case.spec.name.startswith("amo."):
        own["threads"] = case.knobs.threads
    return dataclasses.replace(case, knobs=Knobs(**own)).with_(runs=2, **changes)


def test_every_kernel_of_the_families_runs_on_a_gpu() -> None:
    wanted = {name for name in registry() if name.partition(".")[0] in FAMILIES}
    assert {entry[0] for entry in ENTRIES} | {"stream.rotation"} == wanted
    assert len(ENTRIES) == len(set(ENTRIES))
    for name in wanted - {"stream.rotation"}:
        spec = registry()[name]
        types = {(d, i) for n, _, d, i, u, _ in ENTRIES if n == name and u == 0}
        if name.startswith("amo."):
            both = {(d, i) for n, _, _, d, i, *_ in _memkern.entries() if n == name}
            assert types == both
        else:
            assert types == {(d, i) for d in spec.dtypes for i in spec.index_dtypes}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: "-".join(filter(None, map(str, e))))
def test_a_gpu_agrees_with_the_reference(entry: tuple[Any, ...]) -> None:
    kernel, variant, dtype, index, unroll, form = entry
    options = {"variant": variant, "dtype": dtype, "index_dtype": index, "unroll": unroll}
    for number, sample in enumerate(SAMPLES[kernel]):
        if kernel.startswith("amo."):
            sample = built(kernel, **{**AMO_SHAPES[sample.identity()], "threads": 5})
            options["template_variant"] = form
            if variant == "coalesced" and sample.columns["sharing"] == "shared":
                # Single iterations don't know the first word of their worker.
                with refused("no variant 'coalesced'"):
                    on_device(sample, **options).prepare()
                continue
        block = (0, 32, 100, 1024)[number % 4]
        case = on_device(sample, block_threads=block, **options)
        check = case.prepare().check()
        assert check.valid, (case.columns, check)
        if kernel.startswith((*RACES, "amo.")):
            continue
        arrays = inputs(sample.with_(dtype=dtype, index_dtype=index), 1)
        wanted = sample.spec.reference(case, arrays)
        for name, got in case.apply(**arrays).items():
            limit = case.spec.ulps * rounding(case.dtype) * max(np.abs(wanted[name]).max(), 1)
            assert np.abs(got - wanted[name]).max() <= limit, (name, case.columns)


@pytest.mark.parametrize("timer", ["host", "events", "graph"])
@pytest.mark.parametrize("kernel", ["stream.copy", "bs.bs4", "spatter.gather", "loops.daxpy"])
def test_records_have_the_columns_of_devices(kernel: str, timer: str) -> None:
    shape = {"pattern": "UNIFORM:8:1", "count": 500} if "spatter" in kernel else {"elements": 5000}
    case = built(kernel, device="cuda", timer=timer, runs=4, **shape)
    record = case.measure().record
    assert record["valid"] and record["time_min_s"] > 0
    assert (record["backend"], record["device"], record["timer"]) == ("cuda", "cuda:0", timer)
    about = gpu.describe("cuda:0")
    assert (record["platform"], record["isa"]) == (about["name"], about["isa"])
    assert (record["threads"], record["pages"], record["invocations"]) == (
        about["units"], "cuda:0", 20,
    )  # fmt: skip
    assert record["launch_s"] > 0
    own = 1024 if "spatter" in kernel else 256
    assert (record["block_threads_asked"], record["block_threads"]) == (0, own)
    # A GPU has no write-allocates.
    on_cpu = built(kernel, **shape, variant="scalar")
    assert record["bytes_model_B"] <= on_cpu.spec.model_bytes(on_cpu)
    assert {"gpu_clock_GHz", "gpu_memory_clock_GHz", "gpu_throttle", "gpu_energy_J"} <= set(record)


def test_the_rotation_times_its_four_kernels() -> None:
    measured = built("stream.rotation", elements=4000, device="cuda", runs=5).measure()
    assert [part.record["kernel"] for part in measured.parts] == [
        "stream.copy", "stream.scale", "stream.add", "stream.triad",
    ]  # fmt: skip
    assert measured.valid and all(part.record["time_min_s"] > 0 for part in measured.parts)


def test_caches_can_be_flushed_and_memory_is_reused() -> None:
    case = mk.stream("triad", elements=1000, device="cuda", flush=True, runs=3)
    assert case.measure().valid
    assert case.measure().record["invocations"] == 1
    results = mk.sweep([case, case.with_(offset=8)])
    assert results.valid and len(results) == 2


def test_tune_searches_the_options_of_gpus() -> None:
    best, search = mk.tune(
        mk.gather("UNIFORM:8:1", count=300, device="cuda"),
        budget_s=1.0,
        knobs={"unroll": (0, 1, 8), "block_threads": (64, 256)},
    )
    assert {row["tune_step"] for row in search} == {"variant", "unroll", "block_threads", "best"}
    assert best.knobs.device == "cuda:0"


def test_the_device_is_part_of_the_identity() -> None:
    case = mk.stream("copy", elements=64)
    assert case.identity() != case.with_(device="cuda").identity()
    on_gpu = case.with_(device="cuda")
    assert on_gpu.identity() != on_gpu.with_(timer="graph").identity()
    assert on_gpu.identity() == case.with_(device="cuda:0").identity()


@pytest.mark.parametrize(
    "knobs, match",
    [
        ({"device": "gpu"}, "device 'gpu' is not cpu, cuda, cuda:N, mpi or shmem"),
        ({"device": "cuda:x"}, "'cuda:x'"),
        ({"device": "cuda:7" if HAS_GPU else "cuda:1"}, "is not one of cuda:0 to cuda:"),
        ({"device": "cuda", "timer": "sundial"}, "timer 'sundial'"),
        ({"device": "cuda", "pin": "compact"}, "pin is for processors: leave it out on cuda:0"),
        ({"device": "cuda", "pages": "thp"}, "pages is for processors"),
        ({"device": "cuda", "isa": "avx2"}, "isa is for processors"),
        ({"device": "cuda", "repetition": "free"}, "repetition is for processors"),
        ({"device": "cuda", "prefetch": 3}, "prefetch is for processors"),
        ({"device": "cuda", "threads": 4}, "leave threads out"),
        ({"device": "cuda", "variant": "avx"}, "no variant 'avx'"),
        ({"device": "cuda", "block_threads": 2000}, "block_threads must be from 1 to 1024"),
        ({"device": "cuda", "block_threads": -1}, "block_threads must be at least 0"),
        ({"device": "cuda", "offset": 12}, "offset must be a multiple of 8"),
        ({"timer": "graph"}, "timer is for GPUs: leave it out on cpu"),
        ({"block_threads": 64}, "block_threads is for GPUs"),
    ],
)
def test_wrong_options_are_refused(knobs: dict[str, Any], match: str) -> None:
    with refused(match):
        mk.stream("copy", elements=64, **knobs).prepare()


def test_other_families_do_not_run_on_gpus() -> None:
    with refused("kernel 'dw.hop' does not run on cuda:0"):
        mk.dw.case((2, 2, 2, 2), layout="lexicographic", device="cuda").prepare()
    with refused("kernel 'spmv.crs' does not run on cuda:0"):
        mk.spmv.case("5pt:4:4", format="crs", device="cuda").prepare()


def test_unknown_unrolling_is_refused() -> None:
    with refused("not built with unroll 3: there are 0, 1, 2, 4, 8"):
        mk.gather("UNIFORM:8:1", count=9, unroll=3, device="cuda").prepare()


def test_more_memory_than_the_device_has_is_refused_before_it_is_touched() -> None:
    free_B = gpu.describe("cuda:0")["memory_B"]
    case = mk.stream("copy", footprint_B=2 * free_B, device="cuda")
    with pytest.raises(MemoryError, match="cuda:0 leaves"):
        case.prepare()
    assert mk.stream("copy", elements=64, device="cuda").measure().valid


def test_the_drivers_copy_is_left_out_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MemoryError, match="cuda:0 refused a buffer"):
        CUDA.copy_s(0, 2 * gpu.describe("cuda:0")["memory_B"], 1)

    def refused_copy(name: str) -> float:
        raise MemoryError

    case = mk.stream("copy", elements=64, device="cuda", runs=2)
    assert case.measure().record["gpu_copy_GBps"] > 0
    monkeypatch.setattr(gpu, "copy_GBps", refused_copy)
    assert np.isnan(case.measure().record["gpu_copy_GBps"])


def test_the_extension_refuses_other_objects_as_device() -> None:
    for wrong in ("cuda:0", 3, object()):
        with pytest.raises(ValueError, match="device has the wrong type"):
            _memkern.Prepared(**{**REQUEST, "device": wrong})
    with pytest.raises(ValueError, match="timer 'x' is not"):
        _memkern.Prepared(**{**REQUEST, "timer": "x"})


def test_a_gather_that_does_nothing_is_caught() -> None:
    case = spatter.case("gather", pattern="UNIFORM:8:1", count=100, device="cuda")
    idle = Changed(case.prepare().native, run=lambda k: 1e-6, run_range=lambda begin, end: 1e-6)
    assert not checked(case, idle).valid


def test_the_command_line_measures_on_a_gpu(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "gpu.json"
    words = ["stream", "-k", "copy,triad", "--elements", "5000", "--device", "cuda", "--runs", "3"]
    assert main([*words, "--timer", "events", "--block-threads", "64,256", "-o", str(file)]) == 0
    records = json.loads(file.read_text())["records"]
    assert [r["block_threads"] for r in records] == [64, 256, 64, 256]
    assert [r["block_threads_asked"] for r in records] == [64, 256, 64, 256]
    assert {r["timer"] for r in records} == {"events"}
    assert main(["spatter", "-pUNIFORM:8:1", "-l500", "--device", "cuda", "--runs", "3"]) == 0
    amo = ["amo", "-b", "RAND_ADD", "--iters", "20", "--threads", "7"]
    assert main([*amo, "--device", "cuda"]) == 0
    capsys.readouterr()
    assert main(["dw", "--lattice", "2", "2", "2", "2", "--device", "cuda"]) == 2
    assert "does not run on cuda:0" in capsys.readouterr().err
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert "cuda:0" in out and "an empty kernel takes" in out and "openmp, cuda;" in out


def test_without_the_module_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)
    with refused("built without its CUDA part: install a CUDA Toolkit"):
        mk.stream("copy", elements=64, device="cuda").prepare()
    assert gpu.devices() == []
    assert "without its CUDA part" in gpu.why_no_devices()


@pytest.mark.skipif(HAS_GPU, reason="this machine has a GPU")
def test_the_real_module_needs_no_driver_to_be_imported() -> None:
    # In a separate process, which has not imported the emulated module. A build without a CUDA
    # Toolkit has no module, and the message says so.
    program = (
        "from memkern import stream\n"
        "from memkern.machine import gpu\n"
        "from memkern.errors import InputError\n"
        "assert gpu.devices() == []\n"
        "try:\n    stream('copy', elements=64, device='cuda').prepare()\n"
        "except InputError as error:\n    print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "no CUDA device" in run.stdout or "without its CUDA part" in run.stdout
    assert run.stdout.count("\n") == 1


def test_nvml_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    gpu._nvml.cache_clear()
    found = gpu.columns_since("cuda:0", gpu.energy_J("cuda:0"))
    assert np.isnan(found["gpu_clock_GHz"]) and np.isnan(found["gpu_energy_J"])
    assert found["gpu_throttle"] == ""
    gpu._nvml.cache_clear()


class Nvml:
    """A replacement of NVML with one device."""

    class NVMLError(Exception):
        pass

    energies = iter((5000, 8000))

    @staticmethod
    def nvmlInit() -> None:
        pass

    @staticmethod
    def nvmlDeviceGetHandleByPciBusId(bus: bytes) -> bytes:
        return bus

    @staticmethod
    def nvmlDeviceGetClockInfo(device: bytes, kind: int) -> int:
        return {1: 1980, 2: 3201}[kind]

    @staticmethod
    def nvmlDeviceGetCurrentClocksThrottleReasons(device: bytes) -> int:
        return 0x24

    @classmethod
    def nvmlDeviceGetTotalEnergyConsumption(cls, device: bytes) -> int:
        return next(cls.energies)


def test_clocks_energy_and_throttling_come_from_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml)
    gpu._nvml.cache_clear()
    before = gpu.energy_J("cuda:0")
    assert gpu.columns_since("cuda:0", before) == {
        "gpu_clock_GHz": 1.98,
        "gpu_memory_clock_GHz": 3.201,
        "gpu_throttle": "power cap, temperature",
        "gpu_energy_J": 3.0,
    }
    gpu._nvml.cache_clear()
