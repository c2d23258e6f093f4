"""What the streaming figures draw: which records count, and how far each cache reaches.

Where the records hold one case several times (variants, page policies, repeats), the best one
counts. Non-temporal stores are no such variant: they move other bytes and stand apart. Records of
another backend, type or thread count than most of their platform are left out, since a line
through both would show neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from memkern.models.memory import FromMemory, in_memory
from memkern.plots.frames import words
from memkern.plots.selection import cache_ends

if TYPE_CHECKING:
    from pandas import DataFrame, Series

FAMILIES = {"stream": "STREAM", "bs": "BS", "loops": "Loops", "raider": "RaiderSTREAM"}
BARRIER = "launch.barrier"
MEMORY = "memory"
# The stack and the code take a part of a cache.
_FILLED = 0.75


def short(kernel: str) -> str:
    """Return a kernel's name without its family: 'triad', 'gather triad', 'BS3'."""
    family, _, name = kernel.partition(".")
    return name.upper() if family == "bs" else name.replace("_", " ")


def as_defined(frame: DataFrame, definition: str, pattern: str = "") -> DataFrame:
    """Return the records that follow one definition and one index pattern.

    Records without a definition or an index pattern need none and stay. The central kernels, whose
    index never moves, follow any pattern.
    """
    for column, wanted in (("definition", definition), ("index_pattern", pattern)):
        if wanted and column in frame:
            said = words(frame[column])
            free = frame["kernel"].str.contains("central_") & (column == "index_pattern")
            frame = frame[said.isin(["", wanted]) | free]
    return frame


def is_nt(frame: DataFrame) -> Series:
    """Say of each record whether it used non-temporal stores."""
    return frame["variant"].eq("nt")


def levels(frame: DataFrame, since: Mapping[str, FromMemory]) -> Series:
    """Say of each record where its data are: 'L1', 'L2', ..., 'memory', or '' in between.

    Data are in a cache if they fill no more than three quarters of it and twice what the caches
    before it hold; they are in memory as `since` says, which `memkern.models.memory.from_memory`
    returns. Where the caches are unknown, the smallest size of a kernel counts as in L1.
    """
    from pandas import Series

    where = Series("", index=frame.index, dtype=object)
    held = ~in_memory(frame, since)
    where[~held] = MEMORY
    for _, rows in frame[held].groupby("platform", sort=False):
        size = rows["footprint_B"]
        ends = cache_ends(rows)
        below = 0.0
        for name, end in ends:
            where[rows.index[(size >= 2 * below) & (size <= _FILLED * end)]] = name
            below = end
        if not ends:
            where[rows.index[size == size.groupby(rows["kernel"]).transform("min")]] = "L1"
    return where
