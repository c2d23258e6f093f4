"""Findings on streaming kernels: sentences computed from records."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

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
    Finding,
    best,
    by_value,
    cache_ends,
    in_bytes,
    marked_ratio,
    prevailing,
    ranked,
    say,
    select,
    spaced,
    tell,
    with_names,
)
from memkern.shared.streaming_records import FAMILIES, MEMORY, as_defined, is_nt, levels, short

_SUSTAINED = ("stream.copy", "stream.triad")
_LOAD = "loops.load"


class _Machine(NamedTuple):
    """Records of a platform: all with their levels, values from memory, BS1, and launches."""

    rows: DataFrame
    values: DataFrame
    threshold: FromMemory
    tests: DataFrame
    empty: DataFrame

    @property
    def sustained(self) -> dict[str, dict[str, dict[Hashable, Any]]]:
        """The values of copy and triad from memory by name and kind of stores."""
        return {short(kernel): _by_stores(self.values, kernel) for kernel in _SUSTAINED}


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
        others = (rows[rows["platform"] == platform] for rows in (tests, empty))
        found[platform] = tell(_ROWS, _Machine(mine, values, thresholds[str(platform)], *others))
    return with_names(found)


def _by_stores(values: DataFrame, kernel: str) -> dict[str, dict[Hashable, Any]]:
    """Return the values of a kernel by its kind of stores, non-temporal ones first."""
    return by_value(values[values["operation"] == kernel].sort_values("stores"), "stores")


def _with(stores: str) -> str:
    return f" with {stores} stores" if stores else ""


def _on_memory(machine: _Machine) -> list[dict[str, str]]:
    """Return the bandwidths of copy and triad from memory."""
    values = machine.values
    least_B = values.loc[values["operation"].isin(_SUSTAINED), "least_B"].min()
    return [
        {
            "kernel": kernel,
            "values": " and ".join(
                say("{bandwidth_GBps}", row) + _with(kind) for kind, row in kinds.items()
            ),
            "where": _where(machine.threshold, least_B),
        }
        for kernel, kinds in machine.sustained.items()
        if kinds
    ]


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


def _gains(machine: _Machine) -> list[dict[str, str]]:
    """Return the gains of copy and triad by non-temporal stores."""
    return [
        {
            "kernel": kernel,
            "gain": marked_ratio(kinds[NONTEMPORAL], kinds[ORDINARY], BANDWIDTH),
        }
        for kernel, kinds in machine.sustained.items()
        if len(kinds) > 1
    ]


def _loads(machine: _Machine) -> list[dict[str, str]]:
    """Return the bandwidth of loads over those of copy and triad."""
    return [
        {"kernel": kernel, "times": marked_ratio(row, base, BANDWIDTH)}
        for kernel, kinds in machine.sustained.items()
        for row in _by_stores(machine.values, _LOAD).values()
        for base in [*kinds.values()][:1]
    ]


def _on_levels(machine: _Machine) -> list[dict[Any, Any]]:
    """Return the highest bandwidth in each cache, and the value from memory.

    The kernel is triad, or the one that was measured in most levels.
    """
    mine, ends = machine.rows, cache_ends(machine.rows)
    mine = mine[~mine["nt"] & (mine["level"] != "") & mine["kernel"].str.startswith("stream.")]
    if mine.empty or not ends:
        return []
    number = mine.groupby("kernel")["level"].nunique().to_dict()
    kernel = max(number, key=lambda name: (number[name], name == "stream.triad"))
    rows: dict[str, Any] = by_value(best(mine[mine["kernel"] == kernel], ["level"]), "level")
    rows[MEMORY] = _by_stores(machine.values, str(kernel)).get(ORDINARY)
    order = [name for name, _ in ends] + [MEMORY]
    found = [{**rows[level], "name": short(str(kernel))} for level in order if rows.get(level)]
    return found if len(found) > 1 else []


def _on_launch(machine: _Machine) -> list[dict[str, str]]:
    """Return T0 and Wmax of BS1, and the time of an empty launch."""
    empty = [
        say(" An empty launch, BS0, takes {us:3} µs{mark}.", {**row, "us": 1e6 * row["time_min_s"]})
        for row in machine.empty.to_dict("records")
    ]
    found = []
    for one in fitted(machine.tests)[0]:
        held = " for sizes within the caches" * (len(one.fits) > 1)
        rows = one.rows[one.rows["bytes_B"].isin(one.fits[-1].points["bytes_B"])]
        kinds = [kind for kind in (NONTEMPORAL, ORDINARY) if stores(rows).eq(kind).any()]
        found.append(
            {
                "t0": one.t0() + held,
                "wmax": one.wmax() + (" beyond them" if held else " in the caches" * one.in_caches),
                "stores": _with(" or ".join(kinds)),
                "empty": "".join(empty[:1]),
            }
        )
    return found


def _on_indices(machine: _Machine) -> list[dict[Any, Any]]:
    """Return random gather and scatter triads, and the regular triad."""
    mine = machine.rows[machine.rows["kernel"].str.startswith("raider.")]
    mine, _ = prevailing(
        mine.assign(stores=stores(mine)), (*SETTING, "elements"), count=("kernel",)
    )
    rows = by_value(best(mine, ["kernel"]), "kernel")
    regular = rows.get("raider.triad")
    if regular is None:
        return []
    position = f"{in_bytes(regular['footprint_B'])}, which the caches hold partly or entirely"
    elements, kind = spaced(regular["elements"]), regular["stores"]
    if regular["level"] == MEMORY:
        # The same value of the triad from memory as in the other sentences.
        regular = _by_stores(machine.values, "stream.triad")[kind]
        position = "from memory"
    return [
        {
            **rows[name],
            "elements": elements,
            "position": position,
            "name": short(name),
            "times": marked_ratio(regular, rows[name], BANDWIDTH),
            "regular": _with(kind) + say(" ({bandwidth_GBps})", regular),
        }
        for name in ("raider.gather_triad", "raider.scatter_triad")
        if name in rows
    ]


_ROWS = (
    Finding("sizes", _on_memory, "{where}: {parts}.", "{kernel} {values}", "; "),
    Finding(
        "sizes", _gains,
        "There, non-temporal stores change the bandwidth by a factor of {parts}.",
        "{gain} in {kernel}",
    ),
    Finding(
        "sizes", _loads, "The bandwidth of loads is {parts}.",
        "{times} times that of {kernel}",
    ),
    Finding(
        "sizes", _on_levels, "With ordinary stores, {name} reaches {parts}.",
        "{bandwidth_GBps} in {level}",
    ),
    Finding(
        "bs-fit", _on_launch,
        "BS1 takes T0 + B / Wmax, with {t0} and {wmax}{stores} (95 % intervals).{empty}",
    ),
    Finding(
        "raider-kernels", _on_indices,
        "Through a random permutation of {elements} elements ({position}), {parts} than the "
        "regular triad{regular}.",
        "{name} is {times} times slower ({bandwidth_GBps})",
    ),
)  # fmt: skip
