"""Which records any family's figures choose, and which of them can stand side by side.

Where the records hold one case several times, one of them counts. Records of another backend, type
or thread count than most of their platform are left out, since a line through both would show
neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from memkern.errors import InputError
from memkern.models.records import cache_ends as cache_ends
from memkern.plots.frames import Records, counted, frame_of, listed, typed, usable, validated
from memkern.plots.style import plain

if TYPE_CHECKING:
    from pandas import DataFrame

BANDWIDTH = "bandwidth_GBps"
SETTING = ("backend", "dtype", "threads")

# Two that move nothing, and one that is a sum of others.
_NO_BANDWIDTH = ("bs.bs0", "loops.peakflops", "stream.rotation")
_NUMBERS = (
    *("elements", "rows", "degree", "unroll", "threads", "footprint_B", "bytes_B"),
    *("time_min_s", "cycles_per_vector", "performance_GFLOPs", "clock_GHz"),
    *("barrier_s", "barrier_low_s", "barrier_high_s"),
)


def split(kernels: str | Sequence[str]) -> list[str]:
    """Return names given as a list or, on a command line, with commas between."""
    names = kernels.split(",") if isinstance(kernels, str) else kernels
    return [name.strip() for name in names if name.strip()]


def machine(platform: object) -> str:
    """Return a platform's name without its thread count."""
    return re.sub(r", \d+ threads?$", "", str(platform))


def select(
    records: Records,
    kernels: Sequence[str],
    columns: Iterable[str] = (),
    *,
    measure: str = "",
    value: str = BANDWIDTH,
) -> tuple[DataFrame, list[str]]:
    """Return the valid records of some kernels, and notes on the others.

    Parameters
    ----------
    records : DataFrame, ResultSet or None
        Own records.
    kernels : sequence of str
        Names of kernels or families.
    columns : iterable of str
        Columns that the caller needs beside platform, kernel, valid, disturbed and the value's.
    measure : str
        Command that measures such records. Without one, having none is no error.
    value : str
        Column of what is drawn. A bandwidth must be positive; of another column, rows in which
        it is not make no sense and are left out.

    Returns
    -------
    frame : DataFrame
        Columns of numbers are floats.
    notes : list of str
        What was left out.

    Raises
    ------
    InputError
        No such record, a column is missing, or a bandwidth is not a positive number.
    """
    import numpy as np

    frame = frame_of(records)
    if records is not None and "kernel" not in frame:
        validated(frame, [], [value, *columns])  # says what else is lacking
    present = [] if records is None else [str(name) for name in frame["kernel"].unique()]
    names = [name for name in present if name in kernels or name.partition(".")[0] in kernels]
    if value == BANDWIDTH:
        names = [name for name in names if name not in _NO_BANDWIDTH]
    if not names:
        if measure:
            raise InputError(f"there is no record of {', '.join(kernels)}: `{measure}` measures it")
        nothing, notes = validated(None, [], [value, *columns])
        types = {name: float for name in nothing if name in (BANDWIDTH, *_NUMBERS)}
        return nothing.astype({"platform": str, "kernel": str, "disturbed": bool, **types}), notes
    read = usable if value == BANDWIDTH else validated
    frame, notes = read(frame, names, [value, *columns])
    frame = typed(frame, [column for column in _NUMBERS if column in frame])
    frame = frame[np.isfinite(frame[value]) & (frame[value] > 0)]
    if frame.empty and measure:
        raise InputError(
            f"no valid record of {', '.join(kernels)} has a {value}: `{measure}` measures it"
        )
    return frame, notes


def prevailing(
    frame: DataFrame,
    columns: Sequence[str] = SETTING,
    *,
    per: Sequence[str] = ("platform",),
    count: Sequence[str] = ("kernel", "footprint_B"),
) -> tuple[DataFrame, list[str]]:
    """Keep of each platform the records of the setting under which most was measured.

    Parameters
    ----------
    frame : DataFrame
        Records.
    columns : sequence of str
        What makes a setting; those that the records lack do not.
    per : sequence of str
        What has one setting each.
    count : sequence of str
        What is counted: the different values of these columns. Where two settings have as many,
        the one with the larger values goes first.

    Returns
    -------
    frame : DataFrame
        The records kept.
    notes : list of str
        How many were left out.
    """
    columns = [column for column in columns if column in frame]
    if frame.empty or not columns:
        return frame, []
    frame = frame.assign(setting=frame.groupby(columns, dropna=False).ngroup())
    cases = frame.drop_duplicates([*per, "setting", *count])
    sizes = cases.groupby([*per, "setting"]).size().rename("cases").reset_index()
    chosen = sizes.sort_values(["cases", "setting"]).drop_duplicates([*per], keep="last")
    wanted = frame[[*per]].merge(chosen, on=[*per], how="left")["setting"]
    kept = frame[frame["setting"].to_numpy() == wanted.to_numpy()].drop(columns="setting")
    if len(kept) == len(frame):
        return kept, []
    names = ", ".join(column.replace("_", " ") for column in columns)
    left = counted(len(frame) - len(kept), "record")
    return kept, [f"{left} under another setting ({names}) left out."]


def of_workers(frame: DataFrame, threads: float = 0) -> DataFrame:
    """Return the records with so many workers; by default with the most of each machine.

    Raises
    ------
    InputError
        No record has so many.
    """
    if not threads:
        return frame[frame["threads"] == frame.groupby("machine")["threads"].transform("max")]
    if not frame["threads"].eq(threads).any():
        known = listed([f"{count:g}" for count in sorted(set(frame["threads"]))])
        raise InputError(f"no record has {counted(int(threads), 'worker')}, only {known}")
    return frame[frame["threads"] == threads]


def with_workers(rows: DataFrame, several: bool) -> str:
    """Return how many workers these records have, after their machine where there are several."""
    first = rows.iloc[0]
    workers = counted(int(first["threads"]), "worker")
    return f"{plain(first['machine'], 24)}, {workers}" if several else workers
