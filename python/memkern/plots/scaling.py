"""The figure and the table of speed-up and efficiency over ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from memkern.backends import LIBRARIES
from memkern.plots.kit import (
    GREY,
    HIGH,
    LOW,
    MOST_LINES,
    Axes,
    DataFrame,
    Figure,
    Look,
    Records,
    counted,
    counted_axis,
    curve,
    drawn,
    finish,
    first_of,
    intervals,
    log2_axis,
    marked_look,
    need_rows,
    panels,
    plain,
    rows_of,
    tabulated,
)
from memkern.results.scaling import efficiencies

_PANEL = ["machine", "scaling", "bind", "comm", "threads"]
_QUANTITIES = {"speed_up": "Speed-up", "efficiency": "Efficiency (%)"}
# Factor between the extreme values or ideal scaling and the ends of an axis of speed-ups.
_MARGIN = 1.5
_CUT = "_cut"
# Matplotlib's numbers of the markers whose tip is at the point.
_UP, _DOWN = 6, 7
_BOUND = {"node": "one rank a node", "socket": "one rank a socket", "core": "bound to cores"}


@tabulated(
    "scaling",
    "As of `memkern.efficiencies`.",
    records="``memkern scaling``",
)
def efficiency_table(records: Records = None) -> DataFrame:
    """Speed-up and efficiency of each case over numbers of ranks, with intervals."""
    return efficiencies(rows_of(records))


@drawn(
    "scaling",
    "Two panels for each machine, mode of scaling, binding, library and number of threads, 6.9 in "
    "wide.",
    records="``memkern scaling``. Those with more workers than processing units on a host are "
    "left out",
    lack="there is no such record, or no case with two numbers of ranks",
)
def scaling_curves(records: Records = None) -> Figure:
    """Speed-up and efficiency of each case over numbers of ranks, beside ideal scaling."""
    frame, notes = _drawable(efficiency_table(records))
    frame = frame.assign(case=_names(frame))
    cases = list(dict.fromkeys(frame["case"]))
    if len(cases) > MOST_LINES:
        notes.append(f"{counted(len(cases) - MOST_LINES, 'further case')} left out.")
        cases = cases[:MOST_LINES]
        frame = frame[frame["case"].isin(cases)]
    first, left = first_of(frame, [*_PANEL, "case", "ranks"])
    notes += left
    groups = [rows for _, rows in first.groupby(_PANEL, sort=False)]
    fig, axes = panels(2 * len(groups), 2, 2.4)
    several = first["machine"].nunique() > 1
    for number, ax in enumerate(axes):
        rows, value = groups[number // 2], list(_QUANTITIES)[number % 2]
        _panel(ax, rows, value, cases)
        if number % 2 == 0:
            # The title may extend over both panels.
            ax.set_title(_title(rows.iloc[0], several), loc="left")
    notes.append("Bars: 95 % intervals over the turns.")
    if any(line.get_label() == _CUT for ax in axes for line in ax.lines):
        notes.append("Arrowheads: the interval extends beyond the axis.")
    return finish(fig, 3, notes, first)


def _drawable(frame: DataFrame) -> tuple[DataFrame, list[str]]:
    """Return the rows of `memkern.efficiencies` that show scaling, and notes on the others.

    Raises
    ------
    InputError
        No case has two numbers of ranks that are not oversubscribed.
    """
    over = frame["oversubscribed"].astype(bool)
    left = counted(int(over.sum()), "point")
    notes = [f"{left} with more workers than processing units on a host left out."] * bool(
        over.any()
    )
    frame = frame[~over]
    case = [*_PANEL, "kernel", "size"]
    frame = frame[frame.groupby(case, dropna=False)["ranks"].transform("nunique") > 1]
    need_rows(
        frame,
        "no case was measured by two numbers of ranks with a processing unit for each worker: "
        "`memkern scaling --ranks 1,2` does so where there are two",
    )
    return frame, notes


def _names(frame: DataFrame) -> list[str]:
    """Return the name of each row's case, with its size if a kernel has several."""
    sizes = frame.groupby("kernel")["size"].transform("nunique")
    return [
        plain(kernel, 44) + (f", {size}" if number > 1 else "")
        for kernel, size, number in zip(frame["kernel"], frame["size"], sizes, strict=True)
    ]


def _title(row: Any, several: bool) -> str:
    """Return the common properties of the cases in a row of panels."""
    words = [
        f"{row['scaling'].capitalize()} scaling",
        f"{counted(int(row['threads']), 'thread')} per rank",
        _BOUND.get(row["bind"], ""),
        dict([*LIBRARIES.items()][1:]).get(row["comm"], ""),  # the first one is usual
        plain(row["machine"], 20) if several else "",
    ]
    return ", ".join(filter(None, words))


def _panel(ax: Axes, rows: DataFrame, value: str, cases: list[str]) -> None:
    """Draw a quantity of all cases over the number of ranks, and ideal scaling."""
    speed = value == "speed_up"
    ends = ("low", "high") if speed else ("efficiency_low", "efficiency_high")
    low, high = _limits(rows, value)
    for number, case in enumerate(cases):
        mine = rows[rows["case"] == case]
        if len(mine):
            look = marked_look(number)
            bars = mine.assign(**dict(zip((LOW, HIGH), (mine[end] for end in ends), strict=True)))
            intervals(ax, bars, "ranks", value, look, "_spread", case)
            _cut(ax, mine, value, ends, (low, high), look)
            curve(ax, mine, "ranks", value, look, case)
    for few in sorted(set(rows.groupby("case")["ranks"].transform("min"))):
        ranks = np.array([few, rows["ranks"].max()])
        ideal = ranks / few if speed else np.full(2, 100.0)
        ax.plot(ranks, ideal, color=GREY, linewidth=0.7, label="ideal", zorder=2)
    counted_axis(ax, rows["ranks"])
    ax.set(xlabel="Ranks", ylabel=_QUANTITIES[value])
    if speed:
        ax.set_yscale("log", base=2)
        log2_axis(ax.yaxis)
    ax.set_ylim(low, high)


def _limits(rows: DataFrame, value: str) -> tuple[float, float]:
    """Return the ends of a quantity's axis, from the values and ideal scaling.

    Intervals are ignored: with few turns, one may be hundreds of times wider than this range.
    """
    if value == "efficiency":
        return 0.0, 1.1 * max(100.0, rows[value].max())
    ranks = rows["ranks"].max() / rows["ranks"].min()
    return min(1.0, rows[value].min()) / _MARGIN, max(ranks, rows[value].max()) * _MARGIN


def _cut(
    ax: Axes,
    rows: DataFrame,
    value: str,
    ends: tuple[str, str],
    limits: tuple[float, float],
    look: Look,
) -> None:
    """Draw arrowheads where intervals exceed the ends of the axis."""
    (low, high), (bottom, top) = ends, limits
    for beyond, at, head in ((rows[low] < bottom, bottom, _DOWN), (rows[high] > top, top, _UP)):
        where = rows["ranks"][beyond]
        if len(where):
            ax.plot(
                where,
                [at] * len(where),
                color=look.color,
                linestyle="none",
                marker=head,
                markersize=4,
                zorder=look.zorder,
                label=_CUT,
            )
