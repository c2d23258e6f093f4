"""Findings on the domain-wall kernel: sentences computed from records."""

from __future__ import annotations

import math
from collections.abc import Sequence

from memkern.families.dw.data import (
    CONDITIONS,
    PUBLISHED_ENERGY,
    ROOFLINE,
    VALUE,
    by_form,
    energies,
    first_kind,
    holding,
    hops,
    in_order,
    of_lattices,
    over_extents,
    over_workers,
)
from memkern.plots.kit import (
    DataFrame,
    best,
    by_machine,
    disturbed_mark,
    joined,
    marked_ratio,
    marked_value,
    percent,
    ranked,
    shown_in,
    speed_up,
    three_figures,
    told,
    with_workers,
)


def findings(records: DataFrame) -> list[str]:
    """Return the findings on every own machine, the most important first."""
    return by_machine(hops(records, "")[0], _on_machine)


def _on_machine(mine: DataFrame) -> list[str]:
    """Return the findings on one machine."""
    rows = by_form(of_lattices(mine, ())[0])
    groups = [group for _, group in rows.groupby("lattice_label", sort=False)]
    threads = over_workers(mine)
    return [
        *shown_in("dw-layouts", map(_on_lattice, groups)),
        *shown_in("dw-layouts", _on_gain(groups, "prefetch", "", "prefetch")),
        *shown_in(
            "dw-layouts", _on_gain(groups, "stores", "ordinary stores", "non-temporal stores")
        ),
        *shown_in(
            "dw-scaling", speed_up(threads, VALUE, in_order(threads["kind"]), "lattice_label")
        ),
        *shown_in("dw-extent", told(over_extents(mine), _on_extent)),
        *shown_in("dw-energy", told(energies(mine), _on_energy)),
    ]


def _where(rows: DataFrame) -> str:
    held = "in cache" if rows["held"].iloc[0] else "larger than the caches"
    return f"{rows['lattice_label'].iloc[0]}, {held}"


def _on_lattice(rows: DataFrame) -> str:
    """Return the sentence on the first layout on a lattice, its roofline, and other layouts."""
    order = ranked(best(rows, ("kind",), value=VALUE), VALUE)
    first, *rest = order.to_dict("records")
    text = (
        f"{with_workers(rows, False)} on {_where(rows)}: {first['form']} ({first['option']}) has "
        f"{marked_value(first, VALUE, 'GFLOP/s')}"
    )
    if first[VALUE] <= 1.05 * first[ROOFLINE] < math.inf and not (
        first["held"] and first.get("bound", "memory") == "memory"
    ):
        text += (
            f", {percent(first[VALUE] / first[ROOFLINE])} of the roofline of "
            f"{three_figures(first[ROOFLINE])} GFLOP/s"
        )
    others = [f"{row['kind']} {marked_value(row, VALUE, 'GFLOP/s')}" for row in rest]
    if rest:
        gain = marked_ratio(first, rest[0], VALUE)
        text += f" and is {gain} times as fast as {rest[0]['kind']}"
    return f"{text}; {joined(others)}." if others else f"{text}."


def _on_gain(groups: Sequence[DataFrame], column: str, low: str, high: str) -> list[str]:
    """Return the sentence on the gain of one kind of stores or prefetch over another by lattice.

    Parameters
    ----------
    groups : sequence of DataFrame
        Records of one lattice each.
    column : {"stores", "prefetch"}
        Column in which the records of a pair differ.
    low, high : str
        Values of the column; the sentence has the gain of `high` over `low`.
    """
    parts = []
    other = "stores" if column == "prefetch" else "prefetch"
    for rows in groups:
        halves = rows["option"].str.partition(", ")
        rows = rows.assign(stores=halves[0], prefetch=halves[2], number=rows.index)
        without, with_it = (rows[rows[column] == value] for value in (low, high))
        pairs = without.merge(with_it, on=["form", other], suffixes=("", "_with"))
        if pairs.empty:
            continue
        gains = sorted(zip(pairs[f"{VALUE}_with"] / pairs[VALUE], pairs.index, strict=True))
        times = dict.fromkeys(
            marked_ratio(
                with_it.loc[pairs["number_with"][k]], without.loc[pairs["number"][k]], VALUE
            )
            for _, k in (gains[0], gains[-1])
        )
        parts.append(f"{' to '.join(times)} times as fast on {_where(rows)}")
    if not parts:
        return []
    return [f"With {high} the kernel is {joined(parts)}, depending on layout and {other}."]


def _on_energy(changes: DataFrame) -> list[str]:
    """Return the sentence on the energy of RIRI against RRII."""
    ends = dict.fromkeys(
        f"{end:+.0f} %"
        for end in (changes["energy_percent"].min(), changes["energy_percent"].max())
    )
    mark = disturbed_mark(changes["disturbed"].any())
    return [
        f"Energy of RIRI against RRII: {' to '.join(ends)}{mark}; published for A64FX: almost "
        f"{PUBLISHED_ENERGY:+.0f} %."
    ]


def _on_extent(rows: DataFrame) -> list[str]:
    """Return the sentence on performance against Lx and the conditions of the last cache."""
    first, *_, last = first_kind(rows)
    text = (
        f"With Lx from {first['Lx']:g} to {last['Lx']:g} beside {first['others']}, {first['kind']} "
        f"goes from {marked_value(first, VALUE, 'GFLOP/s')} to "
        f"{marked_value(last, VALUE, 'GFLOP/s')}"
    )
    *ends, beyond = holding(rows) or [("", 0)]
    words = [f"{CONDITIONS[name]} up to Lx = {lx}" for name, lx in ends]
    words.append(CONDITIONS.get(beyond[0], "") + " beyond" * bool(ends))
    return [
        f"{text}; by the model the last cache holds {joined(words)}." if beyond[1] else f"{text}."
    ]
