"""Effective capacity of the last-level caches for this machine, from the times of loads.

A virtual machine may get only a part of the caches that it reports, and this part may change. Sizes
of data in memory follow the largest known part when the first of them is chosen, so that cases stay
the same until the next boot.

The lines of the loads are random and independent, so that the hit rate of a cache is the share of
the lines that it holds, for any replacement policy. For the time t(S) of a load from a buffer of
size S, the slope of S t(S) is the latency of the cache while it holds the buffer, and the latency
of memory beyond.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memkern import launcher, small
from memkern.extension import _memkern
from memkern.limits import UNLIMITED_B, memory_left
from memkern.machine import caches, state
from memkern.machine.environment import now

__all__ = ["Capacity", "capacity", "grown", "held_B", "measure", "save"]

_MOST_S = 3.0
# Least ratio of the latencies of memory and of the cache before it.
_RISE = 1.75
# Least time of loads beyond the cache, as a share of the latency of memory.
_NEAR = 0.6
# A measured size within this factor of the reported size counts as the reported size.
_WHOLE = 0.8
# Largest ratio of two neighbouring increments of a plateau, where the latency of memory is unknown.
_FLAT = 1.25
# Least size of loads where no cache is reported.
_FIRST_B = 2**13
# Share of the remaining memory for the loads.
_LEFT_SHARE = 4
# Capacity beyond which loads are tried where the remaining memory is unknown.
_UNKNOWN_B = 2**26
# Seconds after which the capacity is measured again.
_AGAIN_S = 60.0


class Capacity(NamedTuple):
    """Bytes of all last-level caches.

    Attributes
    ----------
    sized_B : int
        Capacity from which sizes are chosen: a power of two, which does not change until the next
        boot.
    largest_B : int
        Largest capacity that was measured since the boot.
    system_B : int
        Size that the system reports.
    """

    sized_B: int
    largest_B: int
    system_B: int


def capacity() -> Capacity:
    """Return the capacity of the last-level caches; zeros if unknown.

    It is measured at its first use after the boot. Ranks of a launcher, which must choose the same
    sizes, and small cases use the reported size.
    """
    system = caches.reported()
    system_B = _system_B(system)
    if small.wanted() or launcher.size() > 1:
        return Capacity(_power_of_two(system_B), system_B, system_B)
    return _known(system) or _found(system, _measured(json.dumps(system)))


def held_B(
    sizes_B: Sequence[int], seconds: Sequence[float], memory_s: float, reported_B: int
) -> int | None:
    """Return the capacity of a cache, from the times of loads from buffers of some sizes.

    Parameters
    ----------
    sizes_B : sequence of int
        Bytes, in increasing order, the first one within the cache before it.
    seconds : sequence of float
        Seconds of a load from a random line, for the first of these sizes.
    memory_s : float
        Seconds of a load from memory, NaN where it is unknown: memory then begins where the times
        of two neighbouring sizes rise alike.
    reported_B : int
        Bytes of the cache by the system, which are returned if the difference is small.

    Returns
    -------
    int or None
        Bytes; None where the times show no end of a cache.
    """
    sizes = np.asarray(sizes_B[: len(seconds)], dtype=np.float64)
    if len(sizes) < 3:
        return None
    increments = np.diff(sizes * np.asarray(seconds)) / np.diff(sizes)
    least, beyond = float(increments.min()), float(increments[-1])
    # Without times near the latency of memory, the end may belong to a smaller cache.
    flat = beyond <= _FLAT * increments[-2]
    reached = flat if math.isnan(memory_s) else beyond >= _NEAR * memory_s
    if not (reached and beyond >= caches.LEAST_MEMORY_S and 0 < _RISE * least <= beyond):
        return None
    # The capacity lies in the last increment with mostly the cache's latency, or in the next one.
    last = int(np.flatnonzero(increments < (least + beyond) / 2)[-1])
    within = float(increments[max(last - 1, 0)])
    parts = np.clip((beyond - increments[last : last + 2]) / (beyond - within), 0, 1)
    size_B = float(sizes[last] + parts @ np.diff(sizes)[last : last + 2])
    if _WHOLE * reported_B <= size_B <= reported_B / _WHOLE:
        size_B = reported_B
    return int(size_B)


def grown(footprint_B: float) -> bool:
    """Return whether caches hold more than half of a case that was large enough for memory.

    If the system reports larger caches, or smaller ones than were found, the capacity is measured
    again from time to time.
    """
    known, system = capacity(), caches.reported()
    most_B = 2 * known.system_B if known.largest_B <= known.system_B else math.inf
    if not 2 * known.sized_B <= footprint_B < most_B:
        return False
    with contextlib.suppress(OSError):
        if time.time() - caches.path().stat().st_mtime > _AGAIN_S:
            _found(system, measure(system, tries=1), again=True)
    return footprint_B < 2 * capacity().largest_B


def save(sizes_B: Mapping[str, float], system: Sequence[Mapping[str, Any]]) -> bool:
    """Store the measured sizes of caches; return whether there are any and they could be stored.

    Parameters
    ----------
    sizes_B : mapping of str to float
        Bytes of an instance of each measured cache, by its name, such as ``L3``.
    system : sequence of mapping
        The caches by the system, as in an environment: the sizes are used only with these caches.
    """
    if small.wanted() or not sizes_B:
        return False
    return _found(system, sizes_B) == _known(system)


def _system_B(system: Sequence[Mapping[str, Any]]) -> int:
    """Return the bytes of all last-level caches by the system."""
    return caches.last_level_B(caches.in_environment(system, {}))


def _power_of_two(size_B: int) -> int:
    """Return the next power of two, 0 of 0."""
    return 1 << (size_B - 1).bit_length() if size_B else 0


def _known(system: Sequence[Mapping[str, Any]]) -> Capacity | None:
    """Return the capacity that was stored since the boot."""
    path = caches.path()
    try:
        found = path.stat()
    except OSError:
        return None
    document = _document(path, (found.st_ino, found.st_mtime_ns, found.st_size), state.boot_id())
    if document.get("system") != list(system):
        return None
    return Capacity(document["sized_B"], document["largest_B"], _system_B(system))


@functools.lru_cache(maxsize=1)
def _document(path: Path, written: tuple[int, int, int], boot: str) -> dict[str, Any]:
    """Return the file that was `written`: its inode, time and size."""

    def read(document: dict[str, Any]) -> dict[str, Any]:
        sizes = {name: int(document[name]) for name in ("sized_B", "largest_B")}
        return {"system": document["system"], **sizes}

    return state.kept(path, read, {})


def _found(
    system: Sequence[Mapping[str, Any]], sizes_B: Mapping[str, float], again: bool = False
) -> Capacity:
    """Store a measured capacity, and return the capacity that is now known.

    A repeated measurement (`again`) only detects a larger capacity: the sizes in later records do
    not change.
    """
    system_B, before = _system_B(system), _known(system)
    found_B = caches.last_level_B(caches.in_environment(system, sizes_B)) or system_B
    if before is None:
        before = Capacity(_power_of_two(found_B), found_B, system_B)
    elif not sizes_B:
        found_B = 0
    known = before._replace(largest_B=max(before.largest_B, found_B))
    if again:
        sizes_B = caches.load(system).get("sizes_B", {})
    document = {"created": now(), "sizes_B": dict(sizes_B), "system": list(system)}
    state.keep(caches.path(), document | {"sized_B": known.sized_B, "largest_B": known.largest_B})
    return known


@functools.lru_cache(maxsize=1)
def _measured(system: str) -> dict[str, int]:
    """Return the result of `measure` in this process, for caches as a JSON array."""
    return measure(json.loads(system), tries=3)


def measure(system: Sequence[Mapping[str, Any]], tries: int) -> dict[str, int]:
    """Measure the capacity of a last-level cache by loads, in at most 3 seconds.

    Parameters
    ----------
    system : sequence of mapping
        The caches by the system, as in an environment.
    tries : int
        Number of tries of each size if there is time, since another program may use the caches.

    Returns
    -------
    dict of str to int
        Bytes by the name of the cache; empty if the loads show no end of the cache.
    """
    data = caches.data_caches(caches.in_environment(system, {}))
    level = data[-1]["level"] if data else 0
    last_B = max((cache["size_B"] for cache in data if cache["level"] == level), default=0)
    inner_B = max((c["size_B"] for c in data if c["level"] < level), default=last_B // 16)
    left_B, _ = memory_left()
    most_B = left_B // _LEFT_SHARE if left_B < UNLIMITED_B else 4 * max(last_B, _UNKNOWN_B)
    first_B = max(inner_B // 2, _FIRST_B)
    sizes_B = [1 << power for power in range(first_B.bit_length(), most_B.bit_length())]
    seconds, memory_s = [math.inf] * len(sizes_B), math.nan
    end_s, last_s = time.monotonic() + _MOST_S, 0.0
    for _ in range(tries):
        begin_s = time.monotonic()
        if begin_s + last_s > end_s:
            break
        found_s, memory_s = _memkern.measure_loads(sizes_B, end_s - begin_s)
        for k, one_s in enumerate(found_s):
            seconds[k] = min(seconds[k], one_s)
        last_s = time.monotonic() - begin_s
    seconds = [one_s for one_s in seconds if one_s < math.inf]
    found = held_B(sizes_B, seconds, memory_s, last_B)
    return {} if found is None else {caches.name_of_last(data, found): found}
