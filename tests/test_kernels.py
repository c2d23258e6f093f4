"""Every backend, variant, instruction set and type of every registered kernel, by one test.

A new kernel needs no code here: its spec brings the cases (``SAMPLES`` below has what a family's
inputs look like) and the reference.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import memkern as mk
from memkern import _memkern
from memkern.errors import InputError
from memkern.kernels import spatter, streaming
from memkern.spec import Case, Check, registry

THREADS = (1, 2)


def spatter_samples(kernel: str) -> list[Case]:
    """Shapes that leave tails, overlap, run backwards, wrap, and take turns."""
    shapes: list[dict[str, Any]] = [
        {"pattern": "UNIFORM:8:1:NR", "count": 33},
        {"pattern": "UNIFORM:16:24:8", "count": 40, "wrap": 3},
        {"pattern": [0], "delta": 1, "count": 7},
        {"pattern": [5, 0, 3, 3, 1, 9, 2], "delta": 4, "count": 19, "wrap": 2},
        {"pattern": list(range(0, 57, 3)), "delta": -5, "count": 21},
        {"pattern": [2, 0, 0, 0, 2, 0, 0, 1, 4], "delta": [3, 0, -2], "count": 25, "wrap": 4},
        {"pattern": [1, 4, 2, 8], "delta": 0, "count": 12, "wrap": 5},
        {"pattern": "LAPLACIAN:3:1:7", "count": 31, "prefetch": 3},
        {"pattern": "UNIFORM:8:2:NR", "count": 50, "chunk": 4},
        {"pattern": "UNIFORM:8:2:NR", "count": 50, "chunk": 3, "schedule": "dynamic"},
        {"pattern": "UNIFORM:8:2:NR", "count": 50, "repetition": "barrier"},
        {"pattern": "UNIFORM:8:2:NR", "count": 50, "repetition": "free", "wrap": 2},
    ]
    cases = []
    for shape in shapes:
        shape = dict(shape)
        if kernel == "gs":
            pattern = mk.patterns.as_pattern(shape.pop("pattern"))
            shape.pop("wrap", None)
            shape["pattern_gather"] = pattern
            shape["pattern_scatter"] = pattern.indices[::-1].copy()
            shape.setdefault("delta", pattern.delta or 8)
        elif kernel.startswith("multi"):
            outer = mk.patterns.as_pattern(shape["pattern"])
            inner = [(7 * i + 2) % len(outer) for i in range(len(outer) + 2)]
            shape[f"pattern_{kernel.removeprefix('multi')}"] = inner
        cases.append(spatter.case(kernel, **shape))
    return cases


def streaming_samples(kernel: str) -> list[Case]:
    """Lengths around vectors and blocks, every schedule and way to repeat."""
    shapes: list[dict[str, Any]] = [
        {"elements": 1},
        {"elements": 7},
        {"elements": 64, "seed": 3},
        {"elements": 1001},
        {"elements": 2**17 + 13},
        {"elements": 1001, "chunk": 17},
        {"elements": 1001, "chunk": 9, "schedule": "dynamic"},
        {"elements": 333, "repetition": "barrier"},
        {"elements": 333, "repetition": "free"},
    ]
    return [streaming.case(kernel, **shape) for shape in shapes]


STREAMING = [name for name in registry() if name.partition(".")[0] in streaming.FAMILIES]

SAMPLES = {
    **{f"spatter.{kernel}": spatter_samples(kernel) for kernel in spatter.KERNELS},
    **{kernel: streaming_samples(kernel) for kernel in STREAMING},
    "launch.empty": [mk.launch()],
}


def every_build() -> list[Any]:
    """(kernel, variant, isa, dtype, index dtype) of the whole binary."""
    return [pytest.param(*entry, id="-".join(filter(None, entry))) for entry in _memkern.entries()]


def inputs(case: Case, threads: int) -> dict[str, np.ndarray]:
    """Random whole numbers for every array of the case, exact in every type."""
    rng = np.random.default_rng(7)
    native = case.with_(threads=threads, variant="best").prepare().native
    return {
        name: rng.integers(
            0, 2**20, a["columns"] if a["rows"] == 1 else (a["rows"], a["columns"])
        ).astype(a["dtype"])
        for name, a in native.arrays().items()
    }


def test_both_sides_have_the_same_kernels() -> None:
    assert {entry[0] for entry in _memkern.entries()} == set(registry())
    assert set(SAMPLES) == set(registry())


def test_every_type_and_instruction_set_is_built_for_every_variant() -> None:
    entries = set(_memkern.entries())
    for name, spec in registry().items():
        techniques = {(v, i) for n, v, i, *_ in entries if n == name}
        assert {"scalar", "auto", "simd"} <= {v for v, _ in techniques}
        for (variant, isa), dtype, index in itertools.product(
            techniques, spec.dtypes, spec.index_dtypes
        ):
            assert (name, variant, isa, dtype, index) in entries


@pytest.mark.parametrize("kernel, variant, isa, dtype, index", every_build())
def test_kernel_agrees_with_its_reference(
    kernel: str, variant: str, isa: str, dtype: str, index: str
) -> None:
    if isa not in _memkern.supported_isas():
        # What this processor can't run must be refused in words.
        for case in SAMPLES[kernel]:
            with pytest.raises(InputError, match="has no variant"):
                case.with_(variant=variant, isa=isa, dtype=dtype, index_dtype=index).prepare()
        return
    for sample in SAMPLES[kernel]:
        one = sample.with_(
            variant=variant, isa=isa, dtype=dtype, index_dtype=index, threads=1, schedule="static"
        )
        arrays = inputs(one, 1)
        wanted = one.spec.reference(one, arrays)
        got = one.apply(**arrays)
        allowed = one.spec.ulps * float(np.finfo(dtype).eps)
        for name, values in wanted.items():
            np.testing.assert_allclose(
                got[name],
                values,
                rtol=0,
                atol=allowed * float(np.max(np.abs(values), initial=1.0)),
                err_msg=f"{name} of {one.columns}",
            )
        for threads in THREADS:
            case = sample.with_(
                variant=variant, isa=isa, dtype=dtype, index_dtype=index, threads=threads
            )
            prepared = case.prepare()
            assert prepared.obtained["variant"] == variant
            assert prepared.obtained["isa"] == isa
            check = prepared.check()
            assert check.valid, f"{case.columns} with {threads} threads: {check}"


def once(case: Case, native: Any) -> Check:
    return case.spec.check(case, native, lambda: native.run(1))


class Corrupting:
    """A prepared case whose results are spoilt after every invocation."""

    def __init__(self, native: Any, array: str, position: int, value: float) -> None:
        self.native, self.array, self.position, self.value = native, array, position, value

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)

    def _spoil(self) -> None:
        self.native.poke(self.array, np.array([self.position]), np.array([self.value]))

    def run(self, invocations: int) -> float:
        seconds = float(self.native.run(invocations))
        self._spoil()
        return seconds

    def run_range(self, begin: int, end: int) -> float:
        seconds = float(self.native.run_range(begin, end))
        self._spoil()
        return seconds


def checked(case: Case, array: str, position: int, value: float) -> Check:
    spoilt: Any = Corrupting(case.prepare().native, array, position, value)
    return once(case, spoilt)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("kernel", spatter.KERNELS)
@pytest.mark.parametrize("value", [0.5, 3e6, float("nan"), -1.0])
def test_corrupted_result_is_caught(kernel: str, threads: int, value: float) -> None:
    array = {"gs": "sparse_scatter"}.get(kernel, "dense" if "gather" in kernel else "sparse")
    for case in SAMPLES[f"spatter.{kernel}"]:
        case = case.with_(threads=threads, schedule="static", chunk=0)
        native = case.prepare().native
        length = native.arrays()[array]["columns"]
        assert once(case, native).valid
        for position in (0, length // 2, length - 1):
            check = checked(case, array, position, value)
            assert not check.valid, f"{array}[{position}] of {case.columns}"
            assert check.error_max > 0


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
    case = spatter.case(kernel, threads=threads, **shape)
    check = once(case, case.prepare().native)
    assert check.valid, check
    assert check.how in ("sampled", "membership")


def test_a_large_scatter_that_does_nothing_is_caught() -> None:
    case = mk.scatter("UNIFORM:8:4:NR", count=70_000, threads=2)
    native = case.prepare().native

    class Idle(Corrupting):
        def run(self, invocations: int) -> float:
            return 0.0

    spoilt: Any = Idle(native, "sparse", 0, 0.0)
    assert not once(case, spoilt).valid


def test_a_large_gather_of_the_wrong_place_is_caught() -> None:
    case = mk.gather("UNIFORM:8:4:NR", count=70_000, threads=1)
    other = mk.gather("UNIFORM:8:4", delta=31, count=70_000, threads=1)
    native = other.prepare().native
    assert once(other, native).valid
    assert not once(case, native).valid


def brute_force_traffic(case: Case) -> tuple[int, int, int]:
    """Elements read and written in sparse arrays and index elements, counted one by one."""
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
    assert gather.spec.model_bytes(gather) == 64 * 64
    assert scatter.spec.model_bytes(scatter) == 2 * 64 * 64
    # At stride 8 every element has a line to itself.
    wide = mk.gather("UNIFORM:8:8:NR", count=64)
    assert wide.spec.model_bytes(wide) == 8 * 64 * 64
    # Instances on top of each other share theirs.
    still = mk.gather("UNIFORM:8:8", delta=0, count=64)
    assert still.spec.model_bytes(still) == 8 * 64


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
def test_a_report_respects_the_memory_there_is(quick: bool, memory_B: int) -> None:
    cases = spatter.report_cases(quick, 2**25, memory_B)
    sizes = [spatter._sparse_B(case) for case in cases]
    assert max(sizes) <= memory_B // 2
    assert max(sizes) >= min(memory_B // 4, 2**26)
    assert {case.labels["name"] for case in cases} >= {"PENNANT-G0", "LULESH-S3"}


@pytest.mark.parametrize("kernel", STREAMING)
def test_roles_say_what_a_kernel_reads_and_writes(kernel: str) -> None:
    case = streaming.case(kernel, elements=50, threads=1)
    arrays = inputs(case, 1)
    after = case.apply(**arrays)
    for role in case.spec.arrays:
        changed = (after[role.name] != arrays[role.name]).any()
        assert changed == (role.role != "read"), role
        # What is read has a say in some result, what is only written has none.
        other = {**arrays, role.name: arrays[role.name] + np.asarray(2**21, case.dtype)}
        again = case.apply(**other)
        written = [r.name for r in case.spec.arrays if r.role != "read"]
        heard = any((again[name] != after[name]).any() for name in written)
        assert heard == (role.role != "write"), role


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kernel", STREAMING)
def test_streaming_traffic_follows_from_the_roles(kernel: str, dtype: str) -> None:
    case = streaming.case(kernel, elements=10, dtype=dtype)
    size = np.dtype(dtype).itemsize
    roles = [r.role for r in case.spec.arrays if r.name != streaming.RESULT]
    moved = sum(2 if role == "update" else 1 for role in roles) * size
    assert case.bytes_B == moved * 10
    assert case.spec.model_bytes(case) == (moved + roles.count("write") * size) * 10
    past_caches = case.with_(variant="nt")
    assert past_caches.spec.model_bytes(past_caches) == case.bytes_B


@pytest.mark.parametrize("elements", [3000, 2**20 + 50_001])
@pytest.mark.parametrize("kernel", STREAMING)
def test_corrupted_streams_are_caught(kernel: str, elements: int) -> None:
    case = streaming.case(kernel, elements=elements, threads=2)
    native = case.prepare().native
    assert once(case, native).valid
    for role in case.spec.arrays:
        if role.role == "read":
            continue
        last = native.arrays()[role.name]["columns"] - 1
        for position in (0, last):
            check = checked(case, role.name, position, 12345.678)
            assert not check.valid, f"{role.name}[{position}]"


def test_a_reduction_that_leaves_a_worker_out_is_caught() -> None:
    case = mk.loops("sum", 2**20 + 50_001, threads=2)
    native = case.prepare().native

    class Half(Corrupting):
        def run(self, invocations: int) -> float:
            return float(self.native.run_range(0, case.iterations // 2))

    spoilt: Any = Half(native, "a", 0, 0.0)
    assert not once(case, spoilt).valid


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kernel", ["loops.sum", "bs.bs3", "bs.bs4"])
def test_sums_are_accurate_and_reproducible(kernel: str, dtype: str) -> None:
    case = streaming.case(kernel, elements=3_000_000, dtype=dtype, threads=2, variant="auto")
    sums = [float(case.apply()[streaming.RESULT][0]) for _ in range(3)]
    assert len(set(sums)) == 1
    # Whole numbers below 2**20, so that the exact sum fits 64 bits.
    arrays = {**inputs(case, 2), streaming.RESULT: np.zeros(1)}
    got = float(case.apply(**arrays)[streaming.RESULT][0])
    first, *second = (v.astype(np.int64) for k, v in arrays.items() if k != streaming.RESULT)
    factor = {"loops.sum": 1, "bs.bs3": first}.get(kernel, second[0] if second else 1)
    exact = int(np.sum(first * factor))
    assert abs(got - exact) <= 4 * float(np.finfo(dtype).eps) * exact


@pytest.mark.parametrize(
    "arguments, match",
    [
        ({"kernel": "stream.nothing", "elements": 1}, "stream.nothing"),
        ({"kernel": "stream.triad", "elements": 0}, "elements"),
        ({"kernel": "stream.triad", "elements": 2**62}, "size"),
        ({"kernel": "stream.copy", "elements": 9, "alpha": 2.0}, "no scalar alpha"),
        ({"kernel": "stream.scale", "elements": 9, "alpha": float("nan")}, "finite"),
        ({"kernel": "stream.scale", "elements": 9, "dtype": "int64"}, "int64"),
        ({"kernel": "stream.scale", "elements": 9, "prefetch": 4}, "prefetch"),
        ({"kernel": "loops.sum", "elements": 9, "variant": "nt"}, "nt"),
    ],
)
def test_wrong_streams_are_refused(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        streaming.case(**arguments).prepare()


@pytest.mark.parametrize("arrays", [[], [("a", True)], [("a", True)] * 5])
def test_the_extension_takes_as_many_arrays_as_the_body(arrays: list[tuple[str, bool]]) -> None:
    with pytest.raises(ValueError, match="takes 3 arrays"):
        _memkern.Prepared(
            kernel="stream.triad", dtype="float64", index_dtype="", threads=1, pin="none",
            integers={"elements": 4, "prefetch": 0}, numbers={}, arrays=arrays, indices={},
            pages="default", numa="first-touch", schedule="static", chunk=0, repetition="fork",
            flush=False, seed=0,
        )  # fmt: skip
