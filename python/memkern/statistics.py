# It has more than 600 lines because it is one layer of formulas, half of whose lines are
# docstrings with sources.
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
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError

__all__ = [
    "MEDIAN_OVER_MEAN",
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

_Floats = npt.NDArray[np.float64]

# With fewer samples, the autocorrelation time is too uncertain for stopping, unless it is short.
_CORRELATED_SAMPLES = 100
# Three in four independent series of 23 samples have an estimated batch below this.
_CORRELATED_BATCH = 1.5
_P95_SAMPLES = 20
# Number of shortest times that must agree before sampling stops. In the recordings of three hosts
# (bench/hosts) the shortest time is 1.1 to 1.7 % above the shortest of all samples if the median's
# interval alone ends sampling, and 0.8 % with this rule, which takes 3 to 9 % more samples. With
# the shortest times alone, medians are 2 % off.
_LOWEST = 5


@dataclass(frozen=True)
class Interval:
    """A confidence interval of the median.

    Attributes
    ----------
    low, high : float
        Two of the samples, in their unit.
    median : float
        The samples' median, always inside.
    level : float
        The requested level, or the level of the samples' whole range if it is less.
    batch : float
        Number of consecutive samples with the information of one independent sample; at least 1.
    autocorrelation : float
        Lag-1 autocorrelation of the samples' ranks.
    relative_half_width : float
        ``(high - low) / 2 / median``; infinite if the median is not positive.
    """

    low: float
    high: float
    median: float
    level: float
    batch: float
    autocorrelation: float
    relative_half_width: float


def median(values: npt.ArrayLike) -> float:
    """Return the median of at least one value, NaN if one of them is.

    NumPy's function takes ten times as long for the few samples of a short run.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if math.isnan(ordered[-1]):
        return math.nan
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def median_interval(samples: npt.ArrayLike, level: float = 0.95) -> Interval:
    """Return the order-statistics interval of the median of a possibly autocorrelated series.

    Parameters
    ----------
    samples : array_like of float, shape (n,)
        In the order in which they were taken.
    level : float
        Confidence level, between 0 and 1.

    Returns
    -------
    Interval
        For independent samples its coverage is at least `level`. With fewer than six (at 95 %)
        independent samples its `level` is smaller than requested, and it spans all samples.

    Raises
    ------
    InputError
        If there is no sample, one is not finite, or `level` is not between 0 and 1.

    Notes
    -----
    The integrated autocorrelation time is Geyer's initial monotone sequence estimator [1]_ over
    ranks, increased by the share that is lost by removing the mean. For a given correlation of
    neighbours, ranks overestimate the variance of the number of samples below the median: on
    correlated series, the coverage of the interval is slightly above `level` rather than below.

    References
    ----------
    .. [1] C. J. Geyer, "Practical Markov Chain Monte Carlo", Statistical Science 7 (1992) 473.
    """
    x = _finite(samples, "samples")
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, not {level!r}")
    n = len(x)
    batch, autocorrelation = _autocorrelation(x)
    independent = max(int(n / batch + 1e-9), 1)
    rank = _binomial_rank(independent, level)
    if rank == 0:
        first, reached = 0, 1.0 - 2.0 ** (1 - independent)
    else:
        half_span = ((independent + 1) / 2 - rank) * n / independent
        first, reached = max(math.floor((n + 1) / 2 - half_span + 1e-9) - 1, 0), level
    ordered = np.sort(x)
    low, high, middle = float(ordered[first]), float(ordered[n - 1 - first]), median(x)
    half_width = (high - low) / 2 / middle if middle > 0 else math.inf
    return Interval(low, high, middle, reached, batch, autocorrelation, half_width)


def next_count(n: int) -> int:
    """Return the next number of samples at which to look at the interval: 10, 15, 23, 34, 51, ...

    The counts are ``ceil(10 * 1.5**k)``. A test after every sample would stop when the interval is
    short by chance; tests at few, growing counts preserve its coverage.
    """
    numerator, denominator = 10, 1
    while (count := -(-numerator // denominator)) <= n:
        numerator, denominator = 3 * numerator, 2 * denominator
    return count


@dataclass(frozen=True)
class StopRule:
    """Rule for the end of sampling: enough precision, samples or time.

    Parameters
    ----------
    target : float
        Half width of the interval of the median, relative to the median, at which to stop, if the
        relative range of the five shortest times is at most the same.
    min_samples : int
        Least number of samples for stopping by precision. With fewer than twenty, autocorrelation
        is not detected and there is no 95th percentile.
    max_samples : int
        Most samples.
    budget_s : float
        Most seconds.
    level : float
        Level of the interval.

    Raises
    ------
    InputError
        If a parameter is out of range.
    """

    target: float = 0.02
    min_samples: int = 20
    max_samples: int = 1000
    budget_s: float = 2.0
    level: float = 0.95

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, holds, right in (
            ("target", self.target > 0, "be positive"),
            ("min_samples", self.min_samples >= 1, "be at least 1"),
            ("max_samples", self.max_samples >= 1, "be at least 1"),
            ("budget_s", self.budget_s > 0, "be positive"),
            ("level", 0 < self.level < 1, "lie between 0 and 1"),
        ):
            if not holds:
                raise InputError(f"{name} must {right}, not {getattr(self, name)!r}")

    def next_count(self, n: int) -> int:
        """Return the number of samples at which to test again, when there are `n` now."""
        return min(next_count(max(n, self.min_samples - 1)), self.max_samples)

    def done(self, samples: npt.ArrayLike, elapsed_s: float) -> str | None:
        """Return why to stop now, or None.

        Parameters
        ----------
        samples : array_like of float, shape (n,)
            All samples so far, in order. Precision is tested only where n is one of the growing
            counts (see `next_count`), so this may be called after every sample.
        elapsed_s : float
            Seconds spent on the case.

        Returns
        -------
        str or None
            ``"ci"`` if the interval is short enough, ``"samples"`` or ``"budget"`` if either is
            used up, else None.
        """
        x = np.asarray(samples, dtype=np.float64)
        n = len(x)
        if n >= self.min_samples and next_count(n - 1) == n and self._precise(x):
            return "ci"
        if n >= self.max_samples:
            return "samples"
        return "budget" if elapsed_s >= self.budget_s else None

    def _precise(self, x: _Floats) -> bool:
        interval = median_interval(x, self.level)
        known = interval.batch < _CORRELATED_BATCH or len(x) >= _CORRELATED_SAMPLES
        lowest = np.partition(x, min(_LOWEST, len(x)) - 1)[:_LOWEST]
        return (
            known
            and interval.level >= self.level
            and interval.relative_half_width <= self.target
            and lowest.max() <= (1 + self.target) * lowest.min()
        )


def summarise(samples: npt.ArrayLike) -> dict[str, float]:
    """Return a record's columns about its samples: times in seconds, interval and spread.

    Parameters
    ----------
    samples : array_like of float, shape (n,)
        Seconds per invocation, in the order in which they were taken.

    Returns
    -------
    dict of float
        ``time_min_s``, ``time_mean_s``, ``time_median_s``, ``time_p95_s`` (NaN below 20 samples),
        ``time_max_s``, and for the interval of the median within this run ``within_ci_low_s``,
        ``within_ci_high_s``, ``within_ci_level``, ``within_ci_relative`` (half width by median),
        ``within_ci_batch`` and ``within_ci_autocorrelation``.

    Raises
    ------
    InputError
        If there is no sample or one is not finite.
    """
    x = _finite(samples, "samples")
    interval = median_interval(x)
    return {
        "time_min_s": float(x.min()),
        "time_mean_s": float(x.mean()),
        "time_median_s": interval.median,
        "time_p95_s": float(np.quantile(x, 0.95)) if len(x) >= _P95_SAMPLES else math.nan,
        "time_max_s": float(x.max()),
        "within_ci_low_s": interval.low,
        "within_ci_high_s": interval.high,
        "within_ci_level": interval.level,
        "within_ci_relative": interval.relative_half_width,
        "within_ci_batch": interval.batch,
        "within_ci_autocorrelation": interval.autocorrelation,
    }


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
    from scipy.special import digamma, polygamma

    e = np.log(v) - digamma(f / 2) + np.log(f / 2)
    excess = float(np.var(e, ddof=1) - np.mean(polygamma(1, f / 2)))
    if excess <= 0:
        return Prior(float(np.exp(np.mean(e))), math.inf)
    half = _trigamma_inverse(excess)
    return Prior(math.exp(float(np.mean(e)) + float(digamma(half)) - math.log(half)), 2 * half)


def _trigamma_inverse(y: float) -> float:
    """Return the x with trigamma(x) = y, by the Newton iteration of Smyth's appendix."""
    from scipy.special import polygamma

    x = 0.5 + 1 / y
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / y) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-8 * x:
            break
    return x


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


MEDIAN_OVER_MEAN = (
    math.pi / 2
)  # variance of the median over variance of the mean, for many normal values
# Target share of cases whose next run lies within its interval.
RUN_LEVEL = 0.95


def next_run_interval(
    values: npt.ArrayLike, runs: Prior, placements: Prior | None = None, level: float = RUN_LEVEL
) -> RunInterval:
    """Return the interval for the value of the next run, which has as many placements.

    Parameters
    ----------
    values : array_like of float, shape (n,)
        Values of this run's placements; their median is the run's value.
    runs : Prior
        Variance between runs in addition to the variance between a run's placements.
    placements : Prior, optional
        Variance between placements of other cases of its class.
    level : float
        Its level.

    Returns
    -------
    RunInterval
        By Student's t on logarithms. It uses the variance of the median of placements, moderated by
        `placements`, plus the variance between runs, both times two (for this run and the next),
        with Satterthwaite's degrees of freedom. The first term is zero for a single placement
        without a prior.

    Raises
    ------
    InputError
        If there is no value or one is not positive.
    """
    value = float(np.median(_positive(values)))
    x = np.log(_positive(values))
    n = len(x)
    variance = float(np.var(x, ddof=1)) if n > 1 else 0.0
    freedom = float(n - 1)
    if placements is not None:
        if math.isinf(placements.freedom):
            variance, freedom = placements.variance, 1e6
        else:
            sums = placements.freedom * placements.variance + (n - 1) * variance
            freedom = placements.freedom + n - 1
            variance = sums / freedom
    # The median of several values varies more than their mean.
    own = variance / n * (MEDIAN_OVER_MEAN if n > 2 else 1.0)
    total = own + runs.variance
    weights = own**2 / max(freedom, 1e-9) + runs.variance**2 / runs.freedom
    freedom = total**2 / weights if weights > 0 else 1.0
    quantile = student_quantile((1 + level) / 2, min(max(freedom, 1.0), 1e6))
    factor = math.exp(quantile * math.sqrt(2 * total))
    low, high = value / factor, value * factor
    return RunInterval(low, high, level, (high - low) / 2 / value)


def factor_of(relative: Any) -> Any:
    """Return the factor between a value and the ends of its interval, which is symmetric on logs.

    Parameters
    ----------
    relative : array_like of float
        Half of the width of the interval over the value.
    """
    return relative + np.hypot(relative, 1)


def half_width(relative: float, percent: str = "±{:.2g} %") -> str:
    """Return the text of half the width of an interval over its value.

    Parameters
    ----------
    relative : float
        Such as `RunInterval.relative_half_width`.
    percent : str
        Format of a width in percent.

    Returns
    -------
    str
        Such as ``±12 %``, and from 100 % on ``×÷2.4``: the factor by which the ends of an interval
        that is symmetric on logarithms differ from the value. Empty for NaN.
    """
    if relative >= 0.995:  # more than two digits in percent
        factor = factor_of(relative)
        return f"×÷{factor:.{1 if factor < 9.95 else 0}f}"
    return percent.format(100 * relative) if relative == relative else ""


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
    lower, middle, upper = np.quantile(_finite(x, "x"), (0.25, 0.5, 0.75))
    return float(lower), float(middle), float(upper)


def pearson(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Return Pearson's correlation coefficient; NaN where either series has no variance.

    Raises
    ------
    InputError
        If the lengths differ, a series is empty or a value is not finite.
    """
    a, b = _finite(x, "x"), _finite(y, "y")
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


def _finite(values: npt.ArrayLike, name: str) -> _Floats:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or len(x) == 0:
        raise InputError(f"{name} must be a non-empty list of numbers, not of shape {x.shape}")
    if not np.isfinite(x).all():
        raise InputError(f"{name} must be finite, not {x[~np.isfinite(x)][0]}")
    return x


def _positive(values: npt.ArrayLike) -> _Floats:
    x = _finite(values, "values")
    if (x <= 0).any():
        raise InputError(f"values must be positive, not {x[x <= 0][0]}")
    return x


def _autocorrelation(x: _Floats) -> tuple[float, float]:
    """Return the integrated autocorrelation time of the ranks, and their lag-1 autocorrelation."""
    n = len(x)
    _, group, size = np.unique(x, return_inverse=True, return_counts=True)
    # Equal samples get their mean rank, since any order among them would look like a trend.
    ranks = (np.cumsum(size) - (size - 1) / 2)[group] - (n + 1) / 2
    spectrum = np.fft.rfft(ranks, 2 * n)
    covariance = np.fft.irfft(spectrum.real**2 + spectrum.imag**2)[:n]
    if n < 2 or not ranks.any():
        return 1.0, 0.0
    correlation = covariance / covariance[0]
    pairs = correlation[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    pairs = np.minimum.accumulate(pairs[: ends[0]] if len(ends) else pairs)
    time = (2 * float(pairs.sum()) - 1) * (1 + 2 * len(pairs) / n)
    return min(max(time, 1.0), float(n)), float(correlation[1])


@lru_cache(maxsize=4096)
def _binomial_rank(n: int, level: float) -> int:
    """Return the largest k with P(k-th smallest <= median <= k-th largest) >= level, or 0."""
    i = np.arange(n // 2 + 1)
    log_choose = np.concatenate(([0.0], np.cumsum(np.log((n - i[:-1]) / (i[:-1] + 1.0)))))
    below = np.cumsum(np.exp(log_choose - n * math.log(2)))
    return int(np.searchsorted(2 * below, 1 - level, side="right"))


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
