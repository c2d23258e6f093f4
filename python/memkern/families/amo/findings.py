"""Findings on atomic operations: sentences computed from records."""

from __future__ import annotations

from functools import partial
from typing import Any

from memkern.families.amo.data import (
    NEIGHBOURS,
    ONE_WORD,
    RATE,
    atomics,
    chases,
    in_rows,
    limits,
    one_setting,
    prices,
    shared_lines,
)
from memkern.plots.kit import (
    DataFrame,
    Finding,
    by_machine,
    by_value,
    counted,
    joined,
    of_workers,
    say,
    tell,
    with_workers,
)

# Patterns from uncontended to fully contended, with their wording in a sentence.
_CONTRASTED = {"rand": "at random places", "central": "at one word for all"}


def findings(records: DataFrame) -> list[str]:
    """Return the findings on every own machine, the most important first."""
    frame, _ = atomics(records, "")
    limited = limits(records)[["limit_GAMS", "share", "flush_every"]].rename(
        columns={"flush_every": "together"}
    )
    return by_machine(frame.join(limited), partial(tell, _ROWS))


def _contended(mine: DataFrame) -> DataFrame:
    """Return the records that share words as CircusTent does, by the most workers."""
    original = mine[mine["sharing"] == "original"]
    return in_rows(of_workers(one_setting(original)[0])) if len(original) else original


def _smallest(rows: DataFrame, pattern: str) -> DataFrame:
    """Return the records of a pattern at the smallest measured size."""
    rows = rows[rows["pattern"] == pattern]
    return rows[rows["row"] == rows["row"].iloc[0]] if len(rows) else rows


def _rates(mine: DataFrame) -> list[dict[Any, Any]]:
    """Return the rates of adds and compare-and-swaps by contention."""
    rows, found = _contended(mine), list[dict[Any, Any]]()
    for pattern, words in _CONTRASTED.items():
        here = by_value(_smallest(rows, pattern), "primitive") if len(rows) else {}
        both = [here[name] for name in ("add", "cas") if name in here]
        if both:
            values = joined([say("{primitive} {rate_GAMS}", row) for row in both])
            about = {"workers": with_workers(rows, False), "words": words, "values": values}
            found.append({**both[-1], **about})
    return found


def _prices(mine: DataFrame) -> list[dict[Any, Any]]:
    """Return the costs of atomic adds in plain additions."""
    rows = _contended(mine)
    if rows.empty:
        return []
    paid, workers = prices(rows, ["add"]), with_workers(rows, False)
    return [
        {
            **row,
            "workers": workers,
            "words": words,
            "lost": say(", of which {lost_fraction:%} are lost", row)
            if row["lost_fraction"] > 0
            else "",
        }
        for pattern, words in _CONTRASTED.items()
        for row in _smallest(paid, pattern).to_dict("records")
    ]


def _by_line(mine: DataFrame) -> dict[str, dict[Any, Any]]:
    """Return the adds of the most workers by how they share words, the widest gap first."""
    rows = shared_lines(mine[mine["primitive"] == "add"])
    rows = rows[rows["threads"] > 1]
    return by_value(of_workers(rows), "line") if len(rows) else {}


def _false_sharing(mine: DataFrame) -> dict[str, Any]:
    """Return the rates with words apart and in one line."""
    rows = _by_line(mine)
    far = [row for line, row in rows.items() if line not in (NEIGHBOURS, ONE_WORD)]
    if not far or NEIGHBOURS not in rows:
        return {}
    near, apart = rows[NEIGHBOURS], far[0]
    return {
        "workers": counted(int(near["threads"]), "worker"),
        "apart": say("{rate_GAMS} with the words {padding_B:g} B apart", apart),
        "near": say("{rate_GAMS} with the words in one cache line", near),
        "factor": apart[RATE] / near[RATE],
        "shared": say(". On one common word they reach {rate_GAMS}", rows[ONE_WORD])
        if ONE_WORD in rows
        else "",
    }


def _latencies(mine: DataFrame) -> list[dict[Any, Any]]:
    """Return the times of dependent operations in the smallest and the largest array."""
    found = list[dict[Any, Any]]()
    rows = chases(mine)
    for name in ("add", "cas", "plain"):
        ends = rows[rows["primitive"] == name].to_dict("records")
        if ends:
            times = [say("{ns} in {size_B:B}", end) for end in (ends[0], ends[-1])]
            found.append({"name": name, "times": joined(times)})
    return found


def _limits(mine: DataFrame) -> list[dict[Any, Any]]:
    """Return the rates over ranks that are the lowest and the highest shares of their limits."""
    rows = mine.dropna(subset="limit_GAMS").sort_values("share").to_dict("records")
    return [{**row, "pattern": row["pattern"].upper()} for row in rows[:1] + rows[1:][-1:]]


_ROWS = (
    Finding(
        "amo-rates", _rates, "Atomic operations of {workers}: {parts}.", "{words} ({row}) {values}",
        joint="; ",
    ),
    Finding(
        "amo-rates",
        lambda mine: [row for row in _rates(mine) if row["success_fraction"] < 0.995],
        "{success_fraction:%} of the compare-and-swaps {words} succeed.",
    ),
    Finding(
        "amo-price", _prices,
        "Number of plain additions (a load and a store) in the time of one atomic add, with "
        "{workers}: {parts}.",
        "{price:3}{mark} {words} ({row}){lost}",
        joint="; ",
    ),
    Finding(
        "amo-sharing", _false_sharing,
        "{workers} on separate words reach {apart}, and {near}: false sharing costs a factor of "
        "{factor:.1f}{shared}.",
    ),
    Finding(
        "amo-latency", _latencies, "In a chain of dependent operations, {parts}.",
        "{name} takes {times}",
    ),
    Finding(
        "amo-limits", _limits,
        "Atomic operations on words of other ranks, as shares of the rate of fetch-and-adds "
        "between ranks: {parts}.",
        "{share:%}{mark} in {pattern} with targets {targets} and {together:g} completed together",
        joint=" to ",
    ),
)  # fmt: skip
