"""Figures of all streaming kernels, and their section of a report.

Figures of a single family are in the family's module. `memkern.shared.streaming_records` documents
which of several records of a case is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from memkern.models.ecm import Scaling
from memkern.models.peak import with_peak
from memkern.plots.ecm import overlap_diagram
from memkern.plots.kit import (
    BANDWIDTH,
    DOUBLE_IN,
    ECM,
    ECM_DASHES,
    GREY,
    LINEAR,
    LOOK,
    MOST_LINES,
    NOTE_SIZE,
    NT_DASHES,
    Axis,
    Caption,
    Curves,
    DataFrame,
    Measured,
    Panel,
    Records,
    Section,
    Selection,
    best,
    bytes_axis,
    concat,
    families,
    frame_of,
    legend_below,
    log_range,
    machine_for,
    machine_note,
    marked_look,
    named,
    objects,
    own_look,
    panel_width,
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

_MEASURE_SIZES = "memkern stream -k copy,scale,add,triad --sizes 8KiB:512MiB:40 -o stream.parquet"
_MEASURE_THREADS = "memkern stream -k copy,triad -t 1..4 -o threads.parquet"

# Kernels that `bs-mesh` and `matvec` draw, since they depend on more than the size.
_ELSEWHERE = ("bs.bs6", "bs.bs7", "bs.bs8", "loops.matvec")

_DASHED = {"linestyle": NT_DASHES, "markersize": 2.0}  # of non-temporal stores

# -------------------------------------------------------------------------- bandwidth by footprint


def _rings(panel: Panel) -> None:
    """Ring the sizes at which the best variant of a kernel had non-temporal stores."""
    for _, rows in panel.rows[panel.rows["ringed"]].groupby("kernel", sort=False):
        look = rows[LOOK].iloc[0]._replace(marker="o", linestyle="none", markersize=6.5)
        how = {**look._asdict(), "markerfacecolor": "none", "markeredgewidth": 0.8}
        panel.ax.plot(rows[panel.x], rows[panel.y], label="_best is nt", **how)


@Curves(
    name="sizes",
    x=Axis(
        "footprint_B",
        "Memory used by all threads",
        lambda ax, *_: bytes_axis(ax, 10 if panel_width(ax) > 0.5 * DOUBLE_IN else 6),
    ),
    y=Axis(BANDWIDTH, "Bandwidth (GB/s)", log_range(1.25)),
    layers=(Measured("series"), _rings),
    marks=(lambda panel: legend_below(panel.ax, panel_width(panel.ax)),),
    panels=("place", "part"),
    columns=lambda parts: min(2, len(parts)),
    height=3.0,
    caches=True,
    legend=0,
    returns="6.9 in wide.",
    records="two sizes of a kernel or more. The caches are marked if a ResultSet describes them",
    lack="no kernel was measured at two sizes",
    measure=_MEASURE_SIZES,
)
def sizes(records: Records = None, kernels: str | Sequence[str] = "") -> Selection:
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
    case = ["platform", "kernel"]
    frame, rotated = prevailing(frame, ("rotation",), per=case)
    frame = frame[frame.groupby(case)["footprint_B"].transform("nunique") > 1]
    frame = frame.assign(nt=is_nt(frame), family=frame["kernel"].str.split(".").str[0])
    frame = best(frame, (*case, "footprint_B", "nt"))
    twice = frame.duplicated([*case, "footprint_B"], keep=False)
    dashed = frame["nt"] & twice.groupby([frame[name] for name in case]).transform("any")
    # The lines of a panel are at most `MOST_LINES`, about as many in each part of a family.
    place = frame["platform"] + " " + frame["family"]
    of_family = frame["kernel"].groupby(place).transform("nunique")
    parts = -(-of_family // MOST_LINES)
    size = -(-of_family // parts)
    number = frame.groupby(case, sort=False).ngroup().groupby(place).rank("dense").astype(int) - 1
    looks = [
        marked_look(each)._replace(**_DASHED) if nt else marked_look(each)
        for each, nt in zip(number % size, dashed, strict=True)
    ]
    several = frame["platform"].nunique() > 1
    titles = [
        f"{named(platform, 24)}\n" * several + FAMILIES[family] + f" ({n + 1} of {of})" * (of > 1)
        for platform, family, n, of in zip(
            frame["platform"], frame["family"], number // size, parts, strict=True
        )
    ]
    frame = frame.assign(
        place=place,
        part=number // size,
        panel=titles,
        series=frame["kernel"].mask(dashed, frame["kernel"] + ", nt"),
        curve_label=frame["kernel"].map(lambda name: plain(short(name))).mask(dashed, "_nt"),
        look=objects(frame, looks),
        ringed=frame["nt"] & ~dashed,
    )
    notes += left + rotated
    notes += ["Dashed: non-temporal stores."] * bool(dashed.any())
    notes += ["Ringed: the best variant had non-temporal stores."] * bool(frame["ringed"].any())
    return frame, notes


# ---------------------------------------------------------------------------- bandwidth by threads

# Looks by kind of records.
_KINDS: dict[str, dict[str, Any]] = {
    "": {"linewidth": 1.4, "markersize": 3.6, "linestyle": "-"},
    ", non-temporal stores": {"linewidth": 1.4, "markersize": 3.6, "linestyle": NT_DASHES},
    ", not unrolled": {"linewidth": 0.9, "markersize": 2.0, "linestyle": ":"},
}


def _peaks(panel: Panel) -> None:
    """Draw the theoretical peak of each machine's data in memory."""
    known = panel.rows[panel.rows["peak_share"].notna()]
    for _, rows in known.groupby("machine", sort=False):
        panel.ax.axhline(
            rows["peak_GBps"].max(),
            linewidth=0.9,
            label="peak of memory",
            color=rows[LOOK].iloc[0].color,
            linestyle=(0, (1, 1.5)),
        )


# Models of scaling to several cores, with their labels and dashes.
_FORMS: tuple[tuple[Scaling, str, Any], ...] = (
    ("limited", ECM, ECM_DASHES),
    ("linear", LINEAR, ":"),
)


def _scaled(panel: Panel) -> None:
    """Draw the ECM model over the threads, with N_s."""
    threads = range(1, int(panel.rows["threads"].max()) + 1)
    how: dict[str, Any] = {"color": own_look(1).color}
    for row in panel.rows.dropna(subset="model").sort_values("nt").to_dict("records"):
        predicted, cores = row["model"], row["model"].saturating_cores
        for scaling, label, dashes in _FORMS:
            rates = [row["bytes_B"] / seconds_of(predicted, n, scaling) / 1e9 for n in threads]
            name = f"_{label}" if row["nt"] else label
            panel.ax.plot(threads, rates, linestyle=dashes, linewidth=0.9, label=name, **how)
        if not row["nt"]:
            how |= {"transform": panel.ax.transAxes, "ha": "right", "fontsize": NOTE_SIZE}
            text = "not saturated" if cores is None else f"Nₛ = {cores}"
            panel.ax.text(0.97, 0.04, text, **how)


def _ideal(panel: Panel) -> None:
    """Draw ideal scaling of each machine's single thread."""
    import numpy as np
    from matplotlib.lines import Line2D

    # Many points, since the line is curved if one axis is logarithmic.
    threads = np.geomspace(1, panel.rows[panel.x].max(), 60)
    one = panel.rows[panel.rows[panel.x] == 1].sort_values("kind")
    for start in one.drop_duplicates("machine")[BANDWIDTH]:
        # As an artist, it does not extend the axis.
        panel.ax.add_artist(
            Line2D(threads, start * threads, color=GREY, linewidth=0.7, label="ideal")
        )


@Curves(
    name="saturation",
    x=Axis("threads", "Threads", lambda ax, _, frame, x: threads_axis(ax, frame[x].max())),
    y=Axis(BANDWIDTH, "Bandwidth (GB/s)", lambda ax, *_: ax.set_ylim(0, 1.15 * ax.dataLim.y1)),
    layers=(_peaks, Measured("series"), _ideal, _scaled),
    panels=("kernel",),
    columns=4,
    height=1.45,
    outside=True,
    returns="6.9 in wide, 3.35 in with one panel.",
    paper="alappat2021",
    number="figure 2, 7",
    records="two thread counts of a kernel or more",
    lack="no kernel was measured with two thread counts at one size",
    measure=_MEASURE_THREADS,
)
def saturation(
    records: Records = None, kernels: str | Sequence[str] = "", machine: str = ""
) -> Selection:
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
        cores, at least the limit of a domain; and as in the paper, constant from N_s cores on. The
        model is that of the record with most threads of each kind of stores.
    """
    source = machine_for(machine, records)
    records = None if records is None else with_peak(frame_of(records))
    columns = ("bytes_B", "variant", "dtype", "threads")
    wanted = split(kernels) or list(FAMILIES)
    frame, notes = select(records, wanted, columns, measure=_MEASURE_THREADS)
    frame = as_defined(frame, "paper", "permutation").assign(nt=is_nt(frame))
    here = ["machine", "kernel"]
    # Those without unrolling are shown if others of the kernel are unrolled.
    frame = frame.assign(unroll=typed(frame, ["unroll"])["unroll"].fillna(0.0))
    several = frame.groupby(here)["unroll"].transform("nunique") > 1
    frame = frame.assign(single=several & frame["unroll"].eq(1))
    frame, _ = prevailing(frame, ("backend", "dtype", "bytes_B"), per=here, count=("threads",))
    frame = frame[frame.groupby(here)["threads"].transform("nunique") > 1]
    usual, nontemporal, single = _KINDS
    slow = best(frame[frame["single"]], (*here, "threads")).assign(kind=single, model=None)
    frame = best(frame, (*here, "threads", "nt"))
    widest = frame.sort_values("threads").drop_duplicates(["kernel", "nt"], keep="last")
    found = [] if source is None else predictions(source, widest.to_dict("records"))
    models = dict(zip(widest.index, found, strict=False))
    frame = frame.assign(
        kind=frame["nt"].map({False: usual, True: nontemporal}),
        model=objects(frame, map(models.get, frame.index)),
    )
    frame = concat([frame, slow])
    machines = list(frame["machine"].unique())
    cases = list(zip(frame["machine"], frame["kind"], strict=True))
    looks = [own_look(machines.index(name))._replace(**_KINDS[kind]) for name, kind in cases]
    titles = {
        name: f"{FAMILIES[name.partition('.')[0]]} {short(name)}".removeprefix("BS ")
        for name in frame["kernel"]
    }
    frame = frame.assign(
        series=[name + kind for name, kind in cases],
        curve_label=[plain(name, 28) + kind for name, kind in cases],
        look=objects(frame, looks),
        panel=frame["kernel"].map(titles),
    )
    return frame, [*notes, *machine_note(source, records)]


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
    cited = "; ".join(map(reference.cite, ("chalmers2020", "raider2022", "alappat2021-kernels")))
    return section_of(
        frame,
        "Streaming",
        findings,
        exhibits,
        cited,
        rare=(tlb_misses, overlap_diagram, matrix_vector_traffic),
    )
