"""Declarations of kernels: definition, traffic and validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError
from memkern.spec.registry import find, registry

if TYPE_CHECKING:
    from memkern.machine.topology import ArrayRole
    from memkern.spec.case import Case

IndexArray = npt.NDArray[np.int64]
Indices = npt.NDArray[np.signedinteger[Any]]
Invoke = Callable[[], int]

DTYPES = ("float64", "float32")
WORD_DTYPES = ("uint64", "uint32")
INDEX_DTYPES = ("int64", "int32")


class Transfer(NamedTuple):
    """Bytes that one iteration loads and stores across one boundary of the memory hierarchy."""

    load_B: float
    store_B: float


def crossed(
    levels: Sequence[str], inner: Transfer, outer: Transfer, bypass: bool = False
) -> dict[str, Transfer]:
    """Return what crosses the boundary in front of each level.

    Parameters
    ----------
    levels : sequence of str
        From the innermost cache to memory, such as ``("L1", "L2", "memory")``. In front of L1 are
        the registers, in front of memory is the last cache.
    inner : Transfer
        Between registers and L1.
    outer : Transfer
        Across each other boundary, of lines that cross each of them once.
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
        """Return what crosses the boundary in front of each level if data are used once.

        `levels` and `bypass` are those of `crossed`.
        """
        reads = self.read + self.index
        outer = Transfer(reads + self.write_allocate, self.write)
        return crossed(levels, Transfer(reads, self.write), outer, bypass)


@dataclass(frozen=True)
class Ceilings:
    """Bandwidths of memory, measured beside a record: of loads, a triad, and of stores alone."""

    load_GBps: float
    triad_GBps: float
    store_GBps: float


@dataclass(frozen=True)
class Check:
    """Outcome of a validation: how it was done and the largest relative error found.

    `columns` are further columns of the record, such as counts from the kernel.
    """

    valid: bool
    error_max: float
    how: str
    columns: Mapping[str, float] = field(default_factory=dict)


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

    def copy_in(self, name: str, values: npt.NDArray[Any]) -> None:
        """Set a whole array."""
        ...

    def copy_out(self, name: str) -> npt.NDArray[Any]:
        """Return a copy of a whole array."""
        ...

    def peek(self, name: str, positions: IndexArray) -> npt.NDArray[Any]:
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
        """Return threads, pinning, variant and so on as actually used, without the page size."""
        ...


@dataclass(frozen=True)
class Exchange:
    """What a rank sends to others and receives from them in every invocation.

    Parameters
    ----------
    array : str
        The array whose elements are sent and received.
    neighbours : sequence of (int, ndarray of int64, int)
        Ranks with the positions of the elements that are sent to each, and the number of those
        that come from it.
    to, of : ndarray of int64, shape (n,)
        Positions of the array, and the received element that each of them gets, numbered in the
        order of the neighbours.
    adds : bool
        Whether received elements, which are results of the kernel, are added to the array's.
        Otherwise they replace these, and the kernel reads them.
    """

    array: str
    neighbours: Sequence[tuple[int, IndexArray, int]]
    to: IndexArray
    of: IndexArray
    adds: bool = False


@dataclass(frozen=True)
class Part:
    """What one rank computes of a case that is distributed over all of them.

    Parameters
    ----------
    case : Case
        The inputs of this rank. Its integer ``split_at`` divides the iterations: the exchange takes
        place during those that do not depend on it.
    exchange : Exchange
    check : callable
        (native, invoke) to `Check`, which compares this rank's results with those of the whole.
    dependent : float
        Share of the iterations that need values of other ranks, or whose results these need.
    """

    case: Case
    exchange: Exchange
    check: Callable[[Native, Invoke], Check]
    dependent: float

    @property
    def columns(self) -> dict[str, float]:
        """Columns of the record on the exchange."""
        sent = sum(len(positions) for _, positions, _ in self.exchange.neighbours)
        return {
            "halo_neighbours": float(len(self.exchange.neighbours)),
            "halo_sent_B": float(sent * np.dtype(self.case.dtype).itemsize),
            "halo_rows": self.dependent,
        }


@dataclass(frozen=True, eq=False)
class KernelSpec:
    """Declaration of a kernel: everything that does not depend on how it is run.

    It is compared by identity and pickled as its name, by which another process finds its own.

    Parameters
    ----------
    name : str
        ``family.kernel``, as in the records; where a release differs from its paper, the
        release's kernel is ``family.kernel@release``.
    summary, source : str
        The definition in one line; its paper, equation or table.
    arrays : tuple of ArrayRole
        The arrays that `Case.apply` takes and returns.
    indices : tuple of str
        Names of its index arrays, where all cases have the same.
    traffic : callable
        Case to `Traffic` of one iteration.
    iterations : callable
        Case to the iterations of one invocation.
    check : callable
        (case, native, invoke) to `Check`: fills the buffers, calls `invoke`, which runs the kernel
        (more than once only where `idempotent` or `repeatable_check`) and returns how often, and
        compares with an independent reference.
    reference : callable
        (case, arrays) to the arrays after one invocation by one worker, in NumPy.
    model_bytes : callable
        Case to the bytes that memory transfers in one invocation, by the model.
    build : callable
        Name of the kernel and options by keyword to `Case`.
    flops, amos : float
        Floating-point operations per element and atomic operations per iteration.
    numbers : mapping
        Scalars of the definition with their defaults.
    ulps : float
        Largest valid relative error, in multiples of the machine epsilon.
    idempotent : bool
        Whether invoking it again does not change the result.
    elementwise : bool
        Whether consecutive iterations process consecutive elements of every array, so that cycles
        per vector make sense.
    width : callable
        Case to the number of elements that an iteration processes; 1 by default.
    loop_width : callable, optional
        Case to the number of elements that an iteration of its compiled loop processes, where the
        loop's multiplications and stores don't tell.
    work : callable, optional
        (case, native) to the work of all iterations before each one, shape (iterations + 1,),
        where iterations differ in work.
    counts_index : bool
        Whether the paper's bytes include those of indices.
    steady_inputs : mapping
        By array, the value that fills it for sampling, so that results do not grow from invocation
        to invocation.
    measures_ceilings : bool
        Whether the bandwidths of memory are measured beside its records (see `Ceilings`).
    implied_columns : callable, optional
        (case with the variant that ran, columns of its check, `Ceilings`, median in s) to columns
        that follow from these bandwidths, beside those of the roofline.
    transfers : callable, optional
        (case, levels, caches) to what an iteration moves across the boundary in front of each level
        (see `crossed`), unless data are used once; caches as in an environment.
    conditions : callable, optional
        (case, caches) to the layer condition that holds in each cache, by its name.
    template_columns : tuple of str
        Column of the record for each word of `Case.template_variant`, where the kernel is built
        with several operations.
    messages : float
        Messages between ranks per iteration.
    accesses : callable, optional
        Case to the number of consecutive dependent accesses of a worker in an invocation, where the
        time from one to the next is the result; NaN if they are not.
    repeatable_check : bool
        Whether the check knows the result of any number of invocations, though they accumulate.
    part : callable, optional
        (case, number of a rank, number of all) to its `Part` of a case with a `Case.halo`.
    refuse : callable, optional
        (case) raises an InputError for knobs that mean nothing for it, however it was built.
    most_runs : mapping
        By dtype, how many consecutive invocations keep the values finite, where that is few.
    idle_knobs : tuple of str
        Fields of `Knobs` without effect on it, which its cases refuse.
    idle : callable, optional
        (case) to those without effect on this case only, each with the reason.
    version : int
        Increased when the definition changes; part of a case's identity.
    """

    name: str
    summary: str
    source: str
    arrays: tuple[ArrayRole, ...]
    traffic: Callable[[Case], Traffic]
    iterations: Callable[[Case], int]
    check: Callable[[Case, Native, Invoke], Check]
    reference: Callable[[Case, Mapping[str, npt.NDArray[Any]]], dict[str, npt.NDArray[Any]]]
    model_bytes: Callable[[Case], float]
    build: Callable[..., Case]
    indices: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = DTYPES
    index_dtypes: tuple[str, ...] = ("",)
    flops: float = 0.0
    amos: float = 0.0
    messages: float = 0.0
    numbers: Mapping[str, float] = field(default_factory=dict)
    ulps: float = 0.0
    idempotent: bool = True
    elementwise: bool = False
    width: Callable[[Case], float] = lambda case: 1
    loop_width: Callable[[Case], float] | None = None
    work: Callable[[Case, Native], IndexArray] | None = None
    counts_index: bool = False
    steady_inputs: Mapping[str, float] = field(default_factory=dict)
    measures_ceilings: bool = False
    implied_columns: (
        Callable[[Case, Mapping[str, float], Ceilings, float], dict[str, float]] | None
    ) = None
    transfers: (
        Callable[[Case, Sequence[str], Sequence[Mapping[str, Any]]], Mapping[str, Transfer]] | None
    ) = None
    conditions: Callable[[Case, Sequence[Mapping[str, Any]]], Mapping[str, str]] | None = None
    template_columns: tuple[str, ...] = ()
    accesses: Callable[[Case], float] | None = None
    repeatable_check: bool = False
    part: Callable[[Case, int, int], Part] | None = None
    refuse: Callable[[Case], None] | None = None
    most_runs: Mapping[str, int] = field(default_factory=dict)
    idle_knobs: tuple[str, ...] = ()
    idle: Callable[[Case], Mapping[str, str]] | None = None
    version: int = 1

    @property
    def kernel(self) -> str:
        """Name without the definition, as in the records."""
        return self.name.partition("@")[0]

    @property
    def definition(self) -> str:
        """``paper`` or ``release`` where they differ, else empty."""
        _, at, definition = self.name.partition("@")
        return definition if at else "paper" if f"{self.name}@release" in registry() else ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the lookup by name.

        Raises
        ------
        InputError
            It is not registered by its name.
        """
        if registry().get(self.name) is not self:
            raise InputError(
                f"kernel {self.name!r} can't be pickled: register it, since other processes find "
                "kernels by their names"
            )
        return find, (self.name,)


def fill_values(positions: IndexArray, array: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    """Return the values that arrays are filled with: integers below 2**23.

    `fill_value` in cpp/core/device_memory.hpp is the same.

    Parameters
    ----------
    positions : ndarray of int64
    array : mapping
        Its entry in `Native.arrays`.
    """
    word = (positions.astype(np.uint64) * np.uint64(2654435761) + np.uint64(array["salt"])) & (
        np.uint64(0xFFFFFFFF)
    )
    return (word >> np.uint64(9)).astype(np.float64)
