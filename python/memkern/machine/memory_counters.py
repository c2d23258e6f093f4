"""What the system counts of its memory while cases are measured."""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path

from memkern.limits import read_number, read_text
from memkern.machine.environment import numbered

__all__ = ["memory_counters"]


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
    controllers, nodes = _folders(base)
    counts = [read_number(folder, "ce_count") for folder in controllers]
    known = [count for count in counts if count is not None]
    # Every page is on the only node.
    counters = read_text(base, "proc/vmstat") or "" if nodes != 1 else "numa_pages_migrated 0"
    moved = re.search(r"^numa_pages_migrated (\d+)", counters, re.M)
    return {
        "memory_errors": float(sum(known)) if known else math.nan,
        "moved_pages": float(moved[1]) if moved else math.nan,
    }


@functools.cache
def _folders(root: Path) -> tuple[list[Path], int]:
    """Return the folders of the memory controllers, and the number of NUMA nodes."""
    system = "sys/devices/system"
    return numbered(root, f"{system}/edac/mc/mc*"), len(numbered(root, f"{system}/node/node*"))
