"""Records of gather and scatter on one machine, and on its GPU."""

import numpy as np
import pandas as pd
from plotting import common_columns

from memkern import reference
from memkern.families.spatter import data as spatter_data

GATHER, SCATTER = "spatter.gather", "spatter.scatter"
STRIDES = [1, 2, 4, 8, 16, 32, 64, 128]
VARIANTS = {"scalar": 1.0, "auto": 0.9, "simd": 1.25}
PAGES = {"4k": 1.0, "thp": 1.1}
PUBLISHED_CPUS = ["Broadwell", "Skylake", "Thunder X2", "Knights Landing", "Cascade Lake", "Naples"]
PUBLISHED_GPUS = ["K40", "Titan XP", "P100", "V100"]
OWN = "Own Machine 3000, 4 threads"


def record(kernel, pattern, bandwidth, **other):
    """Return one record with the columns that figures and report read."""
    return {
        **common_columns(kernel, 4, "Own Machine 3000"),
        "suite": "ustride" if pattern.startswith("UNIFORM") else pattern.partition("-")[0].lower(),
        "pattern": pattern,
        "delta": "8",
        "count": 1000,
        "count_rule": "paper",
        "variant": "simd",
        "isa": "avx2",
        "pages_requested": "thp",
        "pages": "thp",
        "bandwidth_GBps": bandwidth,
        "bandwidth_median_GBps": 0.98 * bandwidth,
        "time_min_s": 1e-3,
        "ci_relative": 0.01,
        "samples": 23,
        "started": "2026-03-01T12:00:00+00:00",
        "validation": "whole",
        "error_max": 0.0,
    } | other


def own_records(**other):
    """Return records of all strides (three variants, two page policies) and of all patterns."""
    rows = []
    for kernel, top in ((GATHER, 60.0), (SCATTER, 40.0)):
        for stride in STRIDES:
            for variant, gain in VARIANTS.items():
                for pages, huge in PAGES.items():
                    how = {"variant": variant, "pages_requested": pages, "pages": pages}
                    bandwidth = top / min(stride, 10) * gain * huge
                    pattern, delta = f"UNIFORM:8:{stride}", str(8 * stride)
                    rows.append(record(kernel, pattern, bandwidth, delta=delta, **how))
    for i, name in enumerate(spatter_data.application_patterns()):
        kernel = SCATTER if "-S" in name else GATHER
        rows.append(record(kernel, name, 100.0 / 1.2**i, delta="2"))
    return pd.DataFrame(rows).assign(**other)


def gpu_records():
    """Return own records of a GPU, with the pattern lengths of the paper for GPUs."""
    frame = own_records(platform="Own GPU", backend="cuda")
    frame["pattern"] = frame["pattern"].str.replace("UNIFORM:8:", "UNIFORM:256:")
    short = frame["pattern"].str.startswith("UNIFORM")
    frame.loc[short, "delta"] = (32 * frame.loc[short, "delta"].astype(int)).astype(str)
    return frame


# Own bandwidths at stride 1 of the fastest variant and page policy.
STRIDE_1 = {GATHER: 60 * 1.25 * 1.1, SCATTER: 40 * 1.25 * 1.1}


def fastest(kernel):
    """Return the own bandwidths of all strides."""
    return np.array([STRIDE_1[kernel] / min(stride, 10) for stride in STRIDES])


# The labels of the published platforms have their threads.
THREADS = dict(zip(PUBLISHED_CPUS, ("24", "24", "32", "272", "20", "12 or 24"), strict=True))


def labelled(platform, strides=False):
    """Return the label of a platform, in a figure of strides or of all cases."""
    if platform not in THREADS:
        return platform
    return f"{platform}, {THREADS[platform].split()[-1] if strides else THREADS[platform]} threads"


# Reading the table takes as long as drawing a small figure.
PUBLISHED = reference.load("lavin2020")


def published(platform, kernel, pattern=None):
    """Return a platform's published bandwidth of a pattern, or the bandwidths of all strides."""
    rows = PUBLISHED
    rows = rows[(rows["platform"] == platform) & (rows["kernel"] == kernel)]
    if pattern is not None:
        return float(rows[rows["pattern"] == pattern]["bandwidth_GBps"].iloc[0])
    strides = rows[rows["suite"] == "ustride"]["pattern"].str.rpartition(":")[2].astype(int)
    return rows.loc[strides.sort_values().index, "bandwidth_GBps"].tolist()


def over_stride_1(platform, kernel, pattern):
    """Return a platform's published bandwidth of a pattern over that of stride 1."""
    length = 8 if platform in PUBLISHED_CPUS else 256
    base = published(platform, kernel, f"UNIFORM:{length}:1")
    return published(platform, kernel, pattern) / base
