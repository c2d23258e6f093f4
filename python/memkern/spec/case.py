"""Kernels, and cases: a kernel, its inputs, how to run it and when to stop."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar, cast

import numpy as np

from memkern import small
from memkern.checks import FromFields, one_of, plain, printable, shown
from memkern.discovery import above
from memkern.errors import InputError
from memkern.machine.declarations import ArrayRole
from memkern.markup import html_table
from memkern.spec.kernel import (
    BLOCK,
    DTYPES,
    Ceilings,
    Exchange,
    IndexArray,
    Indices,
    Native,
    Traffic,
    Transfer,
    Validation,
    Values,
)
from memkern.spec.options import LABELS, PLACEMENTS, Declared, Knobs, Stop, declared

HALOS = ("blocking", "overlap")
"""Times of the exchange among ranks of a distributed case (see `Case.halo`)."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Part:
    """One rank's part of a case that is distributed over all ranks.

    Parameters
    ----------
    case : Case
        The inputs of this rank. Its integer ``split_at`` divides the iterations: the exchange takes
        place during the iterations that do not depend on it.
    exchange : Exchange
    check : callable
        (native) to `Validation`, which compares this rank's results with the whole case.
    dependent : float
        Share of the iterations that need values of other ranks, or whose results other ranks need.
    """

    case: Case
    exchange: Exchange
    check: Callable[[Native], Validation]
    dependent: float

    @property
    def columns(self) -> dict[str, float]:
        """Columns of the record on the exchange."""
        sent = sum(len(positions) for _, positions, _ in self.exchange.neighbours)
        return {
            "halo_neighbours": float(len(self.exchange.neighbours)),
            "halo_sent_B": float(sent * self.case.value_B),
            "halo_rows": self.dependent,
        }


@dataclass(frozen=True)
class Checks:
    """How a kernel's results are compared with an independent reference.

    Parameters
    ----------
    check : callable
        (case, native) to `Validation`: fills the arrays, yields while the kernel runs (more than
        once only if `idempotent` or `repeatable`), and compares with an independent reference.
    reference : callable, optional
        (case, arrays) to the arrays after one invocation by one worker, in NumPy.
    ulps : float
        Largest valid relative error, in multiples of the machine epsilon.
    idempotent : bool
        Whether invoking it again does not change the result.
    repeatable : bool
        Whether the check has the expected result of any number of accumulating invocations.
    steady_inputs : mapping
        By array, the value that fills it for sampling, so that results do not grow from invocation
        to invocation.
    """

    check: Callable[[Case, Native], Validation]
    reference: Callable[[Case, Mapping[str, Any]], dict[str, Values]] | None = None
    ulps: float = 0.0
    idempotent: bool = True
    repeatable: bool = False
    steady_inputs: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Counts:
    """Operations of one iteration of a kernel, besides its traffic.

    Parameters
    ----------
    flops, amos, messages : float
        Floating-point operations per element, and atomic operations and messages between ranks per
        iteration.
    elementwise : bool
        Whether consecutive iterations process consecutive elements of every array, so that cycles
        per vector make sense.
    width : callable
        Case to the number of elements that an iteration processes; 1 by default.
    loop_width : callable, optional
        Case to the number of elements that an iteration of its compiled loop processes, if it
        can't be derived from the loop's multiplications and stores.
    work : callable, optional
        (case, native) to the cumulative work before each iteration, shape (iterations + 1,), if
        iterations differ in work.
    accesses : callable, optional
        Case to the number of consecutive dependent accesses of a worker in an invocation, if the
        time of one access is the result; NaN if accesses are not dependent.
    indices : bool
        Whether the paper's bytes include the bytes of indices.
    """

    flops: float = 0.0
    amos: float = 0.0
    messages: float = 0.0
    elementwise: bool = False
    width: Callable[[Case], float] = lambda case: 1
    loop_width: Callable[[Case], float] | None = None
    work: Callable[[Case, Native], IndexArray] | None = None
    accesses: Callable[[Case], float] | None = None
    indices: bool = False


@dataclass(frozen=True)
class Model:
    """Transfers of a kernel by the model, if they differ from those implied by its traffic.

    Parameters
    ----------
    bytes_B : callable, optional
        Case to the bytes that memory transfers in one invocation; by default the traffic with
        indices and write-allocates.
    transfers : callable, optional
        (case, levels, caches) to the transfers of an iteration across the boundary in front of each
        level (see `crossed`), if data are used more than once; caches as in an environment.
    conditions : callable, optional
        (case, caches) to the layer condition that holds in each cache, by its name.
    measures_ceilings : bool
        Whether memory bandwidths are measured together with its records (see `Ceilings`).
    implied_columns : callable, optional
        (case with the variant that ran, columns of its check, `Ceilings`, shortest time in s) to
        columns derived from these bandwidths, besides the columns of the roofline.
    """

    bytes_B: Callable[[Case], float] | None = None
    transfers: (
        Callable[[Case, Sequence[str], Sequence[Mapping[str, Any]]], Mapping[str, Transfer]] | None
    ) = None
    conditions: Callable[[Case, Sequence[Mapping[str, Any]]], Mapping[str, str]] | None = None
    measures_ceilings: bool = False
    implied_columns: (
        Callable[[Case, Mapping[str, float], Ceilings, float], dict[str, float]] | None
    ) = None


@dataclass(frozen=True)
class Limits:
    """Types, numbers of runs and knobs that a kernel accepts.

    Parameters
    ----------
    dtypes, index_dtypes : tuple of str
    most_runs : mapping
        By dtype, the number of consecutive invocations that keep the values finite, if it is small.
    idle_knobs : tuple of str
        Fields of `Knobs` without effect on the kernel; its cases refuse them.
    own_knobs : tuple of str
        Fields of `Knobs` that only kernels which list them have (see `Option.own`).
    idle : callable, optional
        (case) to the fields without effect on this case only, each with the reason.
    refuse : callable, optional
        (case) raises an InputError for knobs that are meaningless for the case.
    """

    dtypes: tuple[str, ...] = DTYPES
    index_dtypes: tuple[str, ...] = ("",)
    most_runs: Mapping[str, int] = field(default_factory=dict)
    idle_knobs: tuple[str, ...] = ()
    own_knobs: tuple[str, ...] = ()
    idle: Callable[[Case], Mapping[str, str]] | None = None
    refuse: Callable[[Case], None] | None = None

    @property
    def all_idle_knobs(self) -> tuple[str, ...]:
        """The fields of `Knobs` without effect: `idle_knobs`, and those of other kernels only."""
        own = {name for name, _, option in declared(Knobs) if option.own}
        return (*self.idle_knobs, *sorted(own - {*self.own_knobs}))


@dataclass(frozen=True, eq=False, repr=False)
class KernelSpec:
    """Declaration of a kernel: all properties that do not depend on options.

    It is compared by identity and pickled as its name, by which another process finds it.

    Parameters
    ----------
    name : str
        ``family.kernel``, as in the records; where a release differs from its paper, the
        release's kernel is ``family.kernel@release``.
    summary, source : str
        The definition in one line; its paper, equation or table.
    arrays : tuple of ArrayRole
        The arrays that `Case.apply` takes and returns.
    traffic : callable
        Case to `Traffic` of one iteration.
    iterations : callable
        Case to the iterations of one invocation.
    checks : Checks
    inputs : tuple of Declared
        A row for each of its inputs (see `memkern.spec.inputs`).
    build : callable, optional
        `memkern.spec.inputs.Given` to `Case`, if inputs are related or others follow from them.
    counts : Counts
    model : Model
    limits : Limits
    indices : tuple of str
        Names of its index arrays, if they are the same for all cases.
    numbers : mapping
        Scalars of the definition with their defaults.
    usual : mapping
        Options of all cases whose defaults differ for this kernel.
    template_columns : tuple of str
        Column of the record for each word of `Case.template_variant`, if the kernel is built with
        several operations.
    part : callable, optional
        (case, number of a rank, number of ranks) to the rank's `Part` of a case with a `Case.halo`.
    derived_columns : callable, optional
        Case to columns of the record that follow from its inputs, and are not in its identity.
    version : int
        Increased when the definition changes; part of a case's identity.
    made_by : callable, optional
        Returns the spec in a process for code of users, where alone it may run.
    load : callable, optional
        (case) to the arguments by which the extension gets to know it, before a case is prepared.
    """

    name: str
    summary: str
    source: str
    arrays: tuple[ArrayRole, ...]
    traffic: Callable[[Case], Traffic]
    iterations: Callable[[Case], int]
    checks: Checks
    inputs: tuple[Declared, ...] = ()
    build: Callable[[Any], Case] | None = None
    counts: Counts = field(default_factory=Counts)
    model: Model = field(default_factory=Model)
    limits: Limits = field(default_factory=Limits)
    indices: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    usual: Mapping[str, Any] = field(default_factory=dict)
    template_columns: tuple[str, ...] = ()
    part: Callable[[Case, int, int], Part] | None = None
    derived_columns: Callable[[Case], Mapping[str, Any]] | None = None
    version: int = 1
    made_by: Callable[[], KernelSpec] | None = None
    load: Callable[[Case], Mapping[str, Any]] | None = None

    def __repr__(self) -> str:
        """Return name and definition in one line."""
        return f"KernelSpec({self.name}: {self.summary})"

    @property
    def kernel(self) -> str:
        """Name without the definition, as in the records."""
        return self.name.partition("@")[0]


@dataclass(frozen=True, eq=False, repr=False)
class Case(FromFields):
    """One thing to measure: a spec, its inputs, how to run it and when to stop.

    Cases with the same `identity` and the same labels are equal. They can be hashed, pickled and
    measured in another process.

    Parameters
    ----------
    spec : KernelSpec
    integers, numbers, indices, data : mapping
        The inputs by name: integers, scalars, 1-d arrays of indices, and 1-d arrays of values in
        the case's dtype, such as the values of a matrix.
    dtype, index_dtype : str
    template_variant : str
        The operation of the kernel to run, such as ``add/relaxed/unused``.
    knobs : Knobs
    stop : Stop
    columns : mapping
        The record's columns about the inputs (pattern, delta, count and so on).
    labels : mapping
        Words that are not part of its identity, by names from `LABELS`.
    request : mapping, optional
        The options of `memkern.case`, if a sweep file can contain them; not in its identity.
    """

    spec: KernelSpec
    integers: Mapping[str, int] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    indices: Mapping[str, Indices] = field(default_factory=dict)
    data: Mapping[str, Values] = field(default_factory=dict)
    dtype: str = "float64"
    index_dtype: str = ""
    template_variant: str = ""
    knobs: Knobs = field(default_factory=Knobs)
    stop: Stop = field(default_factory=Stop)
    columns: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, Any] = field(default_factory=lambda: dict.fromkeys(LABELS, ""))
    request: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Check types and knobs, and the number of runs of a kernel whose values grow."""
        one_of(self.dtype, "dtype", self.spec.limits.dtypes)
        one_of(self.index_dtype, "index_dtype", self.spec.limits.index_dtypes)
        words = {name: self.labels.get(name) for name in ("name", "suite")}
        escaped = {name: printable(word) for name, word in words.items() if isinstance(word, str)}
        if escaped.items() - words.items():
            object.__setattr__(self, "labels", {**self.labels, **escaped})
        for name, why in self.idle_knobs.items():
            if getattr(self.knobs, name) != getattr(Knobs, name):
                raise does_nothing(name, self.spec.kernel, [why])
        if self.halo:
            one_of(self.halo, "halo", HALOS)
            if self.spec.part is None or not self.knobs.backend.on_processors:
                raise InputError(
                    f"{self.spec.name} on {self.knobs.device} is not distributed over ranks: leave "
                    "halo out"
                )
        if self.spec.limits.refuse is not None:
            self.spec.limits.refuse(self)
        most = self.spec.limits.most_runs.get(self.dtype)
        if most is not None and not (self.stop.runs and self.stop.runs <= most):
            raise InputError(
                f"{self.spec.name} in {self.dtype} needs a number of runs, of at most {most}: its "
                f"values grow with every invocation"
            )

    def __repr__(self) -> str:
        """Return the kernel, and inputs and options that are not their defaults, in one line."""
        words = [f"{name}={shown(value)}" for name, value in self.given.items()]
        return f"Case({', '.join([self.spec.name, *words])})"

    def _repr_html_(self) -> str:
        caption = f"{self.spec.name}: {self.spec.summary}"
        return html_table(caption, (), [(name, str(x)) for name, x in self.given.items()])

    def __eq__(self, other: object) -> bool:
        """Compare identities (arrays by content) and labels."""
        if not isinstance(other, Case):
            return NotImplemented
        return self.identity() == other.identity() and self.labels == other.labels

    def __hash__(self) -> int:
        """Hash the identity."""
        return hash(self.identity())

    @property
    def input_columns(self) -> dict[str, Any]:
        """Columns of the record about the inputs, with the words of the template variant."""
        words = zip(self.spec.template_columns, self.template_variant.split("/"), strict=False)
        return {**self.columns, **dict(words)}

    @property
    def given(self) -> dict[str, Any]:
        """The inputs, options and labels that are not their defaults, by name."""
        limits, numbers = self.spec.limits, self.spec.numbers
        usual = {"dtype": limits.dtypes[0], "index_dtype": limits.index_dtypes[0]}
        usual |= {row.column or row.name: row.default for row in self.spec.inputs} | {**numbers}
        types = {"dtype": self.dtype, "index_dtype": self.index_dtype}
        found = {**self.input_columns, **types, **self.labels}
        found = {name: x for name, x in found.items() if x not in ("", usual.get(name))}
        for options in (self.knobs, self.stop):
            values = ((name, getattr(options, name), usual) for name, usual, _ in declared(options))
            found |= {name: value for name, value, usual in values if value != usual}
        return found

    @property
    def idle_knobs(self) -> dict[str, str]:
        """Fields of `Knobs` without effect on the case, each with the reason, if it is known."""
        idle = dict.fromkeys(self.spec.limits.all_idle_knobs, "")
        return idle if self.spec.limits.idle is None else {**idle, **self.spec.limits.idle(self)}

    @property
    def halo(self) -> str:
        """Time of the exchange of values among ranks if the case is distributed.

        ``blocking``: without simultaneous computation; ``overlap``: during the iterations that do
        not depend on the values; empty if each rank has its own case.
        """
        return str(self.columns.get("halo", ""))

    @functools.cached_property
    def traffic(self) -> Traffic:
        """Bytes per iteration."""
        return self.spec.traffic(self)

    @functools.cached_property
    def iterations(self) -> int:
        """Iterations of one invocation."""
        return self.spec.iterations(self)

    def working_threads(self, threads: int) -> int:
        """Return how many of the threads have iterations."""
        return min(threads, max(self.iterations, 1))

    @functools.cached_property
    def bytes_B(self) -> int:
        """Bytes of one invocation by the paper's formula."""
        return round(self.traffic.view(index=self.spec.counts.indices) * self.iterations)

    @property
    def bytes_model_B(self) -> float:
        """Bytes that memory transfers in one invocation, by the model."""
        if self.spec.model.bytes_B is not None:
            return self.spec.model.bytes_B(self)
        return self.traffic.view(index=True, write_allocate=True) * self.iterations

    @property
    def bytes_index_B(self) -> int:
        """Bytes of indices that one invocation loads."""
        return round(self.traffic.index * self.iterations)

    def transfers(
        self, levels: Sequence[str], caches: Sequence[Mapping[str, Any]] = ()
    ) -> Mapping[str, Transfer]:
        """Return the bytes that an iteration moves across the boundary in front of each level.

        Parameters
        ----------
        levels : sequence of str
            As for `Traffic.transfers`.
        caches : sequence of mapping
            As in an environment (``level``, ``size_B``, ``shared_by``), for kernels whose traffic
            depends on their sizes.
        """
        if self.spec.model.transfers is not None:
            return self.spec.model.transfers(self, levels, caches)
        return self.traffic.transfers(levels, bypass=not self.allocates)

    def identity(self) -> str:
        """Hash of kernel, inputs and options.

        Labels and the options of the duration (budget, width and placements) are not included.
        """
        return self._identity

    @functools.cached_property
    def _identity(self) -> str:
        digest = hashlib.sha256()
        measured = {
            "kernel": self.spec.name,
            "version": self.spec.version,
            "integers": dict(self.integers),
            "numbers": dict(self.numbers),
            "dtype": self.dtype,
            "index_dtype": self.index_dtype,
            "form": self.template_variant,
            "knobs": self.knobs.requested,
            "samples": [self.stop.runs, self.stop.invocations],
            "columns": {k: str(v) for k, v in self.columns.items()},
        }
        digest.update(json.dumps(measured, sort_keys=True).encode())
        for name in sorted(self.indices):
            digest.update(name.encode())
            values = self.indices[name]
            for begin in range(0, len(values), BLOCK):
                part = values[begin : begin + BLOCK]
                digest.update(np.ascontiguousarray(part, dtype=np.int64).data)
        for name in sorted(self.data):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(self.data[name]).data)
        return digest.hexdigest()[:16]

    @property
    def placements(self) -> int:
        """Number of placements in memory (see `Stop.placements`)."""
        several = self.stop.runs is None and not self.knobs.backend.is_accelerator
        wanted = small.cut(self.stop.placements or (PLACEMENTS if several else 1), 2)
        return min(wanted, self.stop.runs or wanted)

    @property
    def allocates(self) -> bool:
        """Whether a store first reads its cache line (see `Traffic.write_allocate`)."""
        return self.knobs.variant != "nt" and self.knobs.backend.on_processors

    @property
    def value_B(self) -> int:
        """Size of a value in bytes."""
        return np.dtype(self.dtype).itemsize

    @property
    def line_B(self) -> int:
        """Smallest transfer of memory in bytes: a line of this processor, a sector of a GPU."""
        from memkern.machine import caches

        return self.knobs.backend.sector_B or caches.line_B()

    def filled(self, lines: float, partial: float) -> float:
        """Return the number of written lines that must be read first.

        On a processor these are all lines, unless stores are non-temporal (see `allocates`); on a
        GPU only the `partial` lines.
        """
        if self.knobs.backend.is_accelerator:
            return partial
        return lines if self.allocates else 0

    def with_(self, **changes: Any) -> Case:
        """Return a copy with other knobs, stop rule, types or labels, each by its own name.

        Raises
        ------
        InputError
            There is no such field, or a value is out of range.
        """
        new = by_part({name: plain(value, name) for name, value in changes.items()})
        changed = replace(
            self,
            knobs=replace(self.knobs, **new["knobs"]) if new["knobs"] else self.knobs,
            stop=replace(self.stop, **new["stop"]) if new["stop"] else self.stop,
            labels={**self.labels, **new["labels"]},
            **new["own"],
        )
        if not new["own"] and changed.knobs.backend is self.knobs.backend:
            changed.__dict__["_of_inputs"] = self.__dict__.setdefault("_of_inputs", {})
        return changed

    def prepare(self) -> Any:
        """Allocate, place and fill the memory of the case; see `memkern.prepare`."""
        return above("engine").prepare(self)

    def measure(self, **options: Any) -> Any:
        """Measure the case; see `memkern.measure`."""
        return above("engine").measure(self, **options)

    def apply(self, **arrays: Values) -> dict[str, Values]:
        """Run the kernel once on the caller's arrays; see `memkern.apply`."""
        return cast("dict[str, Values]", above("engine").apply(self, **arrays))


def by_part(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return fields of `Knobs` and `Stop`, labels and a case's own fields by part of the case.

    Raises
    ------
    InputError
        A case has no such field.
    """
    known = {
        "knobs": {f.name for f in fields(Knobs)},
        "stop": {f.name for f in fields(Stop)},
        "own": {"dtype", "index_dtype", "template_variant"},
        "labels": {*LABELS},
    }
    if unknown := options.keys() - set[str]().union(*known.values()):
        every = sorted(known["knobs"] | known["stop"] | known["own"])
        raise InputError(f"a case has no knob {min(unknown)!r}: choose from {', '.join(every)}")
    return {part: {k: options[k] for k in options if k in known[part]} for part in known}


def does_nothing(option: str, kernels: str, reasons: Iterable[str] = ()) -> InputError:
    """Return the error for an option without effect on kernels, with the reasons that are known."""
    known = " and ".join(dict.fromkeys(filter(None, reasons)))
    since = known and f", since {known}"
    return InputError(f"{option} has no effect on {kernels}{since}: leave it out")


def once_for_inputs(function: Callable[[Case], Result]) -> Callable[[Case], Result]:
    """Return a function that caches its result for the case and its copies with other options.

    The result must not depend on options, except the device (see `Knobs.backend`).
    """
    name = f"{function.__module__}.{function.__qualname__}"

    @functools.wraps(function)
    def kept(case: Case) -> Result:
        results: dict[str, Result] = case.__dict__.setdefault("_of_inputs", {})
        if name not in results:
            results[name] = function(case)
        return results[name]

    return kept
