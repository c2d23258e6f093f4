"""Models: parameters that explain measured times, and predictions for other sizes.

A model fitted to records of memkern or another program is a `ModelFit`: parameters with standard
errors and intervals, residuals, the points used, and `predict`. `LayerConditions` and
`StencilConditions` predict traffic without records, and `Ecm` predicts times from traffic and a
processor.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memkern.models.ecm import Ecm, EcmLevel, EcmPrediction
    from memkern.models.efficiency import strong_scaling_efficiency, weak_scaling_efficiency
    from memkern.models.fit import ModelFit, Parameter, Prediction
    from memkern.models.layer_conditions import LayerConditions, StencilConditions, simulate
    from memkern.models.machine_file import MachineFile, load_machine, published
    from memkern.models.memory import FromMemory, from_memory, plateau_B
    from memkern.models.overlap import Overlap, hypotheses, paper_hypotheses
    from memkern.models.peak import with_peak
    from memkern.models.records import Records, cache_ends, groups, read
    from memkern.models.t0_wmax import (
        Side,
        T0WmaxFit,
        fit_both_sides,
        fit_t0_wmax,
        predict_sum,
    )

__all__ = [
    "Ecm",
    "EcmLevel",
    "EcmPrediction",
    "FromMemory",
    "LayerConditions",
    "MachineFile",
    "ModelFit",
    "Overlap",
    "Parameter",
    "Prediction",
    "Records",
    "Side",
    "StencilConditions",
    "T0WmaxFit",
    "cache_ends",
    "fit_both_sides",
    "fit_t0_wmax",
    "from_memory",
    "groups",
    "hypotheses",
    "load_machine",
    "paper_hypotheses",
    "plateau_B",
    "predict_sum",
    "published",
    "read",
    "simulate",
    "strong_scaling_efficiency",
    "weak_scaling_efficiency",
    "with_peak",
]
__dir__ = __all__.copy  # public names only

# Modules are imported when a name is first used: the verbs that need one need not wait for all.
_NAMES = {
    "ecm": (
        "Ecm",
        "EcmLevel",
        "EcmPrediction",
    ),
    "efficiency": (
        "strong_scaling_efficiency",
        "weak_scaling_efficiency",
    ),
    "fit": (
        "ModelFit",
        "Parameter",
        "Prediction",
    ),
    "layer_conditions": (
        "LayerConditions",
        "StencilConditions",
        "simulate",
    ),
    "machine_file": (
        "MachineFile",
        "load_machine",
        "published",
    ),
    "memory": (
        "FromMemory",
        "from_memory",
        "plateau_B",
    ),
    "overlap": (
        "Overlap",
        "hypotheses",
        "paper_hypotheses",
    ),
    "peak": ("with_peak",),
    "records": (
        "Records",
        "cache_ends",
        "groups",
        "read",
    ),
    "t0_wmax": (
        "Side",
        "T0WmaxFit",
        "fit_both_sides",
        "fit_t0_wmax",
        "predict_sum",
    ),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
