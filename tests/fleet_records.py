"""Records of the nodes of a fleet, for the tests of `memkern compare fleet` and of its figure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from memkern.formats import ResultSet

KERNELS = {"stream.copy": 16, "stream.triad": 24, "latency.chase": 0}
MACHINE = {"model": "A Processor", "family": "25", "model_number": "1", "cores": 8, "threads": 16}


def record(node: str, kernel: str, time_s: float, **more: Any) -> dict[str, Any]:
    """Return a record of a node."""
    elements = 10**7
    moved = KERNELS[kernel] * elements
    return {
        "node": node, "case_id": kernel, "repeat": 0, "environment_id": "e1",
        "platform": "A Processor, 16 threads", "kernel": kernel, "case_columns": "elements",
        "elements": elements, "threads": 16, "pages_requested": "thp", "variant": "simd",
        "dtype": "float64", "valid": True, "disturbed": False, "state": "quiet", "states": "",
        "time_min_s": time_s, "time_median_s": 1.1 * time_s, "bytes_B": moved,
        "bandwidth_GBps": moved / time_s / 1e9,
        "ns_per_access": math.nan if moved else 1e3 * time_s,
        "exchange_ns": math.nan, "core_share": 1.0, "started": "2026-01-01T00:00:00+00:00", **more,
    }  # fmt: skip


def results(
    records: Sequence[dict[str, Any]], machines: Mapping[str, Mapping[str, Any]] | None = None
) -> ResultSet:
    """Return a result set of records, by default of one kind of machine."""
    known = {"e1": MACHINE} if machines is None else machines
    environments = {name: {"machine": dict(machine)} for name, machine in known.items()}
    return ResultSet([*records], [np.ones(1)] * len(records), environments)


def records(
    nodes: int = 16,
    slow: Mapping[str, float] | None = None,
    kernels: Iterable[str] = KERNELS,
    seed: int = 0,
    rounds: int = 1,
    spread: float = 0.01,
    **more: Any,
) -> list[dict[str, Any]]:
    """Return records of nodes whose rounds differ by 1 %, some of them slower by a factor."""
    random = np.random.default_rng(seed)
    return [
        record(
            node,
            kernel,
            0.1 * (slow or {}).get(node, 1.0) * math.exp(spread * random.standard_normal()),
            **{"repeat": k, **more},
        )
        for k in range(rounds)
        for node in (f"n{number:02}" for number in range(nodes))
        for kernel in kernels
    ]
