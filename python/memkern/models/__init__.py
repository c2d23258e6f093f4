"""Models: parameters that explain measured times, and predictions for other sizes.

A model fitted to records of memkern or another program is a `ModelFit`: parameters with standard
errors and intervals, residuals, the points used, and `predict`. `LayerConditions` and
`StencilConditions` predict traffic without records, and `Ecm` predicts times from traffic and a
processor.
"""

from __future__ import annotations

import importlib
from typing import Any

# Public names by module, which is imported when one of them is first used: the verbs that need one
# module need not wait for all. Type checkers read them in the generated stub.
_NAMES = {
    "ecm": ("Ecm", "EcmLevel", "EcmPrediction"),
    "efficiency": ("strong_scaling_efficiency", "weak_scaling_efficiency"),
    "fit": ("ModelFit", "Parameter", "Prediction"),
    "layer_conditions": ("LayerConditions", "StencilConditions", "simulate"),
    "machine_file": ("MachineFile",),
    "machine_reading": ("load_machine",),
    "memory": ("FromMemory", "from_memory", "plateau_B"),
    "overlap": ("Overlap", "hypotheses", "paper_hypotheses"),
    "peak": ("with_peak",),
    "published_machines": ("published",),
    "records": ("Records", "cache_ends", "groups", "read"),
    "t0_wmax": ("Side", "T0WmaxFit", "fit_both_sides", "fit_t0_wmax", "predict_sum"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_HOMES)
__dir__ = __all__.copy  # public names only


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
