"""The changed cases of the experiments on products, loops, meshes, lattices and streams."""

import numpy as np
import pytest
import scipy.sparse as sp
from changed_cases import changed, footprint_B

import memkern as mk
from memkern.machine.caches import Share

CACHES = {name: Share(name, 2**power, 1) for name, power in (("L1", 13), ("L2", 16), ("L3", 20))}
RNG = np.random.default_rng(0)
# Three rows in four are short, and all have random columns.
LENGTHS = np.resize([1, 1, 1, 21], 2**12)
STARTS = np.concatenate([[0], np.cumsum(LENGTHS)])
MATRIX = sp.csr_array(
    (RNG.random(STARTS[-1]), RNG.integers(0, 2**12, STARTS[-1]), STARTS), shape=(2**12, 2**12)
)


SHARED = (
    *("in a stream", "huge", "4 KiB", "one thread", "all threads", "region", "variant"),
    *("non-temporal", "block-threads"),
)


def own(case, **facts):
    """Return the changed cases of the family's own experiments and of the levels, all valid."""
    every = changed(case, **{"caches": CACHES, "last_B": 2**20, "variants": ("simd",)} | facts)
    found = {
        name: one
        for name, one in every.items()
        if one != case and not any(word in name for word in SHARED)
    }
    for name, one in found.items():
        assert mk.measure(one.with_(runs=3)).record["valid"], name
    return found


@pytest.mark.parametrize("format", ["crs", "sell", "csc"])
def test_products_get_other_columns_and_rows(format):
    case = mk.spmv(MATRIX, format, threads=2)
    found = own(case)
    if format == "csc":
        assert found.keys() == {"equal nonzeros of threads"}
        return
    for name, share in CACHES.items():
        level = found.get(f"data in {name}")
        if level is None:
            assert name == "L3"  # holds the whole matrix
            continue
        assert 0.5 < footprint_B(level) / share.size_B < 1.3
        rows, columns, nonzeros = (level.integers[n] for n in ("rows", "columns", "nonzeros"))
        assert rows == columns == level.columns["rows"]
        assert nonzeros / rows == pytest.approx(6, rel=0.2)
        assert level.indices["columns"].max() < columns
    folded = found["x in L1"]
    assert folded.indices["columns"].tolist() == (case.indices["columns"] % 256).tolist()
    assert folded.data is case.data
    equal = found["equal rows"]
    assert set(np.diff(equal.indices["starts"])) == {5, 6}
    assert equal.bytes_B == folded.bytes_B == case.bytes_B
    assert found["--prefetch 64"].knobs.prefetch == 64
    balanced = mk.spmv(MATRIX, format, threads=2, balance="nnz")
    assert found["equal nonzeros of threads"] == balanced
    chunks = mk.spmv(MATRIX, "sell", C=8, sigma=1024, threads=2)
    assert found["chunks of sorted rows"] == chunks
    assert own(case.with_(threads=1)).keys() == found.keys() - {"equal nonzeros of threads"}


def test_products_of_a_long_row_are_in_no_cache():
    lengths = np.ones(2**12, dtype=np.int64)
    lengths[7] = 2**15
    starts = np.concatenate([[0], np.cumsum(lengths)])
    columns = np.arange(starts[-1])
    a = sp.csr_array((np.ones(len(columns)), columns, starts), shape=(2**12, 2**16))
    found = own(mk.spmv(a, "crs", threads=2))
    assert not [name for name in found if name.startswith("data in L")]
    assert np.ptp(np.diff(found["equal rows"].indices["starts"])) == 1


@pytest.mark.parametrize(
    "kernel, inner, each_B, layers",
    [("stencil", "columns", 16, 3), ("matvec", "rows", 8, 2)],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_loops_get_shorter_rows_or_columns(kernel, inner, each_B, layers, threads):
    sizes = {"rows": 2**8, "columns": 2**15}
    if inner == "rows":
        sizes = {"rows": 2**16, "columns": 2**7}
    case = mk.loops(kernel, **sizes, threads=threads)
    found = own(case)
    for name, share in CACHES.items():
        level, reuse = found[f"data in {name}"], found[f"reuse in {name}"]
        rows, columns = level.integers["rows"], level.integers["columns"]
        assert 0.8 < rows * columns * each_B / (share.size_B / 2 * threads) <= 1
        assert level.columns["elements"] == rows * columns
        length = reuse.integers[inner] / (threads if inner == "rows" else 1)
        assert 0.9 < length * layers * 8 / (share.size_B / 2) <= 1
        same = reuse.integers["rows"] * reuse.integers["columns"]
        assert same == pytest.approx(sizes["rows"] * sizes["columns"], rel=0.01)
    # The cache holds the layers of the case already.
    shorter = mk.loops(kernel, **{**sizes, inner: 100}, threads=threads)
    assert not any("reuse" in name for name in own(shorter))
    assert "data in L2" in own(mk.loops("triad", elements=2**16))


@pytest.mark.parametrize(
    "kernel, options, alone",
    [
        ("bs1", {"elements": 2**16}, None),
        ("bs2", {"elements": 2**16}, ("bs.bs1", "nt")),
        ("bs3", {"elements": 2**16}, ("loops.load", "simd")),
        ("bs6", {"elements": 8, "degree": 3}, ("bs.bs1", "simd")),
        ("bs7", {"elements": 8, "degree": 3, "variant": "nt"}, ("bs.bs1", "nt")),
        ("bs8", {"elements": 8, "degree": 3}, ("bs.bs1", "nt")),
    ],
)
def test_tests_on_meshes_are_compared_with_copies(kernel, options, alone):
    case = mk.case(f"bs.{kernel}", **options)
    found = own(case)
    level = found["data in L2"]
    assert level.columns.keys() == case.columns.keys()
    assert footprint_B(level) <= CACHES["L2"].size_B
    assert ("the bytes alone" in found) == (alone is not None)
    if alone is not None:
        one = found["the bytes alone"]
        assert (one.spec.kernel, one.knobs.variant) == alone
        assert footprint_B(one) == pytest.approx(2**24, rel=0.01)
    if "degree" in options:
        assert level.columns["degree"] == 3
        ordered = found["indices in ascending order"].indices
        for name, values in case.indices.items():
            assert ordered[name].tolist() == sorted(values.tolist())
        assert found["--prefetch 0"].knobs.prefetch == 0


def test_an_empty_launch_has_no_data():
    assert not own(mk.case("bs.bs0"))


@pytest.mark.parametrize("kernel", ["gather_triad", "scatter_copy", "sg_add", "triad"])
@pytest.mark.parametrize("threads", [1, 2])
def test_streams_get_other_indices(kernel, threads):
    case = mk.raider(kernel, 2**16, threads=threads)
    found = own(case)
    level = found["data in L2"]
    n = level.integers["elements"]
    assert 0.4 < footprint_B(level) / (CACHES["L2"].size_B * threads) <= 0.6
    for name, index in case.indices.items():
        # The accesses to the first elements in the same order.
        assert level.indices[name].tolist() == index[index < n].tolist()
        assert found["indices in ascending order"].indices[name].tolist() == [*range(2**16)]
        parts = np.split(found["indices in one line"].indices[name], threads)
        for worker, part in enumerate(parts):
            assert set(part) == {*range(8 * worker, 8 * worker + 8)}
    assert ("indices in one line" in found) == bool(case.indices)


@pytest.mark.parametrize(
    "options, smaller, longer",
    [
        ({}, "8x8x4x1", "8x8x4x32"),
        ({"cut": "tz", "layout": "RIRI", "vector": 128, "dtype": "float32"}, "8x8x4x2", "8x8x4x32"),
        ({"layout": "lexicographic"}, "8x8x4x1", "8x8x4x32"),
        ({"parity": "odd"}, "8x8x4x2", "16x8x4x16"),
    ],
)
def test_lattices_get_smaller_or_longer(options, smaller, longer):
    case = mk.dw((16, 16, 8, 4), ls=8, **options)
    found = own(case, caches={**CACHES, "L3": Share("L3", 2**22, 1)})
    kept = ("Ls", "reals", "split", "shared", "cut_x", "cut_y", "cut_z", "cut_t")
    for name, extents in (("data in L3", smaller), ("reuse in L3", longer)):
        one = found[name]
        assert one.columns["lattice"] == extents
        assert [one.integers[n] for n in kept] == [case.integers[n] for n in kept]
        assert one.template_variant == case.template_variant
        assert one.with_(repetition="fork").knobs == case.knobs
    assert not [name for name in found if name in ("reuse in L1", "data in L1")]


def test_lattices_in_blocks_are_not_changed():
    case = mk.dw((8, 8, 8, 8), block=(4, 4, 4, 4))
    assert own(case).keys() <= {"--prefetch 0", "--prefetch 3"}
