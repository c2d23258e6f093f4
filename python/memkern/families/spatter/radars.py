"""Radar charts of patterns over stride 1: one per platform, or one per pattern of an application.

The radars of a platform also have patterns that the user named. The radars of a pattern are figures
7 and 8 of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cos, degrees, pi, tau
from string import ascii_uppercase
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np

from memkern import reference
from memkern.checks import one_of
from memkern.families.spatter.data import (
    APPLICATIONS,
    GATHER,
    KERNELS,
    KINDS,
    OWN,
    SCATTER,
    STRIDE_1,
    application_patterns,
    compared,
    first_three,
    group_of,
    points_of,
)
from memkern.plots.kit import (
    BANDWIDTH,
    DOUBLE_IN,
    GREY,
    NOTE_SIZE,
    DataFrame,
    Figure,
    Records,
    disturbed_note,
    drawn,
    fraction,
    new_figure,
    new_table,
    note,
    note_lines,
    ordered,
    other_look,
    own_look,
    plain,
    rounded,
    split,
    tell_lacking,
    two_lines,
)

FLOOR, CAP = 1 / 256, 8.0
RINGS = (1 / 64, 1 / 8, 1.0, CAP)


def radius(ratio: Any) -> Any:
    """Return the distance from the centre: octaves above the lowest ratio, clipped to the scale."""
    return np.log2(np.clip(ratio, FLOOR, CAP) / FLOOR)


# Ends and colour of the lines of spokes, and the distance of their names, inside `arcs` or not.
_SPOKES = {
    True: ((1 / 64, 1), "#d0d0d0", 9.5),
    False: ((FLOOR, CAP), "#e3e3e3", 14.3),
}


class _Radar(NamedTuple):
    """A radar, or the key if it has no rows.

    The rows have the columns ratio, disturbed, own, series (label of a line or of bars), marker,
    and those of the spokes: angle, colour, and name in the key.
    """

    label: str
    title: str
    spokes: DataFrame
    rows: DataFrame
    lines: Sequence[str] = ()  # below it


def _grid(
    radars: Sequence[_Radar], notes: Sequence[str], told: Sequence[str], columns: int, arcs: bool
) -> Figure:
    """Draw rows of radars with titles, and room around each for the names of spokes.

    With `arcs`, spokes are in groups with a name, and the values of a series are joined by lines.
    """
    diameter = min(DOUBLE_IN / columns - 0.42, 1.6) if arcs else 0.94
    room, size = (0.06 + 0.12 * diameter, 8) if arcs else (0.02, 6)
    above, end = (0.0, 0.05) if arcs else (0.22, 0.08)
    lines = 2 + max(radar.title.count("\n") for radar in radars)
    down = room + 0.015 * size * lines + diameter
    rows = [radars[first : first + columns] for first in range(0, len(radars), columns)]
    below = [room + 0.105 * max(len(radar.lines) for radar in row) for row in rows]
    small_print = 0.1 * len(note_lines(DOUBLE_IN, notes)) + end
    height = above + len(rows) * down + sum(below) + small_print
    fig = new_figure(DOUBLE_IN, height, layout=None)
    for number, radar in enumerate(radars):
        row, column = divmod(number, columns)
        x = (column + 0.5) / columns
        y = height - above - (row + 1) * down - sum(below[:row])
        inside = diameter if arcs or len(radar.rows) else 0.6 * diameter
        _draw(_axes(fig, x * DOUBLE_IN, y + diameter / 2, inside, radar.label), radar, arcs)
        fig.text(
            x, (y + diameter + room + 0.04) / height, radar.title, ha="center", fontsize=size,
            fontweight="bold" if not arcs or radar.rows["own"].any() else "normal",
        )  # fmt: skip
        fig.text(
            x, (y - room) / height, "\n".join(radar.lines), ha="center", va="top", color=GREY,
            fontsize=NOTE_SIZE,
        )  # fmt: skip
    note(fig, notes)
    tell_lacking(fig, told)
    return fig


def _axes(fig: Figure, x: float, y: float, diameter: float, label: str) -> Any:
    """Add the axes of a radar with its centre at a position in inches, and draw its rings.

    The layout engine ignores the names around a radar.
    """
    across, up = fig.get_size_inches()
    box = (x - diameter / 2) / across, (y - diameter / 2) / up, diameter / across, diameter / up
    ax: Any = fig.add_axes(
        box, projection="polar", label=label,
        theta_offset=pi / 2, theta_direction=-1,  # clockwise from the top
    )  # fmt: skip
    ax.spines["polar"].set_visible(False)
    ax.set(xticks=[], yticks=[], ylim=(0, radius(CAP)))
    circle = np.linspace(0, tau, 181)
    for ring in RINGS:
        colour, width = ("black", 0.9) if ring == 1 else ("#d0d0d0", 0.5)
        ax.plot(circle, radius(np.full_like(circle, ring)), color=colour, linewidth=width,
                zorder=1.5, label="_ring")  # fmt: skip
    return ax


def _write(ax: Any, angle: float, r: float, text: str, **how: Any) -> None:
    """Write a text centred at a point of the radar."""
    ax.text(angle, float(r), text, ha="center", va="center", rotation_mode="anchor", **how)


def _draw(ax: Any, radar: _Radar, arcs: bool) -> None:
    """Draw the series of a radar, or the names of its spokes."""
    key = radar.rows.empty
    if arcs:
        _name_arcs(ax, radar.spokes, RINGS if key else RINGS[1:])
    ends, grey, outside = _SPOKES[arcs]
    for angle, name, colour in radar.spokes[["angle", "name", "colour"]].itertuples(index=False):
        if key or not arcs:
            ax.plot([angle, angle], radius(ends), color=grey, linewidth=0.5, label="_spoke")
        if key:
            turn = 90 - degrees(angle) + (180 if angle > pi else 0)
            _write(ax, angle, outside, name, fontsize=5.5, rotation=turn, color=colour)
    for series, rows in radar.rows.sort_values("angle").groupby("series"):
        _draw_series(ax, rows, str(series), arcs)


def _draw_series(ax: Any, rows: DataFrame, label: str, joined: bool) -> None:
    """Draw the values of a series, joined by a line or each with a bar.

    Markers of disturbed records are hollow, and values off the scale are crossed out.
    """
    first = rows.iloc[0]
    colour, own = first["colour"], int(first["own"])
    theta, r = rows["angle"], radius(rows["ratio"])
    width = 1.3 if own else 0.8
    if joined or not own:
        ax.fill([0, *theta], [0, *r], color=colour, alpha=0.2, linewidth=0, zorder=2)
    if not joined or len(rows) == 1:
        for angle, end in zip(theta, r, strict=True):
            ax.plot([angle, angle], [0, end], color=colour, linewidth=width, label="_bar")
    how: dict[str, Any] = {
        "marker": first["marker"],
        "markersize": 3.0 if own else 2.2,
        "color": colour,
        "clip_on": False,
        "linestyle": "none",
        "zorder": 4.0 + own,
    }
    line = {"color": "black" if own else colour, "linestyle": "-", "linewidth": width}
    face = {"markerfacecolor": colour, "markeredgecolor": colour}
    cross = {"marker": "x", "markersize": 3.5, "color": "black", "zorder": 6.0}
    for some, name, look in (
        (rows, label, line | face if joined else {}),
        (rows[rows["disturbed"]], "_disturbed", {"markerfacecolor": "white", "zorder": 5.1}),
        (_off(rows), "_off", cross),
    ):
        ax.plot(some["angle"], radius(some["ratio"]), label=name, **how | look)


def _off(rows: DataFrame) -> DataFrame:
    """Return the rows with values off the scale."""
    return rows[~rows["ratio"].between(FLOOR, CAP)]


def _texts(rows: DataFrame, between: str = " ") -> list[str]:
    """Return the values with the texts of the column what."""
    each = zip(rows["what"], rows["ratio"], strict=True)
    return [f"{what}{between}{ratio:.2g}" for what, ratio in each]


# ------------------------------------------------------------------------------ one per platform

_BY_APPLICATION = {
    **dict(zip(APPLICATIONS, (other_look(i).color for i in (1, 0, 2, 3)), strict=True)),
    OWN: own_look(1).color,
}
_MOST_NAMED = 12
"""Most patterns that the user named in a radar."""
_KEY = (
    "from the centre: bandwidth over",
    "stride 1 of its kernel (log. scale)",
    "● gather, ▲ scatter",
)
_MARKERS = {GATHER: "o", SCATTER: "^"}


def _plain_name(pattern: str) -> str:
    """Return the name of a pattern as text: that of the paper, or the user's."""
    return plain(pattern.partition(" ")[2], 18) if group_of(pattern) == OWN else pattern


def _spokes_of_patterns(patterns: Sequence[str], named: Sequence[str]) -> DataFrame:
    """Return case, group, colour, angle and name in the key of each pattern.

    They are clockwise from the top, with gaps between applications. The patterns that the user
    `named` have numbers.
    """
    spokes = new_table({"case": patterns})
    groups = spokes["case"].map(group_of)
    slots = 0.5 + spokes.index + groups.ne(groups.shift()).cumsum()
    return spokes.assign(
        group=groups,
        colour=groups.map(_BY_APPLICATION),
        angle=tau * slots / (slots.iloc[-1] + 1.5),
        name=[
            str(named.index(case) + 1) if case in named else case.partition("-")[2]
            for case in patterns
        ],
    )


def _name_arcs(ax: Any, spokes: DataFrame, rings_named: Sequence[float]) -> None:
    """Name the rings, and draw the named arcs of the applications."""
    for ring in rings_named:
        _write(
            ax, 0, radius(ring), fraction(ring), fontsize=5.5, zorder=9,
            color="black" if ring == 1 else GREY,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.3},
        )  # fmt: skip
    groups = spokes.groupby(["group", "colour"], sort=False)["angle"]
    half = tau / (len(spokes) + len(groups) + 1) / 2
    for (application, colour), angles in groups:
        first, last = angles.iloc[[0, -1]]
        arc = np.linspace(first - half, last + half, 60)
        ax.plot(
            arc, np.full_like(arc, radius(CAP) * 1.06), color=colour, linewidth=2.2,
            solid_capstyle="butt", clip_on=False, label="_arc",
        )  # fmt: skip
        middle = (first + last) / 2
        turn = -degrees(middle) + (0 if cos(middle) >= -0.01 else 180)
        _write(
            ax, middle, radius(CAP) * 1.2, str(application), rotation=turn, color=colour,
            fontsize=6, fontweight="bold",
        )  # fmt: skip


def _small_print(base: Mapping[str, float], rows: DataFrame) -> list[str]:
    """Return lines with the stride-1 bandwidths, the user's patterns, and what is off the scale."""
    gather, scatter = (rounded(base[name]) if name in base else "-" for name in KERNELS)
    lines = [f"stride 1: gather {gather},", f"scatter {scatter} GB/s"]
    own, off = rows[rows["group"] == OWN], _texts(_off(rows))
    if len(own):
        mine = map(" ".join, zip(own["name"], _texts(own, ": "), strict=True))
        lines += wrap(f"{OWN} {', '.join(mine)}", 36)
    if off:
        named = ", ".join(off) if len(off) < 3 else f"{off[0]} and {len(off) - 1} more"
        lines += wrap(f"✕ off the scale: {named}", 36)
    return lines


def _pages(points: DataFrame, wanted: Sequence[str]) -> list[list[str]]:
    """Return the patterns of each page of radars: all, or those of the wanted names.

    The first page has those of applications, and each at most `_MOST_NAMED` that the user named.
    """
    own = [case for case in dict.fromkeys(points["case"]) if group_of(case) == OWN]
    names = {case: case.partition(" ")[2] or case for case in (*application_patterns(), *own)}
    for name in wanted:
        one_of(name, "pattern", names.values())
    shown = [case for case, name in names.items() if not wanted or name in wanted]
    end = sum(group_of(case) != OWN for case in shown) + _MOST_NAMED
    others = range(end, len(shown), _MOST_NAMED)
    return [shown[:end], *(shown[first : first + _MOST_NAMED] for first in others)]


def _radars_of_platforms(records: Records, kind: str, patterns: str | Sequence[str]) -> Figure:
    points, notes = points_of(records, kind, named=True)
    pages = _pages(points, split(patterns))
    every = [pattern for page in pages for pattern in page]
    named = [pattern for pattern in every if group_of(pattern) == OWN]
    rows, remarks, told = compared(
        records, points, f"patterns and of stride 1 on {KINDS[kind]}", every
    )
    rows = ordered(rows, "platform", rows["platform"].unique()).assign(
        series=rows["case"].map(group_of) + " " + rows["kernel"].map(KERNELS),
        marker=rows["kernel"].map(_MARKERS),
        what=rows["case"].map(_plain_name),
    )
    bases = points[points["case"].eq(STRIDE_1)].set_index(["platform", "kernel"])[BANDWIDTH]
    radars = []
    for page in pages:
        spokes = _spokes_of_patterns(page, named)
        shown = rows.join(spokes.set_index("case"), on="case", how="inner").sort_values("angle")
        for platform, mine in shown.groupby("platform", observed=True):
            title, lines = two_lines(mine["label"].iloc[0]), _small_print(bases[platform], mine)
            radars.append(_Radar(str(platform), title, spokes, mine, lines))
        radars.append(_Radar("key", "Key", spokes, shown.iloc[:0], _KEY))
    columns = min(4 if len(radars) > 6 else 3, len(radars))
    return _grid(radars, [*notes, *remarks, *disturbed_note(rows)], told, columns, arcs=True)


@drawn(
    "spatter-radars-cpu",
    "A grid of radars, 6.9 in wide, the own machine first.",
    records="stride 1, of application patterns, and of other patterns with a name; the highest "
    "bandwidths are drawn",
    lack="a name is no pattern of table 5 and of no record",
    optional=True,
)
def radars_cpu(records: Records = None, patterns: str | Sequence[str] = "") -> Figure:
    """Application patterns relative to stride 1 on CPUs, one radar per platform.

    Each of the 34 spokes is a pattern of table 5 of the paper; its distance from the centre is the
    bandwidth of the pattern over the stride-1 bandwidth of the same kernel on the same platform,
    on a logarithmic scale from 1/256 to 8, with a black ring at 1. Values outside the scale are
    drawn at its end and printed below the radar. Own patterns that have a name (the option
    ``name``, or ``name`` in a file of Spatter) have further spokes with numbers in the key, and
    with their names and values below the radar. With more than 12 of them, a platform has several
    radars.

    Parameters
    ----------
    patterns : str or sequence of str
        Names of patterns of table 5 and own names, with commas between; by default all.
    """
    return _radars_of_platforms(records, "cpu", patterns)


@drawn(
    "spatter-radars-gpu",
    "A grid of radars, 6.9 in wide, the own machine first.",
    records="Own records",
    lack="a name is no pattern of table 5 and of no record",
    optional=True,
)
def radars_gpu(records: Records = None, patterns: str | Sequence[str] = "") -> Figure:
    """Application patterns relative to stride 1 on GPUs, one radar per platform.

    As `radars_cpu`, for the own records of the backend cuda and the four published GPUs, where 16
    consecutive instances of a pattern were merged into one of 256 indices.

    Parameters
    ----------
    patterns
        As for `radars_cpu`.
    """
    return _radars_of_platforms(records, "gpu", patterns)


# ------------------------------------------------------------------------------- one per pattern

_BY_KIND = {"cpu": "#0072b2", "gpu": "#009e73"}
_SCALE = (
    "Distance from the centre: bandwidth over that of stride 1, rings at 1/64, 1/8, 1 (black) and "
    "8. Blue: published CPUs, green: published GPUs, black: own."
)


def _spokes_of_platforms(rows: DataFrame) -> DataFrame:
    """Return own, colour, angle and name in the key of each platform, by platform.

    CPUs are before GPUs, and own platforms are the first of each.
    """
    short = {row["platform"]: row["abbreviation"] for row in reference.rows("lavin2020-platforms")}
    letters = iter(ascii_uppercase)
    spokes = rows.drop_duplicates("platform").set_index("platform")
    spokes = spokes.sort_values(["kind", "own"], ascending=[True, False], kind="stable")
    slots = np.arange(len(spokes)) + 0.5 * spokes["kind"].eq("gpu")  # a gap before the GPUs
    return spokes.assign(
        colour=spokes["kind"].map(_BY_KIND).mask(spokes["own"], "black"),
        angle=tau * slots / (len(spokes) + 1),
        name=[
            next(letters, "+") if own else short[platform]
            for platform, own in spokes["own"].items()
        ],
    )[["own", "colour", "angle", "name"]]


def _radars_of_patterns(records: Records, kernel: str) -> Figure:
    points, notes = points_of(records)
    rows, remarks, told = compared(records, points, "application patterns and of stride 1")
    spokes = _spokes_of_platforms(rows)
    patterns = [
        row["pattern"] for row in reference.rows("lavin2020-patterns") if row["kernel"] == kernel
    ]
    rows = rows.assign(
        series=rows["own"].map({True: "own ", False: "published "}) + rows["kind"],
        marker="o",
        what=rows["case"] + " on " + rows["platform"].map(plain),
    )
    rows = ordered(rows[rows["kernel"] == kernel], "case", patterns)
    rows = rows.sort_values("case", kind="stable").join(spokes[["colour", "angle"]], on="platform")
    outside = _texts(_off(rows))
    notes += [
        *remarks,
        *disturbed_note(rows),
        _SCALE,
        *(f"{name}: {plain(own)}." for own, name in spokes.loc[spokes["own"], "name"].items()),
        *[f"✕ off the scale: {first_three(outside)}."] * bool(outside),
    ]
    radars = [_Radar("key", "", spokes, rows.iloc[:0])]
    for pattern in patterns:
        radars.append(_Radar(pattern, pattern, spokes, rows[rows["case"] == pattern]))
    return _grid(radars, notes, told, columns=6, arcs=False)


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
    return _radars_of_patterns(records, GATHER)


@drawn("spatter-fig8", "A row of radars, 6.9 in wide.", number="figure 8", **_ABOUT)
def scatter_radars(records: Records = None) -> Figure:
    """Scatters of applications relative to stride 1, one radar per pattern, a spoke per platform.

    As `gather_radars`, for the scatters.
    """
    return _radars_of_patterns(records, SCATTER)
