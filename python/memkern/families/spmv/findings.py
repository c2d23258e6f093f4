"""Findings on sparse matrix-vector products: sentences computed from records."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from memkern.families.spmv.data import (
    ROOFLINE,
    VALUE,
    by_matrix,
    fill_in,
    implied,
    in_order,
    products,
    row_lengths,
    saturation,
    tall_and_skinny,
)
from memkern.plots.kit import (
    DataFrame,
    Finding,
    best,
    by_machine,
    by_value,
    cache_ends,
    joined,
    marked_ratio,
    of_workers,
    percent,
    ranked,
    say,
    speed_ups,
    tell,
    three_figures,
    undisturbed,
    with_workers,
)

# Smallest gain of beta by sorting that is reported.
_GAIN = 1.05


def findings(records: DataFrame) -> list[str]:
    """Return the findings on every own machine, the most important first."""
    return by_machine(products(records, "")[0], partial(tell, _ROWS))


def _by_kind(rows: DataFrame) -> list[Mapping[Any, Any]]:
    """Return one row of each format, in the order of a legend."""
    found = by_value(rows, "kind")
    return [found[kind] for kind in in_order(found)]


def _matrices(mine: DataFrame) -> DataFrame:
    """Return the fastest record of each matrix and format, without tall and skinny matrices.

    The words `of_roofline` are empty if the share is unknown, or memory was faster.
    """
    rows = by_matrix(mine[~tall_and_skinny(mine)])
    rows = rows.assign(share=rows[VALUE] / rows[ROOFLINE])
    below = [f", {percent(share)} of the roofline" * (share <= 1.05) for share in rows["share"]]
    return rows.assign(of_roofline=below)


def _from_memory(mine: DataFrame) -> Mapping[Any, Any]:
    """Return the formats from memory, for HPCG's or the largest matrix."""
    rows = _matrices(mine)
    rows = rows[~rows["held"]]
    hpcg = rows[rows["label"].str.startswith("hpcg")]
    rows = hpcg if len(hpcg) else rows
    rows = rows[rows["label"].isin(rows["label"].tail(1))]
    if rows.empty:
        return {}
    first, *others = each = _by_kind(rows)
    speeds = [say("{kind} {performance_GFLOPs}{of_roofline}", row) for row in each]
    gains = [f"{row['kind']} {marked_ratio(row, first, VALUE)}" for row in others]
    limits = rows[[ROOFLINE, "load_GBps"]].dropna().max().dropna().to_dict()
    roofline = (
        " The roofline is {roofline_GFLOPs:3} GFLOP/s, by the {load_GBps:3} GB/s of loads from "
        "memory."
    )
    return {
        "workers": with_workers(rows, False),
        "label": first["label"],
        "large": ", which is larger than the caches" * bool(cache_ends(rows)),
        "speeds": "; ".join(speeds),
        "gains": f" Times as fast as {first['kind']}: {joined(gains)}." if gains else "",
        "roofline": say(roofline, limits) if limits else "",
    }


def _from_caches(mine: DataFrame) -> list[Mapping[Any, Any]]:
    """Return the fastest format in the caches and its share of the limit."""
    rows = _matrices(mine)
    found: list[Mapping[Any, Any]] = []
    for top in best(rows[rows["held"]], ("machine",), value=VALUE).to_dict("records"):
        memory = top.get("bound", "memory") == "memory"
        limit = ", {share:.1f} times the limit of memory" if memory else (
            "{of_roofline}, which is limited by {bound}"
        )  # fmt: skip
        found.append({**top, "limit": say(limit, top) if top["share"] > 0 else ""})
    return found


def _loads_of_x(mine: DataFrame) -> list[dict[Any, Any]]:
    """Return the matrix whose implied alpha is farthest above its lower bound."""
    rows = _matrices(mine)
    rows = best(rows.assign(alpha_implied=implied(rows)), ("label",), value=VALUE)
    rows = rows.assign(more=rows["alpha_implied"] - rows["alpha"])
    return undisturbed(rows[rows["more"] > 0]).nlargest(1, "more").to_dict("records")


def _lengths(mine: DataFrame) -> list[dict[str, Any]]:
    """Return the formats for the shortest and the longest rows."""
    rows = row_lengths(mine)
    found = []
    for length in rows["nonzeros_per_row"].agg(["min", "max"]).dropna():
        here = rows[(rows["nonzeros_per_row"] == length) & rows["format"].isin(["crs", "sell"])]
        order = _by_kind(best(here, ("format",), value=VALUE))
        names = [
            row["kind"].replace(",", " with") + say(" {performance_GFLOPs}", row) for row in order
        ]
        gain = [f" ({marked_ratio(row, order[0], VALUE)} times as fast)" for row in order[1:]]
        found.append({"length": length, "names": joined(names) + "".join(gain)})
    return found


def _sorting(mine: DataFrame) -> Mapping[Any, Any]:
    """Return the largest gain of beta by sorting, and its performance."""
    rows = fill_in(mine)
    if rows.empty:
        return {}
    beta = rows.groupby(["label", "C"])["beta"].agg(["first", "max"]).reset_index()
    most = beta.assign(gain=beta["max"] / beta["first"]).nlargest(1, "gain").to_dict("records")[0]
    if most["gain"] < _GAIN:
        return {"text": "saves nothing: all matrices have little padding without it"}
    here = mine[(mine["label"] == most["label"]) & (mine["C"] == most["C"])]
    here = best(of_workers(here[here["format"] == "sell"]), ("sigma",), value=VALUE)
    first = here.sort_values("sigma").to_dict("records")[0]
    top = ranked(here, VALUE).to_dict("records")[0]
    block = "all rows" if top["sigma"] >= top["rows"] else f"blocks of {top['sigma']:g} rows"
    return {
        "text": say("raises beta of {label} in {kind} from {first:3} to {max:3}", top | most)
        + say(f"; by {block} it has {{performance_GFLOPs}} instead of ", top)
        + say("{performance_GFLOPs} with sigma {sigma:g}, ", first)
        + f"{marked_ratio(top, first, VALUE)} times"
    }


def _conversion(mine: DataFrame) -> Mapping[str, Any]:
    """Return the time of a conversion, in products."""
    rows = mine[(mine["format"] == "sell") & ~tall_and_skinny(mine)].dropna(subset=["conversion"])
    rows = best(of_workers(rows), ("label", "kind", "sigma"), value=VALUE)
    low, middle, high = rows["conversion"].quantile([0, 0.5, 1]).map(three_figures)
    several = f" in the median of {len(rows)} cases, from {low} to {high}" * (len(rows) > 1)
    return {"middle": middle, "several": several} if len(rows) else {}


_ROWS = (
    Finding(
        "spmv-matrices", _from_memory,
        "{workers} on {label}{large}: {speeds}.{gains}{roofline}",
    ),
    Finding(
        "spmv-matrices", _from_caches,
        "From the caches: {label} in {kind} reaches {performance_GFLOPs}{limit}.",
    ),
    Finding(
        "spmv-matrices", _loads_of_x,
        "Loads of x cost most for {label}: {kind} is at {share:%} of the roofline{mark}, as if "
        "each nonzero loaded {alpha_implied:3} elements of x from memory instead of {alpha:3}.",
    ),
    Finding(
        "spmv-row-length", _lengths, "With rows of equal length: {parts}.",
        "of {length:g} nonzeros {names}", "; ",
    ),
    speed_ups("spmv-saturation", saturation, in_order, VALUE, "label"),
    Finding("spmv-fill-in", _sorting, "Sorting of rows {text}."),
    Finding(
        "spmv-matrices", _conversion,
        "Conversion to SELL takes as long as {middle} products{several}.",
    ),
)  # fmt: skip
