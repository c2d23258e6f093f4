"""Findings on the domain-wall kernel: sentences computed from records."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

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
    Finding,
    best,
    by_machine,
    joined,
    marked_ratio,
    ranked,
    say,
    speed_ups,
    tell,
    with_workers,
)


def findings(records: DataFrame) -> list[str]:
    """Return the findings on every own machine, the most important first."""
    return by_machine(hops(records, "")[0], partial(tell, _ROWS))


def _lattices(mine: DataFrame) -> list[DataFrame]:
    """Return the fastest records of each lattice, with its name and the level that holds it."""
    rows = by_form(of_lattices(mine, ())[0])
    held = rows["held"].map({True: ", in cache", False: ", larger than the caches"})
    rows = rows.assign(where=rows["lattice_label"] + held)
    return [lattice for _, lattice in rows.groupby("lattice_label", sort=False)]


def _fastest(mine: DataFrame) -> list[dict[Any, Any]]:
    """Return the fastest layout on each lattice, its share of the roofline, and other layouts."""
    found = []
    for rows in _lattices(mine):
        first, *rest = ranked(best(rows, ("kind",), value=VALUE), VALUE).to_dict("records")
        limited = not (first["held"] and first.get("bound", "memory") == "memory")
        told = {"share": first[VALUE] / first[ROOFLINE], "limit": first[ROOFLINE]}
        share = say(", {share:%} of the roofline of {limit:3} GFLOP/s", told)
        others = [say("{kind} {performance_GFLOPs}", row) for row in rest]
        gain = [
            f" and is {marked_ratio(first, row, VALUE)} times as fast as {row['kind']}; "
            for row in rest[:1]
        ]
        found.append(
            {
                **first,
                "workers": with_workers(rows, False),
                "share": share * (limited and first[VALUE] <= 1.05 * first[ROOFLINE] < math.inf),
                "rest": "".join(gain) + joined(others or [""]),
            }
        )
    return found


def _gains(better: Callable[[str], str], mine: DataFrame) -> list[dict[str, Any]]:
    """Return by lattice the least and the most gain of better options over others."""
    found = []
    for rows in _lattices(mine):
        known = {(row["form"], row["option"]): row for row in rows.to_dict("records")}
        pairs = [
            (known[form, better(option)], row)
            for (form, option), row in known.items()
            if (form, better(option)) in known
        ]
        pairs.sort(key=lambda pair: pair[0][VALUE] / pair[1][VALUE])
        ends = dict.fromkeys(marked_ratio(*pair, VALUE) for pair in pairs[:1] + pairs[-1:])
        if ends:
            found.append({"times": " to ".join(ends), "where": rows["where"].iloc[0]})
    return found


def _extents(mine: DataFrame) -> Mapping[Any, Any]:
    """Return the performance at the ends of Lx, and the conditions of the last cache."""
    rows = over_extents(mine)
    if rows.empty:
        return {}
    first, *_, last = first_kind(rows)
    *ends, beyond = [(CONDITIONS[name], lx) for name, lx in holding(rows)] or [("", 0)]
    held = [*(f"{name} up to Lx = {lx}" for name, lx in ends), beyond[0] + " beyond" * bool(ends)]
    return {
        **last,
        "least": first["Lx"],
        "first": say("{performance_GFLOPs}", first),
        "held": f"; by the model the last cache holds {joined(held)}" * bool(beyond[0]),
    }


def _energies(mine: DataFrame) -> Mapping[str, Any]:
    """Return the range of the energy of RIRI against RRII."""
    rows = energies(mine)
    ends = dict.fromkeys(rows["energy_percent"].agg(["min", "max"]).map("{:+.0f} %".format))
    facts = {"ends": " to ".join(ends), "disturbed": rows["disturbed"].any()}
    return facts | {"published": PUBLISHED_ENERGY} if len(rows) else {}


_ROWS = (
    Finding(
        "dw-layouts", _fastest,
        "{workers} on {where}: {form} ({option}) has {performance_GFLOPs}{share}{rest}.",
    ),
    Finding(
        "dw-layouts", partial(_gains, lambda option: f"{option}, prefetch"),
        "With prefetch the kernel is {parts}, depending on layout and stores.",
        "{times} times as fast on {where}",
    ),
    Finding(
        "dw-layouts",
        partial(_gains, lambda option: f"non-temporal{option.removeprefix('ordinary')}"),
        "With non-temporal stores the kernel is {parts}, depending on layout and prefetch.",
        "{times} times as fast on {where}",
    ),
    speed_ups("dw-scaling", over_workers, in_order, VALUE, "lattice_label"),
    Finding(
        "dw-extent", _extents,
        "With Lx from {least:g} to {Lx:g} beside {others}, {kind} goes from {first} to "
        "{performance_GFLOPs}{held}.",
    ),
    Finding(
        "dw-energy", _energies,
        "Energy of RIRI against RRII: {ends}{mark}; published for A64FX: almost "
        "{published:+.0f} %.",
    ),
)  # fmt: skip
