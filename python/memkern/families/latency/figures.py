"""Figures and tables of latency: over sizes, in parallel, under load, between cores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from memkern.families.latency.data import (
    CHASE,
    MEASURE,
    MEASURE_STRUCTURE,
    NS,
    PAIRS,
    TRIAD,
    banks,
    beside_atomics,
    chains_and_gathers,
    chases,
    concurrency,
    in_both_orders,
    loaded_points,
    node_pairs,
    sampled,
    saturation,
)
from memkern.families.latency.findings import findings
from memkern.families.latency.structure_data import (
    cycle_ns,
    line_B,
    pairs,
    structure_chases,
    structure_rows,
    tlbs,
    translation,
)
from memkern.plots.kit import (
    AMONG,
    GREY,
    QUANTITY,
    TITLE,
    Axes,
    Axis,
    Curves,
    DataFrame,
    Figure,
    HeatMap,
    Ideal,
    Level,
    Measured,
    Panel,
    Records,
    Selection,
    Shown,
    byte_scale,
    byte_ticks,
    bytes_axis,
    cache_regions,
    concat,
    count_scale,
    counts_axis,
    distinct,
    drawn,
    family_section,
    finish,
    in_bytes,
    log2_axis,
    log_counts,
    log_scale,
    machine_title,
    marked_look,
    named,
    need_rows,
    new_table,
    ordered,
    panels,
    ranked,
    table,
    tabulated,
    three_figures,
    ticks_at,
)
from memkern.statistics import factor_of


@Curves(
    name="latency-sizes",
    x=Axis("size_B", "Size of the buffer", byte_scale),
    y=Axis(NS, "Time of a load (ns)", log_scale),
    layers=(Measured("kind"),),
    records="`latency.chase` with one chain over two sizes or more",
    lack="no chase was measured over two sizes",
    measure=MEASURE,
    caches=True,
    legend=2,
)
def over_sizes(records: Records = None) -> Selection:
    """Time of a load that waits for the previous load against the size of the buffer."""
    frame, notes = chases(records, MEASURE)
    frame = frame[frame["chains"] == 1]
    frame = frame[frame.groupby(["machine", "kind"])["size_B"].transform("nunique") > 1]
    frame = ranked(frame, NS, lowest=True).drop_duplicates(["machine", "kind", "size_B"])
    return frame.sort_values("kind", kind="stable"), notes


@Curves(
    name="latency-devices",
    x=Axis("size_B", "Size of the buffer", byte_ticks(8)),
    y=Axis(NS, "Time of an operation (ns)", log_counts(12)),
    layers=(Measured("label"),),
    panels=(),
    columns=1,
    height=3.0,
    title=lambda *_: "",
    legend=2,
    returns="A panel, 6.9 in wide, with a color for each machine.",
    records="`latency.chase` in random order with one chain and one worker, on a processor and on "
    "a GPU, and of `amo.ptrchase` with one worker, if any",
    lack="no chase on a processor or none on a GPU",
)
def processors_and_gpus(records: Records = None) -> Selection:
    """Time of a dependent load and atomic operation on processors and GPUs against the size."""
    frame, notes = beside_atomics(records)
    looks = [
        [marked_look(number) for number in frame.groupby(column, sort=False).ngroup()]
        for column in ("kind", "machine")
    ]
    return frame.assign(
        label=frame["kind"] + ", " + frame["machine"].map(lambda name: named(name, 24)),
        look=[kind._replace(color=machine.color) for kind, machine in zip(*looks, strict=True)],
    ), notes


@Curves(
    name="latency-chains",
    x=Axis("chains", "Independent chains", count_scale),
    y=Axis("in_flight", "Loads in flight", log_scale),
    layers=(Measured("size"), Ideal("chains", "as many as chains")),
    records="`latency.chase` with one worker, with one chain and with two or more in a buffer of "
    "the same size",
    lack="no size was measured with one and with several chains",
    measure=MEASURE,
)
def in_parallel(records: Records = None) -> Selection:
    """Concurrent loads of a core against its number of independent chains.

    The latency of a single chain divided by the mean time between consecutive loads of all chains.

    References
    ----------
    Little's law: the number of loads in flight is latency times rate.
    """
    frame, notes = concurrency(records)
    frame = frame.sort_values("size_B", kind="stable")
    return frame.assign(size=frame["size_B"].map(in_bytes)), notes


def _with_the_highest(panel: Panel) -> None:
    """Draw a star at the highest bandwidth of each curve, and say if traffic did not saturate."""
    ax, rows = panel.ax, panel.rows
    for number, kind in enumerate(distinct(panel.frame["kind"])):
        top = rows[rows["kind"] == kind].nlargest(1, "traffic_GBps")
        how: dict[str, Any] = {"color": marked_look(number).color, "zorder": 7}
        ax.plot(top["traffic_GBps"], top[NS], "*", markersize=9, label="_highest", **how)
    ax.plot([], [], "*", color=GREY, markersize=9, label="most traffic")
    text = saturation(rows["idle_ns"].iloc[0], rows[NS].max(), int(rows["threads"].max()))
    ax.text(0.03, 0.05, text, transform=ax.transAxes, color=GREY, fontsize="small")


def _from_no_traffic(ax: Axes, rows: DataFrame, frame: DataFrame, _: str) -> None:
    """Begin both axes at zero."""
    # Intervals of more than a factor of 3 leave the panel.
    highest = (frame[NS] * factor_of(frame["ci_relative"].fillna(0.0)).clip(upper=3)).max()
    ax.set(xlim=(0, None), ylim=(0, 1.05 * max(highest, rows["idle_ns"].fillna(0.0).iloc[0])))


@Curves(
    name="latency-loaded",
    x=Axis("traffic_GBps", "Bandwidth of the traffic (GB/s)"),
    y=Axis(NS, "Time of a load (ns)", _from_no_traffic),
    # Past saturation, shorter pauses may make less traffic.
    layers=(
        Measured("kind", along="pause"),
        Level("idle_ns", "no traffic", (0, (4, 2))),
        _with_the_highest,
    ),
    height=2.6,
    legend=3,
    returns="A panel for each machine with a curve for each share of loads, 6.9 in wide, 3.35 in "
    "with one panel. A star marks the highest bandwidth of each curve.",
    records="`latency.loaded`; those of `latency.chase` with a buffer of the same size give the "
    "latency without traffic",
)
def beside_traffic(records: Records = None) -> Selection:
    """Latency from memory against the bandwidth of the other workers' traffic.

    References
    ----------
    Esmaili-Dokht et al., A Mess of Memory System Benchmarking, Simulation and Application
    Profiling, MICRO 2024, figure 2.
    """
    frame, notes = loaded_points(records)
    shares = frame.sort_values("share", ascending=False)
    return ordered(frame, "kind", shares["kind"].unique()), notes


@HeatMap(
    name="latency-cores",
    rows=Axis("first", "Unit that touched the line first"),
    by=Axis("second", "Other processing unit"),
    value=Axis(NS, "ns"),
    panels=("machine", "lines", "take_by"),
    sort=True,
    height=2.7,
    returns="A panel for each machine and number of lines, 6.9 in wide, 3.35 in with one panel. "
    "Units of a core, of a cache and of a NUMA node are side by side if a ResultSet describes the "
    "machine, else in ascending order. A pair that was measured in one order stands in both.",
    records="`latency.ping_pong`",
)
def between_cores(records: Records = None) -> Selection:
    """Time from a core's write to another core's answer, for every pair, as a heat map."""
    return in_both_orders(records)


@HeatMap(
    name="latency-numa",
    rows=Axis("units", "Node of the units"),
    by=Axis("memory", "Node of the memory"),
    value={CHASE: Axis(NS, "ns"), TRIAD: Axis("bandwidth_GBps", "GB/s")},
    panels=("machine", QUANTITY),
    sort=True,
    height=2.4,
    returns="Two panels for each machine, 6.9 in wide.",
    records="``memkern latency numa``, whose names state the nodes",
)
def between_nodes(records: Records = None) -> Selection:
    """Latency and bandwidth between the units and the memory of each pair of NUMA nodes."""
    frame, notes = node_pairs(records)
    titles = frame["kernel"].map({CHASE: "Latency", TRIAD: "Bandwidth of a triad"})
    frame = frame.assign(**{QUANTITY: frame["kernel"], TITLE: titles})
    single = frame["units"].nunique() == frame["memory"].nunique() == 1
    return frame, [*notes, *["There is one NUMA node: no memory is remote."] * single]


@tabulated(
    "latency-numa",
    "Columns machine, units and memory (numbers of nodes), ns_per_access (of a load that waits "
    "for the one before), bandwidth_GBps (of a triad) and disturbed (whether either record was).",
    records="``memkern latency numa``, whose names state the nodes",
)
def node_table(records: Records = None) -> DataFrame:
    """Latency and bandwidth from the units of each NUMA node to the memory of each."""
    frame, _ = node_pairs(records)
    # The latency is that of the chase, the bandwidth that of the triad.
    columns = {NS: CHASE, "bandwidth_GBps": TRIAD}
    frame = frame.assign(**{c: frame[c].where(frame["kernel"] == k) for c, k in columns.items()})
    pairs = frame.groupby(["machine", "units", "memory"], as_index=False)
    return pairs.agg({NS: "first", "bandwidth_GBps": "first", "disturbed": "any"})


@Curves(
    name="latency-banks",
    x=Axis(
        "stride",
        "Words from a lane to the next",
        lambda ax, _, frame, x: ax.set(xticks=range(0, int(frame[x].max()) + 1, 8)),
    ),
    y=Axis(NS, "Time of a load (ns)", log_scale),
    layers=(Measured("kind"),),
    records="`latency.banks`",
    legend=2,
)
def bank_conflicts(records: Records = None) -> Selection:
    """Time of a load from a GPU's shared memory against the stride of a warp's lanes."""
    return banks(records)


@table(
    "latency-banks",
    "platform, dtype, block_threads, stride, ways (how often a load accesses the same bank, by the "
    "arithmetic of 32 banks of 4 bytes), ns_per_access, cycles (at the clock that was read while "
    "the kernel ran; NaN if unknown), disturbed",
    integers="block_threads, stride",
    records="`latency.banks`",
)
def bank_table(records: Records = None) -> Selection:
    """Time of a load from a GPU's shared memory by the stride of a warp's lanes."""
    return banks(records)


@tabulated(
    "latency-structure",
    "For each machine: rows for each cache, for what lies beyond, for each level of TLBs, for "
    "walks of the page table, for the line, and for the line beside it. Columns: machine, what, "
    "found (in words), system (what the system says; it does not know of prefetchers, nor off x86 "
    "of TLBs), agrees (``yes``, ``differs`` or nothing), ns (of a load in this level; what "
    "translation adds in this level, for walks with the most pages; by how much a second access "
    "in another line that is in L2, or in the adjacent line beyond L2, takes longer than in the "
    "same one), cycles (the same), fits_B (largest size of the level, size of the line) and "
    "exceeds_B (smallest size of the next level).",
    records="``memkern latency structure``, or of `latency.chase` in random order with one chain "
    "over many sizes alone. A ResultSet describes the machine",
    lack="no such record shows anything of these",
)
def structure(records: Records = None) -> DataFrame:
    """Capacities of caches, reaches of TLBs and line sizes, by latency and by the system.

    Notes
    -----
    Caches and TLBs agree if the system's size is between fits_B and exceeds_B, or outside of this
    range by less than a third. TLBs are derived from the shortest times, since other code on the
    core also uses TLB entries, and the rest from medians. The adjacent lines used for comparison
    need a 64th of the pages; if these pages also exceed a TLB, the cost of translation is
    underestimated. Adjacent lines beyond L2 also take less time than distant ones if prefetchers
    predict some of them or their row is open in memory. See `memkern.models.structure`.
    """
    rows = structure_rows(records)
    need_rows(rows, f"no latency is the same over three sizes: `{MEASURE_STRUCTURE}` measures them")
    return new_table(rows)


@drawn(
    "latency-structure",
    "Two panels for each machine, 6.9 in wide: the additional time of a load of lines in separate "
    "pages over one of as many adjacent lines, with the reach of each TLB, and the additional time "
    "of the second access of a pair over one 8 bytes away, with the size of a line.",
    records="``memkern latency structure``",
)
def structure_curves(records: Records = None) -> Figure:
    """Cost of address translation over pages, and time of a second access over its distance.

    See Also
    --------
    memkern.models.structure.tlb_levels, memkern.models.structure.line_size
    """
    frame, notes = structure_chases(records)
    kinds = (
        (translation, _draw_translation, "Address translation"),
        (pairs, _draw_pairs, "Second access of a pair"),
    )
    cells = [
        (draw, title, rows)
        for _, rows in frame.groupby("machine", sort=False)
        for costs, draw, title in kinds
        if len(costs(rows)) > 1
    ]
    need_rows(
        cells,
        "no chase shows the cost of address translation or the size of a line: "
        f"`{MEASURE_STRUCTURE}` measures both",
    )
    fig, axes = panels(len(cells), 2, 2.5)
    several = frame["machine"].nunique() > 1
    for ax, (draw, title, rows) in zip(axes, cells, strict=True):
        draw(ax, rows)
        # Above the names of the regions.
        ax.set_title(machine_title(rows.assign(panel=title), several), pad=11.0)
    if any(draw is _draw_pairs for draw, _, _ in cells):
        notes.append(
            "Pairs: both accesses are in one aligned block of twice their distance; pairs-across: "
            "they are in two adjacent blocks; in either order. If lines are fetched in pairs, only "
            "pairs take less time."
        )
    return finish(fig, 4, notes, frame)


def _draw_translation(ax: Axes, rows: DataFrame) -> None:
    """Draw the cost of translation over pages, with the reaches of the TLBs."""
    costs = translation(rows)
    page_B = costs["size_B"].iloc[0] / costs["pages"].iloc[0]
    ax.plot(costs["size_B"], costs["cost_ns"], **marked_look(0)._asdict())
    bytes_axis(ax, 6)
    _cost_axis(ax)
    ends = [
        (f"TLB {number}: {level.end_B / page_B:.0f} pages", level.end_B)
        for number, level in enumerate(tlbs(rows), start=1)
        if level.end_B < costs["size_B"].max()
    ]
    cache_regions(ax, ends, "page walks")
    ax.set(xlabel=f"Size of all pages of {in_bytes(page_B)}", ylabel="Cost of translation (ns)")


def _draw_pairs(ax: Axes, rows: DataFrame) -> None:
    """Draw the time of a second access against its distance, with the size of a line."""
    times, size_B = pairs(rows), line_B(pairs(rows), cycle_ns(rows))
    # Across blocks that are smaller than a line, some pairs are in one line.
    curves = [
        (order, buffer_B, mine if order == "pairs" else mine[~(mine["distance_B"] < size_B)])
        for buffer_B in sorted(set(times["size_B"]))
        for mine in [times[times["size_B"] == buffer_B]]
        for order in PAIRS
    ]
    for number, (order, buffer_B, mine) in enumerate(curves):
        label = f"{order} in {in_bytes(buffer_B)}"
        ax.plot(mine["distance_B"], mine[order], label=label, **marked_look(number)._asdict())
    ax.set_xscale("log", base=2)
    log2_axis(ax.xaxis)
    _cost_axis(ax)
    # The first access to another line is drawn to the right of the mark.
    ends = [] if math.isnan(size_B) else [("same line", size_B / math.sqrt(2))]
    cache_regions(ax, ends, f"other lines of {in_bytes(size_B)}")
    ax.set(xlabel="Distance of the second access (B)", ylabel="Additional time over 8 B (ns)")


def _cost_axis(ax: Axes) -> None:
    """Scale the y axis for costs from zero to hundreds of nanoseconds."""
    low, high = ax.dataLim.intervaly
    ax.set_yscale("symlog", linthresh=1, linscale=0.4)
    ax.set_ylim(min(-0.5, 2 * low), max(2 * high, 4))
    costs = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    ticks_at(ax.yaxis, [*(-cost for cost in costs[::2]), 0, *costs], three_figures)


@drawn(
    "latency-histogram",
    "A panel for each machine and size, with a histogram for each order. Vertical lines mark the "
    "medians. The axis is logarithmic if the times span more than a factor of three.",
    records="`latency.chase` with one chain, with their samples",
    lack="no such record, records without samples, or a size that was not measured",
)
def histograms(records: Records = None, sizes: str = "") -> Figure:
    """Distribution of the time of a load over the samples, for each size of the buffer.

    Parameters
    ----------
    sizes : str
        Sizes of the buffers, such as ``16KiB,1MiB``; by default up to six of all.
    """
    frame, notes = sampled(records, sizes)
    kinds = sorted(set(frame["kind"]))
    cells = [rows for _, rows in frame.groupby(["machine", "size_B"])]
    fig, axes = panels(len(cells), 3, 1.7)
    several = frame["machine"].nunique() > 1
    for ax, rows in zip(axes, cells, strict=True):
        _draw_histograms(ax, rows, kinds)
        ax.set_title(machine_title(rows.assign(panel=in_bytes(rows["size_B"].iloc[0])), several))
    notes.append("The last bin of a panel also has all samples that are slower.")
    return finish(fig, 3, notes, frame, AMONG)


def _draw_histograms(ax: Axes, rows: DataFrame, kinds: Sequence[str]) -> None:
    """Draw the samples of the records of one size in one panel."""
    import numpy as np

    times = rows["samples_ns"]
    low = min(map(np.min, times))
    high = max(1.01 * low, *(np.quantile(one, 0.98) for one in times))
    wide = high > 3 * low
    bins = min(40, 10 + math.isqrt(max(map(len, times))))
    edges = (np.geomspace if wide else np.linspace)(low, high, bins + 1)
    for row in rows.to_dict("records"):
        taken, color = row["samples_ns"], marked_look(kinds.index(row["kind"])).color
        how: dict[str, Any] = {"alpha": 0.5, "label": row["kind"]}
        if row["disturbed"]:
            how = {"histtype": "step", "label": "_disturbed"}
        share = np.full(len(taken), 100 / len(taken))
        ax.hist(np.minimum(taken, high), list(edges), weights=share, color=color, **how)
        ax.axvline(row[NS], color=color, linewidth=1.0, label="median")
    if wide:
        ax.set_xscale("log")
        counts_axis(ax.xaxis, 5)
    ax.set(xlabel="Time of a load (ns)", ylabel="Samples (%)")


def _rates(ax: Axes, rows: DataFrame, frame: DataFrame, column: str) -> None:
    """Make y logarithmic, the same in both panels of a machine."""
    least = frame.loc[frame[QUANTITY] == "chains", column].min()
    mine = frame[frame["machine"] == rows["machine"].iloc[0]]
    ax.set(yscale="log", ylim=(0.7 * least, 1.5 * mine[column].max()))
    counts_axis(ax.yaxis)


@Curves(
    name="latency-gather",
    x={
        "chains": Axis("chains", "Independent chains", count_scale),
        "gathers": Axis("stride_B", "Stride", byte_ticks(6)),
    },
    y=Axis("rate", "Lines (million/s)", _rates),
    layers=(
        Measured("series"),
        Ideal("ideal", "as one chain"),
        Level("random", "random gather", colour=marked_look(2).color),
        Level("most", "highest rate of chains", (0, (4, 2))),
    ),
    panels=("machine", QUANTITY),
    returns="Two panels for each machine, 6.9 in wide. The rate of chains, once further chains no "
    "longer raise it, is an upper limit of random gathers; prefetchers predict strides, which may "
    "exceed it.",
    records="`latency.chase` with one worker and several numbers of chains, of which the largest "
    "buffer counts, and of `spatter.gather` with one worker and uniform strides of a line or more "
    "or a random pattern, in arrays beyond the caches",
    lack="no record of either",
)
def beside_gather(records: Records = None) -> Shown:
    """Lines that one core loads per second: in independent chains, and by gathers.

    References
    ----------
    Little's law: k lines in flight correspond to k / latency lines per second.
    """
    chains, loads, notes, lonely = chains_and_gathers(records)
    most = chains.groupby("machine")["rate"].max()
    alone = chains[chains["chains"] == 1].set_index("machine")["rate"]
    random = loads[loads["stride_B"].isna()].set_index("machine")["rate"]
    frame = concat(
        [
            chains.assign(
                quantity="chains",
                series="chains of random loads",
                panel="Chains in " + chains["size_B"].map(in_bytes),
                ideal=chains["machine"].map(alone) * chains["chains"],
            ),
            loads.assign(
                quantity="gathers",
                series=loads["stride_B"].map(lambda _: "strided gather", na_action="ignore"),
                panel="Gathers",
                random=loads["machine"].map(random).astype(float),
            ),
        ]
    )
    limit = (
        "The rate of chains, once further chains no longer raise it, is an upper limit of random "
        "gathers; prefetchers predict strides, which may exceed it."
    )
    notes = [*notes, *lonely, limit, *_still_rising(chains)]
    return Shown(frame.assign(most=frame["machine"].map(most)), notes, lonely)


def _still_rising(chains: DataFrame) -> list[str]:
    """Return a sentence for each machine on which more chains may have a higher rate."""
    notes = []
    for name, rows in chains.groupby("machine", sort=False):
        where = f" on {named(name)}" if chains["machine"].nunique() > 1 else ""
        most = rows["chains"].max()
        # Doubling the chains increases it by more than 15 %.
        if rows["rate"].max() > 1.15 * rows.loc[rows["chains"] <= most / 2, "rate"].max():
            notes.append(
                f"The rate{where} still increases up to {most:.0f} chains: their highest rate is "
                "not yet an upper limit."
            )
    return notes


_EXHIBITS: tuple[tuple[str, Any, str], ...] = (
    (
        "Dependent loads",
        over_sizes,
        "Time from one load to the next if each depends on the previous one, through all lines "
        "of a buffer in random order. Each plateau is a cache, each rise the share of loads "
        "that miss it; a slope beyond the last cache is the cost of address translation.",
    ),
    (
        "Dependent operations on processors and GPUs",
        processors_and_gpus,
        "Time from one operation to the next if each waits for the one before: loads, and "
        "atomic operations on the words of an index array. One thread follows a GPU's chain.",
    ),
    (
        "Loads in flight",
        in_parallel,
        "The latency of a single chain divided by the time from one load to the next of all "
        "chains of one core.",
    ),
)
_RARE: tuple[tuple[str, Any, str], ...] = (
    (
        "Lines by chains and by gathers",
        beside_gather,
        "Once further chains no longer raise it, the rate of chains bounds random gathers.",
    ),
    (
        "Latency beside traffic",
        beside_traffic,
        "Time of a dependent load while the other workers load and store, with ever shorter "
        "pauses. A star marks the highest bandwidth of each mix.",
    ),
    (
        "Address translation and lines",
        structure_curves,
        "What a load of a line in another page costs beyond one in the same page, and what the "
        "second access of a pair costs by its distance.",
    ),
    ("Caches, TLBs and lines by latency", structure, "Beside what the system says of them."),
    (
        "Samples of dependent loads",
        histograms,
        "Each bin is a share of the samples; the line is their median.",
    ),
    ("Exchange between cores", between_cores, "Time from a core's write to another's answer."),
    ("Memory of NUMA nodes", between_nodes, "From the units of each node to the memory of each."),
    ("Memory of NUMA nodes in numbers", node_table, "Of a dependent load and of a triad."),
    ("Conflicts of shared memory", bank_conflicts, "Lanes whose words share a bank take turns."),
    ("Conflicts of shared memory in numbers", bank_table, "Ways: accesses to the same bank."),
)

family_section(
    *("latency", 6, "latency", "Latency", findings, (*_EXHIBITS, *_RARE)),
    rare=[processors_and_gpus, *(exhibit for _, exhibit, _ in _RARE)],
)
