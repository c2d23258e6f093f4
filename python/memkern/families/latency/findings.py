"""Findings on latencies: of loads alone and in parallel, of caches, and between cores."""

from __future__ import annotations

from functools import partial
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
from memkern.machine.environment import machine_label
from memkern.models.memory import middle
from memkern.plots.kit import (
    DataFrame,
    Finding,
    Records,
    by_machine,
    cache_ends,
    environments_of,
    frame_of,
    in_bytes,
    say,
    select,
    tell,
    three_figures,
    unless_refused,
)


def findings(records: Records) -> list[str]:
    """Return the findings on the latencies of every machine.

    Raises
    ------
    InputError
        There is no chase in random order.
    """
    frame = frame_of(records)
    chases(records, MEASURE)
    frame = frame.assign(machine=frame["platform"].map(machine_label))
    return by_machine(frame, partial(tell, _ROWS))


def _of_levels(mine: DataFrame) -> list[dict[str, Any]]:
    """Return the latency of each level, without known levels those of the ends of the sizes."""
    rows, _ = chases(mine, "")
    rows = rows[(rows["chains"] == 1) & (rows["order"] == "random")].sort_values("size_B")
    ends = cache_ends(rows)
    levels = [level_in(row, ends) for row in rows.to_dict("records")]
    rows = rows.assign(place=levels if any(levels) else [*map(in_bytes, rows["size_B"])])
    parts = [
        {**middle(own.to_dict("records"), NS), "place": place}
        for place, own in rows.groupby("place", sort=False)
        if place
    ]
    return parts if any(levels) else parts[:1] + parts[1:][-1:]


def _differences(mine: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of the table latency-structure that disagree with the system.

    Caches are left out if their sizes were measured in this boot: reports begin with these.
    """
    known = any(one.get("measured_caches") for one in environments_of(mine).values())
    return [
        row
        for row in structure_rows(mine)
        if row["agrees"] == DIFFERS and not (known and row["what"].startswith("cache"))
    ]


def _bound_of_gathers(mine: DataFrame) -> dict[Any, Any]:
    """Return the bound of random gathers, and the share of it that one reaches."""
    chains, loads, *_ = chains_and_gathers(mine)
    most = chains.sort_values(["rate", "chains"], ascending=[True, False]).to_dict("records")[-1]
    gathered = loads.loc[loads["stride_B"].isna(), "rate"].max()
    share = {"gathered": gathered, "percent": 100 * gathered / most["rate"]}
    text = "; a random gather loads {gathered:3}, {percent:.0f} % of it"
    return {**most, "beside": say(text, share) if gathered == gathered else ""}


def _answers(mine: DataFrame) -> dict[str, Any]:
    """Return the range of times from a core's write to another core's answer."""
    rows, _ = select(mine, [PING_PONG], ("pin", "lines", "take_by"), value=NS)
    times = rows.loc[(rows["lines"] == 1) & (rows["take_by"] == "load"), NS]
    ends = dict.fromkeys(times.agg(["min", "max"]).dropna().map(three_figures))
    return {"spread": " to ".join(ends)} if ends else {}


_ROWS = (
    Finding(
        "latency-sizes", _of_levels, "A load that depends on the previous one takes {parts}",
        "{ns_per_access} in {place}",
    ),
    Finding(
        "latency-structure", unless_refused(_differences),
        "By latency, {what} has {found}, the system reports {system}",
    ),
    Finding(
        "latency-chains",
        # The most in the largest buffer.
        unless_refused(
            lambda mine: concurrency(mine)[0].sort_values(["size_B", "in_flight"])
            .to_dict("records")[-1]
        ),
        "{chains:.0f} independent chains in {size_B:B} have {in_flight:3} loads in flight: "
        "{ns_per_access} from one to the next",
    ),
    Finding(
        "latency-gather", unless_refused(_bound_of_gathers),
        "{chains:.0f} chains in {size_B:B} load {rate:3} million lines/s, which bounds random "
        "gathers of a core{beside}",
    ),
    Finding(
        "latency-cores", unless_refused(_answers),
        "A core's answer to another core's write takes {spread} ns",
    ),
)  # fmt: skip
