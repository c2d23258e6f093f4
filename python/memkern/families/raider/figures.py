"""Figures and table of streaming through index arrays, regular and irregular.

After Beebe et al. 2022, whose two clusters are drawn next to own platforms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from memkern import reference
from memkern.backends import LIBRARIES
from memkern.machine.caches import data_caches
from memkern.machine.environment import machine_label, platform_label
from memkern.plots.kit import (
    BANDWIDTH,
    HIGH,
    LOW,
    SETTING,
    Axes,
    DataFrame,
    Figure,
    Records,
    Selection,
    best,
    counted,
    counted_axis,
    counts_axis,
    curve,
    curves,
    drawn,
    finish,
    frame_of,
    intervals,
    joined,
    log2_axis,
    named,
    other_look,
    own_look,
    panels,
    plain,
    prevailing,
    rounded,
    select,
    spaced,
    table,
    tabulated,
    typed,
    with_ends,
    words,
)
from memkern.shared.streaming_records import as_defined

OPERATIONS = ("copy", "scale", "add", "triad")
# The kernels of each panel by its title.
KERNELS = {
    title: [f"raider.{access}{name}" for name in OPERATIONS]
    for access, title in (
        ("", "Regular"),
        ("gather_", "Gather"),
        ("scatter_", "Scatter"),
        ("sg_", "Scatter-gather"),
        ("central_", "Central"),
    )
}
_COLUMNS = ("elements", "definition", "dtype", "threads")
_TRIADS = ("raider.triad", "raider.gather_triad", "raider.scatter_triad")
_MEASURE = "memkern raider -o raider.parquet"
_MEASURE_RANKS = "memkern scaling -o scaling.parquet"
# Maximum number of bars in a group with room for their values.
_MOST_VALUES = 4


@cache
def published() -> DataFrame:
    """Return the published bandwidths in the same form as `_own`."""
    return reference.load("raider2022").assign(own=False, disturbed=False)


def _own(
    records: Records, definition: str, index_pattern: str, measure: str = _MEASURE
) -> tuple[DataFrame, list[str]]:
    """Return the own records of one definition and one index pattern.

    `measure` is the command named in the note if there are no records.
    """
    frame, notes = select(records, ["raider"], _COLUMNS)
    some = len(frame) > 0
    frame = _by_model(as_defined(frame, definition, index_pattern)).assign(own=True)
    if records is None:
        notes.append("Published clusters only.")
    elif not some:
        notes.append(f"No own record: `{measure}` measures it.")
    elif frame.empty:
        notes.append(f"No own record with definition {definition} and pattern {index_pattern}.")
    return frame, notes


def _by_model(frame: DataFrame) -> DataFrame:
    """Return records with MPI or OpenSHMEM in the names of platforms on which ranks used it."""
    if "comm" not in frame:
        return frame
    about = frame[["machine", "platform", "comm"]].to_numpy()
    model = [f", {LIBRARIES[comm]}" if comm in LIBRARIES else "" for *_, comm in about]
    machine = frame["machine"] + model
    threads = [platform.removeprefix(machine) for machine, platform, _ in about]
    return frame.assign(machine=machine, platform=machine + threads)


def _means(
    own: DataFrame, by: Sequence[str], repeats: str = "--repeats"
) -> tuple[DataFrame, list[str]]:
    """Return the highest mean over the repeats of a case in each group, and a note on the means.

    A published bandwidth is the mean of five runs, each by its shortest time (equation 1). A record
    has the bandwidth of one such run; the option `repeats` takes the number of runs.
    """
    if own.empty:
        return own, []
    if "case_id" not in own:
        own = own.assign(case_id=own.index.astype(str))
    case = [name for name in (*by, "environment_id", "case_id") if name in own]
    all_disturbed = own.groupby(case, dropna=False)["disturbed"].transform("all")
    own = own[all_disturbed | ~own["disturbed"]]
    runs = own.groupby(case, dropna=False)[BANDWIDTH]
    means = best(own.assign(runs=runs.transform("size"), **{BANDWIDTH: runs.transform("mean")}), by)
    fewest, most = means["runs"].min(), means["runs"].max()
    if most == 1:
        ours = f"own ones are the best of single runs (`{repeats} 5` measures means)"
    else:
        ours = f"own ones of {'' if fewest == most else f'{fewest} to '}{most}"
    return means, [f"Published bandwidths are means of five runs, {ours}."]


@drawn(
    "raider-kernels",
    "A panel for each kind of access, 6.9 in wide.",
    paper="beebe2022-raiderstream",
    number="figure 3, 4",
    records="`raider` kernels",
    lack="a bandwidth is not positive",
    optional=True,
)
def by_kernel(
    records: Records = None, definition: str = "paper", index_pattern: str = "permutation"
) -> Figure:
    """Bandwidth of regular, gather, scatter and central kernels, own and on two clusters.

    Own records over MPI and over OpenSHMEM are separate platforms. Own records have the array
    length and thread count with which most kernels were measured; of several, the largest is used.

    Parameters
    ----------
    definition : str
        Definition of the kernels: ``paper`` or ``release``.
    index_pattern : str
        Index array: ``permutation``, ``stride:8``, ``chase``, ...
    """
    from pandas import concat

    own, notes = _own(records, definition, index_pattern)
    own, _ = prevailing(own, (*SETTING, "elements"), count=("kernel",))
    own, averaged = _means(own, ("platform", "kernel"))
    clusters = published()[published()["figure"].isin([3, 4])]
    parts = [with_ends(part, BANDWIDTH) for part in (own, clusters) if len(part)]
    columns = ["platform", "own", "kernel", "elements", BANDWIDTH, "disturbed", LOW, HIGH]
    points = concat([part[columns] for part in parts], ignore_index=True)
    platforms = points.drop_duplicates("platform")[["platform", "own", "elements"]]
    kernels = {
        title: names for title, names in KERNELS.items() if points["kernel"].isin(names).any()
    }
    fig, axes = panels(len(kernels), 3, 2.2)
    for ax, (title, names) in zip(axes, kernels.items(), strict=True):
        _bars(ax, points, names, platforms[["platform", "own"]])
        ax.set(title=title, ylabel="Bandwidth (GB/s)")
    # The central kernels have a separate scale, since their data stay in one cache line.
    compared = [ax for ax in axes if ax.get_title() != "Central"]
    top = max(ax.get_ylim()[1] for ax in compared)
    for ax in compared:
        ax.set_ylim(0, top)
    elements = platforms[["platform", "elements"]].to_numpy().tolist()
    sizes = [f"{named(platform)}: {spaced(number)}" for platform, number in elements]
    notes.append(f"Elements of each array: {'; '.join(sizes)}. The clusters ran on one core.")
    notes += averaged
    return finish(fig, 4, notes, points)


def _bars(ax: Axes, points: DataFrame, kernels: list[str], platforms: DataFrame) -> None:
    """Draw a group of bars for each kernel, a bar for each platform."""
    looks, number = {}, {True: 0, False: 0}
    for platform, own in platforms.itertuples(index=False):
        colour = (own_look if own else other_look)(number[own]).color
        # There are two colours of own platforms.
        looks[platform] = colour, 0.4 ** (number[own] // 2) if own else 0.6
        number[own] += 1
    points = points[points["kernel"].isin(kernels)]
    here = [platform for platform in looks if platform in set(points["platform"])]
    width = 0.84 / len(here)
    for position, platform in enumerate(here):
        rows = points[points["platform"] == platform].set_index("kernel").reindex(kernels)
        x = [i - 0.42 + width * (position + 0.5) for i in range(len(kernels))]
        colour, alpha = looks[platform]
        ax.bar(
            x,
            rows[BANDWIDTH],
            0.92 * width,
            color=["white" if disturbed is True else colour for disturbed in rows["disturbed"]],
            edgecolor=colour,
            alpha=alpha,
            label=named(platform),
        )
        bars = own_look(0)._replace(linestyle="none")
        intervals(ax, rows.assign(x=x), "x", BANDWIDTH, bars)
        if len(platforms) > _MOST_VALUES:
            continue
        tops = rows[HIGH].fillna(rows[BANDWIDTH])
        for left, value, top in zip(x, rows[BANDWIDTH], tops, strict=True):
            if not math.isnan(value):
                ax.annotate(
                    rounded(value),
                    (left, top),
                    xytext=(0, 2),
                    textcoords="offset points",
                    ha="center",
                    va="bottom",
                    rotation=90,
                    fontsize=5.5,
                )
    ax.set_xticks(range(len(kernels)), OPERATIONS)
    ax.tick_params(axis="x", length=0)
    ax.grid(False, axis="x")
    ax.set_ylim(0, 1.2 * points[[BANDWIDTH, HIGH]].max().max())


@drawn(
    "raider-sizes",
    "Three panels, 6.9 in wide.",
    paper="beebe2022-raiderstream",
    number="figure 5, 6",
    records="`raider` kernels",
    optional=True,
    lack="a bandwidth is not positive",
)
def by_size(
    records: Records = None, definition: str = "paper", index_pattern: str = "permutation"
) -> Figure:
    """Bandwidth of triad, gather triad and scatter triad against the array length.

    Own records with OpenMP alone, over MPI and over OpenSHMEM have a line each.

    Parameters
    ----------
    definition, index_pattern
        As for `by_kernel`.
    """
    own, notes = _own(records, definition, index_pattern)
    own, left = prevailing(own[own["kernel"].isin(_TRIADS)])
    notes += left
    own, averaged = _means(own, ("platform", "kernel", "elements"))
    clusters = published()[published()["figure"].isin([5, 6])]
    fig, axes = panels(len(_TRIADS), 3, 2.5)
    for ax, kernel in zip(axes, _TRIADS, strict=True):
        for number, platform in enumerate(dict.fromkeys(own["platform"])):
            rows = own[(own["platform"] == platform) & (own["kernel"] == kernel)]
            curve(ax, rows, "elements", BANDWIDTH, own_look(number), named(platform))
        here = clusters[clusters["kernel"] == kernel]
        groups = here.groupby(["platform", "model"], sort=False)
        for number, ((cluster, model), rows) in enumerate(groups):
            curve(ax, rows, "elements", BANDWIDTH, other_look(number), f"{cluster}, {model}")
        ax.set_xscale("log")
    for ax in axes:
        counts_axis(ax.xaxis, 5)
    _axes_of_triads(axes, "Elements of each array", [*own[BANDWIDTH], *clusters[BANDWIDTH]])
    return finish(fig, 4, [*notes, *averaged, "The clusters ran on one core."], own)


def _axes_of_triads(axes: Sequence[Axes], xlabel: str, values: Sequence[float]) -> None:
    """Name the panels of the triads, and set the same bandwidth axis with room for all values."""
    for ax, title in zip(axes, ("Triad", "Gather triad", "Scatter triad"), strict=True):
        ax.set(title=title, xlabel=xlabel)
        ax.set_yscale("log", base=2)
        ax.set_ylim(min(values) / 1.25, max(values) * 1.25)
        log2_axis(ax.yaxis)
    axes[0].set_ylabel("Bandwidth (GB/s)")


@drawn(
    "raider-scaling",
    "Three panels, 6.9 in wide.",
    paper="beebe2022-raiderstream",
    number="figure 7, 8",
    records="strong scaling by ``memkern scaling``. Those with more workers than processing units "
    "on a host are left out",
    optional=True,
)
def by_nodes(
    records: Records = None, definition: str = "paper", index_pattern: str = "permutation"
) -> Figure:
    """Bandwidth of the three triads over the nodes of two clusters, and over own ranks.

    Parameters
    ----------
    definition, index_pattern
        As for `by_kernel`.
    """
    own, notes = _own(records, definition, index_pattern, _MEASURE_RANKS)
    some = len(own) > 0
    own = typed(own, ("ranks", "scaling_size", "oversubscribed"))
    strong = own["scaling"].eq("strong") if "scaling" in own else False
    own = own[own["kernel"].isin(_TRIADS) & strong]
    if some and own.empty:
        notes.append(f"No own record over ranks: `{_MEASURE_RANKS}` measures it.")
    over = own["oversubscribed"] == 1
    if over.any():
        notes.append(
            f"{counted(int(over.sum()), 'record')} with more workers than processing units on a "
            "host left out."
        )
    case = ("machine", "threads", "kernel", "scaling_size", "ranks")
    own, averaged = _means(own[~over], case, "--turns")
    own = own.assign(
        label=[
            f"{plain(machine, 32)}, {counted(int(threads), 'thread')} per rank, {_elements(size)}"
            for machine, threads, size in own[["machine", "threads", "scaling_size"]].to_numpy()
        ]
    )
    clusters = published()[published()["figure"].isin([7, 8])]
    sizes = zip(clusters["platform"], clusters["elements"], strict=True)
    clusters = clusters.assign(label=[f"{name}, {_elements(size)}" for name, size in sizes])
    fig, axes = panels(len(_TRIADS), 3, 2.5)
    for ax, kernel in zip(axes, _TRIADS, strict=True):
        for x, lines, look in (("ranks", own, own_look), ("nodes", clusters, other_look)):
            names = dict.fromkeys(lines["label"])
            curves(ax, lines[lines["kernel"] == kernel], "label", names, x, BANDWIDTH, look)
        counted_axis(ax, [*clusters["nodes"], *own["ranks"]])
    values = [*own[BANDWIDTH], *clusters[BANDWIDTH]]
    _axes_of_triads(axes, "Nodes (clusters), ranks (own)", values)
    cores = (clusters["cores"] // clusters["nodes"]).groupby(clusters["platform"]).first()
    used = joined([f"{number} cores of each node of {name}" for name, number in cores.items()])
    notes.append(f"The elements are those of all nodes or ranks. {used} were used.")
    return finish(fig, 3, [*notes, *averaged], own)


def _elements(size: float) -> str:
    return f"{spaced(size)} elements"


@table(
    "raider-table",
    "platform, kernel, definition, index_pattern, elements, bandwidth_GBps, disturbed",
    integers="elements",
    records="`raider` kernels; the best of each case is shown, of the array length and thread "
    "count with which most was measured",
)
def raider_bandwidths(records: Records = None) -> Selection:
    """Bandwidth of every own gather/scatter streaming kernel by definition and index pattern."""
    texts = ("definition", "index_pattern")
    frame, notes = select(records, ["raider"], _COLUMNS, texts=texts, measure=_MEASURE)
    case = ["platform", "kernel", "definition", "index_pattern"]
    frame, left = prevailing(_by_model(frame), (*SETTING, "elements"), count=case[1:])
    return best(frame, case), notes + left


@tabulated(
    "raider-systems",
    'Columns platform, row ("published" or "own"), isa, processor, sockets, cores_per_socket, '
    "threads_per_core, memory_GiB, memory (its kind), l1_KiB (data), l2_KiB, l3_MiB (one cache of "
    "each level), interconnect (of own records the transport of the library), system, compiler, "
    "mpi and openshmem (their libraries). Cells are empty where records lack the value.",
    paper="beebe2022-raiderstream",
    number="table II",
    records="A ResultSet, whose machines are added",
    lack="there is no record",
    optional=True,
)
def systems(records: Records = None) -> DataFrame:
    """Nodes of the two published clusters, and the machines of own records."""
    from pandas import DataFrame

    rows = [row | {"row": "published"} for row in reference.rows("raider2022-systems")]
    about = [name for name in rows[0] if name not in ("platform", "row", "source")]
    frame = frame_of(records)
    for key, environment in getattr(records, "environments", {}).items():
        mine = frame[frame["environment_id"] == key]
        if len(mine):
            rows.append(_system(environment, mine) | {"row": "own"})
    return DataFrame(rows)[["platform", "row", *about]].drop_duplicates(ignore_index=True)


def _system(environment: Mapping[str, Any], records: DataFrame) -> dict[str, Any]:
    """Return the row of a machine in table II, from its environment and its records."""
    machine = environment.get("machine") or {}
    sockets, cores = machine.get("sockets") or 1, machine.get("cores")
    size_B = {
        cache["level"]: cache["system_B"] for cache in data_caches(environment) if cache["system_B"]
    }
    texts = records.reindex(columns=["comm", "comm_library", "comm_transport"]).apply(words)

    def named_in(column: str, comm: Sequence[str]) -> str:
        return ", ".join(filter(None, texts[texts["comm"].isin(comm)][column].unique()))

    return {
        "platform": machine_label(platform_label(dict(environment), 1)),
        "isa": machine.get("architecture"),
        "processor": machine.get("model"),
        "sockets": sockets,
        "cores_per_socket": cores and cores // sockets,
        "threads_per_core": cores and machine["threads"] // cores,
        "memory_GiB": round((machine.get("memory_B") or math.nan) / 2**30, 1),
        "memory": "",
        "l1_KiB": size_B.get(1, math.nan) / 2**10,
        "l2_KiB": size_B.get(2, math.nan) / 2**10,
        "l3_MiB": size_B.get(3, math.nan) / 2**20,
        "interconnect": named_in("comm_transport", tuple(LIBRARIES)),
        "system": (environment.get("os") or {}).get("distribution"),
        "compiler": (environment.get("build") or {}).get("compiler"),
        "mpi": named_in("comm_library", ("mpi",)),
        "openshmem": named_in("comm_library", ("shmem",)),
    }
