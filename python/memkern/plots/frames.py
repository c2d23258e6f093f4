"""Records as data frames: validation, the best of several records, and values as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, cast

from memkern.checks import counted as counted
from memkern.checks import joined as joined
from memkern.checks import unknown
from memkern.errors import InputError
from memkern.formats.resultset import ResultSet, need_columns, need_rows
from memkern.models import T0WmaxFit, fit_t0_wmax
from memkern.models.records import (
    with_current_names,
)
from memkern.plots.typenames import DataFrame, Series
from memkern.statistics import meaningful

# Kernels with a variant `nta`, whose loads have a non-temporal prefetch hint.
_HINTED = ("loops.matvec", "spmv.crs", "spmv.sell")

Records: TypeAlias = "DataFrame | ResultSet | None"
Fits: TypeAlias = "dict[tuple[str, ...], T0WmaxFit]"


class _Facts(dict[str, Any]):
    """Constant facts of machines, not copied when pandas copies attributes with every column."""

    def __deepcopy__(self, memo: object) -> _Facts:
        return self


def frame_of(records: Records) -> DataFrame:
    """Return records as a DataFrame; None gives one without rows and columns.

    The environments of a ResultSet are in ``attrs["environments"]``, by ``environment_id``.

    Raises
    ------
    InputError
        The records are neither a DataFrame nor a ResultSet, or there are no records.
    """
    from pandas import DataFrame

    if records is None:
        return DataFrame()
    if isinstance(records, DataFrame):
        frame = records
    elif hasattr(records, "to_frame"):
        frame = records.to_frame()
        frame.attrs["environments"] = _Facts(getattr(records, "environments", {}))
    else:
        raise InputError(f"records are a {type(records).__name__}, not a DataFrame or a ResultSet")
    need_rows(frame, "there is no record to draw: the table of records has no row")
    # Files of older versions have other names of columns, and of loads with a prefetch hint.
    frame = with_current_names(frame)
    if {"kernel", "variant"} <= set(frame):
        hinted = frame["kernel"].isin(_HINTED) & frame["variant"].eq("nt")
        if hinted.any():
            frame = frame.assign(variant=frame["variant"].mask(hinted, "nta"))
    return frame


def concat(parts: Iterable[DataFrame], *, ignore_index: bool = False) -> DataFrame:
    """Return tables one below the other."""
    from pandas import concat

    return concat([*parts], ignore_index=ignore_index)


def new_table(rows: Any, index: Any = None, columns: Any = None) -> DataFrame:
    """Return a table of rows, or of columns by name."""
    from pandas import DataFrame

    return DataFrame(rows, index, columns)


def rows_of(records: Records) -> list[dict[str, Any]]:
    """Return records as `frame_of`, each as a mapping with None in place of missing values."""
    frame = frame_of(records)
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def first_of(frame: DataFrame, columns: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """Return the first row with each combination of values, and a note on the others."""
    first = frame.drop_duplicates(columns)
    left = len(frame) - len(first)
    note = f"{counted(left, 'row')} of the same names with other options left out."
    return first, [note] * (left > 0)


def of_platforms(records: Records, platforms: str | Sequence[str] | None) -> Records:
    """Return the records whose platform contains one of some texts, in upper or lower case.

    Raises
    ------
    InputError
        There is no such record for one of the texts.
    """
    if platforms is None:
        return records
    if records is None:
        raise InputError("platforms are those of own records: give records, or leave platforms out")
    frame = frame_of(records)
    need_columns(frame, "platform")
    labels = words(frame["platform"])
    kept = labels.isna()  # none
    for text in [platforms] if isinstance(platforms, str) else platforms:
        found = labels.str.contains(str(text), case=False, regex=False)
        if not found.any():
            raise unknown(text, "platform", dict.fromkeys(labels))
        kept |= found
    chosen: Records = cast("Any", records)[kept.to_numpy()]
    return chosen


def with_samples(records: Records) -> DataFrame:
    """Return records as `frame_of`, with their samples in the column samples_s.

    Records of a file without samples have none, nor those of a DataFrame without this column.
    """
    from pandas import Series

    frame = frame_of(records)
    if "samples_s" in frame:
        return frame
    known = getattr(records, "samples", None) if hasattr(records, "to_frame") else None
    column = Series(known or [()] * len(frame), index=frame.index, dtype=object)
    return frame.assign(samples_s=column)


def validated(
    records: Records, kernels: Sequence[str] | None, columns: Iterable[str]
) -> tuple[DataFrame, list[str]]:
    """Return the valid records of some kernels, and notes on the others.

    Parameters
    ----------
    records : DataFrame, ResultSet or None
        Own records, if any.
    kernels : sequence of str, optional
        Names of the kernels, by default all.
    columns : iterable of str
        Required columns besides platform, kernel, valid and disturbed.

    Returns
    -------
    frame : DataFrame
        The valid rows, with a fresh index.
    notes : list of str
        Sentences for the figure's small print.

    Raises
    ------
    InputError
        There is no record, or a column is missing.
    """
    needed = [*dict.fromkeys(("platform", "kernel", "valid", "disturbed", *columns))]
    frame = frame_of(records)
    if records is None:
        nothing = frame.reindex(columns=needed)
        return nothing.astype({"platform": str, "kernel": str, "disturbed": bool}), []
    need_columns(frame, *needed)
    if kernels is not None:
        frame = frame[frame["kernel"].isin(list(kernels))]
    valid = frame["valid"].eq(True)
    wrong = int((~valid).sum())
    notes = [f"{counted(wrong, 'record')} that failed validation left out."] * bool(wrong)
    frame = frame[valid].reset_index(drop=True)
    return frame.assign(disturbed=frame["disturbed"].eq(True)), notes


def usable(
    records: Records, kernels: Sequence[str], columns: Iterable[str]
) -> tuple[DataFrame, list[str]]:
    """Return the valid records of some kernels with their bandwidths, and notes on the others.

    Parameters
    ----------
    records, kernels, columns
        As for `validated`; bandwidth_GBps is always required.

    Returns
    -------
    frame, notes
        As for `validated`, bandwidths as floats.

    Raises
    ------
    InputError
        There is no record, a column is missing, or a bandwidth is not a positive number.
    """
    import numpy as np

    frame, notes = validated(records, kernels, ["bandwidth_GBps", *columns])
    numbers = typed(frame, ["bandwidth_GBps"])
    bandwidth = numbers["bandwidth_GBps"]
    wrong = frame[~(np.isfinite(bandwidth) & (bandwidth > 0))]
    if len(wrong):
        row = wrong.iloc[0]
        raise InputError(
            f"the record of {row['kernel']} {row.get('pattern', '')!s} on {row['platform']!s} has "
            f"the bandwidth {row['bandwidth_GBps']!s} GB/s, which is not a positive number"
        )
    return numbers, notes


# Columns of values by the time of an invocation: the names of this time and of its interval, and
# whether the value is a rate.
_BY_TIME = {
    "bandwidth_GBps": ("time_min", "time_min_ci", True),
    "rate_GAMS": ("time_min", "time_min_ci", True),
    "performance_GFLOPs": ("time_min", "time_min_ci", True),
    "messages_per_second": ("time_min", "time_min_ci", True),
    "latency_us": ("time_min", "time_min_ci", False),
    "cycles_per_vector": ("time_min", "time_min_ci", False),
    "bandwidth_median_GBps": ("time_median", "time_ci", True),
    "ns_per_access": ("time_median", "time_ci", False),
}
LOW, HIGH = "interval_low", "interval_high"
"""Columns of the ends of the interval of the value that is drawn."""


def with_ends(rows: DataFrame, value: str) -> DataFrame:
    """Add the ends of the 95 % intervals of a column for the next run, NaN where unknown.

    Published and disturbed records have none, nor have values that are by more than one time.
    """
    time, interval, rate = _BY_TIME.get(value, ("", "", False))
    names = [f"{interval}_low_s", f"{interval}_high_s", f"{time}_s"]
    numbers = typed(rows.reindex(columns=names), names)
    low, high, middle = (numbers[name] for name in names)
    if rate:
        low, high, middle = 1 / high, 1 / low, 1 / middle
    return rows.assign(**{LOW: rows[value] * low / middle, HIGH: rows[value] * high / middle})


def extent(rows: DataFrame, value: str, *limits: str) -> tuple[float, float]:
    """Return the least and the largest of the positive values in columns, with `value`'s ends."""
    numbers = with_ends(rows, value)[[value, LOW, HIGH, *limits]]
    numbers = numbers[(numbers > 0) & (numbers < math.inf)]
    return numbers.min().min(), numbers.max().max()


def best(
    frame: DataFrame,
    by: Sequence[str],
    prefer: Sequence[str] = (),
    value: str = "bandwidth_GBps",
) -> DataFrame:
    """Return the record with the highest value in each group, preferring undisturbed ones.

    Parameters
    ----------
    frame : DataFrame
        Records.
    by : sequence of str
        Columns that define a group.
    prefer : sequence of str
        Boolean columns that take precedence over the value: if one of them is true for some rows
        of a group, the best of these rows is returned.
    value : str
        Column to maximise.

    Returns
    -------
    DataFrame
        One row for each group, in the order of `frame`.
    """
    return ranked(frame, value, prefer).drop_duplicates(list(by)).sort_index()


def ranked(
    frame: DataFrame, value: str, prefer: Sequence[str] = (), *, lowest: bool = False
) -> DataFrame:
    """Return records from the best to the worst value, disturbed records last.

    Parameters
    ----------
    frame : DataFrame
        Records.
    value : str
        Column to sort by.
    prefer : sequence of str
        Boolean columns that take precedence over the disturbance and the value.
    lowest : bool
        Whether the lowest value is the best one, as for times.
    """
    quiet = ~frame["disturbed"].eq(True) if "disturbed" in frame else True
    order = frame.assign(quiet=quiet).sort_values(
        [*prefer, "quiet", value],
        ascending=[*(False for _ in prefer), False, lowest],
        kind="stable",
    )
    return order.drop(columns="quiet")


def undisturbed(frame: DataFrame) -> DataFrame:
    """Return the undisturbed records, or all records if all were disturbed."""
    quiet = ~frame["disturbed"].eq(True)
    return frame[quiet] if quiet.any() else frame


def families(frame: DataFrame) -> set[str]:
    """Return the families of the kernels in the records."""
    return {str(name).partition(".")[0] for name in frame.get("kernel", ())}


def spread(frame: DataFrame, by: Sequence[str], value: str) -> DataFrame:
    """Return the record with the median of a column in each group, of two the one with more.

    The columns ``least`` and ``most`` have the ends of the group.
    """
    alike = frame.groupby([*by], sort=False, observed=True)[value]
    frame = frame.assign(least=alike.transform("min"), most=alike.transform("max"))
    middle = alike.transform(lambda values: values.sort_values().iloc[len(values) // 2])
    return frame[frame[value] == middle].drop_duplicates([*by])


def words(column: Series) -> Series:
    """Return a column as text, '' for missing values."""
    return column.astype(object).where(column.notna(), "").astype(str)


def first_note(frame: DataFrame, column: str) -> str:
    """Return the first non-empty text of a column; empty if there is none."""
    if column not in frame:
        return ""
    return next((str(note) for note in words(frame[column]) if note), "")


def typed(frame: DataFrame, numbers: Sequence[str], texts: Sequence[str] = ()) -> DataFrame:
    """Return records with some columns as floats (NaN where not a number) and some as `words`."""
    from pandas import to_numeric

    frame = frame.assign(**{name: math.nan for name in numbers if name not in frame})
    return frame.assign(
        **{name: to_numeric(frame[name], errors="coerce").astype(float) for name in numbers},
        **{name: words(frame[name]) for name in texts},
    )


def lines_B(frame: DataFrame) -> Series:
    """Return the size in bytes of the lines that memory transfers, for each record."""
    # Files of older versions lack it, since all models counted lines of 64 bytes.
    return typed(frame, ["memory_line_B"])["memory_line_B"].fillna(64.0)


def rounded(bandwidth: float) -> str:
    """Return a bandwidth in three figures, or in full from 1000 on: 4.82, 43.7, 117."""
    return f"{bandwidth:.{0 if bandwidth >= 100 else 1 if bandwidth >= 10 else 2}f}"


def three_figures(value: float) -> str:
    """Return a number in three figures, or in full from 1000 on: 0.533, 3950."""
    return meaningful(value)


def line_fits(frame: DataFrame, by: Sequence[str]) -> Fits:
    """Fit the time of an invocation of each group of records as ``T0 + B / Wmax``.

    Parameters
    ----------
    frame : DataFrame
        With bytes_B, time_s or time_min_s, valid and disturbed.
    by : sequence of str
        The columns whose values define a group.

    Returns
    -------
    dict
        By the values of the columns; groups that can't be fitted are left out.
    """
    found = {}
    for key, mine in frame.groupby(list(by), sort=False):
        with suppress(InputError):
            found[tuple(map(str, key))] = fit_t0_wmax(mine.drop(columns=[*by]))
    return found


FIT_COLUMNS = (
    "points, T0_us and Wmax_GBps (with their 95 % intervals), B0.8 (bytes at which 80 % of Wmax is "
    "reached), far (whether most points are more than 10 % off the line)"
)


def fit_rows(fits: Fits, by: Sequence[str]) -> DataFrame:
    """Return a table with a row for each fit, and the columns `by` and `FIT_COLUMNS`."""
    rows = [
        {
            **dict(zip(by, group, strict=True)),
            "points": len(fit.residuals),
            "T0_us": fit.parameters["t0"].text(1e6),
            "Wmax_GBps": fit.parameters["wmax"].text(),
            "B0.8": fit.b80_B,
            "far": fit.far,
        }
        for group, fit in fits.items()
    ]
    return new_table(rows, columns=[*by, "points", "T0_us", "Wmax_GBps", "B0.8", "far"])


def percent(share: float) -> str:
    """Return a share in percent with two figures: 48 %, 0.0037 %."""
    if share < 1e-5:
        return "< 0.001 %"
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.2g} %"
