"""Cases of a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    return by_importance(cases)


def by_importance(cases: Sequence[Case]) -> list[Case]:
    """Return cases in an order of which every first part tells of all families and their ranges.

    Families take turns by their numbers of cases, and within them kernels. Of each kernel, the
    first and the last case come first, then those halfway between others.
    """
    families: dict[str, dict[str, list[Case]]] = {}
    for case in cases:
        kernels = families.setdefault(case.spec.kernel.partition(".")[0], {})
        kernels.setdefault(case.spec.kernel, []).append(case)
    return _in_turns(
        _in_turns([own[place] for place in _halved(len(own))] for own in kernels.values())
        for kernels in families.values()
    )


def _in_turns(groups: Iterable[list[Case]]) -> list[Case]:
    """Merge lists so that every first part has the same share of each."""
    ranked = [(rank / len(group), one) for group in groups for rank, one in enumerate(group)]
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


def _halved(number: int) -> list[int]:
    """Return the places of a sequence: both ends, the middle, the middles of both halves, ..."""
    found = dict.fromkeys((0, number - 1)) if number else {}
    gaps = [(0, number - 1)]
    for low, high in gaps:
        middle = (low + high) // 2
        if middle not in found:
            found[middle] = None
            gaps += [(low, middle), (middle, high)]
    return list(found)


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
        Memory of the device and of the host, the smaller one.
    """
    cases: list[Case] = []
    for family in family_modules("kernels"):
        if hasattr(family, "gpu_report_cases"):
            cases += family.gpu_report_cases(device, quick, cache_B, memory_B)
    return by_importance(cases)
