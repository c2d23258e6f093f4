"""Records of one machine with all figures of merit, for the tests of them and of reports."""

import numpy as np

from memkern.formats import ResultSet

MIB = 2**20
ENVIRONMENT = {
    "machine": {
        "model": "Intel(R) Xeon(R) Platinum 8280 CPU @ 2.70GHz",
        "vendor": "GenuineIntel",
        "architecture": "x86_64",
        "family": "6",
        "model_number": "85",
        "stepping": "7",
        "sockets": 1,
        "cores": 28,
        "threads": 28,
        "caches": [
            {"level": 1, "type": "data", "size_B": 2**15, "instances": 28, "shared_by": 1},
            {"level": 2, "type": "unified", "size_B": MIB, "instances": 28, "shared_by": 1},
            {"level": 3, "type": "unified", "size_B": 40 * MIB, "instances": 1, "shared_by": 28},
        ],
        "memory_B": 192 * 2**30,
    },
    "memory": {"channels": 6, "kind": "DDR4", "speed_MTs": 2933, "peak_GBps": 140.8},
    "measured_caches": {"sizes_B": {"L3": 30 * MIB}},
    "os": {"distribution": "A system 12", "kernel": "6.1"},
    "python": {"memkern": "0.1.0"},
    "run": {"load": [0.5, 0.4, 0.3]},
}
FOOTPRINT_B = 256 * MIB


def record(kernel, seconds, **columns):
    """Return a record whose shortest time is `seconds`: with 9 samples and an interval."""
    case = f"{kernel} {sorted(columns.items())} {seconds}"
    common = {
        "case_id": case,
        "name": case,
        "case_columns": "",
        "repeat": 0,
        "environment_id": "e1",
        "platform": "Xeon Platinum 8280, 28 threads",
        "started": "2026-05-01T10:00:00+00:00",
        "backend": "openmp",
        "dtype": "float64",
        "variant": "auto",
        "isa": "avx2",
        "pages": "thp",
        "threads": 28,
        "valid": True,
        "disturbed": False,
        "state": "quiet",
        "footprint_B": FOOTPRINT_B,
        "caches_multiple": 8.0,
        "samples": 9,
        "placements": 5,
        "placement_sd": 0.01,
        "time_min_s": seconds,
        "time_median_s": 1.1 * seconds,
        "time_min_ci_low_s": 0.9 * seconds,
        "time_min_ci_high_s": 1.25 * seconds,
        "time_min_ci_relative": 0.175,
        "ci_relative": 0.1,
    }
    return {"kernel": kernel, **common, **columns}


def streams(kernel, GBps, load_B, store_B, **columns):
    """Return the record of a streaming kernel of this bandwidth by the paper's bytes."""
    seconds = (load_B + store_B) / GBps / 1e9
    return record(
        kernel,
        seconds,
        bytes_B=load_B + store_B,
        bandwidth_GBps=GBps,
        memory_load_B=float(load_B),
        memory_store_B=float(store_B),
        **columns,
    )


def records():
    """Return a record for each figure of merit, and for others from which they must be told."""
    third = FOOTPRINT_B // 3
    gathers = {"suite": "ustride", "count_rule": ""}
    private = {"sharing": "private", "padding_B": 64, "primitive": "add"}
    shared = {"sharing": "original", "padding_B": 0, "primitive": "add"}
    chase = {"threads": 1, "chains": 1, "order": "random", "size_B": FOOTPRINT_B}
    return [
        streams("stream.copy", 100.0, FOOTPRINT_B // 2, FOOTPRINT_B // 2, variant="nt"),
        streams("stream.copy", 70.0, FOOTPRINT_B // 2, FOOTPRINT_B // 2),
        streams("stream.triad", 105.0, 2 * third, third, variant="nt"),
        streams("loops.load", 110.0, FOOTPRINT_B, 0),
        streams("loops.load", 900.0, 2**14, 0, footprint_B=2**14, caches_multiple=0.001),
        record("latency.chase", 1e-3, ns_per_access=110.0, **chase),
        record("latency.chase", 1e-3, ns_per_access=2.0, **{**chase, "caches_multiple": 0.1}),
        streams(
            "spatter.gather", 95.0, FOOTPRINT_B, 0, pattern="UNIFORM:8:1:NR", delta="8", **gathers
        ),
        streams(
            "spatter.gather", 12.0, FOOTPRINT_B, 0, pattern="UNIFORM:8:8:NR", delta="64", **gathers
        ),
        record("amo.central", 1e-3, rate_GAMS=1.5, words=224, **private),
        record("amo.central", 1e-3, rate_GAMS=0.05, words=1, **shared),
        record("bs.bs0", 2e-6, bytes_B=0, bandwidth_GBps=0.0),
    ]


def results(rows=None, environment=None):
    """Return a result set with samples of all records."""
    rows = records() if rows is None else rows
    samples = [np.linspace(row["time_min_s"], 1.2 * row["time_min_s"], 9) for row in rows]
    return ResultSet(rows, samples, {"e1": ENVIRONMENT if environment is None else environment})
