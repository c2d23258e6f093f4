"""Selection of the records that a figure draws, and of comparable records.

Records whose backend, type or thread count differs from most records of their platform are left
out, since one line through different settings shows none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memkern.errors import InputError
from memkern.formats.resultset import environments_of, need_rows
from memkern.machine.environment import machine_label
from memkern.models.records import builds
from memkern.models.records import cache_ends as cache_ends
from memkern.models.records import device_cache_ends as device_cache_ends
from memkern.plots.frames import (
    Records,
    best,
    counted,
    frame_of,
    joined,
    typed,
    usable,
    validated,
    words,
)
from memkern.plots.style import plain
from memkern.plots.typenames import DataFrame

BANDWIDTH = "bandwidth_GBps"
SETTING = ("backend", "dtype", "threads")

# The first two move no data, the third is a sum of other kernels.
_NO_BANDWIDTH = ("bs.bs0", "loops.peakflops", "stream.rotation")
_NUMBERS = (
    *("elements", "rows", "degree", "unroll", "threads", "footprint_B", "bytes_B"),
    *("time_min_s", "cycles_per_vector", "performance_GFLOPs", "clock_GHz"),
    *("barrier_s", "barrier_low_s", "barrier_high_s"),
    *("ns_per_access", "size_B", "chains", "loads", "pause", "lines", "traffic_GBps"),
)


def split(kernels: str | Sequence[str]) -> list[str]:
    """Return names that are given as a list or as one text, separated by commas."""
    names = kernels.split(",") if isinstance(kernels, str) else kernels
    return [name.strip() for name in names if name.strip()]


def select(
    records: Records,
    kernels: Sequence[str],
    columns: Iterable[str] = (),
    *,
    numbers: Sequence[str] = (),
    texts: Sequence[str] = (),
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
        Required columns besides platform, kernel, valid, disturbed and `value`.
    numbers, texts : sequence of str
        Further required columns, which are returned as floats and as texts (see
        `memkern.plots.frames.typed`).
    measure : str
        Command that measures these records. If it is empty, missing records are no error.
    value : str
        Column of the values to draw. A bandwidth must be positive; rows in which another value is
        not positive are left out.

    Returns
    -------
    frame : DataFrame
        With the column machine (the platform without its thread count). Numbers are floats.
    notes : list of str
        Sentences on the records left out.

    Raises
    ------
    InputError
        No record is found, a column is missing, or a bandwidth is not a positive number.
    """
    import numpy as np

    needed = [value, *numbers, *texts, *columns]
    frame = frame_of(records)
    if records is not None and "kernel" not in frame:
        validated(frame, [], needed)  # raises an error that names all missing columns
    present = dict.fromkeys(map(str, frame.get("kernel", ())))
    names = [name for name in present if name in kernels or name.partition(".")[0] in kernels]
    if value == BANDWIDTH:
        names = [name for name in names if name not in _NO_BANDWIDTH]
    if measure and not names:
        raise InputError(f"there is no record of {', '.join(kernels)}: `{measure}` measures it")
    read = usable if value == BANDWIDTH else validated
    frame, notes = read(frame if names else None, names, needed)
    frame = typed(frame, [*numbers, *(name for name in _NUMBERS if name in frame)], texts)
    frame = frame[np.isfinite(frame[value]) & (frame[value] > 0)]
    if frame.empty and measure:
        raise InputError(
            f"no valid record of {', '.join(kernels)} has a {value}: `{measure}` measures it"
        )
    return frame.assign(machine=frame["platform"].map(machine_label)), notes


def prevailing(
    frame: DataFrame,
    columns: Sequence[str] = SETTING,
    *,
    per: Sequence[str] = ("platform",),
    count: Sequence[str] = ("kernel", "footprint_B"),
) -> tuple[DataFrame, list[str]]:
    """Return the records of the setting with the most cases, for each platform.

    Parameters
    ----------
    frame : DataFrame
        Records.
    columns : sequence of str
        Columns whose values define a setting; columns missing in the records are ignored.
    per : sequence of str
        Columns whose values define a group; one setting is chosen for each group.
    count : sequence of str
        Columns whose values define a case. Of two settings with equally many cases, the one with
        the larger values is chosen.

    Returns
    -------
    frame : DataFrame
        The records of the chosen settings.
    notes : list of str
        The number of records left out.
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
    names = ", ".join(column.replace("_", " ") for column in columns)
    left = counted(len(frame) - len(kept), "record")
    note = f"{left} under another setting ({names}) left out."
    return kept, [note] * (len(kept) < len(frame))


def by_build(frame: DataFrame, column: str, separator: str = ", ") -> DataFrame:
    """Return records whose text in a column is followed by their compiler, if there are several.

    Compilers are those of each machine's records, with their flags if these differ.
    """
    if "environment_id" not in frame:
        return frame
    build = words(frame["environment_id"].map(builds(environments_of(frame))))
    several = build.groupby(frame["machine"]).transform("nunique") > 1
    named = frame[column] + separator + build
    return frame.assign(**{column: frame[column].mask(several & build.ne(""), named)})


def of_workers(frame: DataFrame, threads: float = 0) -> DataFrame:
    """Return the records with this number of workers, by default each machine's largest.

    Raises
    ------
    InputError
        No record has this number of workers.
    """
    if not threads:
        return frame[frame["threads"] == frame.groupby("machine")["threads"].transform("max")]
    if not frame["threads"].eq(threads).any():
        known = joined([f"{count:g}" for count in sorted(set(frame["threads"]))])
        raise InputError(f"no record has {counted(int(threads), 'worker')}, only {known}")
    return frame[frame["threads"] == threads]


def longest_scan(
    frame: DataFrame, column: str, x: str, size: str, *, value: str, prefer: Sequence[str] = ()
) -> DataFrame:
    """Return the longest scan over the column `x` of each machine, the best record of each kind.

    In a scan, `column` is constant and each kind has at least two values of `x`. Of scans with
    equally many values, the one of the largest `size` is returned; the boolean columns `prefer`
    take precedence over both. The best record has the highest `value`.
    """
    frame = frame[frame.groupby(["machine", column, "kind"])[x].transform("nunique") > 1]
    if frame.empty:
        return frame
    lengths = frame.groupby(["machine", column])[x].transform("nunique")
    order = frame.assign(length=lengths).sort_values([*prefer, "length", size], kind="stable")
    chosen = order.drop_duplicates("machine", keep="last").set_index("machine")[column]
    frame = frame[frame[column] == frame["machine"].map(chosen)]
    return best(frame, ("machine", "kind", x), value=value)


def of_prefixes(
    frame: DataFrame, column: str, prefixes: Sequence[str], remedy: str, noun: str = ""
) -> DataFrame:
    """Return the records whose text in a column begins with one of some prefixes.

    Raises
    ------
    InputError
        No record does, by the noun of the column and a remedy.
    """
    kept = frame[frame[column].str.startswith(tuple(prefixes))]
    wanted = " or ".join(map(repr, prefixes))
    need_rows(kept, f"no record is of a {noun or column} {wanted}{remedy}")
    return kept


def with_workers(rows: DataFrame, several: bool) -> str:
    """Return the number of workers of these records, after their machine if there are several."""
    first = rows.iloc[0]
    workers = counted(int(first["threads"]), "worker")
    return f"{plain(first['machine'], 22)}, {workers}" if several else workers
