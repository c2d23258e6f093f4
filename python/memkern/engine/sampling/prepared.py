"""Prepared cases: memory placed and filled, and the kernel that runs in it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from memkern import isolating, launcher, small
from memkern.checks import shown
from memkern.engine.processes.communication import exclusive, prepared_cases, ranks
from memkern.engine.recording.samples import STARTS_PER_SAMPLE
from memkern.engine.recording.taken import Choice
from memkern.errors import InputError, warn
from memkern.extension import _memkern
from memkern.host import Host, this_host
from memkern.host.capacity import capacity
from memkern.machine import gpu, remote, settings
from memkern.machine.topology import limiting_quota, workers_by_quota
from memkern.spec.case import Case, Part
from memkern.spec.kernel import Check, Validation, Values, finish
from memkern.spec.options import INTEGERS, OF_RANKS, REQUEST

if TYPE_CHECKING:
    from memkern.engine.recording.counting import Counting

# Time until the next preparation in a process for code of users, besides the budget, and the bytes
# that are certainly filled and validated in a second.
_ISOLATED_S, _ISOLATED_BPS = 60.0, 1e8
# The clock measures a sample of this many ticks to better than a tenth of a percent.
_TICKS_PER_SAMPLE = 1000
# With a given number of runs, a sample is one invocation unless that is shorter than this.
_TICKS_PER_RUN = 100
# Largest difference of the threads' starts; the shortest part takes longer if a kernel has no
# parts.
_MOST_APART_S = 2e-6
# Launches between two synchronisations with a GPU (Chalmers and Warburton 2020), fewer if they
# would take longer than this time: a single launch costs at most 5 us more.
_LAUNCHES, _MOST_LAUNCHED_S = 20, 0.02


class Prepared:
    """A case that is ready to run: memory placed and filled, a variant selected.

    Parameters
    ----------
    case : Case
    chosen : Choice, optional
        By default the first variant and instruction set that the case permits, which
        `memkern.prepare` tries. A case that leaves the number of threads open has that of `chosen`.
    deadline : float
        Time on the clock of `time.perf_counter` after which no trial or sample starts.
    host : Host, optional
        By default `memkern.host.this_host`.

    Attributes
    ----------
    own : Case
        The case that this rank runs, or its part of a case that is distributed over ranks.
    part : Part or None
        The rank's part of a distributed case, with its exchange.
    native : object
        The extension's prepared case.
    how : str
        How the variant was chosen: ``requested``, ``trial``, or ``default`` where ``best`` was
        requested and there were no trials.
    loss : float
        Share of the time by which another variant may be faster (see `variants.fastest`).
    choosing_s : float
        Seconds that the trials took.
    stages : list of str
        The kernels that an invocation runs in turn, if there are several.
    counting : Counting or None
        The events that are counted during the samples.
    host : Host
        What is known of this host.
    """

    choosing_s = 0.0
    _last_s = 0.0  # of the selected variant's last invocation; 0 before

    def __init__(
        self,
        case: Case,
        chosen: Choice | None = None,
        deadline: float = math.inf,
        host: Host | None = None,
    ) -> None:
        with exclusive():
            settings.recover()
            self.case = case
            self.deadline = deadline
            self.host = host or this_host()
            self.part = _part_of(case, ranks().number, ranks().size) if case.halo else None
            self.own = self.part.case if self.part else case
            self.device = None if case.knobs.backend.on_processors else case.knobs.device
            self.counting: Counting | None = None
            if case.knobs.counters:
                from memkern.engine.sampling.counters import requested

                self.counting = requested(case.knobs.counters)
            self.native = self._placed(self.own, chosen.threads if chosen else 0)
            prepared_cases.add(self)
            self._warn()
            obtained = self.native.obtained()
            isolating.limit(
                _ISOLATED_S + 4 * case.stop.most_s + obtained["footprint_B"] / _ISOLATED_BPS
            )
            self.stages: list[str] = obtained["stages"]
            # A requested variant runs on the widest instruction set.
            chosen = chosen or Choice(
                *self.candidates[0], "default" if case.knobs.variant == "best" else "requested"
            )
            self.how, self.loss = chosen.how, chosen.loss
            self.select(chosen.variant, chosen.isa)

    def __repr__(self) -> str:
        """Return the case."""
        return f"<Prepared: {self.case!r}>"

    def _placed(self, case: Case, threads: int) -> _memkern.Prepared:
        """Return the extension's case with its arrays in memory (for `threads` see `_device`)."""
        knobs = case.knobs
        if self.device and knobs.threads and "workers" not in case.integers:
            raise InputError(
                f"{case.spec.name} on {self.device} sets the number of threads itself: leave "
                "threads out"
            )
        if case.spec.load is not None:
            _memkern.add_function(**case.spec.load(case))
        return _memkern.Prepared(
            kernel=case.spec.name,
            dtype=case.dtype,
            index_dtype=case.index_dtype,
            template_variant=case.template_variant,
            integers={**case.integers, **knobs.going_to(INTEGERS)},
            numbers=dict(case.numbers),
            indices=dict(case.indices),
            data={name: _of_dtype(name, values, case) for name, values in case.data.items()},
            caches_B=capacity(self.host).sized_B,
            **{**knobs.going_to(REQUEST), **_device(case, threads), **_exchange(self.part)},
        )

    def _warn(self) -> None:
        """Warn if processors have too few units for the threads, or share them."""
        if self.device is not None:
            return
        threads, units = self.case.knobs.threads, len(_memkern.topology()["units"])
        if threads > units:
            warn(
                f"{threads} threads take turns on {units} processing units: use no more threads "
                "than there are units"
            )
        if quota := limiting_quota():
            workers = workers_by_quota()
            _warn_once(
                f"the control group of this process has a quota of {quota.processors:g} of {units} "
                f"processors: cases have {workers} thread{'s' * (workers > 1)} by default; samples "
                "in which threads are stopped are disturbed, unless they are too long to avoid "
                "stops"
            )
        obtained = self.native.obtained()
        for text in obtained["refused"]:
            _warn_once(text)
        if small.wanted():
            return
        used = obtained["threads"]
        workers = self.own.working_threads(used)
        if workers < used and self.case.bytes_B:
            _warn_once(
                f"{used - workers} of {used} threads are idle: {self.case.spec.name} has only "
                f"{workers} iteration{'s' * (workers > 1)} here"
            )
        warn_of_conditions(obtained["shared_units"])

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied.

        Raises
        ------
        InputError
            Always.
        """
        raise InputError("a prepared case can't be pickled or copied: pickle its case")

    @property
    def candidates(self) -> list[tuple[str, str]]:
        """The variants with their instruction sets that the case permits, the widest first.

        Raises
        ------
        InputError
            There is none.
        """
        variant, isa = self.case.knobs.variant, self.case.knobs.isa
        every: list[tuple[str, str]] = self.native.candidates()
        fitting = [(v, i) for v, i in every if variant in ("best", v) and isa in ("best", i)]
        if not fitting:
            choices = ", ".join(f"{v} on {i}" for v, i in every)
            raise InputError(
                f"kernel {self.case.spec.name!r} has no variant {variant!r} for instruction set "
                f"{isa!r} here: choose from {choices}"
            )
        return fitting

    def run(self, invocations: int) -> float:
        """Run a sample of `invocations` invocations, and return the slowest rank's seconds.

        Nothing is allocated, parsed or checked in it.
        """
        ranks().align()
        try:
            seconds = ranks().slowest(self.native.run(invocations))
        except TypeError:
            raise InputError(f"invocations must be an integer, not {shown(invocations)}") from None
        self._last_s = seconds / invocations
        return seconds

    def run_range(self, begin: int, end: int) -> float:
        """Run a part of an invocation, and return the slowest rank's seconds."""
        ranks().align()
        return ranks().slowest(self.native.run_range(begin, end))

    def select(self, variant: str, isa: str) -> None:
        """Select a variant and instruction set."""
        self.native.select(variant, isa)
        self._last_s = 0.0
        # A faster variant needs more invocations per sample.
        if vars(self).get("invocations", 1) > 1:
            del self.invocations

    @property
    def obtained(self) -> dict[str, Any]:
        """Threads, pinning, pages, variant and instruction set in use."""
        return {**self.native.obtained(), "pages": self.native.pages()}

    @property
    def choice(self) -> Choice:
        """The variant and instruction set in use, and how they were chosen."""
        obtained = self.native.obtained()
        return Choice(
            *(obtained["variant"], obtained["isa"], self.how, self.loss),
            threads=0 if self.device else obtained["threads"],
        )

    @contextlib.contextmanager
    def switched(self) -> Iterator[None]:
        """Keep the machine's settings as the case requests until the end of the context.

        The first rank of each host changes them, and restores them when all ranks are done.

        Raises
        ------
        InputError
            They can't be changed here.
        """
        knobs = self.case.knobs
        if knobs.prefetchers != "off" and not knobs.clock_limit and not knobs.cache_ways:
            yield
            return
        with settings.changed(self._changes() if ranks().first_of_host else []):
            ranks().gate()
            yield
            ranks().gate()

    def _changes(self) -> list[settings.Change]:
        from memkern.machine import switches

        knobs, changes = self.case.knobs, []
        if knobs.prefetchers == "off":
            changes += switches.prefetchers_off(settings.ROOT)
        if knobs.clock_limit and knobs.backend.is_accelerator:
            changes += switches.gpu_clock_limit(knobs.clock_limit, knobs.device)
        elif knobs.clock_limit:
            changes += switches.clock_limit(knobs.clock_limit, settings.ROOT)
        if knobs.cache_ways:
            changes += switches.cache_ways(knobs.cache_ways, settings.ROOT)
        return changes

    @property
    def left_s(self) -> float:
        """Seconds until the deadline, 0 after it."""
        if math.isinf(self.deadline):
            return math.inf
        return max(-ranks().slowest(time.perf_counter() - self.deadline), 0.0)

    def warm_up(self) -> int:
        """Run untimed samples until a GPU has its clocks under load.

        On other devices no samples are run. The machine has the settings that the case requests.

        Returns
        -------
        int
            Invocations that changed the arrays that the kernel writes. Arrays whose values grow
            without bound are filled again.
        """
        if not self.case.knobs.backend.is_accelerator:
            return 0
        calls = gpu.warm_up(self.case.knobs.device, lambda: self.native.run(self.invocations))
        if self.case.spec.limits.most_runs.get(self.case.dtype) is None:
            return calls * self.invocations
        self.native.fill(outputs=True)
        return 0

    def check(self) -> Check:
        """Fill the arrays, run the kernel once and compare its results with the reference."""
        validation = self.validation()
        # Ranks that exchange values wait for each other in the kernel.
        ranks().gate()
        self.native.run(1)
        return finish(validation, 1)

    def validation(self) -> Validation:
        """Fill the arrays, and return a validation; `finish` ends it after invocations."""
        validation = self._validation()
        next(validation)
        return validation

    def _validation(self) -> Validation:
        if self.part is None:
            return (yield from self.case.spec.checks.check(self.case, self.native))
        found = yield from self.part.check(self.native)
        return dataclasses.replace(found, columns={**found.columns, **self.part.columns})

    def set_steady_inputs(self) -> None:
        """Fill arrays with values that do not grow from invocation to invocation."""
        for name, value in self.case.spec.checks.steady_inputs.items():
            array = self.native.arrays()[name]
            self.native.copy_in(name, np.full(array["columns"], value, dtype=array["dtype"]))

    @functools.cached_property
    def invocations(self) -> int:
        """Invocations per sample: as requested, or as many as the clock's resolution requires."""
        if self.case.stop.invocations:
            return self.case.stop.invocations
        if self.case.knobs.flush or self.stages:
            return 1
        if self.case.knobs.backend.is_accelerator:
            shortest_s = min(self.run(1) for _ in range(4))  # the first one loads the kernel
            return min(max(int(_MOST_LAUNCHED_S / shortest_s), 1), _LAUNCHES)
        ticks = _TICKS_PER_SAMPLE if self.case.stop.runs is None else _TICKS_PER_RUN
        # All ranks must agree on the number, and leave a barrier at different times.
        goal = ranks().slowest(ticks * _memkern.clock_tick())
        apart_s = ranks().barrier_s
        if self.case.knobs.repetition == "free":
            shortest_s = min(self.run_range(0, 1) for _ in range(2))
            apart_s = max(apart_s, min(shortest_s, _MOST_APART_S))
        goal = max(goal, STARTS_PER_SAMPLE * apart_s)
        invocations = 1
        # If the last invocation or a small part took long enough, no whole invocation is tried.
        part = -(-self.own.iterations // 128)
        if self._last_s >= 20 * goal or self.run_range(0, part) >= 20 * goal:
            return invocations
        while True:
            seconds = self.run(invocations)
            if seconds < 20 * goal:
                # A single short time may be mostly disturbance. If ranks exchange values, the
                # shortest time may be much shorter than all others.
                times = sorted((seconds, self.run(invocations), self.run(invocations)))
                seconds = times[1 if self.case.halo else 0]
            if seconds >= goal:
                return invocations
            # A time near the clock's resolution does not justify a large step.
            grow = goal / seconds if seconds > goal / 100 else 10.0
            invocations = math.ceil(invocations * min(max(grow * 1.1, 1.5), 10.0))


def warn_of_conditions(shared_units: Sequence[int]) -> None:
    """Warn if workers share units with another memkern process, or if their waits are unknown."""
    # Ranks of a host with too few units are oversubscribed; their records have a column for it.
    if shared_units and ranks().size == 1:
        _warn_once(
            "another memkern process measures on the same processing units, since too few are "
            "free: measure when it has ended, or with fewer --threads in both"
        )
    if not _memkern.run_queue_delays_known():
        _warn_once(DELAYS_UNKNOWN)


_warn_once = functools.cache(warn)


DELAYS_UNKNOWN = (
    "the system does not report how long threads wait for a processor (/proc/self/schedstat): "
    "samples are judged by CPU time against wall time"
)


def _of_dtype(name: str, values: Values, case: Case) -> Values:
    """Return data of a case in its dtype."""
    try:
        with np.errstate(over="raise"):
            return np.ascontiguousarray(values, dtype=case.dtype)
    except FloatingPointError:
        raise InputError(f"the {name} of {case.spec.kernel} overflow {case.dtype}") from None


def _device(case: Case, before: int) -> dict[str, Any]:
    """Return the extension's arguments for the device of a case and the number of its workers.

    `before` is the number of threads of earlier placements, 0 if there are none.
    """
    knobs = case.knobs
    if not knobs.backend.over_ranks:
        # A list of units is the list of the threads' units.
        limited = knobs.backend.on_processors and ranks().size == 1 and knobs.pin.isalpha()
        threads = knobs.threads or before or (workers_by_quota() if limited else 0)
        return {"device": gpu.handle(knobs.device), "threads": threads}
    size = remote.description(knobs.device).ranks
    if size != ranks().size:
        raise InputError(
            f"{knobs.device} has {size} ranks, but {ranks().size} of them measure together: leave "
            "out --comm none"
        )
    device = remote.handle(
        knobs.device,
        **knobs.going_to(OF_RANKS),
        threads=knobs.threads,
        shift=case.integers.get("shift", 0),
        barrier=ranks().gate,
        largest=ranks().slowest,
        watch=ranks().watch,
    )
    return {"device": device, "threads": knobs.threads * size}


@functools.lru_cache(maxsize=1)
def _part_of(case: Case, number: int, size: int) -> Part:
    """Return a rank's part of a case, the same for all placements."""
    assert case.spec.part is not None
    return case.spec.part(case, number, size)


def _exchange(part: Part | None) -> dict[str, Any]:
    """Return the extension's argument for the exchange among ranks; none for a single rank."""
    if part is None or ranks().size == 1:
        return {}
    plan = part.exchange
    # No rank waits for one that fails before.
    ranks().gate()
    with launcher.waiting_for_all("prepare an exchange"):
        found = remote.exchange(
            plan.neighbours,
            plan.to,
            plan.of,
            adds=plan.adds,
            rank=ranks().number,
            ranks=ranks().size,
            timeout_s=launcher.timeout_s(),
        )
    return {"exchange": (found, plan.array)}
