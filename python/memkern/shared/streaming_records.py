"""Records of streaming kernels that figures draw, and the memory level of each.

If a case has several records (variants, page policies, repeats), the best one is used. Variants
with non-temporal stores are separate cases, since they move a different number of bytes. Each
platform's most frequent backend, type and thread count are used; records with others are left out,
since one line through both would be meaningless.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memkern.backends import HOST
from memkern.formats.resultset import need_columns
from memkern.machine.caches import MEMORY as MEMORY
from memkern.machine.caches import held_in
from memkern.models.memory import FromMemory, in_memory
from memkern.plots.frames import Records, frame_of, words
from memkern.plots.selection import cache_ends

if TYPE_CHECKING:
    from pandas import DataFrame, Series

FAMILIES = {"stream": "STREAM", "bs": "BS", "loops": "Loops", "raider": "RaiderSTREAM"}
BARRIER = "launch.barrier"


def short(kernel: str) -> str:
    """Return a kernel's name without its family: 'triad', 'gather triad', 'BS3'."""
    family, _, name = kernel.partition(".")
    return name.upper() if family == "bs" else name.replace("_", " ")


def as_defined(frame: DataFrame, definition: str, pattern: str = "") -> DataFrame:
    """Return the records that follow one definition and one index pattern.

    Records without a definition or an index pattern are also returned, and the central kernels with
    any pattern, since their index is constant.
    """
    for column, wanted in (("definition", definition), ("index_pattern", pattern)):
        if wanted and column in frame:
            free = frame["kernel"].str.contains("central_") & (column == "index_pattern")
            frame = frame[words(frame[column]).isin(["", wanted]) | free]
    return frame


def of_machines(records: Records) -> list[tuple[Mapping[str, Any], DataFrame]]:
    """Return the environment of each machine of some records, empty if unknown, and its records.

    The records have the columns environment_id and device.
    """
    frame = frame_of(records)
    if len(frame):
        need_columns(frame, "platform")
    missing = {"environment_id": "", "device": HOST.device}
    frame = frame.assign(**{name: frame.get(name, other) for name, other in missing.items()})
    known = getattr(records, "environments", {})
    return [
        (known.get(key) or {}, rows) for key, rows in frame.groupby("environment_id", sort=False)
    ]


def is_nt(frame: DataFrame) -> Series:
    """Return whether each record used non-temporal stores."""
    return frame["variant"].eq("nt")


def levels(frame: DataFrame, thresholds: Mapping[str, FromMemory]) -> Series:
    """Return the memory level of each record's data: 'L1', 'L2', ..., 'memory', or '' in between.

    Data are in a cache by `memkern.machine.caches.held_in`. They are in memory at or above the
    thresholds returned by `memkern.models.memory.from_memory`. If the caches are unknown, the
    smallest size of a kernel counts as in L1.
    """
    from pandas import Series

    where = Series("", index=frame.index, dtype=object)
    held = ~in_memory(frame, thresholds)
    where[~held] = MEMORY
    for _, rows in frame[held].groupby("platform", sort=False):
        size = rows["footprint_B"]
        ends = cache_ends(rows)
        where[rows.index] = Series(
            [held_in(size_B, ends).replace(MEMORY, "") for size_B in size], rows.index, dtype=object
        )
        if not ends:
            where[rows.index[size == size.groupby(rows["kernel"]).transform("min")]] = "L1"
    return where
