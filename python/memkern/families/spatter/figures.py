"""Figures, tables and report section of the gather/scatter family.

After Lavin et al., MEMSYS 2020, whose published platforms are drawn next to own records.
`memkern.families.spatter.data` documents which of several records of a case is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from memkern import reference
from memkern.families.spatter.data import (
    APPLICATIONS,
    KERNELS,
    KINDS,
    Bandwidths,
    application_patterns,
    bandwidths,
    kernel_of,
    labels_of,
    looks_of,
    own_records,
    platforms_of,
    points_of,
    prefetcher_pairs,
    remarks,
    same_cases,
    unpaired,
)
from memkern.families.spatter.findings import findings
from memkern.families.spatter.of_paper import bandwidth_bandwidth, bandwidth_by_delta
from memkern.families.spatter.radars import radars_cpu, radars_gpu
from memkern.plots.kit import (
    GREY,
    Axes,
    Caption,
    DataFrame,
    Figure,
    InputError,
    Look,
    Records,
    Section,
    best,
    counted,
    curve,
    disturbed_note,
    drawn,
    finish,
    fraction,
    frame_of,
    joined,
    log2_axis,
    need_rows,
    note,
    other_look,
    own_look,
    panels,
    plain,
    section,
    section_of,
    tabulated,
    tell_lacking,
)

_MEASURE = "`memkern report` measures them"
_BANDWIDTH = ("bandwidth_GBps", "Bandwidth (GB/s)")


# --------------------------------------------------------------------------- bandwidth by stride


class _Series(NamedTuple):
    label: str
    look: Look
    rows: DataFrame  # columns kernel, stride, disturbed and the one that is drawn
    own: bool = False


def _by_stride(
    series: Sequence[_Series], column: str, label: str, columns: int, notes: Sequence[str]
) -> Figure:
    """Draw one column against the stride: a panel for each kernel, the legend above.

    Ratios have a line at 1.
    """
    kernels = {
        kernel: word
        for kernel, word in KERNELS.items()
        if any(one.rows["kernel"].eq(kernel).any() for one in series)
    }
    fig, axes = panels(len(kernels), 2, 2.4, sharex=True, sharey=True)
    for ax, (kernel, word) in zip(axes, kernels.items(), strict=True):
        for name, look, rows, _ in series:
            curve(ax, rows[rows["kernel"] == kernel], "stride", column, look, name)
        ax.set_title(word.capitalize())
    for ax in axes:
        if column == "ratio":
            ratios = [value for one in series for value in one.rows["ratio"]]
            low, high = min(0.8, *ratios), max(1.25, *ratios)
            margin = (high / low) ** 0.06
            ax.axhline(1, color=GREY, linewidth=0.9, zorder=1, label="_equal")
            ax.set_ylim(low / margin, high * margin)
        _log2_scales(ax)
    axes[0].set_ylabel(label)
    handles, labels = axes[0].get_legend_handles_labels()
    columns = columns if len(kernels) > 1 else (columns + 1) // 2
    legend = fig.legend(handles, labels, loc="outside upper center", ncols=columns)
    for text, one in zip(legend.get_texts(), series, strict=True):
        text.set_fontweight("bold" if one.own else "normal")
    note(fig, notes)
    return fig


def _log2_scales(ax: Axes) -> None:
    """Make both axes logarithmic, that of x for strides."""
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    log2_axis(ax.xaxis)
    log2_axis(ax.yaxis)
    ax.set_xlabel("Stride (elements of 8 B)")


def _platforms_by_stride(records: Records, kind: str) -> Figure:
    points, notes = points_of(records, kind)
    points = points[points["stride"].notna()]
    what = "uniform strides on a " + ("CPU" if kind == "cpu" else "GPU (backend cuda)")
    notes += remarks(records, points, what)
    platforms, labels = platforms_of(points), labels_of(points)
    looks = looks_of(platforms)
    series = [
        _Series(
            plain(labels[platform]), looks[platform], points[points["platform"] == platform], own
        )
        for platform, own in platforms.items()
    ]
    return _by_stride(series, *_BANDWIDTH, 3 if kind == "cpu" else 4, notes)


@drawn(
    "spatter-fig3",
    "Two panels, 6.9 in wide.",
    paper="lavin2020",
    number="figure 3",
    records="Own records; those of uniform patterns whose instances do not overlap (delta = "
    "length times stride) are drawn beside the six published CPUs. Of several records of a "
    "stride, the one with the highest bandwidth is drawn",
    lack="a bandwidth is not positive",
    optional=True,
)
def strides_cpu(records: Records = None) -> Figure:
    """Bandwidth of gather and scatter against stride on CPUs."""
    return _platforms_by_stride(records, "cpu")


# Names of the bandwidths with and without prefetching.
_WAYS = {
    "switched": ("prefetchers on", "prefetchers off"),
    "order": ("ascending order", "random order"),
}


@drawn(
    "spatter-fig4",
    "A row of two panels for each platform, kernel and way of comparing, 6.9 in wide.",
    paper="lavin2020",
    number="figure 4",
    records="uniform strides with the prefetchers off and as they are, or of patterns "
    "``BASES:length:stride:count`` with and without a seed. A pair of records differs only in "
    "that, and in the variant that was the fastest",
    lack="no pair of records to compare",
)
def without_prefetchers(records: Records = None) -> Figure:
    """Bandwidth with and without hardware prefetchers against stride, and over that of stride 1.

    If prefetchers can't be switched (``--prefetchers default,off``), instances of the pattern in
    random order are compared with ascending order, which shows the gain by prefetching.
    """
    pairs, notes = prefetcher_pairs(records)
    need_rows(
        pairs,
        "no pattern was measured with and without prefetchers: give memkern spatter the "
        "option --prefetchers default,off or, where they can't be switched, the patterns "
        "BASES:8:STRIDE:1024 and BASES:8:STRIDE:1024:1",
    )
    pairs = pairs.assign(without_GBps=pairs["ratio"] * pairs["bandwidth_GBps"])
    cells = []
    for (platform, kernel, way), rows in pairs.groupby(["platform", "kernel", "way"], sort=False):
        word, names = KERNELS[str(kernel)], _WAYS[str(way)]
        cells.append((rows, names, f"{word.capitalize()}: {plain(platform, 32)}", False))
        if rows["stride"].eq(1).any():
            title = f"{word.capitalize()}, each over its own stride 1"
            cells.append((rows, names, title, True))
        else:
            notes = [*notes, f"{plain(platform)}: no {word} of stride 1 in both ways."]
    fig, axes = panels(len(cells), 2, 1.8)
    for ax, (rows, names, title, shares) in zip(axes, cells, strict=True):
        _with_and_without(ax, rows, names, shares)
        ax.set_title(title)
    notes = [*notes, "The paper's bandwidths without prefetchers were not published as numbers."]
    return finish(fig, 4, notes, pairs)


def _with_and_without(ax: Axes, rows: DataFrame, names: Sequence[str], shares: bool) -> None:
    """Draw the bandwidths with and without prefetching, or their shares of those at stride 1."""
    columns = ("bandwidth_GBps", "without_GBps")
    for number, (column, name) in enumerate(zip(columns, names, strict=True)):
        base = rows.loc[rows["stride"].eq(1), column]
        if shares:
            rows = rows.assign(share=rows[column] / base.iloc[0])
        curve(ax, rows, "stride", "share" if shares else column, own_look(number), name)
    _log2_scales(ax)
    ax.set_ylabel("Share of stride 1" if shares else "Bandwidth (GB/s)")
    if shares:
        ax.yaxis.set_major_formatter(lambda share, _: fraction(share))


@drawn(
    "spatter-fig5",
    "Two panels, 6.9 in wide.",
    paper="lavin2020",
    number="figure 5",
    records="Own records; those of the backend cuda are drawn beside the four published GPUs",
    optional=True,
)
def strides_gpu(records: Records = None) -> Figure:
    """Bandwidth of gather and scatter against stride on GPUs."""
    return _platforms_by_stride(records, "gpu")


@drawn(
    "spatter-fig6",
    "Two panels, 6.9 in wide.",
    paper="lavin2020",
    number="figure 6",
    records="uniform strides with the variants scalar, and simd or auto",
    lack="no pair of records to compare",
)
def simd_against_scalar(records: Records = None) -> Figure:
    """Improvement of vectorised variants over scalar code against stride, as a ratio.

    Only own records are drawn: the published data have no scalar runs. A pair of records differs
    only in the variant; if a stride has several pairs (page policies, thread counts), the pair with
    the highest bandwidth is drawn.
    """
    own, notes = own_records(records, ("variant",))
    strides = own[own["stride"].notna()]
    table, cases = same_cases(strides, "variant")
    table = table.reindex(columns=["scalar", "simd", "auto"])
    paired = table["scalar"].notna() & table[["simd", "auto"]].notna().any(axis=1)
    if not paired.any():
        raise InputError(
            "no uniform stride was measured both with the variant scalar and with simd or auto: "
            f"{_MEASURE}"
        )
    cases = cases[paired].assign(bandwidth_GBps=table.max(axis=1))
    cases = best(cases, ("platform", "kernel", "stride"))
    platforms = cases["platform"].unique()
    series = []
    for number, platform in enumerate(platforms):
        rows = cases[cases["platform"] == platform]
        for i, variant in enumerate(("simd", "auto")):
            drawn = rows.assign(ratio=table[variant] / table["scalar"]).dropna(subset="ratio")
            label = variant if len(platforms) == 1 else f"{variant}, {plain(platform)}"
            if len(drawn):
                series.append(_Series(label, own_look(2 * number + i), drawn))
    left_out, told = unpaired(strides, cases, "two variants", "--variant scalar,simd")
    notes = [*notes, *left_out, *disturbed_note(cases)]
    fig = _by_stride(series, "ratio", "Bandwidth over that of scalar code", 2, notes)
    tell_lacking(fig, told)
    return fig


@drawn(
    "spatter-pages",
    "Two panels, 6.9 in wide.",
    records="uniform strides under two page policies or more. The best variant of each is drawn; "
    "of several own platforms, the one with the most policies",
    lack="fewer than two page policies",
)
def page_policies(records: Records = None) -> Figure:
    """Bandwidth of gather and scatter against stride for each page policy measured."""
    own, notes = own_records(records, ("pages_requested", "pages"))
    own = own[own["stride"].notna() & own["pages_requested"].notna()]
    policies = own.groupby("platform", sort=False)["pages_requested"].nunique()
    if policies.empty or policies.max() < 2:
        raise InputError(f"no platform was measured under two page policies: {_MEASURE}")
    strides, own = own, own[own["platform"] == policies.idxmax()]
    left_out, told = unpaired(strides, own, "as many page policies", "--pages 4k,thp")
    own = best(own, ("pages_requested", "kernel", "stride"))
    series = []
    for number, policy in enumerate(sorted(own["pages_requested"].unique())):
        rows = own[own["pages_requested"] == policy]
        obtained = ", ".join(sorted({str(pages) for pages in rows["pages"].dropna()}))
        label = policy if obtained in ("", policy) else f"{policy} (obtained: {obtained})"
        look = other_look(number)._replace(linewidth=1.3, markersize=4.0)
        series.append(_Series(plain(label), look, rows))
    fig = _by_stride(series, *_BANDWIDTH, 3, [*notes, *left_out, *disturbed_note(own)])
    tell_lacking(fig, told)
    return fig


# ---------------------------------------------------------------------------------------- tables


@tabulated(
    "spatter-table4",
    '``attrs["notes"]`` lists the records left out, and why. Columns platform, kind ("cpu" or '
    '"gpu"), row ("own", "published" or "R"), AMG, LULESH, NEKBONE, PENNANT and STREAM. '
    'The rows "own" and "published" are in GB/s, with STREAM as printed in table 4. A row '
    '"R" has Pearson\'s R of each column with the STREAM column over the published platforms of '
    "that kind, except V100, which has no STREAM bandwidth.",
    paper="lavin2020",
    number="table 4",
    records="application patterns; of several records, the highest bandwidth is used",
    lack="a STREAM bandwidth that is not positive",
    optional=True,
)
def application_means(records: Records = None, stream_GBps: float = float("nan")) -> DataFrame:
    """Harmonic mean of the bandwidth per application and platform, and Pearson's R with STREAM.

    The mean is over the gather and scatter patterns of an application together, as in the paper. An
    own platform has a mean only if all patterns of the application were measured. The R that are
    printed in the paper are not used.

    Parameters
    ----------
    stream_GBps : float
        STREAM bandwidth of the own machine in GB/s, for its last column.
    """
    from pandas import DataFrame

    from memkern.statistics import harmonic_mean, pearson

    if stream_GBps <= 0 or stream_GBps == float("inf"):
        raise InputError(f"stream_GBps is {stream_GBps!r}, which is not a positive number")
    nothing = float("nan")
    stream = {
        row["platform"]: nothing if row["table4_stream_GBps"] is None else row["table4_stream_GBps"]
        for row in reference.rows("lavin2020-platforms")
    }
    points, notes = points_of(records)
    notes += _in_no_mean(records)
    table = []
    for kind, name in KINDS.items():
        of_kind = points[(points["kind"] == kind) & points["stride"].isna()]
        means, platforms = {}, platforms_of(of_kind)
        for platform, measured in bandwidths(of_kind).items():
            groups = {
                application: [measured.get((kernel_of(pattern), pattern), 0.0) for pattern in every]
                for application, every in _by_application().items()
            }
            means[platform] = {
                application: harmonic_mean(values) if min(values) > 0 else nothing
                for application, values in groups.items()
            }
            own = platforms[platform]
            notes += _without_mean(platform, measured) if own else []
            about = {"platform": platform, "kind": kind, "row": "own" if own else "published"}
            table.append(
                {**about, **means[platform], "STREAM": stream_GBps if own else stream[platform]}
            )
        known = [p for p, own in platforms.items() if not own and stream[p] == stream[p]]
        correlation = {
            application: pearson([means[p][application] for p in known], [stream[p] for p in known])
            for application in APPLICATIONS
        }
        about = {"platform": f"Pearson's R, published {name}", "kind": kind, "row": "R"}
        table.append({**about, **correlation, "STREAM": nothing})
    frame = DataFrame(table)
    frame.attrs["notes"] = notes
    return frame


def _by_application() -> dict[str, list[str]]:
    """Return the patterns of each application."""
    return {
        application: [name for name in application_patterns() if name.startswith(application)]
        for application in APPLICATIONS
    }


def _in_no_mean(records: Records) -> list[str]:
    """Return notes on records of other kernels, and of patterns not from an application."""
    if records is None:
        return []
    frame = frame_of(records)
    ours = frame["kernel"].isin(KERNELS)
    others = frame[ours & ~frame["pattern"].isin(application_patterns())]["pattern"]
    notes = []
    if not ours.all():
        kernels = joined(sorted({str(kernel) for kernel in frame["kernel"][~ours]}))
        left = counted(int((~ours).sum()), "record")
        notes.append(f"{left} of other kernels than gather and scatter ({kernels}) left out.")
    if len(others):
        names = list(dict.fromkeys(map(str, others)))
        more = f" and {len(names) - 3} more" * (len(names) > 3)
        notes.append(
            f"{counted(len(others), 'record')} of patterns that are no application's "
            f"({', '.join(names[:3])}{more}) left out."
        )
    return notes


def _without_mean(platform: str, measured: Bandwidths) -> list[str]:
    """Return notes on the applications without a mean, with the patterns that are missing."""
    notes = []
    for application, every in _by_application().items():
        lacking = [name for name in every if (kernel_of(name), name) not in measured]
        if 0 < len(lacking) < len(every):
            notes.append(
                f"{platform} has no mean of {application}, whose other records are left out: no "
                f"valid record of {joined(lacking)}."
            )
    return notes


# ---------------------------------------------------------------------------------------- report

_PUBLISHED = "Published platforms after Lavin et al. 2020."
_BEST = "Of several records of a case, the highest bandwidth is drawn."


_STRIDES = (
    "Both axes are logarithmic. With lines of 64 B, the unused part of each line grows up to "
    "stride 8, so that bandwidth halves with each doubling of the stride; at larger strides it "
    f"depends on prefetchers and address translation. {_BEST} {_PUBLISHED}"
)

_EXHIBITS: tuple[tuple[str, Any, Caption, str | None], ...] = (
    (
        "Bandwidth against stride", strides_cpu, _STRIDES, "cpu",
    ),
    (
        "Bandwidth against stride on GPUs", strides_gpu,
        "Both axes are logarithmic. The stride at which the first drop ends shows the size of a "
        f"memory access: stride 4 for 32 B, stride 8 for 64 B. {_BEST} {_PUBLISHED}", "gpu",
    ),
    (
        "Without prefetchers", without_prefetchers,
        "The distance between the curves is the gain by prefetchers: the bandwidth with them "
        "switched on and off or, where they can't be switched, of instances in ascending and in "
        "random order. At the right each curve is relative to its own stride 1: its share at large "
        "strides shows how many lines an access moves, 1/8 for one of 64 B and 1/16 for two.", None,
    ),
    (
        "Vectorised against scalar code", simd_against_scalar,
        "Above the line the variant is faster than scalar code of the same case, below it slower.",
        None,
    ),
    (
        "Page policies", page_policies,
        "The larger the stride, the more pages are accessed per byte, and the greater the effect "
        "of the page size. The best variant of each policy is drawn.", None,
    ),
    (
        "Application patterns against stride 1", radars_cpu,
        "One radar per platform, one spoke per pattern. Outside the black ring a pattern runs "
        "faster than stride 1, because its data are reused from cache; far inside, each instance "
        f"waits for memory. {_BEST} {_PUBLISHED}", "cpu",
    ),
    (
        "Application patterns against stride 1 on GPUs", radars_gpu,
        "One radar per GPU, one spoke per pattern. Outside the black ring a pattern runs faster "
        "than stride 1. The published GPUs ran 16 instances of a pattern merged into one. "
        f"{_BEST} {_PUBLISHED}", "gpu",
    ),
    (
        "Application patterns by delta", bandwidth_by_delta,
        "Delta is the distance between two instances of a pattern: with small ones they share "
        "lines, with large ones each waits for memory and address translation. "
        f"{_BEST} {_PUBLISHED}", None,
    ),
    (
        "Pattern bandwidth against stride-1 bandwidth", bandwidth_bandwidth,
        "Each vertical line is a platform, each diagonal a constant share of its stride-1 "
        "bandwidth. The bandwidth of a pattern whose markers follow a diagonal grows with that of "
        "stride 1; where the markers cross the diagonals downwards, it does not. "
        f"{_BEST} {_PUBLISHED}", None,
    ),
    (
        "Harmonic means per application", application_means,
        "Bandwidth in GB/s, gathers and scatters together, beside the STREAM bandwidth of the "
        "paper's table 4; the rows R are Pearson's correlation of each column with STREAM, "
        f"computed from these data. {_PUBLISHED}", None,
    ),
)  # fmt: skip


@section("spatter", 1)
def report_section(records: DataFrame) -> Section | None:
    """Gather and scatter: findings, figures and table 4.

    Parameters
    ----------
    records : DataFrame
        All records of a report.

    Returns
    -------
    Section or None
        None if no record is a gather or a scatter.

    Raises
    ------
    InputError
        As `strides_cpu`.
    """
    frame = frame_of(records)
    if "kernel" not in frame or not frame["kernel"].isin(list(KERNELS)).any():
        return None
    # An error for missing columns is raised here, since section_of would turn it into a remark.
    kinds = set(own_records(frame, ("variant", "pages"))[0]["kind"])
    exhibits = [each[:3] for each in _EXHIBITS if each[3] in (None, *kinds)]
    citation = reference.cite("lavin2020")
    # Pairs with and without prefetchers require root or an explicit request.
    rare = (without_prefetchers,)
    return section_of(frame, "Gather and scatter", findings, exhibits, citation, rare)
