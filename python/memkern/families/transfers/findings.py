"""Findings on transfers from and to a GPU: sentences computed from records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memkern.families.transfers.data import WAYS, fits, transfers
from memkern.plots.frames import listed, three_figures
from memkern.plots.selection import BANDWIDTH
from memkern.plots.sentences import marked_value, with_names

if TYPE_CHECKING:
    from pandas import DataFrame


def findings(records: DataFrame) -> list[str]:
    """Return the findings on every own machine, the most important first.

    Raises
    ------
    InputError
        Records without a needed column.
    """
    frame, _ = transfers(records, "")
    machines = frame.groupby("machine", sort=False)
    return with_names({name: _on_machine(mine) for name, mine in machines})


def _on_machine(mine: DataFrame) -> list[str]:
    """Return the findings on one machine."""
    sentences = []
    for way, rows in mine.groupby("way", sort=False):
        order = rows.sort_values(BANDWIDTH, ascending=False, kind="stable")
        top = order.drop_duplicates("series").to_dict("records")
        parts = [f"{row['series']} {marked_value(row, BANDWIDTH, 'GB/s')}" for row in top]
        sentences.append(f"{WAYS[str(way)]}, highest bandwidth: {listed(parts)}.")
    shortest = [one for one in fits(mine)[0] if one.fit.t0_resolved]
    if shortest:
        parts = [
            f"{WAYS[one.way].lower()}, {one.series}, {three_figures(1e6 * one.fit.t0_s)} µs"
            for one in sorted(shortest, key=lambda one: one.fit.t0_s)
        ]
        sentences.append(f"Time of a transfer of no data: {'; '.join(parts)}.")
    return sentences
