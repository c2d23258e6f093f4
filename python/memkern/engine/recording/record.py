"""The record of a case: identity, obtained options, samples, rates, traffic and the environment.

A separate step adds the columns of models, such as the roofline.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from memkern import statistics
from memkern.engine.recording.samples import STARTS_PER_SAMPLE, median, names_of
from memkern.engine.recording.taken import Energy, Measurement, Taken
from memkern.host import Host
from memkern.host.distances import Spread
from memkern.machine import environment
from memkern.machine.caches import MEMORY, data_caches, ends, level_of
from memkern.spec.case import Case
from memkern.spec.columns import in_order
from memkern.spec.kernel import Ceilings, Check, Transfer
from memkern.spec.registry import definition_of, find, request_of

LAUNCH, DEVICE_LAUNCH = "launch", "launch on a device"
CEILINGS, DEVICE_CEILINGS = "ceilings", "ceilings of a device"

UNKNOWN: dict[str, Any] = {
    LAUNCH: math.nan,
    DEVICE_LAUNCH: math.nan,
    CEILINGS: Ceilings(math.nan, math.nan, math.nan, math.nan),
    DEVICE_CEILINGS: dict.fromkeys(("read", "copy"), math.nan),
}
"""Values by kind before they are known."""


class Need(NamedTuple):
    """A value by its kind, and the values of options on which it depends."""

    kind: str
    of: tuple[Any, ...]


def needs_of(case: Case, threads: int, invocations: Callable[[], int]) -> list[Need]:
    """Return what the record of a case needs.

    Parameters
    ----------
    case : Case
    threads : int
        Number of its workers.
    invocations : callable
        Returns the invocations of a sample; called only for cases on a GPU.
    """
    knobs, found = case.knobs, []
    if case.bytes_B and knobs.backend.is_accelerator:
        found.append(Need(DEVICE_LAUNCH, (knobs.device, knobs.timer, invocations())))
    if case.bytes_B and knobs.backend.on_processors:
        found.append(Need(LAUNCH, (threads, knobs.pin, knobs.repetition)))
    if case.spec.model.measures_ceilings:
        found.append(Need(CEILINGS, (threads, knobs.pin, knobs.pages)))
    return found


# An invocation shorter than this many empty ones also gets a time without the launch.
_SHORT_LAUNCHES = 10
# Columns of records without an explanation (see `memkern.studies.explain`).
_NOT_EXPLAINED: dict[str, Any] = {"cause": "", "cause_share": math.nan, "explained_by": ""}
# Values of the roofline columns before a roofline is added, or without one.
_NO_ROOFLINE: dict[str, Any] = {
    "machine_file": "",
    "bound": "",
    **dict.fromkeys(
        ("roofline_s", "roofline_GFLOPs", "roofline_fraction", "roofline_min_fraction"), math.nan
    ),
}

Derive = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Returns columns derived from the columns of a record."""


def measurement_of(
    taken: Taken,
    host: Host,
    machine: dict[str, Any],
    derive: Derive | None = None,
    *,
    spread: Spread,
    extra: Mapping[str, Any] | None = None,
) -> Measurement:
    """Return the measurement of a case; for a rotation, with the measurements of its kernels.

    Parameters
    ----------
    taken : Taken
    host : Host
    machine : dict
        The environment.
    derive : callable, optional
        Returns additional columns derived from the columns of a record.
    spread : Spread
        Distances between runs of this case's class.
    extra : mapping, optional
        Further columns of the record.
    """
    case, last = taken.case, taken.placements[-1]
    obtained = last.obtained
    invocations = last.samples.invocations
    as_run = case.with_(variant=obtained["variant"])
    caches = data_caches(machine)
    known = {
        need.kind: host.measured.get(need, UNKNOWN[need.kind])
        for need in needs_of(case, obtained["threads"], lambda: invocations)
    }
    beside = known.pop(CEILINGS, None)
    if beside is not None:
        beside = beside.times(taken.ranks.size)
    launch_s = next(iter(known.values()), math.nan)
    traffic_GBps = statistics.median([p.samples.traffic_GBps for p in taken.counted])
    shortest_s = min(float(s[:, 0].min()) for s in taken.series)
    of_case = {
        **last.check.columns,
        **_ceiling_columns(as_run, last.check, beside, taken, shortest_s),
    }
    of_caches = _cache_columns(taken)
    kernels = obtained["stages"][: last.samples.seconds.shape[1] - 1]
    # Record of all kernels together, if an invocation runs several in turn.
    counted, rank_counts = _counted_columns(taken, host, as_run, caches)

    def row(case: Case, as_run: Case, column: int) -> dict[str, Any]:
        # Kernels that run in turn are launched one by one.
        launches_s = launch_s * (len(kernels) or 1) if column == 0 else launch_s
        times = times_of(taken, column, spread)
        model_B, moved = as_run.bytes_model_B, _transfers(as_run, caches)
        found = {
            **_identity_columns(case, taken, column, machine),
            **of_case,
            **_obtained_columns(case, taken),
            **_sample_columns(taken),
            "doctor": host.health,
            **times,
            **_rates(case, model_B, taken, times, launches_s),
            **of_caches,
            **_traffic_columns(case, traffic_GBps, times["time_median_s"]),
            **{
                f"{level}_{way}_B": taken.cases * moved_B
                for level, transfer in moved.items()
                for way, moved_B in zip(("load", "store"), transfer, strict=True)
            },
            **_conditions(as_run, caches),
            **_rank_columns(case, taken, [] if column else rank_counts),
            **{name: value for name, value in taken.device.items() if name != "platform"},
            **last.samples.device,
            **_energy_columns(case, taken.energy, times["time_median_s"]),
            **(counted if column == 0 else {}),
            **_NOT_EXPLAINED,
            **(extra or {}),
            **(_NO_ROOFLINE if case.knobs.backend.on_processors else {}),
        }
        return in_order({**found, **(derive(found) if derive else {})})

    samples = np.concatenate(taken.series)
    parts = []
    for column, kernel in enumerate(kernels, start=1):
        part, run = (dataclasses.replace(c, spec=find(kernel)) for c in (case, as_run))
        parts.append(Measurement(row(part, run, column), samples[:, column], machine))
    return Measurement(row(case, as_run, 0), samples[:, 0], machine, tuple(parts))


def with_intervals(measurement: Measurement, taken: Taken, spread: Spread) -> Measurement:
    """Return a measurement with intervals from other distances of its class."""
    whole, *parts = (
        dataclasses.replace(one, record={**one.record, **intervals_of(taken, column, spread)})
        for column, one in enumerate((measurement, *measurement.parts))
    )
    return dataclasses.replace(whole, parts=tuple(parts))


def times_of(taken: Taken, column: int, spread: Spread) -> dict[str, Any]:
    """Return the columns on times and their intervals; a disturbed record has no interval.

    Parameters
    ----------
    taken : Taken
    column : int
        0, or the number of a kernel of a rotation, from 1.
    spread : Spread
        As of `measurement_of`.
    """
    series = [seconds[:, column] for seconds in taken.series]
    summary: dict[str, Any] = statistics.summarise(np.concatenate(series))
    medians = taken.medians(column)
    summary["time_median_s"] = statistics.median(medians)
    if taken.disturbed:
        summary |= dict.fromkeys((name for name in summary if name.startswith("within_")), math.nan)
    return {
        **summary,
        **intervals_of(taken, column, spread),
        "placement_sd": float(np.std(np.log(medians), ddof=1)) if len(medians) > 1 else math.nan,
    }


def intervals_of(taken: Taken, column: int, spread: Spread) -> dict[str, Any]:
    """Return the columns of the intervals for the next run (see `times_of`)."""
    values = {
        "time_min_ci": (min(seconds[:, column].min() for seconds in taken.series), spread.floor),
        "time_ci": (statistics.median(taken.medians(column)), spread.median),
    }
    found = {
        name: statistics.next_run_interval(
            float(value), math.nan if taken.disturbed else distances.within()
        )
        for name, (value, distances) in values.items()
    }
    relative = found["time_min_ci"].relative_half_width
    return {
        "stop": _stop(taken, relative),
        **{f"{name}_low_s": interval.low for name, interval in found.items()},
        **{f"{name}_high_s": interval.high for name, interval in found.items()},
        "time_min_ci_relative": relative,
        "ci_relative": found["time_ci"].relative_half_width,
        "ci_level": math.nan if taken.disturbed else found["time_ci"].level,
        "ci_scope": "none" if taken.disturbed else "next run",
    }


# Computing it takes a twentieth of a small case.
_known_identity: tuple[dict[str, Any], str] = ({}, "")


def _identity(machine: dict[str, Any]) -> str:
    """Return the identity of an environment, which all records of a sweep share."""
    global _known_identity
    known, identity = _known_identity
    if machine is not known:
        identity = environment.identity(machine)
        _known_identity = machine, identity
    return identity


def _identity_columns(
    case: Case, taken: Taken, column: int, machine: dict[str, Any]
) -> dict[str, Any]:
    """Return the columns that identify the case, the machine and the time."""
    threads, size = taken.placements[-1].obtained["threads"], taken.ranks.size
    platform = taken.device.get("platform") or environment.platform_label(machine, threads)
    which, derived = case.input_columns, case.spec.derived_columns
    return {
        "case_id": f"{taken.case_id}-{case.spec.name}" if column else taken.case_id,
        "repeat": taken.repeat,
        "environment_id": _identity(machine),
        "platform": platform + f" a rank, {size} ranks" * (size > 1),
        "started": taken.started,
        "kernel": case.spec.kernel,
        "definition": definition_of(case.spec),
        "name": case.labels.get("name", ""),
        "suite": case.labels.get("suite", ""),
        "request": "" if case.request is None else json.dumps(request_of(case)),
        **which,
        "case_columns": " ".join(which),
        **(derived(case) if derived else {}),
    }


def _obtained_columns(case: Case, taken: Taken) -> dict[str, Any]:
    """Return the columns of requested and obtained options."""
    placement, ranks = taken.placements[-1], taken.ranks
    knobs, obtained = case.knobs, placement.obtained
    threads, on_processors = obtained["threads"], knobs.backend.on_processors
    return {
        "backend": knobs.backend.name,
        "dtype": case.dtype,
        "index_dtype": case.index_dtype,
        **knobs.columns,
        **{name: obtained[name] for name in ("threads", "variant", "isa", "pin", "pages")},
        **({"working_threads": case.working_threads(threads)} if on_processors else {}),
        "memory_line_B": case.line_B,
        "block_threads": obtained["block_threads"],
        "variant_choice": placement.choice.how,
        "variant_loss": placement.choice.loss,
        "budget_s": case.stop.most_s,
        "comm": ranks.comm,
        "ranks": ranks.size,
        "ranks_per_node": ranks.per_node,
        "hosts": ",".join(dict.fromkeys(ranks.hosts)) if ranks.names_hosts else "",
        "comm_library": ranks.library,
        "comm_threads": ranks.thread_level,
        "comm_transport": ranks.transport,
        "oversubscribed": any(position.oversubscribed for position in placement.rank_placements),
        "rotation": bool(obtained["stages"]),
    }


def _cache_columns(taken: Taken) -> dict[str, Any]:
    """Return the columns of a case's size and of the processor's last-level caches."""
    if not taken.case.knobs.backend.on_processors or taken.ranks.size > 1:
        return {}
    size_B, known = taken.footprint_B, taken.capacity
    return {
        "caches_multiple": size_B / known.largest_B if known.largest_B else math.nan,
        "system_caches_multiple": size_B / known.system_B if known.system_B else math.nan,
        "caches_grown": known.has_grown(size_B),
    }


def _sample_columns(taken: Taken) -> dict[str, Any]:
    """Return the columns on sampling and disturbances."""
    every, counted = taken.placements, taken.counted
    checks = [p.check for p in every]
    return {
        "samples": sum(map(len, taken.series)),
        "invocations": every[-1].samples.invocations,
        "placements": len(counted),
        "placements_requested": taken.case.placements,
        "samples_disturbed": sum(p.samples.rejected for p in every),
        "disturbed": taken.disturbed,
        "state": "disturbed" if taken.disturbed else "quiet" if taken.quiet else "shared",
        "shared_with": names_of(taken.others),
        "states": json.dumps(found) if (found := taken.states) else "",
        "cpu_share": fmean(p.samples.cpu_share for p in every),
        "waited_share": fmean(p.samples.waited_share for p in every),
        "throttled_share": fmean(p.samples.throttled_share for p in every),
        "absent_share": fmean(p.samples.absent_share for p in every),
        "core_share": taken.core_share,
        "exchange_ns": taken.exchange_s * 1e9,
        **{name: sum(p.memory[name] for p in every) for name in ("memory_errors", "moved_pages")},
        "misplaced_share": max(p.memory["misplaced_share"] for p in every),
        "clock_GHz": median(np.array([p.samples.clock_Hz for p in counted])) / 1e9,
        "valid": all(check.valid for check in checks),
        "error_max": max(check.error_max for check in checks),
        "validation": checks[-1].how,
        "wall_s": sum(p.wall_s for p in every),
    }


# For several placements, the first of these reasons that occurs is recorded.
_STOPS = ("interrupted", "budget", "samples", "ci", "runs")


def _stop(taken: Taken, relative: float) -> str:
    """Return why sampling ended; `relative` is half the interval of the shortest time."""
    stop = min((p.samples.stop for p in taken.placements), key=_STOPS.index)
    precision = taken.case.stop.precision
    if precision is None or stop == "interrupted":
        return stop
    return "precision" if relative <= precision else "budget"


def _rates(
    case: Case, model_B: float, taken: Taken, times: Mapping[str, float], launch_s: float
) -> dict[str, Any]:
    """Return the columns on bytes and rates."""
    placement, several = taken.placements[-1], taken.cases
    obtained = placement.obtained
    shortest, median = times["time_min_s"], times["time_median_s"]
    iterations = several * case.iterations
    elements = iterations * case.spec.counts.width(case)
    vectors = elements * case.value_B / (obtained["vector_B"] or math.nan)
    cycles = shortest * placement.samples.clock_Hz * obtained["threads"] * several
    access_s = median / case.spec.counts.accesses(case) if case.spec.counts.accesses else math.nan
    # Several launches on a GPU overlap with the kernels that they start.
    overlap = case.knobs.backend.is_accelerator and placement.samples.invocations > 1
    short = shortest < _SHORT_LAUNCHES * launch_s and not overlap
    messages = case.spec.counts.messages
    amos = case.spec.counts.amos * placement.check.columns.get("attempts_per_amo", 1.0)
    return {
        "launch_s": launch_s,
        "time_net_s": shortest - launch_s if short and shortest > launch_s else math.nan,
        "bytes_B": several * case.bytes_B,
        "bytes_index_B": several * case.bytes_index_B,
        "bytes_model_B": several * float(model_B),
        "footprint_B": taken.footprint_B,
        "bandwidth_GBps": several * case.bytes_B / shortest / 1e9,
        "bandwidth_median_GBps": several * case.bytes_B / median / 1e9,
        "rate_GAMS": iterations / shortest / 1e9 * amos or math.nan,
        "performance_GFLOPs": elements / shortest / 1e9 * case.spec.counts.flops or math.nan,
        "performance_median_GFLOPs": elements / median / 1e9 * case.spec.counts.flops or math.nan,
        "cycles_per_vector": cycles / vectors if case.spec.counts.elementwise else math.nan,
        "ns_per_access": access_s * 1e9,
        "cycles_per_access": access_s * placement.samples.clock_Hz,
        **({"messages_per_second": iterations / shortest * messages} if messages else {}),
    }


def _traffic_columns(case: Case, traffic_GBps: float, median_s: float) -> dict[str, float]:
    """Return the columns of background traffic; none for kernels without any."""
    if math.isnan(traffic_GBps) or case.spec.counts.accesses is None:
        return {}
    return {
        "traffic_per_access_B": traffic_GBps * 1e9 * median_s / case.spec.counts.accesses(case),
        "traffic_GBps": traffic_GBps,
    }


def _transfers(as_run: Case, caches: Sequence[Mapping[str, Any]]) -> dict[str, Transfer]:
    """Return the data that an invocation moves across the boundary in front of each level.

    There are none for kernels whose time is the latency of dependent accesses.
    """
    spec = as_run.spec
    names = [*dict.fromkeys(f"L{cache['level']}" for cache in caches), MEMORY]
    if (
        not as_run.knobs.backend.on_processors
        or spec.counts.accesses
        or spec.counts.amos
        or len(names) == 1
        or not as_run.traffic.view(index=True, write_allocate=True)
    ):
        return {}
    return {
        level: Transfer(*(as_run.iterations * moved_B for moved_B in transfer))
        for level, transfer in as_run.transfers(names, caches).items()
    }


def _counted_columns(
    taken: Taken, host: Host, as_run: Case, caches: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[dict[str, float | None]]]:
    """Return the columns on counted events, and the counts of each rank."""
    last = taken.placements[-1]
    if last.counting is None:
        return {}, []
    from memkern.engine.recording import counting

    counts = [p.samples.counts for p in taken.counted]
    held_B = ends(caches, last.obtained["threads"])
    level = MEMORY if as_run.knobs.flush else level_of(last.obtained["footprint_B"], held_B)
    columns = counting.columns(
        as_run,
        last.counting,
        counts,
        last.samples.invocations,
        _transfers(as_run, caches),
        level,
        host.counters,
        taken.cases,
    )
    return columns, counting.by_rank(last.counting, counts, last.samples.invocations)


def _conditions(as_run: Case, caches: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the column of the layer conditions that hold, for kernels that have any."""
    if as_run.spec.model.conditions is None or not as_run.knobs.backend.on_processors:
        return {}
    held = as_run.spec.model.conditions(as_run, caches)
    return {"conditions": ", ".join(f"{cache} {name}" for cache, name in held.items())}


def _ceiling_columns(
    as_run: Case, check: Check, beside: Ceilings | None, taken: Taken, seconds: float
) -> dict[str, float]:
    """Return the columns of bandwidths for comparison, and the columns derived from them."""
    if beside is None:
        return {}
    columns = dataclasses.asdict(beside)
    if as_run.spec.model.implied_columns is None:
        return columns
    # Each rank has a case, or all ranks have one case together.
    own = beside.times(1 / taken.cases)
    return columns | as_run.spec.model.implied_columns(as_run, check.columns, own, seconds)


def _rank_columns(
    case: Case, taken: Taken, counts: Sequence[Mapping[str, float | None]]
) -> dict[str, Any]:
    """Return the columns on differences between the ranks; none for a single process.

    `counts` are the counts of events, by rank; empty if none are counted.
    """
    ranks, counted = taken.ranks, taken.counted
    if ranks.size == 1:
        return {}
    seconds = np.concatenate([p.samples.by_rank for p in counted], axis=1)
    medians = np.median(seconds, axis=1)
    moved_B = case.bytes_B * taken.cases / ranks.size
    rows = [
        {
            "rank": number,
            "host": host,
            "units": position.units,
            "pages": position.pages,
            "time_median_s": float(median),
            "bandwidth_GBps": moved_B / float(median) / 1e9,
            **({"counts": counts[number]} if counts else {}),
        }
        for number, (host, position, median) in enumerate(
            zip(ranks.hosts, counted[-1].rank_placements, medians, strict=True)
        )
    ]
    return {
        "slowest_rank": int(np.bincount(seconds.argmax(axis=0), minlength=ranks.size).argmax()),
        # Ranks that take no part in messages, or only answer, do not wait for them.
        "rank_spread": float(medians.max() / medians.min() - 1)
        if not case.spec.counts.messages
        else math.nan,
        "barrier_ns": ranks.barrier_s * 1e9,
        "skewed": bool(
            float(medians.max()) * counted[-1].samples.invocations
            < STARTS_PER_SAMPLE * ranks.barrier_s
        ),
        "rank_rows": json.dumps(rows),
    }


def _energy_columns(case: Case, found: Energy, median_s: float) -> dict[str, Any]:
    """Return the columns of a record on energy: the power times the median time.

    Parameters
    ----------
    case : Case
    found : Energy
        Energy of the case, or of the case whose invocations include it.
    median_s : float
        Median time of an invocation.
    """
    if found.note:
        return {"energy_note": found.note}
    energy_J = found.power_W * median_s
    flops = case.iterations * case.spec.counts.width(case) * case.spec.counts.flops
    by_meter = {
        # JSON has no NaN.
        name: None if math.isnan(watts) else watts * median_s
        for name, watts in found.powers_W.items()
    }
    return {
        "power_W": found.power_W,
        "idle_power_W": found.idle_W,
        "energy_J": energy_J,
        "energy_delay_Js": energy_J * median_s,
        "energy_per_byte_pJ": 1e12 * energy_J / case.bytes_B if case.bytes_B else math.nan,
        "energy_per_flop_pJ": 1e12 * energy_J / flops if flops else math.nan,
        "energy_meters": json.dumps(by_meter),
        "energy_note": "",
    }
