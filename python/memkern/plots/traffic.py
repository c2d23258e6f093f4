"""The figure and the table of counted traffic beside the traffic of the model."""

from __future__ import annotations

import json
from typing import Any

from memkern.plots.kit import (
    Axis,
    DataFrame,
    Dots,
    Level,
    Records,
    Selection,
    Series,
    counted,
    first_note,
    lines_B,
    ordered,
    plain,
    spaced,
    table,
    table_of,
    typed,
    validated,
)

# By quantity of memkern.machine.events.
_NAMES = {
    "L2_load": "loads from L2",
    "L2_store": "stores to L2",
    "L3_load": "loads from L3",
    "L3_store": "stores to L3",
    "memory_load": "loads from memory",
    "memory_store": "stores to memory",
}
_AGREES = (0.9, 1.1)


def traffic_B(frame: DataFrame, level: str, *, counted: bool) -> Series:
    """Return the bytes of an invocation between a level and the level above, in both directions.

    Parameters
    ----------
    frame : DataFrame
        Records.
    level : str
        ``memory``, ``L2`` or ``L3``.
    counted : bool
        Whether by counters, instead of by the model. NaN where a direction was not counted.
    """
    names = [f"{'counted_' * counted}{level}_{way}_B" for way in ("load", "store")]
    load, store = (typed(frame, names)[name] for name in names)
    return load + store


def _counted(records: Records) -> Selection:
    """Return a row for each counted level and direction of the valid records, with notes."""
    frame, notes = validated(records, None, [])
    frame = frame.assign(memory_line_B=lines_B(frame))
    rows = [
        _row(record, counts)
        for record in frame.to_dict("records")
        for counts in _counts(record)
        if counts["event"] in _NAMES and counts.get("count") is not None
    ]
    why = first_note(frame, "counters_note") or "measure with --counters auto"
    found = table_of(rows, f"no record has counts of the traffic of a level: {why}")
    return found.astype({"ratio": float, "checked": float}), notes


@table(
    "counters",
    "platform, kernel, case, quantity, counted_B and model_B (bytes of an invocation), ratio, "
    "running (share of the time in which the counter ran), checked (its ratio on work of which the "
    "count is known, NaN if it was not checked) and disturbed",
    records="Own records that were measured with ``--counters``",
    lack="no record has counts of traffic; the message says why, as far as the records tell",
)
def traffic_table(records: Records = None) -> Selection:
    """Traffic of each level by counters and by the model, with the ratio."""
    return _counted(records)


def _counts(record: dict[Any, Any]) -> list[dict[str, Any]]:
    """Return the counted events of a record."""
    text = record.get("counter_rows")
    found: list[dict[str, Any]] = json.loads(text) if isinstance(text, str) and text else []
    return found


def _row(record: dict[Any, Any], counts: dict[str, Any]) -> dict[str, Any]:
    model, line_B = counts.get("model"), record["memory_line_B"]
    return {
        "platform": record["platform"],
        "kernel": record["kernel"],
        "case": _case(record),
        "quantity": counts["event"],
        "counted_B": line_B * counts["count"],
        "model_B": float("nan") if model is None else line_B * model,
        "ratio": counts["count"] / model if model else float("nan"),
        "running": counts["running"],
        "checked": counts.get("checked"),
        "disturbed": record["disturbed"],
    }


def _case(record: dict[Any, Any]) -> str:
    """Return the text that distinguishes a case in a row of the figure."""

    def value(name: str) -> Any:
        found = record.get(name)
        return "" if found is None or found != found else found

    inputs = [plain(value(name), 24) for name in ("pattern", "matrix", "lattice", "layout")]
    if not any(inputs) and (elements := value("elements")):
        inputs.append(f"{spaced(elements)} elements")
    shown = [record["kernel"].partition(".")[2], str(value("variant")), *inputs]
    if record.get("prefetchers") == "off":
        shown.append("prefetchers off")
    return ", ".join(filter(None, shown))


@Dots(
    name="counters",
    value=Axis("ratio", "Counted over modelled traffic"),
    by="series",
    panels=("platform",),
    columns=1,
    height=0.4,
    legend=4,
    around=(0.5, 2.0),
    layers=(Level(1.0, upright=True),),
    title=lambda rows, _: plain(rows["platform"].iloc[0]),
    remark="Hollow: from a disturbed record, or not found right by memkern machine counters "
    "--check.",
    returns="A panel for each platform, 6.9 in wide: a row for each case, a series for each level "
    "and direction, with the ratio. Hollow marks are of disturbed records, or of events that were "
    "not found right on work of which the count is known.",
    records="Own records that were measured with ``--counters``",
    lack="no counted level has traffic by the model",
    measure="memkern stream -k triad --counters auto -o counts.parquet",
)
def counted_traffic(records: Records = None) -> Selection:
    """Traffic of each level by counters over that by the model."""
    every, notes = _counted(records)
    drawn = every[every["ratio"] > 0]
    left = len(every) - len(drawn)
    beside = [f"{counted(left, 'count')} of levels without traffic by the model left out."]
    shared = drawn["running"].min()
    turns = f"Counters took turns: extrapolated from at least {shared:.0%} of the time."
    frame = drawn.assign(
        row=drawn["case"],
        series=drawn["quantity"].map(_NAMES),
        disturbed=drawn["disturbed"] | ~drawn["checked"].between(*_AGREES),
    ).drop(columns="quantity")
    frame = ordered(frame, "series", _NAMES.values())
    return frame, notes + beside * (left > 0) + [turns] * bool(shared < 0.995)
