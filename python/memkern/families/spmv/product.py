"""Sparse matrix-vector products of the caller's matrices and vectors: multiply, convert, measure.

A `Product` is a matrix in a format, in memory that is local to its workers, for repeated products
and for access to its arrays. `multiply` creates a product and uses it once; `measure` times only
the kernel on prepared vectors and compares the result with the machine's roofline.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.checks import shown
from memkern.engine import public as engine
from memkern.errors import InputError
from memkern.families.spmv.kernels import BALANCES, MVE, order_of
from memkern.families.spmv.kernels import spmv as case
from memkern.families.spmv.model import FORMATS, SpmvModel
from memkern.formats import ResultSet
from memkern.inputs import matrices
from memkern.spec.case import Case
from memkern.studies.tune import search

__all__ = ["FORMATS", "Product", "SpmvModel", "case", "convert", "measure", "multiply", "tune"]

Vector = npt.NDArray[Any]


class Product:
    """A matrix converted to a format, made by `convert`.

    Vectors are passed and returned in the order of the caller's rows and columns.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns.
    permute_s : float
        Seconds that the last `multiply` spent on permuting vectors.
    """

    def __init__(self, matrix: Any, *, rcm: bool = False, **options: Any) -> None:
        _, a = matrices.build(matrix, options.get("seed", 0))
        self.shape: tuple[int, int] = (int(a.shape[0]), int(a.shape[1]))
        self._before: npt.NDArray[np.int64] | None = None
        if rcm:
            a, self._before = matrices.reorder(a, "rcm")
        self.permute_s = 0.0
        self._dtype = str(options.get("dtype", "float64"))
        if "accumulate" in options:
            raise InputError("a product takes no accumulate: it adds to y if y is given")
        self._prepared: engine.Prepared | None = None
        if a.nnz == 0:
            # There is nothing to convert, but options are still checked.
            case(([0], [0], [1.0], self.shape), **options)
            return
        self._prepared = engine.prepare(case(a, accumulate=True, **options))
        self._order = order_of(self.case, self._converted.native)

    @property
    def case(self) -> Case:
        """The case that would be measured."""
        return self._converted.case

    @property
    def _converted(self) -> engine.Prepared:
        if self._prepared is None:
            raise InputError("a matrix without nonzeros is not converted, only multiplied")
        return self._prepared

    @property
    def values(self) -> Vector:
        """Stored values, shape (entries stored,)."""
        return self._converted.native.copy_out("values")

    @property
    def columns(self) -> npt.NDArray[Any]:
        """Columns of the stored values (rows in CSC); padding has the index after the last one."""
        return self._converted.native.copy_out("columns")

    @property
    def starts(self) -> npt.NDArray[Any]:
        """Index of each row's, chunk's or column's first stored value, and the end of the last."""
        return self._converted.native.copy_out("starts")

    @property
    def widths(self) -> npt.NDArray[np.int64]:
        """Entries of the longest row of each chunk."""
        chunk = "rows" if self.case.spec.name == "spmv.ell" else "chunk"
        return np.diff(self.starts) // self.case.integers[chunk]

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """The matrix's row for each row of the product, shape (rows,)."""
        _ = self._converted
        return self._order if self._before is None else self._before[self._order]

    @property
    def beta(self) -> float:
        """Nonzeros over stored entries."""
        return self.case.integers["nonzeros"] / float(
            self._converted.native.obtained()["facts"]["entries_stored"]
        )

    @property
    def convert_s(self) -> float:
        """Seconds that the conversion took."""
        return float(self._converted.native.obtained()["facts"]["convert_s"])

    def multiply(self, x: npt.ArrayLike, y: npt.ArrayLike | None = None) -> Vector:
        """Return y + A x, or A x without a y.

        Parameters
        ----------
        x : array_like of float, shape (columns,)
        y : array_like of float, shape (rows,), optional

        Returns
        -------
        ndarray, shape (rows,)
            In the dtype of the product.

        Raises
        ------
        InputError
            A vector has the wrong shape, or holds no real numbers.
        """
        rows, columns = self.shape
        ours = _vector("x", x, columns, self._dtype)
        result = np.zeros(rows, self._dtype) if y is None else _vector("y", y, rows, self._dtype)
        if self._prepared is None:
            return result
        begin = time.perf_counter()
        native = self._converted.native
        arrays = native.arrays()
        # Padding multiplies an element of x that remains zero; padding rows are not read back.
        in_columns = ours if self._before is None else ours[self._before]
        if self.case.integers["move_columns"]:
            in_columns = in_columns[self._order]
        self.permute_s = time.perf_counter() - begin
        with engine.exclusive():
            native.copy_in("x", np.pad(in_columns, (0, arrays["x"]["columns"] - columns)))
            native.copy_in("y", np.pad(result[self.order], (0, arrays["y"]["columns"] - rows)))
            native.run(1)
            product = native.copy_out("y")[:rows]
        begin = time.perf_counter()
        result = np.empty(rows, self._dtype)
        result[self.order] = product
        self.permute_s += time.perf_counter() - begin
        return result

    __matmul__ = multiply


def _vector(name: str, values: npt.ArrayLike, size: int, dtype: str) -> Vector:
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError(f"{name} must have shape ({size},), not rows of several lengths") from None
    if array.shape != (size,):
        raise InputError(f"{name} must have shape ({size},), not {array.shape}")
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} must hold real numbers, not {shown(str(array.dtype))}")
    return array.astype(dtype)


def convert(matrix: Any, *, rcm: bool = False, **options: Any) -> Product:
    """Convert a matrix to a format.

    Parameters
    ----------
    matrix : str, path, sparse array, ndarray or tuple
        What `memkern.matrices.build` takes.
    rcm : bool
        Reorder rows and columns of a square matrix by reverse Cuthill-McKee first.
    **options
        ``format`` (``sell``) and the options of `memkern.families.spmv.kernels.spmv`.

    Raises
    ------
    InputError, MemoryError
        Something is out of range, or memory is insufficient.
    """
    return Product(matrix, rcm=rcm, **options)


def multiply(
    matrix: Any, x: npt.ArrayLike, y: npt.ArrayLike | None = None, **options: Any
) -> Vector:
    """Return y + A x, or A x without a y; see `convert` and `Product.multiply`."""
    return convert(matrix, **options).multiply(x, y)


def measure(matrix: Any, *, rcm: bool = False, **options: Any) -> engine.Measurement:
    """Measure the kernel of a product on prepared vectors, and compare it with its roofline.

    Parameters
    ----------
    matrix, rcm, **options
        As for `convert`.

    Returns
    -------
    Measurement
        With ``roofline_GFLOPs`` for the best alpha and the fill-in of the converted matrix, from
        the bandwidths of loads and stores of this machine's memory, or of all levels with the
        option ``machine_file``; ``roofline_min_fraction`` by the shortest time; ``alpha``, the best
        one, and ``alpha_implied``, from the shortest time and the bandwidth of loads;
        ``convert_s``.
    """
    label, a = matrices.build(matrix, options.get("seed", 0), rcm=rcm)
    return engine.measure(case(a, **{"name": label, **options}))


def tune(
    matrix: Any,
    *,
    budget_s: float = 30.0,
    progress: Callable[[float], object] | None = None,
    **options: Any,
) -> tuple[Case, ResultSet]:
    """Search format, C, sigma, moved columns, accumulators, balance, reordering and prefetch.

    One option after another is varied, starting from the best case so far; options that are not
    reached within the time budget keep their defaults.

    Parameters
    ----------
    matrix : str, path, sparse array, ndarray or tuple
        What `memkern.matrices.build` takes.
    budget_s : float
        Seconds for the search.
    progress : callable, optional
        Called with the share of the trials that is done, 0 to 1.
    **options
        Options of all trials, as `memkern.families.spmv.kernels.spmv` takes them.

    Returns
    -------
    best : Case
        The best case found.
    search : ResultSet
        Every trial, in order; ``tune_step`` is the option varied, ``rcm`` whether the matrix was
        reordered. The last record is the best case, measured once more.

    Raises
    ------
    InputError
        If the budget is not a positive number, or the matrix can't be built.
    """
    label, plain = matrices.build(matrix, options.get("seed", 0))
    rows = plain.shape[0]
    steps: dict[str, list[dict[str, Any]]] = {
        # Without sorting, padding may cancel the gain by chunks.
        "format": [{"format": "crs"}, {"format": "sell"}, {"format": "sell", "sigma": rows}],
        "C": [{"C": c} for c in (4, 8, 16, 32, 64)],
        "sigma": [{"sigma": s} for s in (1, 128, 1024, 4096, rows)],
        # Not available for matrices that are not square.
        "move_columns": [{"move_columns": m} for m in (False, True)],
        "mve": [{"mve": u} for u in (0, *MVE)],
        # Without effect on one thread.
        "balance": [{"balance": b} for b in BALANCES if options.get("threads") != 1],
        "rcm": [{"rcm": r} for r in (False, True)],
        "prefetch": [{"prefetch": d} for d in (0, 16, 64, 256)],
    }

    reordered = functools.cache(lambda rcm: matrices.reorder(plain, "rcm")[0] if rcm else plain)

    def build(rcm: bool = False, **choice: Any) -> Case:
        # Options of other formats are left out.
        owners = {"C": "sell", "sigma": "sell", "move_columns": "sell", "mve": "crs"}
        format = choice["format"]
        own = {k: v for k, v in choice.items() if owners.get(k, format) == format}
        return case(reordered(rcm), **{"name": f"{label} rcm" if rcm else label, **own})

    return search(
        build,
        {"format": "crs", **options},
        steps,
        budget_s,
        extra=lambda choice: {"rcm": choice.get("rcm", False)},
        progress=progress,
    )


# `mk.spmv` is the function that builds cases, with the public names as attributes.
vars(case).update({name: globals()[name] for name in __all__})
