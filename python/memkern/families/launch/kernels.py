"""The empty kernel, which measures the time of a launch, and work without memory accesses."""

from __future__ import annotations

from typing import Any

from memkern.shared.without_arrays import register_without_arrays
from memkern.spec.case import Case
from memkern.spec.registry import case, shows_options_of

register_without_arrays("launch.empty", "fork and join only", "cost of an OpenMP parallel region")
register_without_arrays(
    "launch.compute",
    "a thousand dependent multiplications per worker",
    "Alappat et al. 2021, figure 3: work between barriers",
)


@shows_options_of("launch.empty")
def launch(**options: Any) -> Case:
    """Case of the empty kernel."""
    return case("launch.empty", **options)
