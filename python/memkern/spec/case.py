"""One thing to measure: a kernel, its inputs, how to run it and when to stop."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

import memkern
from memkern import small
from memkern.checks import FromFields, one_of
from memkern.errors import InputError
from memkern.spec.kernel import Indices, KernelSpec, Traffic, Transfer
from memkern.spec.options import GPUS, LABELS, PLACEMENTS, Knobs, Stop

HALOS = ("blocking", "overlap")
"""When the ranks of a distributed case exchange values (see `Case.halo`)."""

Result = TypeVar("Result")

_SECTOR_B = 32
_SMALL_PLACEMENTS = 2  # of a small case (see `memkern.small`)


@dataclass(frozen=True, eq=False)
class Case(FromFields):
    """One thing to measure: a spec, its inputs, how to run it and when to stop.

    Cases with the same `identity` and the same labels are equal. They can be hashed, pickled and
    measured in another process.

    Parameters
    ----------
    spec : KernelSpec
    integers, numbers, indices, data : mapping
        The inputs by name: integers, scalars, 1-d arrays of indices, and 1-d arrays of values in
        the case's dtype, such as those of a matrix.
    dtype, index_dtype : str
    template_variant : str
        Which of the kernel's operations to run, such as ``add/relaxed/unused``.
    knobs : Knobs
    stop : Stop
    columns : mapping
        The record's columns about the inputs (pattern, delta, count and so on).
    labels : mapping
        Words that are no part of its identity, some of `LABELS`.
    request : mapping, optional
        The options by which `memkern.case` built it, if all of them are words and numbers, so that
        a sweep file can have them. They are no part of its identity.
    """

    spec: KernelSpec
    integers: Mapping[str, int] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    indices: Mapping[str, Indices] = field(default_factory=dict)
    data: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
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
        one_of(self.dtype, "dtype", self.spec.dtypes)
        one_of(self.index_dtype, "index_dtype", self.spec.index_dtypes)
        for name, why in self.idle_knobs.items():
            if getattr(self.knobs, name) != getattr(Knobs, name):
                since = why and f", since {why}"
                raise InputError(f"{name} does nothing for {self.spec.kernel}{since}: leave it out")
        if self.halo:
            one_of(self.halo, "halo", HALOS)
            if self.spec.part is None or self.knobs.device != "cpu":
                raise InputError(
                    f"{self.spec.name} on {self.knobs.device} is not distributed over ranks: leave "
                    "halo out"
                )
        if self.spec.refuse is not None:
            self.spec.refuse(self)
        most = self.spec.most_runs.get(self.dtype)
        if most is not None and not (self.stop.runs and self.stop.runs <= most):
            raise InputError(
                f"{self.spec.name} in {self.dtype} needs a number of runs, of at most {most}: its "
                f"values grow with every invocation"
            )

    def __eq__(self, other: object) -> bool:
        """Compare identities (arrays by content) and labels."""
        if not isinstance(other, Case):
            return NotImplemented
        return self.identity() == other.identity() and self.labels == other.labels

    def __hash__(self) -> int:
        """Hash the identity."""
        return hash(self.identity())

    @property
    def idle_knobs(self) -> dict[str, str]:
        """Fields of `Knobs` without effect on the case, each with the reason, if it is known."""
        idle = dict.fromkeys(self.spec.idle_knobs, "")
        return idle if self.spec.idle is None else {**idle, **self.spec.idle(self)}

    @property
    def halo(self) -> str:
        """When the ranks over which the case is distributed exchange values.

        ``blocking``: while nothing is computed; ``overlap``: during the iterations that do not
        depend on them; empty if each rank has a case of its own.
        """
        return str(self.columns.get("halo", ""))

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
        if self.spec.transfers is not None:
            return self.spec.transfers(self, levels, caches)
        return self.traffic.transfers(levels, bypass=not self.allocates)

    def identity(self) -> str:
        """Hash of kernel, inputs and options; labels do not count."""
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
            "form": self.template_variant,
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
        """Number of placements in memory (see `Stop.placements`)."""
        several = self.stop.runs is None and self.knobs.place != GPUS
        asked = small.cut(self.stop.placements or (PLACEMENTS if several else 1), _SMALL_PLACEMENTS)
        return min(asked, self.stop.runs or asked)

    @property
    def allocates(self) -> bool:
        """Whether a store first reads its cache line (see `Traffic.write_allocate`)."""
        return self.knobs.variant != "nt" and self.knobs.device == "cpu"

    @property
    def line_B(self) -> int:
        """Bytes that memory transfers at least: a line of this processor, a sector of a GPU."""
        from memkern.machine import caches

        return _SECTOR_B if self.knobs.place == GPUS else caches.line_B()

    def filled(self, lines: float, partial: float) -> float:
        """Return how many lines stores read first, of those that they write whole or in part.

        Of a processor all of them, unless stores are non-temporal (see `allocates`); of a GPU those
        that are written in `partial`.
        """
        if self.knobs.place == GPUS:
            return partial
        return lines if self.allocates else 0

    def with_(self, **changes: Any) -> Case:
        """Return a copy with other knobs, stop rule, types or labels, each by its own name.

        Raises
        ------
        InputError
            There is no such field, or a value is out of range.
        """
        knobs = {f.name for f in dataclasses.fields(Knobs)}
        stop = {f.name for f in dataclasses.fields(Stop)}
        own = {"dtype", "index_dtype", "template_variant"}
        new_knobs = {k: v for k, v in changes.items() if k in knobs}
        new_stop = {k: v for k, v in changes.items() if k in stop}
        new_own = {k: v for k, v in changes.items() if k in own}
        labels = {k: v for k, v in changes.items() if k in LABELS}
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

    # Through the package's lazy names, since `spec` must not import `measuring`.

    def prepare(self) -> memkern.Prepared:
        """Allocate, place and fill what the case needs; see `memkern.prepare`."""
        return memkern.prepare(self)

    def measure(self, **options: Any) -> memkern.Measurement:
        """Measure the case; see `memkern.measure`."""
        return memkern.measure(self, **options)

    def apply(self, **arrays: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """Run the kernel once on the caller's arrays; see `memkern.apply`."""
        return memkern.apply(self, **arrays)


def once(function: Callable[[Case], Result]) -> Callable[[Case], Result]:
    """Return a function that keeps its result with the case, as a cached property does."""

    @functools.wraps(function)
    def kept(case: Case) -> Result:
        results: dict[Callable[[Case], Result], Result] = case.__dict__.setdefault("_once", {})
        if function not in results:
            results[function] = function(case)
        return results[function]

    return kept
