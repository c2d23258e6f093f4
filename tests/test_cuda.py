"""The CUDA backend: results and records of GPUs, and errors without one.

Without a GPU the same kernels run on this processor, block by block (tests/emulated), which does
not test a device's atomics, shuffles, clocks and speed.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checking import REQUEST, Changed, checked, refusal, refused, refused_words, wait_until
from samples import SAMPLES
from shapes import built
from test_kernels import inputs, one_of_all, one_of_each, with_threads

import memkern as mk
from memkern import _memkern, small
from memkern.cli import main
from memkern.discovery import family_modules
from memkern.engine import costs, planning, process, sampling, variants
from memkern.engine.communication import ranks
from memkern.engine.prepared import Prepared
from memkern.engine.run import CaseRun, spread
from memkern.errors import InputError
from memkern.families.spatter import kernels as spatter
from memkern.machine import environment, gpu, restoring, settings
from memkern.machine.gpu_health import card_findings
from memkern.machine.health import NOTE
from memkern.machine.topology import machine_environment
from memkern.plots import figures, tables
from memkern.report import cases as report_cases
from memkern.report.cases import gpu_report_cases
from memkern.shared.checking import rounding
from memkern.spec.case import Case
from memkern.spec.kernel import DTYPES, finish
from memkern.spec.options import GPUS, Knobs
from memkern.spec.registry import registry
from memkern.studies import comparison_worker, doctor

TREE = Path(__file__).parents[1]
FAMILIES = {path.parent.name for path in (TREE / "cpp" / "families").glob("*/gpu*.cu")}
# Kernels whose instances may write the same element, in any order.
RACES = ("spatter.scatter", "spatter.gs", "spatter.multiscatter", "raider.scatter", "raider.sg")
# Kernels whose cases are for a number of workers or for one memory.
OWN_TESTS = ("latency.chase", "latency.banks", "transfers.")
MODULE = "memkern._memkern_cuda"


def emulated_file() -> Path:
    """Return the file of the module whose device is this processor."""
    folder = Path(os.environ.get("MEMKERN_EMULATED", TREE / "build" / "release" / "emulated"))
    found = sorted(folder.glob("_memkern_cuda*.so"))
    if not found:
        pytest.fail(f"{folder} has no emulated device: `make test` builds it")
    return found[0]


def emulated() -> Any:
    """Return the module whose device is this processor."""
    # The real module may be imported already, so the name must differ.
    spec = importlib.util.spec_from_file_location("emulated._memkern_cuda", emulated_file())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HAS_GPU = bool(gpu.devices())
CUDA = importlib.import_module(MODULE) if HAS_GPU else emulated()
ENTRIES = CUDA.entries()
ONLY_EMULATED = pytest.mark.skipif(
    HAS_GPU,
    reason="only the emulated device has known properties, and failures and settings on request",
)


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, MODULE, CUDA)
    # Short, since tests do not depend on times.
    for name in ("WARM_S", "METERED_S", "_REST_S"):
        monkeypatch.setattr(gpu, name, 0.001)
    gpu.describe.cache_clear()
    yield
    gpu.describe.cache_clear()


def on_device(case: Case, **knobs: Any) -> Case:
    """Return a case on the GPU, without the knobs of processors."""
    own = {"offset": case.knobs.offset, "seed": case.knobs.seed, "device": "cuda", **knobs}
    changes = {k: own.pop(k) for k in ("dtype", "index_dtype", "template_variant") if k in own}
    if case.spec.name.startswith("amo."):
        own["threads"] = case.knobs.threads
    return dataclasses.replace(case, knobs=Knobs(**own)).with_(runs=2, **changes)


def test_every_kernel_of_the_families_runs_on_a_gpu() -> None:
    own = {name.partition(".")[0] for name in OWN_TESTS}
    wanted = {name for name in registry() if name.partition(".")[0] in FAMILIES - own}
    wanted |= {name for name in registry() if name.startswith(OWN_TESTS)}
    assert {entry[0] for entry in ENTRIES} | {"stream.rotation"} == wanted
    assert len(ENTRIES) == len(set(ENTRIES))
    for name in wanted - {"stream.rotation"}:
        spec = registry()[name]
        types = {(d, i) for n, _, d, i, u, _ in ENTRIES if n == name and u == 0}
        if name.startswith("amo."):
            both = {(d, i) for n, _, _, d, i, *_ in _memkern.entries() if n == name}
            assert types == both
        else:
            # Signed integers are streamed by processors alone.
            dtypes = [d for d in spec.limits.dtypes if not d.startswith("int")]
            assert types == {(d, i) for d in dtypes for i in spec.limits.index_dtypes}


# Keys of which the chosen entries cover all values: kernel and variant, variant and operation of
# atomics, kernel and number of vectors or instances of a thread, variant and type.
KEYS: tuple[Callable[[Any], Any], ...] = (
    lambda e: (e[0], e[1]),
    lambda e: (e[1], *e[5].split("/")),
    lambda e: (e[0], e[4]),
    lambda e: (e[1], e[2]),
)


def entry_params() -> list[Any]:
    """Return a parameter for every entry.

    A hash chooses one of each kind (see `KEYS`), so that types differ between kinds. The others are
    marked `release`; tests/cpp/cuda_*_test.cpp run all of them.
    """
    every = [entry for entry in ENTRIES if not entry[0].startswith(OWN_TESTS)]
    chosen = one_of_all(every, (*KEYS, lambda e: e[2:4]))
    return [
        pytest.param(
            entry,
            id="-".join(filter(None, map(str, entry))),
            marks=() if entry in chosen else pytest.mark.release,
        )
        for entry in every
    ]


def test_chosen_entries_have_every_variant_type_and_operation() -> None:
    params = entry_params()
    every = [param.values[0] for param in params]
    chosen = [param.values[0] for param in params if not param.marks]
    for key in (*KEYS, lambda e: e[2:4]):
        assert {key(entry) for entry in chosen} == {key(entry) for entry in every}


def one_delta_and_row(case: Case) -> bool:
    """Return whether a gather or scatter has one delta for each side and one dense row."""
    deltas = [len(values) for name, values in case.indices.items() if name.startswith("delta")]
    return max(deltas) == 1 and (case.spec.kernel == "gs" or case.integers["wrap"] == 1)


@pytest.mark.parametrize("entry", entry_params())
def test_a_gpu_agrees_with_the_reference(entry: tuple[Any, ...]) -> None:
    kernel, variant, dtype, index, unroll, form = entry
    options = {"variant": variant, "dtype": dtype, "index_dtype": index, "unroll": unroll}
    for number, sample in enumerate(SAMPLES[kernel]):
        if kernel.startswith("amo."):
            sample = with_threads(sample, 5)
            options["template_variant"] = form
            if variant == "coalesced" and sample.columns["sharing"] == "shared":
                # Single iterations don't know the first word of their worker.
                with refused("no variant 'coalesced'"):
                    on_device(sample, **options).prepare()
                continue
        block = (0, 32, 100, 1024)[number % 4]
        case = on_device(sample, block_threads=block, **options)
        streams = [a for a in sample.spec.arrays if a.name != "result"]
        single = kernel in ("loops.stencil", "loops.matvec") or len(streams) < 2
        if unroll and case.knobs.offset % 16 and not (single or kernel.startswith("spatter.")):
            # Vectors of all arrays can't be aligned.
            with refused(f"not built with unroll {unroll}: there are 0"):
                case.prepare()
            continue
        several = unroll or variant == "shared"
        if several and kernel.startswith("spatter.") and not one_delta_and_row(case):
            with refused(
                f"not built with unroll {unroll}: there are 0" if unroll else "no variant 'shared'"
            ):
                case.prepare()
            continue
        check = case.prepare().check()
        assert check.valid, (case.columns, check)
        if kernel.startswith((*RACES, "amo.")):
            continue
        arrays = inputs(sample.with_(dtype=dtype, index_dtype=index), 1)
        wanted = sample.spec.checks.reference(case, arrays)
        for name, got in case.apply(**arrays).items():
            limit = (
                case.spec.checks.ulps * rounding(case.dtype) * max(np.abs(wanted[name]).max(), 1)
            )
            assert np.abs(got - wanted[name]).max() <= limit, (name, case.columns)


@pytest.mark.parametrize("unroll", [0, 1, 8])
@pytest.mark.parametrize("kernel", spatter.KERNELS)
def test_indices_that_exceed_a_block_are_in_shared_memory(kernel: str, unroll: int) -> None:
    indices = np.random.default_rng(1).permutation(70)
    names = ["pattern_gather", "pattern_scatter"] if kernel == "gs" else ["pattern"]
    own = {name: indices for name in names}
    if kernel.startswith("multi"):
        own["pattern_" + kernel.removeprefix("multi")] = indices[::-1].copy()
    for block in (32, 64, 100):
        case = spatter.case(
            kernel, **own, delta=70, count=23, device="cuda", block_threads=block, unroll=unroll
        )
        check = case.prepare().check()
        assert check.valid, (block, check)


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
    assert (record["block_threads_requested"], record["block_threads"]) == (0, 256)
    # A GPU has no write-allocates.
    on_cpu = built(kernel, **shape, variant="scalar")
    assert record["bytes_model_B"] <= on_cpu.bytes_model_B
    assert {"gpu_clock_GHz", "gpu_memory_clock_GHz", "gpu_throttle"} <= set(record)


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


@ONLY_EMULATED
def test_a_busy_gpu_fails_only_cases_that_use_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Other tests have filled these caches.
    gpu.copy_GBps.cache_clear()
    costs.forget()
    monkeypatch.setenv("MEMKERN_EMULATED_FAIL", "cudaSetDevice")
    with refused("using cuda:0 failed: CUDA-capable device.* busy or unavailable"):
        mk.stream("copy", elements=64, device="cuda").prepare()
    measured = mk.stream("copy", elements=64, threads=1, runs=2).measure()
    assert measured.valid
    assert measured.environment["devices"]["cuda:0"]["name"] == "Emulated"
    assert main(["info"]) == 0
    assert "Emulated, unavailable: using cuda:0 failed" in capsys.readouterr().out
    monkeypatch.setenv("MEMKERN_EMULATED_FAIL", "cudaGetDeviceProperties")
    gpu.describe.cache_clear()
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
    function: str,
    timer: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
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
        assert main([*verb, "--json", "-q"]) == 2
        printed = capsys.readouterr()
        assert (printed.out, printed.err) == ("", f"memkern: {said}\n")


@ONLY_EMULATED
def test_a_failing_gpu_does_not_end_a_comparison(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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


def test_reductions_take_a_number_of_blocks() -> None:
    for blocks in (0, 1, 512, 8192):
        record = mk.loops("dot", 5000, device="cuda", blocks=blocks, runs=2).measure().record
        assert record["valid"] and record["blocks"] == blocks


def test_a_balanced_gather_takes_a_number_of_nodes_for_each_block() -> None:
    build = functools.partial(mk.bs, 6, elements=3, degree=2, device="cuda", runs=2)
    for nodes in (0, 64, 6144):
        record = build(variant="balanced", nodes_per_block=nodes).measure().record
        assert record["valid"] and record["nodes_per_block"] == nodes
    assert build(nodes_per_block=0).identity() == build().identity()
    assert build(nodes_per_block=512).identity() != build().identity()
    refusals = {
        "nodes_per_block has no effect on bs.bs6, since only the variant balanced has it": {
            "variant": "simt"
        },
        "nodes_per_block must be at most 6144": {"nodes_per_block": 6145},
        "nodes_per_block is for GPUs: leave it out on cpu": {"device": "cpu"},
    }
    for said, options in refusals.items():
        with refused(said):
            build(**{"nodes_per_block": 64, **options})
    for kernel, shape in (("bs.bs7", {"elements": 3}), ("stream.copy", {"elements": 64})):
        with refused(f"nodes_per_block has no effect on {kernel}: leave it out"):
            built(kernel, device="cuda", nodes_per_block=64, **shape)


@pytest.mark.parametrize("kernel", ["gather", "scatter"])
def test_the_paper_s_indices_can_be_in_shared_memory(kernel: str) -> None:
    case = functools.partial(spatter.case, kernel, device="cuda", variant="shared", runs=2)
    measured = case(pattern="UNIFORM:256:1", count=40, block_threads=1024).measure()
    record = measured.record
    assert measured.valid and (record["variant"], record["block_threads"]) == ("shared", 1024)
    # A thread moves one element of any instance, whose indices are not in shared memory.
    for options in ({"wrap": 2}, {"delta": [8, 16]}):
        with refused("no variant 'shared'"):
            case(pattern="UNIFORM:8:1", count=40, **options).prepare()


def test_arithmetic_takes_longer_than_its_launch_on_a_gpu() -> None:
    units = gpu.describe("cuda:0")["units"]
    assert mk.loops("peakflops", device="cuda").iterations == units * 2048 * 2**16
    assert mk.loops("peakflops", 100, device="cuda").iterations == 100
    for quick in (False, True):
        cases = gpu_report_cases("cuda:0", quick, 2**20, 2**30)
        found = {
            case.dtype: case.iterations for case in cases if case.spec.name == "loops.peakflops"
        }
        assert found == dict.fromkeys(DTYPES, units * 2048 * 2**16)


def test_records_have_the_bandwidths_of_the_memory() -> None:
    record = mk.stream("copy", elements=64, device="cuda", runs=2).measure().record
    assert record["gpu_peak_GBps"] == gpu.describe("cuda:0")["peak_GBps"]
    assert record["gpu_best_copy_GBps"] > 0 and record["gpu_best_read_GBps"] > 0
    # The cache of the GPU holds these data.
    assert record["peak_GBps"] == record["gpu_peak_GBps"] and math.isnan(record["peak_share"])
    large = 2 * gpu.describe("cuda:0")["l2_B"] // 8
    record = mk.stream("copy", elements=large, device="cuda", runs=2, peak_GBps=50).measure().record
    assert record["peak_GBps"] == 50
    assert record["peak_share"] == pytest.approx(record["bandwidth_GBps"] / 50)


@pytest.mark.parametrize("variant", ["simt", "l2"])
@pytest.mark.parametrize("chains, threads", [(1, 1), (2, 2), (4, 1), (8, 1), (16, 3)])
def test_a_chain_of_loads_goes_all_the_way(variant: str, chains: int, threads: int) -> None:
    for order in ("random", "sequential", [3, 0, 5, 1]):
        case = mk.latency(
            4096, order=order, chains=chains, threads=threads, device="cuda", variant=variant,
            runs=3, steps=100,
        )  # fmt: skip
        measured = case.measure()
        assert measured.valid, (order, measured.record)
        assert measured.record["ns_per_access"] > 0
        assert measured.record["line_B"] == 128
        ends = np.zeros((threads, 33), dtype=np.uint64)
        arrays = {"ends": ends if threads > 1 else ends[0]}
        got = case.apply(**arrays)["ends"]
        wanted = case.spec.checks.reference(case, arrays)["ends"]
        which = [*range(chains), 32]
        assert (got.reshape(-1, 33)[:, which] == wanted.reshape(-1, 33)[:, which]).all()
    default = mk.latency(device="cuda")
    assert default.columns["size_B"] == 4 * gpu.describe("cuda:0")["l2_B"]
    # L1 is empty at each launch.
    for size_B, steps in ((2**12, 2**14), (2**18, 2**17), (2**18 + 128, 2**12)):
        assert mk.latency(size_B, device="cuda").columns["steps"] == steps


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
@pytest.mark.parametrize("stride", [0, 1, 2, 31, 32, 64])
def test_lanes_follow_chains_through_shared_memory(stride: int, dtype: str) -> None:
    for block_threads, threads in ((0, 1), (32, 3), (100, 2), (1024, 1)):
        case = mk.case(
            "latency.banks", stride=stride, dtype=dtype, threads=threads, steps=70, device="cuda",
            block_threads=block_threads, runs=2,
        )  # fmt: skip
        record = case.measure().record
        assert record["valid"] and record["ns_per_access"] > 0
        assert record["block_threads"] == (block_threads or 32)
        assert (record["stride"], record["threads"]) == (stride, threads)
        arrays = {"ends": np.zeros((threads, 1024) if threads > 1 else 1024, dtype=np.uint64)}
        got, wanted = case.apply(**arrays)["ends"], case.spec.checks.reference(case, arrays)["ends"]
        assert (got == wanted).all()


def test_wrong_chains_through_shared_memory_are_found() -> None:
    prepared = mk.case("latency.banks", steps=70, device="cuda").prepare()
    assert prepared.check().valid

    longer = mk.case("latency.banks", steps=71, device="cuda")
    assert not checked(longer, prepared.native).valid


TRANSFERS = [entry for entry in ENTRIES if entry[0].startswith("transfers.")]
TWO_GPUS = len(gpu.devices()) > 1 if HAS_GPU else True


def transfer(entry: tuple[Any, ...], size_B: int, **options: Any) -> Case:
    """Return the case of an entry of transfers."""
    kernel, variant, _, _, _, memory = entry
    own = {} if memory == "device" else {"memory": memory}
    return mk.case(kernel, device="cuda", variant=variant, size_B=size_B, **own, **options)


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMKERN_EMULATED_DEVICES", "2")


def transfer_params() -> list[Any]:
    """Return a parameter for every entry of transfers; entries between GPUs need two GPUs."""
    one_gpu = pytest.mark.skipif(not TWO_GPUS, reason="this machine has one GPU")
    return [
        pytest.param(
            entry,
            id=f"{entry[0]}-{entry[1]}-{entry[5]}",
            marks=one_gpu if entry[0] == "transfers.between" else (),
        )
        for entry in TRANSFERS
    ]


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("entry", transfer_params())
def test_transfers_move_every_word(entry: tuple[Any, ...]) -> None:
    for size_B in (8, 4096, 4104, 2**20 + 8):
        case = transfer(entry, size_B, runs=3, seed=5)
        record = case.measure().record
        assert record["valid"], (entry, size_B)
        assert record["bytes_B"] == (2 if entry[0] == "transfers.both" else 1) * size_B
        assert record["bandwidth_GBps"] == pytest.approx(
            record["bytes_B"] / record["time_min_s"] / 1e9
        )
        assert (record["size_B"], record["memory"], record["variant"]) == (
            size_B, entry[5], entry[1],
        )  # fmt: skip
        assert (record["invocations"], record["timer"]) == (1, "host")
        assert record.get("peer") == ("cuda:1" if entry[0] == "transfers.between" else None)
        declared = {a.name: a for a in case.spec.arrays}
        sources = [name for name in declared if name.endswith("source")]
        words = np.arange(size_B // 8, dtype=np.uint64)
        arrays = {name: words + np.uint64(k) for k, name in enumerate(sources)}
        pages = -(-size_B // 4096)
        length = pages if entry[5] == "managed" else size_B // 8
        arrays |= {
            name: np.zeros(length, dtype=np.uint64) for name in declared if name not in sources
        }
        got = case.apply(**arrays)
        for name, wanted in case.spec.checks.reference(case, arrays).items():
            assert (got[name] == wanted).all(), (entry, size_B, name)


@ONLY_EMULATED
@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize(
    "entry", [e for e in TRANSFERS if e[5] != "managed"], ids=lambda e: f"{e[0]}-{e[1]}-{e[5]}"
)
def test_wrong_copies_are_found(entry: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {
        "to_device": ["HostToDevice"],
        "from_device": ["DeviceToHost"],
        "both": ["HostToDevice", "DeviceToHost"],
        "between": ["DeviceToDevice"],
    }[entry[0].partition(".")[2]]
    for kind in kinds:
        prepared = transfer(entry, 4104).prepare()
        assert prepared.check().valid
        monkeypatch.setenv("MEMKERN_EMULATED_WRONG", kind)
        assert not prepared.check().valid, kind
        monkeypatch.delenv("MEMKERN_EMULATED_WRONG")


@pytest.mark.parametrize("way", ["to_device", "from_device", "both"])
def test_wrong_pages_are_found(way: str) -> None:
    prepared = mk.transfers(way, size_B=3 * 4096, memory="managed", device="cuda").prepare()
    assert prepared.check().valid

    validation = prepared.validation()
    prepared.native.run(1)
    name = "back_target" if way == "both" else "target"
    prepared.native.poke(name, np.array([2]), np.array([1.0]))
    assert not finish(validation, 1).valid


@ONLY_EMULATED
def test_memory_that_does_not_move_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    case = mk.transfers("to_device", size_B=64, memory="managed", device="cuda")
    monkeypatch.setenv("MEMKERN_EMULATED_FAIL", "managed")
    with refused("managed memory does not move between this host and cuda:0: use pageable or"):
        case.prepare()
    monkeypatch.setenv("MEMKERN_EMULATED_FAIL", "cudaHostAlloc")
    with pytest.raises(MemoryError, match="no pinned buffer of 64 bytes"):
        mk.transfers("to_device", size_B=64, device="cuda").prepare()
    monkeypatch.setenv("MEMKERN_EMULATED_FAIL", "peer")
    monkeypatch.setenv("MEMKERN_EMULATED_DEVICES", "2")
    with refused("cuda:0 has no direct access to cuda:1: use variant staged"):
        mk.transfers("between", size_B=64, device="cuda").prepare()
    staged = mk.transfers("between", size_B=64, device="cuda", variant="staged")
    assert staged.prepare().check().valid


def test_the_verb_measures_transfers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "transfers.json"
    assert main(["transfers", "--sizes", "64,4096", "--runs", "2", "-o", str(path)]) == 0
    shown = capsys.readouterr().out
    # Three directions with four ways of moving data each.
    assert shown.count("to_device") == shown.count("both") == 8
    results = mk.load(path)
    assert results.valid and len(results) >= 24
    assert {record["device"] for record in results} == {"cuda:0"}
    assert main(["transfers", "--sizes", "64", "--runs", "2", "--variant", "touch", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {(one["memory"], one["variant"]) for one in found} == {("managed", "touch")}
    if not TWO_GPUS:
        return
    monkeypatch.setenv("MEMKERN_EMULATED_DEVICES", "2")
    between = ["transfers", "--kernel", "between", "--sizes", "64", "--runs", "2", "--json"]
    assert main(between) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["peer"], one["variant"]) for one in found] == [
        ("cuda:1", "direct"), ("cuda:1", "staged"),
    ]  # fmt: skip
    if HAS_GPU:
        return
    monkeypatch.setenv("MEMKERN_EMULATED_FAIL", "peer")
    assert main(between) == 0
    assert [one["variant"] for one in json.loads(capsys.readouterr().out)] == ["staged"]


def test_the_verb_measures_sizes_of_the_caches_of_a_gpu(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["latency", "--device", "cuda", "--runs", "2", "--steps", "64", "--json"]
    assert main(words) == 0
    sizes = [one["size_B"] for one in json.loads(capsys.readouterr().out)]
    assert (min(sizes), max(sizes)) == (2**12, 4 * gpu.describe("cuda:0")["l2_B"])


def test_the_verb_measures_banks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["latency", "banks", "--stride", "1,32", "--runs", "2"]) == 0
    assert "stride" in capsys.readouterr().out


def test_the_report_of_a_gpu_has_cases_of_the_families_that_run_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    for quick in (False, True):
        cases = gpu_report_cases("cuda:0", quick, 2**14, 2**24)
        assert {case.knobs.device for case in cases} == {"cuda:0"}
        by_family = {case.spec.name.partition(".")[0]: case for case in cases}
        with_cases = [m for m in family_modules("kernels") if hasattr(m, "gpu_report_cases")]
        assert sorted(by_family) == [module.__name__.split(".")[-2] for module in with_cases]
        for case in by_family.values():
            assert case.prepare().check().valid


def test_the_report_measures_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    few = [mk.stream("copy", elements=2**k, device="cuda") for k in (8, 12)]
    calls: list[Any] = []
    monkeypatch.setattr("memkern.cli.report._QUICK_S", 600.0)
    monkeypatch.setattr("memkern.engine.expected_s", lambda _: 60.0)
    monkeypatch.setattr(report_cases, "gpu_report_cases", lambda *how: calls.append(how) or few)
    path = tmp_path / "report.html"
    assert main(["report", "--device", "cuda", "--quick", "-q", "-o", str(path)]) == 0
    ((device, quick, cache_B, _),) = calls
    about = gpu.describe("cuda:0")
    assert (device, quick, cache_B) == ("cuda:0", True, about["l2_B"])
    results = mk.load(path.with_suffix(".parquet"))
    assert results.valid and {record["device"] for record in results} == {"cuda:0"}
    page = path.read_text()
    assert "memkern report --quick --device cuda:0" in page
    assert f"Data movement on {about['name']}" in page
    capsys.readouterr()
    for words, said in (
        (["--device", "cuda", "--threads", "2"], "--threads is for processors: leave it out"),
        (["--device", "mpi"], "a report is for cpu or a GPU such as cuda:0, not for mpi"),
        (["--device", "cuda:7"], "cuda:7"),
    ):
        assert main(["report", *words, "-o", str(tmp_path / "other.html")]) == 2
        assert said in capsys.readouterr().err


def test_further_shared_memory_reaches_the_launch() -> None:
    case = mk.stream("copy", elements=5000, device="cuda", block_shared=4096, runs=2)
    record = case.measure().record
    assert record["valid"] and record["block_shared_B"] == 4096
    assert case.identity() != case.with_(block_shared=0).identity()
    assert "block_shared" not in str(case.with_(block_shared=0).identity())
    with refused("this kernel needs 0 B itself, and a block on cuda:0 has at most"):
        mk.stream("copy", elements=64, device="cuda", block_shared=2**20).prepare().check()
    if not HAS_GPU:
        within = mk.stream("copy", elements=64, device="cuda", block_shared=98304)
        assert within.measure().record["valid"]
        with refused("block_shared is 98305 B, but"):
            within.with_(block_shared=98305).prepare().check()


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return bench/on_gpu.py, which builds its programs in a folder of the test.

    On a GPU the script itself runs these tests.
    """
    if HAS_GPU:
        pytest.skip("the script for a card runs its steps itself")
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    monkeypatch.setattr(sys, "path", [*sys.path])  # the script appends to it
    found = importlib.import_module("on_gpu")
    monkeypatch.setattr(found, "PROGRAMS", tmp_path / "programs")
    return found


def program(path: Path, text: str) -> Path:
    """Write an executable Python script."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


# Lets child processes import the emulated module instead of the real one.
AS_CARD = """
import importlib.util, sys
class Emulated:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            return importlib.util.spec_from_file_location(name, {file!r})
sys.meta_path.insert(0, Emulated)
"""


@pytest.fixture
def as_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let child processes find the emulated device as a GPU."""
    if HAS_GPU:
        pytest.skip("this machine has a GPU of its own")
    folder = tmp_path / "as_card"
    folder.mkdir()
    text = AS_CARD.format(module=MODULE, file=str(emulated_file()))
    (folder / "sitecustomize.py").write_text(text)
    before = [path for path in [os.environ.get("PYTHONPATH")] if path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *before]))


@pytest.mark.usefixtures("as_card")
@ONLY_EMULATED
def test_a_card_runs_the_tests_that_suit_it() -> None:
    chosen = "clock_is_limited or (transfers_move and (between or pinned)) or doctor_judges"
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "-k", chosen]
    run = subprocess.run([*words, __file__], capture_output=True, text=True, cwd=TREE)
    counts = re.search(r"(\d+) passed, (\d+) skipped, .* deselected in", run.stdout)
    # Pinned memory in three directions; between two GPUs directly or through the host.
    assert counts and counts.groups() == ("3", "4"), run.stdout
    assert "[2] tests/test_cuda.py" in run.stdout and "this machine has one GPU" in run.stdout
    assert run.stdout.count("only the emulated device") == 2


def begun(script: Any, folder: Path, *words: str) -> Any:
    """Return a call of the script that writes into a folder."""
    folder.mkdir()
    size = ["--minutes", "2", "--gigabytes", "1e-5"]
    return script.Call(script.parsed(["--out", str(folder), *size, *words]))


def test_the_script_for_a_card_measures_and_draws(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Long enough even if other tests run at the same time.
    call = begun(script, tmp_path / "first", "--minutes", "20")
    for step, files in {
        "transfers": ["transfers.json", "transfers.pdf"],
        "latency": [
            "latency.json",
            "banks.json",
            "devices.json",
            "latency-banks.pdf",
            "latency-sizes.pdf",
            "latency-devices.pdf",
        ],
        "blocks": ["blocks.json", "gpu-blocks.pdf"],
        "tune": ["tune-loops.dot.json", "tune-spatter.scatter.json", "tune.log"],
    }.items():
        call.begin(step)
        getattr(script, step)(call)
        for file in files:
            assert (tmp_path / "first" / file).stat().st_size > 1000, file
    searched = mk.load(tmp_path / "first" / "tune-loops.dot.json")
    steps = [row["tune_step"] for row in searched]
    assert set(steps) == {"variant", "unroll", "block_threads", "blocks", "best"}
    assert steps[-1] == "best" and all(row["valid"] for row in searched)
    assert {row["blocks"] for row in searched} >= {512, 1024}
    log = (tmp_path / "first" / "tune.log").read_text()
    assert log.count("memkern tune --kernel=") == log.count("best: --variant ") == 4
    # A later call writes the report of the first call's records, even if other records are missing.
    missing = ["--records", str(tmp_path / "missing")]
    later = begun(script, tmp_path / "later", "--records", str(tmp_path / "first"), *missing)
    assert "missing: its records are left out" in capsys.readouterr().err
    monkeypatch.setattr(script.Call, "run", lambda *_: 1 / 0)
    monkeypatch.setattr(script, "quick_report", lambda _: "quick")
    assert re.fullmatch(r"report.html, \d+ bytes; quick", script.report(later))
    page = (tmp_path / "later" / "report.html").read_text()
    assert "Transfers from and to a GPU" in page
    script.pack(later)
    with tarfile.open(tmp_path / "later.tar.gz") as archive:
        assert archive.getnames() == ["later", "later/report.html"]


def test_the_script_for_a_card_measures_first_what_matters_most(
    script: Any, tmp_path: Path
) -> None:
    assert script.coarse_first(range(9)) == [range(0, 9, 4), range(2, 9, 4), range(1, 9, 2)]
    how = {"elements": 64, "device": "cuda", "runs": 2}
    first, then = (
        [mk.stream(kernel, **how) for kernel in kernels]
        for kernels in (("copy", "scale"), ("add", "triad"))
    )
    done = list(script.measured(begun(script, tmp_path / "records"), "rounds", [first, then]))
    assert {record["kernel"] for record in done[:2]} == {"stream.copy", "stream.scale"}
    assert len(done) == 4
    assert all("to save time" in record["energy_note"] for record in done)


def test_chases_of_atomic_operations_go_through_all_lines(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path
) -> None:
    monkeypatch.delenv("MEMKERN_SMALL")
    rounds = script.beside_processor(begun(script, tmp_path / "records"), 2**21)
    atomic = [case for some in rounds for case in some if case.spec.name == "amo.ptrchase"]
    sizes = {8 * case.columns["words"] for case in atomic}
    assert sizes == {2**k for k in range(12, 21)} and len(atomic) == 4 * len(sizes)
    for case in atomic:
        lines = case.columns["words"] // 16
        assert case.iterations % lines == 0
        if case.knobs.device == "cpu":
            assert case.stop.invocations == 0
        else:
            assert case.iterations * case.stop.invocations > 2**13
        # Only the first case of each size is checked, which takes time.
        if case is next(one for one in atomic if one.columns["words"] == case.columns["words"]):
            assert case.prepare().check().valid


def test_the_script_for_a_card_judges_and_goes_on_without_a_failing_peer(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path
) -> None:
    bare = program(tmp_path / "bare", "print(1e-3)")
    compiler = f"import shutil, sys; shutil.copy({str(bare)!r}, sys.argv[-1])"
    program(tmp_path / "bin" / "nvcc", compiler)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    stream = "import sys; assert int(sys.argv[2]) % 1024 == 0; print('Copy 1 0.1\\nTriad 2 0.1')"
    stream = program(tmp_path / "cuda-stream", stream)
    broken = program(tmp_path / "spatter", "print('no memory'); raise SystemExit(1)")
    peers = ["--babelstream", str(stream), "--spatter", str(broken), "--turns", "7"]
    call = begun(script, tmp_path / "records", *peers)
    monkeypatch.setattr(script, "KERNELS", ("stream.copy", "stream.triad", "loops.load"))
    copied_B: list[int] = []
    native = CUDA.copy_s

    def copy_s(number: int, size_B: int, *more: Any) -> float:
        copied_B.append(size_B)
        return float(native(number, size_B, *more))

    monkeypatch.setattr(CUDA, "copy_s", copy_s)
    with pytest.raises(RuntimeError, match=r"7 turns, of which .*Spatter's gather: exit"):
        script.bandwidths(call)
    text = (tmp_path / "records" / "verdicts.txt").read_text()
    # The fake peers are far slower than all kernels.
    assert re.search(r"launch .* <= 1.1 of a bare one \| met", text)
    assert re.search(r"2 of 5 / peers, geometric mean .* met", text)
    assert re.search(r"bs.bs4 \|  \| .* not judged", text)
    done = mk.load(tmp_path / "records" / "bandwidths.json")
    assert len(done) == 7 * 6
    # Both arrays of the driver's copy together have the size of a kernel's arrays.
    assert copied_B.count(int(call.options.gigabytes * 1e9 / 2)) == 7
    # Energy is measured in the first turn only.
    spared = ["to save time" in one["energy_note"] for one in done]
    assert spared == [False] * 6 + [True] * 36
    copies = [one["bandwidth_GBps"] for one in done if one["kernel"] == "stream.copy"]
    mean = float(np.exp(np.mean(np.log(copies)))) / 1e-3
    found = re.search(r"stream.copy / peer \| ([\d.]+)", text)
    assert found and float(found[1]) == pytest.approx(mean, rel=1e-3)


def test_a_single_turn_without_peers_is_judged(script: Any) -> None:
    medians = {"driver": 2.0, "loops.load": 1.0, "stream.copy": 1.9, "stream.triad": 1.0}
    found = {
        row["target"]: row["verdict"] for row in script.verdicts([script.Turn(medians=medians)])
    }
    assert found["stream.copy"] == "met" and found["stream.triad"] == "NOT MET"
    assert found["0 of 5 / peers, geometric mean"] == "not judged"


def test_records_of_finished_turns_are_kept(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path
) -> None:
    call = begun(script, tmp_path / "records")
    monkeypatch.setattr(script, "KERNELS", ("stream.copy", "loops.load"))
    monkeypatch.setattr(script, "_peers", lambda *_: {})
    monkeypatch.setattr(script, "verdicts", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        script.bandwidths(call)
    assert len(mk.load(tmp_path / "records" / "bandwidths.json")) == 7 * 5


def test_a_stopped_program_leaves_its_log_and_no_children(script: Any, tmp_path: Path) -> None:
    call = begun(script, tmp_path / "records")
    child = tmp_path / "child"
    words = f"sleep 60 & echo $! >{child}; echo begun; wait"
    with pytest.raises(RuntimeError, match=r"stopped after 1 s \(sh.log\): begun"):
        call.run(["sh", "-c", words], "sh.log", 0.1)
    assert (tmp_path / "records" / "sh.log").read_text() == "begun\n"
    status = Path("/proc") / child.read_text().strip() / "status"

    def has_ended() -> bool:
        try:
            return "State:\tZ" in status.read_text()
        except OSError:
            return True

    # A killed child ends a little later, and may become a zombie after its parent has ended.
    wait_until(has_ended)


def test_steps_share_the_time_that_is_left(script: Any, tmp_path: Path) -> None:
    steps = "build,bandwidths,latency,blocks,report"
    call = begun(script, tmp_path / "records", "--steps", steps, "--minutes", "5")
    call.begin("build")
    assert call.left_s == pytest.approx(150, abs=2)
    call.begin("bandwidths")
    assert call.left_s == pytest.approx((300 - script.REPORT_S) * 14 / (14 + 7 + 4), abs=2)
    call.begin("blocks")
    assert call.left_s == pytest.approx(300 - script.REPORT_S, abs=2)
    call.begin("report")
    assert call.left_s == pytest.approx(300, abs=2)


def test_the_script_for_a_card_runs_its_steps_and_packs_after_each(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path / "bin" / "nvidia-smi", "print('GPU 0: a card')")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    package = tmp_path / "python" / "memkern"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(script, "TREE", tmp_path)
    monkeypatch.chdir(tmp_path)
    results = tmp_path / "kept" / "results.tar.gz"
    packed: list[list[str]] = []

    def step(name: str) -> Callable[[Any], str]:
        def run(call: Any) -> str:
            if results.exists():
                with tarfile.open(results) as archive:
                    packed.append(sorted(archive.getnames()))
            (call.out / name).write_text("")
            return name if name != "blocks" else str(1 / 0)

        return run

    def call(steps: str) -> str:
        for name in steps.split(","):
            monkeypatch.setattr(script, name, step(name))
        words = ["on_gpu.py", "--steps", steps, "--out", "out", "--results", str(results)]
        monkeypatch.setattr(sys, "argv", words)
        monkeypatch.setattr(script.signal, "signal", lambda *_: None)
        assert script.main() == 1
        return capsys.readouterr().out

    found = call("build,transfers,latency")
    # No step runs after the build, since the module still can't be imported.
    assert re.fullmatch(
        r"build .*build\ntransfers .*FAILED: memkern._memkern_cuda can't be imported, so that "
        r"nothing can run: ModuleNotFoundError: .*\n",
        found,
    )
    (package / "_memkern_cuda.py").write_text("")
    found = call("transfers,blocks,latency")
    assert re.fullmatch(
        r"transfers .* transfers\nblocks .*FAILED: division by zero\nlatency .* latency\n", found
    )
    # At the start of each step, the archive has the files of all previous steps.
    assert [{"out/transfers", "out/blocks"} & {*names} for names in packed] == [
        set(), {"out/transfers"}, {"out/transfers", "out/blocks"},
    ]  # fmt: skip


@pytest.mark.usefixtures("as_card")
def test_the_script_for_a_card_logs_what_the_card_is(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path
) -> None:
    program(tmp_path / "bin" / "nvidia-smi", "import sys; print('queried', sys.argv[1:])")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(script, "TREE", tmp_path)
    call = begun(script, tmp_path / "records")
    assert script.card(call) == "Emulated"
    log = (tmp_path / "records" / "card.log").read_text()
    assert "Emulated" in log and "cuda:0 memory" in log and "queried ['-q']" in log


def test_the_script_for_a_card_asks_for_a_quick_report(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path
) -> None:
    few = [mk.stream(kernel, elements=64, device="cuda") for kernel in ("copy", "add")]
    monkeypatch.setattr("memkern.cli.report._QUICK_S", 600.0)
    monkeypatch.setattr("memkern.engine.expected_s", lambda _: 60.0)
    calls: list[Any] = []
    monkeypatch.setattr(report_cases, "gpu_report_cases", lambda *how: calls.append(how) or few)
    monkeypatch.setattr(script.Call, "run", lambda _, words, log: main([*map(str, words[3:])]))
    assert "quick.html" in script.quick_report(begun(script, tmp_path / "records"))
    assert [how[:2] for how in calls] == [("cuda:0", True)]
    assert len(mk.load(tmp_path / "records" / "quick.parquet")) == 2


def test_work_goes_on_after_a_failure(script: Any) -> None:
    assert script.all_of([lambda: "a", lambda: "b"]) == "a; b"
    done: list[str] = []

    def refuse() -> str:
        raise InputError("too few records")

    with pytest.raises(RuntimeError, match="too few records; None"):
        script.all_of([refuse, lambda: str(done.append("drawn"))])
    assert done == ["drawn"]


def test_all_tests_run_on_a_card_after_those_that_were_chosen(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path
) -> None:
    def run(call: Any, words: list[str], log: str, **more: Any) -> str:
        if "--release" not in words:
            raise RuntimeError("1 failed")
        return "...\n2 passed"

    monkeypatch.setattr(script.Call, "run", run)
    with pytest.raises(RuntimeError, match="1 failed; 2 passed"):
        script.parity(begun(script, tmp_path / "records"))


def test_peers_are_built_for_the_card(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path
) -> None:
    program(tmp_path / "bin" / "cmake", "import sys; print(sys.argv[1:])")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    call = begun(script, tmp_path / "records", "--spatter", str(tmp_path))
    assert script._spatter(call) == tmp_path / "programs" / "spatter" / "spatter"
    log = (tmp_path / "records" / "peers.log").read_text()
    assert "-DCMAKE_CUDA_ARCHITECTURES=native" in log


def test_the_script_for_a_card_runs_every_kernel_once(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = {entry[0] for entry in ENTRIES} - {"transfers.between"}
    chosen = one_of_each([entry for entry in ENTRIES if not entry[4]], KEYS[0])
    monkeypatch.setattr(gpu._module(), "entries", lambda: sorted(chosen))
    options = begun(script, tmp_path / "records", "--every-kernel", "memcheck").options
    assert script.run_every_kernel(options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[3] for line in lines if line.endswith(": right")} == kernels
    options.minutes = 0
    assert script.run_every_kernel(options) == 0
    assert capsys.readouterr().out.startswith("0 of ")


def test_the_sanitizers_share_the_time(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path
) -> None:
    tool = """import sys
print(sys.argv[-2:])
print("3 of 3 kernels, 0 wrong results")
race = "racecheck" in sys.argv
print("=========", "RACECHECK SUMMARY: 0 hazards" if race else "ERROR SUMMARY: 0 errors")
sys.exit(9 if "synccheck" in sys.argv else 0)
"""
    program(tmp_path / "bin" / "compute-sanitizer", tool)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    call = begun(script, tmp_path / "records")
    call.begin("sanitize")
    share_s = call.left_s / 3
    with pytest.raises(RuntimeError) as found:
        script.sanitize(call)
    text = str(found.value)
    assert "memcheck: ERROR SUMMARY: 0 errors, 3 of 3 kernels, 0 wrong results" in text
    assert "racecheck: RACECHECK SUMMARY: 0 hazards, 3 of 3 kernels, 0 wrong results" in text
    assert "exit code 9 (synccheck.log)" in text
    # Kernels get 60 % of the time, because the tool starts and ends slowly.
    log = (tmp_path / "records" / "memcheck.log").read_text()
    minutes = re.search(r"\['--minutes', '([\d.]+)'\]", log)
    assert minutes and float(minutes[1]) == pytest.approx(0.6 * share_s / 60, rel=0.1)


def test_every_tool_of_the_sanitizer_begins_with_other_kernels_that_matter_to_it(
    script: Any,
) -> None:
    entries = [entry for entry in ENTRIES if not entry[4]]
    kinds = {entry[:2] for entry in entries}
    orders = {tool: script.in_order(entries, tool, 0) for tool in script.TOOLS}
    for order in orders.values():
        assert sorted(order) == sorted(entries)
    for tool in ("memcheck", "synccheck"):
        assert {entry[:2] for entry in orders[tool][: len(kinds)]} == kinds
    assert orders["memcheck"] != orders["synccheck"]
    shared = [e[0].startswith(script.SHARED) or e[1] == "shared" for e in orders["racecheck"]]
    assert shared == sorted(shared, reverse=True) and sum(shared) > 50
    first = {entry[:2] for entry in orders["racecheck"][: sum(shared)]}
    assert {entry[:2] for entry in orders["racecheck"][: len(first)]} == first
    # Atomic operations have workers in several warps and several iterations.
    (some,) = [entry for entry in entries if entry[:2] == ("amo.rand", "warp")][:1]
    case = script.small_case(some, "cuda:0")
    assert case.integers["workers"] > 32 and case.integers["iters"] > 1


def test_only_chains_of_loads_run_on_gpus() -> None:
    for kernel in ("latency.loaded", "latency.ping_pong"):
        with refused(f"kernel '{kernel}' does not run on cuda:0"):
            threads = 2 if kernel == "latency.loaded" else 0
            case = mk.case(kernel, threads=2)
            dataclasses.replace(case, knobs=Knobs(device="cuda", threads=threads)).prepare()


def test_tune_searches_the_options_of_gpus() -> None:
    best, search = mk.tune(
        mk.gather("UNIFORM:8:1", count=300, device="cuda"),
        # More than all trials take on a GPU, where each allocates memory.
        budget_s=20.0,
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
        ("stream.copy", {"timer": "sundial"}, "timer 'sundial'"),
        ("stream.copy", {"pin": "compact"}, "pin is for processors: leave it out on cuda:0"),
        ("stream.copy", {"pages": "thp"}, "pages is for processors"),
        ("stream.copy", {"isa": "avx2"}, "isa is for processors"),
        ("stream.copy", {"repetition": "free"}, "repetition is for processors"),
        ("stream.copy", {"prefetch": 3}, "prefetch is for processors"),
        ("stream.copy", {"threads": 4}, "leave threads out"),
        ("stream.copy", {"variant": "avx"}, "no variant 'avx'"),
        ("stream.copy", {"block_threads": 2000}, "block_threads must be from 1 to 1024"),
        ("stream.copy", {"block_threads": -1}, "block_threads must be at least 0"),
        ("stream.copy", {"offset": 12}, "offset must be a multiple of 8"),
        (
            "stream.copy",
            {"device": "cpu", "timer": "graph"},
            "timer is for GPUs: leave it out on cpu",
        ),
        ("stream.copy", {"device": "cpu", "block_threads": 64}, "block_threads is for GPUs"),
        ("stream.copy", {"device": "cpu", "block_shared": 8}, "block_shared is for GPUs: leave it"),
        ("stream.rotation", {"timer": "graph"}, "times the kernels of 'stream.rotation' only tog"),
        ("spatter.gather", {"unroll": 3}, "not built with unroll 3: there are 0, 1, 2, 4, 8"),
        ("loops.dot", {"blocks": 8193}, "blocks must be at most 8192"),
        ("loops.dot", {"device": "cpu", "blocks": 2}, "blocks is for GPUs: leave it out on cpu"),
        ("dw.hop", {}, "kernel 'dw.hop' does not run on cuda:0"),
        ("spmv.crs", {}, "kernel 'spmv.crs' does not run on cuda:0"),
        ("latency.chase", {"chains": 3}, "chains on a GPU must be one of 1, 2, 4, 8, 16, not 3"),
        ("latency.banks", {"device": "cpu"}, "reads the shared memory of a GPU: give device cuda"),
        ("latency.banks", {"stride": 65}, "stride must be at most 64"),
        ("latency.banks", {"dtype": "float64"}, "float64"),
        ("latency.banks", {"threads": 0}, "threads must be at least 1"),
        ("transfers.both", {"device": "cpu"}, "moves data from or to a GPU: give device cuda"),
        (
            "transfers.both",
            {"timer": "events"},
            "timer 'events' does not time transfers.*: use host",
        ),
        ("transfers.both", {"timer": "graph"}, "timer 'graph' does not time transfers"),
        (
            "transfers.both",
            {"invocations": 2},
            "a sample of transfers has one invocation: leave invoc",
        ),
        ("transfers.both", {"threads": 2}, "leave threads out"),
        ("transfers.both", {"size_B": 12}, "size_B of transfers.both must be a multiple of 8"),
        ("transfers.both", {"memory": "stone"}, "'stone' is not one of pageable, pinned, managed"),
        ("transfers.both", {"memory": "managed", "variant": "copy"}, "has no variant 'copy'"),
        ("transfers.both", {"variant": "touch"}, "has no variant 'touch'"),
        ("transfers.both", {"peer": "cuda:1"}, "is between the host and cuda:0: leave peer out"),
        ("transfers.between", {"memory": "pinned"}, "uses no memory of the host: leave memory out"),
        ("transfers.between", {"peer": "cuda:0"}, "peer must be another GPU than cuda:0"),
        ("transfers.between", {"peer": "cpu"}, "peer must be another GPU than cuda:0"),
        ("transfers.between", {"peer": "cuda:7"}, "device cuda:7 is not one of cuda:0 to cuda:"),
    ],
)
def test_wrong_options_are_refused(kernel: str, options: dict[str, Any], match: str) -> None:
    with refused(match):
        mk.case(kernel, **{"device": "cuda", **SHAPES.get(kernel, {}), **options}).prepare()


@pytest.mark.parametrize(
    "case",
    [
        mk.gather("UNIFORM:8:1", count=9, wrap=2),
        mk.scatter("UNIFORM:8:1", delta=[8, 16], count=9),
        mk.gs("UNIFORM:8:1", "UNIFORM:8:1", delta_gather=8, delta_scatter=[8, 16], count=9),
        mk.multigather("UNIFORM:8:1", pattern_gather=[1, 0], delta=[8, 16], count=9),
        mk.gather(range(6145), delta=1, count=2),
    ],
)
def test_unrolling_that_does_not_run_is_refused_and_left_out(case: Case) -> None:
    case = on_device(case)
    for unroll in (1, 2, 4, 8):
        with refused(f"{case.spec.name}' is not built with unroll {unroll}: there are 0"):
            case.with_(unroll=unroll).prepare()
    assert case.prepare().check().valid
    best, search = mk.tune(case, budget_s=0.5, knobs={"unroll": (0, 1, 2, 4, 8)})
    assert {row["unroll"] for row in search} == {0} and best.knobs.unroll == 0


def test_the_command_that_the_map_of_blocks_recommends_makes_its_records(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    monkeypatch.chdir(tmp_path)
    command = re.search("`memkern (.*?)`", refusal(figures["gpu-blocks"], None))
    assert command is not None
    words = shlex.split(command[1])
    assert main(words) == 0
    found = tables["gpu-blocks"](mk.load(words[words.index("-o") + 1]))
    assert set(found["kernel"]) == {"loops.triad", "loops.dot"}
    assert set(found["block_threads"]) == {64, 128, 256, 512, 1024}
    assert set(found["unroll"]) == {0, 1, 2, 4, 8}


def test_more_memory_than_the_device_has_is_refused_before_it_is_touched() -> None:
    free_B = gpu.describe("cuda:0")["memory_B"]
    case = mk.stream("copy", footprint_B=2 * free_B, device="cuda")
    with pytest.raises(MemoryError, match="cuda:0 leaves"):
        case.prepare()
    assert mk.stream("copy", elements=64, device="cuda").measure().valid


def test_the_drivers_copy_is_left_out_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MemoryError, match="cuda:0 refused a buffer"):
        CUDA.copy_s(0, 2 * gpu.describe("cuda:0")["memory_B"], 1, 0.0)

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


def test_the_drivers_copy_is_not_timed_while_another_thread_measures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = []

    def try_to_measure() -> None:
        free.append(process._lock.acquire(blocking=False))
        if free[-1]:
            process._lock.release()

    def copies(name: str) -> float:
        other = threading.Thread(target=try_to_measure)
        other.start()
        other.join()
        return 1.0

    monkeypatch.setattr(gpu, "copy_GBps", copies)
    assert costs.copy_GBps("cuda:0") == 1.0
    assert free == [False]


def test_the_extension_refuses_other_objects_as_device() -> None:
    for wrong in ("cuda:0", 3, object()):
        with pytest.raises(ValueError, match="device has the wrong type"):
            _memkern.Prepared(**{**REQUEST, "device": wrong})
    with pytest.raises(ValueError, match="timer 'x' is not"):
        _memkern.Prepared(**{**REQUEST, "timer": "x"})


@pytest.mark.parametrize(
    "cards, wanted",
    [
        ("90", "90-real"),
        ("80;90;80", "80-real;90-real"),
        ("150", "121-virtual"),
        ("90;150;160", "90-real;121-virtual"),
        # Between two known architectures: a GPU does not run the PTX of a newer one.
        ("103", "100-virtual"),
        ("110;89", "100-virtual;80-virtual"),
        # Older than the toolkit supports: nvcc's error names it.
        ("70", "70-real"),
    ],
)
def test_cards_unknown_to_the_toolkit_run_ptx(cards: str, wanted: str, tmp_path: Path) -> None:
    known = "\n".join(f"compute_{n}" for n in (75, 80, 90, 100, 121))
    script = tmp_path / "try.cmake"
    script.write_text(
        "cmake_minimum_required(VERSION 3.25)\n"
        f"include({TREE}/cpp/cmake/architectures.cmake)\n"
        f'memkern_architectures("{cards}" "{known}\n" found)\n'
        'message("${found}")\n'
    )
    run = subprocess.run(["cmake", "-P", str(script)], capture_output=True, text=True, check=True)
    assert run.stderr.strip() == wanted


def test_unrolling_that_misaligned_arrays_do_not_have_is_refused() -> None:
    with refused("'loops.triad' is not built with unroll 4: there are 0"):
        mk.loops("triad", 64, device="cuda", offset=8, unroll=4).prepare()
    for case in (
        mk.loops("triad", 64, device="cuda", offset=16, unroll=4),
        mk.loops("triad", 64, device="cuda", offset=8),
        mk.loops("sum", 64, device="cuda", offset=8, unroll=4),
        mk.loops("matvec", rows=9, columns=9, device="cuda", offset=8, unroll=4),
    ):
        assert case.prepare().check().valid


@ONLY_EMULATED
def test_the_environment_has_the_gpus_and_their_settings(nvml: Nvml) -> None:
    def machine() -> dict[str, Any]:
        gpu.describe.cache_clear()
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
def test_the_doctor_judges_gpus(nvml: Nvml) -> None:
    def states(copy_GBps: float = 240.0) -> dict[str, tuple[str, str]]:
        gpu.describe.cache_clear()
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
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # NVML's maximum is limited by the slot; the system's files have the maximum of the card.
    nvml.settings = {
        "MaxPcieLinkGeneration": 3, "MaxPcieLinkWidth": 4,
        "CurrPcieLinkGeneration": 3, "CurrPcieLinkWidth": 4,
    }  # fmt: skip
    gpu.describe.cache_clear()
    assert main(["info"]) == 0
    assert "PCI Express 3 of 3, 4 of 4 lanes" in capsys.readouterr().out
    bus = gpu.describe("cuda:0")["bus"].lower()
    folder = tmp_path / f"{bus.partition(':')[0][-4:]}:{bus.partition(':')[2]}"
    folder.mkdir()
    (folder / "max_link_speed").write_text("16.0 GT/s PCIe\n")
    (folder / "max_link_width").write_text("16\n")
    monkeypatch.setattr(gpu, "_PCI", tmp_path)
    (link,) = (f for f in card_findings("cuda:0") if f.subject == "cuda:0 link")
    assert link.state == "note"
    assert link.text == ("PCI Express 3 with 4 lanes; it supports PCI Express 4 with 16 lanes")
    assert main(["info"]) == 0
    assert "PCI Express 3 of 4, 4 of 16 lanes" in capsys.readouterr().out


@ONLY_EMULATED
def test_the_doctor_names_a_gpu_that_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMKERN_EMULATED_FAIL", "cudaGetDeviceProperties")
    for known in (gpu.describe, gpu.copy_GBps):
        known.cache_clear()
    (found,) = card_findings("cuda:0")
    assert doctor._cards() == [found] and (found.subject, found.state) == ("cuda:0", NOTE)
    assert "querying the properties of a device failed" in found.text and found.advice
    gpu.copy_GBps.cache_clear()


@ONLY_EMULATED
def test_info_shows_the_settings_of_gpus(nvml: Nvml, capsys: pytest.CaptureFixture[str]) -> None:
    nvml.settings = {"EnforcedPowerLimit": 700_000, "MaxClockInfo": 1980, "CurrPcieLinkWidth": 16}
    nvml.reasons = lambda: 0x4
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert (
        "at most 1.98 GHz, memory at most 1.98 GHz, limit 700 W, 16 lanes, throttled by power cap, "
        "with error correction"
    ) in text
    assert " of 256 GB/s" in text


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
    assert [r["block_threads_requested"] for r in records] == [64, 256, 64, 256]
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


def test_without_the_module_devices_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)
    for words in ("transfers", "latency banks"):
        assert "without its CUDA part" in refused_words(capsys, *words.split())
    with refused("built without its CUDA part: install a CUDA Toolkit"):
        mk.stream("copy", elements=64, device="cuda").prepare()
    assert gpu.devices() == []
    assert "without its CUDA part" in gpu.why_no_devices()


@pytest.mark.skipif(HAS_GPU, reason="this machine has a GPU")
def test_the_real_module_needs_no_driver_to_be_imported() -> None:
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
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "no CUDA device" in run.stdout or "without its CUDA part" in run.stdout
    assert run.stdout.count("\n") == 1


def test_nvml_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    gpu._nvml.cache_clear()
    gpu.idle_W.cache_clear()
    with gpu.Watch("cuda:0") as watch:
        assert not watch.slowed([0.0, 1.0]).any()
    found = watch.columns
    assert np.isnan(found["gpu_clock_GHz"]) and found["gpu_throttle"] == ""
    assert np.isnan(watch.power_W(0.0)) and np.isnan(gpu.idle_W("cuda:0", 0))
    assert gpu.clocks_MHz("cuda:0") == []
    gpu._nvml.cache_clear()
    gpu.idle_W.cache_clear()


class Nvml:
    """A fake NVML with one device; `reasons` returns the bits of its reasons for slowing down."""

    class NVMLError(Exception):
        pass

    def __init__(self, reasons: Callable[[], int] = lambda: 0) -> None:
        self.reasons = reasons

        self.settings: dict[str, Any] = {}

    def nvmlInit(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        try:
            value = self.settings[name.removeprefix("nvmlDeviceGet")]
        except KeyError:
            raise AttributeError(name) from None
        return lambda device, *arguments: value

    def nvmlDeviceGetHandleByPciBusId(self, bus: bytes) -> bytes:
        return bus

    def nvmlDeviceGetClockInfo(self, device: bytes, kind: int) -> int:
        return {1: 1980, 2: 3201}[kind]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device: bytes) -> int:
        return self.reasons()

    def nvmlDeviceGetPowerUsage(self, device: bytes) -> int:
        return 350_000


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nvml]:
    fake = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    for known in (gpu._nvml, gpu.idle_W):
        known.cache_clear()
    yield fake
    for known in (gpu._nvml, gpu.idle_W):
        known.cache_clear()


def test_clocks_and_throttling_are_read_while_kernels_run(nvml: Nvml) -> None:
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


def test_readings_count_by_their_times(nvml: Nvml) -> None:
    watch = gpu.Watch("cuda:0")
    # The thread started the reading at time 2 before the one at time 3, and finished it later.
    watch._readings = [gpu.Reading(at, 1.0, 1.0, reasons, 1.0) for at, reasons in
                       ((1.0, 0), (3.0, 0), (2.0, 0x8), (4.0, 0), (5.0, 0))]  # fmt: skip
    assert watch.slowed([0.5, 1.5, 2.5, 3.5]).tolist() == [False, True, False, False]


@pytest.mark.parametrize("name", ["CurrentClocksEventReasons", "CurrentClocksThrottleReasons"])
def test_reasons_are_read_by_either_name(
    name: str, nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Versions of NVML have one of these functions only.
    monkeypatch.setattr(Nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", property())
    nvml.settings = {name: 0x40}
    if name == "CurrentClocksThrottleReasons":
        monkeypatch.setattr(
            Nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda self, device: 0x40
        )
    assert gpu.state("cuda:0")["throttle"] == "hardware temperature"
    with gpu.Watch("cuda:0") as watch:
        pass
    assert watch.columns["gpu_throttle"] == "hardware temperature"


def test_costs_are_not_kept_from_a_gpu_that_slows_down(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Arrays of a few KiB instead of many MiB.
    about = {**gpu.describe("cuda:0"), "l2_B": 2**12}
    monkeypatch.setattr(gpu, "describe", functools.cache(lambda name: about))
    costs.forget()
    nvml.reasons = lambda: 0x40
    assert np.isnan(costs.device_launch_cost_s("cuda:0", "host"))
    assert np.isnan(costs.device_ceilings_GBps("cuda:0")["read"])
    costs.forget()
    nvml.reasons = lambda: 0
    assert costs.device_launch_cost_s("cuda:0", "host") > 0
    assert costs.device_ceilings_GBps("cuda:0")["read"] > 0


def test_samples_of_a_gpu_that_slows_down_are_repeated(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_trials_of_a_gpu_that_slows_down_are_repeated(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_gpu_is_warm_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_samples_of_long_kernels_have_fewer_launches(seconds: float, invocations: int) -> None:
    prepared = mk.stream("copy", elements=64, device="cuda").prepare()
    prepared.native = Changed(prepared.native, run=lambda _: seconds)
    assert prepared.invocations == invocations


@pytest.mark.parametrize(
    "kernel, shape",
    [
        ("stream.copy", {"elements": 64}),
        ("stream.rotation", {"elements": 64}),  # grows
        ("bs.bs3", {"elements": 64}),
        ("loops.update", {"elements": 64}),
        ("amo.rand", {"iters": 20, "threads": 7}),
        ("latency.chase", {"size_B": 4096, "steps": 100}),
    ],
)
def test_a_gpu_is_warmed_up_immediately_before_its_samples(
    kernel: str, shape: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_launches_are_subtracted_only_from_single_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str, int]] = []

    def cost_s(*which: Any) -> float:
        calls.append(which)
        return 1e-9

    monkeypatch.setattr("memkern.engine.record.device_launch_cost_s", cost_s)
    case = mk.stream("copy", elements=64, device="cuda", runs=3)
    assert np.isnan(case.measure().record["time_net_s"])
    case.with_(invocations=1, timer="events").measure()
    assert calls == [("cuda:0", "host", 20), ("cuda:0", "events", 1)]
    monkeypatch.setattr("memkern.engine.record.device_launch_cost_s", lambda *_: 1.0)
    assert np.isnan(case.measure().record["time_net_s"])
    alone = case.with_(invocations=1).measure().record
    assert alone["time_net_s"] == alone["time_min_s"] - 1.0


def test_energy_of_an_invocation(monkeypatch: pytest.MonkeyPatch) -> None:
    # A device that always uses 300 W.
    monkeypatch.setattr(gpu, "energy_J", lambda name: 300 * time.perf_counter())
    monkeypatch.setattr(gpu, "METERED_S", 0.4)
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


def test_a_gpu_without_a_meter_of_energy_tells_its_power(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "METERED_S", 0.05)
    case = mk.stream("copy", elements=4096, device="cuda", runs=2)
    record = case.measure().record
    assert record["power_W"] == pytest.approx(350) and record["idle_power_W"] == pytest.approx(350)
    assert record["energy_J"] == pytest.approx(350 * record["time_median_s"])
    assert not {"gpu_power_W", "gpu_energy_J"} & set(record)


def test_records_say_why_the_energy_of_a_gpu_is_unknown(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert main(["info"]) == 0
    assert why in capsys.readouterr().out


def test_energy_of_pages_that_move_once_is_not_measured(nvml: Nvml) -> None:
    how = {"size_B": 4096, "device": "cuda", "runs": 2}
    assert mk.transfers("to_device", memory="pinned", **how).measure().record["power_W"] == 350
    record = mk.transfers("to_device", memory="managed", **how).measure().record
    assert "which only the first invocation moves" in record["energy_note"]
    assert "energy_J" not in record


def test_a_meter_of_a_gpu_that_vanishes_is_named(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_the_clock_is_limited_while_samples_are_taken(
    nvml: Nvml,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(settings.FOLDER, str(tmp_path / "state"))
    nvml.settings = {
        "SupportedMemoryClocks": [3201, 2619], "SupportedGraphicsClocks": [1980, 1500, 210]
    }  # fmt: skip
    limits = [""]
    seen = set()
    monkeypatch.setattr(restoring, "_limit_clock", lambda bus, limit: limits.append(limit))
    native = sampling.sample

    def spy(*arguments: Any) -> None:
        seen.add(limits[-1])
        native(*arguments)

    monkeypatch.setattr(sampling, "sample", spy)
    words = ("stream", "-k", "copy", "--elements", "4096", "--device", "cuda", "--runs", "2", "-q")
    assert main([*words, "--clock-limit", "1500,1980", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["clock_limit"] for row in rows} == {1500, 1980}
    assert seen == {"210,1500", "210,1980"} and limits[-1] == ""
    # Variants are tried within the limit, too.
    seen.clear()
    limits[:] = [""]
    monkeypatch.setattr(Prepared, "run", lambda self, k: (seen.add(limits[-1]), k * 1e-6)[1])
    case = mk.case("bs.bs4", elements=64, device="cuda", runs=2, clock_limit=1500)
    assert case.measure().record["variant_choice"] == "trial"
    assert seen == {"210,1500"} and limits[-1] == ""
    assert main([*words, "--clock-limit", "100"]) == 2
    assert "outside 210 to 1980 MHz" in capsys.readouterr().err


def test_a_gpu_is_warmed_up_until_it_has_the_clock_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


def test_records_of_a_gpu_have_intervals_and_workers_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, l2_B = machine_environment(), int(gpu.describe("cuda:0")["l2_B"])
    for footprint_B, name in ((l2_B // 2, "L2, GPU"), (4 * l2_B, "memory, GPU")):
        run = CaseRun(mk.stream("copy", footprint_B=footprint_B, device="cuda", runs=2))
        monkeypatch.setattr(type(ranks()), "crowded", lambda *_: True)
        run.place()
        assert run.class_of(machine) == name
        # Its workers are not threads of the host.
        assert not run.measurement(machine, spread=spread(name)).record["oversubscribed"]


def test_what_placements_cost_is_measured_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
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
