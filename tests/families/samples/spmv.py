"""Cases of products of sparse matrices."""

from typing import Any

import numpy as np
from shapes import built

import memkern as mk
from memkern.spec.case import Case


def spmv_samples(kernel: str) -> list[Case]:
    """Return matrices with empty, short and long rows, chunks of any size, and every balance."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 9, 150)
    lengths[[0, 17, 149]] = (0, 100, 0)
    dense = np.zeros((150, 120))
    for row, length in enumerate(lengths):
        dense[row, rng.choice(120, length, replace=False)] = rng.integers(1, 9, length)
    square = dense[:120]
    shapes: list[dict[str, Any]] = [
        {"matrix": dense},
        {"matrix": [[3.0]], "accumulate": False},
        {"matrix": dense, "balance": "nnz", "repetition": "barrier"},
        {"matrix": square, "offset": 24},
    ]
    if kernel in ("spmv.crs", "spmv.sell"):
        shapes.append({"matrix": dense, "prefetch": 7})
    if kernel == "spmv.sell":
        shapes += [
            {"matrix": dense, "C": 1},
            {"matrix": dense, "C": 5, "sigma": 20, "balance": "nnz"},
            {"matrix": dense, "C": 16, "sigma": 32},
            {"matrix": square, "C": 32, "sigma": 10**6, "move_columns": True},
            {"matrix": dense, "C": 128, "sigma": 128},
        ]
    return [built(kernel, **{**shape, "matrix": np.array(shape["matrix"])}) for shape in shapes]


SAMPLES = {f"spmv.{form}": spmv_samples(f"spmv.{form}") for form in ("crs", "sell", "ell", "csc")}
MORE_CASES = {
    "spmv.crs": [mk.spmv.case(mk.matrices.five_point(6, 5), dtype="float32", index_dtype="int64")],
}
SCALAR = ("spmv.csc",)
FORMULAS = ("spmv.crs", "spmv.ell", "spmv.csc")


def unrolls(kernel: str, variant: str) -> set[int]:
    """Return the numbers of rows that are multiplied at once."""
    many = kernel == "spmv.crs" and variant in ("scalar", "simd")
    return {0, 1, 2, 3, 4, 6, 8} if many else {0}


def only_writes(case: Case) -> bool:
    """Return whether the product is not added to the result."""
    return case.template_variant == "write"
