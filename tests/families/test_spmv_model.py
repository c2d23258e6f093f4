"""Bytes of sparse products, and the model of traffic per nonzero."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from matrices_for_products import FORMATS, uneven

import memkern as mk
from memkern.errors import InputError
from memkern.families.spmv import kernels as family
from memkern.families.spmv.model import SpmvModel

pytestmark = pytest.mark.usefixtures("ceilings")


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
    assert case.traffic.write * case.iterations == pytest.approx(written)


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
