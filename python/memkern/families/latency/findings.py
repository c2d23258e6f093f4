"""Findings on latencies: of loads alone and in parallel, of caches, and between cores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memkern.families.latency.data import (
    DIFFERS,
    MEASURE,
    NS,
    PING_PONG,
    chains_and_gathers,
    chases,
    concurrency,
    level_in,
)
from memkern.families.latency.structure_data import structure_rows
from memkern.models.memory import middle
from memkern.plots.kit import (
    DataFrame,
    InputError,
    Records,
    Sentence,
    cache_ends,
    environments_of,
    frame_of,
    in_bytes,
    joined,
    marked_value,
    select,
    shown_in,
    three_figures,
    with_names,
)


def _differences(records: Records) -> list[dict[str, Any]]:
    """Return the rows of the table latency-structure that disagree with the system.

    Caches are left out if their sizes were measured in this boot: reports begin with these.
    """
    known = any(one.get("measured_caches") for one in environments_of(frame_of(records)).values())
    try:
        return [
            row
            for row in structure_rows(records)
            if row["agrees"] == DIFFERS and not (known and row["what"].startswith("cache"))
        ]
    except InputError:  # from another study, without the columns of the table
        return []


def _gathers_beside_bound(records: Records) -> Iterator[tuple[object, str]]:
    """Yield machines and their sentences on the bound of random gathers and the share reached."""
    try:
        chains, loads, *_ = chains_and_gathers(records)
    except InputError:  # either is not measured
        return
    for machine, rows in chains.groupby("machine", sort=False):
        most = rows.sort_values(["rate", "chains"], ascending=[True, False]).iloc[-1]
        text = (
            f"{int(most['chains'])} chains in {in_bytes(most['size_B'])} load "
            f"{three_figures(most['rate'])} million lines/s, which bounds random gathers of a core"
        )
        gathered = loads[(loads["machine"] == machine) & loads["stride_B"].isna()]["rate"].max()
        if gathered == gathered:
            share = 100 * gathered / most["rate"]
            text += f"; a random gather loads {three_figures(gathered)}, {share:.0f} % of it"
        yield machine, text


def _by_level(rows: DataFrame) -> list[str]:
    """Return the latency of each level of memory; without caches of the smallest and largest size.

    That of a level is the one of its `middle` record, as in the table of ``memkern latency``, in
    the verdict on health and on the first page of a report.
    """
    rows, ends = rows.sort_values("size_B"), cache_ends(rows)
    levels = [level_in(row, ends) for row in rows.to_dict("records")]
    rows = rows.assign(place=levels if any(levels) else [*map(in_bytes, rows["size_B"])])
    parts = [
        f"{marked_value(middle(own.to_dict('records'), NS), NS, 'ns', 'ci_relative')} in {place!s}"
        for place, own in rows.groupby("place", sort=False)
        if place
    ]
    return parts if any(levels) else [*dict.fromkeys([parts[0], parts[-1]])]


def findings(records: Records) -> list[str]:
    """Return sentences on latencies, misses in flight, and lines that two cores exchange."""
    frame, _ = chases(records, MEASURE)
    single = frame[(frame["chains"] == 1) & (frame["order"] == "random")]
    found: dict[object, list[Sentence]] = {}
    for machine, rows in single.groupby("machine", sort=False):
        text = f"A load that depends on the previous one takes {joined(_by_level(rows))}"
        found[machine] = shown_in("latency-sizes", [text])
    for row in _differences(records):
        text = f"By latency, {row['what']} has {row['found']}, the system reports {row['system']}"
        found.setdefault(row["machine"], []).append(Sentence(text, "latency-structure"))
    try:
        several, _ = concurrency(records)
    except InputError:
        several = frame.iloc[:0]
    for machine, rows in several.groupby("machine", sort=False):
        most = rows.sort_values(["size_B", "in_flight"]).iloc[-1]
        text = (
            f"{int(most['chains'])} independent chains in {in_bytes(most['size_B'])} have "
            f"{three_figures(most['in_flight'])} loads in flight: "
            f"{marked_value(dict(most), NS, 'ns', 'ci_relative')} from one to the next"
        )
        found.setdefault(machine, []).append(Sentence(text, "latency-chains"))
    for name, text in _gathers_beside_bound(records):
        found.setdefault(name, []).append(Sentence(text, "latency-gather"))
    exchanged, _ = select(records, [PING_PONG], ("pin", "lines", "take_by"), value=NS)
    exchanged = exchanged[(exchanged["lines"] == 1) & (exchanged["take_by"] == "load")]
    for machine, rows in exchanged.groupby("machine", sort=False):
        low, high = rows[NS].min(), rows[NS].max()
        spread = three_figures(low) if len(rows) == 1 else (
            f"{three_figures(low)} to {three_figures(high)}"
        )  # fmt: skip
        text = f"A core's answer to another core's write takes {spread} ns"
        found.setdefault(machine, []).append(Sentence(text, "latency-cores"))
    return with_names(found)
