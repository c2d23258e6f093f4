"""The measurement of a case: it is placed in memory and sampled several times."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

from memkern.discovery import above
from memkern.engine.placing.costs import device_columns, ensure
from memkern.engine.placing.preparing import ready
from memkern.engine.processes.communication import (
    connected,
    exclusive,
    ranks,
    refuse_forked,
    together,
)
from memkern.engine.recording.record import Derive, measurement_of
from memkern.engine.recording.samples import Samples
from memkern.engine.recording.taken import (
    Energy,
    Group,
    Measurement,
    Placement,
    RankPlacement,
    Taken,
)
from memkern.engine.sampling import metering
from memkern.engine.sampling.activity import Neighbour, competitors
from memkern.engine.sampling.prepared import Prepared
from memkern.engine.sampling.series import halo_share, take_samples
from memkern.errors import InputError, warn
from memkern.extension import _memkern
from memkern.host import Host, this_host
from memkern.host.capacity import capacity
from memkern.host.distances import BESIDE, MIXED, SHARED, Spread, class_name
from memkern.host.environment import machine_environment
from memkern.isolating import isolates
from memkern.machine import environment, gpu
from memkern.machine.caches import data_caches
from memkern.machine.kernel_counters import memory_counters
from memkern.spec.case import Case
from memkern.spec.kernel import Check, finish

# Buffers of at least this size are reused for the next placement: effects of page placement average
# out over so many pages, and allocating them takes longer than measuring.
LARGE_B = 2**26
# All buffers are smaller: the next placement gets other memory, as after LARGE_B.
ALL_B = 2**62


def _of_all_ranks(check: Check) -> Check:
    """Return a check that is valid if it is valid on all ranks, with the largest error.

    Its columns are means over the ranks.
    """
    if ranks().size == 1:
        return check
    every = ranks().every(check)
    return dataclasses.replace(
        check,
        valid=all(one.valid for one in every),
        error_max=max(one.error_max for one in every),
        columns={name: fmean(one.columns[name] for one in every) for name in check.columns},
    )


class CaseRun:
    """The measurement of a case: it is placed and sampled several times, then summarised.

    Parameters
    ----------
    case : Case
    repeat : int
        Number of this repeat, for the record.
    beside : Neighbour, optional
        Case that runs intentionally at the same time.
    host : Host, optional
        By default `memkern.host.this_host`.
    """

    def __init__(
        self,
        case: Case,
        repeat: int = 0,
        beside: Neighbour | None = None,
        host: Host | None = None,
    ) -> None:
        refuse_forked()
        if not (ranks().even or case.knobs.threads):
            raise InputError(
                "the ranks have different numbers of processing units, and so of threads: give "
                "--threads, or bind all ranks to the same number of units"
            )
        self.case = case
        self.repeat = repeat
        self.beside = beside
        self.host = host or this_host()
        self.started = environment.now()
        self.placements: list[Placement] = []
        self._units = os.sched_getaffinity(0)
        self._taken: Taken | None = None  # of these placements
        # Deadline of the next placement, on the clock of `time.perf_counter`.
        self.deadline = math.inf
        self.out_of_time = False
        self._energy = Energy(note="energy is not measured: sampling was interrupted")
        self._derive: Derive | None = None
        if (file := case.labels.get("machine_file", "")) or case.spec.model.measures_ceilings:
            derive = above("roofline").step(file)  # raises for a wrong file on any device
            self._derive = derive if case.knobs.backend.on_processors else None
        # Measured before the case allocates memory of the device.
        self._device: dict[str, Any] = {}
        if case.knobs.backend.is_accelerator:
            name = str(gpu.facts(case.knobs.device)["name"])
            self._device = {"platform": name, **device_columns(case.knobs.device, self.host)}

    @property
    def case_id(self) -> str:
        """The identity of the case, including the ranks and the neighbour."""
        beside = self.beside.case_id if self.beside else ""
        return "-".join(filter(None, (self.case.identity(), ranks().case_id, beside)))

    @property
    def interrupted(self) -> bool:
        """Whether sampling was interrupted."""
        return any(p.samples.stop == "interrupted" for p in self.placements)

    @property
    def complete(self) -> bool:
        """Whether it was placed as often as requested, or as time allowed."""
        return self.out_of_time or len(self.placements) >= self.case.placements

    @property
    def taken(self) -> Taken:
        """The results so far; there is at least one placement."""
        if self._taken is None:
            own, last, cores = ranks(), self.placements[-1].samples, self.host.cores
            self._taken = Taken(
                self.case,
                self.case_id,
                self.repeat,
                self.started,
                tuple(self.placements),
                self._energy,
                ranks=Group(**{name: getattr(own, name) for name in Group.__dataclass_fields__}),
                device=self._device,
                capacity=capacity(self.host),
                best_throughput=cores.best(last.cores),
                best_exchange=cores.best(last.exchanging),
                modes=cores.modes(last.exchanging),
            )
        return self._taken

    def class_of(self, machine: dict[str, Any]) -> str:
        """Return the class of this case (see `memkern.host.distances`)."""
        obtained, taken = self.placements[-1].obtained, self.taken
        placements = self.case.placements
        if self.case.knobs.backend.is_accelerator:
            l2 = {"level": 2, "size_B": gpu.facts(self.case.knobs.device)["l2_B"]}
            return class_name(obtained["footprint_B"], 0, [l2], placements)
        states = ((taken.mixed, MIXED), (taken.others, BESIDE), (not taken.quiet, SHARED))
        host = next((name for holds, name in states if holds), "")
        size_B, threads = obtained["footprint_B"], obtained["threads"]
        return class_name(size_B, threads, data_caches(machine), placements, host)

    def spread(self, machine: dict[str, Any]) -> Spread:
        """Return what is known of the distances between runs of this case."""
        return self.host.spread(self.class_of(machine)) + self.taken.distances.to_next_command()

    def imprecise(self, spread: Callable[[], Spread]) -> bool:
        """Return whether it is placed again for its precision, since its time is not over.

        `spread` returns what is known of the distances between its runs.
        """
        stop = self.case.stop
        if stop.precision is None or self.interrupted:
            return False
        # Looking takes as long as there are placements: it is done after a tenth more each time.
        looks = len(self.placements) % max(len(self.placements) // 10, 1) == 0
        spent_s = sum(placement.wall_s for placement in self.placements)
        # Placements in less time than usual tell too little of how the host changes.
        wide = not looks or spent_s < stop.usual_s
        wide = wide or math.sinh(spread().floor.within()) > stop.precision
        return ranks().first((wide or self.taken.disturbed) and spent_s < stop.most_s)

    def place(self, prepared: Prepared | None = None) -> Placement:
        """Fill, sample and validate, in a new placement or in the placement of `prepared`.

        What was placed is kept: if a single process can't place a case again, or has lost
        processing units, a warning tells why, and the run ends as if it was interrupted.

        Raises
        ------
        InputError, MemoryError, DeviceError
            See `prepare`.
        KeyboardInterrupt
            Processing units changed, and this case has no placement yet.
        """
        try:
            with exclusive():
                return self._place(prepared)
        except (InputError, MemoryError) as error:
            if not (self.placements or os.sched_getaffinity(0) != self._units) or connected():
                raise
            warn(f"{error}: measuring ends here, since it was possible before")
        if not self.placements:
            raise KeyboardInterrupt
        self._mark(stop="interrupted")
        return self.placements[-1]

    def _place(self, prepared: Prepared | None) -> Placement:
        case, start = self.case, time.perf_counter()
        earlier = self.placements[-1] if self.placements else None
        threads = earlier.choice.threads if earlier else 0
        if len(units := os.sched_getaffinity(0)) < threads <= len(self._units):
            raise InputError(
                f"this process may only use processing units {','.join(map(str, sorted(units)))} "
                f"now, too few for {threads} threads (taskset, a control group, or a processor "
                "that was switched off)"
            )
        if prepared is None:
            prepared = ready(case, earlier.choice if earlier else None, self.deadline, self.host)
        choice = prepared.choice
        again_s = time.perf_counter() - start - prepared.choosing_s
        # Measured once for all cases: not a part of the time of this one.
        begin = time.perf_counter()
        ensure(prepared)
        start += time.perf_counter() - begin
        # Placements in between run the same code on the same inputs.
        validated = earlier is None or len(self.placements) >= case.placements - 1
        before, counted = competitors(self.beside), memory_counters()
        check, samples, sampled_s = self._sampled(prepared, validated)
        again_s += sampled_s
        if check is None:
            assert earlier is not None
            check = earlier.check
        # Workers that have lost their units meanwhile ran on others.
        if not {*environment.cpu_list(prepared.obtained["pin"])} <= os.sched_getaffinity(0):
            samples = dataclasses.replace(samples, disturbed=True)
        if samples.stop != "interrupted" and all(p.samples.disturbed for p in self.placements):
            try:
                self._energy = metering.measure(prepared, samples.mean_s, self.beside)
            except KeyboardInterrupt:
                samples = dataclasses.replace(samples, stop="interrupted")
        # Read only once, since the operating system walks the page tables for it.
        known = earlier.obtained["pages"] if earlier else None
        obtained = {**prepared.native.obtained(), "pages": known or prepared.native.pages()}
        # Reasons for slower clocks of a GPU are in the columns of the device.
        now = () if samples.device else competitors(self.beside)
        others = tuple(thread for thread in now if thread[:2] in {one[:2] for one in before})
        wall_s = time.perf_counter() - start
        crowded = not samples.device and ranks().crowded(int(obtained["threads"]))
        rank = RankPlacement(obtained["pin"], obtained["pages"], crowded, obtained["footprint_B"])
        placement = Placement(
            samples,
            _of_all_ranks(check),
            obtained,
            choice,
            others,
            wall_s,
            ranks().slowest(again_s),
            ranks().slowest(sampled_s),
            tuple(ranks().every(rank)),
            prepared.counting,
            {
                "misplaced_share": earlier.memory["misplaced_share"]
                if earlier and not validated
                else prepared.native.misplaced_share(),
                **{name: n - counted[name] for name, n in memory_counters().items()},
            },
        )
        self.placements.append(placement)
        self._taken = None
        return placement

    def _sampled(self, prepared: Prepared, validated: bool) -> tuple[Check | None, Samples, float]:
        """Fill, sample and, where it is to be validated, check a prepared case.

        The last value is the seconds of sampling.
        """
        spec, check = self.case.spec, None
        if spec.checks.repeatable:
            # Trial runs determine the number of invocations; the check must not include them.
            _ = prepared.invocations
        # If possible, the timed invocations themselves are validated.
        timed = validated and (spec.checks.idempotent or spec.checks.repeatable)
        validation = prepared.validation() if timed else None
        if validation is None:
            if validated:
                check = prepared.check()
            else:
                prepared.native.fill(outputs=True)
            prepared.set_steady_inputs()
        begin = time.perf_counter()
        samples = take_samples(prepared, len(self.placements), self.case.placements)
        sampled_s = time.perf_counter() - begin
        if validation is not None:
            check = finish(validation, samples.taken * samples.invocations + samples.untimed)
        if check is not None and self.case.halo:
            share = {"halo_share": halo_share(prepared)}
            check = dataclasses.replace(check, columns={**check.columns, **share})
        return check, samples, sampled_s

    def disturb(self) -> None:
        """Mark the last placement as disturbed by a cause that is not visible in its samples."""
        self._mark(disturbed=True)

    def _mark(self, **changes: Any) -> None:
        """Change the samples of the last placement."""
        last = self.placements[-1]
        samples = dataclasses.replace(last.samples, **changes)
        self.placements[-1] = dataclasses.replace(last, samples=samples)
        self._taken = None

    def measurement(self, machine: dict[str, Any], **how: Any) -> Measurement:
        """Return the record of all placements so far (see `measurement_of`)."""
        roofline, peak = self._derive, above("peak").step(machine, self.case.stop.peak_GBps)

        def derive(record: Mapping[str, Any]) -> dict[str, Any]:
            return {**(roofline(record) if roofline else {}), **peak(record)}

        return measurement_of(self.taken, self.host, machine, derive, **how)


def environment_of_ranks() -> dict[str, Any]:
    """Return the environment of rank 0, with the environments of other hosts if they differ."""
    own = machine_environment()
    if ranks().size == 1:
        return own
    every = ranks().every(own)
    known = [environment.identity(one) for one in every]
    return every[0] | {
        "ranks": {
            "library": ranks().library,
            "hosts": dict(zip(ranks().hosts, known, strict=True)),
            "environments": {k: e for k, e in zip(known, every, strict=True) if k != known[0]},
        }
    }


@isolates
@together()
def measure(
    case: Case,
    *,
    repeat: int = 0,
    extra: Mapping[str, Any] | None = None,
    machine: dict[str, Any] | None = None,
) -> Measurement:
    """Measure one case: place, sample and validate it as often as requested.

    Parameters
    ----------
    case : Case
    repeat : int
        Number of this repeat, for the record.
    extra : mapping, optional
        Further columns of the record.
    machine : dict, optional
        The environment, if the caller has it already.

    Returns
    -------
    Measurement

    Raises
    ------
    InputError, MemoryError, DeviceError
        See `prepare`.
    """
    run = CaseRun(case, repeat)
    machine = environment_of_ranks() if machine is None else machine
    while not run.complete or run.imprecise(lambda: run.spread(machine)):
        if run.placements:
            _memkern.release_memory(LARGE_B)
        run.place()
        if run.interrupted:
            break
    return calibrated(run, machine, extra)


def calibrated(
    run: CaseRun, machine: dict[str, Any], extra: Mapping[str, Any] | None = None
) -> Measurement:
    """Return the record of all placements so far, with its interval."""
    measurement = run.measurement(machine, spread=run.spread(machine), extra=extra)
    count(run, measurement)
    return measurement


def count(run: CaseRun, measurement: Measurement) -> None:
    """Add an undisturbed record to the distances between runs, for later intervals."""
    record = measurement.record
    if record["disturbed"] or ranks().number:  # all ranks share one record
        return
    identity = f"{record['case_id']} {record['environment_id']} {run.taken.state_name}"
    run.host.add_record(identity, run.class_of(measurement.environment), record, time.time())
