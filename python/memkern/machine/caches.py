"""Sizes of caches: by measured latencies where they are known, else as the system reports them.

A virtual machine reports the caches of the whole processor, of which it may get a part.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memkern import small
from memkern.machine.environment import system_caches
from memkern.machine.state import folder, stored

__all__ = [
    "MEMORY",
    "MULTIPLE",
    "data_caches",
    "ends",
    "last_level_B",
    "level_of",
    "line_B",
    "load",
    "path",
    "reported",
]

MEMORY = "memory"
MULTIPLE = 4
"""STREAM's rule: data in memory are at least this multiple of the last-level caches."""


def path() -> Path:
    """Return where the measured sizes of this machine's caches are stored."""
    return folder() / "caches.json"


@functools.cache
def reported() -> list[dict[str, Any]]:
    """Return the caches of this machine as the system reports them; empty if it does not."""
    return system_caches() or []


def line_B() -> int:
    """Return the size of a cache line, the largest where they differ; 64 where it is unknown."""
    return max((int(cache["line_B"] or 0) for cache in reported()), default=0) or 64


def load(system: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sizes that were measured since the system was booted; empty if there are none.

    Parameters
    ----------
    system : sequence of mapping
        The caches by the system, as in an environment; with others, measured sizes do not count.

    Returns
    -------
    dict
        ``created`` (date and time in UTC) and ``sizes_B`` (of an instance of each measured cache,
        by its name).
    """
    if small.wanted():
        return {}
    try:
        document = stored(path())
        if document["system"] != list(system):
            return {}
        sizes_B = {str(name): int(size) for name, size in document["sizes_B"].items()}
        return {"created": str(document["created"]), "sizes_B": sizes_B}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


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
        the system reports, and ``source`` (``measured`` or ``system``).
    """
    measured = (environment.get("measured_caches") or {}).get("sizes_B", {})
    found = []
    for cache in (environment.get("machine") or {}).get("caches") or ():
        if not cache.get("level") or not cache.get("size_B") or cache.get("type") == "instruction":
            continue
        name, system_B = f"L{cache['level']}", cache["size_B"]
        source = "measured" if name in measured else "system"
        size_B = measured.get(name, system_B)
        found.append({**cache, "size_B": size_B, "system_B": system_B, "source": source})
    return sorted(found, key=lambda cache: int(cache["level"]))


def ends(caches: Sequence[Mapping[str, Any]], threads: int) -> dict[str, float]:
    """Return the bytes that some workers can have in all caches of each level, by its name.

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


def last_level_B(environment: Mapping[str, Any], largest: bool) -> int:
    """Return the size of all last-level caches, 0 if they are unknown.

    It is the measured one where it is known; with `largest`, the system's where that is larger.
    """
    found = data_caches(environment)
    last = [cache for cache in found if cache["level"] == found[-1]["level"]]
    sizes = [max(c["size_B"], c["system_B"]) if largest else c["size_B"] for c in last]
    each = zip(last, sizes, strict=True)
    return sum(size_B * (cache.get("instances") or 1) for cache, size_B in each)
