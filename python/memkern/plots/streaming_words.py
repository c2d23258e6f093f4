"""What streaming records say, in plain sentences computed from them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from memkern.plots.drawing import in_bytes, spaced
from memkern.plots.frames import best, listed, ranked, rounded, three_figures
from memkern.plots.selection import BANDWIDTH, SETTING, cache_ends, prevailing, select
from memkern.plots.streaming_bs import fitted, interval, own_tests
from memkern.plots.streaming_data import FAMILIES, MEMORY, as_defined, is_nt, levels, short

if TYPE_CHECKING:
    from pandas import DataFrame

_SUSTAINED = ("stream.copy", "stream.triad")


def findings(records: DataFrame) -> list[str]:
    """Return the findings on every own platform, the most important first.

    Raises
    ------
    InputError
        As `memkern.plots.streaming.sizes`.
    """
    frame, _ = select(
        records, list(FAMILIES), ("bytes_B", "variant", "footprint_B", "dtype", "threads")
    )
    frame, _ = prevailing(as_defined(frame, "paper", "permutation"))
    frame = frame.assign(nt=is_nt(frame), level=levels(frame))
    tests, _ = own_tests(records, ["bs.bs1"])
    empty, _ = select(records, ["bs.bs0"], value="time_min_s")
    empty = ranked(empty, "time_min_s", lowest=True)
    platforms = list(dict.fromkeys(frame["platform"]))
    sentences = []
    for platform in platforms:
        mine = frame[frame["platform"] == platform]
        these = [
            *_on_memory(mine),
            *_on_levels(mine),
            *_on_launch(*(part[part["platform"] == platform] for part in (tests, empty))),
            *_on_indices(mine),
        ]
        sentences += [f"{platform}: {line}" for line in these] if len(platforms) > 1 else these
    return sentences


def _rows(frame: DataFrame, key: str) -> dict[str, dict[Hashable, Any]]:
    """Return the best row of each value of one column, as plain dictionaries."""
    return {str(row[key]): row for row in best(frame, [key]).to_dict("records")}


def _said(row: Mapping[Hashable, Any]) -> str:
    return f"{rounded(row[BANDWIDTH])} GB/s{' (disturbed)' * bool(row['disturbed'])}"


def _on_memory(mine: DataFrame) -> list[str]:
    """Say what copy and triad sustain, and what non-temporal stores are worth."""
    mine = mine[mine["kernel"].isin(_SUSTAINED) & (mine["level"] == MEMORY)]
    if mine.empty:
        return []
    found = _rows(mine, "kernel")
    rows = {kernel: found[kernel] for kernel in _SUSTAINED if kernel in found}
    parts = [f"{short(kernel)} {_said(row)}" for kernel, row in rows.items()]
    least = in_bytes(min(row["footprint_B"] for row in rows.values()))
    where = (
        f"From memory ({least} or more)" if cache_ends(mine) else f"At the largest size ({least})"
    )
    sentences = [f"{where}: {listed(parts)}."]
    worth = []
    for kernel in rows:
        both = best(mine[mine["kernel"] == kernel], ("bytes_B", "nt")).pivot_table(
            index="bytes_B", columns="nt", values=BANDWIDTH
        )
        if {True, False} <= set(both.columns):
            # At the largest size of either.
            worth += [
                f"{ratio:.2f} times as high in {short(kernel)}"
                for ratio in (both[True] / both[False]).dropna().iloc[-1:]
            ]
    if worth:
        sentences.append(
            f"There, the bandwidth of non-temporal stores is {listed(worth)} as that of ordinary "
            "ones."
        )
    return sentences


def _on_levels(mine: DataFrame) -> list[str]:
    """Say the highest bandwidth in each cache, of triad or what was measured in more of them."""
    ends = cache_ends(mine)
    mine = mine[~mine["nt"] & (mine["level"] != "") & mine["kernel"].str.startswith("stream.")]
    if mine.empty or not ends:
        return []
    number = mine.groupby("kernel")["level"].nunique().to_dict()
    kernel = max(number, key=lambda name: (number[name], name == "stream.triad"))
    rows = _rows(mine[mine["kernel"] == kernel], "level")
    order = [level for level in (*(name for name, _ in ends), MEMORY) if level in rows]
    if len(order) < 2:
        return []
    parts = [f"{_said(rows[level])} in {level}" for level in order]
    return [f"With ordinary stores, {short(str(kernel))} reaches {listed(parts)}."]


def _on_launch(tests: DataFrame, empty: DataFrame) -> list[str]:
    """Say T0 and Wmax of BS1, and what an empty launch takes."""
    times = [three_figures(1e6 * time) for time in empty["time_min_s"]]
    launch = [f" An empty launch, BS0, takes {time} µs." for time in times]
    sentences = []
    for one in fitted(tests)[0]:
        held = " from what the caches hold" * (len(one.fits) > 1)
        where = " beyond them" if held else " in the caches" * one.in_caches
        sentences.append(
            f"BS1 takes T0 + B / Wmax, with {one.t0()}{held} and "
            f"{interval('Wmax', one.wmax_GBps, 'GB/s')}{where} (95 % intervals)."
            f"{''.join(launch[:1])}"
        )
    return sentences


def _on_indices(mine: DataFrame) -> list[str]:
    """Say how much random gather and scatter lose against the regular triad."""
    mine = mine[mine["kernel"].str.startswith("raider.")]
    mine, _ = prevailing(mine, (*SETTING, "elements"), count=("kernel",))
    rows = _rows(mine, "kernel")
    regular = rows.get("raider.triad")
    irregular = [name for name in ("raider.gather_triad", "raider.scatter_triad") if name in rows]
    if regular is None or not irregular:
        return []
    parts = [
        f"{short(name)} is {regular[BANDWIDTH] / rows[name][BANDWIDTH]:.1f} times slower "
        f"({_said(rows[name])})"
        for name in irregular
    ]
    return [
        f"Through a random permutation of {spaced(regular['elements'])} elements, {listed(parts)} "
        f"than the regular triad ({_said(regular)})."
    ]
