"""Failing, busy and missing GPUs, and wrong options: an error is a sentence, without a result."""

import sys
from typing import Any

import numpy as np
import pytest
from checking import REQUEST, output_of, python, refused, refused_words, run
from device_under_test import CUDA, HAS_GPU, MODULE, ONLY_EMULATED

import memkern as mk
from memkern import _memkern
from memkern.host import this_host
from memkern.machine import gpu
from memkern.studies import comparison_worker


@ONLY_EMULATED
def test_a_busy_gpu_fails_only_cases_that_use_it(monkeypatch, capsys):
    # Other tests have filled these caches.
    gpu.copy_GBps.cache_clear()
    this_host().measured = {}
    monkeypatch.setenv("MEMKERN_EMULATED_FAIL", "cudaSetDevice")
    with refused("using cuda:0 failed: CUDA-capable device.* busy or unavailable"):
        mk.stream("copy", elements=64, device="cuda").prepare()
    measured = mk.stream("copy", elements=64, threads=1, runs=2).measure()
    assert measured.valid
    assert measured.environment["devices"]["cuda:0"]["name"] == "Emulated"
    assert "Emulated, unavailable: using cuda:0 failed" in output_of(capsys, "info")[0]
    monkeypatch.setenv("MEMKERN_EMULATED_FAIL", "cudaGetDeviceProperties")
    gpu.facts.cache_clear()
    assert "querying the properties" in gpu.describe_all()["cuda:0"]["unavailable"]
    assert mk.stream("copy", elements=64, threads=1, runs=2).measure().valid


@ONLY_EMULATED
@pytest.mark.parametrize(
    "function, timer, said",
    [
        ("cudaMalloc", "host", "allocating memory failed: unknown error"),
        ("launch", "host", "launching a kernel failed: unknown error"),
        ("cudaGraphInstantiate", "graph", "instantiating a graph failed: unknown error"),
    ],
)
def test_a_gpu_that_fails_gives_a_sentence_and_no_result(
    function, timer, said, monkeypatch, capsys, tmp_path
):
    case = mk.stream("copy", elements=4096, device="cuda", runs=2, timer=timer)
    file = tmp_path / "sweep.toml"
    file.write_text(
        f'[[case]]\nkernel = "stream.copy"\nelements = 4096\ndevice = "cuda"\ntimer = "{timer}"\n'
    )
    # Memory of earlier cases would be reused.
    _memkern.release_memory()
    monkeypatch.setenv("MEMKERN_EMULATED_FAIL", function)
    with pytest.raises(mk.DeviceError, match=said):
        case.measure()
    words = ["stream", "-k", "copy", "--elements", "4096", "--device", "cuda", "--timer", timer]
    for verb in (words, ["sweep", str(file)]):
        assert run(capsys, *verb, "--json", "-q") == (2, "", f"memkern: {said}\n")


@ONLY_EMULATED
def test_a_failing_gpu_does_not_end_a_comparison(monkeypatch, tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(
        '[[case]]\nkernel = "stream.copy"\nelements = 64\ndevice = "cuda"\n'
        'timer = ["graph", "host"]\n'
    )
    monkeypatch.setenv("MEMKERN_EMULATED_FAIL", "cudaGraphInstantiate")
    answers: list[dict[str, Any]] = []
    requests = [b'{"sample": 0}', b'{"measure": 0}', b'{"measure": 1}']
    comparison_worker.serve(str(file), {}, requests, lambda **entries: answers.append(entries))
    about, sampled, measured, other = answers
    assert about["cases"] == 2
    assert sampled == measured == {"error": "instantiating a graph failed: unknown error"}
    assert other["record"]["valid"]


# Inputs of kernels without defaults, and a GPU that does not exist.
SHAPES: dict[str, dict[str, Any]] = {
    "stream.copy": {"elements": 64},
    "stream.rotation": {"elements": 64},
    "loops.dot": {"elements": 64},
    "spatter.gather": {"pattern": "UNIFORM:8:1", "count": 9},
    "latency.chase": {"size_B": 4096},
    "dw.hop": {"lattice": (2, 2, 2, 2), "layout": "lexicographic"},
    "spmv.crs": {"matrix": "5pt:4:4"},
}
UNKNOWN = "cuda:7" if HAS_GPU else "cuda:1"


@pytest.mark.parametrize(
    "kernel, options, match",
    [
        (
            "stream.copy",
            {"device": "gpu"},
            "device must be cpu, cuda, cuda:N, mpi or shmem, not 'gpu'",
        ),
        ("stream.copy", {"device": "cuda:x"}, "'cuda:x'"),
        ("stream.copy", {"device": UNKNOWN}, "is not one of cuda:0 to cuda:"),
        ("stream.copy", {"threads": 4}, "leave threads out"),
        ("stream.copy", {"variant": "avx"}, "no variant 'avx'"),
        ("stream.copy", {"block_threads": 2000}, "block_threads must be from 1 to 1024"),
        ("stream.copy", {"offset": 12}, "offset must be a multiple of 8"),
        ("stream.rotation", {"timer": "graph"}, "times the kernels of 'stream.rotation' only tog"),
        ("spatter.gather", {"unroll": 3}, "not built with unroll 3: there are 0, 1, 2, 4, 8"),
        ("dw.hop", {}, "kernel 'dw.hop' does not run on cuda:0"),
        ("spmv.crs", {}, "kernel 'spmv.crs' does not run on cuda:0"),
        ("latency.chase", {"chains": 3}, "chains on a GPU must be one of 1, 2, 4, 8, 16, not 3"),
        ("latency.banks", {"device": "cpu"}, "reads the shared memory of a GPU: give device cuda"),
        ("latency.banks", {"dtype": "float64"}, "float64"),
        ("transfers.both", {"device": "cpu"}, "moves data from or to a GPU: give device cuda"),
        ("transfers.both", {"timer": "events"}, "since the host waits for each transfer"),
        ("transfers.both", {"invocations": 2}, "a sample of transfers has one invocation: leave"),
        ("transfers.both", {"threads": 2}, "since one thread of the host starts transfers"),
        ("transfers.both", {"memory": "managed", "variant": "copy"}, "has no variant 'copy'"),
        ("transfers.both", {"variant": "touch"}, "has no variant 'touch'"),
        ("transfers.between", {"peer": "cuda:0"}, "peer must be another GPU than cuda:0"),
        ("transfers.between", {"peer": "cpu"}, "peer must be another GPU than cuda:0"),
        ("transfers.between", {"peer": "cuda:7"}, "device cuda:7 is not one of cuda:0 to cuda:"),
    ],
)
def test_wrong_options_are_refused(kernel, options, match):
    with refused(match):
        mk.case(kernel, **{"device": "cuda", **SHAPES.get(kernel, {}), **options}).prepare()


def test_more_memory_than_the_device_has_is_refused_before_it_is_touched():
    free_B = gpu.facts("cuda:0")["memory_B"]
    case = mk.stream("copy", footprint_B=2 * free_B, device="cuda")
    with pytest.raises(MemoryError, match="cuda:0 leaves"):
        case.prepare()
    assert mk.stream("copy", elements=64, device="cuda").measure().valid


def test_the_drivers_copy_is_left_out_without_memory(monkeypatch):
    with pytest.raises(MemoryError, match="cuda:0 refused a buffer"):
        CUDA.copy_s(0, 2 * gpu.facts("cuda:0")["memory_B"], 1, 0.0)

    def refused_copy(name: str) -> float:
        raise MemoryError

    case = mk.stream("copy", elements=64, device="cuda", runs=2)
    assert case.measure().record["gpu_copy_GBps"] > 0
    sizes_B: list[int] = []
    monkeypatch.setattr(CUDA, "copy_s", lambda number, size_B, *_: sizes_B.append(size_B) or 1.0)
    assert gpu.copy_GBps("cuda:0", 2**20) == 2 * 2**20 / 1e9 and sizes_B == [2**20]
    gpu.copy_GBps.cache_clear()
    monkeypatch.setattr(gpu, "copy_GBps", refused_copy)
    assert np.isnan(case.measure().record["gpu_copy_GBps"])


def test_the_extension_refuses_other_objects_as_device():
    for wrong in ("cuda:0", 3, object()):
        with pytest.raises(ValueError, match="device has the wrong type"):
            _memkern.Prepared(**{**REQUEST, "device": wrong})
    with pytest.raises(ValueError, match="timer 'x' is not"):
        _memkern.Prepared(**{**REQUEST, "timer": "x"})


def test_without_the_module_devices_are_refused(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, MODULE, None)
    for words in ("transfers", "latency banks"):
        assert "without its CUDA part" in refused_words(capsys, *words.split())
    with refused("built without its CUDA part: with a CUDA Toolkit.*pip install . "):
        mk.stream("copy", elements=64, device="cuda").prepare()
    assert gpu.devices() == []
    assert "without its CUDA part" in gpu.why_no_devices()


@pytest.mark.skipif(HAS_GPU, reason="this machine has a GPU")
def test_the_real_module_needs_no_driver_to_be_imported():
    # In a separate process, which has not imported the emulated module. A build without a CUDA
    # Toolkit has no module, which gives the second message.
    program = (
        "from memkern import stream\n"
        "from memkern.machine import gpu\n"
        "from memkern.errors import InputError\n"
        "assert gpu.devices() == []\n"
        "try:\n    stream('copy', elements=64, device='cuda').prepare()\n"
        "except InputError as error:\n    print(error)\n"
    )
    told = python("-c", program, check=True).stdout
    assert "no CUDA device" in told or "without its CUDA part" in told
    assert told.count("\n") == 1
