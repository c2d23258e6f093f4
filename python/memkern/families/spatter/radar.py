"""Radar charts of application patterns and of patterns that the user named, one per platform."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import cos, degrees, pi, tau
from textwrap import wrap
from typing import TYPE_CHECKING, Any

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
from memkern.plots.exhibits import drawn
from memkern.plots.frames import Records, counted, rounded
from memkern.plots.style import (
    DOUBLE_IN,
    GREY,
    NOTE_SIZE,
    fraction,
    new_figure,
    note,
    note_lines,
    other_look,
    own_look,
    plain,
    tell_lacking,
    two_lines,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLOOR, CAP = 1 / 256, 8.0
RINGS = (1 / 64, 1 / 8, 1.0, CAP)
_COLOURS = dict(zip(APPLICATIONS, (other_look(i).color for i in (1, 0, 2, 3)), strict=True))
_COLOURS[OWN] = own_look(1).color
_MOST_NAMED = 12
"""Most patterns that the user named in a figure."""
_KEY = ("from the centre: bandwidth over", "stride 1 of its kernel (log. scale)")
_MARKERS = {GATHER: "o", SCATTER: "^"}


def _group(pattern: str) -> str:
    """Return the application of a pattern, or `OWN`."""
    return pattern.partition("-")[0]


def _named(patterns: Iterable[str]) -> list[str]:
    """Return the patterns that the user named, which the key has as 1, 2, ..."""
    return [pattern for pattern in patterns if _group(pattern) == OWN]


def _plain_name(pattern: str) -> str:
    """Return the name of a pattern as text: that of the paper, or the user's."""
    return plain(pattern.partition(" ")[2], 18) if _group(pattern) == OWN else pattern


def _spokes(patterns: Sequence[str]) -> dict[str, float]:
    """Return the angle of each pattern, clockwise from the top, with gaps between applications."""
    slots: dict[str, float] = {}
    position, before = 1.5, ""
    for pattern in patterns:
        application = _group(pattern)
        position += before not in ("", application)
        slots[pattern] = position
        position, before = position + 1, application
    return {pattern: tau * slot / (position + 0.5) for pattern, slot in slots.items()}


def radius(ratio: Any) -> Any:
    """Return the distance from the centre: octaves above the lowest ratio, clipped to the scale."""
    import numpy as np

    return np.log2(np.clip(ratio, FLOOR, CAP) / FLOOR)


def write(ax: Any, angle: float, r: float, text: str, **how: Any) -> None:
    """Write a text centred at a point of the radar."""
    ax.text(angle, float(r), text, ha="center", va="center", rotation_mode="anchor", **how)


def draw_rings(ax: Any) -> None:
    """Set the axes of a radar, and draw its rings."""
    import numpy as np

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


def _frame(ax: Any, spokes: Mapping[str, float], rings_named: Sequence[float]) -> None:
    """Draw the rings and the named arcs of the applications."""
    import numpy as np

    draw_rings(ax)
    for ring in rings_named:
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.3}
        ink = "black" if ring == 1 else GREY
        write(ax, 0, radius(ring), fraction(ring), fontsize=5.5, color=ink, bbox=box, zorder=9)
    groups = list(dict.fromkeys(map(_group, spokes)))
    half = tau / (len(spokes) + len(groups) + 1) / 2
    for application in groups:
        angles = [angle for name, angle in spokes.items() if _group(name) == application]
        arc = np.linspace(angles[0] - half, angles[-1] + half, 60)
        style = {"color": _COLOURS[application], "linewidth": 2.2, "solid_capstyle": "butt"}
        ax.plot(arc, np.full_like(arc, radius(CAP) * 1.06), clip_on=False, label="_arc", **style)
        middle = (angles[0] + angles[-1]) / 2
        turn = -degrees(middle) + (0 if cos(middle) >= -0.01 else 180)
        how = {"fontsize": 6, "fontweight": "bold", "color": _COLOURS[application]}
        write(ax, middle, radius(CAP) * 1.2, application, rotation=turn, **how)


def _draw(
    ax: Any, spokes: Mapping[str, float], ratio: Mapping[str, float], own: bool, disturbed: set[str]
) -> None:
    """Draw one platform; the patterns in `disturbed` are hollow."""
    import numpy as np

    for application, colour in _COLOURS.items():
        for kernel, marker in _MARKERS.items():
            names = [
                name
                for name in spokes
                if name in ratio and _group(name) == application and kernel_of(name) == kernel
            ]
            if not names:
                continue
            theta = np.array([spokes[name] for name in names])
            values = np.array([ratio[name] for name in names])
            r = radius(values)
            ax.fill([0, *theta], [0, *r], color=colour, alpha=0.2, linewidth=0, zorder=2)
            how = {"marker": marker, "markersize": 3.0 if own else 2.2, "color": colour}
            how |= {"clip_on": False, "zorder": 4.0}
            line = {"color": "black" if own else colour, "linewidth": 1.3 if own else 0.8}
            face = {"markerfacecolor": colour, "markeredgecolor": colour}
            ax.plot(theta, r, label=f"{application} {KERNELS[kernel]}", **how | line | face)
            if len(names) == 1:
                ax.plot([*theta, *theta], [0, *r], color=colour, linewidth=1.0, label="_spoke")
            hollow = np.array([name in disturbed for name in names])
            how |= {"linestyle": "none", "zorder": 4.1}
            ax.plot(
                theta[hollow], r[hollow], label="_disturbed", **how | {"markerfacecolor": "white"}
            )
            off = (values < FLOOR) | (values > CAP)
            cross = {"marker": "x", "markersize": 3.5, "color": "black"}
            ax.plot(theta[off], r[off], label="_off", **how | cross)


def _draw_key(ax: Any, spokes: Mapping[str, float]) -> None:
    """Draw the key: the name of every spoke."""
    for name, angle in spokes.items():
        ax.plot([angle, angle], radius([1 / 64, 1]), color="#d0d0d0", linewidth=0.5, label="_spoke")
        turn = 90 - degrees(angle) + (180 if angle > pi else 0)
        group = _group(name)
        short = str(_named(spokes).index(name) + 1) if group == OWN else name.partition("-")[2]
        write(ax, angle, radius(2.8), short, fontsize=5.5, rotation=turn, color=_COLOURS[group])


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


def _radars(records: Records, kind: str) -> Figure:
    points, notes = points_of(records, kind, named=True)
    applications = points[points["stride"].isna()]
    named = _named(dict.fromkeys(applications["case"]))
    if len(named) > _MOST_NAMED:
        notes.append(f"{counted(len(named) - _MOST_NAMED, 'named pattern')} left out.")
        named = named[:_MOST_NAMED]
    notes += remarks(records, applications, f"patterns on {KINDS[kind]}")
    values = bandwidths(points)
    ratios = {platform: relative(values[platform], named) for platform in platforms_of(points)}
    patterns = [*application_patterns(), *named]
    left_out, told = incomplete(points, patterns)
    notes += left_out
    labels = labels_of(points)
    ratios = {platform: ratio for platform, ratio in ratios.items() if ratio}
    small = {
        platform: _small_print(values[platform], ratio, named) for platform, ratio in ratios.items()
    }
    small[""] = [*_KEY, "● gather, ▲ scatter"]

    # Explicit positions in inches, since the layout engine ignores the names around a radar.
    columns = 4 if len(small) > 6 else 3
    rows = -(-len(small) // columns)
    across = DOUBLE_IN / columns
    diameter = min(across - 0.42, 1.6)
    names = 0.06 + 0.12 * diameter  # room for the names around a radar
    title = names + 0.12 * max(
        2 + two_lines(labels.get(platform, "")).count("\n") for platform in small
    )
    below = names + 0.105 * max(map(len, small.values()))
    height = rows * (title + diameter + below) + 0.1 * (len(note_lines(DOUBLE_IN, notes)) + 0.5)
    fig = new_figure(DOUBLE_IN, height, layout=None)
    tell_lacking(fig, told)
    spokes, own = _spokes(patterns), platforms_of(points)
    for number, (platform, lines) in enumerate(small.items()):
        row, column = divmod(number, columns)
        x = (column + 0.5) * across
        y = height - (row + 1) * (title + diameter + below) + below
        box = (x - diameter / 2) / DOUBLE_IN, y / height, diameter / DOUBLE_IN, diameter / height
        ax = fig.add_axes(box, projection="polar", label=platform or "key")
        _frame(ax, spokes, RINGS[1:] if platform else RINGS)
        if platform:
            disturbed = applications[
                (applications["platform"] == platform) & applications["disturbed"]
            ]
            _draw(ax, spokes, ratios[platform], own[platform], set(disturbed["case"]))
        else:
            _draw_key(ax, spokes)
        weight = "bold" if own.get(platform) else "normal"
        heading = two_lines(labels[platform]) if platform else "Key"
        fig.text(
            x / DOUBLE_IN,
            (y + diameter + names + 0.04) / height,
            heading,
            ha="center",
            fontsize=8,
            fontweight=weight,
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
    optional=True,
)
def radars_cpu(records: Records = None) -> Figure:
    """Application patterns relative to stride 1 on CPUs, one radar per platform.

    Each of the 34 spokes is a pattern of table 5 of the paper; its distance from the centre is the
    bandwidth of the pattern over the stride-1 bandwidth of the same kernel on the same platform,
    on a logarithmic scale from 1/256 to 8, with a black ring at 1. Values outside the scale are
    drawn at its end and printed below the radar. Own patterns that have a name (the option
    ``name``, or ``name`` in a file of Spatter) have further spokes, at most 12, with numbers in
    the key, and with their names and values below the radar.
    """
    return _radars(records, "cpu")


@drawn(
    "spatter-radars-gpu",
    "A grid of radars, 6.9 in wide, the own machine first.",
    records="Own records",
    optional=True,
)
def radars_gpu(records: Records = None) -> Figure:
    """Application patterns relative to stride 1 on GPUs, one radar per platform.

    As `radars_cpu`, for the own records of the backend cuda and the four published GPUs, where 16
    consecutive instances of a pattern were merged into one of 256 indices.
    """
    return _radars(records, "gpu")
