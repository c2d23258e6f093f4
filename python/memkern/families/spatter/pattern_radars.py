"""Radar charts of the application patterns, one per pattern (figures 7 and 8 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, product
from math import degrees, pi, tau
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, NamedTuple

from memkern.families.spatter.data import (
    GATHER,
    SCATTER,
    bandwidths,
    incomplete,
    platforms_of,
    points_of,
    relative,
    remarks,
)
from memkern.families.spatter.radar import CAP, FLOOR, draw_rings, radius, write
from memkern.plots.exhibits import drawn
from memkern.plots.frames import Records
from memkern.plots.style import (
    DOUBLE_IN,
    new_figure,
    note,
    note_lines,
    plain,
    tell_lacking,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_COLOURS = {"cpu": "#0072b2", "gpu": "#009e73"}
_SCALE = (
    "Distance from the centre: bandwidth over that of stride 1, rings at 1/64, 1/8, 1 (black) and "
    "8. Blue: published CPUs, green: published GPUs, black: own."
)
_COLUMNS = 6
_RADAR_IN, _TITLE_IN = 0.94, 0.22


class _Spoke(NamedTuple):
    platform: str
    name: str  # in the key
    kind: str
    own: bool
    angle: float


def _spokes(points: DataFrame) -> list[_Spoke]:
    """Return a spoke for each platform, CPUs before GPUs and own ones first."""
    from memkern import reference

    short = {row["platform"]: row["abbreviation"] for row in reference.rows("lavin2020-platforms")}
    letters = iter(ascii_uppercase)
    kinds = dict(zip(points["platform"], points["kind"], strict=True))
    found = sorted(platforms_of(points).items(), key=lambda one: (kinds[one[0]], not one[1]))
    spokes = []
    for number, (platform, own) in enumerate(found):
        kind = str(kinds[platform])
        slot = number + 0.5 * (kind == "gpu")  # a gap between the CPUs and the GPUs
        name = next(letters, "+") if own else short[platform]
        spokes.append(_Spoke(platform, name, kind, own, tau * slot / (len(found) + 1)))
    return spokes


def _frame(ax: Any, spokes: Sequence[_Spoke]) -> None:
    """Draw the rings and the spokes."""
    draw_rings(ax)
    for spoke in spokes:
        ends = [spoke.angle, spoke.angle], [0, radius(CAP)]
        ax.plot(*ends, color="#e3e3e3", linewidth=0.5, label="_spoke")


def _draw(
    ax: Any, spokes: Sequence[_Spoke], ratios: Mapping[str, float], disturbed: frozenset[str]
) -> None:
    """Draw the bandwidth of one pattern over stride 1 of each platform."""
    import numpy as np

    for kind, own in product(_COLOURS, (False, True)):
        mine = [s for s in spokes if (s.kind, s.own) == (kind, own) and s.platform in ratios]
        if not mine:
            continue
        theta = np.array([spoke.angle for spoke in mine])
        values = np.array([ratios[spoke.platform] for spoke in mine])
        r = radius(values)
        colour = "black" if own else _COLOURS[kind]
        if not own:
            ax.fill([0, *theta], [0, *r], color=colour, alpha=0.2, linewidth=0, zorder=2)
        for angle, end in zip(theta, r, strict=True):
            ax.plot([angle, angle], [0, end], color=colour, linewidth=0.8 + 0.5 * own,
                    zorder=3 + own, label="_bar")  # fmt: skip
        how: dict[str, Any] = {
            "marker": "o",
            "linestyle": "none",
            "clip_on": False,
            "color": colour,
        }
        how |= {"markersize": 3.0 if own else 2.2, "zorder": 4.0 + own}
        ax.plot(theta, r, label=f"{'own' if own else 'published'} {kind}", **how)
        hollow = np.array([spoke.platform in disturbed for spoke in mine])
        face = {"markerfacecolor": "white", "zorder": 5.1}
        ax.plot(theta[hollow], r[hollow], label="_disturbed", **how | face)
        off = (values < FLOOR) | (values > CAP)
        cross = {"marker": "x", "markersize": 3.5, "color": "black", "zorder": 6}
        ax.plot(theta[off], r[off], label="_off", **how | cross)


def _draw_key(ax: Any, spokes: Sequence[_Spoke]) -> None:
    """Draw the key: the name of every spoke."""
    for _, name, kind, own, angle in spokes:
        turn = 90 - degrees(angle) + (180 if angle > pi else 0)
        colour = "black" if own else _COLOURS[kind]
        write(ax, angle, 1.3 * radius(CAP), name, fontsize=5.5, color=colour, rotation=turn)


def _radars(records: Records, kernel: str) -> Figure:
    from memkern import reference

    points, notes = points_of(records)
    left_out, told = incomplete(points)
    notes += left_out
    values = bandwidths(points)
    ratios = {platform: ratio for platform in values if (ratio := relative(values[platform]))}
    points = points[points["platform"].isin(ratios)]
    patterns = [
        row["pattern"] for row in reference.rows("lavin2020-patterns") if row["kernel"] == kernel
    ]
    applications = points[points["case"].isin(patterns)]
    notes += remarks(records, applications, "application patterns and of stride 1")
    spokes = _spokes(points)
    notes.append(_SCALE)
    notes += [f"{spoke.name}: {plain(spoke.platform)}." for spoke in spokes if spoke.own]
    outside = [
        f"{pattern} on {plain(platform)} {value:.2g}"
        for pattern in patterns
        for platform, ratio in ratios.items()
        if not FLOOR <= (value := ratio.get(pattern, 1.0)) <= CAP
    ]
    if outside:
        more = f" and {len(outside) - 3} more" * (len(outside) > 3)
        notes.append(f"✕ off the scale: {', '.join(islice(outside, 3))}{more}.")

    # Explicit positions in inches, since the layout engine ignores the names around a radar.
    cells = ["", *patterns]
    rows = -(-len(cells) // _COLUMNS)
    across, down = DOUBLE_IN / _COLUMNS, _RADAR_IN + _TITLE_IN
    below = 0.1 * (len(note_lines(DOUBLE_IN, notes)) + 1)
    above = 0.2  # for the names of the key
    height = rows * down + above + below
    fig = new_figure(DOUBLE_IN, height, layout=None)
    tell_lacking(fig, told)
    for number, pattern in enumerate(cells):
        row, column = divmod(number, _COLUMNS)
        x, y = (column + 0.5) * across, height - above - (row + 1) * down
        across_in = _RADAR_IN if pattern else 0.6 * _RADAR_IN
        middle = y + _RADAR_IN / 2
        box = (x - across_in / 2) / DOUBLE_IN, (middle - across_in / 2) / height
        size = across_in / DOUBLE_IN, across_in / height
        ax = fig.add_axes((*box, *size), projection="polar", label=pattern or "key")
        _frame(ax, spokes)
        if pattern:
            case = applications[applications["case"] == pattern]
            mine = {name: ratio[pattern] for name, ratio in ratios.items() if pattern in ratio}
            _draw(ax, spokes, mine, frozenset(case[case["disturbed"]]["platform"]))
            top = (y + _RADAR_IN + 0.06) / height  # above the markers beyond the rings
            fig.text(x / DOUBLE_IN, top, pattern, ha="center", fontsize=6, fontweight="bold")
        else:
            _draw_key(ax, spokes)
    note(fig, notes)
    return fig


_ABOUT: dict[str, Any] = {
    "paper": "lavin2020",
    "records": "application patterns and of stride 1; the highest bandwidths are drawn",
    "optional": True,
}


@drawn("spatter-fig7", "A grid of radars, 6.9 in wide.", number="figure 7", **_ABOUT)
def gather_radars(records: Records = None) -> Figure:
    """Gathers of applications relative to stride 1, one radar per pattern, a spoke per platform.

    The radars are in the order of table 5 of the paper, CPUs blue, GPUs green, own platforms black.
    The distance from the centre is the bandwidth over the stride-1 bandwidth of the same kernel on
    the same platform, on a logarithmic scale from 1/256 to 8, with a black ring at 1. Values
    outside the scale are drawn at its end.
    """
    return _radars(records, GATHER)


@drawn("spatter-fig8", "A row of radars, 6.9 in wide.", number="figure 8", **_ABOUT)
def scatter_radars(records: Records = None) -> Figure:
    """Scatters of applications relative to stride 1, one radar per pattern, a spoke per platform.

    As `gather_radars`, for the scatters.
    """
    return _radars(records, SCATTER)
