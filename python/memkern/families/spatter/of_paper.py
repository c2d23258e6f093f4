"""The paper's tables of applications, platforms and patterns, and patterns over stride 1.

Figure 9 has the bandwidth of patterns against that of stride 1; another figure has it by delta.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from memkern import reference
from memkern.checks import LEAST, MOST, one_of
from memkern.families.spatter.data import (
    KERNELS,
    KINDS,
    SCATTER,
    STRIDE_1,
    application_patterns,
    compared,
    incomplete,
    kernel_of,
    labelled,
    over_stride_1,
    own_records,
    points_of,
    published,
    remarks,
)
from memkern.inputs.patterns import Pattern, custom, parse
from memkern.plots.kit import (
    BANDWIDTH,
    DOUBLE_IN,
    GREY,
    LOOK,
    TITLE,
    Axes,
    Axis,
    Curves,
    DataFrame,
    Figure,
    InputError,
    Level,
    Measured,
    Panel,
    Records,
    Series,
    Shown,
    concat,
    disturbed_note,
    drawn,
    fraction,
    frame_of,
    in_thousands,
    intervals,
    joined,
    legend_below,
    log2_scales,
    need_columns,
    new_table,
    note,
    other_look,
    panels,
    plain,
    published_table,
    split,
    tabulated,
    tell_lacking,
    ticks_at,
    typed,
    with_ends,
)

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


# --------------------------------------------------------------------------------------- tables


@published_table(
    "spatter-table1",
    "lavin2020-kernels",
    "application, class (of its patterns), kernel, gathers, scatters, moved_MB (by gathers and "
    "scatters) and moved_percent (of the bytes of all loads and stores)",
    paper="lavin2020",
    number="table 1",
)
def traced_kernels(records: Records = None) -> None:
    """Gathers and scatters of kernels of four applications, as published."""


@published_table(
    "spatter-table2",
    "lavin2020-applications",
    "application, version, problem, changes and traced (the parts of the kernels)",
    paper="lavin2020",
    number="table 2",
)
def traced_applications(records: Records = None) -> None:
    """Versions and problems of the applications from which the patterns were extracted."""


@tabulated(
    "spatter-table3",
    'Columns platform, abbreviation, name, kind ("cpu" or "gpu"), row ("own" or "published"), '
    "stream_MBps, threads and backend. Naples is missing, as in the paper.",
    paper="lavin2020",
    number="table 3",
    records="gather and scatter, whose platforms are added",
    lack="a STREAM bandwidth that is not positive",
    optional=True,
)
def platforms_table(records: Records = None, stream_GBps: float = float("nan")) -> DataFrame:
    """Platforms of the paper with their STREAM bandwidth, and those of own records.

    Parameters
    ----------
    stream_GBps : float
        STREAM bandwidth of the own machine in GB/s.
    """
    if stream_GBps == stream_GBps and not LEAST <= stream_GBps <= MOST:
        raise InputError(f"stream_GBps is {stream_GBps!r}, which is not a positive number")
    own, notes = own_records(records)
    own = typed(own.drop_duplicates("platform"), ["threads"])
    own = own.assign(
        abbreviation="",
        name=own["platform"],
        row="own",
        stream_MBps=1e3 * stream_GBps,
        threads=own["threads"].where(own["kind"] == "cpu"),
    )
    theirs = (
        reference.load("lavin2020-platforms")
        .assign(row="published")
        .rename(columns=lambda name: name.removeprefix("table3_"))
    )
    columns = ["platform", "abbreviation", "name", "kind", "row"]
    columns += ["stream_MBps", "threads", "backend"]
    frame = concat([own, theirs.dropna(subset="stream_MBps")])[columns].round({"stream_MBps": 0})
    frame = frame.astype({"threads": "Int64", "stream_MBps": "Int64"}).reset_index(drop=True)
    frame.attrs["notes"] = notes
    return frame


@tabulated(
    "spatter-table5",
    'Columns pattern, kernel, row ("published" or "own"), index, delta, type (as printed in the '
    "paper) and class (by `Pattern.access_class`: uniform, broadcast, mostly stride-1 or complex).",
    paper="lavin2020",
    number="table 5",
    records="gather and scatter, whose other patterns are added",
    lack="a list is given instead of records",
    optional=True,
)
def patterns_table(records: Records = None) -> DataFrame:
    """Patterns of applications with their class, and those of own records."""
    rows = [
        {**row, "row": "published", **_described(custom(row["indices"]))}
        for row in reference.rows("lavin2020-patterns")
    ]
    notes = []
    for row in _own_patterns(records):
        try:
            rows.append({**row, "row": "own", "type": "", **_described(parse(row["pattern"]))})
        except InputError:  # a name that is no notation
            notes.append(
                f"{row['pattern']} left out: records have the name of this pattern, but not its "
                "indices."
            )
    frame = new_table(rows)[["pattern", "kernel", "row", "index", "delta", "type", "class"]]
    frame["kernel"] = frame["kernel"].map(KERNELS)
    frame.attrs["notes"] = [*dict.fromkeys(notes)]
    return frame


def _own_patterns(records: Records) -> list[Any]:
    """Return pattern, kernel and delta of own gathers and scatters of no application."""
    if records is None:
        return []
    frame = frame_of(records)
    need_columns(frame, "kernel")
    frame = frame[frame["kernel"].isin(KERNELS)]
    if frame.empty:
        return []
    need_columns(frame, "pattern", "delta")
    frame = frame[~frame["pattern"].isin(application_patterns())].astype({"pattern": str})
    return frame[["pattern", "kernel", "delta"]].drop_duplicates().to_dict("records")


def _described(pattern: Pattern) -> dict[str, object]:
    """Return the first indices of a pattern and its class."""
    shown = ",".join(map(str, pattern.indices[:16])) + ",..." * (len(pattern) > 16)
    return {"index": f"[{shown}]", "class": pattern.access_class}


# --------------------------------------------------------------------------------------- figures


def _crossed_out(panel: Panel) -> None:
    """Cross out the scatters."""
    for _, rows in panel.rows[panel.rows["kernel"] == SCATTER].groupby("label"):
        look = rows[LOOK].iloc[0]
        how = look._replace(marker="x", color="black", zorder=look.zorder + 0.05)._asdict()
        panel.ax.plot(rows[panel.x], rows[panel.y], label="_scatter", **how)


def _delta_scale(ax: Axes, *_: Any) -> None:
    """Give a delta of 0 a place of its own, at the left of 1."""
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xlim(-0.5, 1e7)
    ticks_at(ax.xaxis, [0, *(10.0**power for power in range(8))], in_thousands)


def _share_scale(ax: Axes, rows: DataFrame, frame: DataFrame, column: str) -> None:
    ax.set_yscale("log", base=2)
    ax.set_ylim(frame[column].min() / 1.5, frame[column].max() * 1.5)
    ax.yaxis.set_major_formatter(lambda share, _: fraction(share))


@Curves(
    name="spatter-delta",
    x=Axis("delta", "Delta (values of 8 B)", _delta_scale),
    y=Axis("ratio", "Bandwidth over that of stride 1", _share_scale),
    layers=(Measured("label"), _crossed_out, Level(1)),
    panels=(TITLE,),
    shared=True,
    height=2.9,
    returns="A panel for CPUs and one for GPUs, 6.9 in wide.",
    paper="lavin2020",
    number="insight 5 of section 5.4.2",
    records="application patterns and of stride 1; the highest bandwidths are drawn",
    optional=True,
)
def bandwidth_by_delta(records: Records = None) -> Shown:
    """Bandwidth of application patterns over that of stride 1 against the delta of the pattern.

    The delta is that with which the pattern ran, in values of 8 B; of the 16 instances that GPUs
    merged into one, that from one to the next. Gathers are filled, and scatters are crossed out.
    """
    points, notes = points_of(records)
    # By kind, as both panels share a legend.
    points, remarks, told = compared(
        records, points.sort_values("kind", kind="stable"), "application patterns and of stride 1"
    )
    deltas = {row["pattern"]: row["delta"] for row in reference.rows("lavin2020-patterns")}
    points = points.assign(
        delta=points["apart"].fillna(points["case"].map(deltas)),
        label=points["label"].map(plain),
        look=[look._replace(linestyle="none") for look in points[LOOK]],
        **{TITLE: points["kind"].map(KINDS)},
    )
    others = points[~points["own"] & points["delta"].ne(points["case"].map(deltas))]["case"]
    notes += [
        *remarks,
        f"GPUs ran {joined(sorted(set(others)))} with other deltas than table 5 has.",
        "Crossed out: scatters.",
    ]
    return Shown(points, notes, told)


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
    names = [name for each in cells.values() for name in each]
    needed = [name for name in names if not _is_stride(name)] or [STRIDE_1]
    points, notes = points_of(records)
    theirs = dict.fromkeys(points[~points["own"]]["platform"])
    for platform in split(omit):
        one_of(platform, "platform", theirs)
    points = labelled(points[points["own"] | ~points["platform"].isin(split(omit))])
    left_out, told = incomplete(points, needed)
    points = points[points["platform"].isin(points[points["case"].isin(needed)]["platform"])]
    points = over_stride_1(points, names)
    points = points.assign(disturbed=points["disturbed"] | points["base_disturbed"])
    notes += left_out + remarks(records, points, "these patterns with stride 1")

    fig, axes = panels(len(cells), 2, 3.7)
    tell_lacking(fig, told)
    off: list[str] = []
    for ax, (kernel, names) in zip(axes, cells.items(), strict=True):
        ax.set(
            xlabel=f"Stride-1 {KERNELS[kernel]} bandwidth (GB/s)",
            ylabel=f"Bandwidth of {KERNELS[kernel]} patterns (GB/s)",
        )
        of_kernel = points[points["kernel"] == kernel]
        lowest = _shares(ax, of_kernel)
        below = of_kernel[of_kernel[BANDWIDTH] < lowest]
        off += [
            f"{row['case']} on {plain(row['platform'])}, {row[BANDWIDTH]:.2g} GB/s"
            for row in below.to_dict("records")
        ]
        of_kernel = of_kernel.assign(bandwidth_GBps=of_kernel[BANDWIDTH].clip(lower=lowest))
        below = of_kernel.loc[below.index]
        ax.plot(below["base_bandwidth_GBps"], below[BANDWIDTH], "kx", markersize=4, zorder=9.5,
                label="_off")  # fmt: skip
        _markers(ax, of_kernel, names)
        _name_platforms(ax, of_kernel)
    notes += [f"✕ below the scale: {'; '.join(off)}."] * bool(off)
    note(fig, [*notes, *disturbed_note(points), "In parentheses: threads."])
    return fig


def _shares(ax: Axes, points: DataFrame) -> float:
    """Set the scales, draw the diagonals of constant shares, and return the lowest bandwidth."""
    x, y = points["base_bandwidth_GBps"], points["bandwidth_GBps"]
    left, right = x.min() / 1.3, x.max() * 1.3
    top = float(max(y.max(), right) * 1.3)
    lowest = float(max(y.min(), top / 2**15))
    bottom = lowest / 1.6
    ax.set(xlim=(left, right), ylim=(bottom, top))
    log2_scales(ax, points, points, "bandwidth_GBps")
    ax.grid(False)
    octaves = np.arange(-20, 9, 1 if top / bottom < 2**14 else 2)
    shares = [share for share in 2.0**octaves if bottom < share * right < top]
    for share in shares:
        colour, width = (GREY, 1.0) if share == 1 else ("#d4d4d4", 0.6)
        ax.plot(
            [left, right], [share * left, share * right], color=colour, linewidth=width, zorder=1,
            label="_share",
        )  # fmt: skip
    edge = ax.secondary_yaxis("right", functions=(lambda y: y / right, lambda y: y * right))
    edge.set_yticks(shares, [fraction(share) for share in shares], minor=False, color=GREY)
    edge.tick_params(length=0, labelsize=6.5)
    edge.set_ylabel("Fraction of stride 1 (diagonals)", color=GREY)
    return lowest


def _markers(ax: Axes, points: DataFrame, patterns: Sequence[str]) -> None:
    """Draw one set of markers per pattern; markers of own records are larger, edged and on top."""
    strides = (other_look(0)._replace(color=GREY, marker=marker) for marker in "o*dHp<")
    others = map(other_look, count())
    for pattern in patterns:
        look = next(strides if _is_stride(pattern) else others)
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
        bars = look._replace(linestyle="none", zorder=8)
        intervals(ax, with_ends(own, BANDWIDTH), "base_bandwidth_GBps", BANDWIDTH, bars)
    legend_below(ax, DOUBLE_IN / 2)


def _name_platforms(ax: Axes, points: DataFrame) -> None:
    """Draw a vertical line for each platform and write its name above the axes."""
    platforms = points.drop_duplicates("platform")
    names = [
        plain(re.sub(r", ([^,]*) threads?$", r" (\1)", label), 30) for label in platforms["label"]
    ]
    x = platforms["base_bandwidth_GBps"]
    left, right = np.log2(ax.get_xlim())
    octave_in = 2.35 / (right - left)  # a panel is about 2.35 in wide, a line of text 0.115 in
    positions = 2 ** _spread(np.log2(x), 0.115 / octave_in, left, right)
    above = ax.get_xaxis_transform()
    for name, own, here, there in zip(names, platforms["own"], x, positions, strict=True):
        colour, width = ("black", 1.0) if own else ("#b0b0b0", 0.4)
        ax.axvline(here, color=colour, linewidth=width, zorder=1.2, label="_platform")
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
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.5,
                "shrinkA": 0,
                "shrinkB": 0,
                "relpos": (0.5, 0.0),
            },
        )


def _spread(positions: Series, width: float, low: float, high: float) -> Series:
    """Return the centres of labels of a width, moved as little as possible so that none overlap.

    The least-squares solution that keeps the order is an isotonic regression.
    """
    from pandas import Series
    from scipy.optimize import isotonic_regression

    ordered = positions.sort_values(kind="stable")
    shift = width * np.arange(len(ordered))
    fitted = np.clip(isotonic_regression(ordered - shift).x, low, max(low, high - shift[-1]))
    return Series(fitted + shift, ordered.index)[positions.index]
