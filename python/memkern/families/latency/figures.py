"""Figures and findings of latency: over sizes, in parallel, beside traffic, between cores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memkern.errors import InputError
from memkern.models.structure import plateaus
from memkern.plots.drawing import (
    bytes_axis,
    cache_regions,
    counted_axis,
    counts_axis,
    curve,
    curves,
    finish,
    heat_map,
    in_bytes,
    machine_panels,
    marked_look,
    named,
    panels,
)
from memkern.plots.frames import Records, counted, ranked, three_figures
from memkern.plots.registry import family_section, register, tables
from memkern.plots.selection import cache_ends, select
from memkern.plots.sentences import with_names
from memkern.plots.style import GREY, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

NS = "ns_per_access"
CHASE, LOADED, PING_PONG = "latency.chase", "latency.loaded", "latency.ping_pong"
TRIAD = "stream.triad"
# Names of the cases of `memkern.families.latency.kernels.numa_cases`.
NODES = r"^units of node (\d+), memory of node (\d+)$"
# Lines of a group of traffic (see `memkern.families.latency.kernels`).
_GROUP = 8
# More loads in flight than chains, by this factor, were not served by the same cache.
_MOST_IN_FLIGHT = 1.25
# Traffic that does not multiply the latency by this has not saturated the memory.
_SATURATED = 2.0

# By what a cache's size may miss the sizes between which the latency rises.
_TOLERANCE = 4 / 3

_MEASURE = "memkern latency -o latency.parquet"
_MEASURE_CHAINS = "memkern latency --sizes 1GiB --chains 1,2,4,8,16,32 -o chains.parquet"
_MEASURE_LOADED = "memkern latency loaded -o loaded.parquet"
_MEASURE_CORES = "memkern latency cores -o cores.parquet"
_MEASURE_NUMA = "memkern latency numa -o numa.parquet"


def chases(records: Records, measure: str) -> tuple[DataFrame, list[str]]:
    """Return the chases by one worker, with their order in the column kind, and notes."""
    frame, notes = select(
        records,
        [CHASE],
        ("size_B", "chains", "order", "threads"),
        measure=measure,
        value=NS,
    )
    frame = frame[frame["threads"] == 1]
    if "name" in frame:
        frame = frame[~frame["name"].astype(str).str.fullmatch(NODES.strip("^$"))]
    if frame.empty:
        raise InputError(f"no chase was measured with one worker: `{measure}` does so")
    kinds = frame[["order", "pages_asked"]] if "pages_asked" in frame else frame[["order"]]
    several = kinds.nunique()
    texts = frame["order"].astype(str) + " order"
    if several.get("pages_asked", 1) > 1:
        texts += ", pages " + frame["pages_asked"].astype(str)
    return frame.assign(kind=texts), notes


@figure("latency-sizes")
def over_sizes(records: Records = None) -> Figure:
    """Time of a load that waits for the one before against the size of the buffer.

    Parameters
    ----------
    records : DataFrame or ResultSet
        Own records of `latency.chase` with one chain over two sizes or more. The caches are marked
        if a ResultSet describes them.

    Returns
    -------
    matplotlib.figure.Figure
        A panel for each machine, 6.9 in wide, 3.35 in with one panel.

    Raises
    ------
    InputError
        No chase over two sizes, or records without a needed column.
    """
    frame, notes = chases(records, _MEASURE)
    frame = frame[frame["chains"] == 1]
    frame = frame[frame.groupby(["machine", "kind"])["size_B"].transform("nunique") > 1]
    if frame.empty:
        raise InputError(f"no chase was measured over two sizes: `{_MEASURE}` does so")
    frame = ranked(frame, NS, lowest=True).drop_duplicates(["machine", "kind", "size_B"])
    kinds = sorted(set(frame["kind"]))
    fig, cells = machine_panels(frame, 2.5)
    for ax, rows in cells:
        curves(ax, rows, "kind", kinds, "size_B", NS)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        low = frame[NS].min() / 1.25
        ax.set_ylim(low, max(frame[NS].max() * 1.25, 5 * low))
        bytes_axis(ax.xaxis, 5)
        counts_axis(ax.yaxis, 12)
        cache_regions(ax, cache_ends(rows))
        ax.set(xlabel="Size of the buffer", ylabel="Time of a load (ns)")
        if len(cells) > 1:
            ax.set_title(named(rows["machine"].iloc[0]), pad=11)
    return finish(fig, 2, notes, frame)


@figure("latency-chains")
def in_parallel(records: Records = None) -> Figure:
    """Concurrent loads of a core against its number of independent chains.

    The latency of a single chain divided by the time from one load to the next of all chains.

    Parameters
    ----------
    records : DataFrame or ResultSet
        Own records of `latency.chase` with one worker, with one chain and with two or more in a
        buffer of the same size.

    Returns
    -------
    matplotlib.figure.Figure
        A panel for each machine with a curve for each size, 6.9 in wide, 3.35 in with one panel.

    Raises
    ------
    InputError
        No size with one and with several chains, or records without a needed column.

    References
    ----------
    Little's law: what is in flight is latency times rate.
    """
    frame, notes = concurrency(records)
    fig, cells = machine_panels(frame, 2.5)
    for ax, rows in cells:
        sizes = sorted(set(frame["size_B"]))
        for number, size in enumerate(sizes):
            mine = rows[rows["size_B"] == size]
            if len(mine):
                curve(ax, mine, "chains", "in_flight", marked_look(number), in_bytes(size))
        most = frame["chains"].max()
        ax.plot([1, most], [1, most], color=GREY, linewidth=0.8, label="as many as chains")
        counted_axis(ax, frame["chains"])
        ax.set_yscale("log", base=2)
        counts_axis(ax.yaxis)
        ax.set(xlabel="Independent chains", ylabel="Loads in flight")
        if len(cells) > 1:
            ax.set_title(named(rows["machine"].iloc[0]), pad=11)
    return finish(fig, 4, notes, frame)


def concurrency(records: Records) -> tuple[DataFrame, list[str]]:
    """Return chases with the column in_flight, of sizes with one and with several chains."""
    frame, notes = chases(records, _MEASURE_CHAINS)
    case = ["machine", "kind", "size_B"]
    frame = ranked(frame, NS, lowest=True).drop_duplicates([*case, "chains"])
    single = frame[frame["chains"] == 1].set_index(case)[NS]
    frame = frame[frame.groupby(case)["chains"].transform("nunique") > 1]
    frame = frame.join(single.rename("single"), on=case)
    frame = frame[frame["single"].notna()]
    if frame.empty:
        raise InputError(
            f"no size was measured with one and with several chains: `{_MEASURE_CHAINS}` does so"
        )
    frame = frame.assign(in_flight=frame["single"] / frame[NS])
    # Chains that ask more often keep more lines in a cache that other cores use as well.
    elsewhere = frame["in_flight"] > _MOST_IN_FLIGHT * frame["chains"]
    if elsewhere.any():
        notes = [
            *notes,
            f"{counted(int(elsewhere.sum()), 'point')} left out, with loads that were faster than "
            "those of a single chain: a shared cache held more of the data.",
        ]
    return frame[~elsewhere], notes


def loaded_points(records: Records) -> tuple[DataFrame, list[str]]:
    """Return loaded latencies with their share of loads and the idle latency of the machine."""
    frame, notes = select(
        records,
        [LOADED],
        ("loads", "pause", "size_B", "traffic_GBps", "threads"),
        measure=_MEASURE_LOADED,
        value=NS,
    )
    idle, _ = select(records, [CHASE], ("size_B", "chains", "threads"), value=NS)
    if len(idle):
        idle = idle[(idle["chains"] == 1) & (idle["threads"] == 1)]
        idle = idle[idle["size_B"].isin(frame["size_B"].unique())]
        idle = ranked(idle, NS, lowest=True).drop_duplicates("machine")
        frame = frame.join(idle.set_index("machine")[NS].rename("idle_ns"), on="machine")
    else:
        frame = frame.assign(idle_ns=float("nan"))
    share = 100 * frame["loads"] / _GROUP
    texts = [f"{s:.0f} % loads" for s in share]
    return frame.assign(share=share, kind=texts), notes


@figure("latency-loaded")
def beside_traffic(records: Records = None) -> Figure:
    """Latency from memory against the bandwidth of the other workers' traffic.

    Parameters
    ----------
    records : DataFrame or ResultSet
        Own records of `latency.loaded`; those of `latency.chase` with a buffer of the same size
        give the latency without traffic.

    Returns
    -------
    matplotlib.figure.Figure
        A panel for each machine with a curve for each share of loads, 6.9 in wide, 3.35 in with
        one panel. A star marks the highest bandwidth of each curve.

    Raises
    ------
    InputError
        No such record, or records without a needed column.

    References
    ----------
    Esmaili-Dokht et al., A Mess of Memory System Benchmarking, Simulation and Application
    Profiling, MICRO 2024, figure 2.
    """
    frame, notes = loaded_points(records)
    shares = sorted(set(frame["share"]), reverse=True)
    fig, cells = machine_panels(frame, 2.6)
    for ax, rows in cells:
        for number, share in enumerate(shares):
            mine = rows[rows["share"] == share].sort_values("traffic_GBps")
            if mine.empty:
                continue
            curve(ax, mine, "traffic_GBps", NS, marked_look(number), str(mine["kind"].iloc[0]))
            top = mine.iloc[-1]
            color = marked_look(number).color
            ax.plot(
                top["traffic_GBps"], top[NS], "*", color=color, markersize=9, zorder=7,
                label="_highest",
            )  # fmt: skip
        idle = float(rows["idle_ns"].iloc[0])
        if idle == idle:
            ax.axhline(idle, color=GREY, linewidth=0.9, linestyle=(0, (4, 2)), label="no traffic")
        ax.set_xlim(left=0)
        ax.set_ylim(0, 1.15 * max(frame[NS].max(), idle if idle == idle else 0.0))
        ax.set(xlabel="Bandwidth of the traffic (GB/s)", ylabel="Time of a load (ns)")
        if len(cells) > 1:
            ax.set_title(named(rows["machine"].iloc[0]), pad=11)
        generators = int(rows["threads"].max()) - 1
        if idle == idle and rows[NS].max() < _SATURATED * idle:
            text = f"not saturated with {generators} generator{'s' * (generators > 1)}"
            ax.text(0.03, 0.05, text, transform=ax.transAxes, color=GREY, fontsize="small")
    return finish(fig, 3, notes, frame)


@figure("latency-cores")
def between_cores(records: Records = None) -> Figure:
    """Time from a core's write to another core's answer, for every pair, as a heat map.

    Parameters
    ----------
    records : DataFrame or ResultSet
        Own records of `latency.ping_pong`.

    Returns
    -------
    matplotlib.figure.Figure
        A panel for each machine and number of lines, 6.9 in wide, 3.35 in with one panel. Units
        are in ascending order.

    Raises
    ------
    InputError
        No such record, or records without a needed column.
    """
    columns = ("pin", "lines", "take_by")
    frame, notes = select(records, [PING_PONG], columns, measure=_MEASURE_CORES, value=NS)
    frame = ranked(frame, NS, lowest=True).drop_duplicates(["machine", *columns])
    cells = list(frame.groupby(["machine", "lines", "take_by"]))
    fig, axes = panels(len(cells), 2, 2.7)
    several = frame["machine"].nunique() > 1
    for ax, ((machine, lines, take_by), rows) in zip(axes, cells, strict=True):
        found = {}
        for pin, ns in zip(rows["pin"], rows[NS], strict=True):
            first, second = map(int, str(pin).split(","))
            found[first, second] = found[second, first] = ns
        heat_map(ax, found, "ns")
        kind = "one line" if lines == 1 else "a line in each direction"
        kind += ", swapped" * (take_by == "swap")
        ax.set_title(f"{named(machine, 20)}\n{kind}" if several else kind)
        ax.set(xlabel="Processing unit", ylabel="Processing unit")
    return finish(fig, 2, notes, frame)


@figure("latency-numa")
def between_nodes(records: Records = None) -> Figure:
    """Latency and bandwidth from the units of each NUMA node to the memory of each, as heat maps.

    Parameters
    ----------
    records : DataFrame or ResultSet
        Own records of ``memkern latency numa``, whose names tell the nodes.

    Returns
    -------
    matplotlib.figure.Figure
        Two panels for each machine, 6.9 in wide.

    Raises
    ------
    InputError
        No such record, or records without a needed column.
    """
    columns = ("name", "bandwidth_GBps")
    frame, notes = select(
        records, [CHASE, TRIAD], columns, measure=_MEASURE_NUMA, value="time_min_s"
    )
    nodes = frame["name"].astype(str).str.extract(NODES).astype(float)
    frame = frame.assign(units=nodes[0], memory=nodes[1]).dropna(subset=["units", "memory"])
    if frame.empty:
        raise InputError(f"no record is of NUMA nodes: `{_MEASURE_NUMA}` measures them")
    kinds = {
        CHASE: (NS, "ns", "Latency"),
        TRIAD: ("bandwidth_GBps", "GB/s", "Bandwidth of a triad"),
    }
    cells = list(frame.groupby(["machine", "kernel"]))
    fig, axes = panels(len(cells), 2, 2.4)
    for ax, ((machine, kernel), rows) in zip(axes, cells, strict=True):
        column, unit, title = kinds[str(kernel)]
        pairs = zip(rows["units"].astype(int), rows["memory"].astype(int), strict=True)
        heat_map(ax, dict(zip(pairs, rows[column], strict=True)), unit)
        several = frame["machine"].nunique() > 1
        ax.set_title(f"{named(machine, 20)}\n{title}" if several else title)
        ax.set(xlabel="Node of the memory", ylabel="Node of the units")
    single = frame["units"].nunique() == frame["memory"].nunique() == 1
    notes = [*notes, *["One node: nothing is remote."] * single]
    return finish(fig, 2, notes, frame)


@register(tables, "latency-structure")
def structure(records: Records = None) -> DataFrame:
    """Levels of the caches as the latency over sizes shows them, beside what the system says.

    Parameters
    ----------
    records : DataFrame or ResultSet
        Own records of `latency.chase` in random order with one chain over many sizes. A ResultSet
        describes the caches.

    Returns
    -------
    DataFrame
        A row for each machine and level: machine, level (from 1), ns (of a load), fits_B (largest
        size of the level's plateau), exceeds_B (smallest size of the next level's plateau, NaN for
        the last), system (name of the cache of that number) and system_B (its size), agrees
        (whether that size lies within a third of the range from fits_B to exceeds_B).

    Raises
    ------
    InputError
        No such record at three sizes, or records without a needed column.

    Notes
    -----
    See `memkern.models.structure.plateaus`.
    """
    from pandas import DataFrame

    frame, _ = chases(records, _MEASURE)
    frame = frame[(frame["chains"] == 1) & (frame["order"] == "random") & ~frame["disturbed"]]
    frame = ranked(frame, NS, lowest=True).drop_duplicates(["machine", "size_B"])
    lines = []
    for machine, rows in frame.groupby("machine", sort=False):
        found = plateaus(rows["size_B"], rows[NS])
        known = cache_ends(rows)
        for number, plateau in enumerate(found):
            last = number + 1 == len(found)
            exceeds_B = math.nan if last else found[number + 1].begin_B
            name, system_B = known[number] if number < len(known) and not last else ("", math.nan)
            inside = plateau.end_B / _TOLERANCE <= system_B <= exceeds_B * _TOLERANCE
            lines.append(
                {
                    "machine": machine,
                    "level": number + 1,
                    "ns": plateau.value,
                    "fits_B": plateau.end_B,
                    "exceeds_B": exceeds_B,
                    "system": name,
                    "system_B": system_B,
                    "agrees": bool(inside) if name else None,
                }
            )
    if not lines:
        raise InputError(f"no latency is the same over three sizes: `{_MEASURE}` measures them")
    return DataFrame(lines)


def levels_that_differ(records: Records) -> DataFrame:
    """Return the levels whose capacity is not what the system says, none if there is no plateau."""
    from pandas import DataFrame

    try:
        found = structure(records)
    except InputError:
        return DataFrame(columns=["machine"])
    return found[found["agrees"].eq(False)]


def findings(records: Records) -> list[str]:
    """Return sentences on latencies, misses in flight, and lines that two cores exchange."""
    frame, _ = chases(records, _MEASURE)
    single = frame[(frame["chains"] == 1) & (frame["order"] == "random")]
    found: dict[object, list[str]] = {}
    for machine, rows in single.groupby("machine", sort=False):
        smallest, largest = (rows.sort_values("size_B").iloc[k] for k in (0, -1))
        found[machine] = [
            f"A load that waits for the one before takes {three_figures(smallest[NS])} ns in "
            f"{in_bytes(smallest['size_B'])} and {three_figures(largest[NS])} ns in "
            f"{in_bytes(largest['size_B'])}"
        ]
    for machine, rows in levels_that_differ(records).groupby("machine", sort=False):
        for row in rows.to_dict("records"):
            found.setdefault(machine, []).append(
                f"The latency rises between {in_bytes(row['fits_B'])} and "
                f"{in_bytes(row['exceeds_B'])}, where the system says that {row['system']} has "
                f"{in_bytes(row['system_B'])}"
            )
    try:
        several, _ = concurrency(records)
    except InputError:
        several = frame.iloc[:0]
    for machine, rows in several.groupby("machine", sort=False):
        most = rows.sort_values(["size_B", "in_flight"]).iloc[-1]
        found.setdefault(machine, []).append(
            f"{int(most['chains'])} independent chains in {in_bytes(most['size_B'])} have "
            f"{three_figures(most['in_flight'])} loads in flight: {three_figures(most[NS])} ns "
            "from one to the next"
        )
    exchanged, _ = select(records, [PING_PONG], ("pin", "lines", "take_by"), value=NS)
    exchanged = exchanged[(exchanged["lines"] == 1) & (exchanged["take_by"] == "load")]
    for machine, rows in exchanged.groupby("machine", sort=False):
        low, high = rows[NS].min(), rows[NS].max()
        spread = three_figures(low) if len(rows) == 1 else (
            f"{three_figures(low)} to {three_figures(high)}"
        )  # fmt: skip
        found.setdefault(machine, []).append(
            f"A core answers another core's write after {spread} ns"
        )
    return with_names(found)


family_section(
    "latency",
    6,
    "latency",
    "Latency",
    findings,
    (
        (
            "Dependent loads",
            over_sizes,
            "Time from one load to the next if each waits for the one before, through all lines "
            "of a buffer in random order.",
        ),
        (
            "Loads in flight",
            in_parallel,
            "The latency of a single chain divided by the time from one load to the next of all "
            "chains of one core.",
        ),
    ),
)
