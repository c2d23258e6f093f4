"""Figures of merit of atomics: additions to private words and to one shared word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memkern.models.merit import FigureOfMerit, best_record, valid_records

if TYPE_CHECKING:
    from pandas import DataFrame


def figures_of_merit(frame: DataFrame) -> list[FigureOfMerit]:
    """Return the rates of atomic additions by most threads, to private words and to one word."""
    rows = valid_records(frame, ["amo.central", "amo.stride1"], "rate_GAMS")
    if rows.empty:
        return []
    rows = rows[rows["primitive"].eq("add") & rows["threads"].eq(rows["threads"].max())]
    central, private = rows["kernel"].eq("amo.central"), rows["sharing"].eq("private")
    # Without words of different lines, STRIDE1's words, which the caches hold and no worker shares.
    apart = rows[central & private & rows["padding_B"].ge(64)]
    apart = apart if len(apart) else rows[~central & ~private]
    found = []
    for name, title, mine in (
        ("atomics_private", "Atomic adds to private words", apart),
        ("atomics_shared", "Atomic adds to one word", rows[central & ~private]),
    ):
        if len(mine):
            record = best_record(mine, "rate_GAMS")
            amount = record["rate_GAMS"] * record["time_min_s"]
            found.append(FigureOfMerit(name, title, "GAMS", 7, record, amount))
    return found
