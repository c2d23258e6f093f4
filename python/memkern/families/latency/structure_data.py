"""Caches, TLBs and lines that latencies show, for figures, tables and findings."""

from __future__ import annotations

import itertools
import math
from typing import Any

from memkern.families.latency.data import (
    DIFFERS,
    MEASURE_STRUCTURE,
    NS,
    PAIRS,
    SHORTEST,
    UNKNOWN,
    chases,
    fact_of,
)
from memkern.machine.caches import LEAST_MEMORY_S, name_of_last
from memkern.models.records import line_sizes, tlb_entries
from memkern.models.structure import Plateau, line_size, plateaus, tlb_levels
from memkern.plots.kit import (
    DataFrame,
    Records,
    cache_ends,
    environments_of,
    in_bytes,
    ranked,
    typed,
)

# Size of the pages for which the processor reports the number of TLB entries.
_PAGE_B = 2**12
# Factor by which a cache's size may be outside the range of sizes in which the latency rises.
_TOLERANCE = 4 / 3


def structure_chases(records: Records) -> tuple[DataFrame, list[str]]:
    """Return undisturbed chases with one chain, with their shortest times in a column."""
    columns = ["lines", "clock_GHz", "time_min_s", "time_median_s"]
    frame, notes = chases(records, MEASURE_STRUCTURE, [*columns, "pages"])
    frame = typed(frame, [*columns, "distance_B"])
    frame = frame[(frame["chains"] == 1) & ~frame["disturbed"]]
    shortest = frame[NS] * frame["time_min_s"] / frame["time_median_s"]
    return frame.assign(**{SHORTEST: shortest}), notes


def cycle_ns(rows: DataFrame) -> float:
    """Return the time of a cycle, from the median clock of the records; NaN if none is known."""
    # pandas before release 3 warns of a median of missing values.
    clocks = rows["clock_GHz"].dropna()
    return 1 / float(clocks.median()) if len(clocks) else math.nan


def translation(rows: DataFrame) -> DataFrame:
    """Return the additional cost of lines in separate pages over as many adjacent lines.

    The rows are from `structure_chases` and one machine; huge pages are ignored. The columns are
    size_B (of all pages, ascending), pages and cost_ns: the difference of the shortest times, since
    other code on the core also uses TLB entries.
    """
    huge = rows["pages"].astype(str).str.contains("thp|hugetlb")
    rows = rows[(rows["order"] == "random") | ~huge]
    rows = ranked(rows, SHORTEST, lowest=True).drop_duplicates(["order", "lines"])
    apart, dense = (
        rows[rows["order"] == order].set_index("lines").sort_index()
        for order in ("one-per-page", "random")
    )
    apart = apart.assign(pages=apart.index, cost_ns=apart[SHORTEST] - dense[SHORTEST])
    return apart[["size_B", "pages", "cost_ns"]].dropna().reset_index(drop=True)


def tlbs(rows: DataFrame) -> list[Plateau]:
    """Return the levels of TLBs of one machine's rows from `structure_chases`."""
    costs = translation(rows)
    return tlb_levels(costs["size_B"], costs["cost_ns"], cycle_ns(rows))


def pairs(rows: DataFrame) -> DataFrame:
    """Return the additional time in ns of a pair's second access over one 8 bytes away.

    The rows are from `structure_chases` and one machine. The columns are size_B and distance_B
    (both ascending), pairs and pairs-across; distances without one of the latter two are left out.
    """
    rows = rows[rows["order"].isin(PAIRS)]
    case = ["size_B", "distance_B"]
    rows = ranked(rows, NS, lowest=True).drop_duplicates(["order", *case])
    # Medians, since beyond L2 the shortest samples are the few that hit a shared cache.
    times = (
        rows.pivot(index=case, columns="order", values=NS)
        .reindex(columns=list(PAIRS))
        .dropna()
        .reset_index()
    )
    nearest = times.groupby("size_B")["pairs"].transform("first")
    # The mean of two accesses rises by half of the second access's additional time.
    return times.assign(**{order: 2 * (times[order] - nearest) for order in PAIRS})


def line_B(times: DataFrame, cycle: float) -> float:
    """Return the line size according to `pairs` in the smallest buffer, NaN if not found."""
    mine = times[times["size_B"] == times["size_B"].min()]
    if len(mine) < 3:
        return math.nan
    return line_size(mine["distance_B"], mine["pairs"], cycle)


def structure_rows(records: Records) -> list[dict[str, Any]]:
    """Return the rows of the table latency-structure."""
    frame, _ = structure_chases(records)
    return [
        {"machine": machine, **row, "cycles": row["ns"] / cycle_ns(mine)}
        for machine, mine in frame.groupby("machine", sort=False)
        for row in (*_cache_rows(mine), *_tlb_rows(mine), *_line_rows(mine))
    ]


def _row(
    what: str,
    found: str,
    ns: float,
    *,
    system: str = "",
    agrees: bool | None = None,
    fits_B: float = math.nan,
    exceeds_B: float = math.nan,
) -> dict[str, Any]:
    return {
        "what": what,
        "found": found,
        "system": system,
        "agrees": "" if agrees is None else "yes" if agrees else DIFFERS,
        "ns": ns,
        "cycles": math.nan,
        "fits_B": fits_B,
        "exceeds_B": exceeds_B,
    }


def measured_caches(records: Records) -> dict[str, int]:
    """Return the sizes of caches determined from latencies, by name, such as ``L3``.

    A size reported by the system is confirmed if the latency rises there. The last rise beyond all
    other caches is the size of the last-level cache, of which a virtual machine may have only a
    part, provided that the largest buffers far exceed the size reported by the system.

    Parameters
    ----------
    records : ResultSet or DataFrame
        Records of ``memkern latency structure`` on one machine.

    Returns
    -------
    dict of str to int
        Bytes of an instance; empty if nothing is found.
    """
    frame, _ = structure_chases(records)
    known = cache_ends(frame, system=True)
    rises = list(itertools.pairwise(_levels(frame)))
    if not rises:
        return {}
    found = {
        name: int(size_B)
        for name, size_B in known
        if any(_includes(size_B, plateau.end_B, after.begin_B) for plateau, after in rises)
    }
    others_B = max((size_B for _, size_B in known[:-1]), default=0.0)
    reported = [{"level": int(name[1:]), "system_B": size_B} for name, size_B in known]
    plateau, after = rises[-1]
    beyond = (
        plateau.end_B > others_B
        and after.value >= LEAST_MEMORY_S * 1e9
        and (not known or after.end_B >= 2 * known[-1][1])
    )
    # The geometric mean of the bounds of the size, since sizes are logarithmically spaced.
    size_B = round(math.sqrt(plateau.end_B * after.begin_B))
    last = name_of_last(reported, size_B)
    if last not in found and beyond:
        found[last] = size_B
    return found


def _levels(rows: DataFrame) -> list[Plateau]:
    """Return the plateaus of the latency over sizes for one machine's rows."""
    rows = ranked(rows[rows["order"] == "random"], NS, lowest=True).drop_duplicates("size_B")
    return plateaus(rows["size_B"], rows[NS])


def _includes(size_B: float, fits_B: float, exceeds_B: float) -> bool:
    return fits_B / _TOLERANCE <= size_B <= exceeds_B * _TOLERANCE


def _cache_rows(rows: DataFrame) -> list[dict[str, Any]]:
    """Return the levels determined from latency over sizes, with the caches of the system."""
    found, known = _levels(rows), cache_ends(rows, system=True)
    table = []
    for number, (plateau, following) in enumerate(itertools.pairwise(found)):
        fits_B, exceeds_B = plateau.end_B, following.begin_B
        name, system_B = known[number] if number < len(known) else ("", math.nan)
        table.append(
            _row(
                f"cache {number + 1}",
                f"{in_bytes(fits_B)} to {in_bytes(exceeds_B)}",
                plateau.value,
                system=f"{name}: {in_bytes(system_B)}" if name else UNKNOWN,
                agrees=_includes(system_B, fits_B, exceeds_B) if name else None,
                fits_B=fits_B,
                exceeds_B=exceeds_B,
            )
        )
    return table + [_row("beyond", f"from {in_bytes(p.begin_B)}", p.value) for p in found[-1:]]


def _tlb_rows(rows: DataFrame) -> list[dict[str, Any]]:
    """Return the levels of TLBs, and the cost of a load whose page is in none of them."""
    costs, levels = translation(rows), tlbs(rows)
    of_small_pages = (costs["size_B"] == _PAGE_B * costs["pages"]).all()
    known = fact_of(rows, tlb_entries(environments_of(rows)))
    entries = known if known and of_small_pages else []
    table = []
    for number, level in enumerate(levels):
        within, beyond = (costs[costs["size_B"].gt(level.end_B) == more] for more in (False, True))
        ends = f"{within['pages'].max():.0f}", f"{beyond['pages'].min():.0f}"
        exceeds_B = float(beyond["size_B"].min())
        system = entries[number] if number < len(entries) else None
        end_B = math.inf if math.isnan(exceeds_B) else exceeds_B
        table.append(
            _row(
                f"TLB {number + 1}",
                f"{' to '.join(ends)} pages" if len(beyond) else f"at least {ends[0]} pages",
                level.value,
                system=UNKNOWN if system is None else f"{system} entries",
                agrees=None if system is None else _includes(_PAGE_B * system, level.end_B, end_B),
                fits_B=level.end_B,
                exceeds_B=exceeds_B,
            )
        )
    last = costs.iloc[-1:].to_dict("records") if levels else []
    return table + [
        _row("page walk", f"in {row['pages']:.0f} pages", row["cost_ns"])
        for row in last
        if row["size_B"] > levels[-1].end_B
    ]


def _line_rows(rows: DataFrame) -> list[dict[str, Any]]:
    """Return the measured and the reported line size, and whether lines are fetched in pairs."""
    times = pairs(rows)
    if times.empty:
        return []
    found_B = line_B(times, cycle_ns(rows))
    if math.isnan(found_B):
        return [_row("line", "not found", math.nan)]
    known_B = fact_of(rows, line_sizes(environments_of(rows)))
    least, most = times["size_B"].min(), times["size_B"].max()
    table = [
        _row(
            "line",
            in_bytes(found_B),
            float(times.loc[times["size_B"] == least, "pairs"].iloc[-1]),
            system=in_bytes(known_B) if known_B else UNKNOWN,
            agrees=found_B == known_B if known_B else None,
            fits_B=found_B,
        )
    ]
    # Lines that a miss also fetches into L2 are visible only in buffers larger than L2.
    beside = times[(times["distance_B"] == found_B) & (times["size_B"] > least)]
    for row in beside[beside["size_B"] == most].to_dict("records"):
        within, across = (float(row[order]) for order in PAIRS)
        fetched = "fetched with it" if within < across / 2 else "not fetched with it"
        table.append(_row("adjacent line", fetched, within, system=UNKNOWN))
    return table
