"""Kernels that have no arrays."""

from __future__ import annotations

from typing import Any

from memkern.spec.case import Case, Checks, KernelSpec, Limits
from memkern.spec.kernel import Check, Native, Traffic, Validation
from memkern.spec.options import Knobs, Stop
from memkern.spec.registry import find, register


def _check(case: Case, native: Native) -> Validation:
    yield
    return Check(valid=True, error_max=0.0, how="whole")


def _case(kernel: str, **options: Any) -> Case:
    """Build the case of a kernel without arrays.

    Raises
    ------
    InputError
        An option is out of range or has no effect on the kernel.
    """
    on_processors = Knobs(device=options.get("device", "cpu")).backend.on_processors
    knobs = Knobs(variant="auto") if on_processors else Knobs()
    return Case(find(kernel), knobs=knobs, stop=Stop(budget_s=1.0)).with_(**options)


def register_without_arrays(name: str, summary: str, source: str) -> None:
    """Register a kernel that has no arrays."""
    register(
        KernelSpec(
            name=name,
            summary=summary,
            source=source,
            arrays=(),
            traffic=lambda case: Traffic(),
            iterations=lambda case: 1,
            checks=Checks(check=_check, reference=lambda case, arrays: {}),
            build=_case,
            limits=Limits(
                dtypes=("float64",), idle_knobs=("prefetch", "offset", "schedule", "chunk")
            ),
        )
    )
