"""Sparse products: correct in every format and order; the check of results; the traffic model."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from checking import PROPERTY, Changed, checked, corrupted, measured, refused, refused_words, run
from hypothesis import given, settings
from hypothesis import strategies as st

import memkern as mk
from memkern import limits
from memkern.errors import InputError
from memkern.families.spmv import kernels as family
from memkern.families.spmv.data import fastest_sentences
from memkern.families.spmv.model import SpmvModel
from memkern.families.spmv.suites import MATRICES, SUITE
from memkern.inputs import matrices
from memkern.spec import registry
from memkern.spec.case import Case
from memkern.spec.sweepfile import read_sweep

FORMATS = ("crs", "sell", "ell", "csc")
pytestmark = pytest.mark.usefixtures("ceilings")


def whole(rows: int, columns: int, lengths: Any, seed: int = 0) -> sp.csr_array:
    """Return a matrix with rows of given lengths and small integers, whose sums are exact."""
    rng = np.random.default_rng(seed)
    lengths = np.minimum(np.broadcast_to(lengths, rows), columns)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    by_row = [np.sort(rng.choice(columns, n, replace=False)) for n in lengths]
    indices = np.concatenate([np.zeros(0, dtype=np.int64), *by_row])
    values = rng.integers(1, 10, len(indices)) * rng.choice([-1.0, 1.0], len(indices))
    return sp.csr_array((values, indices, starts), shape=(rows, columns))


def uneven(rows: int = 150, columns: int = 120) -> sp.csr_array:
    lengths = np.random.default_rng(3).integers(0, 9, rows)
    lengths[[0, rows // 2, rows - 1]] = (0, columns, 0)
    return whole(rows, columns, lengths)


def vector(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-50, 50, size).astype(np.float64)


def scalar(**options: Any) -> dict[str, Any]:
    """Return options with a variant of all formats, so that `best` is not determined first."""
    return {"variant": "scalar", "threads": 1, **options}


# Products


@st.composite
def products(draw: st.DrawFn) -> tuple[sp.csr_array, dict[str, Any]]:
    rows = draw(st.integers(1, 40))
    square = draw(st.booleans())
    columns = rows if square else draw(st.integers(1, 40))
    lengths = draw(st.lists(st.integers(0, 12), min_size=rows, max_size=rows))
    form = draw(st.sampled_from(FORMATS))
    options: dict[str, Any] = {
        "format": form,
        "threads": draw(st.integers(1, 3)),
        "balance": draw(st.sampled_from(family.BALANCES)),
        "dtype": draw(st.sampled_from(["float64", "float32"])),
        "index_dtype": draw(st.sampled_from(["int32", "int64"])),
        "rcm": square and draw(st.booleans()),
    }
    variants = {"crs": ["auto", "simd", "nta"], "sell": ["auto", "simd", "nta"]}
    options["variant"] = draw(st.sampled_from(["scalar", *variants.get(form, [])]))
    if form in variants:
        options["prefetch"] = draw(st.sampled_from([0, 3, 1000]))
    if form == "sell":
        chunk = draw(st.sampled_from([1, 2, 3, 4, 7, 8, 16, 32, 128]))
        options["C"] = chunk
        options["sigma"] = draw(st.sampled_from([1, chunk, 2 * chunk, rows, 10**6]))
        if 1 < options["sigma"] < rows and options["sigma"] % chunk:
            options["sigma"] = 1
        options["move_columns"] = square and draw(st.booleans())
    if form == "crs" and options["variant"] in ("scalar", "simd"):
        options["mve"] = draw(st.sampled_from([0, "auto", *family.MVE]))
    return whole(rows, columns, lengths, draw(st.integers(0, 1000))), options


@settings(PROPERTY, max_examples=120)
@given(products())
def test_integers_are_multiplied_exactly(drawn: tuple[sp.csr_array, dict[str, Any]]) -> None:
    a, options = drawn
    rows, columns = a.shape
    x, y = vector(columns, 1), vector(rows, 2)
    kept = (a.data.copy(), a.indices.copy(), a.indptr.copy(), x.copy(), y.copy())
    product = mk.spmv.convert(a, **options)
    for _ in range(2):
        got = product.multiply(x)
        assert got.dtype == options["dtype"]
        np.testing.assert_array_equal(got, a @ x)
        np.testing.assert_array_equal(product.multiply(x, y), y + a @ x)
    for before, after in zip(kept, (a.data, a.indices, a.indptr, x, y), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", [(60, 60), (97, 31), (31, 97)])
def test_real_numbers_agree_with_scipy(form: str, dtype: str, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    a = sp.random_array(shape, density=0.2, format="csr", rng=rng, data_sampler=rng.normal)
    x, y = rng.normal(size=shape[1]), rng.normal(size=shape[0])
    ours = a.astype(dtype).astype(np.float64)
    wanted = y.astype(dtype) + ours @ x.astype(dtype).astype(np.float64)
    size = np.abs(y) + abs(ours) @ np.abs(x)
    got = mk.spmv.multiply(a, x, y, format=form, dtype=dtype, threads=2)
    assert (np.abs(got - wanted) <= 30 * np.finfo(dtype).eps * size).all()


@pytest.mark.parametrize(
    "given",
    [
        lambda a: a.tocsc(),
        lambda a: a.tocoo(),
        lambda a: sp.csr_matrix(a),
        lambda a: a.toarray(),
        lambda a: (a.tocoo().row, a.tocoo().col, a.data, a.shape),
        lambda a: sp.csr_array((a.data, a.indices.astype(np.int64), a.indptr), shape=a.shape),
    ],
)
def test_matrices_of_every_kind_are_accepted(given: Any) -> None:
    a = uneven(30, 20)
    x = vector(20)
    for form in FORMATS:
        got = mk.spmv.multiply(given(a), list(x), format=form, **scalar())
        np.testing.assert_array_equal(got, a @ x)


def test_a_matrix_without_nonzeros_has_a_product_but_no_arrays() -> None:
    for a in (sp.csr_array((4, 3)), np.zeros((4, 3))):
        for form in FORMATS:
            assert mk.spmv.multiply(a, np.ones(3), dtype="float32").dtype == np.float32
            product = mk.spmv.convert(a, format=form)
            got = product.multiply(np.full(3, np.inf))
            np.testing.assert_array_equal(got, np.zeros(4))
            y = np.arange(4.0)
            got = product.multiply(np.ones(3), y)
            np.testing.assert_array_equal(got, y)
            got[:] = 7
            np.testing.assert_array_equal(y, np.arange(4.0))
    for name in ("values", "columns", "starts", "widths", "order", "beta", "convert_s", "case"):
        with pytest.raises(InputError, match="not converted"):
            getattr(product, name)
    square = mk.spmv.convert(sp.csr_array((3, 3)), rcm=True, move_columns=True)
    np.testing.assert_array_equal(square @ np.ones(3), np.zeros(3))
    with pytest.raises(InputError, match="no nonzeros"):
        mk.spmv.measure(np.zeros((4, 3)))
    with pytest.raises(InputError, match="'coo'"):
        mk.spmv.convert(np.zeros((4, 3)), format="coo")


@pytest.mark.parametrize("a", [sp.csr_array((0, 3)), sp.csr_array((3, 0)), np.zeros((0, 0))])
def test_no_rows_or_no_columns_are_refused(a: Any) -> None:
    with pytest.raises(InputError, match=r"rows and columns, not (of |the )shape"):
        mk.spmv.multiply(a, np.ones(a.shape[1]))


def test_stored_zeros_count_as_nonzeros() -> None:
    a = sp.csr_array(([0.0, 2.0], [0, 1], [0, 1, 2]), shape=(2, 2))
    assert mk.spmv.case(a).integers["nonzeros"] == 2
    got = mk.spmv.multiply(a, [np.inf, 1.0], format="crs", **scalar())
    assert np.isnan(got[0]) and got[1] == 2


def test_vectors_of_other_types_are_converted() -> None:
    a = uneven(20, 20)
    for x in (np.arange(20), np.arange(20, dtype=np.uint8), np.arange(20) > 7, range(20)):
        np.testing.assert_array_equal(mk.spmv.multiply(a, x), a @ np.asarray(x, dtype=float))
    strided = np.arange(40.0)[::2]
    np.testing.assert_array_equal(mk.spmv.multiply(a, strided), a @ strided)


def test_a_product_owns_its_matrix() -> None:
    a = uneven(20, 20)
    wanted = a @ np.ones(20)
    product = mk.spmv.convert(a, **scalar())
    case = mk.spmv.case(a, **scalar())
    identity = case.identity()
    a.data[:] = 7
    np.testing.assert_array_equal(product @ np.ones(20), wanted)
    assert case.identity() == identity
    assert product.permute_s > 0


# The arrays of a product


def rebuilt(product: Any, permutation: np.ndarray | None = None) -> np.ndarray:
    """Return the matrix of a product from its arrays and the permutation of rcm."""
    case = product.case
    rows, columns = product.shape
    values, where, starts = product.values, product.columns, product.starts
    form = case.spec.name.partition(".")[2]
    parts = (values, where, starts)
    if form in ("crs", "csc"):
        make = sp.csr_array if form == "crs" else sp.csc_array
        inner = make(parts, shape=product.shape).toarray()
    else:
        chunk = rows if form == "ell" else case.integers["chunk"]
        inner = np.zeros((rows, columns))
        for c, (begin, width) in enumerate(zip(starts, product.widths, strict=False)):
            for lane in range(chunk):
                at = begin + lane + chunk * np.arange(width)
                real = where[at] < columns
                assert (values[at][~real] == 0).all()
                assert (where[at][~real] == columns).all()
                if c * chunk + lane < rows:
                    inner[c * chunk + lane, where[at][real]] += values[at][real]
                else:
                    assert not real.any()
        assert starts[-1] == len(values) == len(where)
    dense = np.zeros((rows, columns))
    if case.integers["move_columns"]:
        names = product.order
    else:
        names = np.arange(columns) if permutation is None else permutation
    dense[np.ix_(product.order, names)] = inner
    return dense


@pytest.mark.parametrize("rcm", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        *({"format": form} for form in FORMATS),
        {"C": 1, "sigma": 5},
        {"C": 4, "sigma": 8, "move_columns": True},
        {"C": 7, "sigma": 10**9, "index_dtype": "int64", "dtype": "float32"},
        {"C": 128, "sigma": 128, "move_columns": True, "threads": 2, "balance": "nnz"},
    ],
)
def test_the_arrays_are_the_matrix(options: dict[str, Any], rcm: bool) -> None:
    a = uneven(53, 53)
    permutation = matrices.reorder(a, "rcm")[1] if rcm else None
    product = mk.spmv.convert(a, rcm=rcm, **scalar(**options))
    np.testing.assert_array_equal(rebuilt(product, permutation), a.toarray())
    assert sorted(product.order) == list(range(53))
    assert product.values.dtype == options.get("dtype", "float64")
    assert product.columns.dtype == options.get("index_dtype", "int32")
    assert product.starts.dtype == product.columns.dtype
    assert product.beta == pytest.approx(a.nnz / len(product.values))
    assert product.convert_s > 0
    if options.get("format") in ("crs", "csc"):
        assert product.beta == 1


# Refusals

SQUARE = whole(20, 20, 3)
WIDE = whole(20, 15, 3)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"format": "coo"}, "format 'coo' is not one of crs, sell, ell, csc"),
        ({"format": ["crs"]}, "is not one of crs"),
        ({"C": 0}, "C must be at least 1, not 0"),
        ({"C": 129}, "C must be at most 128, not 129"),
        ({"C": 2.5}, "C must be an integer"),
        ({"sigma": 0}, "sigma must be at least 1"),
        ({"C": 8, "sigma": 12}, "sigma must be 1, a multiple of C = 8, or at least the 20 rows"),
        ({"format": "crs", "mve": 5}, "mve must be auto, 0 or one of 1, 2, 3, 4, 6, 8, not 5"),
        ({"format": "crs", "mve": "many"}, "not 'many'"),
        ({"format": "crs", "mve": -1}, "mve must be auto"),
        ({"balance": "weight"}, "balance 'weight' is not one of rows, nnz"),
        ({"format": "crs", "move_columns": True}, "for spmv.sell of square matrices"),
        ({"dtype": "int32"}, "dtype 'int32' is not one of"),
        ({"dtype": "float16"}, "'float16'"),
        ({"dtype": int}, "dtype"),
        ({"index_dtype": "int16"}, "'int16'"),
        ({"index_dtype": ""}, "index_dtype"),
        ({"accumulate": False}, "takes no accumulate"),
        ({"unroll": 4}, "unroll 4"),
        ({"format": "crs", "unroll": 5}, "mve must be"),
        ({"format": "ell", "variant": "nta"}, "'nta'"),
        ({"format": "crs", "variant": "nt"}, "'nt'"),
        ({"prefetch": -1}, "prefetch must be at least 0"),
        ({"format": "ell", "prefetch": 8}, "spmv.ell has no prefetch"),
        ({"format": "crs", "C": 8}, "spmv.crs has no C, which is for spmv.sell"),
        ({"format": "csc", "sigma": 8}, "spmv.csc has no sigma"),
        ({"mve": 2}, "spmv.sell has no mve"),
        ({"threads": -1}, "threads must be at least 0"),
        ({"elements": 5}, "no option 'elements'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], match: str) -> None:
    with refused(match):
        mk.spmv.convert(SQUARE, **options)


@pytest.mark.parametrize("options", [{"move_columns": True}, {"rcm": True}])
def test_only_square_matrices_are_reordered(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="square"):
        mk.spmv.convert(WIDE, **options)


@pytest.mark.parametrize(
    "a, match",
    [
        (np.array([[1j]]), "must be real"),
        (np.ones((2, 2, 2)), "rows and columns"),
        ("nothing", "a matrix is one of"),
    ],
)
def test_what_is_no_matrix_is_refused(a: Any, match: str) -> None:
    for use in (mk.spmv.case, mk.spmv.convert, mk.spmv.measure):
        with refused(match):
            use(a)


@pytest.mark.parametrize(
    "x, y, match",
    [
        (np.ones(19), None, r"x must have shape \(20,\), not \(19,\)"),
        (np.ones((20, 1)), None, r"not \(20, 1\)"),
        (None, None, r"not \(\)"),
        (np.ones(20) * 1j, None, "x must hold real numbers, not 'complex128'"),
        (["a"] * 20, None, "x must hold real numbers"),
        ([[1], [1, 2]], None, "x must have shape"),
        (np.ones(20), np.ones(21), r"y must have shape \(20,\), not \(21,\)"),
        (np.ones(20), np.ones(20) * 1j, "y must hold real numbers"),
    ],
)
def test_wrong_vectors_are_refused(x: Any, y: Any, match: str) -> None:
    for a in (SQUARE, np.zeros((20, 20))):
        with refused(match):
            mk.spmv.multiply(a, x, y)


# The check


CHUNKS: list[dict[str, Any]] = [
    {"C": 8, "sigma": 32},
    {"C": 3, "sigma": 10**6, "balance": "nnz"},
    {"C": 8, "sigma": 16, "balance": "nnz"},
]
CASES = [
    mk.spmv.case(a, form, accumulate=accumulate, **{"threads": threads, "variant": "scalar", **how})
    for a in (uneven(), uneven(120, 120))
    for form in FORMATS
    for accumulate in (True, False)
    for threads in (1, 2)
    for how in (CHUNKS if form == "sell" else [{}])
]


@pytest.mark.parametrize("case", CASES)
def test_the_check_finds_wrong_results(case: Case) -> None:
    native: Any = case.prepare().native
    good = checked(case, native)
    assert good.valid
    assert good.how == "whole"
    assert 0 < good.columns["beta"] <= 1
    assert good.columns["convert_s"] > 0
    rows = case.integers["rows"]
    for position in (0, rows // 2, rows - 1):
        for change in (lambda v: v + 1, lambda v: np.nan, lambda v: np.inf, lambda v: -v - 1):
            check = checked(case, corrupted(native, "y", position, change))
            assert not check.valid
            assert check.error_max > 0
    assert not checked(case, Changed(native, run=lambda k: 0.0)).valid


@pytest.mark.parametrize("form", FORMATS)
def test_the_check_finds_another_matrix(form: str) -> None:
    a = uneven(60, 60)
    value, column, moved = a.copy(), a.copy(), a.copy()
    value.data[value.nnz // 2] += 1
    column.indices[-1] = 0 if column.indices[-1] else 1
    moved.indptr[1:] = np.maximum(moved.indptr[1:] - 1, 0)
    moved.indptr[-1] = moved.nnz
    case = mk.spmv.case(a, form, **scalar())
    for other in (value, column, moved):
        native = mk.spmv.case(other, form, **scalar()).prepare().native
        assert not checked(case, native).valid


def test_the_check_finds_an_order_that_misses_rows() -> None:
    case = mk.spmv.case(uneven(60, 60), C=4, sigma=16, **scalar())
    native: Any = case.prepare().native
    order = native.copy_out("order")
    order[3] = order[4]
    assert not checked(case, Changed(native, copy_out=lambda name: order)).valid
    # Also if a missing row equals a row that occurs twice.
    case = mk.spmv.case(np.ones((9, 9)), C=2, sigma=4, **scalar())
    native = case.prepare().native
    assert checked(case, native).valid
    order = np.zeros(9, dtype=np.int64)
    assert not checked(case, Changed(native, copy_out=lambda name: order)).valid


def test_many_rows_are_checked_by_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memkern.shared.checking.WHOLE", 100)
    monkeypatch.setattr(family, "_WHOLE_ROWS", 100)
    a = whole(20_000, 500, 3)
    for form in FORMATS:
        case = mk.spmv.case(a, form, **scalar(threads=2))
        native: Any = case.prepare().native
        check = checked(case, native)
        assert check.valid
        assert check.how == "sampled"
        assert not checked(case, Changed(native, run=lambda k: 0.0)).valid


def test_growing_values_stay_finite() -> None:
    case = mk.spmv.case(uneven(60, 60), **scalar(dtype="float32"))
    native: Any = case.prepare().native
    native.fill(outputs=True)
    native.run(1000)
    assert np.isfinite(native.copy_out("y")).all()
    assert checked(case, native).valid


@pytest.mark.parametrize("value, dtype", [(1e308, "float64"), (1e35, "float32")])
def test_products_that_overflow_are_refused(value: float, dtype: str) -> None:
    a = uneven(60, 60)
    a.data[7] = value
    with refused(f"the matrix matrix are so large that its products overflow {dtype}"):
        mk.measure(mk.spmv.case(a, dtype=dtype, runs=2, threads=1))
    # With small values of x, the products do not overflow.
    x = np.full(60, 1e-10)
    assert np.allclose(mk.spmv.convert(a, dtype=dtype) @ x, a @ x)
    a.data[7] = 1e39
    with refused("the values of spmv.sell overflow float32"):
        mk.spmv.convert(a, dtype="float32")


# Bytes


def touched(a: sp.csr_array, form: str, chunk: int, add: bool, sizes: dict[str, int]) -> tuple:
    """Return the bytes of distinct elements that a product reads, writes and uses as indices."""
    read, written, index = set(), set(), set()
    lines = a.tocsc() if form == "csc" else a
    for line in range(len(lines.indptr) - 1):
        if form == "sell":
            index |= {("starts", line // chunk), ("starts", line // chunk + 1)}
        elif form != "ell":
            index |= {("starts", line), ("starts", line + 1)}
        for k in range(lines.indptr[line], lines.indptr[line + 1]):
            other = int(lines.indices[k])
            row, column = (other, line) if form == "csc" else (line, other)
            index.add(("columns", k))
            read |= {("values", k), ("x", column)}
            written.add(("y", row))
            if add:
                read.add(("y", row))
    return (
        len(read) * sizes["value"],
        len(written) * sizes["value"],
        len(index) * sizes["index"],
    )


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("accumulate", [True, False])
@pytest.mark.parametrize("dtype, index_dtype", [("float64", "int32"), ("float32", "int64")])
def test_bytes_are_those_of_the_elements_touched(
    form: str, accumulate: bool, dtype: str, index_dtype: str
) -> None:
    dense = np.tri(7, 5) + np.eye(7, 5, 2)
    dense[:, 0] = 1
    a = sp.csr_array(dense)
    options = {"dtype": dtype, "index_dtype": index_dtype, **({"C": 3} if form == "sell" else {})}
    case = mk.spmv.case(a, form, accumulate=accumulate, **options)
    sizes = {"value": np.dtype(dtype).itemsize, "index": np.dtype(index_dtype).itemsize}
    read, written, index = touched(a, form, 3, accumulate, sizes)
    assert case.bytes_B == read + written + index
    assert case.bytes_index_B == index
    allocated = 0 if accumulate else written
    assert case.bytes_model_B == pytest.approx(read + written + index + allocated)
    assert case.traffic.read * case.iterations == pytest.approx(read)
    assert case.traffic.write * case.iterations == pytest.approx(written)


def test_the_papers_bytes_per_nonzero() -> None:
    # HPCG's inner rows: 27 nonzeros with a value and an index each; y twice and a pointer per row.
    n = 10**6
    model = SpmvModel(rows=n, columns=n, nonzeros=27 * n)
    assert model.best_alpha == pytest.approx(1 / 27)
    assert model.row_B == 20
    assert model.nonzero_B() == pytest.approx(12 + 8 / 27 + 20 / 27)
    assert model.bytes_B() == pytest.approx(n * (27 * 12 + 8 + 20))
    assert model.nonzero_B(0.5) == pytest.approx(12 + 4 + 20 / 27)
    assert model.intensity() == pytest.approx(2 / (12 + 28 / 27))
    # Long rows whose x stays in a cache: 1/6 flop per byte.
    long_rows = SpmvModel(rows=1, columns=1, nonzeros=10**9)
    assert long_rows.intensity(0.0) == pytest.approx(1 / 6)
    assert long_rows.roofline_GFLOPs(600, 0.0) == pytest.approx(100)
    assert SpmvModel(n, n, 27 * n).roofline_GFLOPs(100) == pytest.approx(200 / (12 + 28 / 27))


def test_the_models_options() -> None:
    base = SpmvModel(rows=100, columns=50, nonzeros=1000)
    write = dataclasses.replace(base, accumulate=False)
    assert write.row_B == 8 + 8 + 4
    assert dataclasses.replace(write, write_allocate=False).row_B == 8 + 4
    assert dataclasses.replace(base, write_allocate=False).row_B == 20
    half = dataclasses.replace(base, beta=0.5)
    assert half.nonzero_B() - base.nonzero_B() == pytest.approx(12)
    small = dataclasses.replace(base, value_B=4, index_B=8)
    assert small.nonzero_B(0) == pytest.approx(12 + (8 + 8) * 0.1)
    assert dataclasses.replace(base, pointers=0).row_B == 16
    assert dataclasses.replace(base, pointers=25).row_B == 17


@given(
    alpha=st.floats(0, 2),
    beta=st.floats(0.05, 1),
    bandwidth=st.floats(1, 1000),
    accumulate=st.booleans(),
)
def test_the_implied_alpha_is_the_models_inverse(
    alpha: float, beta: float, bandwidth: float, accumulate: bool
) -> None:
    model = SpmvModel(1000, 900, 7000, beta=beta, accumulate=accumulate)
    time_s = model.bytes_B(alpha) / bandwidth / 1e9
    assert model.implied_alpha(time_s, bandwidth) == pytest.approx(alpha, abs=1e-9)


@pytest.mark.parametrize(
    "wrong", [{"rows": 0}, {"columns": 0}, {"nonzeros": 0}, {"beta": 0}, {"beta": 1.5}]
)
def test_a_model_of_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="at least 1 and beta in"):
        SpmvModel(**{"rows": 1, "columns": 1, "nonzeros": 1, **wrong})


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("accumulate", [True, False])
def test_model_and_bytes_agree(form: str, accumulate: bool) -> None:
    a = uneven(60, 60)
    case = mk.spmv.case(a, form, accumulate=accumulate)
    model = family.model_of(case, 1.0)
    # The model leaves out the end of the last row.
    end_B = 0 if form == "ell" else 4
    assert model.bytes_B() == pytest.approx(case.bytes_model_B - end_B)


# Records


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("accumulate", [True, False])
def test_the_record_of_a_product(form: str, accumulate: bool) -> None:
    a = uneven(60, 60)
    how = {"C": 4, "sigma": 8, "balance": "nnz"} if form == "sell" else {}
    measured = mk.spmv.measure(a, format=form, accumulate=accumulate, **scalar(runs=5, **how))
    record = measured.record
    assert measured.valid
    assert record["kernel"] == f"spmv.{form}"
    assert record["result"] == ("add" if accumulate else "write")
    assert (record["rows"], record["columns"], record["nonzeros"]) == (60, 60, a.nnz)
    assert record["nonzeros_per_row"] == pytest.approx(a.nnz / 60)
    assert record["balance"] == how.get("balance", "rows")
    assert (record["C"], record["sigma"]) == (how.get("C", 1), how.get("sigma", 1))
    product = mk.spmv.convert(a, format=form, **scalar(**how))
    assert record["beta"] == pytest.approx(product.beta)
    assert record["convert_s"] > 0
    assert record["performance_GFLOPs"] == pytest.approx(2 * a.nnz / record["time_min_s"] / 1e9)
    median = 2 * a.nnz / record["time_median_s"] / 1e9
    assert record["performance_median_GFLOPs"] == pytest.approx(median)
    pointers = {"crs": 60, "sell": 15, "ell": 0, "csc": 60}[form]
    model = SpmvModel(*(60, 60, a.nnz), beta=product.beta, accumulate=accumulate, pointers=pointers)
    assert (record["load_GBps"], record["triad_GBps"], record["store_GBps"]) == (20, 15, 10)
    # Stores have half the bandwidth of loads; there is one more row start than in the model.
    stored_B = 60 * 8
    seconds = (model.bytes_B() - stored_B + (form != "ell") * 4) / 20e9 + stored_B / 10e9
    assert record["roofline_s"] == pytest.approx(seconds)
    assert record["roofline_GFLOPs"] == pytest.approx(2 * a.nnz / seconds / 1e9)
    assert record["roofline_fraction"] == pytest.approx(seconds / record["time_median_s"])
    assert (record["bound"], record["machine_file"]) == ("memory", "measured beside")
    entries = family.stored_entries(mk.spmv.case(a, format=form, **scalar(**how)))
    assert entries == round(a.nnz / record["beta"])
    assert record["alpha"] == pytest.approx(60 / a.nnz)
    moved_B = record["time_min_s"] * 20e9
    assert model.bytes_B(record["alpha_implied"]) == pytest.approx(moved_B)
    assert record["bandwidth_GBps"] == pytest.approx(
        measured.record["bytes_B"] / record["time_min_s"] / 1e9
    )
    assert json.loads(measured.results.to_json_text())[0]["valid"] is True


def test_the_mean_length_of_rows_selects_the_accumulators() -> None:
    for length, wanted in ((1, 1), (3, 1), (4, 2), (7, 3), (8, 4), (12, 6), (15, 6), (16, 8)):
        case = mk.spmv.case(whole(10, 40, length), "crs", mve="auto")
        assert case.knobs.unroll == wanted
    assert mk.spmv.case(SQUARE, "crs", unroll=4).knobs.unroll == 4
    assert mk.spmv.case(SQUARE, "crs").knobs.unroll == 0


def test_balance_by_rows_or_by_nonzeros() -> None:
    assert mk.spmv.case(SQUARE).integers["by_entries"] == 0
    assert mk.spmv.case(SQUARE, balance="nnz").integers["by_entries"] == 1


def test_matrices_that_differ_are_different_cases() -> None:
    other = SQUARE.copy()
    other.data[0] += 1
    cases = [
        mk.spmv.case(SQUARE),
        mk.spmv.case(other),
        mk.spmv.case(SQUARE, C=4),
        mk.spmv.case(SQUARE, sigma=8),
        mk.spmv.case(SQUARE, move_columns=True),
        mk.spmv.case(SQUARE, balance="nnz"),
        mk.spmv.case(SQUARE, accumulate=False),
        mk.spmv.case(SQUARE, "crs"),
        mk.spmv.case(SQUARE, "crs", mve=4),
    ]
    assert len({case.identity() for case in cases}) == len(cases)
    assert mk.spmv.case(SQUARE).identity() == mk.spmv.case(SQUARE.copy(), name="x").identity()


# The verb


@pytest.fixture
def file(tmp_path: Path) -> str:
    a = uneven(30, 30).tocoo()
    path = tmp_path / "small.mtx"
    lines = [f"{r + 1} {c + 1} {v}" for r, c, v in zip(a.row, a.col, a.data, strict=True)]
    header = "%%MatrixMarket matrix coordinate real general"
    path.write_text("\n".join([header, f"30 30 {a.nnz}", *lines, ""]))
    return str(path)


QUICK = ("--runs", "2", "--variant", "scalar", "-t", "1")


def test_the_verb_measures_every_combination(capsys: pytest.CaptureFixture[str], file: str) -> None:
    records = measured(
        *(capsys, "spmv", file, "-f", "crs,sell,ell,csc", "-C", "2,8", "--sigma", "1,16"),
        *("--balance", "rows,nnz", "--mve", "1,4", *QUICK),
    )
    assert all(r["valid"] and r["name"] == "file small.mtx" for r in records)
    seen = [(r["kernel"], r["balance"], r["C"], r["sigma"], r["unroll"]) for r in records]
    wanted = {
        *(("spmv.crs", b, 1, 1, u) for b in ("rows", "nnz") for u in (1, 4)),
        *(("spmv.sell", b, c, s, 0) for b in ("rows", "nnz") for c in (2, 8) for s in (1, 16)),
        *((f, b, 1, 1, 0) for f in ("spmv.ell", "spmv.csc") for b in ("rows", "nnz")),
    }
    assert len(seen) == len(wanted)
    assert set(seen) == wanted


def test_the_verb_prints_a_table(capsys: pytest.CaptureFixture[str], file: str) -> None:
    code, out, _ = run(capsys, "spmv", file, "5pt:4:5", *QUICK, "-t", "1,2")
    assert code == 0
    header, *rows = out.splitlines()
    assert header.split()[:3] == ["matrix", "format", "variant"]
    rows, (scope, *below) = rows[:8], rows[8:]
    assert scope.startswith("±%")
    labels = ("file small.mtx, 1 thread", "file small.mtx, 2 threads", "5pt:4:5, 1 thread")
    assert len(below) == 4
    assert all(any(line.startswith(f"{label}: ") for line in below) for label in labels)
    assert sum("sell-8-1" in row for row in rows) == 4
    assert sum(row.startswith("file small.mtx") for row in rows) == 4
    assert "INVALID" not in out


def test_the_suite_has_the_papers_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    code, out, _ = run(capsys, "spmv", "5pt:4:5", SUITE, "-f", "crs", *QUICK, "--json")
    rows = json.loads(out)
    # Cut to a few rows, two of the matrices are the same case.
    apart = [name for name in MATRICES if name != "like scai1"]
    assert code == 0 and [row["name"] for row in rows] == ["5pt:4:5", *apart]
    file = tmp_path / "sweep.toml"
    file.write_text(f"[[case]]\nsuite = '{SUITE}'\nformat = ['crs', 'sell']\nruns = 1\n")
    cases = list(read_sweep(file, {})[0])
    assert len(cases) == 2 * len(MATRICES)
    names = {(case.spec.name, case.labels["name"], case.labels["suite"]): case for case in cases}
    assert len(names) == len(cases)
    assert names["spmv.sell", "Spin-26", SUITE].columns["matrix"].startswith("spin:")
    with refused("format 'coo' is not one of crs"):
        registry.suite(SUITE).case(0, format="coo")


def test_the_verbs_flags(capsys: pytest.CaptureFixture[str], file: str, tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    words = f"spmv {file} -f sell --sigma 999 --move-columns --rcm --write -q -o {output}"
    how = "--dtype float32 --index-dtype int64"
    code, out, _ = run(capsys, *words.split(), *how.split(), *QUICK)
    assert (code, out) == (0, "")
    (record,) = mk.load(output)
    assert record["result"] == "write"
    assert record["sigma"] == 30
    assert record["name"] == "file small.mtx rcm"
    assert (record["dtype"], record["index_dtype"]) == ("float32", "int64")
    code, out, _ = run(capsys, "spmv", file, "-f", "crs", "--mve", "auto", *QUICK)
    assert code == 0
    assert "crs mve" in out


def test_the_seed_selects_a_random_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in ("0", "7"):
        (record,) = measured(capsys, "spmv", "band:60:20:4", "-f", "crs", *QUICK, "--seed", seed)
        assert record["name"] == f"band:60:20:4:{seed}"


@pytest.mark.parametrize(
    "words, match",
    [
        (("nothing.mtx",), "nothing.mtx"),
        (("FILE", "-f", "crs,coo"), "'coo'"),
        (("FILE", "-C", "0"), "C"),
        (("FILE", "--sigma", "0"), "sigma"),
        (("FILE", "--mve", "few"), "mve"),
        (("tsm:20:3:9", "--rcm"), "square"),
        (("FILE", "--dtype", "int32"), "int32"),
        (("FILE", "-f", "crs", "-C", "16"), "--C is for the format sell"),
        (("FILE", "-f", "crs", "--move-columns"), "--move-columns is for the format sell"),
        (("FILE", "-f", "sell", "--mve", "2"), "--mve is for the format crs"),
        (("FILE", "-f", "ell", "--prefetch", "8"), "--prefetch has no effect on spmv.ell"),
        ((), "MATRIX"),
    ],
)
def test_wrong_words_of_the_verb_are_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], file: str, words: tuple[str, ...], match: str
) -> None:
    words = tuple(file if word == "FILE" else word for word in words)
    assert match in refused_words(capsys, "spmv", *words, "--runs", "1")


def test_a_file_without_nonzeros_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "bad.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n2 2 0\n")
    sentence = refused_words(capsys, "spmv", str(path), "--runs", "1")
    assert "bad.mtx" in sentence and "no nonzeros" in sentence


def test_a_product_without_memory_for_its_validation_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a = mk.matrices.hpcg(8)
    monkeypatch.setattr(limits, "memory_left", lambda: (45.0 * a.nnz, "the group"))
    monkeypatch.setattr(limits, "_UNCHECKED_B", 0)
    with refused(f"a product with {a.nnz} nonzeros.*the group leaves"):
        mk.spmv.case(a)
    monkeypatch.setattr(limits, "memory_left", lambda: (47.0 * a.nnz, "the group"))
    assert mk.spmv.case(a).integers["nonzeros"] == a.nnz


PRODUCT: dict[str, Any] = {
    "name": "", "matrix": "hpcg:4", "nonzeros": 64, "dtype": "float64", "index_dtype": "int32",
    "result": "accumulate", "threads": 2, "ranks": 1, "valid": True, "disturbed": False,
    "kernel": "spmv.crs", "C": 0, "sigma": 0, "unroll": 0, "time_min_s": 2e-3,
    "time_min_ci_relative": 0.01, "convert_s": 1e-3,
}  # fmt: skip
SELL = {**PRODUCT, "kernel": "spmv.sell", "C": 8, "sigma": 32, "time_min_s": 1.6e-3}


@pytest.mark.parametrize(
    "records, text",
    [
        (
            [PRODUCT, {**SELL, "convert_s": 0.0099}, {**SELL, "C": 4, "time_min_s": 1.9e-3}],
            "sell-8-32 is fastest, 1.25 times as fast as crs; its conversion (0.0099 s) has paid "
            "after 25 products",
        ),
        (
            [{**SELL, "time_min_s": 2.2e-3}, PRODUCT, {**PRODUCT, "time_min_s": 2.1e-3}],
            "crs is fastest, 1.1 times as fast as sell-8-32, and needs no conversion",
        ),
        (
            [PRODUCT, {**SELL, "time_min_s": 1.985e-3, "time_min_ci_relative": math.nan}],
            "sell-8-32 and crs do not differ by more than their intervals: sell-8-32 is 1.01 times "
            "as fast, ±1%",
        ),
        (
            [SELL, {**SELL, "C": 4, "time_min_s": 3.2e-3}],
            "sell-8-32 is fastest, 2 times as fast as sell-4-32; with --format crs it is told when "
            "its conversion has paid",
        ),
        (
            [{**PRODUCT, "disturbed": True}, SELL, {**SELL, "C": 4}],
            "which format is fastest can't be told, since records are disturbed",
        ),
    ],
)  # fmt: skip
def test_the_fastest_format_is_told(records: list[dict[str, Any]], text: str) -> None:

    assert fastest_sentences(records) == f"hpcg:4, 2 threads: {text}"


def test_each_matrix_in_several_formats_has_a_sentence() -> None:
    other = [{**record, "matrix": "hpcg:8"} for record in (PRODUCT, SELL)]
    alone = {**PRODUCT, "matrix": "hpcg:16"}
    lines = fastest_sentences([PRODUCT, *other, SELL, alone]).splitlines()
    assert [line.partition(",")[0] for line in lines] == ["hpcg:4", "hpcg:8"]
