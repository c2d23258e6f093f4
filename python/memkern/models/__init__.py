"""Models: what measured times mean, and what they say of sizes that were not measured.

Every model is fitted to records, from memkern or from anyone, and comes as a `ModelFit`:
parameters with standard errors and intervals, residuals, the points used, `predict`.
"""

from memkern.models.fit import ModelFit, Parameter, Prediction
from memkern.models.records import Records, groups, on_both_sides_of_caches, read
from memkern.models.spmv import SpmvModel
from memkern.models.t0_wmax import (
    T0WmaxFit,
    fit_t0_wmax,
    predict_sum,
    strong_scaling_efficiency,
)

__all__ = [
    "ModelFit",
    "Parameter",
    "Prediction",
    "Records",
    "SpmvModel",
    "T0WmaxFit",
    "fit_t0_wmax",
    "groups",
    "on_both_sides_of_caches",
    "predict_sum",
    "read",
    "strong_scaling_efficiency",
]
