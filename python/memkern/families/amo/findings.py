"""Findings on atomic operations: sentences computed from records."""

from __future__ import annotations

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
    by_value,
    disturbed_mark,
    in_bytes,
    joined,
    marked_value,
    of_workers,
    percent,
    shown_in,
    three_figures,
    told,
    with_names,
    with_workers,
)

# Patterns from uncontended to fully contended, with their wording in a sentence.
_CONTRASTED = {"rand": "at random places", "central": "at one word for all"}


def findings(records: DataFrame) -> list[str]:
    """Return the findings on every own machine, the most important first."""
    frame, _ = atomics(records, "")
    found = limits(records)
    return with_names(
        {
            name: [
                *_on_machine(mine),
                *shown_in("amo-limits", told(found[found["machine"] == name], _on_limits)),
            ]
            for name, mine in frame.groupby("machine", sort=False)
        }
    )


def _on_machine(mine: DataFrame) -> list[str]:
    """Return the findings on one machine."""
    return [
        *told(mine[mine["sharing"] == "original"], _on_contention),
        *shown_in("amo-sharing", _on_sharing(mine)),
        *shown_in("amo-latency", _on_latency(mine)),
    ]


def _on_contention(mine: DataFrame) -> list[str]:
    """Return the findings on rates and prices of records that share words as CircusTent does."""
    rows = in_rows(of_workers(one_setting(mine)[0]))
    return [*shown_in("amo-rates", _on_rates(rows)), *shown_in("amo-price", _on_price(rows))]


def _smallest(rows: DataFrame, pattern: str) -> DataFrame:
    """Return the records of a pattern at the smallest measured size."""
    rows = rows[rows["pattern"] == pattern]
    return rows[rows["row"] == rows["row"].iloc[0]] if len(rows) else rows


def _on_rates(rows: DataFrame) -> list[str]:
    """Return the sentence on the rates of adds and compare-and-swaps by contention."""
    parts, failed = [], ""
    for pattern, words in _CONTRASTED.items():
        mine = _smallest(rows, pattern)
        here = by_value(mine, "primitive")
        both = [
            f"{name} {marked_value(here[name], RATE, 'GAMS')}"
            for name in ("add", "cas")
            if name in here
        ]
        if both:
            parts.append(f"{words} ({mine['row'].iloc[0]}) {joined(both)}")
        success = here.get("cas", {}).get("success_fraction", 1.0)
        if success < 0.995:
            failed += f" {100 * success:.0f} % of the compare-and-swaps {words} succeed."
    if not parts:
        return []
    return [f"Atomic operations of {with_workers(rows, False)}: {'; '.join(parts)}.{failed}"]


def _on_price(rows: DataFrame) -> list[str]:
    """Return the sentence on the cost of an atomic add in plain additions."""
    paid = prices(rows, ["add"])
    parts = []
    for pattern, words in _CONTRASTED.items():
        for row in _smallest(paid, pattern).to_dict("records"):
            share = percent(row["lost_fraction"])
            lost = f", of which {share} are lost" if row["lost_fraction"] > 0 else ""
            mark = disturbed_mark(row["disturbed"])
            parts.append(f"{three_figures(row['price'])}{mark} {words} ({row['row']}){lost}")
    if not parts:
        return []
    return [
        f"Number of plain additions (a load and a store) in the time of one atomic add, with "
        f"{with_workers(rows, False)}: {'; '.join(parts)}."
    ]


def _on_sharing(mine: DataFrame) -> list[str]:
    """Return the sentences on the cost of sharing a line, and of sharing one word."""
    rows = shared_lines(mine[mine["primitive"] == "add"])
    rows = rows[rows["threads"] > 1]
    if rows.empty:
        return []
    rows = of_workers(rows)
    by_line = by_value(rows, "line")
    far = [row for line, row in by_line.items() if line not in (NEIGHBOURS, ONE_WORD)]
    if not far or NEIGHBOURS not in by_line:
        return []
    # The widest gap is first.
    apart, near = far[0], by_line[NEIGHBOURS]
    text = (
        f"{with_workers(rows, False)} on separate words reach "
        f"{marked_value(apart, RATE, 'GAMS')} with the words {apart['padding_B']:g} B apart, and "
        f"{marked_value(near, RATE, 'GAMS')} with the words in one cache line: "
        f"false sharing costs a factor of {apart[RATE] / near[RATE]:.1f}"
    )
    if ONE_WORD in by_line:
        text += f". On one common word they reach {marked_value(by_line[ONE_WORD], RATE, 'GAMS')}"
    return [f"{text}."]


def _on_latency(mine: DataFrame) -> list[str]:
    """Return the sentence on the time of dependent operations in small and large arrays."""
    rows = chases(mine)
    parts = []
    for name in ("add", "cas", "plain"):
        ends = rows[rows["primitive"] == name]
        if len(ends):
            times = [
                f"{marked_value(end, 'ns', 'ns')} in {in_bytes(end['size_B'])}"
                for end in ends.iloc[[0, -1]].to_dict("records")
            ]
            parts.append(f"{name} takes {joined(times)}")
    return [f"In a chain of dependent operations, {joined(parts)}."] if parts else []


def _on_limits(rows: DataFrame) -> list[str]:
    """Return the sentence on rates over ranks and their upper limits from fetch-and-adds."""
    least, most = rows.sort_values("share").iloc[[0, -1]].to_dict("records")
    parts = [
        f"{percent(row['share'])}{disturbed_mark(row['disturbed'])} in {row['pattern'].upper()} "
        f"with targets {row['targets']} and {row['flush_every']:g} completed together"
        for row in ([least, most] if len(rows) > 1 else [least])
    ]
    return [
        "Atomic operations on words of other ranks, as shares of the rate of fetch-and-adds "
        f"between ranks: {' to '.join(parts)}."
    ]
