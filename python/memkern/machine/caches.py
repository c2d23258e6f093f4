"""Sizes of caches: from measured latencies if available, else as the system reports them.

A virtual machine reports the caches of the whole processor, but may get only a part of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from memkern.machine.environment import this_machine

MEMORY = "memory"
MULTIPLE = 4
"""STREAM's rule: data in memory are at least this multiple of the last-level caches."""
FROM_MEMORY = 2.0
"""The least multiple with which a single record counts as one from memory."""
LEAST_MEMORY_S = 40e-9
"""No memory has a shorter latency."""
PUBLISHED_LATENCIES = "published latencies are 67.5 to 187 ns (table published-figures)"
"""The source of the limits of a latency."""

# Share of a cache that data in it fill at most.
_FILLED = 0.75
# A measured end beyond this multiple of an L1 or L2 is that of a cache that is not reported.
_BEYOND = 2
_SHARED_LEVEL = 3
# Cores that share a cache that is not reported: no processor with shared caches has fewer.
_SHARING_CORES = 4


def reported() -> list[dict[str, Any]]:
    """Return the caches of this machine as the system reports them; empty if it does not."""
    return this_machine()["caches"] or []


def in_environment(
    system: Sequence[Mapping[str, Any]], sizes_B: Mapping[str, float]
) -> dict[str, Any]:
    """Return the part of this machine's environment that describes caches.

    Parameters
    ----------
    system : sequence of mapping
        The caches by the system.
    sizes_B : mapping of str to float
        Measured sizes by the name of the cache.
    """
    machine = {**this_machine(), "caches": system}
    return {"machine": machine, "measured_caches": {"sizes_B": sizes_B}}


def line_B() -> int:
    """Return the size of a cache line, the largest if sizes differ; 64 if unknown."""
    return max((int(cache["line_B"] or 0) for cache in reported()), default=0) or 64


def data_caches(environment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the data caches of an environment's machine, from the innermost one.

    Parameters
    ----------
    environment : mapping
        As a record's.

    Returns
    -------
    list of dict
        As in the environment, with the measured ``size_B`` where it is known, the ``system_B`` that
        the system reports (0 for a cache that was measured but is not reported), and ``source``
        (``measured`` or ``system``).
    """
    measured = (environment.get("measured_caches") or {}).get("sizes_B") or {}
    machine = environment.get("machine") or {}
    found: list[dict[str, Any]] = []
    for cache in sorted(machine.get("caches") or (), key=lambda cache: cache.get("level") or 0):
        level, system_B = cache.get("level"), cache.get("size_B")
        if not level or not system_B or cache.get("type") == "instruction":
            continue
        name = f"L{level}"
        # A last-level cache that is smaller than one before it is reported wrongly.
        larger = level >= _SHARED_LEVEL and any(
            c["system_B"] > system_B for c in found if c["level"] < level
        )
        if larger and name not in measured:
            continue
        found.append(
            {
                **cache,
                "size_B": measured.get(name, system_B),
                "system_B": system_B,
                "source": "measured" if name in measured else "system",
            }
        )
    instances = max((machine.get("cores") or 1) // _SHARING_CORES, 1)
    found += [
        {
            "level": int(name[1:]),
            "type": "unified",
            "size_B": measured[name],
            "line_B": None,
            "shared_by": max((machine.get("threads") or 1) // instances, 1),
            "instances": instances,
            "system_B": 0,
            "source": "measured",
        }
        for name in measured.keys() - {f"L{cache['level']}" for cache in found}
    ]
    return sorted(found, key=lambda cache: int(cache["level"]))


def name_of_last(reported: Sequence[Mapping[str, Any]], size_B: float) -> str:
    """Return the name of the last-level cache, which ends at a measured size.

    It is the last reported one, or L3 if that is an L1 or L2 of less than half of the size.

    Parameters
    ----------
    reported : sequence of mapping
        ``level`` and ``system_B`` of data caches.
    size_B : float
    """
    level = max((int(cache["level"]) for cache in reported), default=0)
    largest_B = max((cache["system_B"] for cache in reported if cache["level"] == level), default=0)
    hidden = level < _SHARED_LEVEL and size_B > _BEYOND * largest_B
    return f"L{_SHARED_LEVEL if hidden else level}"


def held_in(footprint_B: float, ends: Sequence[tuple[str, float]]) -> str:
    """Return the level all of whose time or bandwidth data of this size have: '' in between.

    Data are in a cache if they fill at most three quarters of it and are at least twice as large as
    the one before, and in memory if they are at least twice as large as the last one.

    Parameters
    ----------
    footprint_B : float
    ends : sequence of (str, float)
        Names and bytes of the caches, from the innermost one.
    """
    below_B = 0.0
    for name, end_B in ends:
        if FROM_MEMORY * below_B <= footprint_B <= _FILLED * end_B:
            return name
        below_B = end_B
    return MEMORY if ends and footprint_B >= FROM_MEMORY * below_B else ""


class Share(NamedTuple):
    """A cache by its name, the bytes of an instance, and the workers that share it."""

    name: str
    size_B: int
    workers: int


def shares(caches: Sequence[Mapping[str, Any]], threads: int) -> list[Share]:
    """Return the caches that some workers share, from the innermost one.

    If a hybrid processor has several kinds of caches on a level, the kind with the smallest share
    of a worker is returned, so that data that fit there fit everywhere.

    Parameters
    ----------
    caches : sequence of mapping
        ``level``, ``size_B``, and optionally ``type``, ``shared_by`` and ``instances``, as in an
        environment. Instruction caches and caches of unknown size are left out.
    threads : int
        Workers. Each has its own core unless there are more workers than cores (known by the
        ``instances`` of L1), and as many of them as possible share a cache.
    """
    known = [
        cache for cache in caches if cache.get("size_B") and cache.get("type") != "instruction"
    ]
    # The processing units that share an L1 belong to one core. A cache with as many instances and
    # units belongs to a single core. For other caches, the environment does not contain the kind of
    # the cores, so each core is assumed to have the fewest units.
    first = [cache for cache in known if cache.get("level") == 1]
    private = [(cache.get("shared_by"), cache.get("instances")) for cache in first]
    fewest = min((int(cache.get("shared_by") or 1) for cache in first), default=1)
    of_core = math.ceil(threads / (sum(count or 0 for _, count in private) or threads))
    found: dict[str, Share] = {}
    for cache in sorted(known, key=lambda cache: int(cache.get("level") or 0)):
        units = int(cache.get("shared_by") or 1)
        own = (cache.get("shared_by"), cache.get("instances")) in private
        cores = 1 if own else max(units // fewest, 1)
        workers = min(cores * of_core, units, threads)
        share = Share(f"L{cache.get('level')}", int(cache["size_B"]), workers)
        other = found.get(share.name, share)
        found[share.name] = min(share, other, key=lambda one: one.size_B / one.workers)
    return list(found.values())


def ends(caches: Sequence[Mapping[str, Any]], threads: int) -> dict[str, float]:
    """Return the bytes that the workers can use in all caches of each level, by level.

    Parameters
    ----------
    caches : sequence of mapping
        ``level``, ``size_B`` and ``instances`` of data caches.
    threads : int
        Workers, spread over the cores so that they use as many caches of a level as possible.
    """
    found: dict[str, float] = {}
    for cache in sorted(caches, key=lambda cache: int(cache["level"])):
        name = f"L{cache['level']}"
        size_B = float(cache["size_B"]) * min(int(cache.get("instances") or 1), threads)
        # Hybrid processors have two kinds of caches of a level.
        found[name] = max(found.get(name, 0.0), size_B)
    return found


def level_of(footprint_B: float, held_B: Mapping[str, float]) -> str:
    """Return the smallest level that holds a footprint: ``L1``, ``L2``, ..., ``memory``.

    `held_B` are the bytes that each cache holds, from the innermost one (see `ends`).
    """
    return next((name for name, end_B in held_B.items() if footprint_B <= end_B), MEMORY)


def last_level_B(environment: Mapping[str, Any]) -> int:
    """Return the size of all last-level caches, measured if available; 0 if unknown."""
    found = data_caches(environment)
    last = [cache for cache in found if cache["level"] == found[-1]["level"]]
    return sum(int(cache["size_B"]) * (cache.get("instances") or 1) for cache in last)
