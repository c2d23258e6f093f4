"""Records as a notebook shows them: a table of several, and one in a line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from memkern.checks import shown
from memkern.markup import html_table
from memkern.statistics import half_width

_SHOWN_ROWS = 60
_COLUMNS: Sequence[tuple[str, str]] = (
    ("kernel", "kernel"),
    ("name", "name"),
    ("pattern", "pattern"),
    ("delta", "delta"),
    ("count", "count"),
    ("variant", "variant"),
    ("isa", "ISA"),
    ("threads", "threads"),
    ("bandwidth_GBps", "GB/s"),
    ("performance_GFLOPs", "GFLOP/s"),
    ("rate_GAMS", "GAMS"),
    ("ns_per_access", "ns per access"),
    ("time_min_s", "min. time"),
    ("time_min_ci_relative", "± next run"),
)


# The first of these rates that a record has is its main value, by the shortest or the median time,
# whose interval has the name in the last column.
_RATES: Sequence[tuple[str, str, str, str]] = (
    ("ns_per_access", "ns per access", "time_median_s", "time_ci"),
    ("rate_GAMS", "GAMS", "time_min_s", "time_min_ci"),
    ("bandwidth_GBps", "GB/s", "time_min_s", "time_min_ci"),
    ("performance_GFLOPs", "GFLOP/s", "time_min_s", "time_min_ci"),
)


def records_table(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the main columns of records as an HTML table."""
    some = records[:_SHOWN_ROWS]
    columns = [
        (name, title)
        for name, title in _COLUMNS
        if any(_shown(name, record.get(name)) for record in some)
    ]
    marks = [_mark(record) for record in some]
    rows = [
        [*(_shown(name, record.get(name)) for name, _ in columns), mark]
        for record, (mark, _) in zip(some, marks, strict=True)
    ]
    platforms = sorted({str(record["platform"]) for record in records if record.get("platform")})
    caption = (
        f"{len(records)} record{'' if len(records) == 1 else 's'}"
        + f" on {', '.join(platforms)}" * bool(platforms)
        + f"; the first {len(some)} are shown" * (len(records) > len(some))
    )
    return html_table(
        caption,
        [*(title for _, title in columns), ""],
        rows,
        right={
            i
            for i, (name, _) in enumerate(columns)
            if name == "delta" or not any(isinstance(record.get(name), str) for record in some)
        },
        colours=[colour for _, colour in marks],
    )


def record_line(record: Mapping[str, Any]) -> str:
    """Return a record in one line: its case, its main value with the interval, and its state."""
    names = str(record.get("case_columns") or "pattern").split()
    inputs = {name: record[name] for name in ("name", *names, "threads") if record.get(name)}
    ran = " ".join(str(record[name]) for name in ("variant", "isa") if record.get(name))
    valid = "valid" if record.get("valid") else "invalid"
    parts = [
        ", ".join([str(record.get("kernel")), *(f"{k}={shown(v)}" for k, v in inputs.items())]),
        ran,
        _main_value(record),
        ", ".join(filter(None, (valid, str(record.get("state") or "")))),
    ]
    return "; ".join(filter(None, parts))


def _main_value(record: Mapping[str, Any]) -> str:
    """Return the main value of a record in its unit, with its interval if it has one."""
    for name, unit, time, interval_of in _RATES:
        value = record.get(name)
        if value and math.isfinite(value):
            time_s = record.get(time) or math.nan
            ends = [record.get(f"{interval_of}_{end}_s") or math.nan for end in ("low", "high")]
            ratios = [end / time_s if name == "ns_per_access" else time_s / end for end in ends]
            low, high = sorted(value * ratio for ratio in ratios)
            interval = f" [{low:.4g}, {high:.4g}]" if low <= high else ""
            return f"{value:.4g} {unit}{interval}"
    return _shown("time_min_s", record.get("time_min_s"))


def _mark(record: Mapping[str, Any]) -> tuple[str, str]:
    if record.get("valid") is False:
        return "✗ invalid", "#f6c6bd"
    return ("~ disturbed", "#fbe6b0") if record.get("disturbed") else ("", "")


def _shown(name: str, value: Any) -> str:
    if value is None or value != value:
        return ""
    if not isinstance(value, float):
        return f"{value:,}".replace(",", "\u202f") if isinstance(value, int) else str(value)
    if name == "time_min_ci_relative":
        return half_width(value, "{}%")
    if name.endswith("_s"):
        exponent = min(max(math.floor(math.log10(value) / 3), -3), 0) if value > 0 else 0
        unit = {0: "s", -1: "ms", -2: "µs", -3: "ns"}[exponent]
        return f"{value / 1000.0**exponent:.4g} {unit}"
    return f"{value:.4g}"
