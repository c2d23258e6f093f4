"""Findings on messages between ranks: sentences computed from records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memkern.families.messages.data import LATENCY, MILLIONS, messages
from memkern.plots.drawing import in_bytes
from memkern.plots.frames import joined
from memkern.plots.selection import BANDWIDTH
from memkern.plots.sentences import by_machine, marked_value, shown_in

if TYPE_CHECKING:
    from pandas import DataFrame

_WHERE = {
    "same rank": "to the rank itself",
    "same node": "on a node",
    "same node by TCP": "on a node, by TCP instead of shared memory",
    "other node": "between nodes",
}


def findings(records: DataFrame) -> list[str]:
    """Return the findings on every own machine, the most important first."""
    return by_machine(messages(records, "")[0], _on_machine)


def _on_machine(mine: DataFrame) -> Sequence[str]:
    """Return the findings on one machine."""
    sentences = []
    for (library, distance), rows in mine.groupby(["library", "distance"], sort=False):
        where = f"Messages by {library} {_WHERE[str(distance)]}"
        single, several = rows[rows["window"] == 1], rows[rows["window"] > 1]
        parts = _each(single, "size_B", True, LATENCY, "µs")
        if len(parts):
            size = in_bytes(single["size_B"].min())
            sentences.append(f"{where}, {size}, one at a time: {joined(parts)}.")
        parts = _each(several, "size_B", True, MILLIONS, "million/s")
        if len(parts):
            most = int(several["window"].max())
            sentences.append(f"{where}, {most} started together: {joined(parts)}.")
        large = rows[rows["operation"] != "fetch_add"]
        parts = _each(large, BANDWIDTH, False, BANDWIDTH, "GB/s")
        if len(parts):
            sentences.append(
                f"Highest bandwidth of {where[0].lower()}{where[1:]}: {joined(parts)}."
            )
    return shown_in("messages", sentences)


def _each(rows: DataFrame, by: str, lowest: bool, column: str, unit: str) -> list[str]:
    """Return `column` of each operation's record with the lowest or highest `by`, as text."""
    order = rows.sort_values(by, ascending=lowest, kind="stable")
    chosen = {row["operation"]: row for row in order[::-1].to_dict("records")}
    return [
        f"{name.replace('_', '-')} {marked_value(chosen[name], column, unit)}"
        for name in dict.fromkeys(rows["operation"])
    ]
