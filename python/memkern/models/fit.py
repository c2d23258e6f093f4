"""Common interface of fitted models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memkern.statistics import with_bounds

Floats = npt.NDArray[np.float64]


class Parameter(NamedTuple):
    """A fitted parameter.

    Attributes
    ----------
    value : float
        The estimate.
    error : float
        Its standard error.
    low, high : float
        The confidence interval at the fit's level; its ends may be infinite.
    unit : str
        The unit of all four.
    """

    value: float
    error: float
    low: float
    high: float
    unit: str

    def text(self, factor: float = 1.0) -> str:
        """Return the estimate times a positive number, with its interval: ``1.43 [1.2, 1.66]``."""
        return with_bounds(factor * self.value, factor * self.low, factor * self.high)


class Prediction(NamedTuple):
    """Prediction of a model for amounts of data.

    Attributes
    ----------
    time_s : ndarray of float
        Seconds; a number if the amount was one.
    bandwidth_GBps : ndarray of float
        Decimal GB/s, of the same shape; NaN where the time is not positive.
    """

    time_s: Floats
    bandwidth_GBps: Floats


@dataclass(frozen=True, eq=False)
class ModelFit(ABC):
    """A model fitted to measured points.

    Attributes
    ----------
    parameters : mapping of str to Parameter
        By name: the p fitted parameters in the order of `covariance`, then derived ones.
    covariance : ndarray of float, shape (p, p)
        Covariance of the fitted parameters.
    points : mapping of str to ndarray of float, shape (n,)
        Columns of the points used, with units in the names.
    residuals : ndarray of float, shape (n,)
        Measured minus fitted values.
    r2 : float
        Coefficient of determination with the weights of the fit; NaN if all values are equal.
    level : float
        Confidence level of the parameters' intervals.
    remark : str
        Caveats of the fit; empty if there are none.
    """

    parameters: Mapping[str, Parameter]
    covariance: Floats = field(repr=False)
    points: Mapping[str, Floats] = field(repr=False)
    residuals: Floats = field(repr=False)
    r2: float
    level: float
    remark: str

    @abstractmethod
    def predict(self, x: npt.ArrayLike, /) -> tuple[Floats, ...]:
        """Return the prediction at `x`, of any shape."""
