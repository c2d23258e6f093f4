"""Figures of merit of atomics: additions to private words and to one shared word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memkern.models.merit import FigureOfMerit, best_record, valid_records

if TYPE_CHECKING:
    from pandas import DataFrame


_SHARED = "Atomic adds to one word"
_PRIVATE = "Atomic adds to private words"


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
    parts = (
        ("atomics_private", _PRIVATE, 7, apart),
        ("atomics_shared", _SHARED, 7, rows[central & ~private]),
    )
    return [
        _figure(best_record(mine, "rate_GAMS"), name, title, position)
        for name, title, position, mine in parts
        if len(mine)
    ]


def _figure(record: dict[str, Any], name: str, title: str, position: int) -> FigureOfMerit:
    amount = record["rate_GAMS"] * record["time_min_s"]
    return FigureOfMerit(name, title, "GAMS", position, record, amount)
