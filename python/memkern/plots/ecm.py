"""Figures and tables of the ECM model and of the roofline of every level."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from memkern.formats import ResultSet
from memkern.models.ecm import Ecm, MemoryRate
from memkern.models.ecm_fit import (
    FITTED,
    EcmFit,
    LoopTime,
    fit_ecm,
    fit_levels,
    loop_times,
    transfers_of,
)
from memkern.models.machine_file import MachineFile
from memkern.models.overlap import Overlap, hypotheses, overlap_of, paper_hypotheses
from memkern.models.published_machines import published
from memkern.models.roofline import Ceiling, ceilings, peak_GFLOPs, roofline, roofline_columns
from memkern.plots.kit import (
    GREY,
    NOTE_SIZE,
    PAPERS,
    Axes,
    DataFrame,
    Figure,
    InputError,
    Look,
    Records,
    counted,
    counts_axis,
    curves,
    drawn,
    finish,
    log2_axis,
    machine_for,
    marked_look,
    need_rows,
    new_table,
    others_note,
    panels,
    rows_of,
    split,
    table_of,
    tabulated,
)
from memkern.spec.kernel import Traffic

_MEASURE = "memkern ecm -o ecm.parquet"
_BAND = 0.25
# Best hypotheses in the overlap diagram, beside those of the paper.
_RANKS = ("best fit", "second best")
# Bytes of a vector of 512 bits of every stream of the fitted loops.
_VECTORS = {
    "loops.load": Traffic(read=64),
    "loops.copy": Traffic(read=64, write=64, write_allocate=64),
    "loops.triad": Traffic(read=128, write=64, write_allocate=64),
}
_ROW_IN = 0.16
# Ceilings within this factor share a label.
_NEAR = 1.6


def _results(records: Records) -> ResultSet:
    """Return records as a ResultSet; without environments if they are a DataFrame."""
    if isinstance(records, ResultSet):
        return records
    rows = rows_of(records)
    need_rows(rows, f"there is no record of loops in each level: `{_MEASURE}` measures them")
    return ResultSet(rows, [np.empty(0)] * len(rows))


def _dots_alone(size: float, number: int) -> Look:
    """Return the look of a series of dots of this size, without a line."""
    return marked_look(number)._replace(linestyle="none", markersize=size)


def _fit(
    records: Records, overlap: str, machine: MachineFile | None, memory_rate: MemoryRate
) -> EcmFit:
    loops, clock_GHz = loop_times(_results(records))
    if machine is not None and others_note(machine, records):
        raise InputError(
            "machine must be that of the records, to whose loops the bandwidths are fitted, not "
            f"{machine.name}"
        )
    overlaps = {overlap: overlap_of(overlap, list(loops[0].transfers))} if overlap else None
    instructions = None if machine is None else machine.loads_and_stores
    return fit_ecm(loops, clock_GHz, overlaps, instructions, memory_rate)


@tabulated(
    "ecm",
    "A row for each loop and level: kernel, level, measured_cycles and predicted_cycles (of a "
    "vector of every stream on one core), measured_over_predicted, spread (standard deviation of "
    "the logarithms of the placements), bound, memory_rate (``apart`` for the bandwidths of loads "
    "and of stores, ``load`` or ``triad`` for one of all bytes, empty for data in caches), fitted, "
    "disturbed, and the cycles of the loads and stores of each level.",
    records="``memkern ecm``",
    lack="load, copy and triad were not measured undisturbed in each level, or the machine file "
    "can't be read or is another machine's",
)
def ecm_table(
    records: Records = None,
    overlap: str = "",
    machine: str = "",
    memory_rate: MemoryRate = "apart",
) -> DataFrame:
    """Predictions of the ECM model and measurements of loops, by kernel and level.

    Parameters
    ----------
    overlap : str
        Hypothesis such as ``L1 load + max(L1 store, L2, memory)``, or ``a``, ``b``, ``c`` or ``d``
        of the paper; by default the one that fits load, copy and triad best.
    machine : str
        Machine file, whose loads and stores are the time in the core in L1.
    memory_rate : {"apart", "common"}
        Bandwidths of memory: those of loads and of stores, or that of loads or of a triad for all
        bytes, as in the paper.
    """
    return _table(_fit(records, overlap, machine_for(machine, records, ecm=False), memory_rate))


def _table(found: EcmFit) -> DataFrame:
    rows = [
        {
            "kernel": row.loop.kernel,
            "level": row.loop.level,
            "measured_cycles": row.loop.cycles,
            "predicted_cycles": row.predicted.cycles,
            "measured_over_predicted": row.ratio,
            "spread": row.loop.spread,
            "bound": row.predicted.bound,
            "memory_rate": row.predicted.memory_rate,
            "fitted": row.fitted,
            "disturbed": row.loop.disturbed,
            "core_cycles": row.predicted.core,
            **{
                f"{level}_{way}_cycles": cycles
                for level, both in row.predicted.terms.items()
                for way, cycles in zip(("load", "store"), both, strict=True)
            },
        }
        for row in found.rows
    ]
    return new_table(rows)


@drawn(
    "ecm",
    "One panel, 3.35 in wide.",
    records="``memkern ecm``",
)
def predicted_against_measured(
    records: Records = None,
    overlap: str = "",
    machine: str = "",
    memory_rate: MemoryRate = "apart",
) -> Figure:
    """Measured cycles for a vector of every stream, over the prediction of the ECM model.

    Parameters
    ----------
    overlap, machine, memory_rate : str
        As for the table ``ecm``.
    """
    file = machine_for(machine, records, ecm=False)
    found = _fit(records, overlap, file, memory_rate)
    frame = _table(found)
    fig, (ax,) = panels(1, 2, 3.1)
    ends = [
        frame[["measured_cycles", "predicted_cycles"]].to_numpy().min() / 1.5,
        frame[["measured_cycles", "predicted_cycles"]].to_numpy().max() * 1.5,
    ]
    ax.plot(ends, ends, color=GREY, linewidth=0.8)
    ax.fill_between(
        ends,
        [(1 - _BAND) * end for end in ends],
        [(1 + _BAND) * end for end in ends],
        color="#ededed",
        zorder=0,
        label=f"within {100 * _BAND:.0f} %",
    )
    for fitted, look in ((False, partial(_dots_alone, 4.0)), (True, partial(_dots_alone, 2.0))):
        rows = frame[frame["fitted"] == fitted]
        curves(ax, rows, "level", found.model.names, "predicted_cycles", "measured_cycles", look)
    ax.set(xlabel="Predicted cycles per vector", ylabel="Measured cycles per vector")
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    counts_axis(ax.xaxis)
    counts_axis(ax.yaxis)
    notes = [
        f"{found.model.overlap}, fitted to {', '.join(FITTED)} (small markers): median error of "
        f"the others {100 * found.median_error:.1f} %."
    ]
    if file is not None and file.loads_and_stores is not None:
        notes.append(f"Loads and stores of the core: {file.label}.")
    return finish(fig, 3, notes, frame)


@drawn(
    "ecm-overlap",
    "A panel for each kernel, 6.9 in wide.",
    paper="alappat2021",
    number="figure 6",
    records="``memkern ecm``",
    lack="no such loop was measured in the level",
    optional=True,
)
def overlap_diagram(
    records: Records = None,
    level: str = "memory",
    kernels: str | Sequence[str] = FITTED,
    machine: str = "",
) -> Figure:
    """Overlap of transfers by hypothesis: their times stacked, beside the measurement.

    The hypotheses are the paper's (a) to (d) (see `memkern.models.paper_hypotheses`). Of transfers
    that overlap, the longest are drawn. Without records, the measurements and bandwidths are those
    of the paper's A64FX.

    Parameters
    ----------
    level : str
        Level that holds the data.
    kernels : str or sequence of str
        Names of loops, separated by commas.
    machine : str
        Machine file, whose bandwidths are used with every hypothesis, as in the paper. By default
        they are fitted to the three loops for each hypothesis, also for the two that fit best.
    """
    source = published("A64FX") if records is None else machine_for(machine, records)
    loops, models, notes = _fitted(records) if source is None else _by_file(records, source)
    levels = next(iter(models.values())).names
    if level not in levels:
        raise InputError(f"level {level!r} is not one of {', '.join(levels)}")
    wanted = split(kernels)
    loops = [loop for loop in loops if loop.level == level and loop.kernel in wanted]
    need_rows(loops, f"none of {', '.join(wanted)} was measured with its data in {level}")
    fig, axes = panels(len(loops), min(len(loops), 3), _ROW_IN * (len(models) + 1) + 0.9)
    for ax, loop in zip(axes, loops, strict=True):
        _stacks(ax, loop, models)
    for ax in axes[1:]:
        ax.set_yticklabels([])
    notes = [
        f"Data in {level}, one core. Of transfers that overlap, the longest are drawn.",
        *notes,
        "Of (a) to (d), the paper prints only (d) as a formula; the others are derived from its "
        "text.",
        *(f"{label}: {model.overlap}." for label, model in models.items()),
    ]
    disturbed = new_table({"disturbed": [loop.disturbed for loop in loops]})
    return finish(fig, len(levels) + 1, notes, disturbed)


_Overlaps: TypeAlias = tuple[Sequence[LoopTime], dict[str, Ecm], list[str]]
"""Loops, models by the labels of their hypotheses, and notes on their bandwidths."""


def _fitted(records: Records) -> _Overlaps:
    """Return the models with bandwidths that are fitted for each hypothesis."""
    loops, clock_GHz = loop_times(_results(records))
    best = fit_ecm(loops, clock_GHz)
    levels = best.model.names
    every = hypotheses(levels)
    fitted = [row.loop for row in best.rows if row.fitted and not row.loop.disturbed]
    ranked = {how: every[name] for how, name in zip(_RANKS, best.errors, strict=False)}
    models = {
        label: Ecm(fit_levels(fitted, levels, overlap)[0], overlap, clock_GHz)
        for label, overlap in _labelled(levels, ranked).items()
    }
    notes = [f"Bandwidths are fitted to {', '.join(FITTED)} for each hypothesis."]
    return [row.loop for row in best.rows], models, notes


def _by_file(records: Records, source: MachineFile) -> _Overlaps:
    """Return the models with the bandwidths of a machine file."""
    model = source.model_of()
    own = {} if records is None else {"machine file": model.overlap}
    labelled = _labelled(model.names, own)
    models = {label: source.model_of(overlap) for label, overlap in labelled.items()}
    if records is None:
        note = f"Measured loops and bandwidths: {source.name}, {PAPERS['alappat2021'].source}."
        return _published_loops(), models, [note]
    loops, _ = loop_times(_results(records))
    slowest_first = sorted(loops, key=lambda one: (one.disturbed, one.cycles), reverse=True)
    best = {(loop.kernel, loop.level): loop for loop in slowest_first}
    return (
        [best[key] for key in sorted(best)],
        models,
        [
            f"Bandwidths: {source.label}.",
            *others_note(source, records),
        ],
    )


def _published_loops() -> list[LoopTime]:
    """Return the fitted loops as measured on the A64FX, with data in each level."""
    from memkern import reference

    levels = {"L1": "meas_l1", "L2": "meas_l2", "memory": "meas_mem"}
    return [
        LoopTime(row["kernel"], level, _VECTORS[row["kernel"]].transfers(list(levels)), row[name])
        for row in reference.rows("alappat2021-kernels")
        for level, name in levels.items()
        if row["kernel"] in _VECTORS
    ]


def _labelled(levels: Sequence[str], others: Mapping[str, Overlap]) -> dict[str, Overlap]:
    """Return the hypotheses of the paper and others by their labels."""
    found = {}
    for letter, overlap in paper_hypotheses(levels).items():
        same = [how for how, other in others.items() if other == overlap]
        found[", ".join((f"({letter})", *same))] = overlap
    return found | {how: other for how, other in others.items() if other not in found.values()}


def _stacks(ax: Axes, loop: LoopTime, models: Mapping[str, Ecm]) -> None:
    """Draw the measurement of a loop, and below it the terms by hypothesis."""
    names = next(iter(models.values())).names
    colours = {level: marked_look(number).color for number, level in enumerate(names)}
    ax.barh(0, loop.cycles, color=GREY, height=0.7, label="measured")
    for level in names[: names.index(loop.level) + 1]:
        # The legend has the levels in order.
        ax.barh(0, 0, color=colours[level], label=level)
    look: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.5, "height": 0.7}
    for position, model in enumerate(models.values(), start=1):
        left = 0.0
        terms = model.predict(loop.transfers, at=loop.level).terms
        for term, cycles in model.overlap.longest(terms):
            if cycles:
                ax.barh(position, cycles, left=left, color=colours[term.partition(" ")[0]], **look)
                left += cycles
    ax.set_yticks(range(len(models) + 1), ["measured", *models])
    ax.set(ylim=(len(models) + 0.5, -0.5), title=loop.kernel, xlabel="Cycles per vector")
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")


# Roofline


@tabulated(
    "roofline",
    "A row for each record: kernel, name, threads, variant, footprint_B, time_min_s, "
    "time_median_s, machine_file, bound (a level or ``core``), roofline_s, roofline_GFLOPs, "
    "roofline_fraction (roofline_s over median time), roofline_min_fraction (over the shortest), "
    "flops_per_B (at the bound, NaN without flops), performance_GFLOPs, disturbed.",
    records="Own records with bytes of each level",
    lack="the machine file is missing or of another machine, or no record has bytes of each level",
)
def roofline_table(records: Records = None, machine: str = "") -> DataFrame:
    """Roofline of every level for each record: limit, bound, and the share reached.

    Parameters
    ----------
    machine : str
        Machine file with the ceilings.
    """
    source = _source(machine, records)
    rows = []
    for record in _results(records):
        if str(record.get("valid")) == "False" or not transfers_of(record):
            continue
        try:
            found = roofline(source, record)
        except InputError:
            # Its traffic is unknown.
            continue
        flops = (record.get("performance_GFLOPs") or math.nan) * 1e9 * record["time_min_s"]
        moved = transfers_of(record)
        level = found.bound if found.bound in moved else list(found.levels_s)[-1]
        rows.append(
            {
                **{
                    name: record.get(name)
                    for name in ("kernel", "name", "threads", "variant", "footprint_B")
                },
                "time_min_s": record["time_min_s"],
                "time_median_s": record["time_median_s"],
                **roofline_columns(record, found, source.label),
                "flops_per_B": flops / sum(moved[level]) if sum(moved[level]) else math.nan,
                "performance_GFLOPs": flops / record["time_min_s"] / 1e9,
                "disturbed": str(record.get("disturbed")) == "True",
            }
        )
    return table_of(
        rows,
        "no record has the bytes of each level (columns such as L1_load_B): measure kernels "
        "that stream or gather on processors, such as stream.triad",
    )


def _source(machine: str, records: Records) -> MachineFile:
    found = machine_for(machine, records, ecm=False)
    if found is None:
        raise InputError("the roofline needs a machine file: machine=host.json")
    return found


def _named_lines(tops: Mapping[str, Ceiling]) -> list[tuple[str, float]]:
    """Return names of lines and their lowest bandwidths; lines close together share a name."""
    found: list[tuple[list[str], float]] = []
    for level, top in sorted(tops.items(), key=lambda pair: -pair[1].load_GBps):
        name = f"{level} {top.load_GBps:.3g}"
        together = found and found[-1][1] < _NEAR * top.load_GBps
        names = [*found.pop()[0], name] if together else [name]
        found.append((names, top.load_GBps))
    return [(", ".join(names) + " GB/s", lowest) for names, lowest in found]


@drawn(
    "roofline",
    "A panel for each number of threads, 6.9 in wide, 3.35 in for one alone.",
    records="Own records with bytes of each level; those without flops are left out",
    lack="no record has flops",
)
def roofline_figure(records: Records = None, machine: str = "") -> Figure:
    """Roofline with the measured ceilings of every level: performance over intensity.

    Parameters
    ----------
    machine : str
        Machine file with the ceilings.
    """
    source = _source(machine, records)
    frame = roofline_table(records, machine)
    points = frame[np.isfinite(frame["performance_GFLOPs"]) & frame["flops_per_B"].gt(0)]
    need_rows(points, "no record with bytes of each level has floating-point operations")
    counts = sorted(set(points["threads"]))
    fig, axes = panels(len(counts), 2, 2.9)
    names, dots = list(dict.fromkeys(points["kernel"])), partial(_dots_alone, 3.6)
    for ax, threads in zip(axes, counts, strict=True):
        mine = points[points["threads"] == threads]
        low, high = mine["flops_per_B"].min() / 4, mine["flops_per_B"].max() * 4
        peak = peak_GFLOPs(source, int(threads))
        top, bottom = 0.0, mine["performance_GFLOPs"].min() / 6
        tops = ceilings(source, int(threads))
        for ceiling in tops.values():
            # By fmin, an unknown peak, NaN, is no limit.
            ends = np.array([low, max(low, np.fmin(high, peak / ceiling.load_GBps)), high])
            heights = np.fmin(ends * ceiling.load_GBps, peak)
            top = max(top, float(heights.max()))
            ax.plot(ends, heights, color=GREY, linewidth=0.9, zorder=2)
        for text, lowest in _named_lines(tops):
            # Below the line, where it enters the panel.
            position = max(low, 1.5 * bottom / lowest)
            ax.annotate(
                text,
                (position, position * lowest),
                xytext=(4, -2),
                textcoords="offset points",
                va="top",
                fontsize=NOTE_SIZE,
                color=GREY,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.2},
            )
        curves(ax, mine, "kernel", names, "flops_per_B", "performance_GFLOPs", dots)
        ax.set_xscale("log", base=2)
        ax.set(
            title=counted(int(threads), "thread"),
            xlabel="Flops per byte across the boundary that is the limit",
            yscale="log",
            xlim=(low, high),
            ylim=(bottom, top * 2),
        )
        log2_axis(ax.xaxis)
        counts_axis(ax.yaxis)
    axes[0].set_ylabel("Performance (GFLOP/s)")
    name = source.label if source.created else source.name
    notes = [f"Lines: bandwidth of loads and peak of multiply-adds, {name}, {source.source}."]
    return finish(fig, 4, [*notes, *others_note(source, records)], points)
