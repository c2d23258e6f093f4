"""The figure and the table of speed-up and efficiency over ranks."""

from __future__ import annotations

from typing import Any

from memkern.backends import LIBRARIES
from memkern.plots.kit import (
    GREY,
    HIGH,
    LOW,
    MOST_LINES,
    QUANTITY,
    Axes,
    Axis,
    Curves,
    DataFrame,
    Look,
    Measured,
    OfEach,
    Panel,
    Records,
    Selection,
    concat,
    count_scale,
    counted,
    distinct,
    first_of,
    log2_axis,
    plain,
    rows_of,
    tabulated,
)
from memkern.results.scaling import efficiencies

_PANEL = ["machine", "scaling", "bind", "comm", "threads"]
# Factor between the extreme values or ideal scaling and the ends of an axis of speed-ups.
_MARGIN = 1.5
_CUT = "interval beyond the axis"
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


def _title(rows: DataFrame, several: bool) -> str:
    """Return the common properties of the cases in a row of panels, at the left one."""
    row = rows.iloc[0]
    words = [
        f"{row['scaling'].capitalize()} scaling",
        f"{counted(int(row['threads']), 'thread')} per rank",
        _BOUND.get(row["bind"], ""),
        dict([*LIBRARIES.items()][1:]).get(row["comm"], ""),  # the first one is usual
        plain(row["machine"], 20) if several else "",
    ]
    return ", ".join(filter(None, words)) if row[QUANTITY] == "speed_up" else ""


def _ideal(panel: Panel) -> None:
    """Draw ideal scaling from the fewest ranks of each case."""
    most = panel.rows["ranks"].max()
    for few in sorted(set(panel.rows.groupby("case")["ranks"].transform("min"))):
        ends = [1.0, most / few] if panel.y == "speed_up" else [100.0, 100.0]
        panel.ax.plot([few, most], ends, color=GREY, linewidth=0.7, label="ideal", zorder=2)


class _Cut(OfEach):
    """Arrowheads where intervals exceed the ends of the axis."""

    def draw(self, panel: Panel, rows: DataFrame, look: Look, name: str) -> None:
        """Draw those of a case."""
        how: dict[str, Any] = {"color": look.color, "zorder": look.zorder, "label": _CUT}
        bottom, top = _limits(panel.rows, panel.y)
        for beyond, at, head in ((rows[LOW] < bottom, bottom, _DOWN), (rows[HIGH] > top, top, _UP)):
            where = rows["ranks"][beyond]
            if len(where):
                panel.ax.plot(where, [at] * len(where), marker=head, markersize=4, ls="", **how)


def _scale(ax: Axes, rows: DataFrame, frame: DataFrame, column: str) -> None:
    """Scale the axis of a quantity."""
    if column == "speed_up":
        ax.set_yscale("log", base=2)
        log2_axis(ax.yaxis)
    ax.set_ylim(_limits(rows, column))


def _limits(rows: DataFrame, value: str) -> tuple[float, float]:
    """Return the ends of a quantity's axis, from the values and ideal scaling.

    Intervals are ignored: with few turns, one may be hundreds of times wider than this range.
    """
    if value == "efficiency":
        return 0.0, 1.1 * max(100.0, rows[value].max())
    ranks = rows["ranks"].max() / rows["ranks"].min()
    return min(1.0, rows[value].min()) / _MARGIN, max(ranks, rows[value].max()) * _MARGIN


@Curves(
    name="scaling",
    x=Axis("ranks", "Ranks", count_scale),
    y={
        "speed_up": Axis("speed_up", "Speed-up", _scale),
        "efficiency": Axis("efficiency", "Efficiency (%)", _scale),
    },
    layers=(_Cut("case"), Measured("case"), _ideal),
    panels=(*_PANEL, QUANTITY),
    height=2.4,
    title=_title,
    # It may extend over both panels.
    beside="left",
    legend=3,
    returns="Two panels for each machine, mode of scaling, binding, library and number of threads, "
    "6.9 in wide.",
    records="``memkern scaling``. Those with more workers than processing units on a host are "
    "left out",
    lack="no case was measured by two numbers of ranks with a processing unit for each worker",
    measure="memkern scaling --ranks 1,2",
)
def scaling_curves(records: Records = None) -> Selection:
    """Speed-up and efficiency of each case over numbers of ranks, beside ideal scaling."""
    frame = efficiency_table(records)
    over = frame["oversubscribed"].astype(bool)
    left_out = counted(int(over.sum()), "point")
    notes = [f"{left_out} with more workers than processing units on a host left out."] * bool(
        over.any()
    )
    here = frame[~over].groupby([*_PANEL, "kernel", "size"], dropna=False)
    frame = frame[~over][here["ranks"].transform("nunique") > 1]
    frame = frame.assign(case=_names(frame))
    cases = distinct(frame["case"])
    if len(cases) > MOST_LINES:
        notes.append(f"{counted(len(cases) - MOST_LINES, 'further case')} left out.")
        frame = frame[frame["case"].isin(cases[:MOST_LINES])]
    first, left = first_of(frame, [*_PANEL, "case", "ranks"])
    efficiency = first.assign(low=first["efficiency_low"], high=first["efficiency_high"])
    both = concat([first.assign(quantity="speed_up"), efficiency.assign(quantity="efficiency")])
    notes += [*left, "Bars: 95 % intervals over the turns."]
    return both.rename(columns={"low": LOW, "high": HIGH}), notes


def _names(frame: DataFrame) -> list[str]:
    """Return the name of each row's case, with its size if a kernel has several."""
    sizes = frame.groupby("kernel")["size"].transform("nunique")
    return [
        plain(kernel, 44) + (f", {size}" if number > 1 else "")
        for kernel, size, number in zip(frame["kernel"], frame["size"], sizes, strict=True)
    ]
