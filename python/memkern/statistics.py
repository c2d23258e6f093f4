"""Confidence intervals of medians and ratios, the stop rule of sampling, and means of rates.

Timing samples are skewed and autocorrelated, so the interval of the median assumes neither a normal
distribution nor independence. It is a pair of order statistics whose ranks come from the binomial
distribution; for autocorrelated samples the ranks move outwards as for only ``n / batch`` samples,
where `batch` is the integrated autocorrelation time of the ranks.

Batch means, the usual method for autocorrelated samples, fail here: the median of batch means tends
to the mean, so on skewed samples the interval converges to the wrong value (in simulation, with
13 % coverage instead of 95 % at 1000 samples). Autocorrelation is estimated from ranks, because
rare large outliers, common in timings, hide it in the covariance of the values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError
from memkern.medians import (
    Floats,
    Interval,
    StopRule,
    finite,
    median_interval,
    next_count,
    summarise,
)
from memkern.medians import median as median

__all__ = [
    "RUN_LEVEL",
    "Interval",
    "Prior",
    "Ratio",
    "RunInterval",
    "StopRule",
    "geometric_mean",
    "harmonic_mean",
    "harmonic_mean_error",
    "median_interval",
    "moderate",
    "next_count",
    "next_run_interval",
    "pearson",
    "quartiles",
    "ratio_interval",
    "student_quantile",
    "summarise",
]
__dir__ = __all__.copy  # public names only


@dataclass(frozen=True)
class Prior:
    """Prior distribution of variances: scaled inverse chi-squared.

    Attributes
    ----------
    variance : float
        Variance of logarithms.
    freedom : float
        Degrees of freedom; infinite where all variances are equal.
    """

    variance: float
    freedom: float


def moderate(variances: npt.ArrayLike, freedom: npt.ArrayLike) -> Prior | None:
    """Estimate the common prior of variances (empirical Bayes).

    Parameters
    ----------
    variances : array_like of float, shape (n,)
        Sample variances, each of another true variance.
    freedom : array_like of float, shape (n,)
        Degrees of freedom of each.

    Returns
    -------
    Prior or None
        Distribution of the true variances; None for fewer than three nonzero variances.

    Notes
    -----
    Moments of the logarithms of the variances: section 6.2 of [1]_. A case's variance moderated by
    its class is ``(f0 * v0 + f * v) / (f0 + f)``, with ``f0 + f`` degrees of freedom.

    References
    ----------
    .. [1] G. K. Smyth, "Linear models and empirical Bayes methods for assessing differential
       expression in microarray experiments", Stat. Appl. Genet. Mol. Biol. 3 (2004) 3.
    """
    v, f = np.broadcast_arrays(np.asarray(variances, float), np.asarray(freedom, float))
    known = (v > 0) & (f > 0)
    v, f = v[known], f[known]
    if len(v) < 3:
        return None
    from scipy.optimize import brentq
    from scipy.special import digamma, polygamma

    e = np.log(v) - digamma(f / 2) + np.log(f / 2)
    excess = float(np.var(e, ddof=1) - np.mean(polygamma(1, f / 2)))
    if excess <= 0:
        return Prior(float(np.exp(np.mean(e))), math.inf)
    # 1/x + 1/(2 x^2) < trigamma(x) < 1/x + 1/x^2 bounds the x with trigamma(x) = excess.
    ends = 1 / excess, 1 / excess + excess**-0.5
    half = float(brentq(lambda x: float(polygamma(1, x)) - excess, *ends))
    return Prior(math.exp(float(np.mean(e)) + float(digamma(half)) - math.log(half)), 2 * half)


@dataclass(frozen=True)
class RunInterval:
    """Interval that holds the value of the next run.

    Attributes
    ----------
    low, high : float
        Its ends, in the unit of the values.
    level : float
        Its level.
    relative_half_width : float
        ``(high - low) / 2`` divided by the value, which is always inside.
    """

    low: float
    high: float
    level: float
    relative_half_width: float


# Target share of cases whose next run lies within its interval.
RUN_LEVEL = 0.95


def next_run_interval(value: float, distance: float, level: float = RUN_LEVEL) -> RunInterval:
    """Return the interval for the value of the next run.

    Parameters
    ----------
    value : float
        The run's value, positive.
    distance : float
        Distance of the logarithms within which the next run is with the probability `level`.
    level : float
    """
    return RunInterval(
        value * math.exp(-distance), value * math.exp(distance), level, math.sinh(distance)
    )


def factor_of(relative: Any) -> Any:
    """Return the factor between a value and the ends of its interval, which is symmetric on logs.

    Parameters
    ----------
    relative : array_like of float
        Half of the width of the interval over the value.
    """
    return relative + np.hypot(relative, 1)


# Half of the width of an interval over its value from which on ± says too little: one end of an
# interval that is symmetric on logarithms is then a fifth farther from the value than the other.
ASYMMETRIC = 0.195


def half_width(relative: float, text: str = "±{} %") -> str:
    """Return the text of half the width of an interval over its value, in two figures.

    Parameters
    ----------
    relative : float
        Such as `RunInterval.relative_half_width`.
    text : str
        Format of the number of percent.

    Returns
    -------
    str
        Such as ``±12 %``, and from 20 % on ``×÷2.4``: the factor by which the ends of an interval
        that is symmetric on logarithms differ from the value. Empty for NaN.
    """
    if relative >= ASYMMETRIC:
        factor = factor_of(relative)
        return f"×÷{factor:.{1 if factor < 9.95 else 0}f}"
    return text.format(f"{100 * relative:.2g}") if relative == relative else ""


def with_interval(value: float, relative: float, unit: str = "") -> str:
    """Return a number with its unit and its interval.

    Parameters
    ----------
    value : float
    relative : float
        Half of the width of its interval over the value; NaN or 0 if unknown.
    unit : str

    Returns
    -------
    str
        Such as ``38.1 GB/s ±12 %``, and from 20 % on the ends: ``38 GB/s (30 to 48)``.
    """
    text = f"{meaningful(value, relative)} {unit}".rstrip()
    if not relative >= ASYMMETRIC:
        return f"{text} {half_width(relative)}" if relative > 0 else text
    low, high = (meaningful(value * factor_of(relative) ** by, relative) for by in (-1, 1))
    return f"{text} ({low} to {high})"


def with_bounds(value: float, low: float, high: float) -> str:
    """Return a number with the ends of its interval: ``1.43 [1.2, 1.66]``."""
    return f"{meaningful(value)} [{meaningful(low)}, {meaningful(high)}]"


def meaningful(value: float, relative: float = 0.0) -> str:
    """Return a number in the figures that the width of its interval leaves.

    Parameters
    ----------
    value : float
    relative : float
        Half of the width of its interval over the value; NaN if unknown.

    Returns
    -------
    str
        At most three figures, or in full from 1000 on: 0.533, 3950. Figures whose unit is less than
        a fifth of the half width, to the next power of ten, are left out: 38 for 37.7 ±36 %.
    """
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    figures = 3
    if relative > 0 and abs(value) > 0:
        unit = math.floor(math.log10(abs(value) * min(relative, 1.0) / 5))
        figures = min(figures, math.floor(math.log10(abs(value))) - unit + 1)
    kept = float(f"{value:.{figures}g}")
    return f"{kept:.3g}" if abs(kept) < 1000 else f"{value if figures == 3 else kept:.0f}"


def harmonic_mean(x: npt.ArrayLike) -> float:
    """Return ``n / sum(1 / x)``, the mean of rates at which equal amounts were moved.

    Raises
    ------
    InputError
        If `x` is empty or a value is not positive.
    """
    return float(1.0 / np.mean(1.0 / _positive(x)))


def harmonic_mean_error(x: npt.ArrayLike) -> float:
    """Return the standard error of the harmonic mean; NaN for a single value.

    By the delta method, with H the harmonic mean and s the standard deviation (n - 1 degrees of
    freedom) of the reciprocals, it is ``H**2 * s / sqrt(n)``.

    Raises
    ------
    InputError
        If `x` is empty or a value is not positive.
    """
    reciprocals = 1.0 / _positive(x)
    n = len(reciprocals)
    if n == 1:
        return math.nan
    return float(np.std(reciprocals, ddof=1) / math.sqrt(n) / np.mean(reciprocals) ** 2)


def geometric_mean(x: npt.ArrayLike) -> float:
    """Return the n-th root of the product, the mean of ratios.

    Raises
    ------
    InputError
        If `x` is empty or a value is not positive.
    """
    return float(np.exp(np.mean(np.log(_positive(x)))))


def quartiles(x: npt.ArrayLike) -> tuple[float, float, float]:
    """Return the 25th, 50th and 75th percentile, interpolated linearly between order statistics.

    Raises
    ------
    InputError
        If `x` is empty or a value is not finite.
    """
    lower, middle, upper = np.quantile(finite(x, "x"), (0.25, 0.5, 0.75))
    return float(lower), float(middle), float(upper)


def pearson(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Return Pearson's correlation coefficient; NaN where either series has no variance.

    Raises
    ------
    InputError
        If the lengths differ, a series is empty or a value is not finite.
    """
    a, b = finite(x, "x"), finite(y, "y")
    if len(a) != len(b):
        raise InputError(f"x and y must have the same length, not {len(a)} and {len(b)}")
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
    return max(-1.0, min(1.0, float(a @ b) / scale)) if scale > 0 else math.nan


@dataclass(frozen=True)
class Ratio:
    """A ratio of two times or rates with its confidence interval.

    Attributes
    ----------
    ratio : float
        Geometric mean of the first over geometric mean of the second.
    low, high : float
        The interval; NaN where a side has only one value.
    level : float
        Its level; 0 where a side has only one value.
    """

    ratio: float
    low: float
    high: float
    level: float


def ratio_interval(
    a: npt.ArrayLike, b: npt.ArrayLike, level: float = 0.95, *, paired: bool = False
) -> Ratio:
    """Return the ratio of `a` to `b` with its interval over repeats.

    Parameters
    ----------
    a, b : array_like of float, shapes (m,) and (n,)
        One value, such as a median, for each repeat with new allocations.
    level : float
        Confidence level.
    paired : bool
        Whether ``a[i]`` and ``b[i]`` were measured one right after the other.

    Returns
    -------
    Ratio
        By Student's t on logarithms: of the pairs' differences if `paired`, else Welch's with its
        degrees of freedom rounded down.

    Raises
    ------
    InputError
        If a value is not positive, a side is empty, or paired sides differ in length.
    """
    x, y = np.log(_positive(a)), np.log(_positive(b))
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, not {level!r}")
    if paired and len(x) != len(y):
        raise InputError(f"paired values need the same length, not {len(x)} and {len(y)}")
    centre = float(x.mean() - y.mean())
    if min(len(x), len(y)) < 2:
        return Ratio(math.exp(centre), math.nan, math.nan, 0.0)
    if paired:
        variance, freedom = float(np.var(x - y, ddof=1)) / len(x), len(x) - 1
    else:
        parts = np.array([np.var(x, ddof=1) / len(x), np.var(y, ddof=1) / len(y)])
        variance = float(parts.sum())
        weights = float((parts**2 / (len(x) - 1, len(y) - 1)).sum())
        least = min(len(x), len(y)) - 1
        # Welch's degrees of freedom are at least this; rounding errors must not reduce them.
        freedom = max(int(variance**2 / weights), least) if weights > 0 else least
    half_width = student_quantile((1 + level) / 2, freedom) * math.sqrt(variance)
    low, high = math.exp(centre - half_width), math.exp(centre + half_width)
    return Ratio(math.exp(centre), low, high, level)


def _positive(values: npt.ArrayLike) -> Floats:
    x = finite(values, "values")
    if (x <= 0).any():
        raise InputError(f"values must be positive, not {x[x <= 0][0]}")
    return x


def student_quantile(p: float, freedom: float) -> float:
    """Return a quantile of Student's t.

    Parameters
    ----------
    p : float
        Probability below it.
    freedom : float
        Degrees of freedom, positive.
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, p))
