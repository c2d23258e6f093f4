"""What every fitted model has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
        The confidence interval at the fit's level; an end may be infinite.
    unit : str
        The unit of all four.
    """

    value: float
    error: float
    low: float
    high: float
    unit: str


class Prediction(NamedTuple):
    """What a model says of amounts of data.

    Attributes
    ----------
    time_s : ndarray of float
        Seconds; a number where the amount was one.
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
        By name. Those that were fitted come first, in the order of `covariance`; those that
        follow are derived from them.
    covariance : ndarray of float, shape (p, p)
        Of the p parameters that were fitted.
    points : mapping of str to ndarray of float, shape (n,)
        The columns of the points used, units in the names.
    residuals : ndarray of float, shape (n,)
        Measured less fitted, in the unit of what was fitted.
    r2 : float
        Share of the sum of squares about the mean that the model explains, both weighted as the
        fit was; NaN if there is nothing to explain.
    level : float
        Level of the parameters' intervals.
    remark : str
        Caveats that belong beside the fit; mostly empty.
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
        """Return what the model says at `x`, of any shape."""
