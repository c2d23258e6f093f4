"""Launch times and memory bandwidths with which results are compared.

They are measured once in a process. If samples were disturbed they are NaN, and later calls measure
them again, in a small share of the time.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from memkern.engine import calibration
from memkern.engine.communication import ranks
from memkern.engine.cores import modes_beside
from memkern.engine.prepared import Prepared
from memkern.engine.preparing import prepare
from memkern.engine.process import exclusive
from memkern.engine.sampling import take_samples
from memkern.engine.states import main_mode, shares_of
from memkern.limits import memory_left
from memkern.machine import gpu
from memkern.machine.caches import MEMORY
from memkern.machine.capacity import grown
from memkern.machine.topology import last_level_cache_B
from memkern.spec.kernel import Ceilings, Transfer
from memkern.spec.registry import case

_LEVELS = ("L1", MEMORY)
_P = ParamSpec("_P")
_T = TypeVar("_T")
# Share of the time that is spent on repeating disturbed measurements.
_AGAIN_SHARE = 0.05
# Data in memory are at least this multiple of the caches.
_LEAST_MULTIPLE = 1.5
# Least size of data in memory where the sizes of caches are unknown.
_UNKNOWN_CACHES_B = 2**25
_kept: list[dict[Any, Any]] = []


class _DisturbedError(Exception):
    """Too few samples were undisturbed."""


def _kept_if_undisturbed(unknown: _T) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Keep a function's results for the process; return `unknown` where samples were disturbed.

    It is also returned if a process can't run the case.

    A call repeats a disturbed measurement after twenty times the duration of the measurement.
    """

    def decorate(measured: Callable[_P, _T]) -> Callable[_P, _T]:
        kept: dict[Any, _T] = {}
        again_s: dict[Any, float] = {}
        _kept.extend((kept, again_s))

        @functools.wraps(measured)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            which = (args, tuple(sorted(kwargs.items())))
            if which in kept:
                return kept[which]
            begin = time.perf_counter()
            # Ranks measure together.
            if not ranks().agreed(begin >= again_s.get(which, -math.inf)):
                return unknown
            try:
                kept[which] = measured(*args, **kwargs)
            except (_DisturbedError, ValueError, MemoryError) as error:
                # A case that was measured with these options may have lost its units since.
                if ranks().size > 1 and not isinstance(error, _DisturbedError):
                    raise
                again_s[which] = begin + (time.perf_counter() - begin) * (1 + 1 / _AGAIN_SHARE)
                return unknown
            return kept[which]

        return call

    return decorate


def forget() -> None:
    """Discard all results, so that they are measured again."""
    for each in _kept:
        each.clear()


def _seconds(prepared: Prepared) -> npt.NDArray[np.float64]:
    """Return the seconds of a case's invocations in the state in which most samples were taken.

    Raises
    ------
    _DisturbedError
    """
    samples = take_samples(prepared)
    if samples.disturbed:
        raise _DisturbedError
    modes = modes_beside(prepared.native.obtained())
    labels = samples.labels(modes)
    state = main_mode(shares_of(labels, modes), len(labels))
    return samples.seconds[labels == state if state is not None else slice(None), 0]


@_kept_if_undisturbed(math.nan)
def launch_cost_s(threads: int, pin: str, repetition: str) -> float:
    """Shortest time of an empty invocation, in seconds (kernel ``launch.empty``)."""
    # On a quiet machine the samples take a fraction of this time. Disturbed samples must not take
    # long, since every record contains this cost.
    empty = case(
        "launch.empty", threads=threads, pin=pin, repetition=repetition, runs=300, budget_s=0.1
    )
    return float(_seconds(prepare(empty)).min())


@_kept_if_undisturbed(math.nan)
def device_launch_cost_s(device: str, timer: str, invocations: int = 0) -> float:
    """Shortest time of an empty kernel on a device, in seconds; by default 20 launches a sample."""
    empty = case("launch.empty", runs=50, device=device, timer=timer, invocations=invocations)
    return float(_seconds(prepare(empty)).min())


@_kept_if_undisturbed(Ceilings(math.nan, math.nan, math.nan, math.nan))
def ceilings_GBps(threads: int, pin: str, pages: str) -> Ceilings:
    """Return the memory bandwidths of loads, of a triad and of stores, by the shortest times.

    They are the largest values since the system was booted, since a value measured while others use
    the memory is no limit. The bandwidth of stores is chosen so that the triad takes as long as its
    loads and stores one after the other. All are NaN if the memory is too small for data beyond the
    caches, or if the caches now hold most of the data.
    """
    cache_B = last_level_cache_B() or _UNKNOWN_CACHES_B
    multiple = min(4.0, memory_left()[0] / 3 / cache_B)  # data of the loads over the caches
    if multiple < _LEAST_MULTIPLE or grown(multiple * cache_B):
        return Ceilings(math.nan, math.nan, math.nan, math.nan)
    knobs: dict[str, Any] = {"threads": threads, "pin": pin, "pages": pages}
    knobs |= {"budget_s": 0.5, "placements": 1}
    cases = {
        "load": case("loops.load", footprint_B=multiple * cache_B, **knobs),
        "triad": case("stream.triad", footprint_B=1.5 * multiple * cache_B, **knobs),
    }
    rates = {}
    for name, one in cases.items():
        prepared = prepare(one)
        rates[name] = one.bytes_B / float(_seconds(prepared).min()) / 1e9
    # Ranks of a host share its memory.
    best = calibration.best_rates(f"{threads} {pin} {pages} {ranks().size}", rates)
    # The last one is the triad.
    triad = one.with_(variant=prepared.native.obtained()["variant"])
    moved = Transfer(*(triad.iterations * each for each in triad.transfers(_LEVELS)[MEMORY]))
    store = moved.stores_GBps(best["load"], triad.bytes_B / best["triad"] / 1e9)
    return Ceilings(best["load"], best["triad"], store, rates["load"] / best["load"])


def copy_GBps(device: str) -> float:
    """Return `gpu.copy_GBps`, NaN if the device has too little free memory for its buffers.

    No other thread measures at the same time.
    """
    try:
        with exclusive():
            return gpu.copy_GBps(device)
    except MemoryError:
        return math.nan


@_kept_if_undisturbed(dict.fromkeys(("read", "copy"), math.nan))
def device_ceilings_GBps(device: str) -> dict[str, float]:
    """Return the best medians of memkern's read and copy on a GPU, over variants and unrolling.

    Keys ``read`` and ``copy`` (read plus written); arrays of eight times the L2 cache.
    """
    # Times of events exclude the launch and the wait for the end.
    knobs: dict[str, Any] = {"device": device, "runs": 5, "invocations": 4, "timer": "events"}
    best = {"read": 0.0, "copy": 0.0}
    footprint_B = 8 * gpu.describe(device)["l2_B"]
    for name, kernel in (("read", "loops.load"), ("copy", "loops.copy")):
        for unroll in (0, 4, 8):
            one = case(kernel, footprint_B=footprint_B, unroll=unroll, **knobs)
            median_s = float(np.median(_seconds(prepare(one))))
            best[name] = max(best[name], one.bytes_B / median_s / 1e9)
    return best
