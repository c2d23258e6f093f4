"""Kernels on a GPU: every entry against its reference, and the records of GPUs."""

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest
from checking import checked, refused
from chosen_entries import entry_parameters, inputs, one_of_all, with_threads
from device_under_test import ENTRIES, HAS_GPU, KEYS, OWN_TESTS, TREE, on_device
from samples import SAMPLES
from shapes import built

import memkern as mk
from memkern import _memkern
from memkern.families.spatter import kernels as spatter
from memkern.machine import gpu
from memkern.report.cases import gpu_report_cases
from memkern.shared.checking import rounding
from memkern.spec.case import Case
from memkern.spec.kernel import DTYPES
from memkern.spec.registry import registry

FAMILIES = {path.parent.name for path in (TREE / "cpp" / "families").glob("*/gpu*.cu")}
STREAMING = ("launch.", "stream.", "raider.", "bs.", "loops.")
REDUCTIONS = {name for name, s in registry().items() if any(a.name == "result" for a in s.arrays)}
# Kernels whose instances may write the same element, in any order.
RACES = ("spatter.scatter", "spatter.gs", "spatter.multiscatter", "raider.scatter", "raider.sg")


def test_every_kernel_of_the_families_runs_on_a_gpu():
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
            continue
        # Signed integers are streamed by processors alone.
        dtypes = [d for d in spec.limits.dtypes if not d.startswith("int")]
        assert types == {(d, i) for d in dtypes for i in spec.limits.index_dtypes}
        if name.startswith(STREAMING):
            variants = {"two-kernel", "one-kernel"} if name in REDUCTIONS else {"simt"}
            variants |= {"balanced"} if name == "bs.bs6" else set()
            unrolls = (0, 1, 2, 4, 8) if name.startswith("loops.") else (0,)
            every = itertools.product(variants, unrolls, *map(set, zip(*types, strict=True)))
            assert {(v, u, d, i) for n, v, d, i, u, _ in ENTRIES if n == name} == {*every}


def entry_params() -> list[Any]:
    """Return a parameter for every entry.

    A hash chooses one of each kind (see `KEYS`), so that types differ between kinds. The others are
    marked `release`; tests/cpp/cuda_*_test.cpp run all of them.
    """
    every = [entry for entry in ENTRIES if not entry[0].startswith(OWN_TESTS)]
    return entry_parameters(every, one_of_all(every, (*KEYS, lambda e: e[2:4])))


def test_chosen_entries_have_every_variant_type_and_operation():
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
def test_a_gpu_agrees_with_the_reference(entry):
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


@pytest.mark.parametrize("timer", ["host", "events", "graph"])
@pytest.mark.parametrize("kernel", ["stream.copy", "bs.bs4", "spatter.gather", "loops.daxpy"])
def test_records_have_the_columns_of_devices(kernel, timer):
    shape = {"pattern": "UNIFORM:8:1", "count": 500} if "spatter" in kernel else {"elements": 5000}
    case = built(kernel, device="cuda", timer=timer, runs=4, **shape)
    record = case.measure().record
    assert record["valid"] and record["time_min_s"] > 0
    assert (record["backend"], record["device"], record["timer"]) == ("cuda", "cuda:0", timer)
    about = gpu.facts("cuda:0")
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


def test_the_rotation_times_its_four_kernels():
    measured = built("stream.rotation", elements=4000, device="cuda", runs=5).measure()
    assert [part.record["kernel"] for part in measured.parts] == [
        "stream.copy", "stream.scale", "stream.add", "stream.triad",
    ]  # fmt: skip
    assert measured.valid and all(part.record["time_min_s"] > 0 for part in measured.parts)


def test_caches_can_be_flushed_and_memory_is_reused():
    case = mk.stream("triad", elements=1000, device="cuda", flush=True, runs=3)
    assert case.measure().valid
    assert case.measure().record["invocations"] == 1
    results = mk.sweep([case, case.with_(offset=8)])
    assert results.valid and len(results) == 2


def test_reductions_take_a_number_of_blocks():
    for blocks in (0, 1, 512, 8192):
        record = mk.loops("dot", 5000, device="cuda", blocks=blocks, runs=2).measure().record
        assert record["valid"] and record["blocks"] == blocks


def test_a_balanced_gather_takes_a_number_of_nodes_for_each_block():
    build = functools.partial(mk.bs, 6, elements=3, degree=2, device="cuda", runs=2)
    for nodes in (0, 64, 6144):
        record = build(variant="balanced", nodes_per_block=nodes).measure().record
        assert record["valid"] and record["nodes_per_block"] == nodes
    assert build(nodes_per_block=0).identity() == build().identity()
    assert build(nodes_per_block=512).identity() != build().identity()
    with refused("nodes_per_block has no effect on bs.bs6, since only the variant balanced has it"):
        build(nodes_per_block=64, variant="simt")
    for kernel, shape in (("bs.bs7", {"elements": 3}), ("stream.copy", {"elements": 64})):
        with refused(f"nodes_per_block has no effect on {kernel}: leave it out"):
            built(kernel, device="cuda", nodes_per_block=64, **shape)


@pytest.mark.parametrize("kernel", ["gather", "scatter"])
def test_the_paper_s_indices_can_be_in_shared_memory(kernel):
    case = functools.partial(spatter.case, kernel, device="cuda", variant="shared", runs=2)
    measured = case(pattern="UNIFORM:256:1", count=40, block_threads=1024).measure()
    record = measured.record
    assert measured.valid and (record["variant"], record["block_threads"]) == ("shared", 1024)
    # A thread moves one element of any instance, whose indices are not in shared memory.
    for options in ({"wrap": 2}, {"delta": [8, 16]}):
        with refused("no variant 'shared'"):
            case(pattern="UNIFORM:8:1", count=40, **options).prepare()


def test_arithmetic_takes_longer_than_its_launch_on_a_gpu():
    units = gpu.facts("cuda:0")["units"]
    assert mk.loops("peakflops", device="cuda").iterations == units * 2048 * 2**16
    assert mk.loops("peakflops", 100, device="cuda").iterations == 100
    for quick in (False, True):
        cases = gpu_report_cases("cuda:0", quick, 2**20, 2**30)
        found = {
            case.dtype: case.iterations for case in cases if case.spec.name == "loops.peakflops"
        }
        assert found == dict.fromkeys(DTYPES, units * 2048 * 2**16)


def test_records_have_the_bandwidths_of_the_memory():
    record = mk.stream("copy", elements=64, device="cuda", runs=2).measure().record
    assert record["gpu_peak_GBps"] == gpu.facts("cuda:0")["peak_GBps"]
    assert record["gpu_best_copy_GBps"] > 0 and record["gpu_best_read_GBps"] > 0
    # The cache of the GPU holds these data.
    assert record["peak_GBps"] == record["gpu_peak_GBps"] and math.isnan(record["peak_share"])
    large = 2 * gpu.facts("cuda:0")["l2_B"] // 8
    record = mk.stream("copy", elements=large, device="cuda", runs=2, peak_GBps=50).measure().record
    assert record["peak_GBps"] == 50
    assert record["peak_share"] == pytest.approx(record["bandwidth_GBps"] / 50)


@pytest.mark.parametrize("variant", ["simt", "l2"])
@pytest.mark.parametrize("chains, threads", [(1, 1), (2, 2), (4, 1), (8, 1), (16, 3)])
def test_a_chain_of_loads_goes_all_the_way(variant, chains, threads):
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
    assert default.columns["size_B"] == 4 * gpu.facts("cuda:0")["l2_B"]
    # L1 is empty at each launch.
    for size_B, steps in ((2**12, 2**14), (2**18, 2**17), (2**18 + 128, 2**12)):
        assert mk.latency(size_B, device="cuda").columns["steps"] == steps


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
@pytest.mark.parametrize("stride", [0, 1, 2, 31, 32, 64])
def test_lanes_follow_chains_through_shared_memory(stride, dtype):
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


def test_wrong_chains_through_shared_memory_are_found():
    prepared = mk.case("latency.banks", steps=70, device="cuda").prepare()
    assert prepared.check().valid
    longer = mk.case("latency.banks", steps=71, device="cuda")
    assert not checked(longer, prepared.native).valid


def test_further_shared_memory_reaches_the_launch():
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
