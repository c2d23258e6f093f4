"""Records of latencies on one machine, for the tests of figures, tables and findings."""

import math

import numpy as np
from plotting import KIB, MIB, Results, common_columns

from memkern.families.latency.kernels import GROUP

SIZES = tuple(16 * KIB * 4**i for i in range(7))


def record(kernel, ns, machine="Own Machine 3000", threads=1, **other):
    """Return one record with the columns that figures read."""
    return {
        **common_columns(f"latency.{kernel}", threads, machine),
        "pages": "4k",
        "pages_requested": "default",
        "ns_per_access": ns,
        "lines": other.get("size_B", 64) // 64,
        "clock_GHz": 4.0,
        "time_min_s": 0.9e-3,
        "time_median_s": 1e-3,
        "ci_relative": 0.02,
        "bandwidth_GBps": 8 / ns,
    } | other


def sizes(order="random", **other):
    """Return chases of 2 ns in the first size and twice as long in each further one."""
    how = {"chains": 1, "order": order, **other}
    return [record("chase", 2.0 * 2**i, size_B=size, **how) for i, size in enumerate(SIZES)]


def chains(most=16, size=SIZES[-1], ns=128.0, **other):
    """Return chases with 1 to 32 chains; a core has at most `most` loads in flight."""
    return [
        record("chase", ns / min(n, most), size_B=size, order="random", chains=n, **other)
        for n in (1, 2, 4, 8, 16, 32)
    ]


def loaded(threads=4, size=SIZES[-1], slower=3.0, **other):
    """Return latencies that grow with the traffic, up to `slower` times 128 ns."""
    return [
        record(
            "loaded", 128 * (1 + (slower - 1) * share**3), size_B=size, loads=loads, pause=pause,
            traffic_GBps=share * (100 - 5 * (GROUP - loads)), threads=threads, order="random",
            **other,
        )
        for loads in (8, 6, 4)
        for pause, share in ((0, 1.0), (64, 0.7), (256, 0.4), (1024, 0.1))
    ]  # fmt: skip


def pairs(units=4, **other):
    """Return all pairs of units: 50 ns for neighbours, 100 ns for others; half with two lines."""
    return [
        record(
            "ping_pong", (50.0 if b // 2 == a // 2 else 100.0) / lines, pin=f"{a},{b}",
            lines=lines, threads=2, take_by="load", **other,
        )
        for lines in (1, 2)
        for a in range(units)
        for b in range(a + 1, units)
    ]  # fmt: skip


def nodes(units=2, memories=2, **other):
    """Return 100 ns and 50 GB/s to a node's own memory, 200 ns and 25 GB/s to other memory."""
    rows = []
    for near in range(units):
        for far in range(memories):
            slower = 1 + (near != far)
            how = {"name": f"units of node {near}, memory of node {far}", **other}
            how |= {"size_B": 2**30, "order": "random", "chains": 1, "time_min_s": 1.0}
            rows.append(record("chase", 100.0 * slower, **how))
            rows.append({**rows[-1], "kernel": "stream.triad", "bandwidth_GBps": 50.0 / slower})
    return rows


def levels(ends, **other):
    """Return chases in random order, of 1 KiB to 128 MiB, with the latency of each level."""
    every = [round(KIB * 2 ** (k / 4)) for k in range(69)]
    return [
        record("chase", next(ns for end, ns in ends.items() if size <= end), size_B=size,
               order="random", chains=1, **other)
        for size in every
    ]  # fmt: skip


def pair(order, distance_B, second, first, size_B, **other):
    """Return a chase through pairs with these times of the first and the second access."""
    return record("chase", (first + second) / 2, size_B=size_B, order=order, chains=1,
                  distance_B=distance_B, **other)  # fmt: skip


def structured(line_B=64, fetched=False, reaches=(64, 1536), ends=None, **other):
    """Return records of a whole structure: caches, TLBs of 2 ns and 20 ns a miss, and pairs."""
    dense = levels(ends or {32 * KIB: 1.0, MIB: 4.0, 16 * MIB: 15.0, 2**40: 100.0}, **other)
    costs = (0.0, 2.0, 20.0)
    apart = [
        {
            **row, "order": "one-per-page", "size_B": 4096 * row["lines"], "pages_requested": "4k",
            "ns_per_access": row["ns_per_access"] + costs[np.searchsorted(reaches, row["lines"])],
        }
        for row in dense
        if 16 <= row["lines"] <= 2**14
    ]  # fmt: skip
    both = [
        pair(order, int(distance), 1.0 if distance < line_B else far, far, size, **other)
        for order in ("pairs", "pairs-across")
        for size, far in ((4 * MIB, 4.0), (128 * MIB, 15.0))
        for distance in 2 ** np.arange(3, 11)
    ]
    if fetched:
        both = [
            pair("pairs", line_B, 4.0, 15.0, 128 * MIB, **other)
            if (row["order"], row["distance_B"], row["size_B"]) == ("pairs", line_B, 128 * MIB)
            else row
            for row in both
        ]
    return [*dense, *apart, *both]


def gathers(**other):
    """Return a random gather of 100 million lines per second, and strided ones of 200 million."""
    patterns = {f"UNIFORM:8:{stride}:NR": 0.5 for stride in (4, 8, 16, 64, 128)}
    return [
        record("chase", 1.0, pattern=pattern, dtype="float64", bytes_model_B=64e5, **other)
        | {"kernel": "spatter.gather", "time_median_s": 1e-3 * share}
        for pattern, share in {**patterns, "RANDOM:1048576:33554432:1": 1.0}.items()
    ]


def banks(dtype="uint32", block_threads=32, **other):
    """Return loads of 16 ns and 1 ns more for each further lane of a warp in the same bank."""
    return [
        record(
            "banks", 15.0 + math.gcd(stride, 32), stride=stride, dtype=dtype,
            block_threads=block_threads, gpu_clock_GHz=2.0, **other,
        )
        for stride in range(1, 33)
    ]  # fmt: skip


def all_records(**other):
    return [
        *banks(**other), *banks(block_threads=1024, **other),
        *sizes(**other), *chains(**other), *loaded(**other), *pairs(**other), *nodes(**other),
        *gathers(**other),
    ]  # fmt: skip


def sampled(rows):
    """Return records with samples around their times."""
    rng = np.random.default_rng(0)
    return Results(rows, [1e-3 * np.exp(0.1 * rng.standard_normal(50)) for _ in rows])
