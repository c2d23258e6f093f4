"""The paper's tables of applications, platforms and patterns, and patterns over stride 1.

Figure 9 has the bandwidth of patterns against that of stride 1; another figure has it by delta.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memkern import reference
from memkern.checks import LEAST, MOST, unknown
from memkern.families.spatter.data import (
    KERNELS,
    KINDS,
    STRIDE_1,
    application_patterns,
    incomplete,
    kernel_of,
    labels_of,
    looks_of,
    own_records,
    platforms_of,
    points_of,
    published,
    remarks,
)
from memkern.inputs.patterns import Pattern, custom, parse
from memkern.plots.kit import (
    DOUBLE_IN,
    GREY,
    Axes,
    DataFrame,
    Figure,
    InputError,
    Records,
    Selection,
    drawn,
    finish,
    fraction,
    frame_of,
    intervals,
    joined,
    legend_below,
    log2_axis,
    need_columns,
    note,
    other_look,
    panels,
    plain,
    spaced,
    split,
    table,
    tabulated,
    tell_lacking,
    ticks_at,
    with_ends,
)

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

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


@table(
    "spatter-table1",
    "application, class (of its patterns), kernel, gathers, scatters, moved_MB (by gathers and "
    "scatters) and moved_percent (of the bytes of all loads and stores)",
    paper="lavin2020",
    number="table 1",
    records="Not used",
    optional=True,
)
def traced_kernels(records: Records = None) -> Selection:
    """Gathers and scatters of kernels of four applications, as published."""
    return reference.load("lavin2020-kernels"), []


@table(
    "spatter-table2",
    "application, version, problem, changes and traced (the parts of the kernels)",
    paper="lavin2020",
    number="table 2",
    records="Not used",
    optional=True,
)
def traced_applications(records: Records = None) -> Selection:
    """Versions and problems of the applications from which the patterns were extracted."""
    return reference.load("lavin2020-applications"), []


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
    from pandas import DataFrame

    if stream_GBps == stream_GBps and not LEAST <= stream_GBps <= MOST:
        raise InputError(f"stream_GBps is {stream_GBps!r}, which is not a positive number")
    own, notes = own_records(records)
    rows = [
        {
            "platform": row["platform"],
            "abbreviation": "",
            "name": row["platform"],
            "kind": row["kind"],
            "row": "own",
            "stream_MBps": 1e3 * stream_GBps,
            "threads": row.get("threads") if row["kind"] == "cpu" else None,
            "backend": row["backend"],
        }
        for row in own.drop_duplicates("platform").to_dict("records")
    ]
    rows += [
        {
            **{name: row[name] for name in ("platform", "abbreviation", "name", "kind")},
            "row": "published",
            "stream_MBps": row["table3_stream_MBps"],
            "threads": row["table3_threads"],
            "backend": row["backend"],
        }
        for row in reference.rows("lavin2020-platforms")
        if row["table3_stream_MBps"] is not None
    ]
    frame = DataFrame(rows).round({"stream_MBps": 0})
    frame = frame.astype({"threads": "Int64", "stream_MBps": "Int64"})
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
    from pandas import DataFrame

    rows = [
        _described(row["pattern"], row["kernel"], custom(row["indices"]), row["delta"])
        | {"row": "published", "type": row["type"]}
        for row in reference.rows("lavin2020-patterns")
    ]
    unknown = []
    for text, kernel, delta in _own_patterns(records):
        try:
            pattern = parse(text)
        except InputError:  # a name that is no notation
            unknown.append(text)
        else:
            rows.append(_described(text, kernel, pattern, delta) | {"row": "own", "type": ""})
    columns = ["pattern", "kernel", "row", "index", "delta", "type", "class"]
    frame = DataFrame(rows)[columns]
    frame.attrs["notes"] = [
        f"{name} left out: records have the name of this pattern, but not its indices."
        for name in dict.fromkeys(unknown)
    ]
    return frame


def _own_patterns(records: Records) -> list[tuple[str, str, object]]:
    """Return pattern, kernel and delta of own gathers and scatters of no application."""
    if records is None:
        return []
    frame = frame_of(records)
    need_columns(frame, "kernel")
    frame = frame[frame["kernel"].isin(KERNELS)]
    if frame.empty:
        return []
    need_columns(frame, "pattern", "delta")
    frame = frame[~frame["pattern"].isin(application_patterns())]
    cases = frame[["pattern", "kernel", "delta"]].drop_duplicates()
    return [
        (str(text), str(kernel), delta) for text, kernel, delta in cases.itertuples(index=False)
    ]


def _described(name: str, kernel: str, pattern: Pattern, delta: object) -> dict[str, object]:
    most = 16
    shown = ",".join(map(str, pattern.indices[:most])) + ",..." * (len(pattern) > most)
    return {
        "pattern": name,
        "kernel": KERNELS[kernel],
        "index": f"[{shown}]",
        "delta": delta,
        "class": pattern.access_class,
    }


# --------------------------------------------------------------------------------------- figures


def _over_stride_1(points: DataFrame, cases: Collection[str]) -> DataFrame:
    """Return the points of some cases with those of stride 1, in columns with prefix ``base_``.

    The points of platforms and kernels without stride 1 are left out.
    """
    base = points[points["case"] == STRIDE_1].set_index(["platform", "kernel"])
    base = base[["bandwidth_GBps", "disturbed"]].add_prefix("base_")
    rows = points[points["case"].isin(cases)]
    return rows.join(base, on=["platform", "kernel"], how="inner")


@drawn(
    "spatter-delta",
    "A panel for CPUs and one for GPUs, 6.9 in wide.",
    paper="lavin2020",
    number="insight 5 of section 5.4.2",
    records="application patterns and of stride 1; the highest bandwidths are drawn",
    optional=True,
)
def bandwidth_by_delta(records: Records = None) -> Figure:
    """Bandwidth of application patterns over that of stride 1 against the delta of the pattern.

    The delta is that with which the pattern ran, in values of 8 B; of the 16 instances that GPUs
    merged into one, that from one to the next. Gathers are filled, and scatters are crossed out.
    """
    points, notes = points_of(records)
    left_out, told = incomplete(points)
    deltas = {row["pattern"]: row["delta"] for row in reference.rows("lavin2020-patterns")}
    points = _over_stride_1(points, deltas)
    points = points.assign(
        ratio=points["bandwidth_GBps"] / points["base_bandwidth_GBps"],
        delta=points["apart"].fillna(points["case"].map(deltas)),
    )
    others = points.loc[
        ~points["own"].astype(bool) & points["delta"].ne(points["case"].map(deltas)), "case"
    ]
    notes.append(f"GPUs ran {joined(sorted(set(others)))} with other deltas than table 5 has.")
    notes = [*notes, *left_out, *remarks(records, points, "application patterns and of stride 1")]
    labels = labels_of(points)
    fig, axes = panels(2, 2, 2.9)
    tell_lacking(fig, told)
    # Of both panels, which share a legend.
    looks = looks_of(platforms_of(points.sort_values("kind", kind="stable")))
    for ax, (kind, title) in zip(axes, KINDS.items(), strict=True):
        of_kind = points[points["kind"] == kind]
        for platform in platforms_of(of_kind):
            look = looks[platform]._replace(linestyle="none")
            rows = of_kind[of_kind["platform"] == platform]
            label = plain(labels[platform])
            ax.plot(rows["delta"], rows["ratio"], label=label, **look._asdict())
            for marks, name, how in (
                (
                    rows[rows["kernel"].ne("spatter.gather")],
                    "_scatter",
                    {"marker": "x", "color": "black"},
                ),
                (rows[rows["disturbed"]], "_disturbed", {"markerfacecolor": "white"}),
            ):
                style = look._replace(zorder=look.zorder + 0.05)._asdict() | how
                ax.plot(marks["delta"], marks["ratio"], label=name, **style)
        ax.axhline(1, color=GREY, linewidth=0.9, zorder=1, label="_equal")
        # A delta of 0 has a place of its own, at the left of 1.
        ax.set_xscale("symlog", linthresh=1)
        ax.set_xlim(-0.5, 1e7)
        ticks_at(ax.xaxis, [0, 1, 10, 100, 10**3, 10**4, 10**5, 10**6, 10**7], _short)
        ax.set_yscale("log", base=2)
        low, high = points["ratio"].min(), points["ratio"].max()
        ax.set_ylim(low / 1.5, high * 1.5)
        ax.yaxis.set_major_formatter(
            lambda share, _: fraction(share) if share < 1 else f"{share:g}"
        )
        ax.set(title=title, xlabel="Delta (values of 8 B)")
    axes[0].set_ylabel("Bandwidth over that of stride 1")
    return finish(fig, 4, [*notes, "Crossed out: scatters."], points)


def _short(delta: float) -> str:
    return spaced(delta) if delta < 10**4 else f"{delta / 10**6:g} M" if delta >= 10**6 else (
        f"{delta / 10**3:g} k"
    )  # fmt: skip


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
    points = _over_stride_1(points, [name for names in cells.values() for name in names])
    points = points.assign(disturbed=points["disturbed"] | points["base_disturbed"].eq(True))
    notes += remarks(records, points, "these patterns with stride 1")

    fig, axes = panels(len(cells), 2, 3.7)
    tell_lacking(fig, told)
    off: list[str] = []
    for ax, (kernel, names) in zip(axes, cells.items(), strict=True):
        word = KERNELS[kernel]
        ax.set(
            xlabel=f"Stride-1 {word} bandwidth (GB/s)",
            ylabel=f"Bandwidth of {word} patterns (GB/s)",
        )
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
    strides = filter(_is_stride, patterns)
    looks = {
        name: other_look(0)._replace(color=GREY, marker=marker)
        for name, marker in zip(strides, "o*dHp<", strict=False)
    }
    others = [name for name in patterns if name not in looks]
    looks |= {name: other_look(number) for number, name in enumerate(others)}
    for pattern in patterns:
        look = looks[pattern]
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
        ends = with_ends(own, "bandwidth_GBps")
        bars = look._replace(linestyle="none", zorder=8)
        intervals(ax, ends, "base_bandwidth_GBps", "bandwidth_GBps", bars)
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
    positions = 2 ** _spread(np.log2(x), 0.115 / octave_in, left, right)
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


def _spread(positions: NDArray[float64], width: float, low: float, high: float) -> NDArray[float64]:
    """Return the centres of labels of a width, moved as little as possible so that none overlap.

    The least-squares solution that keeps the order is an isotonic regression.
    """
    import numpy as np
    from scipy.optimize import isotonic_regression

    order = np.argsort(positions, kind="stable")
    shift = width * np.arange(len(positions))
    fitted = isotonic_regression(positions[order] - shift).x
    moved = np.empty(len(positions))
    moved[order] = np.clip(fitted, low, max(low, high - shift[-1])) + shift
    return moved
