"""Radar charts of patterns over stride 1: one per platform, or one per pattern of an application.

The radars of a platform also have patterns that the user named. The radars of a pattern are figures
7 and 8 of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import cos, degrees, pi, tau
from string import ascii_uppercase
from textwrap import wrap
from typing import Any, NamedTuple

from memkern import reference
from memkern.checks import unknown
from memkern.families.spatter.data import (
    APPLICATIONS,
    GATHER,
    KERNELS,
    KINDS,
    OWN,
    SCATTER,
    STRIDE_1,
    application_patterns,
    first_three,
    incomplete,
    labelled,
    over_stride_1,
    points_of,
    remarks,
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
    import numpy as np

    return np.log2(np.clip(ratio, FLOOR, CAP) / FLOOR)


class _Radar(NamedTuple):
    """A radar: the label of its axes, its title, what draws it, and the lines below it."""

    label: str
    title: str
    draw: Callable[[Any], None]
    lines: Sequence[str] = ()
    bold: bool = True
    share: float = 1.0  # of the diameter


def _grid(
    radars: Sequence[_Radar],
    notes: Sequence[str],
    columns: int,
    diameter: float,
    room: float,
    size: float,
    above: float = 0.0,
) -> Figure:
    """Draw rows of radars of a diameter in inches, with `room` around each for the names of spokes.

    The titles have the font size `size`; `above` is left free above all.
    """
    lines = 2 + max(radar.title.count("\n") for radar in radars)
    down = room + 0.015 * size * lines + diameter
    rows = [radars[first : first + columns] for first in range(0, len(radars), columns)]
    below = [room + 0.105 * max(len(radar.lines) for radar in row) for row in rows]
    small_print = 0.1 * (len(note_lines(DOUBLE_IN, notes)) + 0.5)
    height = above + len(rows) * down + sum(below) + small_print
    fig = new_figure(DOUBLE_IN, height, layout=None)
    for number, radar in enumerate(radars):
        row, column = divmod(number, columns)
        x = (column + 0.5) / columns
        y = height - above - (row + 1) * down - sum(below[:row])
        radar.draw(_axes(fig, x * DOUBLE_IN, y + diameter / 2, diameter * radar.share, radar.label))
        title = {"fontsize": size, "fontweight": "bold" if radar.bold else "normal"}
        fig.text(x, (y + diameter + room + 0.04) / height, radar.title, ha="center", **title)
        small = {"fontsize": NOTE_SIZE, "color": GREY, "va": "top"}
        fig.text(x, (y - room) / height, "\n".join(radar.lines), ha="center", **small)
    note(fig, notes)
    return fig


def _axes(fig: Figure, x: float, y: float, diameter: float, label: str) -> Any:
    """Add the axes of a radar with its centre at a position in inches, and draw its rings.

    The layout engine ignores the names around a radar.
    """
    import numpy as np

    across, up = fig.get_size_inches()
    corner = (x - diameter / 2) / across, (y - diameter / 2) / up
    box = *corner, diameter / across, diameter / up
    ax: Any = fig.add_axes(box, projection="polar", label=label)
    ax.set_theta_zero_location("N")
    ax.set_theta_direction(-1)
    ax.set_rlim(0, radius(CAP))
    ax.spines["polar"].set_visible(False)
    ax.set(xticks=[], yticks=[])
    circle = np.linspace(0, tau, 181)
    for ring in RINGS:
        colour, width = ("black", 0.9) if ring == 1 else ("#d0d0d0", 0.5)
        r = np.full_like(circle, radius(ring))
        ax.plot(circle, r, color=colour, linewidth=width, zorder=1.5, label="_ring")
    return ax


def _write(ax: Any, angle: float, r: float, text: str, **how: Any) -> None:
    """Write a text centred at a point of the radar."""
    ax.text(angle, float(r), text, ha="center", va="center", rotation_mode="anchor", **how)


def _name_spoke(ax: Any, angle: float, r: float, name: str, colour: str) -> None:
    """Write the name of a spoke along it."""
    turn = 90 - degrees(angle) + (180 if angle > pi else 0)
    _write(ax, angle, r, name, fontsize=5.5, rotation=turn, color=colour)


def _draw(ax: Any, rows: DataFrame, label: str, colour: str, marker: str, line: str = "") -> None:
    """Draw a series over its spokes: joined by a line of this colour, or each with a bar.

    Markers of disturbed records are hollow, and values off the scale are crossed out.
    """
    own = int(rows["own"].any())
    theta, r = rows["angle"], radius(rows["ratio"])
    if line or not own:
        ax.fill([0, *theta], [0, *r], color=colour, alpha=0.2, linewidth=0, zorder=2)
    width = 1.3 if own else 0.8
    if not line or len(rows) == 1:
        for angle, end in zip(theta, r, strict=True):
            ax.plot([angle, angle], [0, end], color=colour, linewidth=width, label="_bar")
    how: dict[str, Any] = {
        "marker": marker,
        "markersize": 3.0 if own else 2.2,
        "color": colour,
        "clip_on": False,
        "linestyle": "none",
        "zorder": 4.0 + own,
    }
    face = {"markerfacecolor": colour, "markeredgecolor": colour}
    joined = {"color": line, "linestyle": "-", "linewidth": width, **face} if line else {}
    cross = {"marker": "x", "markersize": 3.5, "color": "black", "zorder": 6.0}
    for some, name, look in (
        (rows, label, joined),
        (rows[rows["disturbed"]], "_disturbed", {"markerfacecolor": "white", "zorder": 5.1}),
        (rows[~rows["ratio"].between(FLOOR, CAP)], "_off", cross),
    ):
        ax.plot(some["angle"], radius(some["ratio"]), label=name, **how | look)


# ------------------------------------------------------------------------------ one per platform

_BY_APPLICATION = {
    **dict(zip(APPLICATIONS, (other_look(i).color for i in (1, 0, 2, 3)), strict=True)),
    OWN: own_look(1).color,
}
_MOST_NAMED = 12
"""Most patterns that the user named in a radar."""
_KEY = ("from the centre: bandwidth over", "stride 1 of its kernel (log. scale)")
_MARKERS = {GATHER: "o", SCATTER: "^"}


def _group(pattern: str) -> str:
    """Return the application of a pattern, or `OWN`."""
    return pattern.partition("-")[0]


def _plain_name(pattern: str) -> str:
    """Return the name of a pattern as text: that of the paper, or the user's."""
    return plain(pattern.partition(" ")[2], 18) if _group(pattern) == OWN else pattern


def _spokes_of_patterns(patterns: Sequence[str]) -> dict[str, float]:
    """Return the angle of each pattern, clockwise from the top, with gaps between applications."""
    slots: dict[str, float] = {}
    position, before = 1.5, ""
    for pattern in patterns:
        application = _group(pattern)
        position += before not in ("", application)
        slots[pattern] = position
        position, before = position + 1, application
    return {pattern: tau * slot / (position + 0.5) for pattern, slot in slots.items()}


def _name_arcs(ax: Any, spokes: Mapping[str, float], rings_named: Sequence[float]) -> None:
    """Name the rings, and draw the named arcs of the applications."""
    import numpy as np
    from pandas import Series

    for ring in rings_named:
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.3}
        ink = "black" if ring == 1 else GREY
        _write(ax, 0, radius(ring), fraction(ring), fontsize=5.5, color=ink, bbox=box, zorder=9)
    groups = Series(spokes).groupby(_group, sort=False)
    half = tau / (len(spokes) + len(groups) + 1) / 2
    for application, angles in groups:
        first, last = angles.iloc[[0, -1]]
        arc = np.linspace(first - half, last + half, 60)
        colour = _BY_APPLICATION[str(application)]
        style = {"color": colour, "linewidth": 2.2, "solid_capstyle": "butt"}
        ax.plot(arc, np.full_like(arc, radius(CAP) * 1.06), clip_on=False, label="_arc", **style)
        middle = (first + last) / 2
        turn = -degrees(middle) + (0 if cos(middle) >= -0.01 else 180)
        how = {"fontsize": 6, "fontweight": "bold", "color": colour}
        _write(ax, middle, radius(CAP) * 1.2, str(application), rotation=turn, **how)


def _draw_patterns(ax: Any, rows: DataFrame, spokes: Mapping[str, float]) -> None:
    """Draw one platform."""
    _name_arcs(ax, spokes, RINGS[1:])
    for (application, kernel), mine in rows.groupby([rows["case"].map(_group), "kernel"]):
        colour = _BY_APPLICATION[application]
        line = "black" if mine["own"].any() else colour
        _draw(ax, mine, f"{application} {KERNELS[kernel]}", colour, _MARKERS[kernel], line)


def _draw_key(ax: Any, spokes: Mapping[str, float], numbers: Mapping[str, int]) -> None:
    """Draw the key: the name of every spoke, a number for the patterns that the user named."""
    _name_arcs(ax, spokes, RINGS)
    for name, angle in spokes.items():
        ax.plot([angle, angle], radius([1 / 64, 1]), color="#d0d0d0", linewidth=0.5, label="_spoke")
        short = numbers.get(name, name.partition("-")[2])
        _name_spoke(ax, angle, radius(2.8), str(short), _BY_APPLICATION[_group(name)])


def _small_print(
    base: Mapping[str, float], rows: DataFrame, numbers: Mapping[str, int]
) -> list[str]:
    """Return lines with the stride-1 bandwidths, the user's patterns, and what is off the scale."""
    gather, scatter = (rounded(base[name]) if name in base else "-" for name in KERNELS)
    lines = [f"stride 1: gather {gather},", f"scatter {scatter} GB/s"]
    ratios = dict(zip(rows["case"], rows["ratio"], strict=True))
    mine = [
        f"{numbers[name]} {_plain_name(name)}: {ratio:.2g}"
        for name, ratio in ratios.items()
        if name in numbers
    ]
    if mine:
        lines += wrap(f"{OWN} {', '.join(mine)}", 36)
    outside = [
        f"{_plain_name(name)} {x:.2g}" for name, x in ratios.items() if not FLOOR <= x <= CAP
    ]
    if outside:
        named = outside[:2] if len(outside) < 3 else [f"{outside[0]} and {len(outside) - 1} more"]
        lines += wrap("✕ off the scale: " + ", ".join(named), 36)
    return lines


def _pages(points: DataFrame, wanted: Sequence[str]) -> list[list[str]]:
    """Return the patterns of each page of radars: all, or those of the wanted names.

    The first page has those of applications, and each at most `_MOST_NAMED` that the user named.
    """
    own = [case for case in dict.fromkeys(points["case"]) if _group(case) == OWN]
    names = {case: case.partition(" ")[2] or case for case in (*application_patterns(), *own)}
    for name in wanted:
        if name not in names.values():
            raise unknown(name, "pattern", names.values())
    shown = [case for case, name in names.items() if not wanted or name in wanted]
    end = sum(_group(case) != OWN for case in shown) + _MOST_NAMED
    others = range(end, len(shown), _MOST_NAMED)
    return [shown[:end], *(shown[first : first + _MOST_NAMED] for first in others)]


def _radars_of_platforms(records: Records, kind: str, patterns: str | Sequence[str]) -> Figure:
    points, notes = points_of(records, kind, named=True)
    pages = _pages(points, split(patterns))
    every = [pattern for page in pages for pattern in page]
    named = [pattern for pattern in every if _group(pattern) == OWN]
    numbers = {pattern: number for number, pattern in enumerate(named, start=1)}
    points = labelled(points)
    applications = points[points["case"].isin(every)]
    left_out, told = incomplete(points, every)
    notes += [
        *remarks(records, applications, f"patterns on {KINDS[kind]}"),
        *disturbed_note(applications),
        *left_out,
    ]
    rows = over_stride_1(points, every)
    bases = points[points["case"].eq(STRIDE_1)].set_index(["platform", "kernel"])[BANDWIDTH]
    radars = []
    for page in pages:
        spokes = _spokes_of_patterns(page)
        shown = rows[rows["case"].isin(page)]
        for platform, mine in shown.groupby("platform", sort=False):
            mine = mine.assign(angle=mine["case"].map(spokes)).sort_values("angle")
            title, own = two_lines(mine["label"].iloc[0]), bool(mine["own"].iloc[0])
            draw = partial(_draw_patterns, rows=mine, spokes=spokes)
            lines = _small_print(bases[platform], mine, numbers)
            radars.append(_Radar(str(platform), title, draw, lines, own))
        draw = partial(_draw_key, spokes=spokes, numbers=numbers)
        radars.append(_Radar("key", "Key", draw, [*_KEY, "● gather, ▲ scatter"], bold=False))
    columns = min(4 if len(radars) > 6 else 3, len(radars))
    diameter = min(DOUBLE_IN / columns - 0.42, 1.6)
    fig = _grid(radars, notes, columns, diameter, room=0.06 + 0.12 * diameter, size=8)
    tell_lacking(fig, told)
    return fig


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
    """Return platform, own, colour, angle and name in the key of each platform.

    CPUs are before GPUs, and own platforms are the first of each.
    """
    import numpy as np

    short = reference.load("lavin2020-platforms").set_index("platform")["abbreviation"]
    spokes = rows.drop_duplicates("platform")
    spokes = spokes.sort_values(["kind", "own"], ascending=[True, False], kind="stable")
    own, letters = spokes["own"], iter(ascii_uppercase)
    slots = np.arange(len(spokes)) + 0.5 * spokes["kind"].eq("gpu")  # a gap before the GPUs
    return spokes.assign(
        colour=spokes["kind"].map(_BY_KIND).mask(own, "black"),
        angle=tau * slots / (len(spokes) + 1),
        name=[
            next(letters, "+") if mine else short[platform]
            for platform, mine in zip(spokes["platform"], own, strict=True)
        ],
    )[["platform", "own", "colour", "angle", "name"]]


def _draw_spokes(ax: Any, spokes: DataFrame) -> None:
    for angle in spokes["angle"]:
        line = [0, radius(CAP)]
        ax.plot([angle, angle], line, color="#e3e3e3", linewidth=0.5, label="_spoke")


def _draw_platforms(ax: Any, rows: DataFrame, spokes: DataFrame) -> None:
    """Draw one pattern."""
    _draw_spokes(ax, spokes)
    for (kind, own), mine in rows.groupby(["kind", "own"]):
        label = f"{'own' if own else 'published'} {kind}"
        _draw(ax, mine.sort_values("angle"), label, mine["colour"].iloc[0], "o")


def _draw_platform_names(ax: Any, spokes: DataFrame) -> None:
    """Draw the key."""
    _draw_spokes(ax, spokes)
    for spoke in spokes.to_dict("records"):
        _name_spoke(ax, spoke["angle"], 1.3 * radius(CAP), spoke["name"], spoke["colour"])


def _radars_of_patterns(records: Records, kernel: str) -> Figure:
    points, notes = points_of(records)
    left_out, told = incomplete(points)
    points = over_stride_1(points)
    spokes = _spokes_of_platforms(points)
    patterns = [
        row["pattern"] for row in reference.rows("lavin2020-patterns") if row["kernel"] == kernel
    ]
    rows = ordered(points[points["kernel"] == kernel], "case", patterns)
    rows = rows.sort_values("case", kind="stable")
    rows = rows.join(spokes.set_index("platform")[["angle", "colour"]], on="platform")
    own = spokes[spokes["own"]]
    off = rows[~rows["ratio"].between(FLOOR, CAP)]
    outside = [
        f"{pattern} on {plain(platform)} {ratio:.2g}"
        for pattern, platform, ratio in off[["case", "platform", "ratio"]].itertuples(index=False)
    ]
    notes += [
        *left_out,
        *remarks(records, rows, "application patterns and of stride 1"),
        *disturbed_note(rows),
        _SCALE,
        *(own["name"] + ": " + own["platform"].map(plain) + "."),
        *[f"✕ off the scale: {first_three(outside)}."] * bool(outside),
    ]
    key = partial(_draw_platform_names, spokes=spokes)
    radars = [_Radar("key", "", key, share=0.6)]
    for pattern in patterns:
        draw = partial(_draw_platforms, rows=rows[rows["case"] == pattern], spokes=spokes)
        radars.append(_Radar(pattern, pattern, draw))
    fig = _grid(radars, notes, columns=6, diameter=0.94, room=0.02, size=6, above=0.25)
    tell_lacking(fig, told)
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
    return _radars_of_patterns(records, GATHER)


@drawn("spatter-fig8", "A row of radars, 6.9 in wide.", number="figure 8", **_ABOUT)
def scatter_radars(records: Records = None) -> Figure:
    """Scatters of applications relative to stride 1, one radar per pattern, a spoke per platform.

    As `gather_radars`, for the scatters.
    """
    return _radars_of_patterns(records, SCATTER)
