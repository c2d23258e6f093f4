"""Models: parameters that explain measured times, and predictions for other sizes.

A model fitted to records, from memkern or another program, is a `ModelFit`: parameters with
standard errors and intervals, residuals, the points used, `predict`.  `LayerConditions` predict the
traffic of a stencil without records.
"""

from memkern.models.fit import ModelFit, Parameter, Prediction
from memkern.models.layer_conditions import LayerConditions, simulate
from memkern.models.memory import FromMemory, from_memory, plateau_B
from memkern.models.records import Records, cache_ends, groups, read
from memkern.models.t0_wmax import (
    Side,
    T0WmaxFit,
    fit_both_sides,
    fit_t0_wmax,
    predict_sum,
    strong_scaling_efficiency,
)

__all__ = [
    "FromMemory",
    "LayerConditions",
    "ModelFit",
    "Parameter",
    "Prediction",
    "Records",
    "Side",
    "T0WmaxFit",
    "cache_ends",
    "fit_both_sides",
    "fit_t0_wmax",
    "from_memory",
    "groups",
    "plateau_B",
    "predict_sum",
    "read",
    "simulate",
    "strong_scaling_efficiency",
]
