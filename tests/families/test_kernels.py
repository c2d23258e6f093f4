"""Every variant, instruction set and type of every registered kernel, compared with its reference.

A new kernel or family needs no code here: the family's file in `samples` has the cases, and the
spec has the reference.
"""

from __future__ import annotations

import dataclasses
import itertools
import platform
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checking import REQUEST, Changed, checked, corrupted, refused
from samples import PER_ELEMENT, SAMPLES, own
from shapes import built, over_length

import memkern as mk
from memkern import _memkern
from memkern.errors import InputError
from memkern.families.amo import kernels as amo
from memkern.families.loops import stencil_matvec
from memkern.families.loops.stencil_matvec import rows_held
from memkern.families.spatter import kernels as spatter
from memkern.machine import caches
from memkern.machine.declarations import declared
from memkern.shared import elementwise as streaming
from memkern.shared.checking import rounding
from memkern.spec.case import Case
from memkern.spec.kernel import Check
from memkern.spec.registry import registry

THREADS = (1, 2)
# Kernels over arrays of one length, without and with indices.
STREAMING = [name for name, s in registry().items() if over_length(s) and not s.indices]
INDEXED = [name for name, s in registry().items() if over_length(s) and s.indices]
MAPS = [name for name in STREAMING if name != "stream.rotation" and "central" not in name]

CLOCK_KNOWN = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64"),
    reason="cpp/core/clock.cpp has no instruction of known latency for this architecture",
)

Entry = tuple[str, str, str, str, str, int, str]


def options_of(entry: Entry) -> dict[str, Any]:
    """Return the options that select an entry of a kernel."""
    names = ("variant", "isa", "dtype", "index_dtype", "unroll", "template_variant")
    return dict(zip(names, entry[1:], strict=True))


def one_of_each(entries: Iterable[Any], key: Callable[[Any], Any]) -> set[Any]:
    """Return one entry, which a hash chooses, of each group of entries with the same key."""
    groups: dict[Any, list[Any]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    return {group[zlib.crc32(repr(key).encode()) % len(group)] for key, group in groups.items()}


def one_of_all(entries: Iterable[Any], keys: Iterable[Callable[[Any], Any]]) -> set[Any]:
    """Return entries with at least one of each group with the same key, for all keys."""
    entries = list(entries)
    chosen: set[Any] = set()
    for key in keys:
        covered = set(map(key, chosen))
        chosen |= one_of_each((entry for entry in entries if key(entry) not in covered), key)
    return chosen


def family_of(entry: Any) -> str:
    """Return the family of an entry's kernel."""
    return str(entry[0]).partition(".")[0]


# Keys of which the chosen entries cover all values: kernel, family and variant, variant and
# instruction set, types. Other entries are for a release, as tests/cpp run every entry.
KEYS: tuple[Callable[[Any], Any], ...] = (
    lambda e: e[0],
    lambda e: (family_of(e), e[1]),
    lambda e: (e[1], e[2]),
    lambda e: e[3:5],
)


def entry_params() -> list[Any]:
    """Return a parameter of tests for every entry of the binary.

    A hash chooses one entry of each kind (see `KEYS`), so that types and instruction sets differ
    between kernels. The others are marked `release`. Entries of `BOUND` families have their own
    tests.
    """
    every = [entry for entry in _memkern.entries() if not own(entry[0], "BOUND", False)]
    here = [entry for entry in every if entry[2] in _memkern.supported_isas()]
    chosen = one_of_all(here, KEYS)
    return [
        pytest.param(
            entry,
            id="-".join(filter(None, map(str, entry))),
            marks=() if entry in chosen else pytest.mark.release,
        )
        for entry in every
    ]


def test_chosen_entries_have_every_kernel_variant_type_and_instruction_set() -> None:
    params = entry_params()
    every = [param.values[0] for param in params]
    chosen = [param.values[0] for param in params if not param.marks]
    here = [entry for entry in every if entry[2] in _memkern.supported_isas()]
    for key in KEYS:
        assert {key(entry) for entry in chosen} == {key(entry) for entry in here}
    assert {entry[0] for entry in chosen} == {entry[0] for entry in every}
    assert len(chosen) < 2 * len({entry[0] for entry in chosen})


def test_unsupported_instruction_sets_are_refused() -> None:
    isas = _memkern.supported_isas()
    # No build has the instruction sets of two architectures.
    foreign = [("stream.copy", "simd", isa, "float64", "", 0, "") for isa in ("avx2", "sve")]
    refused = [e for e in (*_memkern.entries(), *foreign) if e[2] not in isas]
    assert refused
    for entry in refused:
        if entry[0].startswith("dw."):
            continue  # laid out for a vector: see test_dw.py
        with pytest.raises(InputError, match="has no variant"):
            for_entry(SAMPLES[entry[0]][0], options_of(entry)).prepare()


def with_threads(case: Case, threads: int) -> Case:
    """Return the case with another number of threads."""
    again = own(case.spec.name, "with_threads", None)
    return again(case, threads) if again else case.with_(threads=threads)


def for_entry(case: Case, options: dict[str, Any]) -> Case:
    """Return the case with the options of an entry."""
    again = own(case.spec.name, "for_entry", None)
    return again(case, options) if again else case.with_(**options)


def inputs(case: Case, threads: int) -> dict[str, np.ndarray]:
    """Return random integers, which are exact in every type, for every array of the case."""
    rng = np.random.default_rng(7)
    # The arrays do not depend on the variant, and comparing variants takes time.
    some = case if case.knobs.variant != "best" else case.with_(variant="scalar")
    native = some.with_(threads=threads).prepare().native
    return {
        name: rng.integers(
            0, 2**20, a["columns"] if a["rows"] == 1 else (a["rows"], a["columns"])
        ).astype(a["dtype"])
        for name, a in native.arrays().items()
    }


def test_the_extension_and_the_registry_have_the_same_kernels() -> None:
    # The rotation is a sequence of other kernels.
    assert {entry[0] for entry in _memkern.entries()} | {"stream.rotation"} == set(SAMPLES)
    assert {kernel for kernel, *_ in _memkern.declarations()} == set(registry())


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
def test_write_allocates_follow_one_rule(kernel: str) -> None:
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


def test_every_type_and_instruction_set_is_built_for_every_variant() -> None:
    entries = set(_memkern.entries())
    for name in (name for name in SAMPLES if name not in own(name, "OWN_ENTRIES", ())):
        spec = registry()[name]
        techniques = {(v, i) for n, v, i, *_ in entries if n == name}
        single = name in own(name, "SCALAR", ())
        compiled = ("scalar",) if single else ("scalar", "auto")
        same = name in own(name, "BASELINE", ())
        isas = ("baseline",) if same else _memkern.supported_isas()
        assert techniques >= set(itertools.product(compiled, isas))
        assert single or "simd" in {v for v, _ in techniques}
        forms = {(d, i, form) for n, _, _, d, i, _, form in entries if n == name}
        if not spec.template_columns:
            assert forms == {
                (d, i, "") for d in spec.limits.dtypes for i in spec.limits.index_dtypes
            }
        for (variant, isa), form in itertools.product(techniques, forms):
            assert (name, variant, isa, *form[:2], 0, form[2]) in entries


@pytest.mark.parametrize("pattern", amo.PATTERNS)
def test_atomics_are_built_for_every_primitive_order_and_use(pattern: str) -> None:
    constant = pattern in ("rand", "stride1", "striden", "central")
    for size in (64, 32):
        forms = {
            tuple(form.split("/"))
            for n, _, _, dtype, index, _, form in _memkern.entries()
            if (n, dtype) == (f"amo.{pattern}", f"uint{size}")
            and index == ("" if pattern in ("stride1", "striden", "central") else f"int{size}")
        }
        wanted = set()
        for primitive, order in itertools.product(amo.PRIMITIVES, amo.ORDERS):
            if (primitive == "exchange" and not constant) or (
                primitive == "plain" and order != "relaxed"
            ):
                continue
            always = pattern == "ptrchase" or primitive.startswith("cas")
            wanted |= {(primitive, order, use) for use in ("used", "unused")[: 1 if always else 2]}
        assert forms == wanted
    floats = {
        (dtype, form.partition("/")[0])
        for n, _, _, dtype, _, _, form in _memkern.entries()
        if n == f"amo.{pattern}" and dtype.startswith("float")
    }
    both = itertools.product(("float32", "float64"), ("add", "plain"))
    assert floats == (set(both) if constant else set())


def test_kernels_are_unrolled_as_their_families_tell() -> None:
    unrolls: dict[tuple[str, ...], set[int]] = {}
    for *key, unroll, _ in _memkern.entries():
        unrolls.setdefault(tuple(key), set()).add(unroll)
    for key, found in unrolls.items():
        assert found == own(key[0], "unrolls", lambda *_: {0})(*key[:2]), key


@pytest.mark.parametrize("entry", entry_params())
def test_kernel_agrees_with_its_reference(entry: Entry) -> None:
    kernel, variant, isa, dtype, *_ = entry
    options = options_of(entry)
    samples = SAMPLES[kernel][:4] if options["unroll"] else SAMPLES[kernel]
    if isa not in _memkern.supported_isas():
        for case in samples:
            with pytest.raises(InputError, match=r"has no variant|vector of"):
                for_entry(case, options).prepare()
        return
    for sample in samples:
        one = for_entry(sample, options).with_(threads=1, schedule="static")
        arrays = inputs(one, 1)
        wanted = one.spec.checks.reference(one, arrays)
        got = one.apply(**arrays)
        allowed = one.spec.checks.ulps * rounding(dtype)
        for name, values in wanted.items():
            np.testing.assert_allclose(
                got[name],
                values,
                rtol=0,
                atol=allowed * float(np.max(np.abs(values), initial=1.0)),
                err_msg=f"{name} of {one.columns}",
            )
        for threads in THREADS:
            case = for_entry(with_threads(sample, threads), options)
            prepared = case.prepare()
            assert prepared.obtained["variant"] == variant
            assert prepared.obtained["isa"] == isa
            check = prepared.check()
            assert check.valid, f"{case.columns} with {threads} threads: {check}"


def check_corrupted(case: Case, native: Any, array: str, position: int, value: float) -> Check:
    """Check a prepared case with an element overwritten after every run."""
    methods = ("run", "run_range")
    return checked(case, corrupted(native, array, position, lambda _: value, methods))


@pytest.mark.parametrize("kernel", spatter.KERNELS)
@pytest.mark.parametrize("threads, value", [(1, 0.5), (1, 3e6), (1, np.nan), (1, -1.0), (2, 0.5)])
def test_corrupted_result_is_caught(kernel: str, threads: int, value: float) -> None:
    array = {"gs": "sparse_scatter"}.get(kernel, "dense" if "gather" in kernel else "sparse")
    for case in SAMPLES[f"spatter.{kernel}"]:
        case = case.with_(threads=threads, schedule="static", chunk=0, variant="scalar")
        native = case.prepare().native
        length = native.arrays()[array]["columns"]
        for position in (0, length // 2, length - 1):
            check = check_corrupted(case, native, array, position, value)
            assert not check.valid, f"{array}[{position}] of {case.columns}"
            assert check.error_max > 0
        assert checked(case, native).valid


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize(
    "shape",
    [
        {"pattern": "UNIFORM:8:4:NR", "count": 70_000},
        {"pattern": "UNIFORM:8:4", "delta": [8, 0, 16], "count": 70_000, "wrap": 3},
        {"pattern": "0,3,3,1", "delta": 0, "count": 200_000, "wrap": 3},
        {"pattern": "UNIFORM:16:8", "delta": 1, "count": 40_000},
        {"pattern": "UNIFORM:16:8", "delta": -3, "count": 40_000},
    ],
)
@pytest.mark.parametrize("kernel", ["gather", "scatter", "gs"])
def test_large_cases_are_checked_by_samples(
    kernel: str, shape: dict[str, Any], threads: int
) -> None:
    shape = dict(shape)
    if kernel == "gs":
        pattern = mk.patterns.as_pattern(shape.pop("pattern"))
        shape.pop("wrap", None)
        shape.setdefault("delta", pattern.delta)
        shape.update(pattern_gather=pattern, pattern_scatter=pattern)
    case = spatter.case(kernel, threads=threads, variant="scalar", **shape)
    check = checked(case, case.prepare().native)
    assert check.valid, check
    assert check.how in ("sampled", "membership")


@pytest.mark.parametrize("chunk, how", [(0, "whole"), (4, "whole"), (2, "sampled")])
def test_gathers_are_checked_whole_where_no_row_is_used_twice(chunk: int, how: str) -> None:
    # With chunks of 2 a worker has instances 0, 1, 4 and 5, and 4 and 5 reuse rows 0 and 1.
    case = spatter.case("gather", pattern="0,1", count=8, wrap=4, threads=2, chunk=chunk)
    check = checked(case, case.prepare().native)
    assert (check.valid, check.how) == (True, how)


def test_a_large_scatter_that_does_nothing_is_caught() -> None:
    case = mk.scatter("UNIFORM:8:4:NR", count=70_000, threads=2)
    assert not checked(case, Changed(case.prepare().native, run=lambda k: 0.0)).valid


def test_a_large_gather_of_the_wrong_place_is_caught() -> None:
    case = mk.gather("UNIFORM:8:4:NR", count=70_000, threads=1)
    other = mk.gather("UNIFORM:8:4", delta=31, count=70_000, threads=1)
    native = other.prepare().native
    assert checked(other, native).valid
    assert not checked(case, native).valid


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
def test_traffic_counts_what_the_definition_moves(
    kernel: str, dtype: str, index_dtype: str
) -> None:
    for case in SAMPLES[f"spatter.{kernel}"]:
        case = case.with_(dtype=dtype, index_dtype=index_dtype)
        read, written, index = brute_force_traffic(case)
        value, entry = np.dtype(dtype).itemsize, np.dtype(index_dtype).itemsize
        count = case.integers["count"]
        assert case.traffic.read * count == read * value
        assert case.traffic.write * count == written * value
        assert case.traffic.index * count == index * entry
        assert case.bytes_B == (read + written) * value
        assert case.traffic.view(index=True) == case.traffic.view() + case.traffic.index


def test_model_counts_lines_once() -> None:
    # 64 instances of 8 neighbours touch 64 lines: read once, or read and written back.
    gather = mk.gather("UNIFORM:8:1:NR", count=64)
    scatter = mk.scatter("UNIFORM:8:1:NR", count=64)
    assert gather.bytes_model_B == 64 * 64
    assert scatter.bytes_model_B == 2 * 64 * 64
    # At stride 8 every element is in a different line.
    wide = mk.gather("UNIFORM:8:8:NR", count=64)
    assert wide.bytes_model_B == 8 * 64 * 64
    # Instances at the same place share their lines.
    still = mk.gather("UNIFORM:8:8", delta=0, count=64)
    assert still.bytes_model_B == 8 * 64


def test_lines_are_those_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_every_level_has_its_own_traffic() -> None:
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
def test_values_of_shared_nodes_cross_the_first_boundary_more_often(kernel: str) -> None:
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
def test_the_record_of_an_irregular_kernel_has_the_traffic_of_each_level(kernel: str) -> None:
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
def test_a_gpu_fills_sectors_that_masked_nodes_leave_in_part(dtype: str) -> None:
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
def test_a_gpu_transfers_sectors_and_fills_those_that_are_written_in_part(dtype: str) -> None:
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
def test_a_gpu_fills_sectors_at_the_ends_of_rows_of_the_stencil(columns: int, dtype: str) -> None:
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


@pytest.mark.parametrize("kernel", spatter.KERNELS)
def test_another_seed_fills_other_values(kernel: str) -> None:
    case = SAMPLES[f"spatter.{kernel}"][0].with_(threads=1)
    results = [case.with_(seed=seed).apply() for seed in (0, 0, 1, 2**63 - 1)]
    for name, values in results[0].items():
        np.testing.assert_array_equal(values, results[1][name])
        assert (values != results[2][name]).any()
        assert (results[2][name] != results[3][name]).any()
    assert case.with_(seed=1).identity() != case.identity()
    record = case.with_(seed=1, runs=3).measure().record
    assert record["valid"]
    assert record["seed"] == 1


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("memory_B", [2**28, 2**31, 2**36])
def test_cases_of_a_report_fit_half_of_the_memory(quick: bool, memory_B: int) -> None:
    cases = spatter.report_cases(quick, 2**25, memory_B)
    sizes = [spatter._sparse_B(case) for case in cases]
    assert max(sizes) <= memory_B // 2
    assert max(sizes) >= min(memory_B // 4, 2**26)
    assert {case.labels["name"] for case in cases} >= {"PENNANT-G0", "LULESH-S3"}


@pytest.mark.parametrize("kernel", [k for k in SAMPLES if not own(k, "BOUND", False)])
def test_roles_say_what_a_kernel_writes(kernel: str) -> None:
    case = with_threads(SAMPLES[kernel][1 % len(SAMPLES[kernel])], 1)
    arrays = inputs(case, 1)
    after = case.apply(**arrays)
    for role in case.spec.arrays:
        changed = (after[role.name] != arrays[role.name]).any()
        assert changed == (role.role != "read"), role


@pytest.mark.parametrize("kernel", [*MAPS, "stream.rotation", *INDEXED])
def test_roles_say_what_a_kernel_reads(kernel: str) -> None:
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
def test_traffic_and_flops_are_those_of_the_papers(kernel: str) -> None:
    spec = registry()[kernel]
    case = spec.build(kernel, elements=64)
    assert (case.bytes_B, spec.counts.flops) == (
        64 * PER_ELEMENT[kernel][0],
        PER_ELEMENT[kernel][1],
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kernel", MAPS)
def test_streaming_traffic_follows_from_the_roles(kernel: str, dtype: str) -> None:
    case = built(kernel, elements=10, dtype=dtype)
    size = np.dtype(dtype).itemsize
    roles = [r.role for r in case.spec.arrays if r.name != streaming.RESULT]
    moved = sum(2 if role == "update" else 1 for role in roles) * size
    assert case.bytes_B == moved * 10
    assert case.bytes_model_B == (moved + roles.count("write") * size) * 10
    nontemporal = case.with_(variant="nt")
    assert nontemporal.bytes_model_B == case.bytes_B


@pytest.mark.parametrize("elements", [3000, 2**20 + 50_001])
@pytest.mark.parametrize("kernel", [*STREAMING, *INDEXED])
def test_corrupted_streams_are_caught(kernel: str, elements: int) -> None:
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


def test_a_reduction_that_leaves_a_worker_out_is_caught() -> None:
    case = mk.loops("sum", 2**20 + 50_001, threads=2)
    native = case.prepare().native
    half = Changed(native, run=lambda k: native.run_range(0, case.iterations // 2))
    assert not checked(case, half).valid


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kernel", ["loops.sum", "bs.bs3", "bs.bs4"])
def test_sums_are_accurate_and_reproducible(kernel: str, dtype: str) -> None:
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
def test_results_of_extreme_scalars_are_valid(alpha: float, dtype: str, tmp_path: Path) -> None:
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
        ({"kernel": "stream.triad", "elements": 0}, "elements"),
        ({"kernel": "stream.triad", "elements": 2**62}, "size"),
        ({"kernel": "stream.copy", "elements": 9, "alpha": 2.0}, "no scalar alpha"),
        ({"kernel": "stream.scale", "elements": 9, "alpha": float("nan")}, "from -1e"),
        ({"kernel": "stream.scale", "elements": 9, "alpha": 1.7e308}, "from -1e.09 to 1e.09"),
        ({"kernel": "stream.copy", "elements": 9, "budget_s": 1e308}, "between 0 and 1e"),
        ({"kernel": "stream.copy", "elements": 9, "budget_s": 5e-324}, "between 0 and 1e"),
        ({"kernel": "stream.scale", "elements": 9, "dtype": "uint64"}, "uint64"),
        ({"kernel": "bs.bs1", "elements": 9, "dtype": "int64"}, "int64"),
        ({"kernel": "stream.scale", "elements": 9, "dtype": "int64", "alpha": 0.5}, "whole"),
        ({"kernel": "raider.sg_scale", "elements": 9, "dtype": "int32", "alpha": 0.5}, "whole"),
        ({"kernel": "stream.scale", "elements": 9, "footprint_B": 99}, "not both"),
        ({"kernel": "stream.scale", "elements": 9, "offset": 12}, "multiple of 8"),
        ({"kernel": "stream.scale", "elements": 9, "offset": 2**30}, "multiple of 8 bytes from 0"),
        ({"kernel": "stream.scale", "elements": 9, "unroll": 2}, "not built with unroll 2"),
        ({"kernel": "loops.copy", "elements": 9, "unroll": 5}, "unroll 5: there are 0, 1, 2"),
        ({"kernel": "stream.copy", "elements": 9, "index_dtype": "int32"}, "index_dtype"),
        ({"kernel": "stream.rotation", "elements": 9, "runs": 201}, "at most 200"),
        ({"kernel": "stream.rotation", "elements": 9, "runs": 11, "dtype": "float32"}, "most 10"),
        ({"kernel": "stream.rotation", "elements": 9, "repetition": "free"}, "'free' takes a"),
        ({"kernel": "stream.copy", "elements": 9, "definition": "book"}, "definition 'book'"),
        ({"kernel": "loops.sum", "elements": 9, "variant": "nt"}, "nt"),
    ],
)
def test_wrong_streams_are_refused(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        mk.case(**arguments).prepare().run(1)


TRIAD: dict[str, Any] = {
    **REQUEST,
    "kernel": "stream.triad",
    "integers": {"elements": 4, "prefetch": 0},
}


# Kernels whose declared shapes are formulas of integers of the case.
FORMULAS = [*STREAMING, *INDEXED, *(k for k in SAMPLES if k in own(k, "FORMULAS", ()))]


@pytest.mark.parametrize("kernel", FORMULAS)
def test_declared_shapes_are_those_of_the_arrays(kernel: str) -> None:
    case = SAMPLES[kernel][1].with_(threads=1, variant="scalar")
    arrays = case.prepare().native.arrays()
    assert {*arrays} == {role.name for role in case.spec.arrays}
    for role in case.spec.arrays:
        shape = eval(role.shape, {"cuts": 1}, dict(case.integers))
        assert shape == (arrays[role.name]["columns"],), role


def test_kernels_that_the_extension_does_not_declare_are_refused() -> None:
    with refused("kernel 'loops.dance' is not declared in the extension"):
        declared("loops.dance")


def test_missing_and_unknown_arguments_are_refused() -> None:
    for name in TRIAD:
        with pytest.raises(ValueError, match=f"argument {name} is missing"):
            _memkern.Prepared(**{k: v for k, v in TRIAD.items() if k != name})
    with pytest.raises(ValueError, match="argument colour is unknown"):
        _memkern.Prepared(**TRIAD, colour="red")
    for name, wrong in (("index_dtype", 5), ("integers", {"elements": 1.5, "prefetch": 0}),
                        ("integers", {"elements": 2**64, "prefetch": 0})):  # fmt: skip
        with pytest.raises(ValueError, match=f"argument {name} has the wrong type"):
            _memkern.Prepared(**{**TRIAD, name: wrong})


@pytest.mark.parametrize("kernel", INDEXED)
def test_index_kernels_count_their_bytes(kernel: str) -> None:
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


@pytest.mark.parametrize("pattern", ["permutation", "hot:0.5:0.01"])
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("kernel", ["raider.scatter_triad", "raider.sg_copy"])
def test_scatters_are_checked_by_every_writer(kernel: str, threads: int, pattern: str) -> None:
    how = {"threads": threads, "pattern": pattern, "variant": "scalar"}
    case = built(kernel, elements=2**20 + 1001, **how)
    native = case.prepare().native
    check = checked(case, native)
    assert check.valid
    race = pattern != "permutation" and threads > 1
    assert check.how == ("membership" if race else "sampled")
    assert not checked(case, Changed(native, run=lambda k: 0.0)).valid


@pytest.mark.parametrize("number", [6, 7, 8])
def test_mesh_kernels_count_the_papers_bytes(number: int) -> None:
    case = mk.bs(number, elements=3, degree=2)
    local, unique = 27 * 27, 7**3
    wanted = {
        6: 8 * local + 4 * local + 4 * (unique + 1) + 8 * unique,
        7: 8 * unique + 4 * local + 8 * local,
        8: 16 * local + 4 * local + 4 * (unique + 1),
    }
    assert case.bytes_B == wanted[number]


# The largest mesh has more than a million local nodes, of which the check reads a sample.
@pytest.mark.parametrize("number", [6, 7, 8])
@pytest.mark.parametrize(("elements", "masked"), [(3, "none"), (3, "boundary"), (17, "boundary")])
def test_corrupted_meshes_are_caught(number: int, masked: str, elements: int) -> None:
    how = {"masked": masked, "threads": 2, "variant": "scalar"}
    case = mk.bs(number, elements=elements, degree=5, **how)
    native = case.prepare().native
    array = "xg" if number == 6 else "xl"
    last = native.arrays()[array]["columns"] - 1
    for position in (0, last):
        assert not check_corrupted(case, native, array, position, 12345.678).valid
    assert checked(case, native).valid


def test_growing_values_are_sampled_from_steady_inputs() -> None:
    measured = mk.bs(8, elements=4, degree=3, runs=40, threads=2).measure()
    assert measured.valid
    assert measured.record["invocations"] == 50
    # In 2000 successive invocations shared nodes would grow to 8**2000.
    prepared = mk.bs(8, elements=4, degree=3, threads=1).prepare()
    prepared.native.fill(outputs=True)
    prepared.run(400)
    assert not np.isfinite(prepared.native.copy_out("xl")).all()


@pytest.mark.parametrize(
    "arguments, match",
    [
        ({"kernel": "raider.gather_copy", "elements": 4, "pattern": [0, 1, 2, 2]}, "repeats"),
        ({"kernel": "raider.gather_copy", "elements": 4, "pattern": [0, 1, 2, 7]}, "7"),
        ({"kernel": "raider.gather_copy", "elements": 4, "pattern": "colour"}, "colour"),
        ({"kernel": "raider.scatter_copy", "elements": 4, "alpha": 1.0}, "no scalar"),
        ({"kernel": "raider.gather_swap", "elements": 4}, "raider.gather_swap"),
        ({"kernel": "bs.bs6", "elements": 0}, "elements"),
        ({"kernel": "bs.bs6", "elements": 2, "degree": 0}, "degree"),
        ({"kernel": "bs.bs7", "elements": 10**6}, "nodes"),
        ({"kernel": "bs.bs9", "elements": 2}, "bs.bs9"),
        ({"kernel": "loops.stencil", "rows": 3}, "rows and columns"),
        ({"kernel": "loops.stencil", "rows": 2, "columns": 9}, "rows"),
        ({"kernel": "loops.stencil", "elements": 99, "layer_condition": "L9"}, "L9"),
        ({"kernel": "loops.stencil", "footprint_B": -1.0}, "footprint_B must be a number from 1"),
        ({"kernel": "loops.matvec", "elements": 0}, "elements"),
        ({"kernel": "loops.matvec", "rows": 9, "elements": 9}, "one of"),
        ({"kernel": "loops.matvec", "rows": 2**39, "columns": 2**39}, "rows times columns"),
    ],
)
def test_wrong_shapes_are_refused(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        mk.case(**arguments).prepare()


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("kernel", ["stream.triad", "raider.gather_triad"])
def test_integers_are_computed_modulo_their_range(kernel: str, dtype: str) -> None:
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


def test_the_rotation_is_what_stream_runs() -> None:
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
    models = [
        mk.stream(name, elements=5000).with_(variant=measured.record["variant"])
        for name in ("copy", "scale", "add", "triad")
    ]
    assert [part.record["bytes_model_B"] for part in measured.parts] == [
        model.bytes_model_B for model in models
    ]
    total = sum(part.samples for part in measured.parts)
    assert (total <= measured.samples).all()
    assert (total >= 0.3 * measured.samples).all()
    assert [r["kernel"] for r in measured.results] == [*parts, "stream.rotation"]
    assert all(part.valid and part.record["rotation"] for part in measured.parts)


@pytest.mark.parametrize("runs", [1, 200])
def test_a_rotation_of_any_number_of_runs_is_valid(runs: int) -> None:
    assert mk.stream(elements=2000, runs=runs).measure().valid
    narrow = mk.stream(elements=2000, runs=min(runs, 10), dtype="float32")
    assert narrow.measure().valid


@CLOCK_KNOWN
def test_cycles_come_from_the_measured_clock() -> None:
    record = mk.loops("copy", 4000, threads=1, variant="simd", runs=5).measure().record
    assert 0.1 < record["clock_GHz"] < 10
    lanes = {"avx512": 8, "avx2": 4}.get(record["isa"], 2)
    cycles = record["time_min_s"] * record["clock_GHz"] * 1e9
    assert record["cycles_per_vector"] == pytest.approx(cycles / (4000 / lanes))


@CLOCK_KNOWN
def test_no_more_flops_than_accumulators_allow() -> None:
    # If accumulators were merged into one, the rate would exceed the hardware's.
    rates = {
        unroll: mk.loops("peakflops", 10**6, threads=1, unroll=unroll, variant="simd", budget_s=0.2)
        .measure()
        .record["cycles_per_vector"]
        for unroll in (8, 16)
    }
    assert all(rate >= 0.2 for rate in rates.values()), rates


def test_rows_of_the_stencil_fit_their_cache() -> None:
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
        with pytest.raises(InputError, match=match):
            rows_held(where, {**caches, "L2": 2**15} if where == "L2" else caches)


# Sizes of L1, L2 and L3 of a made-up machine whose workers share L3.
MADE_UP_B = (2**12, 2**14, 2**18)


@pytest.fixture
def made_up_caches(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    caches = [
        {"level": level, "size_B": size_B, "shared_by": 2 if level == 3 else 1}
        for level, size_B in enumerate(MADE_UP_B, 1)
    ]
    monkeypatch.setattr(stencil_matvec, "data_caches", lambda: caches)
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
    where: str, conditions: list[str], threads: int, made_up_caches: list[dict[str, Any]]
) -> None:
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


@pytest.mark.usefixtures("made_up_caches")
def test_a_layer_condition_is_given_instead_of_rows_and_columns() -> None:
    with pytest.raises(InputError, match="layer_condition chooses rows and columns"):
        mk.loops("stencil", rows=12, columns=30, layer_condition="L1")
    with pytest.raises(InputError, match="L4"):
        mk.loops("stencil", layer_condition="L4")


@pytest.mark.parametrize("masked", ["none", "boundary"])
def test_the_numbering_of_nodes_changes_no_sums(masked: str) -> None:
    results = []
    for numbering in ("elements", "lexicographic"):
        case = mk.bs(6, elements=3, degree=3, masked=masked, numbering=numbering)
        assert case.columns["numbering"] == numbering
        rng = np.random.default_rng(3)
        local = rng.permutation(np.arange(case.integers["local_nodes"], dtype=float))
        results.append(np.sort(case.apply(xl=local)["xg"]))
    np.testing.assert_array_equal(*results)


def test_meshes_are_prefetched_by_default() -> None:
    assert [mk.bs(n, elements=2).knobs.prefetch for n in (6, 7, 8)] == [1024, 256, 1024]
    assert mk.bs(6, elements=2, prefetch=0).knobs.prefetch == 0
    assert [mk.bs(n, elements=2).stop.invocations for n in (1, 6, 8)] == [20, 20, 50]
