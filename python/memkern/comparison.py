"""Two sets of records, case by case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from memkern import statistics
from memkern.errors import InputError
from memkern.results import ResultSet

if TYPE_CHECKING:
    from pandas import DataFrame

# What makes two records the same case, besides the columns that a record names itself. Columns that
# differ between the two sets as wholes (pages here 4k and there thp, say) are what is being
# compared and do not count.
_ASKED = (
    "kernel", "definition", "name", "dtype", "index_dtype", "threads", "variant_asked", "isa_asked",
    "pin_asked", "pages_asked", "numa_asked", "offset", "schedule", "chunk", "prefetch", "unroll",
    "repetition", "rotation", "flush", "device", "timer", "block_threads_asked",
)  # fmt: skip


def compare(a: ResultSet, b: ResultSet, *, level: float = 0.95) -> DataFrame:
    """Ratio of two sets of records, with intervals over repeats.

    Parameters
    ----------
    a, b : ResultSet
        Each case may stand in several repeats. With one repeat only there is no interval: what
        varies from run to run (placement, pages, neighbours) was not seen.
    level : float
        Confidence level.

    Returns
    -------
    DataFrame
        A row for each case in both: the columns that tell the cases apart, medians of the
        repeats' bandwidths ``a_GBps`` and ``b_GBps``, ``ratio`` (a over b), ``low``, ``high``,
        ``repeats`` (the fewer of both sides) and ``verdict``. The last row is the geometric mean
        of the ratios. ``attrs["compared"]`` lists the columns in which the sets differ.

    Raises
    ------
    InputError
        No case is in both.
    """
    import pandas as pd

    named = {str(_value(record, "case_columns") or "") for record in [*a, *b]}
    asked = (*_ASKED, *sorted({column for columns in named for column in columns.split()}))
    compared = [
        c for c in asked if _single(a, c) and _single(b, c) and _values(a, c) != _values(b, c)
    ]
    keys = [c for c in asked if c not in compared]
    left, right = _grouped(a, keys), _grouped(b, keys)
    common = [key for key in left if key in right]
    if not common:
        raise InputError("the two files have no case in common: compare runs of the same cases")
    shown = [c for c in keys if len(_values(a, c)) > 1] or ["kernel"]
    rows: list[dict[str, Any]] = []
    for key in common:
        ratio = statistics.ratio_interval(left[key], right[key], level)
        rows.append(
            {
                **{c: v for c, v in zip(keys, key, strict=True) if c in shown},
                "a_GBps": statistics.quartiles(left[key])[1],
                "b_GBps": statistics.quartiles(right[key])[1],
                "ratio": ratio.ratio,
                "low": ratio.low,
                "high": ratio.high,
                "repeats": min(len(left[key]), len(right[key])),
                "verdict": _verdict(ratio),
            }
        )
    mean = statistics.geometric_mean([row["ratio"] for row in rows])
    rows.append({shown[0]: f"geometric mean of {len(rows)}", "ratio": mean, "verdict": ""})
    frame = pd.DataFrame(rows)
    frame.attrs["compared"] = compared
    return frame


def _verdict(ratio: statistics.Ratio) -> str:
    if ratio.level == 0:
        return "one repeat"
    if ratio.low > 1:
        return "faster"
    return "slower" if ratio.high < 1 else "no difference seen"


def _value(record: Mapping[str, Any], column: str) -> Any:
    """Return a value that equals itself, None where there is none."""
    value = record.get(column)
    return value if value == value else None


def _values(results: ResultSet, column: str) -> set[Any]:
    return {_value(record, column) for record in results}


def _single(results: ResultSet, column: str) -> bool:
    return len(_values(results, column)) == 1


def _grouped(results: ResultSet, keys: Iterable[str]) -> dict[tuple[Any, ...], list[float]]:
    groups: dict[tuple[Any, ...], list[float]] = {}
    for record in results:
        if record["valid"] and record["bytes_B"] > 0:
            key = tuple(_value(record, column) for column in keys)
            groups.setdefault(key, []).append(float(record["bandwidth_median_GBps"]))
    return groups
