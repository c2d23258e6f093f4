"""Launch times and memory bandwidths with which results are compared.

They are measured before the first sample of a case, once in a process for all cases that need the
same. If samples were disturbed they are unknown, and later cases measure them again, in a small
share of the time.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from memkern.engine.placing.preparing import ready
from memkern.engine.processes.communication import exclusive, ranks
from memkern.engine.recording.record import (
    CEILINGS,
    DEVICE_CEILINGS,
    DEVICE_LAUNCH,
    LAUNCH,
    UNKNOWN,
    Need,
    needs_of,
)
from memkern.engine.recording.samples import Floats
from memkern.engine.sampling.prepared import Prepared
from memkern.engine.sampling.series import take_samples
from memkern.host import Host, this_host
from memkern.host.capacity import capacity, refresh
from memkern.host.rates import main_mode, shares_of
from memkern.limits import memory_left
from memkern.machine import gpu
from memkern.machine.caches import MEMORY
from memkern.spec.kernel import Ceilings, Transfer
from memkern.spec.registry import case

EXPECTED_S = {LAUNCH: 0.02, DEVICE_LAUNCH: 0.02, CEILINGS: 1.5, DEVICE_CEILINGS: 1.0}
"""Seconds that the values that records need take usually, by kind."""

_LEVELS = ("L1", MEMORY)
# Share of the time that is spent on repeating disturbed measurements.
_AGAIN_SHARE = 0.05
# Data in memory are at least this multiple of the caches.
_LEAST_MULTIPLE = 1.5
# Least size of data in memory where the sizes of caches are unknown.
_UNKNOWN_CACHES_B = 2**25


class _DisturbedError(Exception):
    """Too few samples were undisturbed."""


def ensure(prepared: Prepared) -> None:
    """Measure what the record of a prepared case needs, and is not known yet."""
    case, obtained = prepared.case, prepared.native.obtained()
    if case.knobs.backend.on_processors and ranks().size == 1:
        refresh(obtained["footprint_B"], prepared.host)
    for need in needs_of(case, obtained["threads"], lambda: prepared.invocations):
        found = measured(need, prepared.host)
        if need.kind == CEILINGS and math.isnan(found.load_GBps):
            warnings.warn(
                "records have no roofline, because measurements of the bandwidths of memory were "
                "disturbed or memory is too small for data beyond the caches: give --machine a "
                "file that was measured in better conditions",
                stacklevel=2,
            )


def measured(need: Need, host: Host | None = None) -> Any:
    """Return what a record needs; unknown if samples were disturbed or a case can't run.

    A call repeats a disturbed measurement after twenty times the duration of the measurement.
    """
    host = host or this_host()
    if need in host.measured:
        return host.measured[need]
    begin = time.perf_counter()
    # Ranks measure together.
    if not ranks().agreed(begin >= host.again_s.get(need, -math.inf)):
        return UNKNOWN[need.kind]
    try:
        host.measured[need] = _MEASURES[need.kind](host, *need.of)
    except (_DisturbedError, ValueError, MemoryError) as error:
        # A case that was measured with these options may have lost its units since.
        if ranks().size > 1 and not isinstance(error, _DisturbedError):
            raise
        host.again_s[need] = begin + (time.perf_counter() - begin) * (1 + 1 / _AGAIN_SHARE)
    return host.measured.get(need, UNKNOWN[need.kind])


def launch_cost_s(threads: int, pin: str, repetition: str) -> float:
    """Return the shortest time of an empty invocation, in seconds (kernel ``launch.empty``)."""
    return float(measured(Need(LAUNCH, (threads, pin, repetition))))


def device_launch_cost_s(device: str, timer: str, invocations: int = 0) -> float:
    """Return the shortest time of an empty kernel on a device; by default 20 launches a sample."""
    return float(measured(Need(DEVICE_LAUNCH, (device, timer, invocations))))


def copy_GBps(device: str) -> float:
    """Return `gpu.copy_GBps`, NaN if the device has too little free memory for its buffers.

    No other thread measures at the same time.
    """
    try:
        with exclusive():
            return gpu.copy_GBps(device)
    except MemoryError:
        return math.nan


def device_columns(device: str, host: Host) -> dict[str, float]:
    """Return the columns of a GPU's bandwidths; NaN where the GPU has too little memory."""
    best = measured(Need(DEVICE_CEILINGS, (device,)), host)
    return {
        "gpu_peak_GBps": float(gpu.facts(device)["peak_GBps"]),
        "gpu_copy_GBps": copy_GBps(device),
        "gpu_best_copy_GBps": best["copy"],
        "gpu_best_read_GBps": best["read"],
    }


def _seconds(prepared: Prepared) -> Floats:
    """Return the seconds of a case's invocations in the state in which most samples were taken.

    Raises
    ------
    _DisturbedError
    """
    samples = take_samples(prepared)
    if samples.disturbed:
        raise _DisturbedError
    modes = prepared.host.cores.modes(samples.exchanging)
    labels = samples.labels(modes)
    state = main_mode(shares_of(labels, modes), len(labels))
    return samples.seconds[labels == state if state is not None else slice(None), 0]


def _empty_s(host: Host, **how: Any) -> float:
    """Return the shortest time of an empty invocation."""
    return float(_seconds(ready(case("launch.empty", **how), host=host)).min())


def _ceilings(host: Host, threads: int, pin: str, pages: str) -> Ceilings:
    """Return the memory bandwidths of loads, of a triad and of stores, by the shortest times.

    They are the largest values since the system was booted, since a value measured while others use
    the memory is no limit. The bandwidth of stores is chosen so that the triad takes as long as its
    loads and stores one after the other. All are NaN if the memory is too small for data beyond the
    caches, or if the caches now hold most of the data.
    """
    cache_B = capacity(host).sized_B or _UNKNOWN_CACHES_B
    multiple = min(4.0, memory_left()[0] / 3 / cache_B)  # data of the loads over the caches
    refresh(multiple * cache_B, host)
    if multiple < _LEAST_MULTIPLE or capacity(host).has_grown(multiple * cache_B):
        return Ceilings(math.nan, math.nan, math.nan, math.nan)
    knobs: dict[str, Any] = {"threads": threads, "pin": pin, "pages": pages, "placements": 1}
    cases = {
        "load": case("loops.load", footprint_B=multiple * cache_B, budget_s=0.5, **knobs),
        "triad": case("stream.triad", footprint_B=1.5 * multiple * cache_B, budget_s=0.5, **knobs),
    }
    rates = {}
    for name, one in cases.items():
        prepared = ready(one, host=host)
        rates[name] = one.bytes_B / float(_seconds(prepared).min()) / 1e9
    # Ranks of a host share its memory.
    best = host.best_rates(f"{threads} {pin} {pages} {ranks().size}", rates)
    # The last one is the triad.
    triad = one.with_(variant=prepared.native.obtained()["variant"])
    moved = Transfer(*(triad.iterations * each for each in triad.transfers(_LEVELS)[MEMORY]))
    store = moved.stores_GBps(best["load"], triad.bytes_B / best["triad"] / 1e9)
    return Ceilings(best["load"], best["triad"], store, rates["load"] / best["load"])


def _device_ceilings(host: Host, device: str) -> dict[str, float]:
    """Return the best medians of memkern's read and copy on a GPU, over variants and unrolling.

    Keys ``read`` and ``copy`` (read plus written); arrays of eight times the L2 cache.
    """
    # Times of events exclude the launch and the wait for the end.
    knobs: dict[str, Any] = {"device": device, "runs": 5, "invocations": 4, "timer": "events"}
    footprint_B = 8 * gpu.facts(device)["l2_B"]

    def median_GBps(kernel: str, unroll: int) -> float:
        one = case(kernel, footprint_B=footprint_B, unroll=unroll, **knobs)
        return one.bytes_B / float(np.median(_seconds(ready(one, host=host)))) / 1e9

    return {
        name: max(median_GBps(kernel, unroll) for unroll in (0, 4, 8))
        for name, kernel in (("read", "loops.load"), ("copy", "loops.copy"))
    }


_MEASURES: dict[str, Callable[..., Any]] = {
    # On a quiet machine the samples take a fraction of this time. Disturbed samples must not take
    # long, since every record contains this cost.
    LAUNCH: lambda host, threads, pin, repetition: _empty_s(
        host, runs=300, budget_s=0.1, threads=threads, pin=pin, repetition=repetition
    ),
    DEVICE_LAUNCH: lambda host, device, timer, invocations: _empty_s(
        host, runs=50, device=device, timer=timer, invocations=invocations
    ),
    CEILINGS: _ceilings,
    DEVICE_CEILINGS: _device_ceilings,
}
