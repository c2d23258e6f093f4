"""Records of kernels measured in turns: over ranks, and alone or with a neighbour."""

from typing import Any

import numpy as np

import memkern as mk


def results(records: list[dict[str, Any]]) -> mk.ResultSet:
    """Return records without samples as a result set."""
    return mk.ResultSet(records, [np.empty(0)] * len(records))


def beside_one(
    kernel: str, beside: str, turn: int, time_s: float, platform: str = "Machine", /, **more: Any
) -> dict[str, Any]:
    """Return the record of a kernel with two threads, alone if `beside` is empty."""
    return {
        "case_id": f"{kernel}-{beside}" if beside else kernel, "case_columns": "",
        "platform": f"{platform}, 2 threads", "threads": 2, "beside": beside,
        **_timed(kernel, turn, time_s, platform), **more,
    }  # fmt: skip


def over_ranks(
    kernel: str, ranks: int, turn: int, time_s: float, platform: str = "Machine", /, **more: Any
) -> dict[str, Any]:
    """Return the record of a kernel on ranks with one thread each."""
    mode = more.get("scaling", "strong")
    several = f" a rank, {ranks} ranks" * (ranks > 1)
    return {
        "case_id": f"{kernel}-{mode}-{ranks}", "platform": f"{platform}, 1 thread{several}",
        "threads": 1, "scaling": mode, "scaling_size": 8_700_000, "bind": "", "comm": "mpi",
        "ranks": ranks, "ranks_per_node": ranks, "oversubscribed": False,
        **_timed(kernel, turn, time_s, platform), **more,
    }  # fmt: skip


def _timed(kernel: str, turn: int, time_s: float, platform: str) -> dict[str, Any]:
    """Return the columns common to both kinds of records."""
    return {
        "environment_id": platform, "repeat": turn, "kernel": kernel, "definition": "", "name": "",
        "time_min_s": time_s, "time_median_s": time_s, "bytes_B": 10**9,
        "bandwidth_median_GBps": 1 / time_s, "valid": True, "disturbed": False,
    }  # fmt: skip
