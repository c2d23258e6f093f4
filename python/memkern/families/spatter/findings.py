"""Findings on gathers and scatters: sentences computed from records."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

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
    Finding,
    best,
    counted,
    in_bytes,
    joined,
    marked_ratio,
    say,
    tell,
    typed,
    undisturbed,
    with_names,
)
from memkern.results.ratios import Ratio


def findings(records: DataFrame) -> list[str]:
    """Return the findings on every own platform, the most important first.

    Raises
    ------
    InputError
        As `strides_cpu` of the figures, and if the column variant or pages is missing.
    """
    own, _ = own_records(records, ("variant", "pages"))
    quiet = own[~own["disturbed"]]  # disturbed records are not compared
    points, _ = points_of(records)
    found = {}
    for platform, mine in points[points["own"]].groupby("platform", sort=False):
        kind = mine["kind"].iloc[0]
        shown = ~points["own"] | points["platform"].eq(platform)
        found[platform] = [
            *tell(_OF_POINTS[kind], points[shown & points["kind"].eq(kind)]),
            *tell(_OF_RECORDS, quiet[quiet["platform"] == platform]),
        ]
    return with_names(found)


def _at_stride_1(points: DataFrame) -> list[dict[Any, Any]]:
    """Return the own point of each kernel at stride 1."""
    rows = points[points["own"] & points["case"].eq(STRIDE_1)].sort_values("kernel")
    return rows.assign(word=rows["kernel"].map(KERNELS)).to_dict("records")


def _kept(points: DataFrame) -> list[dict[Any, Any]]:
    """Return the shares of the bandwidth at stride 1 that each kernel has at larger strides."""
    mine = points[points["own"]].set_index(["kernel", "case"], drop=False).to_dict("index")
    found = []
    for first in _at_stride_1(points):
        kernel = first["kernel"]
        shares = [
            f"{marked_ratio(mine[kernel, case], first, BANDWIDTH, Ratio.percent)} at {case}"
            for case in ("stride 8", "stride 16")
            if (kernel, case) in mine
        ]
        if shares:
            found.append(
                {**first, "shares": joined(shares), "used": 100 * 8 / first["memory_line_B"]}
            )
    return found


def transfers(points: DataFrame) -> list[dict[Any, Any]]:
    """Return what memory transfers for a value, by the fall of the curves of own platforms.

    Bandwidth falls with the stride as long as values share what is transferred, and stays where
    each has a sector or line of its own (Lavin et al. 2020, section 5.2, the plateaus of GPUs).
    """
    found = []
    own = points[points["own"] & points["stride"].isin(_DOUBLED)].sort_values("stride")
    for kernel, rows in own.groupby("kernel"):
        strides, bandwidths = (rows[column].to_numpy() for column in ("stride", BANDWIDTH))
        shares = bandwidths[1:] / bandwidths[:-1]
        end = int(np.argmax(np.append(shares, 1.0) >= _FALLS))
        without_gap = np.array_equal(strides[: end + 2], _DOUBLED[: end + 2])
        if without_gap and 0 < end < len(shares) and shares[end] > _STAYS:
            about = {"word": KERNELS[str(kernel)], "sector": in_bytes(8 * strides[end])}
            about |= {"end": strides[end], "share": shares[end], "next": 2 * strides[end]}
            found.append({**about, "disturbed": rows["disturbed"][: end + 2].any()})
    return found


# Strides, and shares of the bandwidth at half the stride below which it falls and above which it
# stays.
_DOUBLED = [2.0**n for n in range(12)]
_FALLS, _STAYS = 0.7, 0.8


def _beside_published(points: DataFrame) -> list[dict[Any, Any]]:
    """Return the bandwidth of a thread at stride 1, and those of published platforms."""
    each = points[points["case"].eq(STRIDE_1) & points["threads"].notna()]
    each = each.assign(
        bandwidth_GBps=each[BANDWIDTH] / each["threads"],
        workers=[counted(int(number), "thread") for number in each["threads"]],
    ).sort_values(BANDWIDTH)
    found = []
    for row in _at_stride_1(each):
        others = each[~each["own"] & each["kernel"].eq(row["kernel"])].to_dict("records")
        if others:
            number = counted(len(others), "published platform")
            ends = [
                say("{bandwidth_GBps:3} ({platform}, {workers})", others[end]) for end in (0, -1)
            ]
            found.append({**row, "number": number, "ends": " to ".join(ends)})
    return found


def _patterns(points: DataFrame) -> dict[str, Any]:
    """Return the slowest and the fastest application pattern."""
    rows = over_stride_1(points[points["own"]])
    if len(rows) < 2:
        return {}
    rows = rows.assign(disturbed=rows["disturbed"] | rows["base_disturbed"])
    each = undisturbed(rows).sort_values("ratio", kind="stable").to_dict("records")
    worst = "{case}, with {ratio:%} of the stride-1 bandwidth of its kernel{mark}"
    return {
        "number": len(rows),
        "worst": say(worst, each[0]),
        "best": say("{case}, with {ratio:%}{mark}", each[-1]),
    }


def _variants(own: DataFrame) -> dict[str, str]:
    """Return the number of cases in which each variant was the fastest."""
    width = 1 + typed(own, ["time_min_ci_relative"])["time_min_ci_relative"].fillna(0)
    ends = (own[BANDWIDTH] / width, own[BANDWIDTH] * width)
    low, high = (same_cases(own.assign(**{BANDWIDTH: end}), "variant")[0] for end in ends)
    several = low[low.notna().sum(axis=1) > 1]
    if several.empty:
        return {}
    fastest = several.idxmax(axis=1)
    others = high.loc[several.index].apply(lambda ends: ends.mask(fastest == ends.name))
    clear = several.max(axis=1) > others.max(axis=1)
    wins = [f"{variant} won {number}" for variant, number in fastest[clear].value_counts().items()]
    if not clear.all():
        wins.append(f"in {int((~clear).sum())} the first two do not differ by more than intervals")
    return {"cases": counted(len(several), "case"), "wins": joined(wins)}


def _pages(own: DataFrame) -> list[dict[str, str]]:
    """Return the gain of each kernel by transparent huge pages."""
    both = own[own["case"].eq(STRIDE_1) & own["pages"].isin(["4k", "thp"])]
    rows = best(both, ("platform", "kernel", "pages")).sort_values("pages").to_dict("records")
    return [
        {"word": KERNELS[large["kernel"]], "times": marked_ratio(large, small, BANDWIDTH)}
        for small, large in itertools.combinations(rows, 2)
        if small["kernel"] == large["kernel"]
    ]


# Rows by kind of platform, whose figures of strides and of patterns differ.
_OF_POINTS = {
    kind: (
        Finding(strides, _at_stride_1, "At stride 1: {parts}.", "{word} {bandwidth_GBps}", ", "),
        Finding(
            strides, _kept,
            "Of the stride-1 bandwidth, {parts} (one element of 8 B out of each line of "
            "{memory_line_B:.0f} B would be {used:g} %).",
            "{word} keeps {shares}",
            joint="; ",
        ),
        Finding(
            strides, transfers,
            "For a value of its own, memory transfers {parts}.",
            "{sector} in a {word} (it falls up to stride {end:g}, and at {next:g} still has "
            "{share:%} of that{mark})",
        ),
        Finding(
            strides, _beside_published,
            "Each of its {workers} has {bandwidth_GBps} in the stride-1 {word}, a thread of "
            "{number} {ends}; all threads of a platform share the bandwidth of its memory.",
        ),
        Finding(
            f"spatter-radars-{kind}", _patterns,
            "Of {number} application patterns the worst is {worst}, and the best {best}.",
        ),
    )
    for kind, strides in (("cpu", "spatter-fig3"), ("gpu", "spatter-fig5"))
}  # fmt: skip
_OF_RECORDS = (
    Finding("spatter-fig6", _variants, "Of {cases} measured with several variants, {wins}."),
    Finding(
        "spatter-pages", _pages,
        "Transparent huge pages (thp) change the bandwidth of a stride-1 {parts} as against 4 KiB "
        "pages.",
        "{word} {times} times",
    ),
)  # fmt: skip
