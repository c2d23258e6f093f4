"""Experiments that explain the time of a user's kernel (see `memkern.spec.experiments`)."""

from __future__ import annotations

from memkern.shared.experiments import ASCENDING, WORK, indexed, usual
from memkern.spec.case import Case
from memkern.spec.experiments import LEFT, Experiment, Setting
from memkern.spec.registry import built_by, request_of


def _resize(case: Case, size_B: float) -> Case | None:
    """Return the case with fewer iterations; None if it was built from arrays."""
    n = int(size_B / max(case.traffic.view(index=True), 1.0))
    if case.request is None or not 0 < n < case.iterations:
        return None
    return built_by(case.spec, {**request_of(case), "footprint_B": None, "elements": n})


def _one_line(case: Case, setting: Setting) -> Case | None:
    """Return the case with indices in one line; threads that write to it would wait."""
    if not case.indices or case.integers["scatters"]:
        return None
    per_line = case.line_B // case.value_B
    return indexed(case, **{name: values % per_line for name, values in case.indices.items()})


EXPERIMENTS = usual(
    _resize,
    ASCENDING,
    Experiment("all indices in one line", _one_line, WORK, LEFT),
)
