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
        Available memory, of which no case uses more than half.
    """
    cases: list[Case] = []
    for family in family_modules("kernels"):
        if hasattr(family, "report_cases"):
            cases += family.report_cases(quick, cache_B, memory_B)
    return cases
