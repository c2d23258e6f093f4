"""Experiments on gather and scatter (see `memkern.spec.experiments`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from memkern.families.spatter.sides import dense_length
from memkern.results.explanation import MOVING
from memkern.shared.experiments import ADJACENT, HIDDEN, ORDER, WORK, resized, usual
from memkern.spec.case import Case
from memkern.spec.experiments import LEFT, Experiment, Setting, knob
from memkern.spec.kernel import IndexArray

# Shares of a footprint for the sparse array, and for the indices and the dense buffer.
_SPARSE, _OTHERS = 0.5, 0.25


def _changed(
    case: Case, pattern: Callable[[IndexArray], IndexArray], delta: int | None = None
) -> Case:
    """Return a case with changed indices into its sparse arrays, and one delta if it is given."""
    indices = dict(case.indices)
    for side in (key.removeprefix("pattern_") for key in case.indices if "pattern_" in key):
        inner, outer = indices[f"pattern_{side}"], indices.get("pattern")
        if outer is None:
            indices[f"pattern_{side}"] = pattern(inner)
        else:
            indices["pattern"] = pattern(outer[inner])
            indices[f"pattern_{side}"] = np.arange(len(indices["pattern"]))
        if delta is not None:
            indices[f"delta_{side}"] = np.array([delta])
    columns = {
        **case.columns,
        "pattern": "changed",
        "pattern_length": len(indices[f"pattern_{side}"]),
    }
    return dataclasses.replace(case, indices=indices, columns=columns, request=None)


def _resize(case: Case, size_B: float) -> Case:
    """Return a case with fewer instances of a folded pattern, which is shortened if it is long."""
    workers, value_B = case.knobs.threads or 1, case.value_B
    elements = max(int(_SPARSE * size_B / value_B), 1)
    element_B = np.dtype(case.index_dtype).itemsize + value_B * workers
    most = max(int(_OTHERS * size_B / element_B), 1)
    folded = _changed(case, lambda pattern: pattern[:most] % elements)
    reach = max(int(folded.indices[key].max()) for key in folded.indices if "pattern" in key)
    count = case.integers["count"]
    for key, deltas in folded.indices.items():
        if key.startswith("delta") and (period := abs(int(deltas.sum()))):
            count = min(count, max((elements - reach) // period, 1) * len(deltas))
    return resized(folded, count=count, wrap=1)


def _ascending(case: Case, setting: Setting) -> Case | None:
    ordered = _changed(case, np.sort)
    same = map(np.array_equal, ordered.indices.values(), case.indices.values())
    return None if all(same) else ordered


def _one_line(case: Case, setting: Setting) -> Case | None:
    """Return loads from one line; stores of several threads to it would wait for each other."""
    if "pattern_scatter" in case.indices and setting.threads > 1:
        return None
    return _changed(case, lambda pattern: pattern % (case.line_B // case.value_B), delta=0)


def unit(case: Case) -> tuple[str, float]:
    """Return what the time of an invocation is divided by, and its number."""
    return "an element", dense_length(case) * case.integers["count"]


EXPERIMENTS = usual(
    _resize,
    Experiment("indices in ascending order", _ascending, ORDER, within=ADJACENT),
    Experiment("all indices in one line", _one_line, WORK, LEFT),
    Experiment(
        "neighbouring elements",
        lambda case, _: _changed(case, lambda __: np.arange(case.columns["pattern_length"])),
        ADJACENT,
        within=MOVING,
    ),
    *(knob("prefetch", ahead, HIDDEN, within=ORDER) for ahead in (16, 64)),
)
