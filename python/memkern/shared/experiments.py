"""Experiments that kernels of several families have (see `memkern.spec.experiments`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from memkern.machine import switches
from memkern.machine.caches import FROM_MEMORY, MEMORY, Share, reported
from memkern.results.explanation import MOVING
from memkern.shared.elementwise import RESULT
from memkern.spec.case import Case
from memkern.spec.experiments import LEVEL, LIMIT, TRIED, Experiment, Setting, knob
from memkern.spec.kernel import Indices
from memkern.spec.registry import case as case_of

# Invocations that take longer than this many seconds hide the cost of launching them.
_LAUNCHED_S = 1e-3
# Share of the caches of a level that the data of an experiment fill.
_FILLED = 0.5
LEVELS = ("L1", "L2", "L3")
# Size of a huge page.
_HUGE_B = 2**21

Resize = Callable[[Case, float], Case | None]
"""(case, bytes) to a case of the same instructions with that footprint, or None."""

Fit = Callable[[Case, Setting, Share], Case | None]
"""(case, setting, cache) to a case of as much work, whose layers the cache holds, or None."""

WORK = "index and instruction work"
ADJACENT = "unused parts of lines"
ORDER = "the order of the indices"
HIDDEN = "latency that is not hidden"
PAGES = "page walks"
REUSE = "broken reuse"
LAUNCH = "launch and barrier"
CONTENTION = "contention of the threads"


def with_elements(case: Case, size_B: float) -> Case | None:
    """Return an elementwise case with arrays of `size_B` bytes in all."""
    streams = sum(array.name != RESULT for array in case.spec.arrays)
    elements = int(size_B / case.value_B / max(streams, 1))
    if not streams or elements >= case.integers["elements"]:
        return None
    return resized(case, elements=elements)


def resized(case: Case, **integers: int) -> Case:
    """Return a case with other integers, which are columns of its record as well."""
    return dataclasses.replace(
        case,
        integers={**case.integers, **integers},
        columns={**case.columns, **{k: v for k, v in integers.items() if k in case.columns}},
        request=None,
    )


def levels(resize: Resize) -> tuple[Experiment, ...]:
    """Return the experiments with data in the caches in front of the data of a case.

    Invocations follow each other without a barrier, since launching them would take longer, unless
    the case has one of its own.
    """

    def in_cache(name: str) -> Experiment:
        def change(case: Case, setting: Setting) -> Case | None:
            before_B = 0.0
            for cache, share in setting.caches.items():
                size_B = _FILLED * share.size_B / max(share.workers, 1) * setting.threads
                if cache == name and size_B > before_B:
                    found = resize(case, size_B) if 2 * size_B < setting.footprint_B else None
                    # Non-temporal stores go to memory even if the data are in a cache.
                    plain = {"variant": "simd"} if case.knobs.variant == "nt" else {}
                    forked = case.knobs.backend.on_processors and case.knobs.repetition == "fork"
                    free = {"repetition": "free"} if forked else {}
                    return found and found.with_(**free, **plain)
                before_B = FROM_MEMORY * size_B
            return None

        return Experiment(f"data in {name}", change, name, LEVEL)

    return tuple(map(in_cache, LEVELS))


def reuse(fit: Fit) -> tuple[Experiment, ...]:
    """Return the experiments whose layers a cache holds until their values are used again."""

    def in_cache(name: str) -> Experiment:
        def change(case: Case, setting: Setting) -> Case | None:
            return fit(case, setting, setting.caches[name]) if name in setting.caches else None

        return Experiment(f"reuse in {name}", change, REUSE)

    return tuple(map(in_cache, LEVELS))


def indexed(case: Case, **indices: Indices) -> Case:
    """Return a case with other indices."""
    return dataclasses.replace(case, indices={**case.indices, **indices}, request=None)


def _bandwidth(level: str) -> Experiment:
    """Return a stream of the same bytes by the same threads, with data in the same level."""

    def change(case: Case, setting: Setting) -> Case | None:
        if setting.level != level or not case.bytes_B:
            return None
        copies, memory = case.traffic.write > 0, level == MEMORY
        least_B = max(2 * FROM_MEMORY * setting.last_B, 2**26)
        how: dict[str, Any] = {"device": case.knobs.device}
        if case.knobs.backend.on_processors:
            how |= {
                "threads": setting.threads,
                "pin": case.knobs.pin,
                "variant": "nt" if copies and memory and "nt" in setting.variants else "simd",
                "repetition": "fork" if memory else "free",
            }
        return case_of(
            "stream.copy" if copies else "loops.load",
            footprint_B=least_B if memory else setting.footprint_B,
            **how,
        )

    return Experiment("the same bytes in a stream", change, f"bandwidth of {level}", LIMIT)


def _no_prefetchers(case: Case, setting: Setting) -> Case:
    switches.prefetchers_off()  # refuses where the system does not permit it
    return case.with_(prefetchers="off")


def _half_of_ways(case: Case, setting: Setting) -> Case:
    ways = int(reported()[-1]["ways"] or 0) // 2
    switches.cache_ways(ways)
    return case.with_(cache_ways=ways)


def _variant(name: str) -> Experiment:
    return dataclasses.replace(
        knob("variant", name),
        change=lambda case, setting: (
            case.with_(variant=name) if name in setting.variants and setting.requested else None
        ),
    )


ASCENDING = Experiment(
    "indices in ascending order",
    lambda case, setting: indexed(case, **{k: np.sort(v) for k, v in case.indices.items()}),
    ORDER,
    within=MOVING,
)
HUGE_PAGES = Experiment(
    "huge pages",
    lambda case, setting: (
        case.with_(pages="thp")
        if setting.pages == "4k" and setting.footprint_B >= _HUGE_B
        else None
    ),
    PAGES,
    within=ORDER,
    option="--pages thp",
)
NON_TEMPORAL = Experiment(
    "non-temporal stores",
    lambda case, setting: (
        case.with_(variant="nt")
        if case.traffic.write_allocate > 0 and setting.level == MEMORY and "nt" in setting.variants
        else None
    ),
    "reads of written lines",
    option="--variant nt",
)
ONE_THREAD = Experiment(
    "one thread",
    lambda case, setting: (
        None
        if setting.threads == 1 or "workers" in case.integers or case.halo
        else case.with_(threads=1)
    ),
    CONTENTION,
    option="--threads 1",
)
ONE_REGION = Experiment(
    "one region without barriers",
    lambda case, setting: None if setting.seconds > _LAUNCHED_S else case.with_(repetition="free"),
    LAUNCH,
)
BANDWIDTHS = tuple(map(_bandwidth, (*LEVELS[1:], MEMORY)))
MORE_THREADS = Experiment(
    "all threads",
    lambda case, setting: (
        None
        if "workers" in case.integers or setting.threads >= setting.units
        else case.with_(threads=0)
    ),
    role=TRIED,
    option="--threads {units}",
)
NO_PREFETCHERS = Experiment(
    "prefetchers off", _no_prefetchers, role=TRIED, option="--prefetchers off"
)
HALF_OF_WAYS = Experiment("half of the ways of the last cache", _half_of_ways, role=TRIED)
SMALL_PAGES = Experiment(
    "pages of 4 KiB",
    lambda case, setting: None if setting.footprint_B < _HUGE_B else case.with_(pages="4k"),
    role=TRIED,
    option="--pages 4k",
)


def usual(
    resize: Resize, *own: Experiment, but: Iterable[Experiment] = ()
) -> tuple[Experiment, ...]:
    """Return the experiments of a family in the order in which they tell most.

    Parameters
    ----------
    resize : callable
        See `Resize`.
    *own : Experiment
        Those of the family alone.
    but : iterable of Experiment
        Shared ones that make no sense for it.
    """
    every = (
        *levels(resize),
        *BANDWIDTHS,
        HUGE_PAGES,
        *own,
        NON_TEMPORAL,
        ONE_THREAD,
        ONE_REGION,
        MORE_THREADS,
        *map(_variant, ("simd", "auto", "scalar")),
        *(knob("block_threads", threads) for threads in (64, 128, 256, 512, 1024)),
        NO_PREFETCHERS,
        HALF_OF_WAYS,
        SMALL_PAGES,
    )
    return tuple(one for one in every if one not in but)
