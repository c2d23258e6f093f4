"""Sparse products: correct in every format and order; the check of results; the traffic model."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from checking import PROPERTY, Changed, checked, corrupted, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices_for_products import FORMATS, SQUARE, scalar, uneven, vector, whole

import memkern as mk
from memkern.errors import InputError
from memkern.families.spmv import kernels as family
from memkern.families.spmv.model import SpmvModel
from memkern.inputs import matrices

pytestmark = pytest.mark.usefixtures("ceilings")


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
def test_integers_are_multiplied_exactly(drawn):
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
def test_real_numbers_agree_with_scipy(form, dtype, shape):
    rng = np.random.default_rng(5)
    a = sp.random_array(shape, density=0.2, format="csr", random_state=rng, data_sampler=rng.normal)
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
def test_matrices_of_every_kind_are_accepted(given):
    a = uneven(30, 20)
    x = vector(20)
    for form in FORMATS:
        got = mk.spmv.multiply(given(a), list(x), format=form, **scalar())
        np.testing.assert_array_equal(got, a @ x)


def test_a_matrix_without_nonzeros_has_a_product_but_no_arrays():
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


def test_stored_zeros_count_as_nonzeros():
    a = sp.csr_array(([0.0, 2.0], [0, 1], [0, 1, 2]), shape=(2, 2))
    assert mk.spmv.case(a).integers["nonzeros"] == 2
    got = mk.spmv.multiply(a, [np.inf, 1.0], format="crs", **scalar())
    assert np.isnan(got[0]) and got[1] == 2


def test_vectors_of_other_types_are_converted():
    a = uneven(20, 20)
    for x in (np.arange(20), np.arange(20, dtype=np.uint8), np.arange(20) > 7, range(20)):
        np.testing.assert_array_equal(mk.spmv.multiply(a, x), a @ np.asarray(x, dtype=float))
    strided = np.arange(40.0)[::2]
    np.testing.assert_array_equal(mk.spmv.multiply(a, strided), a @ strided)


def test_a_product_owns_its_matrix():
    a = uneven(20, 20)
    wanted = a @ np.ones(20)
    product = mk.spmv.convert(a, **scalar())
    case = mk.spmv.case(a, **scalar())
    identity = case.identity()
    a.data[:] = 7
    np.testing.assert_array_equal(product @ np.ones(20), wanted)
    assert case.identity() == identity
    assert product.permute_s > 0


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
def test_the_arrays_are_the_matrix(options, rcm):
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


@pytest.mark.parametrize(
    "options, match",
    [
        ({"format": "coo"}, "format 'coo' is not one of crs, sell, ell, csc"),
        ({"format": ["crs"]}, "is not one of crs"),
        ({"C": 8, "sigma": 12}, "sigma must be 1, a multiple of C = 8, or at least the 20 rows"),
        ({"format": "crs", "mve": 5}, "mve must be auto, 0 or one of 1, 2, 3, 4, 6, 8, not 5"),
        ({"dtype": "float16"}, "'float16'"),
        ({"accumulate": False}, "takes no accumulate"),
        ({"format": "crs", "unroll": 5}, "not built with unroll 5"),
        ({"format": "crs", "variant": "nt"}, "'nt'"),
        ({"matrix": whole(20, 15, 3), "move_columns": True}, "square"),
        ({"matrix": whole(20, 15, 3), "rcm": True}, "square"),
    ],
)
def test_wrong_options_are_refused(options, match):
    with refused(match):
        mk.spmv.convert(**{"matrix": SQUARE, **options})


@pytest.mark.parametrize(
    "a, match",
    [
        (np.array([[1j]]), "must be real"),
        (np.ones((2, 2, 2)), "rows and columns"),
        ("nothing", "a matrix is one of"),
        (sp.csr_array((0, 3)), r"rows and columns, not (of |the )shape"),
        (np.zeros((3, 0)), r"rows and columns, not (of |the )shape"),
    ],
)
def test_what_is_no_matrix_is_refused(a, match):
    for use in (mk.spmv.case, mk.spmv.convert, mk.spmv.measure):
        with refused(match):
            use(a)


@pytest.mark.parametrize(
    "x, y, match",
    [
        (np.ones(19), None, r"x must have shape \(20,\), not \(19,\)"),
        (None, None, r"not \(\)"),
        (np.ones(20) * 1j, None, "x must hold real numbers, not 'complex128'"),
        (["a"] * 20, None, "x must hold real numbers"),
        ([[1], [1, 2]], None, "x must have shape"),
        (np.ones(20), np.ones(21), r"y must have shape \(20,\), not \(21,\)"),
        (np.ones(20), np.ones(20) * 1j, "y must hold real numbers"),
    ],
)
def test_wrong_vectors_are_refused(x, y, match):
    for a in (SQUARE, np.zeros((20, 20))):
        with refused(match):
            mk.spmv.multiply(a, x, y)


CHUNKS: list[dict[str, Any]] = [
    {"C": 8, "sigma": 32},
    {"C": 3, "sigma": 10**6, "balance": "nnz"},
    {"C": 8, "sigma": 16, "balance": "nnz"},
]
CASES = [
    mk.spmv.case(a, form, accumulate=accumulate, **scalar(threads=threads, **how))
    for a, threads in ((uneven(), 1), (uneven(120, 120), 2))
    for form in FORMATS
    for accumulate in (True, False)
    for how in (CHUNKS if form == "sell" else [{}])
]


@pytest.mark.parametrize("case", CASES)
def test_the_check_finds_wrong_results(case):
    native: Any = case.prepare().native
    good = checked(case, native)
    assert good.valid and good.how == "whole"
    rows = case.integers["rows"]
    for position in (0, rows // 2, rows - 1):
        for change in (lambda v: v + 1, lambda v: np.nan, lambda v: np.inf, lambda v: -v - 1):
            check = checked(case, corrupted(native, "y", position, change))
            assert not check.valid
            assert check.error_max > 0
    assert not checked(case, Changed(native, run=lambda k: 0.0)).valid


@pytest.mark.parametrize("form", FORMATS)
def test_the_check_finds_another_matrix(form):
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


def test_the_check_finds_an_order_that_misses_rows():
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


def test_many_rows_are_checked_by_samples(monkeypatch):
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


def test_growing_values_stay_finite():
    case = mk.spmv.case(uneven(60, 60), **scalar(dtype="float32"))
    native: Any = case.prepare().native
    native.fill(outputs=True)
    native.run(1000)
    assert np.isfinite(native.copy_out("y")).all()
    assert checked(case, native).valid


@pytest.mark.parametrize("value, dtype", [(1e308, "float64"), (1e35, "float32")])
def test_products_that_overflow_are_refused(value, dtype):
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
def test_bytes_are_those_of_the_elements_touched(form, accumulate, dtype, index_dtype):
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


def test_the_papers_bytes_per_nonzero():
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


def test_the_models_options():
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
def test_the_implied_alpha_is_the_models_inverse(alpha, beta, bandwidth, accumulate):
    model = SpmvModel(1000, 900, 7000, beta=beta, accumulate=accumulate)
    time_s = model.bytes_B(alpha) / bandwidth / 1e9
    assert model.implied_alpha(time_s, bandwidth) == pytest.approx(alpha, abs=1e-9)


@pytest.mark.parametrize(
    "wrong", [{"rows": 0}, {"columns": 0}, {"nonzeros": 0}, {"beta": 0}, {"beta": 1.5}]
)
def test_a_model_of_nothing_is_refused(wrong):
    with pytest.raises(InputError, match="at least 1 and beta in"):
        SpmvModel(**{"rows": 1, "columns": 1, "nonzeros": 1, **wrong})


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("accumulate", [True, False])
def test_model_and_bytes_agree(form, accumulate):
    a = uneven(60, 60)
    case = mk.spmv.case(a, form, accumulate=accumulate)
    model = family.model_of(case, 1.0)
    # The model leaves out the end of the last row.
    end_B = 0 if form == "ell" else 4
    assert model.bytes_B() == pytest.approx(case.bytes_model_B - end_B)
