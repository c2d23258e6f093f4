"""What a report measures."""

from __future__ import annotations

from memkern.discovery import family_modules
from memkern.spec.case import Case


def report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return what a report measures, family by family.

    Parameters
    ----------
    quick : bool
        Whether to have fewer cases, and to measure them more briefly.
    cache_B : int
        Size of the last-level caches together, which memory-sized cases should exceed.
    memory_B : int
        Memory that can be had, of which no case takes more than half.
    """
    cases: list[Case] = []
    for family in family_modules("kernels"):
        if hasattr(family, "report_cases"):
            cases += family.report_cases(quick, cache_B, memory_B)
    return cases
