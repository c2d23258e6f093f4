"""What can be measured (`KernelSpec`) and one thing to measure (`Case`).

Nothing here runs anything: a case is data, with an identity that says whether two requests are
the same. `Case.prepare`, `Case.measure` and `Case.apply` hand it to `memkern.run`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from memkern import small
from memkern.errors import InputError
from memkern.options import Knobs, Stop, one_of
from memkern.patterns import FromFields

if TYPE_CHECKING:
    from memkern import run

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


# How often memory is placed for a case unless it says so itself.
_PLACEMENTS = 5
_SMALL_PLACEMENTS = 2  # of a small case (see `memkern.small`)


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
        return definition if at else "paper" if f"{self.name}@release" in _registry else ""

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
        return _registered, (self.name,)


@dataclass(frozen=True, eq=False)
class Case(FromFields):
    """One thing to measure: a spec, its inputs, how to run it and when to stop.

    Cases are equal that ask for the same (see `identity`) under the same labels. They can be
    hashed, pickled and measured in another process.

    Parameters
    ----------
    spec : KernelSpec
    integers, numbers, indices, data : mapping
        The inputs by name: whole numbers, scalars, 1-d arrays of indices, and 1-d arrays of
        values in the case's dtype (a matrix's, say).
    dtype, index_dtype : str
    form : str
        Which of its operations the kernel is to do, such as ``add/relaxed/unused``.
    knobs : Knobs
    stop : Stop
    columns : mapping
        What the record says of the inputs, by column (pattern, delta, count and so on).
    labels : mapping
        Columns that name the case and change nothing about it (name, suite).
    """

    spec: KernelSpec
    integers: Mapping[str, int] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    indices: Mapping[str, Indices] = field(default_factory=dict)
    data: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    dtype: str = "float64"
    index_dtype: str = ""
    form: str = ""
    knobs: Knobs = field(default_factory=Knobs)
    stop: Stop = field(default_factory=Stop)
    columns: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the types of the values."""
        one_of("dtype", self.dtype, self.spec.dtypes)
        one_of("index_dtype", self.index_dtype, self.spec.index_dtypes)
        most = self.spec.most_runs.get(self.dtype)
        if most is not None and not (self.stop.runs and self.stop.runs <= most):
            raise InputError(
                f"{self.spec.name} in {self.dtype} needs a number of runs, of at most {most}: its "
                f"values grow with every one"
            )

    def __eq__(self, other: object) -> bool:
        """Compare what is asked for, arrays by content, and labels."""
        if not isinstance(other, Case):
            return NotImplemented
        return self.identity() == other.identity() and self.labels == other.labels

    def __hash__(self) -> int:
        """Hash what is asked for."""
        return hash(self.identity())

    @functools.cached_property
    def traffic(self) -> Traffic:
        """Bytes per iteration."""
        return self.spec.traffic(self)

    @property
    def iterations(self) -> int:
        """Iterations of one invocation."""
        return self.spec.iterations(self)

    @property
    def bytes_B(self) -> int:
        """Bytes of one invocation by the paper's formula."""
        return round(self.traffic.view(index=self.spec.counts_index) * self.iterations)

    @property
    def bytes_index_B(self) -> int:
        """Bytes of indices that one invocation loads."""
        return round(self.traffic.index * self.iterations)

    def identity(self) -> str:
        """Hash of all that was asked; labels do not count."""
        return self._identity

    @functools.cached_property
    def _identity(self) -> str:
        digest = hashlib.sha256()
        asked = {
            "kernel": self.spec.name,
            "version": self.spec.version,
            "integers": dict(self.integers),
            "numbers": dict(self.numbers),
            "dtype": self.dtype,
            "index_dtype": self.index_dtype,
            "form": self.form,
            "knobs": self.knobs.asked,
            "stop": dataclasses.asdict(self.stop),
            "columns": {k: str(v) for k, v in self.columns.items()},
        }
        digest.update(json.dumps(asked, sort_keys=True).encode())
        for name in sorted(self.indices):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(self.indices[name], dtype=np.int64).tobytes())
        for name in sorted(self.data):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(self.data[name]).data)
        return digest.hexdigest()[:16]

    @property
    def placements(self) -> int:
        """How often memory is placed for this case (see `Stop.placements`)."""
        several = self.stop.runs is None and self.knobs.device == "cpu"
        asked = small.cut(
            self.stop.placements or (_PLACEMENTS if several else 1), _SMALL_PLACEMENTS
        )
        return min(asked, self.stop.runs or asked)

    @property
    def allocates(self) -> bool:
        """Whether a store reads its line first (see `Traffic.write_allocate`)."""
        return self.knobs.variant != "nt" and self.knobs.device == "cpu"

    def with_(self, **changes: Any) -> Case:
        """Return a copy with other knobs, stop rule, types or labels, each by its own name.

        Raises
        ------
        InputError
            A name is none of these.
        """
        knobs = {f.name for f in dataclasses.fields(Knobs)}
        stop = {f.name for f in dataclasses.fields(Stop)}
        own = {"dtype", "index_dtype", "form"}
        new_knobs = {k: v for k, v in changes.items() if k in knobs}
        new_stop = {k: v for k, v in changes.items() if k in stop}
        new_own = {k: v for k, v in changes.items() if k in own}
        labels = {k: v for k, v in changes.items() if k in ("name", "suite")}
        unknown = set(changes) - knobs - stop - own - set(labels)
        if unknown:
            raise InputError(
                f"a case has no knob {sorted(unknown)[0]!r}: there are "
                f"{', '.join(sorted(knobs | stop | own))}"
            )
        return dataclasses.replace(
            self,
            knobs=dataclasses.replace(self.knobs, **new_knobs),
            stop=dataclasses.replace(self.stop, **new_stop),
            labels={**self.labels, **labels},
            **new_own,
        )

    # The layers below run.py must not depend on it; these three are how a person reaches it.

    def prepare(self) -> run.Prepared:
        """Allocate, place and fill what the case needs; see `memkern.run.prepare`."""
        from memkern.run import prepare

        return prepare(self)

    def measure(self, **options: Any) -> run.Measurement:
        """Measure the case; see `memkern.run.measure`."""
        from memkern.run import measure

        return measure(self, **options)

    def apply(self, **arrays: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """Run the kernel once on the caller's arrays; see `memkern.run.apply`."""
        from memkern.run import apply

        return apply(self, **arrays)


def fill_values(positions: IndexArray, array: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    """Return what a fresh array holds: whole numbers below 2**23 (see core/problem.hpp).

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


_registry: dict[str, KernelSpec] = {}


def register(spec: KernelSpec) -> KernelSpec:
    """Add a spec to the registry that tests, CLI and documentation read."""
    _registry[spec.name] = spec
    return spec


def registry() -> dict[str, KernelSpec]:
    """Every registered spec by name."""
    import memkern.kernels  # its modules register themselves

    memkern.kernels.load_all()
    return dict(_registry)


def _registered(name: str) -> KernelSpec:
    """Return the spec that a pickle names.

    Raises
    ------
    InputError
        There is none of that name here.
    """
    found = registry().get(name)
    if found is None:
        raise InputError(
            f"kernel {name!r} of a pickled case is unknown here: import what registers it first, "
            "in the version of memkern that pickled the case"
        )
    return found
