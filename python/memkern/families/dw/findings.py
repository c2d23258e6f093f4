"""What records of the domain-wall kernel say, in plain sentences computed from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memkern.families.dw.data import (
    CONDITIONS,
    ROOFLINE,
    VALUE,
    by_form,
    holding,
    hops,
    in_order,
    last_cache,
    of_lattices,
    over_extents,
    over_workers,
)
from memkern.plots.frames import best, listed, percent, ranked, three_figures
from memkern.plots.selection import with_workers

if TYPE_CHECKING:
    from pandas import DataFrame

_PREFETCH = ", prefetch"


def findings(records: DataFrame) -> list[str]:
    """Return the findings on every own machine, the most important first.

    Raises
    ------
    InputError
        Records without a needed column.
    """
    frame, _ = hops(records, "")
    machines = list(dict.fromkeys(frame["machine"]))
    sentences = []
    for machine in machines:
        mine = frame[frame["machine"] == machine]
        rows = by_form(of_lattices(mine, ())[0])
        places = [group for _, group in rows.groupby("place", sort=False)]
        these = [
            *(_on_lattice(place) for place in places),
            *_on_prefetch(places),
            *_on_stores(places),
            *_on_workers(mine),
            *_on_extent(mine),
        ]
        sentences += [f"{machine}: {line}" for line in these] if len(machines) > 1 else these
    return sentences


def _said(row: Mapping[Any, Any]) -> str:
    return f"{three_figures(row[VALUE])} GFLOP/s{' (disturbed)' * bool(row['disturbed'])}"


def _where(rows: DataFrame) -> str:
    held = "in cache" if rows["held"].iloc[0] else "larger than the caches"
    return f"{rows['place'].iloc[0]}, {held}"


def _on_lattice(rows: DataFrame) -> str:
    """Say which layout is the fastest on a lattice, how near its roofline, and what others do."""
    order = ranked(best(rows, ("kind",), value=VALUE), VALUE)
    first, *rest = order.to_dict("records")
    text = (
        f"{with_workers(rows, False)} on {_where(rows)}: the fastest is "
        f"{first['form']} ({first['option']}) with {_said(first)}"
    )
    if first[ROOFLINE] < math.inf:
        text += (
            f", in the median {percent(first['roofline_fraction'])} of the roofline of "
            f"{three_figures(first[ROOFLINE])} GFLOP/s"
        )
    others = [f"{row['kind']} {_said(row)}" for row in rest]
    return f"{text}; {listed(others)}." if others else f"{text}."


def _gains(places: Sequence[DataFrame], column: str, low: str, high: str) -> list[str]:
    """Return for each lattice how many times as fast cases are with one value as with the other.

    Parameters
    ----------
    places : sequence of DataFrame
        Records of one lattice each.
    column : str
        What differs within a pair, stores or prefetches.
    low, high : str
        Its values.
    """
    parts = []
    other = "stores" if column == "prefetches" else "prefetches"
    for rows in places:
        halves = rows["option"].str.partition(_PREFETCH)
        rows = rows.assign(stores=halves[0], prefetches=halves[1] + halves[2])
        without, with_it = (rows[rows[column] == value] for value in (low, high))
        pairs = without.merge(with_it, on=["form", other], suffixes=("", "_with"))
        if pairs.empty:
            continue
        gains = pairs[f"{VALUE}_with"] / pairs[VALUE]
        times = dict.fromkeys(f"{end:.2f}" for end in (gains.min(), gains.max()))
        disturbed = bool((pairs["disturbed"] | pairs["disturbed_with"]).any())
        parts.append(
            f"{' to '.join(times)} times as fast on {_where(rows)}{' (disturbed)' * disturbed}"
        )
    return parts


def _on_prefetch(places: Sequence[DataFrame]) -> list[str]:
    """Say what software prefetch brings on each lattice."""
    parts = _gains(places, "prefetches", "", _PREFETCH)
    return [f"Prefetch makes it {listed(parts)}, by layout and stores."] if parts else []


def _on_stores(places: Sequence[DataFrame]) -> list[str]:
    """Say what non-temporal stores bring on each lattice."""
    parts = _gains(places, "stores", "ordinary stores", "non-temporal stores")
    if not parts:
        return []
    return [f"Non-temporal stores make it {listed(parts)}, by layout and prefetch."]


def _on_workers(mine: DataFrame) -> list[str]:
    """Say how much more workers bring."""
    rows = over_workers(mine)
    if rows.empty:
        return []
    few, many = rows["threads"].min(), rows["threads"].max()
    parts = []
    for kind in in_order(rows["kind"]):
        these = rows[rows["kind"] == kind].set_index("threads")
        if few in these.index and many in these.index:
            disturbed = bool(these["disturbed"].any())
            gain = these[VALUE][many] / these[VALUE][few]
            parts.append(f"{gain:.2f} in {kind}{' (disturbed)' * disturbed}")
    if not parts:
        return []
    return [
        f"Speed-up with {many:g} threads{'' if few == 1 else f' over {few:g}'} on "
        f"{rows['place'].iloc[0]}: {listed(parts)}."
    ]


def _on_extent(mine: DataFrame) -> list[str]:
    """Say how performance goes with Lx, and where the last cache ceases to fulfil conditions."""
    rows = over_extents(mine)
    if rows.empty:
        return []
    kind = in_order(rows["kind"])[0]
    line = rows[rows["kind"] == kind].sort_values("Lx").to_dict("records")
    first, last = line[0], line[-1]
    text = (
        f"With Lx from {first['Lx']:g} to {last['Lx']:g} beside {first['others']}, {kind} goes "
        f"from {_said(first)} to {_said(last)}"
    )
    cache = last_cache(rows)
    if not cache:
        return [f"{text}."]
    *ends, beyond = holding(last, cache, (int(first["Lx"]), int(last["Lx"])))
    words = [f"{CONDITIONS[name]} up to Lx = {lx}" for name, lx in ends]
    words.append(CONDITIONS[beyond[0]] + " beyond" * bool(ends))
    return [f"{text}; by the model the last cache holds {listed(words)}."]
