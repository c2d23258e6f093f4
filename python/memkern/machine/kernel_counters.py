"""Counters of the kernel: what it did to processors and memory while cases were measured."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from memkern.limits import cgroup_folders, read_number, read_numbers, read_text
from memkern.machine.environment import numbered

Counters = Mapping[str, int]


def read_counters(root: Path) -> Counters:
    """Return the kernel's counters that show activity between two readings.

    These are the counters of ``/proc/vmstat``; ``memory_errors`` of `memory_counters`;
    ``throttled``, how often this process's control groups have used up their processor time; and
    ``busy_ticks``, the time that all processors worked, in hundredths of a second (``SC_CLK_TCK``).
    Missing counters are left out.
    """
    errors = memory_counters(root)["memory_errors"]
    counters = {"memory_errors": int(errors)} if errors == errors else {}
    # user, nice, system, idle, iowait, irq, softirq, ...
    ticks = re.search(
        r"^cpu +(\d+) (\d+) (\d+) \d+ \d+ (\d+) (\d+)[\d ]*$",
        read_text(root, "proc/stat") or "",
        re.M,
    )
    if ticks:
        counters["busy_ticks"] = sum(map(int, ticks.groups()))
    groups = [read_numbers(folder, "cpu.stat") for folder in cgroup_folders(root)]
    throttled = [group["nr_throttled"] for group in groups if "nr_throttled" in group]
    if throttled:
        counters["throttled"] = sum(throttled)
    return counters | read_numbers(root, "proc/vmstat")


def grown(before: Counters, after: Counters, names: Iterable[str]) -> int | None:
    """Return the total increase of these counters; None if none of them is known."""
    known = [after[name] - before[name] for name in names if name in before and name in after]
    return sum(known) if known else None


def memory_counters(root: str | Path = "/") -> dict[str, float]:
    """Return how often memory delayed accesses since the boot.

    Parameters
    ----------
    root : path
        Folder that contains ``proc`` and ``sys``.

    Returns
    -------
    dict of str to float
        ``memory_errors``: corrected errors of all memory controllers, by EDAC. ``moved_pages``:
        pages that the kernel moved between NUMA nodes, 0 with one node. NaN where it is unknown.
    """
    base = Path(root)
    controllers, nodes = _memory_folders(base)
    counts = [read_number(folder, "ce_count") for folder in controllers]
    known = [count for count in counts if count is not None]
    # Every page is on the only node.
    counters = read_numbers(base, "proc/vmstat") if nodes != 1 else {"numa_pages_migrated": 0}
    return {
        "memory_errors": float(sum(known)) if known else math.nan,
        "moved_pages": float(counters.get("numa_pages_migrated", math.nan)),
    }


@functools.cache
def _memory_folders(root: Path) -> tuple[list[Path], int]:
    """Return the folders of the memory controllers, and the number of NUMA nodes."""
    system = "sys/devices/system"
    return numbered(root, f"{system}/edac/mc/mc*"), len(numbered(root, f"{system}/node/node*"))
