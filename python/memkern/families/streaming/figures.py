"""Figures of all streaming kernels, and their section of a report.

Figures of a single family are in the family's module. `memkern.shared.streaming_records` documents
which of several records of a case is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memkern.families.bs.figures import bs_fits, bs_mesh, t0_wmax_table
from memkern.families.launch.figures import barrier_cost
from memkern.families.loops.figures import (
    cycles,
    cycles_by_level,
    matrix_vector,
    matrix_vector_traffic,
    tlb_misses,
)
from memkern.families.raider.figures import by_kernel, by_size, raider_bandwidths
from memkern.families.streaming.findings import findings
from memkern.models.peak import with_peak
from memkern.plots.ecm import overlap_diagram
from memkern.plots.kit import (
    BANDWIDTH,
    ECM,
    ECM_DASHES,
    GREY,
    LINEAR,
    MOST_LINES,
    NOTE_SIZE,
    NT_DASHES,
    Axes,
    Caption,
    DataFrame,
    Figure,
    Records,
    Section,
    Series,
    best,
    bytes_axis,
    cache_ends,
    cache_regions,
    curve,
    disturbed_note,
    drawn,
    extent,
    families,
    finish,
    frame_of,
    label_outside,
    legend_below,
    log2_axis,
    machine_for,
    machine_note,
    marked_look,
    named,
    need_rows,
    note,
    own_look,
    panels,
    plain,
    predictions,
    prevailing,
    seconds_of,
    section,
    section_of,
    select,
    split,
    threads_axis,
    typed,
)
from memkern.shared.streaming_records import BARRIER, FAMILIES, as_defined, is_nt, short

if TYPE_CHECKING:
    from memkern.models.ecm import Scaling
    from memkern.models.machine_file import MachineFile

_MEASURE_SIZES = "memkern stream -k copy,scale,add,triad --sizes 8KiB:512MiB:40 -o stream.parquet"
_MEASURE_THREADS = "memkern stream -k copy,triad -t 1..4 -o threads.parquet"

# Kernels that `bs-mesh` and `matvec` draw, since they depend on more than the size.
_ELSEWHERE = ("bs.bs6", "bs.bs7", "bs.bs8", "loops.matvec")

# -------------------------------------------------------------------------- bandwidth by footprint


def _over_sizes(records: Records, kernels: str | Sequence[str] = "") -> tuple[DataFrame, list[str]]:
    """Return the best record of each kernel, size and kind of stores, and notes."""
    frame, notes = select(
        records,
        split(kernels) or ("stream", "bs", "loops"),
        ("variant", "footprint_B", "dtype", "threads"),
        measure=_MEASURE_SIZES,
    )
    if not kernels:
        frame = frame[~frame["kernel"].isin(_ELSEWHERE)]
    frame, left = prevailing(as_defined(frame, "paper", "permutation"))
    # In STREAM's rotation the arrays of all kernels share the caches.
    frame, rotated = prevailing(frame, ("rotation",), per=("platform", "kernel"))
    notes += left + rotated
    frame = frame[frame.groupby(["platform", "kernel"])["footprint_B"].transform("nunique") > 1]
    need_rows(frame, f"no kernel was measured at two sizes: `{_MEASURE_SIZES}` does so")
    frame = frame.assign(nt=is_nt(frame), family=frame["kernel"].str.partition(".")[0])
    frame = best(frame, ("platform", "kernel", "footprint_B", "nt"))
    return frame, notes


@drawn(
    "sizes",
    "6.9 in wide.",
    records="two sizes of a kernel or more. The caches are marked if a ResultSet describes them",
    lack="no kernel with two sizes, a bandwidth that is not positive",
)
def sizes(records: Records = None, kernels: str | Sequence[str] = "") -> Figure:
    """Bandwidth of streaming kernels against the memory they use, from L1 to memory.

    A panel for each platform and family. If sizes were measured with both non-temporal and ordinary
    stores, each kind of stores has a line; if each size was measured with only one kind, in the
    best variant of the kernel, one line connects all sizes.

    Parameters
    ----------
    kernels : str or sequence of str
        Names of kernels or families, with commas between; by default ``stream``, ``bs`` and
        ``loops`` without the kernels that have their own figure.
    """
    frame, notes = _over_sizes(records, kernels)
    several = frame["platform"].nunique() > 1
    shown = []
    for (platform, family), rows in frame.groupby(["platform", "family"], sort=False):
        names = list(dict.fromkeys(rows["kernel"]))
        parts = -(-len(names) // MOST_LINES)
        size = -(-len(names) // parts)
        for part in range(parts):
            title = FAMILIES[str(family)] + (f" ({part + 1} of {parts})" if parts > 1 else "")
            title = f"{named(platform, 24)}\n{title}" if several else title
            shown.append((title, rows, names[part * size : (part + 1) * size]))
    fig, axes = panels(len(shown), 1 if len(shown) == 1 else 2, 3.0)
    low, high = extent(frame, BANDWIDTH)
    for ax, (title, rows, names) in zip(axes, shown, strict=True):
        _by_footprint(ax, rows, names)
        legend_below(ax, fig.get_figwidth() / min(len(axes), 2))
        ax.set_title(title, pad=11)
        ax.set_ylim(low / 1.25, high * 1.25)
        ax.set_yscale("log", base=2)
        log2_axis(ax.yaxis)
        bytes_axis(ax, 10 if len(axes) == 1 else 6)
        cache_regions(ax, cache_ends(rows))
        ax.set(xlabel="Memory used by all threads", ylabel="Bandwidth (GB/s)")
    labels = {line.get_label() for ax in axes for line in ax.lines}
    notes += ["Dashed: non-temporal stores."] * ("_nt" in labels)
    notes += ["Ringed: the best variant had non-temporal stores."] * ("_best is nt" in labels)
    note(fig, [*notes, *disturbed_note(frame)])
    return fig


def _by_footprint(ax: Axes, rows: DataFrame, kernels: Sequence[str]) -> None:
    """Draw a line per kernel, or two if both kinds of stores were measured at the same sizes."""
    for number, kernel in enumerate(kernels):
        of_kernel = rows[rows["kernel"] == kernel]
        nontemporal, ordinary = of_kernel[of_kernel["nt"]], of_kernel[~of_kernel["nt"]]
        look, label = marked_look(number), plain(short(kernel))
        if set(nontemporal["footprint_B"]) & set(ordinary["footprint_B"]):
            curve(ax, ordinary, "footprint_B", BANDWIDTH, look, label)
            look = look._replace(linestyle=NT_DASHES, markersize=2.0)
            curve(ax, nontemporal, "footprint_B", BANDWIDTH, look, "_nt")
            continue
        curve(ax, of_kernel, "footprint_B", BANDWIDTH, look, label)
        if len(nontemporal):
            ax.plot(
                nontemporal["footprint_B"],
                nontemporal[BANDWIDTH],
                **look._replace(marker="o", linestyle="none", markersize=6.5)._asdict(),
                markerfacecolor="none",
                markeredgewidth=0.8,
                label="_best is nt",
            )


# ---------------------------------------------------------------------------- bandwidth by threads


@drawn(
    "saturation",
    "6.9 in wide, 3.35 in with one panel.",
    paper="alappat2021",
    number="figure 2, 7",
    records="two thread counts of a kernel or more",
    lack="no kernel with two thread counts",
)
def saturation(
    records: Records = None, kernels: str | Sequence[str] = "", machine: str = ""
) -> Figure:
    """Bandwidth of streaming kernels against the number of threads, with ideal scaling and peak.

    A panel for each kernel, at the size that was measured with most thread counts; of several such
    sizes, the largest. Where loops were measured with ``--unroll 1`` and others, those without
    unrolling are drawn beside the best.

    Parameters
    ----------
    kernels : str or sequence of str
        Names of kernels or families, with commas between; by default all.
    machine : str
        Machine file, by which the ECM model is drawn in two forms: a core's time over the number of
        cores, at least the limit of a domain; and as in the paper, constant from N_s cores on.
    """
    import numpy as np

    source = machine_for(machine, records)
    wanted = split(kernels) or list(FAMILIES)
    records = None if records is None else with_peak(frame_of(records))
    frame, notes = select(
        records, wanted, ("bytes_B", "variant", "dtype", "threads"), measure=_MEASURE_THREADS
    )
    frame = as_defined(frame, "paper", "permutation").assign(nt=is_nt(frame))
    frame = frame.assign(single=_not_unrolled(frame))
    here = ["machine", "kernel"]
    frame, _ = prevailing(frame, ("backend", "dtype", "bytes_B"), per=here, count=("threads",))
    frame = frame[frame.groupby(here)["threads"].transform("nunique") > 1]
    need_rows(
        frame,
        f"no kernel was measured with two thread counts at one size: `{_MEASURE_THREADS}` does so",
    )
    single = best(frame[frame["single"]], (*here, "threads"))
    frame = best(frame, (*here, "threads", "nt"))
    names = list(dict.fromkeys(frame["kernel"]))
    machines = list(dict.fromkeys(frame["machine"]))
    fig, axes = panels(len(names), 4, 1.45)
    for ax, kernel in zip(axes, names, strict=True):
        of_kernel = frame[frame["kernel"] == kernel]
        _, top = extent(of_kernel, BANDWIDTH)
        # Many points, since the line of ideal scaling is curved if one axis is logarithmic.
        threads = np.geomspace(1, of_kernel["threads"].max(), 60)
        for number, name in enumerate(machines):
            mine = of_kernel[of_kernel["machine"] == name]
            top = max(top, _peak_line(ax, mine, own_look(number).color))
            for nt, rows in mine.groupby("nt"):
                # The dashes are of the kind of stores, the markers of the machine.
                look = own_look(number)._replace(linewidth=1.4, markersize=3.6)
                look = look._replace(linestyle=NT_DASHES if nt else "-")
                label = plain(name, 28) + (", non-temporal stores" if nt else "")
                curve(ax, rows, "threads", BANDWIDTH, look, label)
            slow = single[(single["kernel"] == kernel) & (single["machine"] == name)]
            if len(slow):
                look = own_look(number)._replace(linewidth=0.9, markersize=2.0, linestyle=":")
                label = f"{plain(name, 28)}, not unrolled"
                curve(ax, slow, "threads", BANDWIDTH, look, label)
            one = mine[mine["threads"] == 1].sort_values("nt")
            for start in one[BANDWIDTH].head(1):
                ax.plot(threads, start * threads, color=GREY, linewidth=0.7, label="ideal")
        if source is not None:
            top = max(top, _scaled(ax, of_kernel, source))
        family = FAMILIES[kernel.partition(".")[0]]
        ax.set_title(short(kernel) if family == "BS" else f"{family} {short(kernel)}")
        ax.set_ylim(0, 1.15 * top)
        threads_axis(ax, frame["threads"].max())
    label_outside(axes, "Threads", "Bandwidth (GB/s)")
    return finish(fig, 2 if source is None else 4, [*notes, *machine_note(source, records)], frame)


def _not_unrolled(frame: DataFrame) -> Series:
    """Return whether a record is of unrolling 1, and others of its kernel are of another."""
    unroll = typed(frame, ["unroll"])["unroll"].fillna(0.0)
    several = unroll.groupby([frame["machine"], frame["kernel"]]).transform("nunique") > 1
    return unroll.eq(1) & several


def _peak_line(ax: Axes, rows: DataFrame, colour: str) -> float:
    """Draw the theoretical peak of a machine's data in memory, and return it; 0 if unknown."""
    known = rows.loc[rows["peak_share"].notna(), "peak_GBps"]
    if known.empty:
        return 0.0
    peak = float(known.max())
    ax.axhline(peak, color=colour, linewidth=0.9, linestyle=(0, (1, 1.5)), label="peak of memory")
    return peak


# Models of scaling to several cores, with their labels and dashes.
_FORMS: tuple[tuple[Scaling, str, Any], ...] = (
    ("limited", ECM, ECM_DASHES),
    ("linear", LINEAR, ":"),
)


def _scaled(ax: Axes, rows: DataFrame, source: MachineFile) -> float:
    """Draw the ECM model of one kernel over the threads, with N_s, and return its highest value.

    The model of the record with most threads is drawn for each kind of stores, ordinary ones first.
    """
    most, last = 0.0, rows["threads"].max()
    widest = rows.sort_values(["nt", "threads"]).drop_duplicates("nt", keep="last")
    records, colour = widest.to_dict("records"), own_look(1).color
    for row, predicted in zip(records, predictions(source, records), strict=True):
        if predicted is None:
            continue
        threads = range(1, int(last) + 1)
        for scaling, label, dashes in _FORMS:
            rates = [row["bytes_B"] / seconds_of(predicted, n, scaling) / 1e9 for n in threads]
            most = max([most, *(rate for rate in rates if rate == rate)])
            name = label if not row["nt"] else f"_{label}"
            ax.plot(threads, rates, color=colour, linestyle=dashes, linewidth=0.9, label=name)
        cores = predicted.saturating_cores
        if not row["nt"]:
            text = "not saturated" if cores is None else f"Nₛ = {cores}"
            ax.text(
                0.97, 0.04, text, transform=ax.transAxes, ha="right", fontsize=NOTE_SIZE,
                color=colour,
            )  # fmt: skip
    return most


# ------------------------------------------------------------------------------------------ report

_BEST = "Of several records of a size, the best is drawn."
# The last entry is a family, kernel or column whose records are required in addition to the
# published ones.
_EXHIBITS: tuple[tuple[str, Any, Caption, str], ...] = (
    (
        "Bandwidth from L1 to memory", sizes,
        "Each step down is a cache that no longer holds the data of all threads; both axes are "
        "logarithmic. An ordinary store to memory reads its line first; a non-temporal store does "
        f"not, and its data do not stay in a cache. {_BEST}", "",
    ),
    (
        "Bandwidth against threads", saturation,
        "Where a line is below ideal scaling, threads share a cache, a core or the "
        f"memory controllers. {_BEST}", "",
    ),
    (
        "BS1 to BS5: time as T0 + B / Wmax", bs_fits,
        "T0 is the time of an invocation that moves no data, Wmax the asymptotic bandwidth of "
        "large sizes. Published fits after Chalmers and Warburton 2020.", "bs",
    ),
    (
        "BS6 to BS8 by polynomial degree", bs_mesh,
        "The lower the degree, the larger the share of nodes that neighbouring elements have in "
        "common. Published fits after Chalmers and Warburton 2020.", "bs.bs6",
    ),
    (
        "T0 and Wmax beside four GPUs", t0_wmax_table,
        "T0 in microseconds, Wmax in GB/s, own ones with their 95 % intervals; a T0 that is not "
        "resolved has only the upper end. BS6 and BS7 are of degree 7. Published platforms after "
        "Chalmers and Warburton 2020.", "bs",
    ),
    (
        "Streaming through indices", by_kernel,
        "Own platforms beside two clusters of Beebe et al. 2022, which ran on one core. Bytes are "
        "counted as in that paper.", "raider",
    ),
    (
        "Streaming through indices against the array length", by_size,
        "An index array of random order costs little while the arrays stay in a cache. Published "
        "clusters after Beebe et al. 2022.", "raider",
    ),
    (
        "Streaming through indices, by definition and index pattern", raider_bandwidths,
        f"Bandwidth in GB/s. {_BEST}", "",
    ),
    (
        "Cycles of loops", cycles,
        "Core cycles for one vector of every stream; lower is better. The best unrolling depends "
        "on the memory level of the data. After Alappat et al. 2021.", "",
    ),
    (
        "Cycles of loops in each memory level", cycles_by_level,
        "Fewest cycles of any unrolling for one vector of every stream, beside the A64FX of "
        "Alappat et al. 2021 as the ECM model predicts it and as measured. Its vectors have 512 "
        "bits.", "loops",
    ),
    (
        "Page walks of loops", tlb_misses,
        "Counted page walks: where they rise, the pages of the data exceed the TLBs.", "loops",
    ),
    (
        "Overlap of transfers", overlap_diagram,
        "Cycles of a vector of every stream with data in memory, by four hypotheses of Alappat et "
        "al. 2021 on which transfers overlap, and by those that fit best here.", "loops",
    ),
    (
        "Matrix times vector", matrix_vector,
        "Each element of the matrix is read once, y once for each column. After Alappat et al. "
        "2021.", "",
    ),
    (
        "Traffic of matrix times vector", matrix_vector_traffic,
        # Without this column it would be predicted alone.
        "Counted bytes from memory beside the prediction.", "counted_memory_load_B",
    ),
    (
        "What a barrier costs", barrier_cost,
        "Waiting threads either spin or sleep. After Alappat et al. 2021.", "",
    ),
)  # fmt: skip


@section("streaming", 2)
def report_section(records: DataFrame) -> Section | None:
    """Streaming kernels: findings, figures and tables.

    Parameters
    ----------
    records : DataFrame
        All records of a report.

    Returns
    -------
    Section or None
        None if no record is of a streaming kernel or a barrier. The remarks give the reason for
        missing findings and figures.
    """
    from memkern import reference

    frame = frame_of(records)
    here = families(frame)
    if here.isdisjoint(FAMILIES) and not (here and frame["kernel"].eq(BARRIER).any()):
        return None
    measured = {"", *here, *frame["kernel"], *frame.columns[frame.notna().any()]}
    exhibits = [each[:3] for each in _EXHIBITS if each[3] in measured]
    cited = map(reference.cite, ("chalmers2020", "raider2022", "alappat2021-kernels"))
    rare = (tlb_misses, overlap_diagram, matrix_vector_traffic)
    return section_of(frame, "Streaming", findings, exhibits, "; ".join(cited), rare)
