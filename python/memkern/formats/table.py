"""The table of results that a notebook shows."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

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
    ("time_min_s", "min. time"),
    ("time_min_ci_relative", "± next run"),
)


def html_table(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the records as an HTML table with inline styles, which notebooks keep."""
    shown = records[:_SHOWN_ROWS]
    columns = [
        (name, title)
        for name, title in _COLUMNS
        if any(_shown(name, record.get(name)) for record in shown)
    ]
    cell = "padding:.2em .7em;text-align:"
    head = "".join(
        f'<th style="{cell}{_align(name, shown)}">{html.escape(title)}</th>'
        for name, title in columns
    )
    body = []
    for record in shown:
        mark, colour = _mark(record)
        cells = "".join(
            f'<td style="{cell}{_align(name, shown)}">'
            f"{html.escape(_shown(name, record.get(name)))}</td>"
            for name, _ in columns
        )
        style = f' style="background:{colour};color:#222"' if colour else ""
        body.append(f'<tr{style}>{cells}<td style="{cell}left">{mark}</td></tr>')
    platforms = sorted({str(record["platform"]) for record in records if record.get("platform")})
    rest = len(records) - len(shown)
    caption = f"{len(records)} record{'' if len(records) == 1 else 's'}"
    caption += f" on {', '.join(platforms)}" if platforms else ""
    caption += f"; the first {len(shown)} are shown" if rest else ""
    return (
        '<table style="border-collapse:collapse;font-variant-numeric:tabular-nums">'
        f'<caption style="text-align:left;padding:.3em 0">{html.escape(caption)}</caption>'
        f'<thead style="border-bottom:1px solid">'
        f"<tr>{head}<th></th></tr></thead><tbody>{''.join(body)}</tbody></table>"
    )


def _mark(record: Mapping[str, Any]) -> tuple[str, str]:
    if record.get("valid") is False:
        return "✗ invalid", "#f6c6bd"
    return ("~ disturbed", "#fbe6b0") if record.get("disturbed") else ("", "")


def _align(name: str, records: Sequence[Mapping[str, Any]]) -> str:
    text = any(isinstance(record.get(name), str) for record in records)
    return "left" if text and name != "delta" else "right"


def _shown(name: str, value: Any) -> str:
    if value is None or value != value:
        return ""
    if not isinstance(value, float):
        return f"{value:,}".replace(",", "\u202f") if isinstance(value, int) else str(value)
    if name == "time_min_ci_relative":
        return f"{value:.1%}"
    if name.endswith("_s"):
        exponent = min(max(math.floor(math.log10(value) / 3), -3), 0) if value > 0 else 0
        unit = {0: "s", -1: "ms", -2: "µs", -3: "ns"}[exponent]
        return f"{value / 1000.0**exponent:.4g} {unit}"
    return f"{value:.4g}"
