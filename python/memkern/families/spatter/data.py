"""Records of gathers and scatters: own records and the published ones of Lavin et al. 2020.

If a case has several own records (variants, page policies, chunks, repeats), the one with the
highest bandwidth is used, preferably with the published count. Only float64 is used, since the
published results have no other type.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from string import digits

from memkern import reference
from memkern.backends import ACCELERATORS
from memkern.plots.kit import (
    BANDWIDTH,
    DataFrame,
    Look,
    Records,
    best,
    counted,
    disturbed_note,
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

Bandwidths = Mapping[tuple[str, str], float]

_UNIFORM = re.compile(r"UNIFORM:(\d+):(\d+)(:NR)?")
_BASES = re.compile(r"^BASES:(?P<n>\d+):(?P<stride>\d+):(?P<count>\d+)(?::(?P<seed>\d+))?$")
_COLUMNS = ("suite", "pattern", "delta", "backend", "dtype", "count_rule")

# Columns that identify a case, with the variant that ran instead of the requested one.
_CASE = (
    *("platform", "kernel", "backend", "variant", "ranks"),
    *(column for column in of_kind("input", "requested") if column != "variant_requested"),
)


def _stride(pattern: str, delta: object, length: float, stride: float) -> float:
    """Return the stride of a uniform pattern whose instances do not overlap, NaN for others.

    Published data and files of older versions lack the columns `length` and `stride`.
    """
    match = _UNIFORM.fullmatch(pattern)
    if match is not None:
        length, stride = float(match[1]), float(match[2])
    disjoint = (match and match[3]) or str(delta) == f"{length * stride:.0f}"
    return stride if stride > 0 and disjoint else float("nan")


def _with_case(frame: DataFrame) -> DataFrame:
    """Add the columns stride (NaN for an application pattern), case (stride or pattern) and apart.

    The last is the delta of an application pattern, also where several instances are merged.
    """
    patterns = [str(pattern) for pattern in frame["pattern"]]
    numbers = typed(frame, ["pattern_length", "stride"])
    about = (numbers[name] for name in ("delta", "pattern_length", "stride"))
    strides = [_stride(*each) for each in zip(patterns, *about, strict=True)]
    cases = [
        pattern if stride != stride else f"stride {stride:g}"
        for pattern, stride in zip(patterns, strides, strict=True)
    ]
    # All patterns of applications have 16 indices.
    apart = typed(numbers, ["delta"])["delta"] * 16 / numbers["pattern_length"]
    return frame.assign(stride=strides, case=cases, apart=apart)


@cache
def published() -> DataFrame:
    """Return the published results in the shape of `points_of`."""
    frame = _with_case(reference.load("lavin2020")).assign(own=False, disturbed=False, paper=True)
    return frame.astype({"threads": float})


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
    frame, notes = usable(records, list(KERNELS), [*_COLUMNS, *columns])
    double = frame["dtype"].eq("float64")
    if not double.all():
        number = counted(int((~double).sum()), "record")
        notes.append(f"{number} in another type than float64 left out.")
    frame = _with_case(frame[double])
    if "prefetchers" in frame:
        # Only `prefetcher_pairs` compares them.
        frame = frame[~frame["prefetchers"].eq("off")]
    kinds = ["gpu" if backend in ACCELERATORS else "cpu" for backend in frame["backend"]]
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
    """Return ratios of bandwidth without prefetching (off, or random order) and with prefetching.

    Parameters
    ----------
    records : DataFrame, ResultSet or None
        Own records.

    Returns
    -------
    pairs : DataFrame
        Columns platform, kernel, way (``switched``: prefetchers off over the default, ``order``:
        instances of a pattern in random order over ascending order), stride, ratio, disturbed.
    notes : list of str
        Sentences on the records left out.

    Raises
    ------
    InputError
        As `memkern.plots.frames.usable`.
    """
    from pandas import concat

    frame, notes = usable(records, list(KERNELS), _COLUMNS)
    frame = _with_case(frame[frame["dtype"].eq("float64")])
    parts = []
    if "prefetchers" in frame:
        strided = frame[frame["stride"].notna()]
        table, cases = same_cases(strided, "prefetchers", ("variant",))
        parts.append(_ratios(table, cases, "off", "default", "switched"))
    found = frame["pattern"].astype(str).str.extract(_BASES.pattern)
    ordered = frame.assign(
        stride=found["stride"].astype(float),
        instances=found["count"],
        order=found["seed"].notna().map({True: "random", False: "ascending"}),
    )[found["stride"].notna()]
    table, cases = same_cases(ordered, "order", ("pattern", "variant"))
    parts.append(_ratios(table, cases, "random", "ascending", "order"))
    columns = ["platform", "kernel", "way", "stride", "ratio", "disturbed", "bandwidth_GBps"]
    pairs = concat(parts, ignore_index=True)[columns]
    pairs = pairs.astype({"disturbed": bool, "stride": float, "ratio": float})
    return best(pairs, ("platform", "kernel", "way", "stride")), notes


def _ratios(table: DataFrame, cases: DataFrame, above: str, below: str, way: str) -> DataFrame:
    """Return the cases that have both bandwidths, with their ratio."""
    table = table.reindex(columns=[above, below]).dropna()
    cases = cases.loc[table.index]
    return cases.assign(ratio=table[above] / table[below], bandwidth_GBps=table[below], way=way)


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
        paper.
    notes : list of str
        Sentences on the records left out.

    Raises
    ------
    InputError
        As `memkern.plots.frames.usable`.
    """
    from pandas import concat

    own, notes = own_records(records, named=named)
    if {"working_threads", "threads"} <= {*own}:
        idle = own["working_threads"].lt(own["threads"])
        own = own[~idle]
        if idle.any():
            notes = [*notes, f"{counted(int(idle.sum()), 'record')} with idle threads left out."]
    own = own.assign(
        in_suite=own["suite"].fillna("").ne(""),
        threads=own["threads"].astype(float) if "threads" in own else math.nan,
    )
    own = best(own, ("platform", "kernel", "case"), prefer=("paper", "in_suite"))
    columns = [
        *("platform", "kind", "own", "kernel", "case", "stride", "apart", "threads"),
        *(BANDWIDTH, "disturbed", "paper", *NEEDED, "time_min_ci_low_s", "time_min_ci_high_s"),
    ]
    parts = [part.reindex(columns=columns) for part in (own, published()) if len(part)]
    points = concat(parts, ignore_index=True)
    return (points if kind is None else points[points["kind"] == kind]), notes


def platforms_of(points: DataFrame) -> dict[str, bool]:
    """Return for each platform whether it is an own one, in the order of a legend."""
    pairs = points[["platform", "own"]].drop_duplicates()
    return {str(platform): bool(own) for platform, own in pairs.itertuples(index=False)}


def looks_of(platforms: Mapping[str, bool]) -> dict[str, Look]:
    """Return the look of each platform, given as by `platforms_of`: own ones are emphasised."""
    own = [platform for platform, is_own in platforms.items() if is_own]
    others = [platform for platform in platforms if platform not in own]
    looks = {platform: other_look(number) for number, platform in enumerate(others)}
    return looks | {platform: own_look(number) for number, platform in enumerate(own)}


def beside_published(records: Records, platform: str = "Skylake") -> str:
    """Return the bandwidths of own strides beside those of a published platform, as text.

    Each kernel of each own platform has a table with the shares of the bandwidth at stride 1, and a
    sentence on the stride at which every value has a cache line of its own. It is empty without own
    records of several strides on a processor.
    """
    points, _ = points_of(records, "cpu")
    lines = []
    own = [name for name, is_own in platforms_of(points).items() if is_own]
    for (kernel, word), mine in itertools.product(KERNELS.items(), own):
        here = "here" if len(own) == 1 else f"on {mine}"
        of_kernel = points[points["kernel"].eq(kernel) & points["stride"].notna()]
        rows = [
            (name, part.set_index("stride").sort_index())
            for name, part in (
                (here, of_kernel[of_kernel["platform"].eq(mine)]),
                (platform, of_kernel[of_kernel["platform"].eq(platform)]),
            )
        ]
        strides = [stride for stride in rows[0][1].index if stride in rows[1][1].index]
        if strides[:1] != [1.0] or len(strides) < 2:
            continue
        lines.append(f"{word + ' at stride':<34}" + "".join(f"{n:>8.0f}" for n in strides))
        for name, part in rows:
            GBps = part["bandwidth_GBps"].reindex(strides)
            share = GBps / GBps.loc[1.0]
            about = f"{name}, {counted(int(part['threads'].max()), 'thread')}"
            lines += [
                f"{about + ': GB/s':<34}" + "".join(f"{x:>8.2f}" for x in GBps),
                f"{'share of that at stride 1':>33} " + "".join(f"{x:>8.0%}" for x in share),
            ]
        at = max(stride for stride in strides if stride <= _LINE)
        of_strides = rows[0][1].to_dict("index")
        kept = marked_ratio(of_strides[at], of_strides[1.0], BANDWIDTH, Ratio.percent)
        lines.append(
            f"at stride {at:.0f} a {word} keeps {kept} of its bandwidth at stride 1 {here}, "
            f"and {percent(share.loc[at])} on {platform} (Lavin et al. 2020)"
        )
    return "\n".join(lines)


def labels_of(points: DataFrame) -> dict[str, str]:
    """Return the label of each platform: its name, and of a published processor its threads."""
    labels = {}
    for platform, own in platforms_of(points).items():
        threads = points.loc[points["platform"] == platform, "threads"].dropna().unique()
        numbers = " or ".join(f"{number:.0f}" for number in sorted(threads))
        labels[platform] = platform if own or not numbers else f"{platform}, {numbers} threads"
    return labels


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
    names = cases or application_patterns()
    own = points[points["own"].astype(bool)]
    missing = []
    for (platform, kind), rows in own.groupby(["platform", "kind"], sort=False):
        strides, patterns = rows["case"].eq(STRIDE_1).any(), rows["case"].isin(names).any()
        if strides != patterns:
            what = "application patterns" if strides else "stride 1"
            missing.append((str(platform), what, _SUITES[str(kind)][bool(strides)]))
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
    notes, told = [], []
    for platform, what, suite in missing:
        left_out = f"left out: no record of {what}"
        notes.append(f"{plain(platform)} {left_out}.")
        told.append(
            f"{platform} {left_out}: `memkern suite {suite} -o more.db` measures them{remedy}"
        )
    return notes, told


def application_patterns() -> list[str]:
    """Return the names of the 34 published patterns by application, kernel and number."""
    names = [row["pattern"] for row in reference.rows("lavin2020-patterns")]
    return sorted(names, key=lambda name: (name.rstrip(digits), len(name), name))


def kernel_of(pattern: str) -> str:
    """Return the kernel of a pattern of an application, or of one that the user named."""
    return SCATTER if pattern.partition("-")[2].startswith("S") else GATHER


def bandwidths(points: DataFrame) -> dict[str, dict[tuple[str, str], float]]:
    """Return the bandwidth in GB/s by platform, then by (kernel, case)."""
    columns = ["kernel", "case", "bandwidth_GBps"]
    return {
        str(platform): {
            (str(kernel), str(case)): float(bandwidth)
            for kernel, case, bandwidth in rows[columns].itertuples(index=False)
        }
        for platform, rows in points.groupby("platform", sort=False)
    }


def relative(points: DataFrame, patterns: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    """Return by platform the patterns' bandwidth over the same kernel's bandwidth at stride 1.

    By default, the patterns are those of applications; platforms have at least one.
    """
    keys = [(kernel_of(pattern), pattern) for pattern in patterns or application_patterns()]
    ratios = {
        platform: {
            pattern: measured[kernel, pattern] / measured[kernel, STRIDE_1]
            for kernel, pattern in keys
            if (kernel, pattern) in measured and (kernel, STRIDE_1) in measured
        }
        for platform, measured in bandwidths(points).items()
    }
    return {platform: ratio for platform, ratio in ratios.items() if ratio}


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
    """Return the remarks on the points of a figure for its small print.

    Parameters
    ----------
    records : DataFrame, ResultSet or None
        Own records.
    points : DataFrame
        The points drawn.
    what : str
        Description of the points, for a figure without own ones.
    """
    notes = []
    if records is None:
        notes.append("Published platforms only.")
    elif not points["own"].any():
        notes.append(f"No own record of {what}: published platforms only.")
    if not points[points["case"].isin(application_patterns())]["paper"].all():
        notes.append("Own application patterns ran with other counts than the published ones.")
    return [*notes, *disturbed_note(points)]
