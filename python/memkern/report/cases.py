"""Cases of a report."""

from __future__ import annotations

from memkern.discovery import family_modules
from memkern.spec.case import Case


def report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return the cases that a report measures, by family.

    Parameters
    ----------
    quick : bool
        Whether to return fewer cases, with less time for each.
    cache_B : int
        Total size of the last-level caches, which cases in memory should exceed.
    memory_B : int
        Available memory; no case uses more than half of it.
    """
    return [
        case
        for family in family_modules("kernels")
        if hasattr(family, "report_cases")
        for case in family.report_cases(quick, cache_B, memory_B)
    ]


def gpu_report_cases(device: str, quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return the cases that a report of a GPU measures, by family.

    Parameters
    ----------
    device : str
        Such as ``cuda:0``.
    quick : bool
        Whether to return fewer cases, with less time for each.
    cache_B : int
        Size of its L2 cache, which cases in its memory should exceed.
    memory_B : int
        The smaller of the device's memory and the host's memory.
    """
    return [
        case
        for family in family_modules("kernels")
        if hasattr(family, "gpu_report_cases")
        for case in family.gpu_report_cases(device, quick, cache_B, memory_B)
    ]
