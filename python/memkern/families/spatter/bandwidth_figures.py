"""The figure of pattern bandwidths against those at stride 1, of all platforms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memkern.checks import unknown
from memkern.errors import InputError
from memkern.families.spatter.data import (
    KERNELS,
    STRIDE_1,
    application_patterns,
    incomplete,
    kernel_of,
    labels_of,
    points_of,
    published,
    remarks,
)
from memkern.plots.drawing import legend_below, panels
from memkern.plots.exhibits import drawn
from memkern.plots.frames import Records
from memkern.plots.selection import split
from memkern.plots.style import (
    DOUBLE_IN,
    GREY,
    fraction,
    log2_axis,
    note,
    other_look,
    plain,
    tell_lacking,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy import float64
    from numpy.typing import NDArray
    from pandas import DataFrame

# Of the four gathers of figure 9, the paper's text only names PENNANT-G12. The others are of the
# same application, with deltas from a row of the mesh to more than any cache.
SELECTED = (
    STRIDE_1,
    "stride 16",
    "PENNANT-G6",
    "PENNANT-G9",
    "PENNANT-G12",
    "PENNANT-G15",
    "LULESH-S1",
    "LULESH-S3",
)


def _spread(
    positions: NDArray[float64], widths: NDArray[float64], low: float, high: float
) -> NDArray[float64]:
    """Return the centres of labels, moved by the smallest distances at which none overlap.

    The least-squares solution that keeps the order is an isotonic regression: labels that would
    overlap are pooled around their mean.
    """
    import numpy as np

    order = np.argsort(positions, kind="stable")
    half = widths[order] / 2
    shift = np.cumsum(half + np.concatenate([[0.0], half[:-1]])) - half[0]
    pools: list[tuple[float, int]] = []
    for value in positions[order] - shift:
        mean, size = float(value), 1
        while pools and pools[-1][0] >= mean:
            other, others = pools.pop()
            mean, size = (other * others + mean * size) / (others + size), others + size
        pools.append((mean, size))
    fitted = np.repeat([mean for mean, _ in pools], [size for _, size in pools])
    moved = np.empty(len(positions))
    moved[order] = np.clip(fitted, low, max(low, high - shift[-1])) + shift
    return moved


def _is_stride(name: str) -> bool:
    return name.startswith("stride ")


def _panels_of(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the strides and application patterns of each kernel that has one."""
    known = application_patterns()
    strides = set(published()["case"]) - set(known)
    for name in names:
        if name not in known and name not in strides:
            raise InputError(
                f"{name!r} is no application pattern or stride: they go from {known[0]} to "
                f"{known[-1]}, and from stride 1 to stride 128"
            )
    patterns = [name for name in names if not _is_stride(name)]
    kernels = {kernel_of(name) for name in patterns} or (set(KERNELS) if names else set())
    cells = {
        kernel: [
            name for name in dict.fromkeys(names) if _is_stride(name) or kernel_of(name) == kernel
        ]
        for kernel in sorted(kernels)
    }
    if not cells or max(map(len, cells.values())) > 6:
        raise InputError("patterns must be one to six gathers or scatters, or up to six of each")
    return cells


@drawn(
    "spatter-fig9",
    "A panel for gather and one for scatter (6.9 in wide), or one alone (3.35 in).",
    paper="lavin2020",
    number="figure 9",
    records="application patterns and of strides; the highest bandwidths are drawn",
    lack="a name is no application pattern or stride, more than six are of one kernel, a platform "
    "to omit is not a published one",
    optional=True,
)
def bandwidth_bandwidth(
    records: Records = None,
    patterns: Sequence[str] = SELECTED,
    omit: Sequence[str] = ("Skylake",),
) -> Figure:
    """Bandwidth of patterns and strides against stride-1 bandwidth, all platforms.

    Both axes are in GB/s and logarithmic; gathers are drawn against the stride-1 gather of the
    platform, scatters against its stride-1 scatter. Grey diagonals mark constant ratios.

    Parameters
    ----------
    patterns : sequence of str
        Published names of the patterns to draw, and strides such as ``"stride 16"``, which are
        drawn for both kernels: at most six gathers and six scatters.
    omit : sequence of str
        Published platforms that are not drawn. The paper leaves Skylake out, which is close to
        Cascade Lake.
    """
    cells = _panels_of(split(patterns))
    applications = [name for names in cells.values() for name in names if not _is_stride(name)]
    points, notes = points_of(records)
    theirs = points[~points["own"].astype(bool)]["platform"]
    for platform in split(omit):
        if platform not in set(theirs):
            raise unknown(platform, "platform", dict.fromkeys(theirs))
    points = points[points["own"].astype(bool) | ~points["platform"].isin(split(omit))]
    labels = labels_of(points)
    told: list[str] = []
    if applications:
        left_out, told = incomplete(points, applications)
        notes += left_out
        complete = points[points["case"].isin(applications)]["platform"]
        points = points[points["platform"].isin(complete)]
    base = points[points["case"] == STRIDE_1].set_index(["platform", "kernel"])
    base = base[["bandwidth_GBps", "disturbed"]].add_prefix("base_")
    points = points[points["case"].isin([name for names in cells.values() for name in names])]
    points = points.join(base, on=["platform", "kernel"], how="inner")
    points = points.assign(disturbed=points["disturbed"] | points["base_disturbed"].eq(True))
    notes += remarks(records, points, "these patterns with stride 1")

    fig, axes = panels(len(cells), 2, 3.7)
    tell_lacking(fig, told)
    off: list[str] = []
    for ax, (kernel, names) in zip(axes, cells.items(), strict=True):
        word = KERNELS[kernel]
        ax.set_xlabel(f"Stride-1 {word} bandwidth (GB/s)")
        ax.set_ylabel(f"Bandwidth of {word} patterns (GB/s)")
        of_kernel = points[points["kernel"] == kernel]
        lowest = _shares(ax, of_kernel)
        below = of_kernel[of_kernel["bandwidth_GBps"] < lowest]
        ax.plot(
            below["base_bandwidth_GBps"],
            [lowest] * len(below),
            "kx",
            markersize=4,
            zorder=9.5,
            label="_off",
        )
        off += [
            f"{case} on {plain(platform)}, {bandwidth:.2g} GB/s"
            for platform, case, bandwidth in zip(
                below["platform"], below["case"], below["bandwidth_GBps"], strict=True
            )
        ]
        of_kernel = of_kernel.assign(bandwidth_GBps=of_kernel["bandwidth_GBps"].clip(lower=lowest))
        _markers(ax, of_kernel, names)
        _name_platforms(ax, of_kernel, labels)
    if off:
        notes.append(f"✕ below the scale: {'; '.join(off)}.")
    note(fig, [*notes, "In parentheses: threads."])
    return fig


def _shares(ax: Axes, points: DataFrame) -> float:
    """Set the scales, draw the diagonals of constant shares, and return the lowest bandwidth."""
    import numpy as np

    x, y = points["base_bandwidth_GBps"], points["bandwidth_GBps"]
    left, right = x.min() / 1.3, x.max() * 1.3
    top = float(max(y.max(), right) * 1.3)
    lowest = float(max(y.min(), top / 2**15))
    bottom = lowest / 1.6
    ax.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, top))
    ax.grid(False)
    log2_axis(ax.xaxis)
    log2_axis(ax.yaxis)
    octaves = np.arange(-20, 9, 1 if top / bottom < 2**14 else 2)
    shares = [share for share in 2.0**octaves if bottom < share * right < top]
    for share in shares:
        colour, width = (GREY, 1.0) if share == 1 else ("#d4d4d4", 0.6)
        ends = [share * left, share * right]
        ax.plot([left, right], ends, color=colour, linewidth=width, zorder=1, label="_share")
    edge = ax.secondary_yaxis("right", functions=(lambda y: y / right, lambda y: y * right))
    edge.set_yticks(shares, [fraction(share) for share in shares], minor=False, color=GREY)
    edge.tick_params(length=0, labelsize=6.5)
    edge.set_ylabel("Fraction of stride 1 (diagonals)", color=GREY)
    return lowest


def _markers(ax: Axes, points: DataFrame, patterns: Sequence[str]) -> None:
    """Draw one set of markers per pattern; markers of own records are larger, edged and on top."""
    strides = [name for name in patterns if _is_stride(name)]
    others = [name for name in patterns if not _is_stride(name)]
    for pattern in patterns:
        if pattern in strides:
            marker = "o*dHp<"[strides.index(pattern)]
            look = other_look(0)._replace(color=GREY, marker=marker)
        else:
            look = other_look(others.index(pattern))
        rows = points[points["case"] == pattern]
        published, own = rows[~rows["own"]], rows[rows["own"]]
        how: dict[str, Any] = {"color": look.color, "zorder": 4, "label": pattern}
        x, y = published["base_bandwidth_GBps"], published["bandwidth_GBps"]
        ax.scatter(x, y, s=18, marker=look.marker, linewidths=0, **how)
        for disturbed, mine in own.groupby("disturbed"):
            face, edge = ("white", look.color) if disturbed else (look.color, "black")
            how = {"facecolors": face, "edgecolors": edge, "zorder": 9, "label": "_own"}
            x, y = mine["base_bandwidth_GBps"], mine["bandwidth_GBps"]
            ax.scatter(x, y, s=40, marker=look.marker, linewidths=1.1, **how)
    legend_below(ax, DOUBLE_IN / 2)


def _name_platforms(ax: Axes, points: DataFrame, labels: Mapping[str, str]) -> None:
    """Draw a vertical line for each platform and write its name above the axes."""
    import numpy as np

    platforms = points.drop_duplicates("platform")
    names = [
        plain(re.sub(r", ([^,]*) threads?$", r" (\1)", labels[platform]), 30)
        for platform in platforms["platform"]
    ]
    x = platforms["base_bandwidth_GBps"].to_numpy(dtype=float)
    left, right = np.log2(ax.get_xlim())
    octave_in = 2.35 / (right - left)  # a panel is about 2.35 in wide, a line of text 0.115 in
    positions = 2 ** _spread(np.log2(x), np.full(len(names), 0.115 / octave_in), left, right)
    above = ax.get_xaxis_transform()
    for name, own, here, there in zip(names, platforms["own"], x, positions, strict=True):
        colour, width = ("black", 1.0) if own else ("#b0b0b0", 0.4)
        ax.axvline(here, color=colour, linewidth=width, zorder=1.2, label="_platform")
        leader = {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 0}
        ax.annotate(
            name,
            xy=(here, 1.0),
            xytext=(there, 1.06),
            xycoords=above,
            textcoords=above,
            rotation=90,
            ha="center",
            va="bottom",
            multialignment="left",
            fontsize=6.5,
            fontweight="bold" if own else "normal",
            annotation_clip=False,
            arrowprops={**leader, "relpos": (0.5, 0.0)},
        )
