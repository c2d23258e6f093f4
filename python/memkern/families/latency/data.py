"""Records of latencies that figures draw and findings compare.

If a case has several records, the one with the lowest latency is used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memkern.backends import ACCELERATORS
from memkern.checks import LEAST, MOST
from memkern.formats import ResultSet
from memkern.inputs.sizes import parse_bytes
from memkern.machine.caches import FROM_MEMORY, MEMORY, held_in
from memkern.models.memory import middle
from memkern.models.records import by_topology, units_by_topology
from memkern.models.structure import plateaus
from memkern.plots.kit import (
    DataFrame,
    InputError,
    Records,
    cache_ends,
    concat,
    counted,
    environments_of,
    frame_of,
    in_bytes,
    joined,
    lines_B,
    need_rows,
    plain,
    ranked,
    select,
    split,
    typed,
    with_samples,
)
from memkern.statistics import half_width, meaningful

NS = "ns_per_access"
SHORTEST = "shortest_ns"
PAIRS = ("pairs", "pairs-across")
DIFFERS = "differs"
UNKNOWN = "unknown"
CHASE, LOADED, PING_PONG = "latency.chase", "latency.loaded", "latency.ping_pong"
TRIAD = "stream.triad"
# Names of the cases of `memkern.families.latency.kernels.numa_cases`.
NODES = r"^units of node (?P<units>\d+), memory of node (?P<memory>\d+)$"
_WARP = 32  # lanes, and banks of shared memory

MEASURE = "memkern latency -o latency.parquet"
MEASURE_CHAINS = "memkern latency --sizes 1GiB --chains 1,2,4,8,16,32 -o chains.parquet"
MEASURE_CORES = "memkern latency cores -o cores.parquet"
MEASURE_NUMA = "memkern latency numa -o numa.parquet"
MEASURE_STRUCTURE = "memkern latency structure -o structure.parquet"
MEASURE_GATHER = "memkern spatter -k gather -p UNIFORM:8:16:NR -t 1 -o gather.parquet"


def chases(
    records: Records, measure: str, columns: Sequence[str] = ()
) -> tuple[DataFrame, list[str]]:
    """Return the chases by one worker, with their order in the column kind, and notes.

    On GPUs the kind includes the variant: `simt` loads through L1, `l2` bypasses it.

    `columns` are required in addition to the columns that every figure of chases reads.
    """
    frame, notes = select(
        records,
        [CHASE],
        ("size_B", "chains", "order", "threads", *columns),
        measure=measure,
        value=NS,
    )
    frame = frame[frame["threads"] == 1]
    if "name" in frame:
        frame = frame[~frame["name"].astype(str).str.fullmatch(NODES.strip("^$"))]
    need_rows(frame, f"no chase was measured with one worker: `{measure}` does so")
    texts = frame["order"].astype(str) + " order"
    if "pages_requested" in frame and frame["pages_requested"].nunique() > 1:
        texts += ", pages " + frame["pages_requested"].astype(str)
    if {"backend", "variant"} <= set(frame):
        texts += (", " + frame["variant"].astype(str)).where(
            frame["backend"].isin(ACCELERATORS), ""
        )
    return frame.assign(kind=texts), notes


def beside_atomics(records: Records) -> tuple[DataFrame, list[str]]:
    """Return chases of loads and of atomic operations by one worker on processors and GPUs.

    The column kind contains the machine and either "loads", in random order, or the primitive.
    """
    loads, notes = chases(records, MEASURE, ["backend", "variant"])
    loads = loads[(loads["chains"] == 1) & (loads["order"] == "random")]
    on_gpu = loads["backend"].isin(ACCELERATORS)
    if not on_gpu.any() or on_gpu.all():
        raise InputError(
            "chases on a processor and on a GPU are needed, in random order and with one chain: "
            f"`{MEASURE}` and `memkern latency --device cuda -o gpu.parquet` measure them"
        )
    loads = loads.assign(kind="loads" + (", " + loads["variant"]).where(on_gpu, ""))
    atomic, more = select(
        records,
        ["amo.ptrchase"],
        numbers=("words", "threads"),
        texts=("primitive", "dtype"),
        value=NS,
    )
    atomic = atomic[atomic["threads"] == 1]
    bytes_each = atomic["dtype"].str.extract(r"(\d+)", expand=False).astype(float) / 8
    atomic = atomic.assign(
        kind="atomic " + atomic["primitive"].astype(str),
        size_B=atomic["words"] * bytes_each,
    )
    columns = ["machine", "kind", "size_B", NS, "disturbed"]
    parts = [part[columns] for part in (loads, atomic) if len(part)]
    frame = ranked(concat(parts), NS, lowest=True).drop_duplicates(["machine", "kind", "size_B"])
    return frame, [*dict.fromkeys([*notes, *more])]


def banks(records: Records) -> tuple[DataFrame, list[str]]:
    """Return loads from shared memory, with the column kind (words and warps), and notes.

    The column ways is the number of lanes of a warp that access the same bank, computed for 32
    banks of 4 bytes; cycles is the time of a load in cycles of the clock measured during kernels.
    """
    frame, notes = select(
        records,
        ["latency.banks"],
        numbers=("stride", "block_threads", "threads"),
        texts=("dtype",),
        measure="memkern latency banks -o banks.parquet",
        value=NS,
    )
    frame = typed(frame, ["gpu_clock_GHz"])
    warps = (frame["block_threads"] / _WARP).map(math.ceil)
    bits = frame["dtype"].str.removeprefix("uint")
    frame = frame.assign(
        kind=[f"{b} bits, {counted(w, 'warp')} a block" for b, w in zip(bits, warps, strict=True)],
        ways=[
            _ways(int(stride), dtype == "uint64")
            for stride, dtype in zip(frame["stride"], frame["dtype"], strict=True)
        ],
        cycles=frame[NS] * frame["gpu_clock_GHz"],
    )
    frame = ranked(frame, NS, lowest=True).drop_duplicates(["machine", "kind", "stride"])
    return frame.sort_values(["machine", "kind", "stride"], kind="stable"), notes


def _ways(stride: int, double: bool) -> int:
    """Return the number of accesses to a bank for one load of a warp."""
    if stride == 0:
        return 1
    # Words of 8 bytes take two banks each, and half of the lanes at a time.
    return math.gcd(stride, _WARP // 2) * 2 if double else math.gcd(stride, _WARP)


def several_chains(records: Records) -> tuple[DataFrame, list[str]]:
    """Return chases of sizes measured with one and several chains, and the latency of one chain."""
    frame, notes = chases(records, MEASURE_CHAINS)
    case = ["machine", "kind", "size_B"]
    frame = ranked(frame, NS, lowest=True).drop_duplicates([*case, "chains"])
    single = frame[frame["chains"] == 1].set_index(case)[[NS, "disturbed"]]
    frame = frame[frame.groupby(case)["chains"].transform("nunique") > 1]
    frame = frame.join(single.set_axis(["single", "unsure"], axis=1), on=case)
    frame = frame[frame["single"].notna()]
    need_rows(
        frame, f"no size was measured with one and with several chains: `{MEASURE_CHAINS}` does so"
    )
    return frame, notes


def concurrency(records: Records) -> tuple[DataFrame, list[str]]:
    """Return chases of sizes measured with one and several chains, with the column in_flight."""
    frame, notes = several_chains(records)
    frame = frame.assign(in_flight=frame["single"] / frame[NS])
    # More frequent accesses keep more lines in a cache that is shared with other cores.
    elsewhere = (frame["in_flight"] > 1.25 * frame["chains"]) & ~frame["unsure"]
    if elsewhere.any():
        notes.append(
            f"{counted(int(elsewhere.sum()), 'point')} left out, with loads that were faster than "
            "those of a single chain: a shared cache held more of the data."
        )
    return frame[~elsewhere], notes


def loaded_points(records: Records) -> tuple[DataFrame, list[str]]:
    """Return loaded latencies with their share of loads and the idle latency of the machine."""
    frame, notes = select(
        records,
        [LOADED],
        ("loads", "pause", "size_B", "traffic_GBps", "threads", "ci_relative"),
        measure="memkern latency loaded -o loaded.parquet",
        value=NS,
    )
    idle, _ = select(records, [CHASE], ("size_B", "chains", "threads"), value=NS)
    # The same chain without traffic.
    options = ("size_B", "order", "pages_requested")
    chain = ["machine", *(c for c in options if c in frame and (c in idle or idle.empty))]
    frame = ranked(frame, NS, lowest=True).drop_duplicates([*chain, "loads", "pause", "threads"])
    if len(idle):
        idle = idle[(idle["chains"] == 1) & (idle["threads"] == 1)]
        idle = ranked(idle, NS, lowest=True).drop_duplicates(chain)
        frame = frame.join(idle.set_index(chain)[NS].rename("idle_ns"), on=chain)
    else:
        frame = frame.assign(idle_ns=float("nan"))
    # Of the 8 lines of a group (see `memkern.families.latency.kernels`).
    share = 100 * frame["loads"] / 8
    return frame.assign(share=share, kind=[f"{s:.0f} % loads" for s in share]), notes


# Options of chases that have a summary of their own.
_APART = ("order", "chains", "line_B", "threads", "pages_requested", "variant_requested")


def level_lines(results: ResultSet) -> list[str]:
    """Return a table of the latency of each level of the memory hierarchy.

    Levels are the caches of the machine, as far as known, else the plateaus of the latency. The
    latency of a level is the median over the sizes well within it; disturbed records are left out
    of it.

    Parameters
    ----------
    results : ResultSet
        Records of chases over sizes.
    """
    ends = cache_ends(results)
    apart: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in results:
        apart.setdefault(tuple(record.get(name) for name in _APART), []).append(record)
    several = [len({key[position] for key in apart}) > 1 for position in range(len(_APART))]
    lines = [
        f"{'level':<8} {'sizes':<23} {'records':>7} {'ns':>8} {'±%':>5} {'ns of its sizes':>18}"
    ]
    for key, records in apart.items():
        if len(apart) > 1:
            words = (f"{name} {value}" for name, value in zip(_APART, key, strict=True))
            lines.append(", ".join(itertools.compress(words, several)))
        levels = _by_caches(records, ends) if ends else _by_plateaus(records)
        lines += [_level_line(*level) for level in levels]
    return lines


def level_in(chase: Mapping[Any, Any], ends: Sequence[tuple[str, float]]) -> str:
    """Return the level of memory whose latency a chase has; '' in between.

    Parameters
    ----------
    chase : mapping
    ends : sequence of (str, float)
        As for `memkern.machine.caches.held_in`.
    """
    level = held_in(chase["size_B"], ends)
    # Caches may have been larger at another time since the boot.
    held = level == MEMORY and (chase.get("caches_multiple") or math.inf) < FROM_MEMORY
    return "" if held else level


_Level = tuple[str, list[dict[str, Any]], list[dict[str, Any]]]


def _by_caches(
    records: Sequence[dict[str, Any]], ends: Sequence[tuple[str, float]]
) -> list[_Level]:
    """Return name, records, and records well within the level, of each level with records."""
    levels = []
    below_B = 0.0
    for name, end_B in [*ends, (MEMORY, math.inf)]:
        own = [r for r in records if below_B < r["size_B"] <= end_B]
        within = [r for r in own if level_in(r, ends) == name]
        below_B = max(below_B, end_B)
        if own:
            levels.append((name, own, within))
    return levels


def _by_plateaus(records: Sequence[dict[str, Any]]) -> list[_Level]:
    """Return the plateaus of the latency as levels (see `_by_caches`)."""
    sure = {float(r["size_B"]): r for r in records if not r["disturbed"]}
    levels = []
    found = plateaus([*sure], [record[NS] for record in sure.values()])
    for number, plateau in enumerate(found, start=1):
        own = [r for size_B, r in sure.items() if plateau.begin_B <= size_B <= plateau.end_B]
        levels.append((f"level {number}", own, own))
    return levels


def _level_line(
    name: str, records: Sequence[dict[str, Any]], within: Sequence[dict[str, Any]]
) -> str:
    """Return the line of a level."""
    sizes = [in_bytes(end(record["size_B"] for record in records)) for end in (min, max)]
    head = f"{name:<8} {' to '.join(dict.fromkeys(sizes)):<23} {len(records):>7}"
    sure = [record for record in records if not record["disturbed"]]
    if not sure:
        return f"{head} {'':>8} {'':>5} disturbed"
    inner = middle([record for record in within if not record["disturbed"]] or sure, NS)
    value = meaningful(inner[NS], inner["ci_relative"])
    half = half_width(inner["ci_relative"], "{}")
    reach = f"{min(r[NS] for r in sure):.2f} to {max(r[NS] for r in sure):.2f}"
    left_out = len(records) - len(sure)
    mark = f" {left_out} disturbed" * (left_out > 0)
    return f"{head} {value:>8} {half:>5} {reach:>18}{mark}"


def saturation(idle_ns: float, most_ns: float, threads: int) -> str:
    """Return the remark that traffic has not doubled the latency; empty if it has."""
    if not most_ns < 2 * idle_ns:
        return ""
    return f"not saturated with {counted(threads - 1, 'generator')}"


def loaded_sentence(results: Iterable[Mapping[str, Any]]) -> str:
    """Return the sentence on the idle latency and on that beside the most traffic.

    Parameters
    ----------
    results : iterable of mapping
        Records of a chase alone, and of loaded latency.
    """
    sure = [r for r in results if r["valid"] and not r["disturbed"]]
    alone = [record for record in sure if record["kernel"] == CHASE]
    beside = [record for record in sure if record["kernel"] == LOADED]
    if not (alone and beside):
        lacking = "beside" if alone else "without"
        return f"idle and loaded latency can't be compared: no undisturbed record {lacking} traffic"
    idle_ns = min(record["ns_per_access"] for record in alone)
    worst = max(beside, key=lambda record: float(record["ns_per_access"]))
    most_ns = worst["ns_per_access"]
    remark = saturation(idle_ns, most_ns, worst["threads"])
    return (
        f"latency of memory: idle {idle_ns:.1f} ns, loaded {most_ns:.1f} ns beside "
        f"{worst['traffic_GBps']:.1f} GB/s of traffic, {most_ns / idle_ns:.2f} times as long"
        + (f"; {remark}" if remark else "")
    )


def _numbered(frame: DataFrame, column: str, pattern: str, lack: str) -> DataFrame:
    """Return the records whose text in a column has a pattern, and columns of its groups.

    The groups are whole numbers, and have names. The error if there is no such record is `lack`.
    """
    found = frame[column].astype(str).str.extract(pattern).dropna().astype(int)
    need_rows(found, lack)
    return frame.loc[found.index].assign(**{str(name): found[name] for name in found})


def exchanges(records: Records) -> tuple[DataFrame, list[str]]:
    """Return exchanges of lines by two pinned workers, in the columns first and second, and notes.

    The column first is the unit of the worker that touched the lines first.
    """
    columns = ("pin", "lines", "take_by")
    frame, notes = select(records, [PING_PONG], columns, measure=MEASURE_CORES, value=NS)
    lack = f"no two workers were pinned to a unit each: `{MEASURE_CORES}` does so"
    frame = _numbered(frame, "pin", r"^(?P<first>\d+),(?P<second>\d+)$", lack)
    return ranked(frame, NS, lowest=True).drop_duplicates(["machine", *columns]), notes


def in_both_orders(records: Records) -> tuple[DataFrame, list[str]]:
    """Return `exchanges` with pairs that were measured in one order in both, and places of units.

    The places, in the columns first_place and second_place, are those in the machine's topology.
    """
    frame, notes = exchanges(records)
    orders = units_by_topology(environments_of(frame_of(records)))
    others = frame.rename(columns={"first": "second", "second": "first"})
    kind = ["machine", "lines", "take_by"]
    both = concat([frame, others]).drop_duplicates([*kind, "first", "second"])
    parts = []
    for _, rows in both.groupby(kind):
        units = by_topology(set(rows["first"]), fact_of(rows, orders) or ())
        places = {f"{name}_place": rows[name].map(units.index) for name in ("first", "second")}
        parts.append(rows.assign(**places))
    both = concat(parts)
    title = both["lines"].eq(1).map({True: "one line", False: "a line in each direction"})
    swapped = both["take_by"].eq("swap").map({True: ", swapped", False: ""})
    return both.assign(panel=title + swapped), notes


def fact_of(rows: DataFrame, facts: Mapping[str, Any]) -> Any:
    """Return the fact on the machine of these records, by environment, None if unknown."""
    return next((facts[key] for key in rows.get("environment_id", ()) if key in facts), None)


def node_pairs(records: Records) -> tuple[DataFrame, list[str]]:
    """Return chases and triads between NUMA nodes, in the columns units and memory, and notes.

    If a kernel and a pair of nodes have several records, the best one is used.
    """
    frame, notes = select(
        records,
        [CHASE, TRIAD],
        ("name", "bandwidth_GBps"),
        measure=MEASURE_NUMA,
        value="time_min_s",
    )
    frame = _numbered(
        frame, "name", NODES, f"no record is of NUMA nodes: `{MEASURE_NUMA}` measures them"
    )
    best = concat(
        [
            ranked(frame[frame["kernel"] == CHASE], NS, lowest=True),
            ranked(frame[frame["kernel"] == TRIAD], "bandwidth_GBps"),
        ]
    )
    return best.drop_duplicates(["machine", "kernel", "units", "memory"]), notes


def gathers(records: Records) -> tuple[DataFrame, list[str]]:
    """Return gathers by one worker with their lines per second, the highest for each stride.

    The column stride_B is the distance of uniform patterns, and NaN for random ones.
    """
    frame, notes = select(
        records,
        ["spatter.gather"],
        ("dtype", "threads"),
        numbers=("bytes_model_B",),
        texts=("pattern",),
        measure=MEASURE_GATHER,
        value="time_median_s",
    )
    line_B = lines_B(frame)
    elements = frame["pattern"].str.extract(r"^UNIFORM:\d+:(\d+)(?:$|:)")[0].astype(float)
    frame = frame.assign(
        stride_B=elements * frame["dtype"].map({"float64": 8.0, "float32": 4.0}),
        lines_per_s=frame["bytes_model_B"] / line_B / frame["time_median_s"],
    )
    random = frame["pattern"].str.startswith("RANDOM:")
    frame = frame[(frame["threads"] == 1) & (random | (frame["stride_B"] >= line_B))]
    need_rows(
        frame,
        "no gather by one worker is random or has a stride of a line and more: "
        f"`{MEASURE_GATHER}` measures one",
    )
    frame = ranked(frame, "lines_per_s").sort_values(
        "bytes_model_B", ascending=False, kind="stable"
    )
    return frame.drop_duplicates(["machine", "stride_B"]), notes


def chains_and_gathers(records: Records) -> tuple[DataFrame, DataFrame, list[str], list[str]]:
    """Return chains in the largest buffer and gathers for machines with both, and notes.

    The column rate of both is in million lines per second. The last list has a sentence for each
    machine that lacks one of both.
    """
    chains, notes = several_chains(records)
    chains = chains[chains["order"] == "random"]
    chains = chains[chains["size_B"] == chains.groupby("machine")["size_B"].transform("max")]
    chains = ranked(chains, NS, lowest=True).drop_duplicates(["machine", "chains"])
    loads, more = gathers(records)
    lonely = [
        *_alone(chains, loads, "gathers", MEASURE_GATHER),
        *_alone(loads, chains, "chains", MEASURE_CHAINS),
    ]
    chains = chains[chains["machine"].isin(loads["machine"])]
    need_rows(
        chains,
        f"no machine has chases and gathers: `{MEASURE_CHAINS}` and `{MEASURE_GATHER}` measure "
        "both",
    )
    loads = loads[loads["machine"].isin(chains["machine"])]
    rates = chains.assign(rate=1e3 / chains[NS]), loads.assign(rate=loads["lines_per_s"] / 1e6)
    return *rates, [*notes, *more], lonely


def _alone(there: DataFrame, others: DataFrame, what: str, measure: str) -> list[str]:
    """Return a sentence for each machine without other records, with what measures these."""
    machines = [m for m in dict.fromkeys(there["machine"]) if m not in set(others["machine"])]
    return [f"{plain(m)} left out: no record of {what}: `{measure}` does." for m in machines]


def sampled(records: Records, sizes: str) -> tuple[DataFrame, list[str]]:
    """Return chases with the times of an access in each sample in the column samples_ns.

    `sizes` are sizes of buffers, such as ``16KiB,1MiB``; by default up to six of all sizes.
    """
    frame, notes = chases(with_samples(records), MEASURE, ["time_median_s"])
    frame = typed(frame, ["time_median_s"])
    frame = frame[(frame["chains"] == 1) & ~frame["order"].isin(PAIRS)]
    frame = frame[frame["samples_s"].map(len) > 0]
    need_rows(
        frame, f"no chase with one chain has samples: `{MEASURE}` writes them beside the records"
    )
    if not all(LEAST <= t <= MOST for taken in frame["samples_s"] for t in taken):
        raise InputError("samples of a chase must be times, but some are missing, or out of range")
    frame = ranked(frame, NS, lowest=True).drop_duplicates(["machine", "kind", "size_B"])
    known = sorted(set(frame["size_B"]))
    wanted = [parse_bytes(size) for size in split(sizes)]
    for size_B in wanted:
        if size_B not in known:
            texts = joined([in_bytes(one) for one in known])
            raise InputError(f"no chase was measured in {in_bytes(size_B)}, only in {texts}")
    if not wanted:
        some = min(6, len(known))
        wanted = [known[round(k * (len(known) - 1) / max(some - 1, 1))] for k in range(some)]
    frame = frame[frame["size_B"].isin(wanted)]
    each_ns = frame[NS] / frame["time_median_s"]
    times = [ns * taken for ns, taken in zip(each_ns, frame["samples_s"], strict=True)]
    return frame.assign(samples_ns=times), notes
