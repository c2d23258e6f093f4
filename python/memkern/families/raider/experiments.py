"""Experiments that explain the time of a case (see `memkern.spec.experiments`)."""

from __future__ import annotations

import numpy as np

from memkern.shared.experiments import ASCENDING, HIDDEN, ORDER, indexed, usual, with_elements
from memkern.spec.case import Case
from memkern.spec.experiments import LEFT, Experiment, Setting, knob


def _resize(case: Case, size_B: float) -> Case | None:
    values_B = case.traffic.view()
    fewer = with_elements(case, size_B * values_B / (values_B + case.traffic.index))
    if fewer is None:
        return None
    n = fewer.iterations
    # The accesses to the first elements, which are as many if the indices are a permutation.
    return indexed(fewer, **{k: np.resize(v[v < n], n) for k, v in case.indices.items()})


def _one_line(case: Case, setting: Setting) -> Case:
    """Return the case with indices in one line of each thread."""
    n, per_line = case.iterations, case.line_B // case.value_B
    begins = np.arange(n) * setting.threads // n * per_line
    return indexed(case, **{k: (begins + v % per_line) % n for k, v in case.indices.items()})


EXPERIMENTS = usual(
    _resize,
    ASCENDING,
    Experiment("indices in one line", _one_line, "instructions, indices and other arrays", LEFT),
    knob("prefetch", 64, HIDDEN, within=ORDER),
)
