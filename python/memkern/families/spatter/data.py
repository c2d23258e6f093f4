"""Records of gathers and scatters: own records and the published ones of Lavin et al. 2020.

If a case has several own records (variants, page policies, chunks, repeats), the one with the
highest bandwidth is used, preferably with the published count. Only float64 is used, since the
published results have no other type.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import cache
from string import digits
from typing import Any

from memkern import reference
from memkern.backends import ACCELERATORS
from memkern.plots.kit import (
    BANDWIDTH,
    DataFrame,
    Records,
    Shown,
    best,
    concat,
    counted,
    lines_B,
    marked_ratio,
    other_look,
    own_look,
    percent,
    plain,
    typed,
    usable,
    words,
)
from memkern.results.ratios import NEEDED, Ratio
from memkern.spec.columns import of_kind

GATHER, SCATTER = "spatter.gather", "spatter.scatter"
KERNELS = {GATHER: "gather", SCATTER: "scatter"}
APPLICATIONS = ("AMG", "LULESH", "NEKBONE", "PENNANT")
KINDS = {"cpu": "CPUs", "gpu": "GPUs"}
OWN = "own"
"""The beginning of the case of a pattern that the user named, in place of an application."""
STRIDE_1 = "stride 1"
_LINE = 8  # doubles of a cache line

_UNIFORM = r"^UNIFORM:(?P<pattern_length>\d+):(?P<stride>\d+)(?P<NR>:NR)?$"
_BASES = r"^BASES:\d+:(?P<stride>\d+):(?P<instances>\d+)(?P<seed>:\d+)?$"
_COLUMNS = ("suite", "pattern", "delta", "backend", "dtype", "count_rule")

# Columns that identify a case, with the variant that ran instead of the requested one.
_CASE = (
    *("platform", "kernel", "backend", "variant", "ranks"),
    *(column for column in of_kind("input", "requested") if column != "variant_requested"),
)


def _with_case(frame: DataFrame) -> DataFrame:
    """Add the columns stride, case (stride or pattern) and apart.

    The stride is that of a uniform pattern whose instances do not overlap, NaN for others. The last
    is the delta of an application pattern, also where several instances are merged.
    """
    patterns = frame["pattern"].astype(str)
    uniform = patterns.str.extract(_UNIFORM)
    numbers = typed(frame, ["delta", "pattern_length", "stride"])
    # Published data and files of older versions lack the columns of length and stride.
    length, stride = (
        uniform[name].astype(float).fillna(numbers[name]) for name in ("pattern_length", "stride")
    )
    disjoint = uniform["NR"].notna() | numbers["delta"].eq(length * stride)
    stride = stride.where(disjoint & stride.gt(0))
    cases = patterns.where(stride.isna(), stride.map("stride {:g}".format))
    # All patterns of applications have 16 indices.
    apart = numbers["delta"] * 16 / numbers["pattern_length"]
    return frame.assign(stride=stride, case=cases, apart=apart)


@cache
def published() -> DataFrame:
    """Return the published results in the shape of `points_of`."""
    return (
        _with_case(reference.load("lavin2020"))
        .assign(own=False, disturbed=False, paper=True)
        .astype({"threads": float})
    )


def _of_doubles(records: Records, columns: Iterable[str] = ()) -> tuple[DataFrame, list[str]]:
    """Return the usable own records of doubles as by `_with_case`, and notes on the others."""
    frame, notes = usable(records, list(KERNELS), [*_COLUMNS, *columns])
    double = frame["dtype"].eq("float64")
    left_out = counted(int((~double).sum()), "record")
    notes += [f"{left_out} in another type than float64 left out."] * (not double.all())
    return _with_case(frame[double]), notes


def own_records(
    records: Records, columns: Iterable[str] = (), *, named: bool = False
) -> tuple[DataFrame, list[str]]:
    """Return the usable own records of uniform strides and of application patterns.

    Parameters
    ----------
    records : DataFrame, ResultSet or None
        Own records.
    columns : iterable of str
        Required columns in addition to those of every figure.
    named : bool
        Whether to return those of other patterns with a name as well. Their case is ``own-G`` or
        ``own-S``, for gather or scatter, and the name.

    Returns
    -------
    frame : DataFrame
        The columns of the records and own (True), kind ("cpu" or "gpu"), stride, case and paper
        (whether the count is the published one).
    notes : list of str
        Sentences on the records left out.

    Raises
    ------
    InputError
        As `memkern.plots.frames.usable`.
    """
    frame, notes = _of_doubles(records, columns)
    if "prefetchers" in frame:
        # Only `prefetcher_pairs` compares them.
        frame = frame[~frame["prefetchers"].eq("off")]
    kinds = frame["backend"].isin(ACCELERATORS).map({True: "gpu", False: "cpu"})
    frame = frame.assign(own=True, kind=kinds, paper=frame["count_rule"].eq("paper"))
    shown = frame["stride"].notna() | frame["case"].isin(application_patterns())
    if named and "name" in frame:
        names = words(frame["name"])
        others = ~shown & names.ne("")
        letters = frame["kernel"].map({GATHER: "G", SCATTER: "S"})
        frame = frame.assign(case=frame["case"].mask(others, f"{OWN}-" + letters + " " + names))
        shown |= others
    return frame[shown], notes


def prefetcher_pairs(records: Records) -> tuple[DataFrame, list[str]]:
    """Return the bandwidths with prefetching, and without it (off, or in random order).

    Parameters
    ----------
    records : DataFrame, ResultSet or None
        Own records.

    Returns
    -------
    pairs : DataFrame
        Columns platform, kernel, way (``prefetchers``: the default and off, ``order``: instances
        of a pattern in ascending and in random order), stride, bandwidth_GBps, without_GBps and
        disturbed.
    notes : list of str
        Sentences on the records left out.

    Raises
    ------
    InputError
        As `memkern.plots.frames.usable`.
    """
    frame, notes = _of_doubles(records)
    found = frame["pattern"].astype(str).str.extract(_BASES)
    in_order = frame.assign(
        stride=found["stride"].astype(float),
        instances=found["instances"],
        order=found["seed"].notna().map({True: "random", False: "ascending"}),
    )
    parts = [_pairs(in_order, "order", "ascending", "random", ("pattern", "variant"))]
    if "prefetchers" in frame:
        parts.insert(0, _pairs(frame, "prefetchers", "default", "off", ("variant",)))
    pairs = concat(parts).reset_index(drop=True).astype({"disturbed": bool})
    return best(pairs, ("platform", "kernel", "way", "stride")), notes


def _pairs(frame: DataFrame, way: str, before: str, after: str, ignore: Sequence[str]) -> DataFrame:
    """Return the strides with both values of the column `way`, and their bandwidths."""
    table, cases = same_cases(frame[frame["stride"].notna()], way, ignore)
    table = table.reindex(columns=[before, after]).dropna()
    cases = cases.loc[table.index, ["platform", "kernel", "stride", "disturbed"]]
    return cases.assign(way=way, bandwidth_GBps=table[before], without_GBps=table[after])


def points_of(
    records: Records, kind: str | None = None, *, named: bool = False
) -> tuple[DataFrame, list[str]]:
    """Return one bandwidth for each platform, kernel and case: own platforms, then published.

    Parameters
    ----------
    records : DataFrame, ResultSet or None
        Own records.
    kind : {"cpu", "gpu"}, optional
        Kind of platform; by default both.
    named : bool
        As for `own_records`.

    Returns
    -------
    points : DataFrame
        Columns platform, kind, own, kernel, case, stride, apart (delta of an application pattern;
        NaN where unknown), threads (NaN where unknown or of a GPU), bandwidth_GBps, disturbed,
        paper, memory_line_B (NaN of published ones).
    notes : list of str
        Sentences on the records left out.

    Raises
    ------
    InputError
        As `memkern.plots.frames.usable`.
    """
    own, notes = own_records(records, named=named)
    own = typed(own, ["working_threads", "threads"])
    idle = own["working_threads"].lt(own["threads"])
    left_out = counted(int(idle.sum()), "record")
    notes += [f"{left_out} with idle threads left out."] * bool(idle.any())
    own = own[~idle]
    own = own.assign(in_suite=own["suite"].fillna("").ne(""), memory_line_B=lines_B(own))
    own = best(own, ("platform", "kernel", "case"), prefer=("paper", "in_suite"))
    columns = [
        *("platform", "kind", "own", "kernel", "case", "stride", "apart", "threads"),
        *(BANDWIDTH, "disturbed", "paper", "memory_line_B", *NEEDED),
        *("time_min_ci_low_s", "time_min_ci_high_s"),
    ]
    points = concat(
        part.reindex(columns=columns) for part in (own, published()) if len(part)
    ).reset_index(drop=True)
    return (points if kind is None else points[points["kind"] == kind]), notes


def labelled(points: DataFrame) -> DataFrame:
    """Add the columns label and look of each platform; own ones are emphasised.

    The label is the platform's name, and of a published processor its threads.
    """
    mine = points["own"]
    threads = points.groupby("platform")["threads"].agg(
        lambda each: " or ".join(f"{number:.0f}" for number in sorted(each.dropna().unique()))
    )
    numbers = points["platform"].map(threads)
    label = points["platform"] + (", " + numbers + " threads").mask(mine | numbers.eq(""), "")
    order = [points.loc[mine == own, "platform"].unique().tolist() for own in (False, True)]
    looks: Any = [
        (own_look if own else other_look)(order[own].index(platform))
        for platform, own in zip(points["platform"], mine, strict=True)
    ]
    return points.assign(label=label, look=looks)


def beside_published(records: Records, platform: str = "Skylake") -> str:
    """Return the bandwidths of own strides beside those of a published platform, as text.

    Each kernel of each own platform has a table with the shares of the bandwidth at stride 1, and a
    sentence on the stride at which every value has a cache line of its own. It is empty without own
    records of several strides on a processor.
    """
    points, _ = points_of(records, "cpu")
    points = points[points["stride"].notna()]
    own = points.loc[points["own"], "platform"].unique()
    lines = []
    for (kernel, word), mine in itertools.product(KERNELS.items(), own):
        here = "here" if len(own) == 1 else f"on {mine}"
        rows = points[points["kernel"].eq(kernel)]
        threads = rows.groupby("platform")["threads"].max()
        table = (
            rows.pivot_table(index="stride", columns="platform", values=BANDWIDTH)
            .reindex(columns=[mine, platform])
            .dropna()
        )
        if len(table) < 2 or table.index[0] != 1:
            continue
        lines.append(f"{word + ' at stride':<34}" + "".join(f"{n:>8.0f}" for n in table.index))
        shares = table / table.iloc[0]
        for machine, name in ((mine, here), (platform, platform)):
            about = f"{name}, {counted(int(threads[machine]), 'thread')}"
            lines += [
                f"{about + ': GB/s':<34}" + "".join(f"{x:>8.2f}" for x in table[machine]),
                f"{'share of that at stride 1':>33} "
                + "".join(f"{x:>8.0%}" for x in shares[machine]),
            ]
        at = max(stride for stride in table.index if stride <= _LINE)
        of_strides = rows[rows["platform"].eq(mine)].set_index("stride").to_dict("index")
        kept = marked_ratio(of_strides[at], of_strides[1.0], BANDWIDTH, Ratio.percent)
        lines.append(
            f"at stride {at:.0f} a {word} keeps {kept} of its bandwidth at stride 1 {here}, "
            f"and {percent(shares[platform][at])} on {platform} (Lavin et al. 2020)"
        )
    return "\n".join(lines)


# Suites that measure what a machine lacks, by the kind of its platform.
_SUITES = {
    "cpu": ("ustride-cpu", "apps"),
    "gpu": ("ustride-gpu --device cuda", "apps-gpu --device cuda"),
}


def incomplete(points: DataFrame, cases: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return the own platforms without stride 1, or without application patterns, as sentences.

    Parameters
    ----------
    points : DataFrame
        As `points_of` returns them.
    cases : sequence of str
        Patterns; by default those of all applications.

    Returns
    -------
    notes, told : list of str
        Sentences for the small print, and the same with the command that measures what is missing.
    """
    own = points[points["own"]]
    found = [
        dict.fromkeys(own[own["case"].isin(some)][["platform", "kind"]].itertuples(index=False))
        for some in ([STRIDE_1], cases or application_patterns())
    ]
    missing = [
        (platform, what, _SUITES[kind][number])
        for number, what in enumerate(("stride 1", "application patterns"))
        for platform, kind in found[1 - number]
        if (platform, kind) not in found[number]
    ]
    return _sentences(missing, "; give more.db as well")


def unpaired(
    own: DataFrame, drawn: DataFrame, what: str, option: str
) -> tuple[list[str], list[str]]:
    """Return the platforms with strides that are not drawn, as sentences (see `incomplete`).

    Parameters
    ----------
    own, drawn : DataFrame
        Own records of strides, and those that are drawn.
    what : str
        What the others lack.
    option : str
        Option of ``memkern suite ustride-cpu`` that measures it.
    """
    others = [p for p in dict.fromkeys(own["platform"]) if p not in set(drawn["platform"])]
    return _sentences([(platform, what, f"ustride-cpu {option}") for platform in others])


def _sentences(
    missing: Iterable[tuple[str, str, str]], remedy: str = ""
) -> tuple[list[str], list[str]]:
    """Return the sentences on platforms, what each lacks, and the suite that measures it."""
    notes = [f"{plain(platform)} left out: no record of {what}." for platform, what, _ in missing]
    return notes, [
        f"{platform} left out: no record of {what}: `memkern suite {suite} -o more.db` measures "
        f"them{remedy}"
        for platform, what, suite in missing
    ]


def application_patterns() -> list[str]:
    """Return the names of the 34 published patterns by application, kernel and number."""
    names = [row["pattern"] for row in reference.rows("lavin2020-patterns")]
    return sorted(names, key=lambda name: (name.rstrip(digits), len(name), name))


def group_of(pattern: str) -> str:
    """Return the application of a pattern, or `OWN`."""
    return pattern.partition("-")[0]


def kernel_of(pattern: str) -> str:
    """Return the kernel of a pattern of an application, or of one that the user named."""
    return SCATTER if pattern.partition("-")[2].startswith("S") else GATHER


def first_three(names: Sequence[object]) -> str:
    """Return the first three names, and how many more there are."""
    return ", ".join(map(str, names[:3])) + f" and {len(names) - 3} more" * (len(names) > 3)


def over_stride_1(points: DataFrame, cases: Sequence[str] = ()) -> DataFrame:
    """Return the points of some cases, by default of all application patterns, over stride 1.

    The columns with prefix ``base_`` are those of the same kernel at stride 1, and ratio is that of
    the bandwidths. Platforms and kernels without stride 1 are left out, and application patterns
    with the other kernel than in the paper.
    """
    base = points[points["case"] == STRIDE_1].set_index(["platform", "kernel"])
    base = base[[BANDWIDTH, "disturbed"]].add_prefix("base_")
    rows = points[points["case"].isin(cases or application_patterns())]
    rows = rows[rows["stride"].notna() | rows["kernel"].eq(rows["case"].map(kernel_of))]
    rows = rows.join(base, on=["platform", "kernel"], how="inner")
    return rows.assign(ratio=rows[BANDWIDTH] / rows["base_bandwidth_GBps"])


def compared(records: Records, points: DataFrame, what: str, cases: Sequence[str] = ()) -> Shown:
    """Return points `over_stride_1`, labelled, and what the small print says of them.

    `what` and the own `records` are as for `remarks`.
    """
    left_out, told = incomplete(points, cases)
    rows = over_stride_1(labelled(points), cases)
    return Shown(rows, left_out + remarks(records, rows, what), told)


def same_cases(
    frame: DataFrame, column: str, ignore: Sequence[str] = ()
) -> tuple[DataFrame, DataFrame]:
    """Return the bandwidth of the same cases for each value of one column.

    Parameters
    ----------
    frame : DataFrame
        As `own_records` returns it.
    column : str
        Column whose values are compared.
    ignore : sequence of str
        Other columns in which the records of a case may differ.

    Returns
    -------
    table : DataFrame
        One row per case, one column for each value of `column`: the highest bandwidth, from an
        undisturbed record if there is one.
    cases : DataFrame
        The first record of each case, with the same index; disturbed if any of its records is.
    """
    keys = [key for key in _CASE if key in frame and key not in (column, *ignore)]
    keys += ["stride"] * ("pattern" in ignore)
    frame = frame.assign(number=frame.groupby(keys, dropna=False, sort=False).ngroup())
    table = best(frame, ("number", column)).pivot_table(
        index="number", columns=column, values="bandwidth_GBps"
    )
    disturbed = frame.groupby("number")["disturbed"].any()
    cases = frame.drop_duplicates("number").set_index("number").loc[table.index]
    return table, cases.assign(disturbed=disturbed)


def remarks(records: Records, points: DataFrame, what: str) -> list[str]:
    """Return what the small print of a figure says of its points.

    Parameters
    ----------
    records : DataFrame, ResultSet or None
        Own records.
    points : DataFrame
        The points drawn.
    what : str
        Description of the points, for a figure without own ones.
    """
    what = "Published" if records is None else f"No own record of {what}: published"
    other = not points[points["case"].isin(application_patterns())]["paper"].all()
    return [
        *[f"{what} platforms only."] * (not points["own"].any()),
        *["Own application patterns ran with other counts than the published ones."] * other,
    ]
