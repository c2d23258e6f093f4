"""Kernels over streams and meshes: their checks, wrong options, rotation, integers and shapes."""

import platform
from typing import Any

import numpy as np
import pytest
from checking import Changed, checked, corrupted, refused
from chosen_entries import INDEXED, STREAMING, THREADS, check_corrupted, inputs
from shapes import built

import memkern as mk
from memkern import _memkern
from memkern.families.loops import kernels as loops
from memkern.families.loops.kernels import rows_held
from memkern.shared import elementwise as streaming
from memkern.spec.registry import registry

CLOCK_KNOWN = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64"),
    reason="cpp/core/clock.cpp has no instruction of known latency for this architecture",
)


@pytest.mark.parametrize("elements", [3000, 2**20 + 50_001])
@pytest.mark.parametrize("kernel", [*STREAMING, *INDEXED])
def test_corrupted_streams_are_caught(kernel, elements):
    case = built(kernel, elements=elements, threads=2, variant="scalar")
    native = case.prepare().native
    for role in case.spec.arrays:
        if role.role == "read":
            continue
        last = native.arrays()[role.name]["columns"] - 1
        for position in (0, last):
            check = check_corrupted(case, native, role.name, position, 12345.678)
            assert not check.valid, f"{role.name}[{position}]"
    # Later runs are valid again.
    assert checked(case, native).valid


def test_a_reduction_that_leaves_a_worker_out_is_caught():
    case = mk.loops("sum", 2**20 + 50_001, threads=2)
    native = case.prepare().native
    half = Changed(native, run=lambda k: native.run_range(0, case.iterations // 2))
    assert not checked(case, half).valid


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kernel", ["loops.sum", "bs.bs3", "bs.bs4"])
def test_sums_are_accurate_and_reproducible(kernel, dtype):
    case = built(kernel, elements=3_000_000, dtype=dtype, threads=2, variant="auto")
    sums = [float(case.apply()[streaming.RESULT][0]) for _ in range(3)]
    assert len(set(sums)) == 1
    # Integers below 2**20, so that the exact sum fits 64 bits.
    arrays = {**inputs(case, 2), streaming.RESULT: np.zeros(1)}
    got = float(case.apply(**arrays)[streaming.RESULT][0])
    first, *second = (v.astype(np.int64) for k, v in arrays.items() if k != streaming.RESULT)
    factor = {"loops.sum": 1, "bs.bs3": first}.get(kernel, second[0] if second else 1)
    exact = int(np.sum(first * factor))
    assert abs(got - exact) <= 4 * float(np.finfo(dtype).eps) * exact


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("alpha", [0.0, 1e9, -1e9, 1e-300])
def test_results_of_extreme_scalars_are_valid(alpha, dtype, tmp_path):
    path = tmp_path / "x.json"
    cases = [
        mk.case(name, elements=100, alpha=alpha, dtype=dtype, threads=1, runs=2, variant="scalar")
        for name in (*STREAMING, *INDEXED)
        if "alpha" in registry()[name].numbers and name != "stream.rotation"
    ]
    mk.sweep(cases, output=path)
    wrong = [r["kernel"] for r in mk.load(path) if not r["valid"] or r["alpha"] != alpha]
    assert wrong == []


@pytest.mark.parametrize(
    "arguments, match",
    [
        ({"kernel": "stream.nothing", "elements": 1}, "stream.nothing"),
        ({"kernel": "stream.triad", "elements": 2**62}, "size"),
        ({"kernel": "stream.copy", "elements": 9, "alpha": 2.0}, "no scalar alpha"),
        ({"kernel": "stream.scale", "elements": 9, "dtype": "uint64"}, "uint64"),
        ({"kernel": "stream.scale", "elements": 9, "dtype": "int64", "alpha": 0.5}, "whole"),
        ({"kernel": "stream.scale", "elements": 9, "footprint_B": 99}, "not both"),
        ({"kernel": "stream.scale", "elements": 9, "offset": 12}, "multiple of 8"),
        ({"kernel": "stream.scale", "elements": 9, "unroll": 2}, "not built with unroll 2"),
        ({"kernel": "loops.copy", "elements": 9, "unroll": 17}, "unroll 17: there are 0, 1, 2"),
        ({"kernel": "stream.rotation", "elements": 9, "runs": 201}, "at most 200"),
        ({"kernel": "stream.rotation", "elements": 9, "runs": 11, "dtype": "float32"}, "most 10"),
        ({"kernel": "stream.rotation", "elements": 9, "repetition": "free"}, "'free' takes a"),
        ({"kernel": "loops.sum", "elements": 9, "variant": "nt"}, "nt"),
        ({"kernel": "raider.gather_copy", "elements": 4, "pattern": [0, 1, 2, 2]}, "repeats"),
        ({"kernel": "raider.gather_copy", "elements": 4, "pattern": [0, 1, 2, 7]}, "7"),
        ({"kernel": "raider.gather_copy", "elements": 4, "pattern": "colour"}, "colour"),
        ({"kernel": "bs.bs7", "elements": 10**6}, "nodes"),
        ({"kernel": "loops.stencil", "rows": 3}, "rows and columns"),
        ({"kernel": "loops.stencil", "rows": 9, "columns": 9, "layer_condition": "L1"},
         "layer_condition chooses rows and columns"),
        ({"kernel": "loops.matvec", "rows": 9, "elements": 9}, "one of"),
        ({"kernel": "loops.matvec", "rows": 2**39, "columns": 2**39}, "rows times columns"),
    ],
)  # fmt: skip
def test_wrong_streams_are_refused(arguments, match):
    with refused(match):
        mk.case(**arguments).prepare().run(1)


@pytest.mark.parametrize("pattern", ["permutation", "hot:0.5:0.01"])
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("kernel", ["raider.scatter_triad", "raider.sg_copy"])
def test_scatters_are_checked_by_every_writer(kernel, threads, pattern):
    how = {"threads": threads, "pattern": pattern, "variant": "scalar"}
    case = built(kernel, elements=2**20 + 1001, **how)
    native = case.prepare().native
    check = checked(case, native)
    assert check.valid
    race = pattern != "permutation" and threads > 1
    assert check.how == ("membership" if race else "sampled")
    assert not checked(case, Changed(native, run=lambda k: 0.0)).valid


# The largest mesh has more than a million local nodes, of which the check reads a sample.
@pytest.mark.parametrize("number", [6, 7, 8])
@pytest.mark.parametrize(("elements", "masked"), [(3, "none"), (3, "boundary"), (17, "boundary")])
def test_corrupted_meshes_are_caught(number, masked, elements):
    how = {"masked": masked, "threads": 2, "variant": "scalar"}
    case = mk.bs(number, elements=elements, degree=5, **how)
    native = case.prepare().native
    array = "xg" if number == 6 else "xl"
    last = native.arrays()[array]["columns"] - 1
    for position in (0, last):
        assert not check_corrupted(case, native, array, position, 12345.678).valid
    assert checked(case, native).valid


def test_growing_values_are_sampled_from_steady_inputs():
    measured = mk.bs(8, elements=4, degree=3, runs=40, threads=2).measure()
    assert measured.valid and measured.record["invocations"] == 50
    # In 2000 successive invocations shared nodes would grow to 8**2000.
    prepared = mk.bs(8, elements=4, degree=3, threads=1).prepare()
    prepared.native.fill(outputs=True)
    prepared.run(400)
    assert not np.isfinite(prepared.native.copy_out("xl")).all()


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("kernel", ["stream.triad", "raider.gather_triad"])
def test_integers_are_computed_modulo_their_range(kernel, dtype):
    variants = {
        variant for name, variant, _, of, *_ in _memkern.entries() if (name, of) == (kernel, dtype)
    }
    assert {"scalar", "auto"} <= variants
    for variant in variants:
        case = mk.case(kernel, elements=1003, dtype=dtype, alpha=-1e9, variant=variant, threads=2)
        native = case.prepare().native
        assert checked(case, native).valid
        a, b, c = (native.copy_out(name) for name in "abc")
        index = case.indices.get("IDX1", np.arange(1003))
        np.testing.assert_array_equal(a, b + np.dtype(dtype).type(-(10**9)) * c[index])
        assert not checked(case, corrupted(native, "a", 5, lambda value: value + 1)).valid
    rotation = mk.stream("rotation", 1003, dtype=dtype, threads=2)
    assert checked(rotation, rotation.prepare().native, 40).valid


def test_the_rotation_is_what_stream_runs():
    case = mk.stream(elements=5000, threads=2)
    arrays = {"a": np.full(5000, 2.0), "b": np.full(5000, 2.0), "c": np.zeros(5000)}
    after = case.apply(**arrays)
    assert {name: set(values) for name, values in after.items()} == {
        "a": {30.0}, "b": {6.0}, "c": {8.0}
    }  # fmt: skip
    measured = case.measure()
    assert measured.valid
    assert measured.record["samples"] == 9  # ten, the first dropped
    parts = [part.record["kernel"] for part in measured.parts]
    assert parts == ["stream.copy", "stream.scale", "stream.add", "stream.triad"]
    assert sum(part.record["bytes_B"] for part in measured.parts) == measured.record["bytes_B"]
    for part, name in zip(measured.parts, ("copy", "scale", "add", "triad"), strict=True):
        model = mk.stream(name, elements=5000, variant=measured.record["variant"])
        assert part.record["bytes_model_B"] == model.bytes_model_B
    total = sum(part.samples for part in measured.parts)
    assert (total <= measured.samples).all()
    assert (total >= 0.3 * measured.samples).all()
    assert [r["kernel"] for r in measured.results] == [*parts, "stream.rotation"]
    assert all(part.valid and part.record["rotation"] for part in measured.parts)


@pytest.mark.parametrize("runs", [1, 200])
def test_a_rotation_of_any_number_of_runs_is_valid(runs):
    assert mk.stream(elements=2000, runs=runs).measure().valid
    narrow = mk.stream(elements=2000, runs=min(runs, 10), dtype="float32")
    assert narrow.measure().valid


@CLOCK_KNOWN
def test_cycles_come_from_the_measured_clock():
    record = mk.loops("copy", 4000, threads=1, variant="simd", runs=5).measure().record
    assert 0.1 < record["clock_GHz"] < 10
    lanes = {"avx512": 8, "avx2": 4}.get(record["isa"], 2)
    cycles = record["time_min_s"] * record["clock_GHz"] * 1e9
    assert record["cycles_per_vector"] == pytest.approx(cycles / (4000 / lanes))


@CLOCK_KNOWN
def test_no_more_flops_than_accumulators_allow():
    # If accumulators were merged into one, the rate would exceed the hardware's.
    rates = {
        unroll: mk.loops("peakflops", 10**6, threads=1, unroll=unroll, variant="simd", budget_s=0.2)
        .measure()
        .record["cycles_per_vector"]
        for unroll in (8, 16)
    }
    assert all(rate >= 0.2 for rate in rates.values()), rates


def test_rows_of_the_stencil_fit_their_cache():
    caches = {"L1": 2**15, "L2": 2**20, "L3": 2**25}
    columns = {where: rows_held(where, caches) for where in (*caches, "memory")}
    for where, size in caches.items():
        assert 3 * 8 * columns[where] <= size / 2
    assert 3 * 8 * columns["L2"] > caches["L1"]
    assert 3 * 8 * columns["L3"] > caches["L2"]
    assert 3 * 8 * columns["memory"] > caches["L3"]
    assert rows_held("L1", caches, "float32") == pytest.approx(2 * columns["L1"], abs=2)
    for where, match in (
        ("L4", "must be one of L1, L2, L3, memory here"),
        ("L2", "no more rows than a smaller"),
    ):
        with refused(match):
            rows_held(where, {**caches, "L2": 2**15} if where == "L2" else caches)


# Sizes of L1, L2 and L3 of a made-up machine whose workers share L3.
MADE_UP_B = (2**12, 2**14, 2**18)


@pytest.fixture
def made_up_caches(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    caches = [
        {"level": level, "size_B": size_B, "shared_by": 2 if level == 3 else 1}
        for level, size_B in enumerate(MADE_UP_B, 1)
    ]
    monkeypatch.setattr(loops, "data_caches", lambda: caches)
    return caches


@pytest.mark.parametrize(
    "where, conditions",
    [
        ("L1", ["rows", "rows", "rows"]), ("L2", ["none", "rows", "rows"]),
        ("L3", ["none", "none", "rows"]), ("memory", ["none", "none", "none"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("threads", [1, 2])
def test_the_layer_condition_chooses_the_size_and_caches_decide(
    where, conditions, threads, made_up_caches
):
    case = mk.loops("stencil", elements=2**20, layer_condition=where, threads=threads)
    rows, columns = case.integers["rows"], case.integers["columns"]
    assert 0.9 * 2**20 < rows * columns <= 2**20
    assert case.spec.model.conditions is not None
    assert list(case.spec.model.conditions(case, made_up_caches).values()) == conditions
    larger = [{**cache, "size_B": 2**30} for cache in made_up_caches]
    assert set(case.spec.model.conditions(case, larger).values()) == {"rows"}
    # A row that no cache holds is read three times, and a store reads its line.
    inner = (rows - 2) * (columns - 2)
    reads = 3 if where == "memory" else 1
    assert case.bytes_B == 16 * inner
    moved = case.bytes_model_B
    assert moved == pytest.approx((reads + 2) * 8 * inner, rel=2.1 / (rows // threads))
    assert case.with_(variant="nt").bytes_model_B == pytest.approx(moved - 8 * inner)


@pytest.mark.parametrize("masked", ["none", "boundary"])
def test_the_numbering_of_nodes_changes_no_sums(masked):
    results = []
    for numbering in ("elements", "lexicographic"):
        case = mk.bs(6, elements=3, degree=3, masked=masked, numbering=numbering)
        assert case.columns["numbering"] == numbering
        rng = np.random.default_rng(3)
        local = rng.permutation(np.arange(case.integers["local_nodes"], dtype=float))
        results.append(np.sort(case.apply(xl=local)["xg"]))
    np.testing.assert_array_equal(*results)


def test_meshes_are_prefetched_by_default():
    assert [mk.bs(n, elements=2).knobs.prefetch for n in (6, 7, 8)] == [1024, 256, 1024]
    assert mk.bs(6, elements=2, prefetch=0).knobs.prefetch == 0
    assert [mk.bs(n, elements=2).stop.invocations for n in (1, 6, 8)] == [20, 20, 50]
