"""Figures and table of streaming through index arrays, regular and irregular.

After Beebe et al. 2022, whose two clusters are drawn next to own platforms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from memkern import reference
from memkern.backends import LIBRARIES
from memkern.machine.caches import data_caches
from memkern.machine.environment import machine_label, platform_label
from memkern.plots.kit import (
    BANDWIDTH,
    HIGH,
    LOOK,
    SETTING,
    TITLE,
    Axes,
    Axis,
    Curves,
    DataFrame,
    Measured,
    Panel,
    Records,
    Selection,
    best,
    concat,
    count_scale,
    counted,
    counts_axis,
    distinct,
    extent,
    intervals,
    joined,
    log_range,
    named,
    new_table,
    objects,
    ordered,
    other_look,
    own_look,
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
from memkern.shared.streaming_records import as_defined, of_machines

OPERATIONS = ("copy", "scale", "add", "triad")
# Titles of the panels of kernels.
_ACCESSES = {
    f"raider.{access}{name}": title
    for access, title in (
        ("", "Regular"),
        ("gather_", "Gather"),
        ("scatter_", "Scatter"),
        ("sg_", "Scatter-gather"),
        ("central_", "Central"),
    )
    for name in OPERATIONS
}
_COLUMNS = ("elements", "definition", "dtype", "threads")
_TRIADS = {
    "raider.triad": "Triad",
    "raider.gather_triad": "Gather triad",
    "raider.scatter_triad": "Scatter triad",
}
_BANDWIDTH_AXIS = Axis(BANDWIDTH, "Bandwidth (GB/s)", log_range(1.25))
_MEASURE = "memkern raider -o raider.parquet"
_MEASURE_RANKS = "memkern scaling -o scaling.parquet"
# Maximum number of bars in a group with room for their values.
_MOST_VALUES = 4


def _published(*figures: int) -> DataFrame:
    """Return the published bandwidths of some figures in the same form as `_own`."""
    frame = reference.load("raider2022")
    return frame[frame["figure"].isin(figures)].assign(own=False, disturbed=False)


def _own(
    records: Records, definition: str, index_pattern: str, measure: str = _MEASURE
) -> tuple[DataFrame, list[str]]:
    """Return the own records of one definition and one index pattern.

    `measure` is the command named in the note if there are no records.
    """
    frame, notes = select(records, ["raider"], _COLUMNS)
    chosen = _by_model(as_defined(frame, definition, index_pattern)).assign(own=True)
    if records is None:
        notes.append("Published clusters only.")
    elif frame.empty:
        notes.append(f"No own record: `{measure}` measures it.")
    elif chosen.empty:
        notes.append(f"No own record with definition {definition} and pattern {index_pattern}.")
    return chosen, notes


def _by_model(frame: DataFrame) -> DataFrame:
    """Return records with MPI or OpenSHMEM in the names of platforms on which ranks used it."""
    every = frame.assign(comm=frame.get("comm", ""))[["machine", "platform", "comm"]].to_numpy()
    names = [
        (machine + (f", {LIBRARIES[comm]}" if comm in LIBRARIES else ""), machine, platform)
        for machine, platform, comm in every
    ]
    return frame.assign(
        machine=[name for name, *_ in names],
        platform=[name + platform.removeprefix(machine) for name, machine, platform in names],
    )


def _means(
    own: DataFrame, by: Sequence[str], repeats: str = "--repeats"
) -> tuple[DataFrame, list[str]]:
    """Return the highest mean over the repeats of a case in each group, and a note on the means.

    A published bandwidth is the mean of five runs, each by its shortest time (equation 1). A record
    has the bandwidth of one such run; the option `repeats` takes the number of runs.
    """
    if own.empty:
        return own, []
    own = own.assign(case_id=own.get("case_id", own.index.astype(str)))
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


def _bars(panel: Panel) -> None:
    """Draw a group of bars for each kernel, a bar for each platform."""
    ax, title, every = panel.ax, panel.rows[TITLE].iloc[0], with_ends(panel.rows, panel.y)
    kernels = [kernel for kernel, access in _ACCESSES.items() if access == title]
    here = distinct(every["series"])
    width = 0.84 / len(here)
    for position, platform in enumerate(here):
        rows = every[every["series"] == platform]
        x = [kernels.index(kernel) - 0.42 + width * (position + 0.5) for kernel in rows["kernel"]]
        rows = rows.assign(x=x, top=rows[HIGH].fillna(rows[panel.y]))
        colour = rows[LOOK].iloc[0].color
        faces = ["white" if disturbed else colour for disturbed in rows["disturbed"]]
        how = {"color": faces, "edgecolor": colour, "alpha": rows["alpha"].iloc[0]}
        ax.bar(x, rows[panel.y], 0.92 * width, label=named(platform), **how)
        intervals(ax, rows, "x", panel.y, own_look(0)._replace(linestyle="none"))
        some = panel.frame["series"].nunique() <= _MOST_VALUES
        for row in rows.to_dict("records") * some:
            ax.annotate(
                rounded(row[panel.y]),
                (row["x"], row["top"]),
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


def _compared(ax: Axes, rows: DataFrame, frame: DataFrame, column: str) -> None:
    """Scale y by all panels but that of the central kernels, whose data stay in a cache line."""
    central = rows[TITLE].iloc[0] == "Central"
    ax.set_ylim(0, 1.2 * extent(frame[frame[TITLE].eq("Central") == central], column)[1])


@Curves(
    name="raider-kernels",
    x=Axis("kernel", ""),
    y=Axis(BANDWIDTH, "Bandwidth (GB/s)", _compared),
    layers=(_bars,),
    panels=(TITLE,),
    columns=3,
    height=2.2,
    returns="A panel for each kind of access, 6.9 in wide.",
    paper="beebe2022-raiderstream",
    number="figure 3, 4",
    records="`raider` kernels",
    lack="a bandwidth is not positive",
    optional=True,
)
def by_kernel(
    records: Records = None, definition: str = "paper", index_pattern: str = "permutation"
) -> Selection:
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
    own, notes = _own(records, definition, index_pattern)
    own, _ = prevailing(own, (*SETTING, "elements"), count=("kernel",))
    own, averaged = _means(own, ("platform", "kernel"))
    own, clusters = (part.assign(series=part["platform"]) for part in (own, _published(3, 4)))
    frame = _together(own, clusters, _ACCESSES)
    # There are two colours of own platforms.
    frame = frame.assign(alpha=(0.4 ** (frame["number"] // 2)).where(frame["own"], 0.6))
    each = frame.drop_duplicates("series")[["platform", "elements"]].to_numpy()
    sizes = "; ".join(f"{named(platform)}: {spaced(number)}" for platform, number in each)
    notes.append(f"Elements of each array: {sizes}. The clusters ran on one core.")
    return frame, notes + averaged


def _together(own: DataFrame, clusters: DataFrame, titles: Mapping[str, str]) -> DataFrame:
    """Return own and published records in the order of their panels, own ones first.

    The titles of the panels are by kernel. Looks are by the number of a series.
    """
    parts = []
    for part, look in ((own, own_look), (clusters, other_look)):
        names = list(dict.fromkeys(part["series"]))
        numbers = [names.index(name) for name in part["series"]]
        parts += [part.assign(number=numbers, look=objects(part, map(look, numbers)))] * bool(names)
    frame = concat(parts, ignore_index=True)
    frame = ordered(frame, "series", frame["series"].unique())
    frame = frame.assign(panel=frame["kernel"].map(titles))
    return frame.sort_values("kernel", key=lambda c: c.map([*titles].index), kind="stable")


def _elements_scale(ax: Axes, *_: Any) -> None:
    ax.set_xscale("log")
    counts_axis(ax.xaxis, 5)


@Curves(
    name="raider-sizes",
    x=Axis("elements", "Elements of each array", _elements_scale),
    y=_BANDWIDTH_AXIS,
    layers=(Measured("series"),),
    panels=("kernel",),
    columns=3,
    outside=True,
    returns="Three panels, 6.9 in wide.",
    paper="beebe2022-raiderstream",
    number="figure 5, 6",
    records="`raider` kernels",
    optional=True,
    lack="a bandwidth is not positive",
)
def by_size(
    records: Records = None, definition: str = "paper", index_pattern: str = "permutation"
) -> Selection:
    """Bandwidth of triad, gather triad and scatter triad against the array length.

    Own records with OpenMP alone, over MPI and over OpenSHMEM have a line each.

    Parameters
    ----------
    definition, index_pattern
        As for `by_kernel`.
    """
    own, notes = _own(records, definition, index_pattern)
    own, left = prevailing(own[own["kernel"].isin(list(_TRIADS))])
    own, averaged = _means(own, ("platform", "kernel", "elements"))
    own = own.assign(series=own["platform"], curve_label=own["platform"].map(named))
    clusters = _published(5, 6)
    name = clusters["platform"] + ", " + clusters["model"]
    frame = _together(own, clusters.assign(series=name, curve_label=name), _TRIADS)
    return frame, [*notes, *left, *averaged, "The clusters ran on one core."]


@Curves(
    name="raider-scaling",
    x=Axis("nodes_or_ranks", "Nodes (clusters), ranks (own)", count_scale),
    y=_BANDWIDTH_AXIS,
    layers=(Measured("series"),),
    panels=("kernel",),
    columns=3,
    outside=True,
    legend=3,
    returns="Three panels, 6.9 in wide.",
    paper="beebe2022-raiderstream",
    number="figure 7, 8",
    records="strong scaling by ``memkern scaling``. Those with more workers than processing units "
    "on a host are left out",
    optional=True,
)
def by_nodes(
    records: Records = None, definition: str = "paper", index_pattern: str = "permutation"
) -> Selection:
    """Bandwidth of the three triads over the nodes of two clusters, and over own ranks.

    Parameters
    ----------
    definition, index_pattern
        As for `by_kernel`.
    """
    own, notes = _own(records, definition, index_pattern, _MEASURE_RANKS)
    every = typed(own, ("ranks", "scaling_size", "oversubscribed"))
    strong = every["scaling"].eq("strong") if "scaling" in every else False
    own = every[every["kernel"].isin(list(_TRIADS)) & strong]
    if len(every) and own.empty:
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
        nodes_or_ranks=own["ranks"],
        series=[
            f"{plain(machine, 32)}, {counted(int(threads), 'thread')} per rank, {_elements(size)}"
            for machine, threads, size in own[["machine", "threads", "scaling_size"]].to_numpy()
        ],
    )
    clusters = _published(7, 8)
    name = clusters["platform"] + ", " + clusters["elements"].map(_elements)
    clusters = clusters.assign(nodes_or_ranks=clusters["nodes"], series=name)
    frame = _together(own, clusters, _TRIADS)
    cores = (clusters["cores"] // clusters["nodes"]).groupby(clusters["platform"]).first()
    used = joined([f"{number} cores of each node of {name}" for name, number in cores.items()])
    notes.append(f"The elements are those of all nodes or ranks. {used} were used.")
    return frame, notes + averaged


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
    rows = [row | {"row": "published"} for row in reference.rows("raider2022-systems")]
    about = [name for name in rows[0] if name not in ("platform", "row", "source")]
    rows += [
        _system(environment, mine) for environment, mine in of_machines(records) if environment
    ]
    return new_table(rows)[["platform", "row", *about]].drop_duplicates(ignore_index=True)


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
        "row": "own",
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
