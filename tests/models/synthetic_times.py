"""Times by T0 and Wmax, with noise or by two levels of the memory, as records."""

from typing import Any

import numpy as np

from memkern.formats import ResultSet
from memkern.models import T0WmaxFit, fit_t0_wmax

T0, WMAX = 5e-6, 800e9


def sizes(n: int = 20) -> np.ndarray:
    return np.geomspace(1e4, 1e9, n)


def times(x: np.ndarray, t0: float = T0, wmax: float = WMAX) -> np.ndarray:
    return t0 + x / wmax


def noisy(n: int, seed: int = 1, noise: float = 0.02) -> tuple[np.ndarray, np.ndarray]:
    x = sizes(n)
    return x, times(x) * (1 + noise * np.random.default_rng(seed).standard_normal(n))


def exact(t0: float = T0, wmax: float = WMAX) -> T0WmaxFit:
    return fit_t0_wmax({"bytes_B": sizes(), "time_s": times(sizes(), t0, wmax)})


CACHES = [
    {"level": 1, "type": "data", "size_B": 32768, "instances": 2},
    {"level": 3, "type": "unified", "size_B": 500_000, "instances": 2},
]


def our_records(
    x: Any, y: Any, *, kernel: str = "stream.copy", caches: Any = CACHES, **columns: Any
) -> ResultSet:
    records = [
        {
            "case_id": f"{kernel}{number}",
            "repeat": 0,
            "kernel": kernel,
            "platform": "here",
            "threads": 2,
            "environment_id": "e",
            "bytes_B": int(size),
            "time_min_s": float(time),
            "valid": True,
            **columns,
        }
        for number, (size, time) in enumerate(zip(x, y, strict=True))
    ]
    machine = {"machine": {"caches": caches}}
    return ResultSet(records, [np.array([r["time_min_s"]]) for r in records], {"e": machine})


def two_regimes(n: int = 60, noise: float = 0.02) -> tuple[np.ndarray, np.ndarray]:
    """Return sizes and times with 30 GB/s up to 1 MB and 10 GB/s beyond."""
    x = np.geomspace(1e4, 1e9, n)
    y = np.where(x <= 1e6, 1e-6 + x / 30e9, 1e-6 + 1e6 / 30e9 + (x - 1e6) / 10e9)
    return x, y * (1 + noise * np.random.default_rng(5).standard_normal(n))


def measured_at(x: Any, y: Any, caches: Any, size_B: int) -> ResultSet:
    """Return records of a machine whose last-level cache was measured."""
    records = our_records(x, y, caches=caches)
    records.environments["e"]["measured_caches"] = {"sizes_B": {"L3": size_B}}
    return records
