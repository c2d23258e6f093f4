"""Findings on gathers and scatters: sentences computed from records."""

from __future__ import annotations

import itertools

from memkern.families.spatter.data import (
    KERNELS,
    STRIDE_1,
    over_stride_1,
    own_records,
    points_of,
    same_cases,
)
from memkern.plots.kit import (
    BANDWIDTH,
    DataFrame,
    best,
    by_value,
    counted,
    disturbed_mark,
    joined,
    lines_B,
    marked_ratio,
    percent,
    rounded,
    shown_in,
    typed,
    undisturbed,
    with_names,
)
from memkern.results.ratios import Ratio

# Figures of strides and of patterns by kind of platform.
_STRIDES = {"cpu": "spatter-fig3", "gpu": "spatter-fig5"}
_PATTERNS = {"cpu": "spatter-radars-cpu", "gpu": "spatter-radars-gpu"}


def findings(records: DataFrame) -> list[str]:
    """Return the findings on every own platform, the most important first.

    Raises
    ------
    InputError
        As `strides_cpu` of the figures, and if the column variant or pages is missing.
    """
    own, _ = own_records(records, ("variant", "pages"))
    points, _ = points_of(records)
    ratios = over_stride_1(points)
    found = {}
    for platform, mine in points[points["own"]].groupby("platform", sort=False):
        kind = mine["kind"].iloc[0]
        every = own[own["platform"] == platform]
        beside = points[
            points["kind"].eq(kind) & (~points["own"] | points["platform"].eq(platform))
        ]
        quiet = every[~every["disturbed"]]  # disturbed records are not compared
        found[platform] = [
            *shown_in(_STRIDES[kind], _on_strides(mine, float(lines_B(every).max()))),
            *shown_in(_STRIDES[kind], _beside_published(beside, str(platform))),
            *shown_in(_PATTERNS[kind], _on_patterns(ratios[ratios["platform"] == platform])),
            *shown_in("spatter-fig6", _on_variants(quiet)),
            *shown_in("spatter-pages", _on_pages(quiet)),
        ]
    return with_names(found)


def _on_strides(mine: DataFrame, line_B: float) -> list[str]:
    """Return the sentences on the bandwidth at stride 1 and its share at larger strides."""
    strides = {
        word: by_value(mine[mine["kernel"] == name], "case") for name, word in KERNELS.items()
    }
    strides = {word: rows for word, rows in strides.items() if STRIDE_1 in rows}
    first = [
        f"{word} {rounded(rows[STRIDE_1][BANDWIDTH])} GB/s"
        + disturbed_mark(rows[STRIDE_1]["disturbed"])
        for word, rows in strides.items()
    ]
    kept = {
        word: [
            f"{marked_ratio(rows[case], rows[STRIDE_1], BANDWIDTH, Ratio.percent)} at {case}"
            for case in ("stride 8", "stride 16")
            if case in rows
        ]
        for word, rows in strides.items()
    }
    drops = "; ".join(f"{word} keeps {joined(each)}" for word, each in kept.items() if each)
    return [
        *[f"At stride 1: {', '.join(first)}."] * bool(first),
        *[
            f"Of the stride-1 bandwidth, {drops} (one element of 8 B out of each line of "
            f"{line_B:.0f} B would be {100 * 8 / line_B:g} %)."
        ]
        * bool(drops),
    ]


def _beside_published(points: DataFrame, platform: str) -> list[str]:
    """Return the sentences on the stride-1 bandwidth of a thread beside published platforms."""
    sentences = []
    here = points[points["case"].eq(STRIDE_1)]
    for kernel, word in KERNELS.items():
        rows = here[here["kernel"] == kernel].set_index("platform")
        each = (rows["bandwidth_GBps"] / rows["threads"]).dropna()
        if platform not in each or len(each) < 2:
            continue
        rest = each.drop(platform)
        ends = [
            f"{rounded(each[name])} ({name}, {counted(int(rows['threads'][name]), 'thread')})"
            for name in map(str, (rest.idxmin(), rest.idxmax()))
        ]
        sentences.append(
            f"Each of its {counted(int(rows['threads'][platform]), 'thread')} has "
            f"{rounded(each[platform])} GB/s in the stride-1 {word}, a thread of "
            f"{counted(len(rest), 'published platform')} {' to '.join(ends)}; all threads of a "
            "platform share the bandwidth of its memory."
        )
    return sentences


def _on_patterns(rows: DataFrame) -> list[str]:
    """Return the sentence on the slowest and the fastest application pattern."""
    if len(rows) < 2:
        return []
    rows = rows.assign(disturbed=rows["disturbed"] | rows["base_disturbed"])
    each = undisturbed(rows).sort_values("ratio", kind="stable").to_dict("records")
    low, high = each[0], each[-1]
    return [
        f"Of {len(rows)} application patterns the worst is {low['case']}, with "
        f"{percent(low['ratio'])} of the stride-1 bandwidth of its kernel"
        f"{disturbed_mark(low['disturbed'])}, and the best {high['case']}, with "
        f"{percent(high['ratio'])}{disturbed_mark(high['disturbed'])}."
    ]


def _on_variants(own: DataFrame) -> list[str]:
    """Return the sentence on the number of cases in which each variant was the fastest."""
    width = 1 + typed(own, ["time_min_ci_relative"])["time_min_ci_relative"].fillna(0)
    ends = (own[BANDWIDTH] / width, own[BANDWIDTH] * width)
    low, high = (same_cases(own.assign(**{BANDWIDTH: end}), "variant")[0] for end in ends)
    several = low[low.notna().sum(axis=1) > 1]
    if several.empty:
        return []
    fastest = several.idxmax(axis=1)
    others = high.loc[several.index].apply(lambda ends: ends.mask(fastest == ends.name))
    clear = several.max(axis=1) > others.max(axis=1)
    won = fastest[clear].value_counts()
    wins = [f"{variant} won {number}" for variant, number in won.items()]
    if not clear.all():
        wins.append(f"in {int((~clear).sum())} the first two do not differ by more than intervals")
    return [f"Of {counted(len(several), 'case')} measured with several variants, {joined(wins)}."]


def _on_pages(own: DataFrame) -> list[str]:
    """Return the sentence on the gain by transparent huge pages."""
    both = own[own["case"].eq(STRIDE_1) & own["pages"].isin(["4k", "thp"])]
    rows = best(both, ("platform", "kernel", "pages")).sort_values("pages").to_dict("records")
    gains = [
        f"{KERNELS[large['kernel']]} {marked_ratio(large, small, BANDWIDTH)} times"
        for small, large in itertools.combinations(rows, 2)
        if small["kernel"] == large["kernel"]
    ]
    if not gains:
        return []
    return [
        f"Transparent huge pages (thp) change the bandwidth of a stride-1 {joined(gains)} as "
        "against 4 KiB pages."
    ]
