"""Parts of the declarations of kernels: traffic, exchanges and validation."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

IndexArray = npt.NDArray[np.int64]
Indices = npt.NDArray[np.signedinteger[Any]]
Values = npt.NDArray[Any]

DTYPES = ("float64", "float32")
WORD_DTYPES = ("uint64", "uint32")
INDEX_DTYPES = ("int64", "int32")
INTEGER_DTYPES = ("int64", "int32")
# Least time of a store after its write-allocate, as a share of the time of a load.
_LEAST_SHARE = 0.01


class Transfer(NamedTuple):
    """Bytes that one iteration loads and stores across one boundary of the memory hierarchy."""

    load_B: float
    store_B: float

    def stores_GBps(self, load_GBps: float, seconds: float) -> float:
        """Return the bandwidth of stores from the time that remains after the loads.

        Stores that loads almost hide count with a hundredth of the cost of loads.
        """
        rest_s = seconds - self.load_B / load_GBps / 1e9
        return self.store_B / max(rest_s, _LEAST_SHARE * self.store_B / load_GBps / 1e9) / 1e9


def crossed(
    levels: Sequence[str], inner: Transfer, outer: Transfer, bypass: bool = False
) -> dict[str, Transfer]:
    """Return the traffic across the boundary in front of each level.

    Parameters
    ----------
    levels : sequence of str
        From the innermost cache to memory, such as ``("L1", "L2", "memory")``. The registers are in
        front of L1, the last cache is in front of memory.
    inner : Transfer
        Traffic between registers and L1.
    outer : Transfer
        Traffic across each other boundary, if lines cross each of them once.
    bypass : bool
        Whether stores are non-temporal: they cross the boundaries of L1 and of memory only.
    """
    between = Transfer(outer.load_B, 0.0) if bypass else outer
    first, *others, last = levels
    return {first: inner, **dict.fromkeys(others, between), last: outer}


@dataclass(frozen=True)
class Traffic:
    """Bytes that one iteration moves; the count of every paper is a sum of some of these.

    Parameters
    ----------
    read, write : float
        Bytes of data that the kernel's definition loads and stores.
    index : float
        Bytes of index arrays loaded.
    write_allocate : float
        Bytes that memory transfers only because an ordinary store first reads its cache line (a
        model: some processors avoid it).
    """

    read: float = 0.0
    write: float = 0.0
    index: float = 0.0
    write_allocate: float = 0.0

    def __add__(self, other: Traffic) -> Traffic:
        """Return the sum of both."""
        return Traffic(
            self.read + other.read,
            self.write + other.write,
            self.index + other.index,
            self.write_allocate + other.write_allocate,
        )

    def view(self, *, index: bool = False, write_allocate: bool = False) -> float:
        """Return bytes per iteration, with or without indices and write-allocates."""
        return (
            self.read
            + self.write
            + (self.index if index else 0.0)
            + (self.write_allocate if write_allocate else 0.0)
        )

    def transfers(self, levels: Sequence[str], bypass: bool = False) -> dict[str, Transfer]:
        """Return the traffic across the boundary in front of each level if data are used once.

        See `crossed` for `levels` and `bypass`.
        """
        reads = self.read + self.index
        outer = Transfer(reads + self.write_allocate, self.write)
        return crossed(levels, Transfer(reads, self.write), outer, bypass)


@dataclass(frozen=True)
class Ceilings:
    """Largest bandwidths of memory since the system was booted: of loads, a triad, stores alone.

    `ceiling_share` is the bandwidth of loads measured with the record, over the largest one.
    """

    load_GBps: float
    triad_GBps: float
    store_GBps: float
    ceiling_share: float = 1.0

    def times(self, factor: float) -> Ceilings:
        """Return the bandwidths times a factor."""
        load, triad, store = self.load_GBps, self.triad_GBps, self.store_GBps
        return Ceilings(factor * load, factor * triad, factor * store, self.ceiling_share)


@dataclass(frozen=True)
class Check:
    """Outcome of a validation: the method and the largest relative error.

    `columns` are further columns of the record, such as counts from the kernel.
    """

    valid: bool
    error_max: float
    how: str
    columns: Mapping[str, float] = field(default_factory=dict)


Validation = Generator[None, int, Check]
"""Fills the arrays, yields while the kernel runs, gets the number of runs, returns the outcome."""


def finish(validation: Validation, invocations: int) -> Check:
    """Return the outcome of a validation that has filled the arrays, after `invocations`."""
    try:
        validation.send(invocations)
    except StopIteration as end:
        return cast("Check", end.value)
    raise RuntimeError("a validation yields once")


class Native(Protocol):
    """The interface of the extension's prepared case that validations use."""

    def fill(self, outputs: bool) -> None:
        """Fill inputs whose contents changed and, if requested, outputs with known values."""
        ...

    def run(self, invocations: int) -> float:
        """Invoke the kernel `invocations` times and return the seconds."""
        ...

    def run_range(self, begin: int, end: int) -> float:
        """Run the iterations in ``[begin, end)`` once and return the seconds."""
        ...

    def copy_in(self, name: str, values: Values) -> None:
        """Set a whole array."""
        ...

    def copy_out(self, name: str) -> Values:
        """Return a copy of a whole array."""
        ...

    def peek(self, name: str, positions: IndexArray) -> Values:
        """Return single elements; positions are row-major."""
        ...

    def digest(self, name: str) -> tuple[int, int]:
        """Return the sum modulo 2**64 and the exclusive or of an array's words."""
        ...

    def poke(self, name: str, positions: IndexArray, values: npt.NDArray[np.float64]) -> None:
        """Set single elements."""
        ...

    def arrays(self) -> dict[str, dict[str, Any]]:
        """Return dtype, rows, columns and salt of every array by its name."""
        ...

    def obtained(self) -> dict[str, Any]:
        """Return the obtained threads, pinning, variant and so on, without the page size."""
        ...


@dataclass(frozen=True)
class Exchange:
    """Elements that a rank sends to others and receives from them in every invocation.

    Parameters
    ----------
    array : str
        The array whose elements are sent and received.
    neighbours : sequence of (int, ndarray of int64, int)
        Ranks with the positions of the elements sent to each, and the number of elements received
        from it.
    to, of : ndarray of int64, shape (n,)
        Positions in the array, and the number of the received element for each, in the order of the
        neighbours.
    adds : bool
        Whether received elements are results of the kernel, and are added to the array's elements.
        Otherwise they replace these and are inputs of the kernel.
    """

    array: str
    neighbours: Sequence[tuple[int, IndexArray, int]]
    to: IndexArray
    of: IndexArray
    adds: bool = False


BLOCK = 2**16
"""Elements per block, so that temporary arrays stay in the caches."""


def fill_values(positions: IndexArray, array: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    """Return the fill values of arrays: integers below 2**23.

    Equal to `fill_value` in cpp/core/device_memory.hpp.

    Parameters
    ----------
    positions : ndarray of int64
    array : mapping
        Its entry in `Native.arrays`.
    """
    values = np.empty(positions.shape, dtype=np.float64)
    salt, flat, of = (
        np.uint32(int(array["salt"]) % 2**32),
        values.reshape(-1),
        positions.reshape(-1),
    )
    # In blocks that stay in the caches, modulo 2**32.
    for begin in range(0, len(flat), BLOCK):
        word = of[begin : begin + BLOCK].astype(np.uint32)
        word *= np.uint32(2654435761)
        word += salt
        word >>= np.uint32(9)
        flat[begin : begin + BLOCK] = word
    return values
