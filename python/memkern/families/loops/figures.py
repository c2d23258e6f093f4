"""Figures and table of the loop kernels: cycles per vector, and the matrix-vector product.

After Alappat et al. 2021, whose predictions and measurements on an A64FX are listed next to own
ones in the table.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from memkern.models.machine_file import MachineFile
from memkern.models.memory import from_memory, memory_values
from memkern.plots.kit import (
    BANDWIDTH,
    ECM,
    GREY,
    NOTE_SIZE,
    NT_DASHES,
    Axes,
    Axis,
    Curves,
    DataFrame,
    InputError,
    Level,
    Measured,
    Panel,
    Records,
    Selection,
    Series,
    best,
    by_build,
    byte_scale,
    byte_ticks,
    cache_ends,
    cache_regions,
    concat,
    curve,
    ecm_look,
    first_note,
    from_zero,
    log2_axis,
    log_scale,
    machine_for,
    machine_note,
    machine_title,
    named,
    need_rows,
    objects,
    ordered,
    others_note,
    own_look,
    predictions,
    prevailing,
    ranked,
    select,
    shade,
    split,
    tabulated,
    undisturbed,
    words,
)
from memkern.plots.traffic import traffic_B
from memkern.shared.streaming_records import FAMILIES, MEMORY, is_nt, levels, short

CYCLES = "cycles_per_vector"
MATVEC, STENCIL = "loops.matvec", "loops.stencil"

_MEASURE = (
    "memkern loops --sizes 8KiB:512MiB:40 --unroll 1,4,8 --variant simd -t 1 -o loops.parquet"
)
_MEASURE_MATVEC = (
    "memkern loops -k matvec --variant simd,nta --sizes 1MiB:1GiB:12 -o matvec.parquet"
)
_COUNT_MATVEC = _MEASURE_MATVEC.replace(" -o", " --counters auto -o")
_COUNT_WALKS = (
    "memkern loops -k triad --sizes 64KiB:4GiB:17 --pages 4k,thp --counters auto -t 1 "
    "-o walks.parquet"
)
# Bytes from memory for an element of the matrix if a cache holds y, and if none does, with dashes.
_ELEMENT_B: dict[int, Any] = {8: (0, (4, 1, 1, 1)), 24: (0, (1, 1))}
_LEVELS = {"L1": "l1", "L2": "l2", MEMORY: "mem"}
# Row of the stencil in the published table, by the level that holds three rows of the array.
_STENCILS = {
    "": "5-point stencil, LC satisfied",
    "L1": "5-point stencil, LC satisfied",
    "L2": "5-point stencil, LC violated in L1",
    "memory": "5-point stencil, LC violated",
}


def _own_cycles(
    records: Records, kernels: Sequence[str], measure: str = ""
) -> tuple[DataFrame, list[str]]:
    """Return the records of one setting with the fewest cycles for each build, size and unrolling.

    The stencil counts as several loops, one for each level that holds its rows.
    """
    frame, notes = select(
        records,
        kernels,
        ("variant", "unroll", "footprint_B", "threads", "dtype"),
        measure=measure,
        value=CYCLES,
    )
    frame, left = prevailing(frame[frame["kernel"] != MATVEC])
    frame = frame.assign(nt=is_nt(frame), unroll=frame["unroll"].fillna(0.0))
    about = frame.reindex(columns=["pages_requested", "layer_condition", "conditions"])
    # The level that holds a stencil's rows, if the size was chosen for a level.
    held, chosen = about["conditions"].map(_holder), words(about["layer_condition"])
    held = held.where(chosen.ne("") & held.ne(""), chosen)
    frame = frame.assign(held=held, page=words(about["pages_requested"]), build="")
    frame = ranked(by_build(frame, "build", ""), CYCLES, lowest=True)
    cases = ["platform", "build", "kernel", "held", "page", "footprint_B", "unroll", "nt"]
    return frame.drop_duplicates(cases).sort_index(), notes + left


def _fewest(panel: Panel) -> None:
    """Draw the fewest cycles of several unrollings, with the unrolling of each level below."""
    lowest = panel.rows[panel.rows["fewest"]]
    if lowest.empty:
        return
    look = own_look(0)._replace(marker="", linewidth=2.4, zorder=3)
    curve(panel.ax, lowest, panel.x, CYCLES, look, "fewest cycles")
    for low, high in itertools.pairwise(
        [0.0, *(end for _, end in cache_ends(panel.rows)), math.inf]
    ):
        rows = lowest[lowest[panel.x].between(low, high, inclusive="right")]
        if rows.empty:
            continue
        least = min(rows.to_dict("records"), key=lambda row: float(row[CYCLES]))
        position = math.exp(sum(map(math.log, rows[panel.x])) / len(rows))
        panel.ax.annotate(
            f"u={least['unroll']:g}" if least["unroll"] else "own",
            (position, least[CYCLES]),
            xytext=(0, -3),
            textcoords="offset points",
            fontsize=NOTE_SIZE,
            color=GREY,
            ha="center",
            va="top",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.2},
        )


def _ecm(panel: Panel) -> None:
    """Draw the cycles by the model."""
    known = panel.rows.dropna(subset="ecm").sort_values(panel.x)
    if len(known):
        look = ecm_look(own_look(1)._replace(zorder=6))
        panel.ax.plot(known[panel.x], known["ecm"], label=ECM, **look._asdict())


def _mark_rows(panel: Panel) -> None:
    """Mark the smallest sizes at which a cache no longer holds three rows of a stencil."""
    rows = panel.rows
    if rows["kernel"].iloc[0] != STENCIL or rows["held"].iloc[0]:
        return
    panel.ax.set_title(panel.ax.get_title(), pad=19)
    starts: dict[str, float] = {}
    for row in rows.sort_values(panel.x).to_dict("records"):
        if holder := _holder(row.get("conditions")):
            starts.setdefault(f"rows in {holder}", row[panel.x])
    ends = [*starts.values(), math.inf][1:]
    cache_regions(panel.ax, list(zip(starts, ends, strict=False)), line=1)


def _cycles_scale(ax: Axes, *_: Any) -> None:
    ax.set_yscale("log", base=2)
    low, high = ax.dataLim.y0 / 1.35, ax.dataLim.y1 * 1.2
    ax.set_ylim(low, max(high, 4 * low))
    log2_axis(ax.yaxis)


@Curves(
    name="loops-cycles",
    x=Axis("footprint_B", "Memory used", byte_ticks(4)),
    y=Axis(CYCLES, "Cycles per vector", _cycles_scale),
    layers=(Measured("series"), _fewest, Measured("nontemporal"), _ecm),
    marks=(_mark_rows,),
    panels=("kernel", "held", "page", "platform", "build"),
    columns=lambda parts: 2 if len({rows["platform"].iloc[0] for rows in parts}) == 2 else 3,
    height=1.75,
    caches=True,
    outside=True,
    legend=5,
    returns="A panel for each build, platform, kernel and requested size of pages, 6.9 in wide, "
    "3.35 in for one alone.",
    paper="alappat2021",
    number="figure 5",
    records="loop kernels at two sizes or more. The caches are marked if a ResultSet describes "
    "them",
    lack="no loop has its cycles at two sizes",
    measure=_MEASURE,
)
def cycles(
    records: Records = None, kernels: str | Sequence[str] = "loops", machine: str = ""
) -> Selection:
    """Core cycles for one vector of every stream against the memory used, by unrolling.

    The unrolling with the fewest cycles in each level is named below the line of the fewest cycles.
    The smallest sizes at which a cache no longer holds three rows of a stencil are marked.

    Parameters
    ----------
    kernels : str or sequence of str
        Names of kernels or families, with commas between.
    machine : str
        Machine file, by which the ECM model is drawn. Beyond L1, its time in the core is the lowest
        time measured in L1, if the records are of this machine.
    """
    source = machine_for(machine, records)
    frame, notes = _own_cycles(records, split(kernels), _MEASURE)
    here = ["platform", "kernel", "held", "page", "build"]
    frame = frame[frame.groupby(here)["footprint_B"].transform("nunique") > 1]
    ordinary = frame[~frame["nt"]]
    lowest = ranked(ordinary, CYCLES, lowest=True).drop_duplicates([*here, "footprint_B"])
    several = lowest.index[ordinary.groupby(here)["unroll"].transform("nunique")[lowest.index] > 1]
    unrolls = sorted(set(frame["unroll"]) - {0.0})
    look = own_look(0)._replace(linewidth=0.9, markersize=2.0, zorder=4)
    looks = {0.0: look._replace(color=GREY) if unrolls else look}
    for number, unroll in enumerate(unrolls):
        looks[unroll] = look._replace(color=shade(number / max(len(unrolls) - 1, 1)))
    nontemporal = own_look(1)._replace(linewidth=1.0, markersize=2.0, linestyle=NT_DASHES)
    kinds = zip(frame["nt"], frame["unroll"], strict=True)
    names = {each: f"unrolled {each:g}" if each else "kernel's own unrolling" for each in looks}
    platforms, pages = (frame[name].nunique() > 1 for name in ("platform", "page"))
    frame = frame.assign(
        series=frame["unroll"].map(names).where(~frame["nt"]),
        nontemporal=frame["nt"].map({True: "non-temporal stores"}),
        look=objects(frame, [nontemporal if nt else looks[unroll] for nt, unroll in kinds]),
        fewest=frame.index.isin(several),
        ecm=_ecm_cycles(lowest, source, here, of_records=not others_note(source, records)),
        panel=[
            f"{named(platform, 16)}\n" * platforms
            + short(kernel)
            + f", rows in {held}" * bool(held)
            + f", {page} pages" * pages
            + f"\n{build}" * bool(build)
            for platform, kernel, held, page, build in frame[here].itertuples(index=False)
        ],
    )
    notes += ["The model is for a vector of the records."] * len(others_note(source, records))
    return ordered(frame, "series", names.values()), [*notes, *machine_note(source, records)]


def _ecm_cycles(
    rows: DataFrame, source: MachineFile | None, here: Sequence[str], *, of_records: bool
) -> Series | float:
    """Return the cycles of a vector by the ECM model; beyond L1, T_core is measured there.

    It is not if the model is not of the records' machine.
    """
    if source is None or rows.empty:
        return math.nan
    vectors = rows["time_min_s"] * rows["clock_GHz"] * 1e9 * rows["threads"] / rows[CYCLES]
    first_B = [min(source.cache_sizes_B(int(n)).values(), default=0.0) for n in rows["threads"]]
    beyond = rows["footprint_B"] > first_B
    in_l1 = rows[CYCLES].mask(beyond).groupby([rows[name] for name in here]).transform("min")
    records = rows.assign(core=(in_l1 * vectors).where(beyond & of_records)).to_dict("records")
    found = predictions(source, records, lambda row: float(row["core"]))
    ecm = [
        one.cycles_of(int(row["threads"])) * row["threads"] if one else math.nan
        for row, one in zip(records, found, strict=True)
    ]
    return ecm / vectors


def _holder(conditions: object) -> str:
    """Return the smallest level that holds three rows of a stencil; '' if it is unknown."""
    if not isinstance(conditions, str) or not conditions:
        return ""
    return next((part.split()[0] for part in conditions.split(", ") if "rows" in part), MEMORY)


_LIMITS = {size_B: f"{size_B} B from memory an element" for size_B in _ELEMENT_B}


@Curves(
    name="matvec",
    x=Axis("y_B", "Size of y", byte_scale),
    y=Axis("performance_GFLOPs", "Performance (GFLOP/s)", from_zero(*_LIMITS.values(), room=1.12)),
    layers=(
        Measured("series"),
        *(Level(name, name, _ELEMENT_B[size_B]) for size_B, name in _LIMITS.items()),
    ),
    title=lambda rows, several: machine_title(rows, several) or "y += A x",
    height=2.4,
    caches=True,
    legend=2,
    returns="A panel for each platform, 6.9 in wide, 3.35 in for one alone.",
    paper="alappat2021",
    number="figure 4",
    records="`loops.matvec` at two lengths or more",
    lack=f"no record of {MATVEC} is in float64",
    measure=_MEASURE_MATVEC,
)
def matrix_vector(records: Records = None, memory_GBps: float = math.nan) -> Selection:
    """GFLOP/s of y += A x by columns against the size of y, with and without prefetch hint.

    The memory traffic per element of the matrix is 8 bytes if y stays in a cache. Otherwise it is
    24 bytes, since y is read and written for each element.

    Parameters
    ----------
    memory_GBps : float
        Memory bandwidth for the two limits drawn, of 8 and of 24 bytes. By default the highest
        bandwidth of the platform's streaming kernels from memory; without such a record, no limit
        is drawn.
    """
    if memory_GBps <= 0 or memory_GBps == math.inf:
        raise InputError(f"memory_GBps is {memory_GBps!r}, which is not a positive number")
    frame, notes = select(
        records,
        [MATVEC],
        ("rows", "variant", "dtype", "threads", BANDWIDTH),
        measure=_MEASURE_MATVEC,
        value="performance_GFLOPs",
    )
    frame, left = prevailing(frame[frame["dtype"] == "float64"])
    frame = frame.assign(hint=frame["variant"].eq("nta"), y_B=8 * frame["rows"])
    frame = best(frame, ("platform", "rows", "hint"))
    names = {False: "plain", True: "non-temporal prefetch hint on A"}
    looks = [
        own_look(number)._replace(linewidth=1.4, markersize=3.6, linestyle=dashes)
        for number, dashes in enumerate(("-", NT_DASHES))
    ]
    limits = {
        name: _memory_bandwidth(records, name) if math.isnan(memory_GBps) else memory_GBps
        for name in set(frame["platform"])
    }
    frame = frame.assign(
        machine=frame["platform"],
        series=frame["hint"].map(names),
        look=objects(frame, [looks[hint] for hint in frame["hint"]]),
        **{name: 2 / size_B * frame["platform"].map(limits) for size_B, name in _LIMITS.items()},
    )
    return ordered(frame, "series", names.values()), notes + left


def _memory_bandwidth(records: Records, platform: str) -> float:
    """Return the highest bandwidth of any kernel from memory on a platform, NaN if unknown."""
    frame, _ = select(records, list(FAMILIES), ("footprint_B", "threads", "variant"))
    frame = frame[(frame["platform"] == platform) & (frame["kernel"] != MATVEC)]
    if not cache_ends(frame):
        return math.nan
    values = memory_values(frame, from_memory(frame))
    return float(undisturbed(values)[BANDWIDTH].max()) if len(values) else math.nan


@Curves(
    name="matvec-traffic",
    x=Axis("y_B", "Size of y", byte_scale),
    y=Axis("element_B", "Traffic (B per element of A)", from_zero(room=1.12, least=24.0)),
    layers=(
        Measured("series"),
        Level(8, "8 B: y in a cache", _ELEMENT_B[8]),
        Level(24, "24 B: y in memory", _ELEMENT_B[24]),
    ),
    records="`loops.matvec` at two lengths or more, measured with ``--counters`` to show counts",
    lack="no record of loops.matvec in float64 has its traffic with memory",
    measure=_COUNT_MATVEC,
    caches=True,
    legend=3,
    paper="alappat2021",
    number="figure 4",
)
def matrix_vector_traffic(records: Records = None) -> Selection:
    """Bytes from and to memory for an element of A in y += A x, counted and by the model.

    A is read once. If no cache holds y, it is read and written for each column.
    """
    columns = ("rows", "elements", "variant", "dtype", "threads")
    frame, notes = select(
        records, [MATVEC], columns, measure=_COUNT_MATVEC, value="performance_GFLOPs"
    )
    frame, left = prevailing(frame[frame["dtype"] == "float64"], per=("machine",))
    frame = frame.assign(y_B=8 * frame["rows"], hint=frame["variant"].eq("nta"))
    counted = frame.assign(
        element_B=traffic_B(frame, "memory", counted=True) / frame["elements"],
        series=["counted, prefetch hint on A" if hint else "counted" for hint in frame["hint"]],
    ).dropna(subset="element_B")
    modelled = frame.assign(
        element_B=traffic_B(frame, "memory", counted=False) / frame["elements"],
        series="by the model",
        disturbed=False,
    ).dropna(subset="element_B")
    if counted.empty and len(modelled):
        why = first_note(frame, "counters_note") or "measure with --counters auto"
        notes.append(f"By the model alone: {why}.")
    both = concat([best(rows, ("machine", "y_B", "series")) for rows in (counted, modelled)])
    return both.sort_values("hint", kind="stable"), notes + left


@Curves(
    name="loops-tlb-misses",
    x=Axis("footprint_B", "Memory used", byte_scale),
    y=Axis("walks", "Page walks per MiB of memory used", log_scale),
    layers=(Measured("series"),),
    records="loop kernels with counts of page walks, which ``--counters`` measures",
    lack="no loop has its page walks at two sizes",
    measure=_COUNT_WALKS,
    caches=True,
    paper="alappat2021",
    number="figure 5",
)
def tlb_misses(records: Records = None, kernels: str | Sequence[str] = "loops.triad") -> Selection:
    """Page walks of loops, counted, against the memory used, by requested size of pages.

    Sizes without a page walk are not drawn. An access to each page of 4 KiB, without a TLB that
    holds it, is 256 page walks per MiB.

    Parameters
    ----------
    kernels : str or sequence of str
        Names of kernels or families, with commas between.
    """
    misses = "counted_tlb_misses"
    columns = ("footprint_B", "threads", "dtype", CYCLES)
    frame, notes = select(records, split(kernels), columns, measure=_COUNT_WALKS, value=misses)
    frame, left = prevailing(frame, per=("machine",))
    pages = words(frame["pages_requested"]) if "pages_requested" in frame else ""
    frame = frame.assign(
        walks=frame[misses] / frame["footprint_B"] * 2**20,
        series=frame["kernel"].map(short) + (", " + pages + " pages" if len(pages) else ""),
    )
    frame = (
        ranked(frame, CYCLES, lowest=True)
        .drop_duplicates(["machine", "series", "footprint_B"])
        .sort_index()
    )
    several = frame.groupby(["machine", "series"])["footprint_B"].transform("nunique") > 1
    return frame[several], notes + left


@tabulated(
    "loops-cycles",
    "One row per measured loop, without records one per published loop: kernel, statement (which "
    "distinguishes several rows of a kernel), for each own platform the cycles for one of its "
    "vectors of every stream in L1, L2 and memory, then the A64FX's for one of 512 bits, "
    "predicted and measured. Missing numbers are NaN.",
    paper="alappat2021",
    number="table 3",
    records="loop kernels; the fewest cycles of any variant and unrolling are shown. The rows of "
    "a stencil are assumed to be in L1 if their level is unknown",
    lack="no record is of a loop with data in L1, L2 or memory",
    optional=True,
)
def cycles_by_level(records: Records = None) -> DataFrame:
    """Cycles per vector of loops with data in L1, L2 and memory, and published ones of an A64FX."""
    from pandas import DataFrame, MultiIndex

    from memkern import reference

    loop = ["kernel", "statement"]
    names = {
        f"{column}_{where}": f"A64FX {how}: {level}"
        for column, how in (("pred", "predicted"), ("meas", "measured"))
        for level, where in _LEVELS.items()
    }
    published = reference.load("alappat2021-kernels").set_index(loop)[[*names]]
    statements = dict(published.index)
    frame, _ = _own_cycles(records, ["loops"], "" if records is None else _MEASURE)
    stated = [
        _STENCILS[held] if kernel == STENCIL else statements.get(kernel, "")
        for kernel, held in zip(frame["kernel"], frame["held"], strict=True)
    ]
    streams, _ = select(records, list(FAMILIES), ("footprint_B", "threads", "variant"))
    frame = frame.assign(level=levels(frame, from_memory(streams)), statement=stated)
    fewest = ranked(frame[frame["level"].isin([*_LEVELS])], CYCLES, lowest=True)
    fewest = fewest.assign(column=fewest["platform"] + ": " + fewest["level"])
    own = fewest.drop_duplicates([*loop, "column"]).pivot(
        index=loop, columns="column", values=CYCLES
    )
    loops = [*published.index, *zip(frame["kernel"], frame["statement"], strict=True)]
    loops = [each for each in dict.fromkeys(loops) if records is None or each in own.index]
    need_rows(loops, f"no loop has its data in L1, L2 or memory: `{_MEASURE}` measures them")
    columns = [f"{name}: {level}" for name in frame["platform"].unique() for level in _LEVELS]
    table = DataFrame(index=MultiIndex.from_tuples(loops, names=loop)).join(own)
    return table.reindex(columns=columns).join(published.rename(columns=names)).reset_index()
