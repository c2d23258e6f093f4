"""The empty kernel: what launching a parallel region costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from memkern.errors import InputError
from memkern.spec import Case, Check, Invoke, KernelSpec, Knobs, Native, Stop, Traffic, register

FAMILIES = ("launch",)


def _check(case: Case, native: Native, invoke: Invoke) -> Check:
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


def case(kernel: str, **options: Any) -> Case:
    """Build the case of the family's one kernel, ``launch.empty``; see `launch`."""
    if kernel != EMPTY.name:
        raise InputError(f"kernel {kernel!r} is not {EMPTY.name}")
    return launch(**options)


def launch(**options: Any) -> Case:
    """Case of the empty kernel.

    Parameters
    ----------
    **options
        Fields of `memkern.spec.Knobs` and `memkern.spec.Stop`.
    """
    return Case(EMPTY, knobs=Knobs(variant="auto"), stop=Stop(budget_s=1.0)).with_(**options)
