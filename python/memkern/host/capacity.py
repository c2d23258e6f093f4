"""Effective capacity of the last-level caches for this machine, from the times of loads.

A virtual machine may get only a part of the caches that it reports, and this part may change. Sizes
of data in memory follow the largest known part when the first of them is chosen, so that cases stay
the same until the next boot, or the reported size where that is cheap: neighbours may return the
rest at any time.

The lines of the loads are random and independent, so that the hit rate of a cache is the share of
the lines that it holds, for any replacement policy. For the time t(S) of a load from a buffer of
size S, the slope of S t(S) is the latency of the cache while it holds the buffer, and the latency
of memory beyond.
"""

from __future__ import annotations

import functools
import json
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memkern import launcher, small
from memkern.extension import _memkern
from memkern.host import Caches, Capacity, Host, this_host
from memkern.limits import UNLIMITED_B, memory_left
from memkern.machine import caches
from memkern.machine.environment import now

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
# Part of the remaining memory for the loads, and for default sizes: one of this many.
_LEFT_SHARE, _DEFAULT_SHARE = 4, 2
# Capacity beyond which loads are tried where the remaining memory is unknown.
_UNKNOWN_B = 2**26
# Reported caches up to this size count whole in default sizes, even if a smaller part was found.
_RETURNED_B = 2**26
# Seconds after which the capacity is measured again.
_AGAIN_S = 60.0


def capacity(host: Host | None = None) -> Capacity:
    """Return the capacity of the last-level caches; zeros if unknown.

    It is measured at its first use after the boot. Ranks of a launcher, which must choose the same
    sizes, and small cases use the reported size.
    """
    system = caches.reported()
    if small.wanted() or launcher.size() > 1:
        system_B = _system_B(system)
        return Capacity(_power_of_two(system_B), system_B, system_B)
    host = host or this_host()
    return _known(host, system) or _found(host, system, _measured(json.dumps(system)))


def measured_caches(host: Host | None = None) -> dict[str, Any]:
    """Return the caches that were measured since the system was booted; empty if there are none.

    Returns
    -------
    dict
        ``created`` (date and time in UTC) and ``sizes_B`` (of an instance of each measured cache,
        by its name).
    """
    known = (host or this_host()).caches
    if known is None or known.system != caches.reported() or not known.sizes_B:
        return {}
    return {"created": known.created, "sizes_B": known.sizes_B}


def last_level_cache_B() -> int:
    """Return the bytes that data in memory must exceed (see `Capacity`)."""
    return capacity().sized_B


def data_caches() -> list[dict[str, Any]]:
    """Return the data caches of this machine, with measured sizes if available.

    See `memkern.machine.caches.data_caches`.
    """
    system = caches.reported()
    return caches.data_caches(caches.in_environment(system, measured_caches().get("sizes_B", {})))


def beyond_caches_B(parts: int = 1) -> int:
    """Return the size of data in memory: four times `last_level_cache_B`, and at least 64 MiB.

    If memory is too small for `parts` arrays of this size, it is smaller (see `from_memory`).
    """
    return from_memory(whole_B=parts, least=2**26)


def from_memory(unit_B: float = 1, whole_B: float = 1, least: int = 1) -> int:
    """Return the default number of elements of arrays that do not fit in the caches.

    Parameters
    ----------
    unit_B : float
        Bytes of an element of one array, which has four times `last_level_cache_B`.
    whole_B : float
        Bytes of an element of all arrays. If they need more than half of the memory that this
        process may allocate, the number is the next smaller power of two, with a warning.
    least : int
        Least number of elements, if memory suffices.
    """
    cache_B = last_level_cache_B()
    wanted = max(int(caches.MULTIPLE * cache_B / unit_B), least)
    left_B, limit = memory_left()
    most = left_B / _DEFAULT_SHARE / whole_B
    if wanted <= most:
        return wanted
    number = 1 << math.floor(math.log2(max(most, 1)))
    found_MB, wanted_MB = (one * whole_B / 1e6 for one in (number, wanted))
    rows = (
        (number * whole_B <= cache_B, "them, so that values are not from memory"),
        (
            number * whole_B < 2 * cache_B,
            "most of them, so that values are only partly from memory",
        ),
    )
    held = next((f"; the caches hold {text}" for holds, text in rows if holds), "")
    warnings.warn(
        f"data have {found_MB:.4g} MB by default, not {wanted_MB:.4g} MB, because memory is too "
        f"small (limited by {limit}){held}",
        stacklevel=2,
    )
    return number


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
    return int(reported_B if _WHOLE * reported_B <= size_B <= reported_B / _WHOLE else size_B)


def refresh(footprint_B: float, host: Host) -> None:
    """Measure the capacity again from time to time, if it decides whether a case is from memory.

    That is if the case was large enough for memory, and the system reports larger caches, or
    smaller ones than were found.
    """
    system = caches.reported()
    known, found = capacity(host), host.caches
    if known.may_hold(footprint_B) and found and time.time() - found.tried_s > _AGAIN_S:
        _found(host, system, measure(system, tries=1), again=True)


def save(sizes_B: Mapping[str, int], host: Host | None = None) -> bool:
    """Store the measured sizes of caches; return whether there are any and they could be stored.

    Parameters
    ----------
    sizes_B : mapping of str to int
        Bytes of an instance of each measured cache, by its name, such as ``L3``.
    host : Host, optional
    """
    if small.wanted() or not sizes_B:
        return False
    host, system = host or this_host(), caches.reported()
    return _found(host, system, sizes_B) == _known(host, system)


def _system_B(system: Sequence[Mapping[str, Any]]) -> int:
    """Return the bytes of all last-level caches by the system."""
    return caches.last_level_B(caches.in_environment(system, {}))


def _power_of_two(size_B: int) -> int:
    """Return the next power of two, 0 of 0."""
    return 1 << (size_B - 1).bit_length() if size_B else 0


def _known(host: Host, system: Sequence[Mapping[str, Any]]) -> Capacity | None:
    """Return the capacity that was stored since the boot."""
    found = host.caches
    if found is None or found.system != list(system):
        return None
    return Capacity(found.sized_B, found.largest_B, found.system_B)


def _found(
    host: Host,
    system: Sequence[Mapping[str, Any]],
    sizes_B: Mapping[str, int],
    again: bool = False,
) -> Capacity:
    """Store a measured capacity, and return the capacity that is now known.

    A repeated measurement (`again`) only detects a larger capacity: the sizes in later records do
    not change.
    """
    system_B, before = _system_B(system), _known(host, system)
    found_B = caches.last_level_B(caches.in_environment(system, sizes_B)) or system_B
    if before is None:
        returned_B = system_B if system_B <= _RETURNED_B else 0
        before = Capacity(_power_of_two(max(found_B, returned_B)), found_B, system_B)
    elif not sizes_B:
        found_B = 0
    known = before._replace(largest_B=max(before.largest_B, found_B))
    if again and host.caches is not None:
        sizes_B = host.caches.sizes_B
    host.keep_caches(Caches(list(system), dict(sizes_B), now(), *known, time.time()))
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
        seconds[: len(found_s)] = map(min, seconds, found_s)
        last_s = time.monotonic() - begin_s
    seconds = [one_s for one_s in seconds if one_s < math.inf]
    found = held_B(sizes_B, seconds, memory_s, last_B)
    return {} if found is None else {caches.name_of_last(data, found): found}
