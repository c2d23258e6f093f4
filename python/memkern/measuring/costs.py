"""Costs and limits that results are compared with: launch times and memory bandwidths."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from memkern.machine import gpu
from memkern.machine.topology import last_level_cache_B
from memkern.measuring.prepared import prepare
from memkern.models.ecm import MEMORY
from memkern.models.roofline import stores_GBps
from memkern.spec.kernel import Transfer
from memkern.spec.registry import case

_LEVELS = ("L1", MEMORY)


@functools.cache
def launch_cost_s(threads: int, pin: str, repetition: str) -> float:
    """Shortest time of an empty invocation, in seconds (kernel ``launch.empty``)."""
    prepared = prepare(
        case("launch.empty", threads=threads, pin=pin, repetition=repetition, runs=300)
    )
    return float(prepared.sample().seconds.min())


@functools.cache
def device_launch_cost_s(device: str, timer: str, invocations: int = 0) -> float:
    """Shortest time of an empty kernel on a device, in seconds; by default 20 launches a sample."""
    empty = case("launch.empty", runs=50, device=device, timer=timer, invocations=invocations)
    prepared = prepare(empty)
    prepared.warm_up()
    return float(prepared.sample().seconds.min())


@functools.cache
def ceilings_GBps(threads: int, pin: str, pages: str) -> dict[str, float]:
    """Return the memory bandwidths of loads, of a triad and of stores: medians of best variants.

    That of stores is such that the triad takes as long as its loads and stores one after the other.
    """
    cache_B = last_level_cache_B()
    knobs: dict[str, Any] = {"threads": threads, "pin": pin, "pages": pages}
    knobs |= {"budget_s": 0.5, "placements": 1}
    cases = {
        "load": case("loops.load", footprint_B=4 * cache_B, **knobs),
        "triad": case("stream.triad", footprint_B=6 * cache_B, **knobs),
    }
    rates = {}
    for name, one in cases.items():
        prepared = prepare(one)
        median_s = float(np.median(prepared.sample().seconds[:, 0]))
        rates[name] = one.bytes_B / median_s / 1e9
    # The last one is the triad.
    triad = one.with_(variant=prepared.native.obtained()["variant"])
    moved = Transfer(*(triad.iterations * each for each in triad.transfers(_LEVELS)[MEMORY]))
    return {**rates, "store": stores_GBps(rates["load"], moved, median_s)}


@functools.cache
def device_ceilings_GBps(device: str) -> dict[str, float]:
    """Return the best medians of our own read and copy on a GPU, over variants and unrolling.

    Keys ``read`` and ``copy`` (read plus written); arrays of eight times the L2 cache.
    """
    knobs: dict[str, Any] = {"device": device, "runs": 5, "invocations": 4}
    best = {"read": 0.0, "copy": 0.0}
    footprint_B = 8 * gpu.describe(device)["l2_B"]
    for name, kernel in (("read", "loops.load"), ("copy", "loops.copy")):
        for unroll in (0, 4, 8):
            one = case(kernel, footprint_B=footprint_B, unroll=unroll, **knobs)
            prepared = prepare(one)
            prepared.warm_up()
            median_s = float(np.median(prepared.sample().seconds[:, 0]))
            best[name] = max(best[name], one.bytes_B / median_s / 1e9)
    return best
