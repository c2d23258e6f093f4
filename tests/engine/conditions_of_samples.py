"""Conditions of samples, as the extension measures them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from machines import loads_per_cycle

from memkern.engine.sampling import series as sampling


def conditions(share: float, exchange_s: float = math.nan) -> list[float]:
    """Return the conditions of a sample whose workers ran for a share of the time."""
    found = dict.fromkeys(sampling.CONDITIONS, 0.0)
    found |= {"cpu_share": share, "waited_share": 1 - share, "throughput": loads_per_cycle()}
    found |= {"clock_Hz": 3e9, "memory_s": 1e-7}
    found |= dict.fromkeys(("exchange_s", "exchange_least_s"), exchange_s)
    return list(found.values())


def replace_samples(monkeypatch: pytest.MonkeyPatch, times: Callable[[int], Any]) -> None:
    """Let undisturbed samples take the times that a function returns for a number of samples."""

    def sample(prepared: Any, judge: Any, out: np.ndarray, *others: Any, **options: Any) -> None:
        out[:, -len(sampling.CONDITIONS) :] = conditions(1.0)
        out[:, : -len(sampling.CONDITIONS)] = times(len(out))

    monkeypatch.setattr(sampling, "sample", sample)
