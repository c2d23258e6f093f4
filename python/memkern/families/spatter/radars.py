"""Radar charts of patterns over stride 1: one per platform, or one per pattern of an application.

The radars of a platform also have patterns that the user named. The radars of a pattern are figures
7 and 8 of the paper.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from math import cos, degrees, pi, tau
from string import ascii_uppercase
from textwrap import wrap
from typing import Any

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
    bandwidths,
    incomplete,
    kernel_of,
    labels_of,
    platforms_of,
    points_of,
    relative,
    remarks,
)
from memkern.plots.kit import (
    DOUBLE_IN,
    GREY,
    NOTE_SIZE,
    DataFrame,
    Figure,
    Records,
    drawn,
    fraction,
    new_figure,
    note,
    note_lines,
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


def _radar(fig: Figure, x: float, bottom: float, diameter: float, label: str) -> Any:
    """Add a radar at a position in inches, and draw its rings.

    The layout engine ignores the names around a radar.
    """
    import numpy as np

    across, up = fig.get_size_inches()
    box = (x - diameter / 2) / across, bottom / up, diameter / across, diameter / up
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


def _mark(
    ax: Any, rows: DataFrame, disturbed: Collection[str], crosses: float, how: Mapping[str, Any]
) -> None:
    """Draw hollow markers for the spokes in `disturbed`, and cross out values off the scale."""
    off = rows[~rows["ratio"].between(FLOOR, CAP)]
    cross = {"marker": "x", "markersize": 3.5, "color": "black", "zorder": crosses}
    for some, label, look in (
        (rows[rows.index.isin(disturbed)], "_disturbed", {"markerfacecolor": "white"}),
        (off, "_off", cross),
    ):
        style = {**how, "linestyle": "none", **look}
        ax.plot(some["angle"], radius(some["ratio"]), label=label, **style)


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

    for ring in rings_named:
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.3}
        ink = "black" if ring == 1 else GREY
        _write(ax, 0, radius(ring), fraction(ring), fontsize=5.5, color=ink, bbox=box, zorder=9)
    groups = list(dict.fromkeys(map(_group, spokes)))
    half = tau / (len(spokes) + len(groups) + 1) / 2
    for application in groups:
        angles = [angle for name, angle in spokes.items() if _group(name) == application]
        arc = np.linspace(angles[0] - half, angles[-1] + half, 60)
        style = {"color": _BY_APPLICATION[application], "linewidth": 2.2, "solid_capstyle": "butt"}
        ax.plot(arc, np.full_like(arc, radius(CAP) * 1.06), clip_on=False, label="_arc", **style)
        middle = (angles[0] + angles[-1]) / 2
        turn = -degrees(middle) + (0 if cos(middle) >= -0.01 else 180)
        how = {"fontsize": 6, "fontweight": "bold", "color": _BY_APPLICATION[application]}
        _write(ax, middle, radius(CAP) * 1.2, application, rotation=turn, **how)


def _draw_patterns(
    ax: Any, spokes: Mapping[str, float], ratio: Mapping[str, float], own: bool, disturbed: set[str]
) -> None:
    """Draw one platform; the patterns in `disturbed` are hollow."""
    from pandas import DataFrame

    rows = DataFrame({"angle": spokes, "ratio": ratio}).dropna().sort_values("angle")
    for (application, kernel), mine in rows.groupby(
        [rows.index.map(_group), rows.index.map(kernel_of)]
    ):
        colour = _BY_APPLICATION[str(application)]
        theta, r = mine["angle"], radius(mine["ratio"])
        ax.fill([0, *theta], [0, *r], color=colour, alpha=0.2, linewidth=0, zorder=2)
        how = {
            "marker": _MARKERS[str(kernel)],
            "markersize": 3.0 if own else 2.2,
            "color": colour,
            "clip_on": False,
        }
        line = {"color": "black" if own else colour, "linewidth": 1.3 if own else 0.8}
        face = {"markerfacecolor": colour, "markeredgecolor": colour, "zorder": 4.0}
        ax.plot(theta, r, label=f"{application} {KERNELS[str(kernel)]}", **how | line | face)
        if len(mine) == 1:
            ax.plot([*theta, *theta], [0, *r], color=colour, linewidth=1.0, label="_spoke")
        _mark(ax, mine, disturbed, 4.1, how | {"zorder": 4.1})


def _draw_key(ax: Any, spokes: Mapping[str, float], named: Sequence[str]) -> None:
    """Draw the key: the name of every spoke, a number for the patterns that the user named."""
    for name, angle in spokes.items():
        ax.plot([angle, angle], radius([1 / 64, 1]), color="#d0d0d0", linewidth=0.5, label="_spoke")
        short = str(named.index(name) + 1) if name in named else name.partition("-")[2]
        _name_spoke(ax, angle, radius(2.8), short, _BY_APPLICATION[_group(name)])


def _small_print(
    platform: Mapping[tuple[str, str], float], ratio: Mapping[str, float], named: Sequence[str]
) -> list[str]:
    """Return lines with the stride-1 bandwidths, the user's patterns, and what is off the scale."""
    base = {
        word: rounded(platform[kernel, STRIDE_1]) if (kernel, STRIDE_1) in platform else "-"
        for kernel, word in KERNELS.items()
    }
    lines = [f"stride 1: gather {base['gather']},", f"scatter {base['scatter']} GB/s"]
    mine = [
        f"{number} {_plain_name(name)}: {ratio[name]:.2g}"
        for number, name in enumerate(named, start=1)
        if name in ratio
    ]
    if mine:
        lines += wrap(f"{OWN} {', '.join(mine)}", 36)
    outside = [f"{_plain_name(name)} {x:.2g}" for name, x in ratio.items() if not FLOOR <= x <= CAP]
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
    applications = points[points["case"].isin(every)]
    notes += remarks(records, applications, f"patterns on {KINDS[kind]}")
    values, labels, own = bandwidths(points), labels_of(points), platforms_of(points)
    left_out, told = incomplete(points, every)
    notes += left_out
    small: list[tuple[str, list[str], dict[str, float], list[str]]] = []
    named = [pattern for pattern in every if _group(pattern) == OWN]
    for page in pages:
        small += [
            (platform, page, ratio, _small_print(values[platform], ratio, named))
            for platform, ratio in relative(points, page).items()
        ]
        small.append(("", page, {}, [*_KEY, "● gather, ▲ scatter"]))

    columns = min(4 if len(small) > 6 else 3, len(small))
    rows = [small[first : first + columns] for first in range(0, len(small), columns)]
    across = DOUBLE_IN / columns
    diameter = min(across - 0.42, 1.6)
    names = 0.06 + 0.12 * diameter  # room for the names around a radar
    title = names + 0.12 * max(
        2 + two_lines(labels.get(platform, "")).count("\n") for platform, *_ in small
    )
    below = [names + 0.105 * max(len(lines) for *_, lines in row) for row in rows]
    small_print = 0.1 * (len(note_lines(DOUBLE_IN, notes)) + 0.5)
    height = len(rows) * (title + diameter) + sum(below) + small_print
    fig = new_figure(DOUBLE_IN, height, layout=None)
    tell_lacking(fig, told)
    for number, (platform, page, ratio, lines) in enumerate(small):
        spokes = _spokes_of_patterns(page)
        row, column = divmod(number, columns)
        x = (column + 0.5) * across
        y = height - (row + 1) * (title + diameter) - sum(below[:row])
        ax = _radar(fig, x, y, diameter, platform or "key")
        _name_arcs(ax, spokes, RINGS[1:] if platform else RINGS)
        if platform:
            disturbed = applications[
                (applications["platform"] == platform) & applications["disturbed"]
            ]
            _draw_patterns(ax, spokes, ratio, own[platform], set(disturbed["case"]))
        else:
            _draw_key(ax, spokes, named)
        fig.text(
            x / DOUBLE_IN,
            (y + diameter + names + 0.04) / height,
            two_lines(labels[platform]) if platform else "Key",
            ha="center",
            fontsize=8,
            fontweight="bold" if own.get(platform) else "normal",
        )
        fig.text(
            x / DOUBLE_IN,
            (y - names) / height,
            "\n".join(lines),
            ha="center",
            va="top",
            fontsize=NOTE_SIZE,
            color=GREY,
        )
    note(fig, notes)
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
_COLUMNS = 6
_RADAR_IN, _TITLE_IN = 0.94, 0.22


def _spokes_of_platforms(points: DataFrame) -> DataFrame:
    """Return kind, own, angle and name in the key of each platform, by platform.

    CPUs are before GPUs, and own platforms are the first of each.
    """
    import numpy as np

    short = {row["platform"]: row["abbreviation"] for row in reference.rows("lavin2020-platforms")}
    letters = iter(ascii_uppercase)
    spokes = points.drop_duplicates("platform").astype({"own": bool}).set_index("platform")
    spokes = spokes.sort_values(["kind", "own"], ascending=[True, False], kind="stable")
    slots = np.arange(len(spokes)) + 0.5 * spokes["kind"].eq("gpu")  # a gap before the GPUs
    return spokes.assign(
        angle=tau * slots / (len(spokes) + 1),
        name=[
            next(letters, "+") if own else short[platform]
            for platform, own in spokes["own"].items()
        ],
    )


def _draw_platforms(ax: Any, rows: DataFrame, disturbed: Collection[str]) -> None:
    """Draw the bandwidth of one pattern over stride 1 of each platform; those disturbed hollow."""
    for (kind, own), mine in rows.groupby(["kind", "own"]):
        colour, emphasis = ("black", 1) if own else (_BY_KIND[str(kind)], 0)
        theta, r = mine["angle"], radius(mine["ratio"])
        if not own:
            ax.fill([0, *theta], [0, *r], color=colour, alpha=0.2, linewidth=0, zorder=2)
        for angle, end in zip(theta, r, strict=True):
            ax.plot([angle, angle], [0, end], color=colour, linewidth=0.8 + 0.5 * emphasis,
                    zorder=3 + emphasis, label="_bar")  # fmt: skip
        how: dict[str, Any] = {
            "marker": "o",
            "markersize": 3.0 if own else 2.2,
            "linestyle": "none",
            "clip_on": False,
            "color": colour,
            "zorder": 4.0 + emphasis,
        }
        ax.plot(theta, r, label=f"{'own' if own else 'published'} {kind}", **how)
        _mark(ax, mine, disturbed, 6.0, how | {"zorder": 5.1})


def _radars_of_patterns(records: Records, kernel: str) -> Figure:
    points, notes = points_of(records)
    left_out, told = incomplete(points)
    notes += left_out
    ratios = relative(points)
    points = points[points["platform"].isin(ratios)]
    patterns = [
        row["pattern"] for row in reference.rows("lavin2020-patterns") if row["kernel"] == kernel
    ]
    applications = points[points["case"].isin(patterns)]
    notes += remarks(records, applications, "application patterns and of stride 1")
    spokes = _spokes_of_platforms(points)
    own = spokes.loc[spokes["own"], "name"]
    notes += [_SCALE, *(f"{name}: {plain(platform)}." for platform, name in own.items())]
    outside = [
        f"{pattern} on {plain(platform)} {value:.2g}"
        for pattern in patterns
        for platform, ratio in ratios.items()
        if not FLOOR <= (value := ratio.get(pattern, 1.0)) <= CAP
    ]
    if outside:
        more = f" and {len(outside) - 3} more" * (len(outside) > 3)
        notes.append(f"✕ off the scale: {', '.join(islice(outside, 3))}{more}.")

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
        diameter = _RADAR_IN if pattern else 0.6 * _RADAR_IN
        ax = _radar(fig, x, y + _RADAR_IN / 2 - diameter / 2, diameter, pattern or "key")
        for angle in spokes["angle"]:
            end = radius(CAP)
            ax.plot([angle, angle], [0, end], color="#e3e3e3", linewidth=0.5, label="_spoke")
        if pattern:
            case = applications[applications["case"] == pattern]
            mine = {name: ratio[pattern] for name, ratio in ratios.items() if pattern in ratio}
            shown = spokes.assign(ratio=spokes.index.map(mine)).dropna(subset="ratio")
            _draw_platforms(ax, shown, case[case["disturbed"]]["platform"])
            top = (y + _RADAR_IN + 0.06) / height  # above the markers beyond the rings
            fig.text(x / DOUBLE_IN, top, pattern, ha="center", fontsize=6, fontweight="bold")
        else:
            for spoke in spokes.to_dict("records"):
                colour = "black" if spoke["own"] else _BY_KIND[spoke["kind"]]
                _name_spoke(ax, spoke["angle"], 1.3 * radius(CAP), spoke["name"], colour)
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
    return _radars_of_patterns(records, GATHER)


@drawn("spatter-fig8", "A row of radars, 6.9 in wide.", number="figure 8", **_ABOUT)
def scatter_radars(records: Records = None) -> Figure:
    """Scatters of applications relative to stride 1, one radar per pattern, a spoke per platform.

    As `gather_radars`, for the scatters.
    """
    return _radars_of_patterns(records, SCATTER)
