"""Bytes and roofline of sparse matrix-vector products (Alappat et al. 2021, section on SpMV).

A nonzero moves its value and its index, its share of x and its share of the bytes of a row.
``alpha`` is the number of elements of x read from memory per nonzero: columns / nonzeros if each
element is read once, 1 if every nonzero reads its element from memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from memkern.checks import integer, number
from memkern.errors import InputError

# In the order of a legend and a table.
FORMATS = ("crs", "sell", "ell", "csc")


def format_words(record: Any) -> str:
    """Return the format of a record with its parameters, such as ``sell-8-1`` or ``crs mve 2``."""
    format = str(record["kernel"]).partition(".")[2]
    if format == "sell":
        return f"sell-{record['C']}-{record['sigma']}"
    return f"{format} mve {record['unroll']}" if record["unroll"] else format


@dataclass(frozen=True)
class SpmvModel:
    """Bytes and flops of one product of a matrix with a vector.

    Parameters
    ----------
    rows, columns, nonzeros : int
        Size of the matrix.
    value_B, index_B : int
        Size of a value and of an index.
    beta : float
        Nonzeros over stored entries, which include padding; 1 without padding.
    accumulate : bool
        True for y = y + A x, which reads and writes y; False for y = A x, which writes it.
    write_allocate : bool
        Whether lines are read before the stores of y = A x write them.
    pointers : int, optional
        Number of pointers to rows or chunks that are read; by default the number of rows.
    """

    rows: int
    columns: int
    nonzeros: int
    value_B: int = 8
    index_B: int = 4
    beta: float = 1.0
    accumulate: bool = True
    write_allocate: bool = True
    pointers: int | None = None

    def __post_init__(self) -> None:
        """Check that no parameter is out of range."""
        if min(self.rows, self.columns, self.nonzeros) < 1 or not 0 < self.beta <= 1:
            raise InputError(
                "a model needs rows, columns and nonzeros of at least 1 and beta in (0, 1]"
            )

    @property
    def best_alpha(self) -> float:
        """Loads of x from memory per nonzero if every element is read once."""
        return self.columns / self.nonzeros

    @property
    def row_B(self) -> float:
        """Bytes of y and of pointers for each row."""
        y = 2 if self.accumulate or self.write_allocate else 1
        pointers = self.rows if self.pointers is None else self.pointers
        return y * self.value_B + self.index_B * pointers / self.rows

    def nonzero_B(self, alpha: float | None = None) -> float:
        """Return the bytes that a nonzero moves, with its shares of x and of a row.

        Parameters
        ----------
        alpha : float, optional
            Loads of x for each nonzero; `best_alpha` by default.
        """
        alpha = self.best_alpha if alpha is None else alpha
        stored = (self.value_B + self.index_B) / self.beta
        return stored + self.value_B * alpha + self.row_B * self.rows / self.nonzeros

    def bytes_B(self, alpha: float | None = None) -> float:
        """Return the bytes of the whole product."""
        return self.nonzero_B(alpha) * self.nonzeros

    def intensity(self, alpha: float | None = None) -> float:
        """Return flops per byte: 1/6 at best in double precision with indices of 32 bits."""
        return 2 / self.nonzero_B(alpha)

    def roofline_GFLOPs(self, bandwidth_GBps: float, alpha: float | None = None) -> float:
        """Return the performance that a memory bandwidth allows."""
        return self.intensity(alpha) * bandwidth_GBps

    def implied_alpha(self, time_s: float, bandwidth_GBps: float) -> float:
        """Return the alpha at which the model would take the measured time.

        It is below `best_alpha` if the caches held part of the data, or if memory delivered more
        than `bandwidth_GBps`.
        """
        moved = time_s * bandwidth_GBps * 1e9 / self.nonzeros
        return (moved - self.nonzero_B(0.0)) / self.value_B


def crs_row_cycles(
    nonzeros: int,
    lanes: int,
    fma_latency: float,
    reduction: float,
    step: float = 0.0,
    accumulators: int = 1,
) -> float:
    """Return the cycles in the core of a CRS row.

    A row takes ceil(nonzeros / lanes) vector steps, followed by the sum of the lanes. Steps with
    the same accumulator are dependent, and rows are assumed not to overlap.

    Parameters
    ----------
    nonzeros : int
        Nonzeros of the row.
    lanes : int
        Values of a vector.
    fma_latency, reduction : float
        Latencies of a multiply-add and of the sum of a vector's lanes, in cycles.
    step : float
        Throughput cycles of a step's instructions: loads, a gather and a multiply-add.
    accumulators : int
        Number of independent sums, which are added at the end (one latency for each addition).

    Raises
    ------
    InputError
        A number is out of range.
    """
    _check_cycles(fma_latency=fma_latency, reduction=reduction, step=step)
    steps = -(-integer(nonzeros, "nonzeros", 1) // integer(lanes, "lanes", 1))
    chains = min(integer(accumulators, "accumulators", 1), steps)
    waiting = math.ceil(steps / chains) * fma_latency + (chains - 1) * fma_latency
    return max(waiting, steps * step) + reduction


def sell_column_cycles(chunk: int, lanes: int, fma_latency: float, step: float) -> float:
    """Return the cycles in the core of one column of a SELL chunk.

    Its chunk / lanes vectors are independent of each other, but depend on the previous column.

    Parameters
    ----------
    chunk, lanes : int
        Rows of a chunk, and values of a vector.
    fma_latency, step : float
        As for `crs_row_cycles`.

    Raises
    ------
    InputError
        A number is out of range.
    """
    _check_cycles(fma_latency=fma_latency, step=step)
    vectors = -(-integer(chunk, "chunk", 1) // integer(lanes, "lanes", 1))
    return max(vectors * step, fma_latency)


def _check_cycles(**cycles: float) -> None:
    for what, value in cycles.items():
        number(value, what, 0)
