"""Bytes and flops of kernels, against counts by brute force and the formulas of the papers."""

import dataclasses
from collections.abc import Iterable

import numpy as np
import pytest
from chosen_entries import INDEXED, MAPS, inputs, with_threads
from samples import PER_ELEMENT, SAMPLES, own
from shapes import built

import memkern as mk
from memkern import _memkern
from memkern.families.amo import kernels as amo
from memkern.families.spatter import kernels as spatter
from memkern.machine import caches
from memkern.shared import elementwise as streaming
from memkern.spec.case import Case
from memkern.spec.registry import registry

GPU_VARIANTS = ("simt", "one-kernel", "two-kernel")
# Defaults of options that only processors have.
CPU_DEFAULTS = {
    "schedule": "static", "chunk": 0, "prefetch": 0, "repetition": "fork", "isa": "best",
}  # fmt: skip


def only_writes(case: Case) -> bool:
    """Return whether the case stores elements that it does not read, except cached ones."""
    if known := own(case.spec.name, "only_writes", None):
        return bool(known(case))
    # A sum is one number, and the dense side of a gather is only as long as its pattern.
    return any(
        a.role == "write" and a.shape != "(1,)" for a in case.spec.arrays if a.name != "dense"
    )


@pytest.mark.parametrize("kernel", SAMPLES)
def test_write_allocates_follow_one_rule(kernel):
    variants = {v for n, v, *_ in _memkern.entries() if n == kernel} | {"scalar"}
    changes = [{"variant": v, "device": "cpu"} for v in variants]
    changes += [{"variant": v, "device": "cuda:0", **CPU_DEFAULTS} for v in GPU_VARIANTS]
    for case in SAMPLES[kernel]:
        ordinary = case.with_(variant="scalar")
        n, plain = case.iterations, ordinary.traffic
        assert ordinary.allocates and (plain.write_allocate > 0) == only_writes(case)
        for change in changes:
            other = case.with_(**change)
            if change["device"] != "cpu" and kernel in own(kernel, "SECTORS", ()):
                continue  # a GPU transfers sectors, see below, and has no layer conditions
            assert other.allocates == (change["device"] == "cpu" and change["variant"] != "nt")
            allocated = plain.write_allocate if other.allocates else 0.0
            counted = dataclasses.replace(plain, write_allocate=allocated)
            assert other.traffic == counted, change
            saved = n * (plain.write_allocate - allocated)
            wanted = ordinary.bytes_model_B - saved
            assert other.bytes_model_B == pytest.approx(wanted, rel=1e-12), change


def brute_force_traffic(case: Case) -> tuple[int, int, int]:
    """Count the elements read and written in sparse arrays, and the indices, one by one."""
    kernel = case.spec.name.partition(".")[2]
    length = case.columns["pattern_length"]
    read = written = index = 0
    for _ in range(case.integers["count"]):
        for _ in range(length):
            if kernel in ("gather", "gs", "multigather"):
                read += 1
            if kernel in ("scatter", "gs", "multiscatter"):
                written += 1
            index += 2 if kernel == "gs" or kernel.startswith("multi") else 1
    return read, written, index


@pytest.mark.parametrize("dtype, index_dtype", [("float64", "int64"), ("float32", "int32")])
@pytest.mark.parametrize("kernel", spatter.KERNELS)
def test_traffic_counts_what_the_definition_moves(kernel, dtype, index_dtype):
    for case in SAMPLES[f"spatter.{kernel}"]:
        case = case.with_(dtype=dtype, index_dtype=index_dtype)
        read, written, index = brute_force_traffic(case)
        value, entry = np.dtype(dtype).itemsize, np.dtype(index_dtype).itemsize
        count = case.iterations
        assert case.traffic.read * count == pytest.approx(read * value)
        assert case.traffic.write * count == pytest.approx(written * value)
        assert case.traffic.index * count == pytest.approx(index * entry)
        assert case.bytes_B == (read + written) * value
        assert case.traffic.view(index=True) == case.traffic.view() + case.traffic.index


def test_lines_are_those_of_the_system(monkeypatch):
    # The line of an A64FX.
    monkeypatch.setattr(caches, "line_B", lambda: 256)
    wide = mk.gather("UNIFORM:8:32:NR", count=64)
    assert wide.bytes_model_B == 8 * 64 * 256
    assert wide.transfers(LEVELS)["memory"].load_B == 8 * 256
    scatter = mk.scatter("UNIFORM:8:8:NR", count=64)
    assert scatter.bytes_model_B == 2 * 128 * 256
    raider = mk.raider("gather_copy", 640, pattern=np.arange(640) % 20 * 32, repeats=True)
    moved = raider.with_(variant="scalar").transfers(LEVELS)["memory"]
    assert 640 * moved.load_B == pytest.approx(640 * (8 + 8) + 20 * 256)
    one = mk.amo("rand", words=4, iters=64, threads=1)
    # One line of VAL is read and written, and IDX is read.
    assert one.bytes_model_B == (2 + 64 * 8 // 256 + 1) * 256
    # A GPU transfers sectors.
    on_gpu = one.with_(device="cuda:0")
    assert on_gpu.bytes_model_B == (2 + 64 * 8 // 32 + 1) * 32
    record = wide.with_(runs=2, threads=1, variant="scalar").measure().record
    assert (record["memory_line_B"], record["bytes_model_B"]) == (256, 8 * 64 * 256)
    # A report's chases have one access for each line.
    cases = amo.report_cases(quick=False, cache_B=2**16, memory_B=2**30)
    chase = next(one for one in cases if one.knobs.repetition == "free")
    assert chase.iterations == 2**14 // 256


LEVELS = ("L1", "L2", "L3", "memory")


def crossed(case: mk.Case) -> list[tuple[float, float]]:
    """Return the bytes that an invocation loads and stores across the boundary of each level."""
    moved = case.transfers(LEVELS)
    assert tuple(moved) == LEVELS
    n = case.iterations
    return [(n * moved[level].load_B, n * moved[level].store_B) for level in LEVELS]


def test_every_level_has_its_own_traffic():
    # In front of L1 elements, indices and the dense buffer are transferred, elsewhere the lines of
    # the sparse side: 64 bytes per element.
    n = 100 * 8
    how = {"count": 100, "index_dtype": "int32", "variant": "scalar"}
    gather = mk.gather("UNIFORM:8:8:NR", **how)
    assert crossed(gather) == [(n * 12, n * 8), *[(n * 64, 0)] * 3]
    scatter = mk.scatter("UNIFORM:8:8:NR", **how)
    assert crossed(scatter) == [(n * 12, n * 8), *[(n * 64, n * 64)] * 3]
    streamed = scatter.with_(variant="nt")
    assert crossed(streamed) == [(n * 12, n * 8), (0, 0), (0, 0), (0, n * 64)]
    both = mk.gs("UNIFORM:8:8:NR", "UNIFORM:8:1:NR", delta_gather=64, delta_scatter=8, **how)
    assert crossed(both) == [(n * 16, n * 8), *[(n * (64 + 8), n * 8)] * 3]
    # Two index arrays; a line has 8 elements, or one element at a stride of 8.
    raider = {"index_dtype": "int64", "variant": "scalar"}
    dense = mk.raider("sg_copy", 640, pattern="stride1", **raider)
    assert crossed(dense) == [(640 * 24, 640 * 8), *[(640 * 32, 640 * 8)] * 3]
    wide = mk.raider("gather_add", 640, pattern=np.arange(640) % 80 * 8, repeats=True, **raider)
    # The index, b, the lines of c that are read for the stores, and 80 lines of a.
    moved = {"L1": 640 * 24, "outer": 640 * 24 + 80 * 64}
    assert crossed(wide) == [(moved["L1"], 640 * 8), *[(moved["outer"], 640 * 8)] * 3]


@pytest.mark.parametrize("kernel", ["bs.bs6", "bs.bs7", "bs.bs8"])
def test_values_of_shared_nodes_cross_the_first_boundary_more_often(kernel):
    case = mk.bs(int(kernel[-1]), elements=3, variant="scalar", index_dtype="int32")
    n = case.integers
    # Offsets and nodes in two arrays, or the global node of each local node.
    index = sum(len(values) for values in case.indices.values()) * 4
    values, shared = n["local_nodes"] * 8, n["global_nodes"] * 8
    assert values > shared
    stores = shared if kernel == "bs.bs6" else values
    (loaded, stored), *others = crossed(case)
    assert (loaded, stored) == pytest.approx((values + index, stores))
    arrays = {"bs.bs6": values + shared, "bs.bs7": shared + values, "bs.bs8": values}
    for pair in others:
        assert pair == pytest.approx((arrays[kernel] + index, stores))
        assert sum(pair) == pytest.approx(case.bytes_model_B)


@pytest.mark.parametrize("kernel", ["spatter.gather", "raider.scatter_add", "bs.bs6"])
def test_the_record_of_an_irregular_kernel_has_the_traffic_of_each_level(kernel):
    case = SAMPLES[kernel][0].with_(threads=1, variant="scalar")
    record = case.measure().record
    moved = case.transfers(LEVELS)
    n = case.iterations
    assert record["L1_load_B"] == pytest.approx(n * moved["L1"].load_B)
    assert record["memory_store_B"] == pytest.approx(n * moved["memory"].store_B)
    both = record["memory_load_B"] + record["memory_store_B"]
    assert both == pytest.approx(record["bytes_model_B"])


def sectors(places: Iterable[int], value_B: int, length: int) -> tuple[int, int]:
    """Return how many 32-byte sectors contain these elements, and how many also contain others."""
    touched: dict[int, set[int]] = {}
    for place in places:
        touched.setdefault(place * value_B // 32, set()).add(place)
    per_sector = 32 // value_B
    partial = [
        sector
        for sector, found in touched.items()
        if len(found) < min(per_sector, length - sector * per_sector)
    ]
    return len(touched), len(partial)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_gpu_fills_sectors_that_masked_nodes_leave_in_part(dtype):
    plain = mk.bs(7, elements=3, degree=4, device="cuda:0", dtype=dtype)
    masked = mk.bs(7, elements=3, degree=4, device="cuda:0", dtype=dtype, masked="boundary")
    value_B = np.dtype(dtype).itemsize
    places = np.flatnonzero(masked.indices["ids"] >= 0)
    _, partial = sectors(places, value_B, masked.integers["local_nodes"])
    assert partial > 0 and plain.traffic.write_allocate == 0
    filled_B = masked.traffic.write_allocate * masked.iterations
    assert filled_B == pytest.approx(32 * partial)
    streamed = masked.traffic.view(index=True) * masked.iterations
    assert masked.bytes_model_B == pytest.approx(streamed + 32 * partial)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_gpu_transfers_sectors_and_fills_those_that_are_written_in_part(dtype):
    value_B = np.dtype(dtype).itemsize
    for pattern, delta, count in (
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, 64),
        ([0, 2, 4, 6], 8, 33),
        ([0, 24, 48], 1, 50),
        ([5, 5, 900, 17], 3, 7),
    ):
        how = {"pattern": pattern, "delta": delta, "count": count, "dtype": dtype, "device": "cuda"}
        places = [base * delta + j for base in range(count) for j in pattern]
        whole, partial = sectors(places, value_B, 10**9)
        gather, scatter = mk.gather(**how), mk.scatter(**how)
        assert gather.bytes_model_B == 32 * whole
        assert gather.traffic.write_allocate == 0
        assert scatter.bytes_model_B == 32 * (whole + partial)
        assert scatter.traffic.write_allocate * count == pytest.approx(32 * partial)
    index = np.array([0, 1, 2, 3, 9, 9, 30, 31, 32, 0])
    case = mk.raider(
        "scatter_copy", 33, pattern=np.resize(index, 33), repeats=True, dtype=dtype, device="cuda"
    )
    whole, partial = sectors(index, value_B, 33)
    dense = 32 * -(-33 * value_B // 32)
    indices = 33 * 8
    assert case.bytes_model_B == dense + indices + 32 * (whole + partial)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("columns", [3, 5, 10, 16, 34, 35])
def test_a_gpu_fills_sectors_at_the_ends_of_rows_of_the_stencil(columns, dtype):
    case = mk.loops("stencil", rows=9, columns=columns, dtype=dtype, device="cuda:0")
    value_B = np.dtype(dtype).itemsize
    inner = np.zeros((9, columns), dtype=bool)
    inner[1:-1, 1:-1] = True
    _, partial = sectors(np.flatnonzero(inner).tolist(), value_B, inner.size)
    assert partial > 0
    moved_B = 2 * 7 * (columns - 2) * value_B + 32 * partial
    assert case.bytes_model_B == pytest.approx(moved_B, rel=1e-12)
    on_cpu = case.with_(device="cpu", variant="nt")
    assert on_cpu.traffic.write_allocate == 0


@pytest.mark.parametrize("kernel", [k for k in SAMPLES if not own(k, "BOUND", False)])
def test_roles_say_what_a_kernel_writes(kernel):
    case = with_threads(SAMPLES[kernel][1 % len(SAMPLES[kernel])], 1)
    arrays = inputs(case, 1)
    after = case.apply(**arrays)
    for role in case.spec.arrays:
        changed = (after[role.name] != arrays[role.name]).any()
        assert changed == (role.role != "read"), role


@pytest.mark.parametrize("kernel", [*MAPS, "stream.rotation", *INDEXED])
def test_roles_say_what_a_kernel_reads(kernel):
    case = built(kernel, elements=50, threads=1)
    arrays = inputs(case, 1)
    after = case.apply(**arrays)
    for role in case.spec.arrays:
        # Arrays that are read affect some result, arrays that are only written affect none.
        other = {**arrays, role.name: arrays[role.name] + np.asarray(2**21, case.dtype)}
        again = case.apply(**other)
        written = [r.name for r in case.spec.arrays if r.role != "read"]
        affected = any((again[name] != after[name]).any() for name in written)
        assert affected == (role.role != "write"), role


@pytest.mark.parametrize("kernel", PER_ELEMENT)
def test_traffic_and_flops_are_those_of_the_papers(kernel):
    spec = registry()[kernel]
    case = built(kernel, elements=64)
    assert (case.bytes_B, spec.counts.flops) == (
        64 * PER_ELEMENT[kernel][0],
        PER_ELEMENT[kernel][1],
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kernel", MAPS)
def test_streaming_traffic_follows_from_the_roles(kernel, dtype):
    case = built(kernel, elements=10, dtype=dtype)
    size = np.dtype(dtype).itemsize
    roles = [r.role for r in case.spec.arrays if r.name != streaming.RESULT]
    moved = sum(2 if role == "update" else 1 for role in roles) * size
    assert case.bytes_B == moved * 10
    assert case.bytes_model_B == (moved + roles.count("write") * size) * 10
    nontemporal = case.with_(variant="nt")
    assert nontemporal.bytes_model_B == case.bytes_B


@pytest.mark.parametrize("kernel", INDEXED)
def test_index_kernels_count_their_bytes(kernel):
    case = built(kernel, elements=640, pattern="stride1")
    form, operation = kernel.removeprefix("raider.").partition("@")[0].split("_")
    words = {"copy": 2, "scale": 2, "add": 3, "triad": 3}[operation]
    # The release counts an index for every indexed operand.
    both = kernel.endswith("@release")
    indices = {"gather": 2 if both else 1, "scatter": 1, "sg": words}[form]
    assert case.bytes_B == 640 * 8 * words
    assert case.bytes_index_B == 640 * 8 * indices
    assert case.with_(index_dtype="int32").bytes_index_B == 640 * 4 * indices
    # Every line is transferred once, and written lines are also read.
    assert case.bytes_model_B == case.bytes_B + case.bytes_index_B + 640 * 8
    narrow = built(kernel, elements=640, pattern="central")
    assert narrow.bytes_model_B < case.bytes_model_B


@pytest.mark.parametrize("number", [6, 7, 8])
def test_mesh_kernels_count_the_papers_bytes(number):
    case = mk.bs(number, elements=3, degree=2)
    local, unique = 27 * 27, 7**3
    wanted = {
        6: 8 * local + 4 * local + 4 * (unique + 1) + 8 * unique,
        7: 8 * unique + 4 * local + 8 * local,
        8: 16 * local + 4 * local + 4 * (unique + 1),
    }
    assert case.bytes_B == wanted[number]
