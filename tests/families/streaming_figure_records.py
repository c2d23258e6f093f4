"""Records of streaming kernels on a made-up machine, which their figures draw."""

import math

import numpy as np
from plotting import KIB, LONG, MIB, common_columns

OWN = "Own Machine 3000, 4 threads"
LONG_PLATFORM = f"{LONG}, 112 threads"
STREAMS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}
# Bandwidths of a machine with caches of 32 KiB and 1 MiB per core, and 16 MiB for all cores.
BANDWIDTHS = ((4 * 32 * KIB, 400.0), (4 * MIB, 200.0), (16 * MIB, 150.0), (math.inf, 30.0))


def record(kernel, size, bandwidth, **other):
    """Return one record with the columns that figures read."""
    return {
        **common_columns(kernel, 4, "Own Machine 3000"),
        "definition": "",
        "elements": size // 8,
        "variant": "simd",
        "repetition": "fork",
        "unroll": 0,
        "bytes_B": size,
        "footprint_B": size,
        "time_min_s": size / bandwidth / 1e9,
        "bandwidth_GBps": bandwidth,
        "clock_GHz": 2.0,
        "cycles_per_vector": 64 * 2.0 / bandwidth,
        "performance_GFLOPs": math.nan,
    } | other


def held(size):
    """Return the bandwidth for data of this size."""
    return next(bandwidth for end, bandwidth in BANDWIDTHS if size <= end)


def stream(sizes=tuple(16 * KIB * 2**i for i in range(15)), nt=True, **other):
    """Return STREAM over sizes from L1 to memory."""
    rows = []
    for name in STREAMS:
        for size in map(int, sizes):
            rows.append(record(f"stream.{name}", size, held(size), **other))
            if nt:
                rows.append(record(f"stream.{name}", size, 45.0, **other, variant="nt"))
    return rows


def bs(numbers=range(1, 6), **other):
    """Return BS1 to BS5: 2 us, 150 GB/s for the first 16 MiB and 30 GB/s for the rest."""
    rows = []
    for number in numbers:
        for size in map(int, 64 * KIB * 2 ** np.arange(0, 13, 0.5)):
            time = 2e-6 + size / 150e9
            if size > 16 * MIB:
                time = (size - 16 * MIB) / 30e9 + 16 * MIB / 150e9
            rows.append(record(f"bs.bs{number}", size, size / time / 1e9, **other))
    return rows


def meshes(**other):
    """Return BS6 to BS8: 3 us and 100 GB/s at every degree and size."""
    rows = []
    for number in (6, 7, 8):
        for degree in range(1, 8):
            for side in (2, 3, 4, 6, 8, 12):
                size = 28 * side**3 * (degree + 1) ** 3
                bandwidth = size / (3e-6 + size / 100e9) / 1e9
                how = {"degree": degree, "mesh_elements": side, **other}
                rows.append(record(f"bs.bs{number}", size, bandwidth, **how))
    return rows


def raider(**other):
    """Return all twenty kernels in three sizes, two definitions and two patterns."""
    rows = []
    for elements in (100_000, 1_000_000, 10_000_000):
        for access, slower in {"": 1, "gather_": 8, "scatter_": 10, "sg_": 16}.items():
            for name, arrays in STREAMS.items():
                for pattern, gain in {"permutation": 1, "stride:8": 2}.items():
                    for definition, more in {"paper": 1, "release": 1.5}.items():
                        size = 8 * elements * arrays
                        how = {
                            "elements": elements,
                            "definition": definition,
                            "index_pattern": pattern if access else None,
                            **other,
                        }
                        bandwidth = held(size) / slower * (gain if access else 1) * more
                        rows.append(record(f"raider.{access}{name}", size, bandwidth, **how))
        rows += [
            record(f"raider.central_{name}", 1, 500.0, elements=elements, index_pattern="", **other)
            for name in STREAMS
        ]
    return rows


def loops(names=("triad", "sum", "update"), unrolls=(0, 1, 4), **other):
    """Return loops on one thread, whose bandwidth grows with unrolling."""
    rows = []
    for name in names:
        for unroll in unrolls:
            for size in map(int, 8 * KIB * 2 ** np.arange(15)):
                bandwidth = held(4 * size) / 4 * (1 + unroll / 8)
                how = {"unroll": unroll, "threads": 1, "platform": "Own Machine 3000, 1 thread"}
                # Page walks of every page of 4 KiB beyond a TLB of 1024 entries.
                how |= {"counted_tlb_misses": size / 4096 if size > 4 * MIB else 1 + unroll}
                rows.append(record(f"loops.{name}", size, bandwidth, **{**how, **other}))
    return rows


def threads(counts=(1, 2, 4), names=("stream.copy", "stream.triad", "bs.bs3"), name="Own", **other):
    """Return kernels that scale up to two threads."""
    rows = []
    for kernel in names:
        for count in counts:
            platform = f"{name}, {count} thread{'s' * (count > 1)}"
            how = {"threads": count, "platform": platform, **other}
            rows.append(record(kernel, 2**30, 20.0 * min(count, 2), **how))
    return rows


def barriers(counts=(1, 2, 4), name="Own", **other):
    """Return three kinds of barrier: 100, 200 and 300 ns for each thread."""
    rows = []
    for i, kind in enumerate(("spin", "omp-active", "omp-passive")):
        for count in counts:
            cost = 1e-7 * (i + 1) * count
            how = {
                "platform": f"{name}, {count} thread{'s' * (count > 1)}",
                "threads": count,
                "barrier": kind,
                "barrier_s": cost,
                "barrier_low_s": 0.9 * cost,
                "barrier_high_s": 1.5 * cost,
            }
            rows.append(record("launch.barrier", 1, math.nan, **{**how, **other}))
    return rows


def matvec(**other):
    """Return matrix-vector products, at half the speed with the non-temporal hint.

    By the model, L3 holds y up to 8 MiB; counters find 10 % more.
    """
    rows = []
    for count in (1000, 10_000, 100_000, 1_000_000, 10_000_000):
        for variant, speed in {"auto": 8.0, "nta": 4.0}.items():
            elements, spilled = 192 * count, 8 * count > 8 * MIB
            how = {"rows": count, "elements": elements, "variant": variant}
            how |= {"performance_GFLOPs": speed}
            how |= {"memory_load_B": (8 + 8 * spilled) * elements}
            how |= {"memory_store_B": 8 * spilled * elements}
            how |= {f"counted_{name}": 1.1 * how[name] for name in how if name.endswith("_B")}
            how |= other
            rows.append(record("loops.matvec", 192 * 8 * count, 6 * speed, **how))
    return rows


def everything(**other):
    """Return records for all figures."""
    return [
        *stream(**other),
        *bs(**other),
        *meshes(**other),
        *raider(**other),
        *loops(**other),
        *threads(**other),
        *barriers(**other),
        *matvec(**other),
    ]
