"""What can be measured: a kernel with its definition, its traffic and its validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError
from memkern.spec.registry import find, registry

if TYPE_CHECKING:
    from memkern.spec.case import Case

IndexArray = npt.NDArray[np.int64]
Indices = npt.NDArray[np.signedinteger[Any]]
Invoke = Callable[[], int]

DTYPES = ("float64", "float32")
WORD_DTYPES = ("uint64", "uint32")
INDEX_DTYPES = ("int64", "int32")


@dataclass(frozen=True)
class Traffic:
    """Bytes that one iteration moves; every paper's count is a view of these four.

    Parameters
    ----------
    read, write : float
        Bytes of data that the kernel's definition loads and stores.
    index : float
        Bytes of index arrays loaded.
    write_allocate : float
        Bytes that memory moves only because an ordinary store reads its line first (a model:
        processors have their own ways round it).
    """

    read: float = 0.0
    write: float = 0.0
    index: float = 0.0
    write_allocate: float = 0.0

    def __add__(self, other: Traffic) -> Traffic:
        """Bytes of both, one after the other."""
        return Traffic(
            self.read + other.read,
            self.write + other.write,
            self.index + other.index,
            self.write_allocate + other.write_allocate,
        )

    def view(self, *, index: bool = False, write_allocate: bool = False) -> float:
        """Bytes per iteration in the convention asked for."""
        return (
            self.read
            + self.write
            + (self.index if index else 0.0)
            + (self.write_allocate if write_allocate else 0.0)
        )


@dataclass(frozen=True)
class ArrayRole:
    """One array of a kernel: `shape` in words of the spec's parameters.

    `role` is ``read``, ``write``, or ``update`` where it is read and written.
    """

    name: str
    shape: str
    role: str


@dataclass(frozen=True)
class Ceilings:
    """What the machine's memory allows: bandwidths of loads alone and of a triad, and its caches.

    `caches` are those of the environment: ``level``, ``size_B``, ``shared_by`` and so on.
    """

    load_GBps: float
    triad_GBps: float
    caches: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Check:
    """Outcome of a validation: how it was done and the largest relative error found.

    `columns` are what the record says besides of what the invocations did.
    """

    valid: bool
    error_max: float
    how: str
    columns: Mapping[str, float] = field(default_factory=dict)


class Native(Protocol):
    """The prepared case as the extension offers it; what a validation may use."""

    def fill(self, outputs: bool) -> None:
        """Fill inputs that hold something else and, if asked, outputs with known values."""
        ...

    def run(self, invocations: int) -> float:
        """Invoke so many times; seconds that took."""
        ...

    def run_range(self, begin: int, end: int) -> float:
        """Run iterations from `begin` to before `end` once; seconds that took."""
        ...

    def copy_in(self, name: str, values: npt.NDArray[Any]) -> None:
        """Set a whole array."""
        ...

    def copy_out(self, name: str) -> npt.NDArray[Any]:
        """Return a copy of a whole array."""
        ...

    def peek(self, name: str, positions: IndexArray) -> npt.NDArray[Any]:
        """Return single elements; positions count along rows."""
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
        """Return what was obtained of what was asked, but for the pages."""
        ...


@dataclass(frozen=True, eq=False)
class KernelSpec:
    """A kernel, declared: everything that does not depend on how it is run.

    Only itself is equal to it. It is pickled as its name, by which another process finds its own.

    Parameters
    ----------
    name : str
        ``family.kernel``, as in the records; where a release differs from its paper, the
        release's kernel is ``family.kernel@release``.
    summary, source : str
        The definition in one line; paper, equation or table it comes from.
    arrays : tuple of ArrayRole
        The arrays that `Case.apply` takes and returns.
    indices : tuple of str
        Names of its index arrays, where every case has the same.
    traffic : callable
        Case to `Traffic` of one iteration.
    iterations : callable
        Case to the iterations of one invocation.
    check : callable
        (case, native, invoke) to `Check`: fills the buffers afresh, calls `invoke`, which runs the
        kernel (once, or if that is right for the kernel, more often) and says how often, and
        compares with an independent reference.
    reference : callable
        (case, arrays) to the arrays after one invocation by one worker, in NumPy.
    model_bytes : callable
        Case to the bytes that memory moves in one invocation, by the model.
    build : callable
        The kernel's name and options by keyword to a `Case`.
    flops, amos : float
        Floating-point operations per element and atomic operations per iteration.
    numbers : mapping
        Scalars of the definition with their defaults.
    ulps : float
        Largest error that is still right, in units of the type's rounding.
    idempotent : bool
        Whether invoking it again leaves the result as it is.
    elementwise : bool
        Whether an iteration treats neighbouring elements of every stream, so that they add up to
        vectors.
    width : callable
        Case to the number of elements that an iteration treats; 1 by default.
    work : callable, optional
        (case, native) to what all iterations before each one have to do, shape (iterations + 1,),
        where some have more than others.
    counts_index : bool
        Whether the paper's bytes include those of indices.
    steady_inputs : mapping
        Arrays that sampling starts from another value than validation: what grows from
        invocation to invocation unless it is that.
    roofline_columns : callable, optional
        (case with the variant that ran, columns of its check, `Ceilings`, median in s) to columns
        that say how far the result is from what the machine's memory allows.
    form : tuple of str
        What the words of a case's `Case.form` say, where the kernel is built with several
        operations; each is a column of the record.
    repeatable_check : bool
        Whether the check knows what any number of invocations leaves, though they add up.
    most_runs : mapping
        By dtype, how many invocations in a row keep the values finite, where that is few.
    version : int
        Raised when the definition changes; part of a case's identity.
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
    numbers: Mapping[str, float] = field(default_factory=dict)
    ulps: float = 0.0
    idempotent: bool = True
    elementwise: bool = False
    width: Callable[[Case], float] = lambda case: 1
    work: Callable[[Case, Native], IndexArray] | None = None
    counts_index: bool = False
    steady_inputs: Mapping[str, float] = field(default_factory=dict)
    roofline_columns: (
        Callable[[Case, Mapping[str, float], Ceilings, float], dict[str, float]] | None
    ) = None
    form: tuple[str, ...] = ()
    repeatable_check: bool = False
    most_runs: Mapping[str, int] = field(default_factory=dict)
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
        """Return how another process finds it.

        Raises
        ------
        InputError
            It is not the one that is registered by its name.
        """
        if registry().get(self.name) is not self:
            raise InputError(
                f"kernel {self.name!r} can't be pickled: register it, since other processes find "
                "kernels by their names"
            )
        return find, (self.name,)


def fill_values(positions: IndexArray, array: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    """Return what a fresh array holds: whole numbers below 2**23 (see cpp/engine/problem.hpp).

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
