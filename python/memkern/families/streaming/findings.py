"""Findings on streaming kernels: sentences computed from records."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from memkern.families.bs.figures import fitted, own_tests
from memkern.machine.caches import MULTIPLE
from memkern.models.memory import (
    NONTEMPORAL,
    ORDINARY,
    FromMemory,
    from_memory,
    memory_values,
    stores,
)
from memkern.plots.kit import (
    BANDWIDTH,
    SETTING,
    DataFrame,
    best,
    by_value,
    cache_ends,
    disturbed_mark,
    in_bytes,
    joined,
    marked_ratio,
    marked_value,
    prevailing,
    ranked,
    select,
    shown_in,
    spaced,
    three_figures,
    with_names,
)
from memkern.shared.streaming_records import FAMILIES, MEMORY, as_defined, is_nt, levels, short

_SUSTAINED = ("stream.copy", "stream.triad")
_LOAD = "loops.load"


def findings(records: DataFrame) -> list[str]:
    """Return the findings on every own platform, the most important first.

    Raises
    ------
    InputError
        As `memkern.families.streaming.figures.sizes`.
    """
    frame, _ = select(
        records, list(FAMILIES), ("bytes_B", "variant", "footprint_B", "dtype", "threads")
    )
    frame, _ = prevailing(as_defined(frame, "paper", "permutation"))
    thresholds = from_memory(frame)
    frame = frame.assign(nt=is_nt(frame), level=levels(frame, thresholds))
    tests, _ = own_tests(records, ["bs.bs1"])
    empty, _ = select(records, ["bs.bs0"], value="time_min_s")
    empty = ranked(empty, "time_min_s", lowest=True)
    found = {}
    for platform, mine in frame.groupby("platform", sort=False):
        values = memory_values(mine, thresholds)
        found[platform] = [
            *shown_in("sizes", _on_memory(values, thresholds[str(platform)])),
            *shown_in("sizes", _on_levels(mine, values)),
            *shown_in(
                "bs-fit",
                _on_launch(*(part[part["platform"] == platform] for part in (tests, empty))),
            ),
            *shown_in("raider-kernels", _on_indices(mine, values)),
        ]
    return with_names(found)


def _bandwidth(row: Mapping[Hashable, Any]) -> str:
    return marked_value(row, BANDWIDTH, "GB/s")


def _on_memory(values: DataFrame, threshold: FromMemory) -> list[str]:
    """Return the sentences on copy, triad and loads from memory, and on non-temporal stores."""
    of_load = _by_stores(values, _LOAD).values()
    values = values[values["operation"].isin(_SUSTAINED)]
    if values.empty:
        return []
    parts, gains, loads = [], [], []
    for kernel in _SUSTAINED:
        of_kernel = _by_stores(values, kernel)
        each = [f"{_bandwidth(row)}{_with(kind)}" for kind, row in of_kernel.items()]
        parts += [f"{short(kernel)} {' and '.join(each)}"] * bool(each)
        if len(of_kernel) > 1:
            gain = marked_ratio(of_kernel[NONTEMPORAL], of_kernel[ORDINARY], BANDWIDTH)
            gains.append(f"{gain} in {short(kernel)}")
        loads += [
            f"{marked_ratio(row, base, BANDWIDTH)} times that of {short(kernel)}"
            for row in of_load
            for base in [*of_kernel.values()][:1]
        ]
    sentences = [f"{_where(threshold, values['least_B'].min())}: {'; '.join(parts)}."]
    factors = {
        "There, non-temporal stores change the bandwidth by a factor of": gains,
        "The bandwidth of loads is": loads,
    }
    return sentences + [f"{text} {joined(told)}." for text, told in factors.items() if told]


def _where(threshold: FromMemory, least_B: float) -> str:
    """Return as text the sizes that count as in memory, and the reason."""
    if threshold.how == "largest":
        return f"At the largest size ({in_bytes(least_B)})"
    reasons = {
        "plateau": "beyond which bandwidth no longer drops",
        "caches": f"{MULTIPLE} times the last-level caches, since records have too few sizes to "
        "show more",
    }
    return f"From memory ({in_bytes(threshold.least_B)} or more, {reasons[threshold.how]})"


def _by_stores(values: DataFrame, kernel: str) -> dict[str, dict[Hashable, Any]]:
    """Return the values of a kernel by its kind of stores, non-temporal ones first."""
    return by_value(values[values["operation"] == kernel].sort_values("stores"), "stores")


def _with(stores: str) -> str:
    return f" with {stores} stores" if stores else ""


def _on_levels(mine: DataFrame, values: DataFrame) -> list[str]:
    """Return the sentence on the highest bandwidth in each cache, and the value from memory.

    The kernel is triad, or the one that was measured in most levels.
    """
    ends = cache_ends(mine)
    mine = mine[~mine["nt"] & (mine["level"] != "") & mine["kernel"].str.startswith("stream.")]
    if mine.empty or not ends:
        return []
    number = mine.groupby("kernel")["level"].nunique().to_dict()
    kernel = max(number, key=lambda name: (number[name], name == "stream.triad"))
    rows: dict[str, Any] = by_value(best(mine[mine["kernel"] == kernel], ["level"]), "level")
    rows[MEMORY] = _by_stores(values, str(kernel)).get(ORDINARY)
    order = [name for name, _ in ends] + [MEMORY]
    parts = [f"{_bandwidth(rows[level])} in {level}" for level in order if rows.get(level)]
    if len(parts) < 2:
        return []
    return [f"With ordinary stores, {short(str(kernel))} reaches {joined(parts)}."]


def _on_launch(tests: DataFrame, empty: DataFrame) -> list[str]:
    """Return the sentence on T0 and Wmax of BS1 and the time of an empty launch."""
    launch = [
        f" An empty launch, BS0, takes {three_figures(1e6 * row['time_min_s'])} µs"
        f"{disturbed_mark(row['disturbed'])}."
        for row in empty.to_dict("records")
    ]
    sentences = []
    for one in fitted(tests)[0]:
        held = " for sizes within the caches" * (len(one.fits) > 1)
        where = " beyond them" if held else " in the caches" * one.in_caches
        rows = one.rows[one.rows["bytes_B"].isin(one.fits[-1].points["bytes_B"])]
        kinds = [kind for kind in (NONTEMPORAL, ORDINARY) if stores(rows).eq(kind).any()]
        sentences.append(
            f"BS1 takes T0 + B / Wmax, with {one.t0()}{held} and "
            f"{one.wmax()}{where}{_with(' or '.join(kinds))} "
            f"(95 % intervals).{''.join(launch[:1])}"
        )
    return sentences


def _on_indices(mine: DataFrame, values: DataFrame) -> list[str]:
    """Return the sentence on random gather and scatter triads against the regular triad."""
    mine = mine[mine["kernel"].str.startswith("raider.")]
    mine = mine.assign(stores=stores(mine))
    mine, _ = prevailing(mine, (*SETTING, "elements"), count=("kernel",))
    rows = by_value(best(mine, ["kernel"]), "kernel")
    regular = rows.get("raider.triad")
    irregular = [name for name in ("raider.gather_triad", "raider.scatter_triad") if name in rows]
    if regular is None or not irregular:
        return []
    if regular["level"] == MEMORY:
        # The same value of the triad from memory as in the other sentences.
        triad = _by_stores(values, "stream.triad")[regular["stores"]]
        regular = {**triad, "elements": regular["elements"], "stores": regular["stores"]}
        position = "from memory"
    else:
        position = f"{in_bytes(regular['footprint_B'])}, which the caches hold partly or entirely"
    parts = [
        f"{short(name)} is {marked_ratio(regular, rows[name], BANDWIDTH)} times slower "
        f"({_bandwidth(rows[name])})"
        for name in irregular
    ]
    return [
        f"Through a random permutation of {spaced(regular['elements'])} elements ({position}), "
        f"{joined(parts)} than the regular triad{_with(regular['stores'])} ({_bandwidth(regular)})."
    ]
