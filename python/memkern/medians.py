"""Medians of the samples of one run: their intervals, and the rule by which sampling stops.

`memkern.statistics`, of which this is a part, describes the intervals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError

Floats = npt.NDArray[np.float64]

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
    x = finite(samples, "samples")
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

    def _precise(self, x: Floats) -> bool:
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
    x = finite(samples, "samples")
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


def _autocorrelation(x: Floats) -> tuple[float, float]:
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


def finite(values: npt.ArrayLike, name: str) -> Floats:
    """Return a non-empty list of finite numbers as an array, or raise InputError."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or len(x) == 0:
        raise InputError(f"{name} must be a non-empty list of numbers, not of shape {x.shape}")
    if not np.isfinite(x).all():
        raise InputError(f"{name} must be finite, not {x[~np.isfinite(x)][0]}")
    return x
