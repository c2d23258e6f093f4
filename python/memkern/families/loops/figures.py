"""Figures and table of the loop kernels: cycles per vector, and the matrix-vector product.

After Alappat et al. 2021, whose predictions and measurements on an A64FX are listed next to own
ones in the table.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
    Figure,
    InputError,
    Level,
    Measured,
    Records,
    Selection,
    Series,
    best,
    by_build,
    byte_scale,
    bytes_axis,
    cache_ends,
    cache_regions,
    curve,
    drawn,
    ecm_look,
    extent,
    finish,
    first_note,
    from_zero,
    label_outside,
    log2_axis,
    log_scale,
    machine_for,
    machine_note,
    named,
    need_rows,
    others_note,
    own_look,
    panels,
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

if TYPE_CHECKING:
    from memkern.models.machine_file import MachineFile

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
    frame = frame[frame["kernel"] != MATVEC]
    frame, left = prevailing(frame)
    frame = frame.assign(nt=is_nt(frame), unroll=frame["unroll"].fillna(0.0))
    held = _held(frame) if "layer_condition" in frame else ""
    pages = words(frame["pages_requested"]) if "pages_requested" in frame else ""
    frame = by_build(frame.assign(held=held, page=pages, build=""), "build", "")
    frame = ranked(frame, CYCLES, lowest=True)
    cases = ["platform", "build", "kernel", "held", "page", "footprint_B", "unroll", "nt"]
    return frame.drop_duplicates(cases).sort_index(), notes + left


@drawn(
    "loops-cycles",
    "A panel for each build, platform, kernel and requested size of pages, 6.9 in wide, 3.35 in "
    "for one alone.",
    paper="alappat2021",
    number="figure 5",
    records="loop kernels at two sizes or more. The caches are marked if a ResultSet describes "
    "them",
    lack="no kernel with cycles at two sizes",
)
def cycles(
    records: Records = None, kernels: str | Sequence[str] = "loops", machine: str = ""
) -> Figure:
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
    need_rows(frame, f"no loop has its cycles at two sizes: `{_MEASURE}` measures them")
    platforms = list(dict.fromkeys(frame["platform"]))
    # Panels of the same loop on several platforms are next to each other.
    cells = list(frame.groupby(here[1:] + here[:1], sort=False))
    order = list(dict.fromkeys(cell[:3] for cell, _ in cells))
    cells.sort(key=lambda pair: (order.index(pair[0][:3]), platforms.index(pair[0][-1])))
    several_pages = frame["page"].nunique() > 1
    columns = 2 if len(platforms) == 2 else 3
    unrolls = sorted(set(frame["unroll"]) - {0.0})
    fig, axes = panels(len(cells), columns, 1.75)
    for ax, ((kernel, held, page, build, platform), rows) in zip(axes, cells, strict=True):
        ordinary, nontemporal = rows[~rows["nt"]], rows[rows["nt"]]
        for unroll in [0.0, *unrolls]:
            of_unroll = ordinary[ordinary["unroll"] == unroll]
            share = unrolls.index(unroll) / max(len(unrolls) - 1, 1) if unroll else 0.0
            look = own_look(0)._replace(linewidth=0.9, markersize=2.0, zorder=4)
            if unrolls:
                look = look._replace(color=shade(share) if unroll else GREY)
            label = f"unrolled {unroll:g}" if unroll else "kernel's own unrolling"
            if len(of_unroll):
                curve(ax, of_unroll, "footprint_B", CYCLES, look, label)
        lowest = ranked(ordinary, CYCLES, lowest=True).drop_duplicates("footprint_B")
        bold = own_look(0)._replace(marker="", linewidth=2.4, zorder=3)
        if ordinary["unroll"].nunique() > 1:
            curve(ax, lowest, "footprint_B", CYCLES, bold, "fewest cycles")
        if len(nontemporal):
            look = own_look(1)._replace(linewidth=1.0, markersize=2.0, linestyle=NT_DASHES)
            curve(ax, nontemporal, "footprint_B", CYCLES, look, "non-temporal stores")
        if source is not None and len(lowest):
            _ecm_cycles(ax, lowest, source, of_records=not others_note(source, records))
        title = short(str(kernel)) + (f", rows in {held}" if held else "")
        title += f", {page} pages" * several_pages + (f"\n{build}" if build else "")
        pad = 19 if kernel == STENCIL and not held else 11
        ax.set_title(f"{named(platform, 16)}\n{title}" if len(platforms) > 1 else title, pad=pad)
        ax.set_yscale("log", base=2)
        low, high = ax.dataLim.y0 / 1.35, ax.dataLim.y1 * 1.2
        ax.set_ylim(low, max(high, 4 * low))
        bytes_axis(ax, 4)
        log2_axis(ax.yaxis)
        cache_regions(ax, cache_ends(rows))
        if ordinary["unroll"].nunique() > 1:
            _name_unrolling(ax, lowest, cache_ends(rows))
        if kernel == STENCIL and not held:
            _mark_rows(ax, rows)
    label_outside(axes, "Memory used", "Cycles per vector")
    notes += ["The model is for a vector of the records."] * len(others_note(source, records))
    return finish(fig, 5, [*notes, *machine_note(source, records)], frame)


def _ecm_cycles(ax: Axes, rows: DataFrame, source: MachineFile, *, of_records: bool) -> None:
    """Draw the cycles of a vector by the ECM model; beyond L1, T_core is measured there.

    It is not if the model is not of the records' machine.
    """
    rows = rows.sort_values("footprint_B")
    threads = rows["threads"].iloc[0]
    vectors = rows["time_min_s"] * rows["clock_GHz"] * 1e9 * threads / rows[CYCLES]
    rows = rows.assign(vectors=vectors)
    sizes_B = source.cache_sizes_B(int(threads))
    first_B = min(sizes_B.values(), default=0.0)
    in_l1 = rows.loc[rows["footprint_B"] <= first_B, CYCLES].min()

    def core(row: Mapping[Any, Any]) -> float:
        beyond = of_records and row["footprint_B"] > first_B
        return float(in_l1 * row["vectors"]) if beyond else math.nan

    records = rows.to_dict("records")
    points = [
        (row["footprint_B"], predicted.cycles_of(int(threads)) * threads / row["vectors"])
        for row, predicted in zip(records, predictions(source, records, core), strict=True)
        if predicted is not None
    ]
    look = ecm_look(own_look(1)._replace(zorder=6))
    ax.plot(*zip(*points, strict=True), label=ECM, **look._asdict())


def _name_unrolling(ax: Axes, lowest: DataFrame, ends: Sequence[tuple[str, float]]) -> None:
    """Write the unrolling with the fewest cycles in each level below their line."""
    edges = [0.0, *(end for _, end in ends), math.inf]
    for low, high in itertools.pairwise(edges):
        rows = lowest[(lowest["footprint_B"] > low) & (lowest["footprint_B"] <= high)]
        if rows.empty:
            continue
        fewest = min(rows.to_dict("records"), key=lambda row: float(row[CYCLES]))
        position = math.exp(sum(map(math.log, rows["footprint_B"])) / len(rows))
        name = f"u={fewest['unroll']:g}" if fewest["unroll"] else "own"
        text: dict[str, Any] = {"fontsize": NOTE_SIZE, "color": GREY, "ha": "center", "va": "top"}
        text["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.2}
        ax.annotate(
            name, (position, rows[CYCLES].min()), xytext=(0, -3), textcoords="offset points", **text
        )


def _held(frame: DataFrame) -> Series:
    """Return the level that holds a stencil's rows if the size was chosen for a level, else ''."""
    chosen = words(frame["layer_condition"])
    if "conditions" not in frame:
        return chosen
    found = frame["conditions"].map(_holder)
    return found.where(chosen.ne("") & found.ne(""), chosen)


def _holder(conditions: object) -> str:
    """Return the smallest level that holds three rows of a stencil; '' if it is unknown."""
    if not isinstance(conditions, str) or not conditions:
        return ""
    return next((part.split()[0] for part in conditions.split(", ") if "rows" in part), MEMORY)


def _mark_rows(ax: Axes, rows: DataFrame) -> None:
    """Mark the smallest sizes at which a cache no longer holds three rows of a stencil."""
    if "conditions" not in rows:
        return
    starts: dict[str, float] = {}
    for row in rows.sort_values("footprint_B").to_dict("records"):
        if holder := _holder(row["conditions"]):
            starts.setdefault(f"rows in {holder}", row["footprint_B"])
    cache_regions(ax, list(zip(starts, [*starts.values(), math.inf][1:], strict=False)), line=1)


@drawn(
    "matvec",
    "A panel for each platform, 6.9 in wide, 3.35 in for one alone.",
    paper="alappat2021",
    number="figure 4",
    records="`loops.matvec` at two lengths or more",
    lack="no such record, a bandwidth that is not positive",
)
def matrix_vector(records: Records = None, memory_GBps: float = math.nan) -> Figure:
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
    need_rows(frame, f"no record of {MATVEC} is in float64: `{_MEASURE_MATVEC}` measures it")
    frame = frame.assign(hint=frame["variant"].eq("nta"), y_B=8 * frame["rows"])
    frame = best(frame, ("platform", "rows", "hint"))
    platforms = list(dict.fromkeys(frame["platform"]))
    fig, axes = panels(len(platforms), 2, 2.4)
    for ax, platform in zip(axes, platforms, strict=True):
        rows = frame[frame["platform"] == platform]
        for hint, label in ((False, "plain"), (True, "non-temporal prefetch hint on A")):
            mine = rows[rows["hint"] == hint]
            look = own_look(int(hint))._replace(linewidth=1.4, markersize=3.6)
            look = look._replace(linestyle=NT_DASHES) if hint else look
            if len(mine):
                curve(ax, mine, "y_B", "performance_GFLOPs", look, label)
        _, top = extent(rows, "performance_GFLOPs")
        limit = memory_GBps
        if math.isnan(limit):
            limit = _memory_bandwidth(records, platform)
        bytes_axis(ax, 5)
        for size, dashes in _ELEMENT_B.items():
            height = 2 * limit / size
            if not math.isnan(limit):
                top = max(top, height)
                label = f"{size} B from memory an element"
                ax.axhline(height, color=GREY, linewidth=0.9, linestyle=dashes, label=label)
        ax.set_ylim(0, 1.12 * top)
        # Only y is reused.
        cache_regions(ax, cache_ends(rows))
        ax.set_title(named(platform) if len(platforms) > 1 else "y += A x", pad=11)
        ax.set(xlabel="Size of y", ylabel="Performance (GFLOP/s)")
    return finish(fig, 2, [*notes, *left], frame)


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
    from pandas import concat

    columns = ("rows", "elements", "variant", "dtype", "threads")
    value = "performance_GFLOPs"
    frame, notes = select(records, [MATVEC], columns, measure=_COUNT_MATVEC, value=value)
    frame, left = prevailing(frame[frame["dtype"] == "float64"], per=("machine",))
    counts, model = (traffic_B(frame, "memory", counted=each) for each in (True, False))
    frame = frame.assign(y_B=8 * frame["rows"], hint=frame["variant"].eq("nta"))
    counted = frame.assign(
        element_B=counts / frame["elements"],
        series=["counted, prefetch hint on A" if hint else "counted" for hint in frame["hint"]],
    ).dropna(subset="element_B")
    modelled = frame.assign(
        element_B=model / frame["elements"], series="by the model", disturbed=False
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
    frame = ranked(frame, CYCLES, lowest=True)
    frame = frame.drop_duplicates(["machine", "series", "footprint_B"]).sort_index()
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
    from pandas import DataFrame

    from memkern import reference

    nothing = math.nan
    published = reference.rows("alappat2021-kernels")
    statements = {row["kernel"]: row["statement"] for row in published}
    frame, _ = _own_cycles(records, ["loops"], "" if records is None else _MEASURE)
    stated = [
        _STENCILS[held] if kernel == STENCIL else statements.get(kernel, "")
        for kernel, held in zip(frame["kernel"], frame["held"], strict=True)
    ]
    streams, _ = select(records, list(FAMILIES), ("footprint_B", "threads", "variant"))
    frame = frame.assign(level=levels(frame, from_memory(streams)), statement=stated)
    case = ["platform", "kernel", "statement", "level"]
    fewest = ranked(frame, CYCLES, lowest=True).drop_duplicates(case)
    own = fewest.set_index(case)[CYCLES].to_dict()
    loops = [(row["kernel"], row["statement"]) for row in published]
    loops += zip(frame["kernel"], frame["statement"], strict=True)
    if records is not None:
        shown = fewest[fewest["level"].isin(list(_LEVELS))]
        measured = set(zip(shown["kernel"], shown["statement"], strict=True))
        loops = [loop for loop in loops if loop in measured]
    need_rows(loops, f"no loop has its data in L1, L2 or memory: `{_MEASURE}` measures them")
    known = {(row["kernel"], row["statement"]): row for row in published}
    table = []
    for kernel, statement in dict.fromkeys(loops):
        row = known.get((kernel, statement), {})
        table.append(
            {"kernel": kernel, "statement": statement}
            | {
                f"{platform}: {level}": own.get((platform, kernel, statement, level), nothing)
                for platform in dict.fromkeys(frame["platform"])
                for level in _LEVELS
            }
            | {
                f"A64FX {how}: {level}": row.get(f"{column}_{where}", nothing)
                for column, how in (("pred", "predicted"), ("meas", "measured"))
                for level, where in _LEVELS.items()
            }
        )
    return DataFrame(table)
