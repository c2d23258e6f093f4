"""Figures, tables and report section of the gather/scatter family.

After Lavin et al., MEMSYS 2020, whose published platforms are drawn next to own records.
`memkern.families.spatter.data` documents which of several records of a case is drawn.
"""

from __future__ import annotations

from typing import Any

from memkern import reference
from memkern.families.spatter.data import (
    APPLICATIONS,
    KERNELS,
    KINDS,
    application_patterns,
    first_three,
    group_of,
    kernel_of,
    labelled,
    own_records,
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
    BANDWIDTH,
    QUANTITY,
    TITLE,
    Axes,
    Axis,
    Caption,
    Curves,
    DataFrame,
    InputError,
    Level,
    Measured,
    Records,
    Section,
    Selection,
    Shown,
    best,
    concat,
    counted,
    fraction,
    frame_of,
    joined,
    log2_scales,
    new_table,
    other_look,
    own_look,
    plain,
    quantities,
    section,
    section_of,
    tabulated,
)

# --------------------------------------------------------------------------- bandwidth by stride

_STRIDE = Axis("stride", "Stride (elements of 8 B)")
_BY_KERNEL: dict[str, Any] = {
    "x": _STRIDE,
    "y": Axis(BANDWIDTH, "Bandwidth (GB/s)", log2_scales),
    "layers": (Measured("label"),),
    "panels": (TITLE,),
    "shared": True,
    "height": 2.4,
    "returns": "Two panels, 6.9 in wide.",
}
_OF_PAPER: dict[str, Any] = {"paper": "lavin2020", "optional": True, **_BY_KERNEL}


def _by_kernel(rows: DataFrame) -> DataFrame:
    """Return records with the titles of panels, those of gathers first."""
    rows = rows.sort_values("kernel", kind="stable")
    return rows.assign(**{TITLE: rows["kernel"].map(KERNELS).str.capitalize()})


def _of_platforms(records: Records, kind: str, what: str) -> Selection:
    points, notes = points_of(records, kind)
    points = labelled(points[points["stride"].notna()])
    notes += remarks(records, points, f"uniform strides on a {what}")
    return _by_kernel(points.assign(label=points["label"].map(plain))), notes


@Curves(
    name="spatter-fig3",
    number="figure 3",
    records="Own records; those of uniform patterns whose instances do not overlap (delta = "
    "length times stride) are drawn beside the six published CPUs. Of several records of a "
    "stride, the one with the highest bandwidth is drawn",
    lack="a bandwidth is not positive",
    legend=3,
    **_OF_PAPER,
)
def strides_cpu(records: Records = None) -> Selection:
    """Bandwidth of gather and scatter against stride on CPUs."""
    return _of_platforms(records, "cpu", "CPU")


# Columns, looks and names of the bandwidths with and without prefetching.
_SIDES: tuple[tuple[str, Any, dict[str, str]], ...] = (
    (BANDWIDTH, own_look(0), {"prefetchers": "prefetchers on", "order": "ascending order"}),
    ("without_GBps", own_look(1), {"prefetchers": "prefetchers off", "order": "random order"}),
)


def _share_scales(*panel: Any) -> None:
    log2_scales(*panel)
    panel[0].yaxis.set_major_formatter(lambda share, _: fraction(share))


@Curves(
    name="spatter-fig4",
    x=_STRIDE,
    y={
        "GBps": Axis("GBps", "Bandwidth (GB/s)", log2_scales),
        "share": Axis("share", "Share of stride 1", _share_scales),
    },
    layers=(Measured("label"),),
    panels=("platform", "kernel", "way", QUANTITY),
    height=1.8,
    returns="A row of two panels for each platform, kernel and way of comparing, 6.9 in wide.",
    paper="lavin2020",
    number="figure 4",
    records="uniform strides with the prefetchers off and as they are, or of patterns "
    "``BASES:length:stride:count`` with and without a seed. A pair of records differs only in "
    "that, and in the variant that was the fastest",
    lack="no pattern was measured with and without prefetchers or, where they can't be switched, "
    "as BASES:8:STRIDE:1024 and BASES:8:STRIDE:1024:1",
    measure="memkern suite ustride-cpu --prefetchers default,off",
)
def without_prefetchers(records: Records = None) -> Selection:
    """Bandwidth with and without hardware prefetchers against stride, and over that of stride 1.

    If prefetchers can't be switched (``--prefetchers default,off``), instances of the pattern in
    random order are compared with ascending order, which shows the gain by prefetching.
    """
    pairs, notes = prefetcher_pairs(records)
    frame = concat(
        pairs.assign(GBps=pairs[column], label=pairs["way"].map(names), look=[look] * len(pairs))
        for column, look, names in _SIDES
    )
    keys = ["platform", "kernel", "way", "label"]
    first = frame[frame["stride"].eq(1)].set_index(keys)["GBps"].rename("first")
    frame = frame.join(first, on=keys)
    frame = quantities(frame.assign(share=frame["GBps"] / frame["first"]), "GBps", "share")
    words, names = frame["kernel"].map(KERNELS), frame["platform"].map(plain)
    alone = (names + ": no " + words + " of stride 1 in both ways.")[frame["share"].isna()]
    machines = ": " + frame["platform"].map(lambda platform: plain(platform, 32))
    over = machines.mask(frame[QUANTITY].eq("share"), ", each over its own stride 1")
    notes += [
        *alone.unique(),
        "The paper's bandwidths without prefetchers were not published as numbers.",
    ]
    return frame.assign(**{TITLE: words.str.capitalize() + over}), notes


@Curves(
    name="spatter-fig5",
    number="figure 5",
    records="Own records; those of the backend cuda are drawn beside the four published GPUs",
    **_OF_PAPER,
)
def strides_gpu(records: Records = None) -> Selection:
    """Bandwidth of gather and scatter against stride on GPUs."""
    return _of_platforms(records, "gpu", "GPU (backend cuda)")


def _ratio_scales(ax: Axes, rows: DataFrame, frame: DataFrame, column: str) -> None:
    low, high = min(0.8, frame[column].min()), max(1.25, frame[column].max())
    margin = (high / low) ** 0.06
    ax.set_ylim(low / margin, high * margin)
    log2_scales(ax, rows, frame, column)


@Curves(
    name="spatter-fig6",
    paper="lavin2020",
    number="figure 6",
    records="uniform strides with the variants scalar, and simd or auto",
    lack="no uniform stride was measured both with the variant scalar and with simd or auto",
    measure="memkern report",
    legend=2,
    **_BY_KERNEL
    | {
        "y": Axis("ratio", "Bandwidth over that of scalar code", _ratio_scales),
        "layers": (Measured("label"), Level(1)),
    },
)
def simd_against_scalar(records: Records = None) -> Shown:
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
    cases = cases[paired].assign(bandwidth_GBps=table.max(axis=1))
    cases = best(cases, ("platform", "kernel", "stride"))
    cases = cases.assign(place=2 * cases.groupby("platform", sort=False).ngroup())
    frame = concat(
        cases.assign(variant=variant, ratio=table[variant] / table["scalar"]).dropna(subset="ratio")
        for variant in ("simd", "auto")
    )
    frame = frame.sort_values(["place", "variant"], ascending=[True, False], kind="stable")
    looks: Any = [*map(own_look, frame["place"] + frame["variant"].eq("auto"))]
    several = cases["platform"].nunique() > 1
    label = frame["variant"] + (", " + frame["platform"].map(plain) if several else "")
    left_out, told = unpaired(strides, cases, "two variants", "--variant scalar,simd")
    return Shown(_by_kernel(frame.assign(look=looks, label=label)), notes + left_out, told)


@Curves(
    name="spatter-pages",
    records="uniform strides under two page policies or more. The best variant of each is drawn; "
    "of several own platforms, the one with the most policies",
    lack="no platform was measured under two page policies",
    measure="memkern report",
    legend=3,
    **_BY_KERNEL
    | {
        "layers": (
            Measured("label", lambda n: other_look(n)._replace(linewidth=1.3, markersize=4.0)),
        )
    },
)
def page_policies(records: Records = None) -> Shown:
    """Bandwidth of gather and scatter against stride for each page policy measured."""
    strides, notes = own_records(records, ("pages_requested", "pages"))
    strides = strides[strides["stride"].notna() & strides["pages_requested"].notna()]
    policies = strides.groupby("platform", sort=False)["pages_requested"].nunique()
    own = strides[strides["platform"].isin(policies[policies.gt(1)].nlargest(1).index)]
    left_out, told = unpaired(strides, own, "as many page policies", "--pages 4k,thp")
    own = best(own, ("pages_requested", "kernel", "stride")).sort_values(
        "pages_requested", kind="stable"
    )
    asked = own["pages_requested"].astype(str)
    got = own.groupby(asked)["pages"].agg(
        lambda pages: ", ".join(sorted({*map(str, pages.dropna())}))
    )
    got = asked.map(got).astype(str)
    label = asked + (" (obtained: " + got + ")").mask(got.eq("") | got.eq(asked), "")
    return Shown(_by_kernel(own.assign(label=label.map(plain))), notes + left_out, told)


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
    from memkern.statistics import harmonic_mean, pearson

    if stream_GBps <= 0 or stream_GBps == float("inf"):
        raise InputError(f"stream_GBps is {stream_GBps!r}, which is not a positive number")
    stream = reference.load("lavin2020-platforms").set_index("platform")["table4_stream_GBps"]
    points, notes = points_of(records)
    points = points[points["kernel"].eq(points["case"].map(kernel_of)) & points["stride"].isna()]
    table = points.pivot_table(BANDWIDTH, ["kind", "own", "platform"], "case", sort=False).reindex(
        columns=application_patterns()
    )
    means = {
        each: table.filter(like=f"{each}-").dropna().apply(harmonic_mean, axis=1)
        for each in APPLICATIONS
    }
    rows = new_table(means, table.index).reset_index()
    rows = rows.assign(
        row=rows["own"].map({True: "own", False: "published"}),
        STREAM=rows["platform"].map(stream).mask(rows["own"], stream_GBps),
    )
    parts = []
    for kind, name in KINDS.items():
        mine = rows[rows["kind"] == kind]
        known = mine[~mine["own"] & mine["STREAM"].notna()]
        r = {each: pearson(known[each], known["STREAM"]) for each in APPLICATIONS}
        about = {"platform": f"Pearson's R, published {name}", "kind": kind, "row": "R"}
        parts += [mine, new_table([{**about, **r}])]
    frame = concat(parts)[["platform", "kind", "row", *APPLICATIONS, "STREAM"]].reset_index(
        drop=True
    )
    frame.attrs["notes"] = [*notes, *_in_no_mean(records), *_without_mean(points[points["own"]])]
    return frame


def _in_no_mean(records: Records) -> list[str]:
    """Return notes on records of other kernels, and of patterns not from an application."""
    if records is None:
        return []
    frame = frame_of(records)
    ours = frame["kernel"].isin(KERNELS)
    strange = ours & ~frame["pattern"].isin(application_patterns())
    return [
        f"{counted(len(names), 'record')} of {what} ({first_three([*names.unique()])}) left out."
        for names, what in (
            (frame[~ours]["kernel"], "other kernels than gather and scatter"),
            (frame[strange]["pattern"].astype(str), "patterns that are no application's"),
        )
        if len(names)
    ]


def _without_mean(own: DataFrame) -> list[str]:
    """Return notes on the applications without a mean, with the patterns that are missing."""
    notes = []
    groups = own.groupby(["platform", own["case"].map(group_of)], sort=False)
    for (platform, application), rows in groups:
        lacking = [
            name
            for name in application_patterns()
            if name.startswith(str(application)) and name not in set(rows["case"])
        ]
        if lacking:
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
    # Pairs with and without prefetchers require root or an explicit request.
    rare = (without_prefetchers,)
    title, citation = "Gather and scatter", reference.cite("lavin2020")
    return section_of(frame, title, findings, exhibits, citation, rare)
