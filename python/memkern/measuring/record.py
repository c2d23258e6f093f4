"""Records: a case is placed in memory and sampled several times, then summarised."""

from __future__ import annotations

import dataclasses
import json
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern import _memkern, statistics
from memkern.errors import InputError
from memkern.machine import environment, gpu
from memkern.machine.caches import data_caches, ends, level_of
from memkern.machine.topology import machine_environment
from memkern.measuring import calibration, counting, disturbance, metering
from memkern.measuring.cores import Neighbour, competitors, cores, cores_at_work
from memkern.measuring.costs import (
    ceilings_GBps,
    copy_GBps,
    device_ceilings_GBps,
    device_launch_cost_s,
    launch_cost_s,
)
from memkern.measuring.counting import Counting
from memkern.measuring.drift import known_drift
from memkern.measuring.metering import Energy
from memkern.measuring.prepared import STARTS_PER_SAMPLE, Choice, Prepared
from memkern.measuring.process import exclusive, refuse_forked
from memkern.measuring.ranks import ranks, together
from memkern.measuring.sampling import Samples, median
from memkern.models.ecm import MEMORY
from memkern.models.machine_file import MachineFile, machine_of
from memkern.models.roofline import BESIDE, Ceiling, ceilings, limit, roofline, roofline_columns
from memkern.results import ResultSet
from memkern.spec.case import Case
from memkern.spec.columns import in_order
from memkern.spec.kernel import Ceilings, Check, KernelSpec, Transfer
from memkern.spec.options import GPUS, PROCESSORS, RANKS
from memkern.spec.registry import registry

# An invocation shorter than this many empty ones has a time without the launch.
_SHORT_LAUNCHES = 10
# Buffers of this size and more are reused for the next placement: the placement of so many pages
# averages out, and allocating them takes longer than measuring.
LARGE_B = 2**26
# Placements that are spread over at least this time include the variance between runs.
SPREAD_S = 20.0


@dataclass(frozen=True, eq=False)
class Measurement:
    """One measured case; measurements with equal results are equal.

    Attributes
    ----------
    record : dict
        The row of the results table.
    samples : ndarray of float64, shape (n,)
        Seconds per invocation, in the order in which they were taken.
    environment : dict
        The machine and build.
    parts : tuple of Measurement
        The single kernels, where an invocation runs several in turn.
    """

    record: dict[str, Any]
    samples: npt.NDArray[np.float64]
    environment: dict[str, Any]
    parts: tuple[Measurement, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Compare the results."""
        if not isinstance(other, Measurement):
            return NotImplemented
        return self.results == other.results

    @property
    def valid(self) -> bool:
        """Whether the kernel's results were right."""
        return bool(self.record["valid"])

    @property
    def disturbed(self) -> bool:
        """Whether too few samples were undisturbed, so that the times mean little."""
        return bool(self.record["disturbed"])

    @property
    def bandwidth_GBps(self) -> float:
        """Bytes by the paper's formula divided by the shortest time, in 1e9 B/s."""
        return float(self.record["bandwidth_GBps"])

    def cut_off(self) -> Measurement:
        """Return it marked as interrupted, to be measured again when the run is resumed."""
        parts = tuple(part.cut_off() for part in self.parts)
        return dataclasses.replace(self, record={**self.record, "stop": "interrupted"}, parts=parts)

    @property
    def results(self) -> ResultSet:
        """The measurement as a result set, its parts first."""
        return to_result_set([self])

    def _repr_html_(self) -> str:
        return self.results._repr_html_()


@dataclass(frozen=True)
class Placement:
    """Results of one placement of a case.

    Of the `wall_s` seconds that it took, `again_s` are those that another placement would take as
    well, without the choice of the variant and the validation. `obtained` is this rank's.
    """

    samples: Samples
    check: Check
    obtained: dict[str, Any]
    choice: Choice
    others: tuple[disturbance.RunningThread, ...]
    device: Mapping[str, Any]
    started_s: float
    wall_s: float
    again_s: float
    rank_places: tuple[RankPlace, ...]
    counting: Counting


@dataclass(frozen=True)
class RankPlace:
    """Processing units, page size and memory of a rank, and whether it has too few units."""

    units: str
    pages: str
    oversubscribed: bool
    footprint_B: int


def _of_all_ranks(check: Check) -> Check:
    """Return a check that is valid where it is on all ranks, with the largest error.

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
        What runs at the same time on purpose.
    """

    def __init__(self, case: Case, repeat: int = 0, beside: Neighbour | None = None) -> None:
        refuse_forked()
        if not (ranks().even or case.knobs.threads):
            raise InputError(
                "the ranks have different numbers of processing units, and so of threads: give "
                "the number of threads (--threads), or bind all ranks to as many units"
            )
        self.case = case
        self.repeat = repeat
        self.beside = beside
        self.started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self.placements: list[Placement] = []
        # Deadline of the next placement, on the clock of `time.perf_counter`.
        self.deadline = math.inf
        self.out_of_time = False
        self._energy = Energy(note="energy is not measured: sampling was interrupted")
        self._models_B: dict[str, float] = {}
        self._machine: MachineFile | None = None
        if file := case.labels.get("machine_file"):
            self._machine = machine_of(file, [machine_environment()["machine"]["model"] or ""])
            # Raises an error if it has no bandwidths.
            ceilings(self._machine)
        # Measured before the case allocates the device's memory.
        self._ceilings = _device_ceilings(case.knobs.device) if case.knobs.place == GPUS else {}

    @property
    def case_id(self) -> str:
        """The case's identity, with those of several ranks and of the neighbour."""
        beside = self.beside.case_id if self.beside else ""
        return "-".join(filter(None, (self.case.identity(), ranks().case_id, beside)))

    @property
    def interrupted(self) -> bool:
        """Whether sampling was interrupted."""
        return any(p.samples.stop == "interrupted" for p in self.placements)

    @property
    def complete(self) -> bool:
        """Whether it was placed as often as requested, or as time allowed."""
        return self.out_of_time or len(self.placements) == self.case.placements

    @property
    def medians(self) -> list[float]:
        """Median of each placement that was not disturbed, in seconds."""
        clean = [p.samples.seconds[:, 0] for p in self._of_variant if not p.samples.disturbed]
        return [float(np.median(seconds)) for seconds in clean]

    @property
    def _of_variant(self) -> list[Placement]:
        """The placements with the variant of the last one, which is that of the record."""
        return [p for p in self.placements if p.choice.same_as(self.placements[-1].choice)]

    @property
    def spread_s(self) -> float:
        """Seconds from the first placement to the last."""
        return self.placements[-1].started_s - self.placements[0].started_s

    def class_of(self, machine: dict[str, Any]) -> str:
        """Return the class of cases with similar variances (see `calibration.class_name`)."""
        obtained = self.placements[-1].obtained
        caches = data_caches(machine)
        return calibration.class_name(obtained["footprint_B"], obtained["threads"], caches)

    def place(self, prepared: Prepared | None = None) -> Placement:
        """Fill, sample and validate, in a new placement or in that of a prepared case.

        Raises
        ------
        InputError, MemoryError, DeviceError
            See `prepare`.
        """
        with exclusive():
            return self._place(prepared)

    def _place(self, prepared: Prepared | None) -> Placement:
        case, start = self.case, time.perf_counter()
        spec = case.spec
        earlier = self.placements[-1] if self.placements else None
        if prepared is None:
            # After disturbed trials, the variant is chosen again.
            chosen = earlier.choice if earlier and earlier.choice.how != "default" else None
            prepared = Prepared(case, chosen, self.deadline)
        choice = prepared.choice
        prepared.beside = self.beside
        again_s = time.perf_counter() - start - prepared.choosing_s
        taken: list[tuple[Samples, dict[str, Any]]] = []
        if spec.repeatable_check:
            # Their number is found by trial runs, which the check must not count.
            _ = prepared.invocations

        def sample() -> int:
            nonlocal again_s
            begin = time.perf_counter()
            found = prepared.sample(len(self.placements), case.placements)
            again_s += time.perf_counter() - begin
            taken.append((found, prepared.watch.columns if prepared.watch else {}))
            return found.taken * found.invocations + found.untimed

        # Placements in between run the same code on the same inputs.
        same = earlier is not None and choice.same_as(earlier.choice)
        validated = not same or len(self.placements) == case.placements - 1
        check = earlier.check if earlier else None
        if validated and (spec.idempotent or spec.repeatable_check):
            # The timed invocations themselves are validated.
            check = prepared.check(sample)
        else:
            if validated:
                check = prepared.check()
            else:
                prepared.native.fill(outputs=True)
            prepared.set_steady_inputs()
            sample()
        assert check is not None
        if case.halo and validated:
            share = {"halo_share": prepared.halo_share()}
            check = dataclasses.replace(check, columns={**check.columns, **share})
        samples, device = taken[0]
        if samples.stop != "interrupted" and all(p.samples.disturbed for p in self.placements):
            try:
                self._energy = prepared.energy(samples.mean_s)
            except KeyboardInterrupt:
                samples = dataclasses.replace(samples, stop="interrupted")
        # Read only once, since the operating system walks the page tables for it.
        known = earlier.obtained["pages"] if earlier else None
        obtained = {**prepared.native.obtained(), "pages": known or prepared.native.pages()}
        # What slows down a GPU is in the columns of the device.
        others = competitors(self.beside) if samples.rejected and not device else ()
        wall_s = time.perf_counter() - start
        crowded = ranks().crowded(int(obtained["threads"]))
        place = RankPlace(obtained["pin"], obtained["pages"], crowded, obtained["footprint_B"])
        placement = Placement(
            samples,
            _of_all_ranks(check),
            obtained,
            choice,
            others,
            device,
            start,
            wall_s,
            ranks().slowest(again_s),
            tuple(ranks().every(place)),
            prepared.counting,
        )
        self.placements.append(placement)
        return placement

    def disturb(self) -> None:
        """Mark the last placement as disturbed, by something that its samples do not show."""
        last = self.placements[-1]
        samples = dataclasses.replace(last.samples, disturbed=True)
        others = last.others or competitors(self.beside)
        self.placements[-1] = dataclasses.replace(last, samples=samples, others=others)

    def measurement(
        self,
        machine: dict[str, Any],
        *,
        prior: statistics.Prior | None = None,
        drift: statistics.Prior | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Measurement:
        """Return the record of all placements so far.

        Parameters
        ----------
        machine : dict
            The environment.
        prior, drift : Prior, optional
            Variances of this case's class between placements and between runs.
        extra : mapping, optional
            Further columns of the record.
        """
        case, last = self.case, self.placements[-1]
        spec, obtained = case.spec, last.obtained
        clean = [p for p in self._of_variant if not p.samples.disturbed]
        disturbed = 2 * len(clean) < len(self.placements)
        counted = self._of_variant if disturbed else clean
        # As in STREAM, the first sample of kernels that run in turn is left out.
        skipped = 1 if last.samples.seconds.shape[1] > 1 else 0
        series = [
            p.samples.seconds[skipped if len(p.samples.seconds) > 1 else 0 :] for p in counted
        ]
        as_run = case.with_(variant=obtained["variant"])
        launch_s = math.nan
        if case.bytes_B and case.knobs.place == GPUS:
            invocations = last.samples.invocations
            launch_s = device_launch_cost_s(case.knobs.device, case.knobs.timer, invocations)
        elif case.bytes_B and case.knobs.place == PROCESSORS:
            launch_s = launch_cost_s(obtained["threads"], case.knobs.pin, case.knobs.repetition)
        caches = data_caches(machine)
        median_s = float(np.median([np.median(s[:, 0]) for s in series]))
        beside = _ceilings_beside(as_run, obtained["threads"])
        traffic_GBps = float(np.median([p.samples.traffic_GBps for p in counted]))
        columns = {
            **last.check.columns,
            **_ceiling_columns(as_run, last.check, beside, median_s),
        }

        def run_of(spec: KernelSpec) -> Case:
            return as_run if spec is as_run.spec else dataclasses.replace(as_run, spec=spec)

        def row(
            case: Case, column: int, case_id: str, of_whole: Mapping[str, Any] | None = None
        ) -> dict[str, Any]:
            run = run_of(case.spec)
            # Kernels that run in turn are launched one by one.
            launches_s = launch_s * (names or 1) if column == 0 else launch_s
            times = _times([s[:, column] for s in series], disturbed, prior, drift, self.spread_s)
            found = {
                **_identity_columns(case, case_id, self, columns, machine),
                **_obtained_columns(case, last),
                **_sample_columns(self, counted, series, disturbed),
                **times,
                **_rates(case, self._model_B(run), last, times, launches_s),
                **_traffic_columns(case, traffic_GBps, times["time_median_s"]),
                **_transfer_columns(_transfers(run, caches), _cases(as_run)),
                **_conditions(as_run, caches),
                **_rank_columns(case, counted, rank_counts if case.spec is spec else []),
                **self._ceilings,
                **last.device,
                **metering.columns(case, self._energy, times["time_median_s"]),
                **(of_whole or {}),
                **(extra or {}),
            }
            return in_order({**found, **self._roofline(found, beside)})

        names = last.samples.seconds.shape[1] - 1
        level = level_of(obtained["footprint_B"], ends(caches, obtained["threads"]))
        # Of all kernels together, where an invocation runs several in turn.
        counts = [p.samples.counts for p in counted]
        rank_counts = counting.by_rank(last.counting, counts, last.samples.invocations)
        counted_columns = counting.columns(
            as_run,
            last.counting,
            counts,
            last.samples.invocations,
            self._model_B(as_run),
            _transfers(as_run, caches),
            "memory" if case.knobs.flush else level,
            _cases(as_run),
        )
        whole = row(case, 0, self.case_id, counted_columns)
        parts = []
        for column, kernel in enumerate(obtained["stages"][:names], start=1):
            part = dataclasses.replace(case, spec=registry()[kernel])
            record = row(part, column, f"{self.case_id}-{kernel}")
            parts.append(Measurement(record, np.concatenate(series)[:, column], machine))
        return Measurement(whole, np.concatenate(series)[:, 0], machine, tuple(parts))

    def _roofline(self, record: Mapping[str, Any], beside: Ceilings | None) -> dict[str, Any]:
        """Return the columns on the roofline, by the machine file or by ceilings beside it."""
        if self.case.knobs.place != PROCESSORS:
            return {}
        try:
            if self._machine is not None:
                found = roofline(self._machine, record)
                return roofline_columns(record, found, self._machine.label)
            if beside is not None and not math.isnan(beside.load_GBps):
                memory = {MEMORY: Ceiling(beside.load_GBps, beside.store_GBps)}
                return roofline_columns(record, limit(record, memory, {}), BESIDE)
        except InputError as error:
            # Its traffic is not known, or nothing crosses a boundary that has a ceiling.
            if self._machine is not None:
                warnings.warn(f"no roofline by {self._machine.label}: {error}", stacklevel=2)
        return roofline_columns(record, None, "")

    def _model_B(self, as_run: Case) -> float:
        """Return the model's bytes of one invocation, computed once for each kernel."""
        name = as_run.spec.name
        if name not in self._models_B:
            self._models_B[name] = as_run.spec.model_bytes(as_run)
        return self._models_B[name]


def _times(
    series: Sequence[npt.NDArray[np.float64]],
    disturbed: bool,
    prior: statistics.Prior | None,
    drift: statistics.Prior | None,
    spread_s: float,
) -> dict[str, Any]:
    """Return the columns on times and their intervals; a disturbed record has no interval."""
    summary: dict[str, Any] = statistics.summarise(np.concatenate(series))
    medians = [float(np.median(seconds)) for seconds in series]
    summary["time_median_s"] = float(np.median(medians))
    interval = statistics.placements_interval(medians, prior=prior, drift=drift)
    scope = "next run" if drift is not None or spread_s >= SPREAD_S else "within this run"
    low, high, level = (summary[f"within_ci_{name}"] for name in ("low_s", "high_s", "level"))
    if interval is not None and len(medians) == 1:
        # The interval of one placement includes that of its samples and the calibrated one.
        low, high, level = min(low, interval.low), max(high, interval.high), interval.level
    elif interval is not None:
        low, high, level = interval.low, interval.high, interval.level
    else:
        scope = "within this run"
    if disturbed:
        scope, low, high, level = "none", math.nan, math.nan, math.nan
        summary |= dict.fromkeys((name for name in summary if name.startswith("within_")), math.nan)
    median = summary["time_median_s"]
    return summary | {
        "time_ci_low_s": low,
        "time_ci_high_s": high,
        "ci_level": level,
        "ci_relative": (high - low) / 2 / median if median > 0 else math.nan,
        "ci_scope": scope,
        "placement_sd": float(np.std(np.log(medians), ddof=1)) if len(medians) > 1 else math.nan,
    }


def _identity_columns(
    case: Case, case_id: str, run: CaseRun, columns: Mapping[str, Any], machine: dict[str, Any]
) -> dict[str, Any]:
    """Return the columns that identify the case, the machine and the time."""
    knobs, last = case.knobs, run.placements[-1]
    if knobs.place == GPUS:
        platform = str(gpu.describe(knobs.device)["name"])
    else:
        platform = environment.platform_label(machine, last.obtained["threads"])
    if ranks().size > 1:
        platform = f"{platform} a rank, {ranks().size} ranks"
    words = zip(case.spec.template_columns, case.template_variant.split("/"), strict=False)
    which = {**case.columns, **dict(words)}
    return {
        "case_id": case_id,
        "repeat": run.repeat,
        "environment_id": environment.identity(machine),
        "platform": platform,
        "started": run.started,
        "kernel": case.spec.kernel,
        "definition": case.spec.definition,
        "name": case.labels.get("name", ""),
        "suite": case.labels.get("suite", ""),
        **which,
        "case_columns": " ".join(which),
        **columns,
    }


def _obtained_columns(case: Case, placement: Placement) -> dict[str, Any]:
    """Return the columns of the requested and of the obtained options."""
    knobs, obtained = case.knobs, placement.obtained
    return {
        "backend": {PROCESSORS: "openmp", GPUS: "cuda"}.get(knobs.place, knobs.device),
        "dtype": case.dtype,
        "index_dtype": case.index_dtype,
        **knobs.columns,
        **{name: obtained[name] for name in ("threads", "variant", "isa", "pin", "pages")},
        "memory_line_B": case.line_B,
        "block_threads": obtained["block_threads"],
        "variant_choice": placement.choice.how,
        "comm": ranks().comm,
        "ranks": ranks().size,
        "ranks_per_node": ranks().per_node,
        "hosts": ",".join(dict.fromkeys(ranks().hosts)) if ranks().names_hosts else "",
        "comm_library": ranks().library,
        "comm_threads": ranks().thread_level,
        "comm_transport": ranks().transport,
        "oversubscribed": any(place.oversubscribed for place in placement.rank_places),
        "rotation": bool(obtained["stages"]),
    }


def _sample_columns(
    run: CaseRun,
    counted: Sequence[Placement],
    series: Sequence[npt.NDArray[np.float64]],
    disturbed: bool,
) -> dict[str, Any]:
    """Return the columns on how samples were taken, and what disturbed them."""
    every = run.placements
    stops = [p.samples.stop for p in every]
    checks = [p.check for p in every]
    others = dict.fromkeys(thread for p in every for thread in p.others)
    throughput = median(np.array([p.samples.throughput for p in counted]))
    best = cores().best(cores_at_work(every[-1].obtained, run.beside))
    return {
        "samples": sum(map(len, series)),
        "invocations": every[-1].samples.invocations,
        "stop": "interrupted" if run.interrupted else min(stops, key=_STOPS.index),
        "placements": len(counted),
        "placements_asked": run.case.placements,
        "samples_disturbed": sum(p.samples.rejected for p in every),
        "disturbed": disturbed,
        "disturbed_by": disturbance.causes(others, sum(p.samples.moved for p in every)),
        "cpu_share": float(np.mean([p.samples.cpu_share for p in every])),
        "core_share": min(throughput / best, 1.0),
        "exchange_ns": median(np.array([p.samples.exchange_s for p in counted])) * 1e9,
        "clock_GHz": median(np.array([p.samples.clock_Hz for p in counted])) / 1e9,
        "doctor": calibration.load_health(),
        "valid": all(check.valid for check in checks),
        "error_max": max(check.error_max for check in checks),
        "validation": checks[-1].how,
        "wall_s": sum(p.wall_s for p in every),
    }


# The record of several placements has the first of these reasons that one of them has.
_STOPS = ("interrupted", "budget", "samples", "ci", "runs")


def _rates(
    case: Case, model_B: float, placement: Placement, times: Mapping[str, float], launch_s: float
) -> dict[str, Any]:
    """Return the columns on bytes and rates."""
    obtained, several = placement.obtained, _cases(case)
    shortest, median = times["time_min_s"], times["time_median_s"]
    iterations = several * case.iterations
    elements = iterations * case.spec.width(case)
    vectors = elements * np.dtype(case.dtype).itemsize / (obtained["vector_B"] or math.nan)
    cycles = shortest * placement.samples.clock_Hz * obtained["threads"] * several
    access_s = median / case.spec.accesses(case) if case.spec.accesses else math.nan
    # Several launches on a GPU overlap with what they start.
    overlap = case.knobs.place == GPUS and placement.samples.invocations > 1
    short = shortest < _SHORT_LAUNCHES * launch_s and not overlap
    messages = {"messages_per_second": iterations / shortest * case.spec.messages}
    if not case.spec.messages:
        messages = {}
    amos = case.spec.amos * placement.check.columns.get("attempts_per_amo", 1.0)
    return {
        "launch_s": launch_s,
        "time_net_s": shortest - launch_s if short else math.nan,
        "bytes_B": several * case.bytes_B,
        "bytes_index_B": several * case.bytes_index_B,
        "bytes_model_B": several * float(model_B),
        "footprint_B": _footprint_B(case, placement),
        "bandwidth_GBps": several * case.bytes_B / shortest / 1e9,
        "bandwidth_median_GBps": several * case.bytes_B / median / 1e9,
        "rate_GAMS": iterations / shortest / 1e9 * amos or math.nan,
        "performance_GFLOPs": elements / shortest / 1e9 * case.spec.flops or math.nan,
        "performance_median_GFLOPs": elements / median / 1e9 * case.spec.flops or math.nan,
        "cycles_per_vector": cycles / vectors if case.spec.elementwise else math.nan,
        "ns_per_access": access_s * 1e9,
        "cycles_per_access": access_s * placement.samples.clock_Hz,
        **messages,
    }


def _traffic_columns(case: Case, traffic_GBps: float, median_s: float) -> dict[str, float]:
    """Return the columns of traffic beside what is timed; none for kernels without any."""
    if math.isnan(traffic_GBps) or case.spec.accesses is None:
        return {}
    return {
        "traffic_per_access_B": traffic_GBps * 1e9 * median_s / case.spec.accesses(case),
        "traffic_GBps": traffic_GBps,
    }


def _transfers(as_run: Case, caches: Sequence[Mapping[str, Any]]) -> dict[str, Transfer]:
    """Return what an invocation of a case moves across the boundary in front of each level.

    There is none where the time is one of accesses that depend on each other.
    """
    spec = as_run.spec
    names = [*dict.fromkeys(f"L{cache['level']}" for cache in caches), MEMORY]
    if as_run.knobs.place != PROCESSORS or spec.accesses or spec.amos or len(names) == 1:
        return {}
    if not as_run.traffic.view(index=True, write_allocate=True):
        return {}
    return {
        level: Transfer(*(as_run.iterations * moved_B for moved_B in transfer))
        for level, transfer in as_run.transfers(names, caches).items()
    }


def _transfer_columns(moved: Mapping[str, Transfer], cases: int) -> dict[str, float]:
    """Return the columns of what some equal cases move."""
    return {
        f"{level}_{way}_B": cases * moved_B
        for level, transfer in moved.items()
        for way, moved_B in zip(("load", "store"), transfer, strict=True)
    }


def _conditions(as_run: Case, caches: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the column of the layer conditions that hold, for kernels that have any."""
    if as_run.spec.conditions is None or as_run.knobs.place != PROCESSORS:
        return {}
    held = as_run.spec.conditions(as_run, caches)
    return {"conditions": ", ".join(f"{cache} {name}" for cache, name in held.items())}


def _ceilings_beside(as_run: Case, threads: int) -> Ceilings | None:
    """Return the bandwidths of all ranks together, where they are measured beside the record."""
    if not as_run.spec.measures_ceilings:
        return None
    rates = ceilings_GBps(threads, as_run.knobs.pin, as_run.knobs.pages)
    if math.isnan(rates["load"]):
        warnings.warn(
            "rooflines by the bandwidths beside a record are left out where these were disturbed: "
            "measure again on a quiet machine",
            stacklevel=2,
        )
    return Ceilings(*(ranks().size * rates[name] for name in ("load", "triad", "store")))


def _ceiling_columns(
    as_run: Case, check: Check, beside: Ceilings | None, median_s: float
) -> dict[str, float]:
    """Return the columns of bandwidths beside a record, and those that follow from them."""
    if beside is None:
        return {}
    columns = dataclasses.asdict(beside)
    if as_run.spec.implied_columns is None:
        return columns
    # The case is that of each rank, or one of all of them.
    own = Ceilings(**{name: rate / _cases(as_run) for name, rate in columns.items()})
    return columns | as_run.spec.implied_columns(as_run, check.columns, own, median_s)


def _cases(case: Case) -> int:
    """Return how many ranks have a case of their own; 1 where it is one of all ranks."""
    return 1 if case.halo or case.knobs.place == RANKS else ranks().size


def _device_ceilings(device: str) -> dict[str, float]:
    """Return the columns of a GPU's bandwidths; NaN of those for which it has too little memory."""
    try:
        best = device_ceilings_GBps(device)
    except MemoryError:
        best = {}
    return {
        "gpu_peak_GBps": float(gpu.describe(device)["peak_GBps"]),
        "gpu_copy_GBps": copy_GBps(device),
        "gpu_best_copy_GBps": best.get("copy", math.nan),
        "gpu_best_read_GBps": best.get("read", math.nan),
    }


def _footprint_B(case: Case, placement: Placement) -> int:
    """Return the bytes of memory that an invocation touches on all ranks."""
    if case.knobs.place == RANKS:
        return int(placement.obtained["footprint_B"])
    return sum(place.footprint_B for place in placement.rank_places)


def _rank_columns(
    case: Case, counted: Sequence[Placement], counts: Sequence[Mapping[str, float | None]]
) -> dict[str, Any]:
    """Return the columns that tell how the ranks differ; none for a single process.

    `counts` are those of events, by rank; empty if none are counted.
    """
    if ranks().size == 1:
        return {}
    seconds = np.concatenate([p.samples.by_rank for p in counted], axis=1)
    medians = np.median(seconds, axis=1)
    slowest = np.bincount(seconds.argmax(axis=0), minlength=ranks().size)
    rows = [
        {
            "rank": number,
            "host": host,
            "units": place.units,
            "pages": place.pages,
            "time_median_s": float(median),
            "bandwidth_GBps": case.bytes_B * _cases(case) / ranks().size / float(median) / 1e9,
            **({"counts": counts[number]} if counts else {}),
        }
        for number, (host, place, median) in enumerate(
            zip(ranks().hosts, counted[-1].rank_places, medians, strict=True)
        )
    ]
    return {
        "slowest_rank": int(slowest.argmax()),
        # Ranks that take no part in messages, or only answer, do not wait for them.
        "rank_spread": float(medians.max() / medians.min() - 1)
        if not case.spec.messages
        else math.nan,
        "barrier_ns": ranks().barrier_s * 1e9,
        "skewed": bool(
            float(medians.max()) * counted[-1].samples.invocations
            < STARTS_PER_SAMPLE * ranks().barrier_s
        ),
        "rank_rows": json.dumps(rows),
    }


def environment_of_ranks() -> dict[str, Any]:
    """Return the environment of rank 0, with those of other hosts where they differ."""
    own = machine_environment()
    if ranks().size == 1:
        return own
    every = ranks().every(own)
    known = [environment.identity(one) for one in every]
    hosts = ranks().hosts
    return every[0] | {
        "ranks": {
            "library": ranks().library,
            "hosts": dict(zip(hosts, known, strict=True)),
            "environments": {k: e for k, e in zip(known, every, strict=True) if k != known[0]},
        }
    }


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
    for number in range(case.placements):
        if number:
            _memkern.release_memory(LARGE_B)
        run.place()
        if run.interrupted:
            break
    return calibrated(run, environment_of_ranks() if machine is None else machine, extra)


def calibrated(
    run: CaseRun, machine: dict[str, Any], extra: Mapping[str, Any] | None = None
) -> Measurement:
    """Return the record of all placements so far, with the known variances of its class."""
    prior, between_runs = spread(run.class_of(machine))
    measurement = run.measurement(machine, prior=prior, drift=between_runs, extra=extra)
    count(run, measurement)
    return measurement


def _calibrated_spread(name: str) -> calibration.Spread:
    known = calibration.load()
    return known.of(name) if known is not None else (None, None)


def spread(name: str) -> calibration.Spread:
    """Return the variances of a class between placements and between runs, None if unknown."""
    prior, calibrated = _calibrated_spread(name)
    return prior, calibrated and known_drift().variance(name, calibrated)


def count(run: CaseRun, measurement: Measurement) -> None:
    """Let later intervals include what an undisturbed record shows of the variance between runs."""
    record, name = measurement.record, run.class_of(measurement.environment)
    _, calibrated = _calibrated_spread(name)
    if calibrated is not None and not record["disturbed"]:
        identity = f"{record['case_id']} {record['environment_id']}"
        known_drift().add(identity, name, record["time_median_s"], calibrated, time.time())


def to_result_set(done: Sequence[Measurement]) -> ResultSet:
    """Return measurements as one result set, each after its parts."""
    rows = [row for m in done for row in (*m.parts, m)]
    return ResultSet(
        [row.record for row in rows],
        [row.samples for row in rows],
        {row.record["environment_id"]: row.environment for row in rows},
    )
