"""Kernels that have no arrays."""

from __future__ import annotations

from memkern.spec.case import Case, Checks, KernelSpec, Limits
from memkern.spec.inputs import Given
from memkern.spec.kernel import Check, Native, Traffic, Validation
from memkern.spec.registry import register


def _check(case: Case, native: Native) -> Validation:
    yield
    return Check(valid=True, error_max=0.0, how="whole")


def _case(given: Given) -> Case:
    """Return the case, on a processor in the variant auto."""
    return given.case(options={"variant": "auto"} if given.knobs.backend.on_processors else None)


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
            usual={"budget_s": 1.0},
            limits=Limits(
                dtypes=("float64",), idle_knobs=("prefetch", "offset", "schedule", "chunk")
            ),
        )
    )
