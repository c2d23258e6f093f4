"""The empty kernel: what launching a parallel region costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt

from memkern.spec import Case, Check, KernelSpec, Knobs, Native, Stop, Traffic, register


def _check(case: Case, native: Native, invoke: Callable[[], object]) -> Check:
    invoke()
    return Check(valid=True, error_max=0.0, how="whole")


def _nothing(case: Case, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    return {}


EMPTY = register(
    KernelSpec(
        name="launch.empty",
        summary="fork and join only",
        source="BS0 of Chalmers and Warburton 2020, on the CPU",
        arrays=(),
        traffic=lambda case: Traffic(),
        iterations=lambda case: 1,
        check=_check,
        reference=_nothing,
        model_bytes=lambda case: 0.0,
        dtypes=("float64",),
    )
)


def launch(**options: Any) -> Case:
    """Case of the empty kernel.

    Parameters
    ----------
    **options
        Fields of `memkern.spec.Knobs` and `memkern.spec.Stop`.
    """
    case = Case(EMPTY, knobs=Knobs(variant="auto"), stop=Stop(budget_s=1.0))
    return case.with_(**options)
