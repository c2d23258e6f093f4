"""Sentences on the state of the hosts of records."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from memkern.formats.values import is_known

# Exchange times within this factor belong to one state.
APART = 1.3
_LEAST = 0.01  # share of the time that is reported
# What delays accesses to memory: the value up to which it is normal, what it means, and what helps.
_OF_MEMORY: dict[str, tuple[float, str]] = {
    "memory_errors": (
        0,
        "the memory corrected errors, which delay accesses: memkern doctor tells how to find the "
        "module",
    ),
    "moved_pages": (
        0,
        "the kernel moved pages between NUMA nodes: as root, sysctl kernel.numa_balancing=0",
    ),
    "misplaced_share": (
        0.1,
        "pages are on another NUMA node than they should be, whose memory may be full: see "
        "numastat -p, and use --numa node:N with another node, or smaller sizes",
    ),
}


def memory_notes(record: Mapping[str, Any]) -> dict[str, str]:
    """Return what delayed accesses of a record to memory, by the column that shows it."""
    return {
        name: what for name, (least, what) in _OF_MEMORY.items() if (record.get(name) or 0) > least
    }


def host_sentence(records: Iterable[Mapping[Any, Any]]) -> str:
    """Return a sentence on the state of a shared host; empty if it was not shared.

    Parameters
    ----------
    records : iterable of mapping
        Records of one host, with the columns ``state``, ``shared_with`` and ``states``.
    """
    shared = [record for record in records if record.get("state") == "shared"]
    if not shared:
        return ""
    texts = ", ".join(str(r["shared_with"]) for r in shared if r.get("shared_with"))
    # Without the numbers of their processes, which change within a run.
    names = dict.fromkeys(re.sub(r" \([^()]*\)", "", texts).split(", ")) if texts else {}
    by = f" with {', '.join([*names][:3])}" if names else ""
    facts = [*_states(shared), *_shares(shared)]
    told = f": {', '.join(facts)}" if facts else ""
    return f"this host is shared{by}{told}; the intervals show how well values repeat on it"


def _states(shared: list[Mapping[Any, Any]]) -> list[str]:
    """Return phrases on the workers' exchange times."""
    found = [
        (float(state["exchange_ns"]), float(state["share"]))
        for record in shared
        for state in json.loads(record.get("states") or "[]")
    ]
    groups: list[list[tuple[float, float]]] = []
    for one in sorted(found):
        if groups and one[0] <= APART * groups[-1][-1][0]:
            groups[-1].append(one)
        else:
            groups.append([one])
    whole = sum(share for _, share in found)
    parts = [
        (sum(share for _, share in group) / whole, median(ns for ns, _ in group))
        for group in groups
    ]
    told = [f"{ns:.0f} ns {share:.0%} of the time" for share, ns in sorted(parts, reverse=True)]
    return [f"its processors exchange a line in {' and in '.join(told[:3])}"] * (len(told) > 1)


def _shares(shared: list[Mapping[Any, Any]]) -> list[str]:
    """Return phrases on the cores and the processor time."""

    def middle(column: str) -> float:
        known = [float(r[column]) for r in shared if is_known(r.get(column))]
        return median(known) if known else math.nan

    core, waited, absent = map(middle, ("core_share", "waited_share", "absent_share"))
    phrases = {
        f"its cores have {core:.0%} of their best throughput": core < 1 - _LEAST,
        f"workers waited for {waited:.0%} of the time": waited >= _LEAST,
        f"the hypervisor took processors away for {absent:.0%} of the time": absent >= _LEAST,
    }
    return [phrase for phrase, told in phrases.items() if told]
