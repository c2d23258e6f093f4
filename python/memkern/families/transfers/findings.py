"""Findings on transfers from and to a GPU: sentences computed from records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memkern.families.transfers.data import WAYS, fits, transfers
from memkern.plots.frames import joined, three_figures
from memkern.plots.selection import BANDWIDTH
from memkern.plots.sentences import by_machine, marked_value, shown_in

if TYPE_CHECKING:
    from pandas import DataFrame


def findings(records: DataFrame) -> list[str]:
    """Return the findings on every own machine, the most important first."""
    return by_machine(transfers(records, "")[0], _on_machine)


def _on_machine(mine: DataFrame) -> Sequence[str]:
    """Return the findings on one machine."""
    sentences = []
    for way, rows in mine.groupby("way", sort=False):
        order = rows.sort_values(BANDWIDTH, ascending=False, kind="stable")
        top = order.drop_duplicates("series").to_dict("records")
        parts = [f"{row['series']} {marked_value(row, BANDWIDTH, 'GB/s')}" for row in top]
        sentences.append(f"{WAYS[str(way)]}, highest bandwidth: {joined(parts)}.")
    resolved = {of: fit.t0_s for of, fit in fits(mine)[0].items() if fit.t0_resolved}
    if resolved:
        parts = [
            f"{WAYS[way].lower()}, {series}, {three_figures(1e6 * t0_s)} µs"
            for (_, way, series), t0_s in sorted(resolved.items(), key=lambda item: item[1])
        ]
        sentences.append(f"Time of a transfer of no data: {'; '.join(parts)}.")
    return shown_in("transfers", sentences)
