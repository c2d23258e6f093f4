"""Findings on sparse matrix-vector products: sentences computed from records."""

from __future__ import annotations

from collections.abc import Mapping
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
    best,
    by_machine,
    by_value,
    cache_ends,
    disturbed_mark,
    joined,
    marked_ratio,
    marked_value,
    of_workers,
    percent,
    ranked,
    shown_in,
    speed_up,
    three_figures,
    told,
    undisturbed,
    with_workers,
)

# Smallest gain of beta by sorting that is reported.
_GAIN = 1.05


def findings(records: DataFrame) -> list[str]:
    """Return the findings on every own machine, the most important first."""
    return by_machine(products(records, "")[0], _on_machine)


def _on_machine(mine: DataFrame) -> list[str]:
    """Return the findings on one machine."""
    others = mine[~tall_and_skinny(mine)]
    rows = by_matrix(others) if len(others) else others.assign(held=False)
    threads = saturation(mine)
    return [
        *shown_in("spmv-matrices", told(rows[~rows["held"]], _on_memory)),
        *shown_in("spmv-matrices", told(rows[rows["held"]], _on_caches)),
        *shown_in("spmv-matrices", told(rows, _on_x)),
        *shown_in("spmv-row-length", told(row_lengths(mine), _on_lengths)),
        *shown_in("spmv-saturation", speed_up(threads, VALUE, in_order(threads["kind"]), "label")),
        *shown_in("spmv-fill-in", _on_fill_in(mine)),
        *shown_in("spmv-matrices", _on_conversion(others)),
    ]


def _performance(row: Mapping[Any, Any]) -> str:
    return marked_value(row, VALUE, "GFLOP/s")


def _share(row: Mapping[Any, Any]) -> str:
    return percent(row[VALUE] / row[ROOFLINE])


def _of_roofline(row: Mapping[Any, Any]) -> str:
    """Return the share of the roofline; empty if that is unknown, or memory was faster than it."""
    return f", {_share(row)} of the roofline" if row[VALUE] <= 1.05 * row[ROOFLINE] else ""


def _by_kind(rows: DataFrame) -> list[Mapping[Any, Any]]:
    """Return one row of each format, in the order of a legend."""
    found = by_value(rows, "kind")
    return [found[kind] for kind in in_order(found)]


def _on_memory(rows: DataFrame) -> list[str]:
    """Return the sentences on formats from memory, for HPCG's or the largest matrix."""
    hpcg = rows[rows["label"].str.startswith("hpcg")]
    rows = hpcg if len(hpcg) else rows
    rows = rows[rows["label"] == rows["label"].iloc[-1]]
    parts = [f"{row['kind']} {_performance(row)}{_of_roofline(row)}" for row in _by_kind(rows)]
    large = ", which is larger than the caches" * bool(cache_ends(rows))
    name = rows["label"].iloc[0]
    text = f"{with_workers(rows, False)} on {name}{large}: {'; '.join(parts)}."
    first, *others = _by_kind(rows)
    gains = [f"{row['kind']} {marked_ratio(row, first, VALUE)}" for row in others]
    if gains:
        text += f" Times as fast as {first['kind']}: {joined(gains)}."
    known = rows.dropna(subset=[ROOFLINE, "load_GBps"])
    if known.empty:
        return [text]
    return [
        f"{text} The roofline is {three_figures(known[ROOFLINE].max())} GFLOP/s, by the "
        f"{three_figures(known['load_GBps'].iloc[0])} GB/s of loads from memory."
    ]


def _on_caches(rows: DataFrame) -> list[str]:
    """Return the sentence on the fastest format in the caches against the memory roofline."""
    top = best(rows, ("machine",), value=VALUE).to_dict("records")[0]
    text = f"From the caches: {top['label']} in {top['kind']} reaches {_performance(top)}"
    if top[ROOFLINE] != top[ROOFLINE]:
        return [f"{text}."]
    return [
        f"{text}, {top[VALUE] / top[ROOFLINE]:.1f} times the limit of memory."
        if top.get("bound", "memory") == "memory"
        else f"{text}{_of_roofline(top)}, which is limited by {top['bound']}."
    ]


def _on_x(rows: DataFrame) -> list[str]:
    """Return the sentence on the matrix whose implied alpha is farthest above its lower bound."""
    rows = best(rows.assign(alpha_implied=implied(rows)), ("label",), value=VALUE)
    rows = rows.dropna(subset=["alpha_implied"])
    rows = rows[rows["alpha_implied"] > rows["alpha"]]
    if rows.empty:
        return []
    worst = max(
        undisturbed(rows).to_dict("records"), key=lambda row: row["alpha_implied"] - row["alpha"]
    )
    return [
        f"Loads of x cost most for {worst['label']}: {worst['kind']} is at {_share(worst)} of "
        f"the roofline{disturbed_mark(worst['disturbed'])}, as if each nonzero loaded "
        f"{three_figures(worst['alpha_implied'])} elements of x from memory instead of "
        f"{three_figures(worst['alpha'])}."
    ]


def _on_lengths(rows: DataFrame) -> list[str]:
    """Return the sentence on the formats for the shortest and the longest rows."""
    parts = []
    for length in (rows["nonzeros_per_row"].min(), rows["nonzeros_per_row"].max()):
        here = rows[rows["nonzeros_per_row"] == length]
        found = best(here[here["format"].isin(["crs", "sell"])], ("format",), value=VALUE)
        order = _by_kind(found)
        names = [f"{row['kind'].replace(',', ' with')} {_performance(row)}" for row in order]
        gain = [f" ({marked_ratio(row, order[0], VALUE)} times as fast)" for row in order[1:]]
        parts.append(f"of {length:g} nonzeros {joined(names)}{''.join(gain)}")
    return [f"With rows of equal length: {'; '.join(parts)}."]


def _on_fill_in(mine: DataFrame) -> list[str]:
    """Return the sentence on the largest gain of beta by sorting, and its performance."""
    rows = fill_in(mine)
    if rows.empty:
        return []
    ends = rows.groupby(["label", "C"])["beta"].agg(["first", "max"]).reset_index()
    most = ends.assign(gain=ends["max"] / ends["first"]).nlargest(1, "gain").to_dict("records")[0]
    if most["gain"] < _GAIN:
        return ["Sorting of rows saves nothing: all matrices have little padding without it."]
    here = mine[(mine["label"] == most["label"]) & (mine["C"] == most["C"])]
    here = best(of_workers(here[here["format"] == "sell"]), ("sigma",), value=VALUE)
    first = here.sort_values("sigma").to_dict("records")[0]
    top = ranked(here, VALUE).to_dict("records")[0]
    block = "all rows" if top["sigma"] >= top["rows"] else f"blocks of {top['sigma']:g} rows"
    return [
        f"Sorting of rows raises beta of {most['label']} in {top['kind']} from "
        f"{three_figures(most['first'])} to {three_figures(most['max'])}; by {block} it has "
        f"{_performance(top)} instead of {_performance(first)} with sigma {first['sigma']:g}, "
        f"{marked_ratio(top, first, VALUE)} times."
    ]


def _on_conversion(mine: DataFrame) -> list[str]:
    """Return the sentence on the time of a conversion, in products."""
    rows = mine[mine["format"] == "sell"].dropna(subset=["conversion"])
    if rows.empty:
        return []
    rows = best(of_workers(rows), ("label", "kind", "sigma"), value=VALUE)
    low, middle, high = (float(rows["conversion"].quantile(q)) for q in (0, 0.5, 1))
    ends = f"from {three_figures(low)} to {three_figures(high)}"
    several = f" in the median of {len(rows)} cases, {ends}" * (len(rows) > 1)
    return [f"Conversion to SELL takes as long as {three_figures(middle)} products{several}."]
