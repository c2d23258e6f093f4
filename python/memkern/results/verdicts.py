"""Verdicts on many cases at once: faster, slower, same or not enough data.

All values are logarithms of times, so that a difference is the logarithm of a ratio.

Timings have rare slow values, autocorrelation and drift. Pairs in random order cancel drift, and
trimming removes rare values. Yuen's test [1]_ trims each side, not the differences: in simulation
its rate of false verdicts stays below its level at every number of pairs used here, while a trimmed
t test on the differences rejects twice as often as it should at levels of 1e-4, which occur after
the correction for many cases. ``bench/compare_simulation.py`` prints both.

References
----------
.. [1] K. K. Yuen, "The two-sample trimmed t for unequal population variances", Biometrika 61 (1974)
   165; for pairs R. R. Wilcox, "Introduction to Robust Estimation and Hypothesis Testing", 5.9.5.
.. [2] G. K. Smyth, "Linear models and empirical Bayes methods for assessing differential
   expression in microarray experiments", Statistical Applications in Genetics and Molecular
   Biology 3 (2004) 3, section 6.2.
.. [3] S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
   Statistics 6 (1979) 65.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from memkern.statistics import moderate, student_quantile

_Floats = npt.NDArray[np.float64]

FASTER, SLOWER, SAME, NOT_ENOUGH = "faster", "slower", "same", "not enough data"
# Probability of at least one false `faster` or `slower` among all cases of a comparison.
ALPHA = 0.01
# Level of the printed intervals, on which the verdict `same` is based.
LEVEL = 0.99
LEAST_EFFECT = 0.01
SAME_WITHIN = 0.02
TRIM = 0.2
PAIRS = 30
# Share of alpha of each of the three tests of a case: late tests detect most, early ones save time.
SHARES = (0.2, 0.3, 0.5)
FURTHER = 11
"""Tests after the third, each at half as many pairs again, that a gate may need in its time."""
PASSED, UNDECIDED = "passed", "undecided"
# Least number of cases for estimating a common prior of variances, and its largest degrees of
# freedom.
_LEAST_CASES = 8
_MOST_FREEDOM = 30.0
# Samples are accurate to a tenth of a percent; a smaller spread is due to chance.
_RESOLUTION = 1e-3


@dataclass(frozen=True)
class Estimate:
    """Estimate of the difference of two sides.

    Attributes
    ----------
    a, b : float
        Logarithm of each side's time.
    error, freedom : float
        Standard error of ``b - a`` and its degrees of freedom.
    self_half_width : float
        Half width of the interval in a comparison of a side with itself; the larger of both sides.
    count : int
        Pairs, or values on the side that has fewer.
    level : float
        Of the interval.
    """

    a: float
    b: float
    error: float
    freedom: float
    self_half_width: float
    count: int
    level: float = LEVEL

    @property
    def effect(self) -> float:
        """Logarithm of b's time over a's; positive where b is slower."""
        return self.b - self.a

    @property
    def p(self) -> float:
        """Two-sided p-value: probability of such an effect without a difference."""
        from scipy.special import stdtr

        return 2 * float(stdtr(self.freedom, -abs(self.effect) / self.error))

    @property
    def half_width(self) -> float:
        """Half width of the interval of the effect."""
        return _quantile(self.level, self.freedom) * self.error

    @property
    def least_effect(self) -> float:
        """Size that the effect must exceed for a verdict of faster or slower."""
        return max(math.log1p(LEAST_EFFECT), self.self_half_width)

    def verdict(self, p: float) -> str:
        """Return the verdict, `p` being the corrected probability."""
        if p <= ALPHA and abs(self.effect) > self.least_effect:
            return SLOWER if self.effect > 0 else FASTER
        inside = abs(self.effect) + self.half_width <= math.log1p(SAME_WITHIN)
        return SAME if inside else NOT_ENOUGH

    def needed(self, cases: int, slowdown: float = 0.0) -> int:
        """Return the number of pairs or values for a verdict, with the same effect and spread.

        `cases` is the number of cases that are compared; with a `slowdown`, the number is that with
        which `gate` decides.
        """
        if slowdown:
            away = max(abs(self.effect - math.log1p(slowdown)), _RESOLUTION)
            return math.ceil(self.count * (self.half_width / away) ** 2)
        apart, same = abs(self.effect), math.log1p(SAME_WITHIN) - abs(self.effect)
        factors = []
        if same > 0:
            factors.append(self.half_width / same)
        if apart > math.log1p(LEAST_EFFECT):
            test = _quantile(1 - ALPHA * SHARES[-1] / cases, self.freedom) * self.error
            factors.append(max(test, self.self_half_width) / apart)
        return max(math.ceil(self.count * min(factors) ** 2), self.count + 1)


def yuen(a: npt.ArrayLike, b: npt.ArrayLike) -> Estimate:
    """Compare pairs by Yuen's test: 20 % trimmed means, winsorised variances and covariance.

    Parameters
    ----------
    a, b : array_like of float, shape (n,)
        Logarithms of times, pair by pair, in the order in which they were measured.

    Returns
    -------
    Estimate
        Its `a` and `b` are the trimmed means; `self_half_width` is computed from the differences of
        consecutive values of a side.
    """
    x = np.array([a, b], dtype=np.float64)
    n = x.shape[1]
    means, winsorised = _trimmed(x)
    error = _error(winsorised[1] - winsorised[0], n)
    freedom = _kept(n) - 1
    steps = np.diff(x, axis=1)
    spread = max(_error(w, n) for w in _trimmed(steps)[1])
    self_half_width = _quantile(LEVEL, freedom) * spread
    return Estimate(float(means[0]), float(means[1]), error, freedom, self_half_width, n)


def welch(a: tuple[float, float, int], b: tuple[float, float, int]) -> Estimate:
    """Compare two sides that were not measured in pairs, by Welch's test.

    Parameters
    ----------
    a, b : tuple of float, float, int
        Mean, standard deviation and number (at least 2) of a side's values, which are logarithms of
        times.
    """
    (mean_a, sd_a, count_a), (mean_b, sd_b, count_b) = a, b
    counts = np.array([count_a, count_b])
    parts = np.maximum([sd_a, sd_b], _RESOLUTION) ** 2 / counts
    freedom = float(parts.sum() ** 2 / (parts**2 / (counts - 1)).sum())
    self_half_width = max(
        _quantile(LEVEL, 2 * (n - 1)) * math.sqrt(2 * part)
        for n, part in zip(counts, parts, strict=True)
    )
    error = math.sqrt(float(parts.sum()))
    return Estimate(mean_a, mean_b, error, freedom, self_half_width, min(count_a, count_b))


def moderated(estimates: Sequence[Estimate]) -> list[Estimate]:
    """Moderate the variances of cases by the variances of other cases (empirical Bayes).

    Variances are assumed to be draws from one scaled inverse chi-squared distribution, whose
    degrees of freedom are estimated from the spread of the variances [2]_: if some cases are much
    noisier than others, the degrees of freedom are few and the variances hardly change. Fewer than
    `_LEAST_CASES` estimates are returned unchanged.

    Parameters
    ----------
    estimates : sequence of Estimate
        Estimates of cases that were measured in the same run.

    Returns
    -------
    list of Estimate
        With moderated errors and more degrees of freedom.
    """
    counts = np.array([estimate.count for estimate in estimates])
    variances = counts * np.array([estimate.error for estimate in estimates]) ** 2
    freedoms = np.array([estimate.freedom for estimate in estimates])
    common = moderate(variances, freedoms) if len(estimates) >= _LEAST_CASES else None
    if common is None:
        return list(estimates)
    prior = min(common.freedom, _MOST_FREEDOM)
    pooled = (prior * common.variance + freedoms * variances) / (prior + freedoms)
    return [
        replace(estimate, error=math.sqrt(variance / count), freedom=prior + estimate.freedom)
        for estimate, variance, count in zip(estimates, pooled, counts, strict=True)
    ]


def holm(p: npt.ArrayLike) -> _Floats:
    """Return p-values corrected for their number by Holm's procedure [3]_.

    Parameters
    ----------
    p : array_like of float, shape (n,)
        P-values; NaN where there was no test.

    Returns
    -------
    ndarray of float64, shape (n,)
        At most 1; NaN where `p` is NaN.
    """
    raw = np.asarray(p, dtype=np.float64)
    corrected = np.full_like(raw, math.nan)
    order = np.argsort(raw)[: np.count_nonzero(~np.isnan(raw))]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(factors * raw[order]), 1)
    return corrected


def decide(estimates: Sequence[Estimate | None], p: npt.ArrayLike) -> list[str]:
    """Return the verdict on each case; without an estimate there is not enough data.

    `p` are the uncorrected p-values, NaN for cases that do not belong to the family.
    """
    return [
        NOT_ENOUGH if estimate is None else estimate.verdict(corrected)
        for estimate, corrected in zip(estimates, holm(p), strict=True)
    ]


def gate(verdict: str, effect: float, half_width: float, slowdown: float) -> str:
    """Return what the interval of a case says about a slowdown.

    Parameters
    ----------
    verdict : str
    effect, half_width : float
        Middle and half width of the interval of the logarithm of b's time over a's; NaN if there is
        none.
    slowdown : float
        Relative increase of the time, such as 0.05; 0 for any, about which the verdict decides.

    Returns
    -------
    str
        `PASSED` if the interval excludes the slowdown, `SLOWER` if it lies wholly beyond it and the
        verdict is slower, else `UNDECIDED`.
    """
    limit = math.log1p(slowdown)
    shown = verdict == SLOWER and (not slowdown or effect - half_width > limit)
    passed = effect + half_width < limit if slowdown else verdict in (FASTER, SAME)
    return SLOWER if shown else PASSED if passed else UNDECIDED


class Family:
    """Cases that get pairs one by one, and are tested at three numbers of pairs or more.

    Parameters
    ----------
    cases : int
    pairs : int
        Pairs of a case at the third test; the tests (looks) are at half, two thirds and all of
        them.
    slowdown : float
        About which `gate` decides; 0 if the verdict does.
    further : int
        Number of further tests, which share half of alpha. With them intervals are wider: at most
        1 % of the cases with just this slowdown pass it, whenever they are tested.

    Attributes
    ----------
    verdicts : list of str
        A verdict is final.
    gates : list of str
        Of `gate`, by each case's verdict and estimate.
    estimates : list of Estimate or None
        At each case's last look.
    p : ndarray of float64, shape (cases,)
        Each case's smallest p-value of all looks, each divided by the look's share of alpha
        (Bonferroni over looks, so that Holm over cases is valid at any time). NaN where a case was
        dropped.
    observed : list of list of (float, float)
        By case, the values of all its pairs, disturbed ones included.
    interrupted : bool
        Whether pairs are missing because measuring was interrupted.
    """

    def __init__(
        self, cases: int, pairs: int = PAIRS, slowdown: float = 0.0, further: int = 0
    ) -> None:
        self.interrupted = False
        self.slowdown = slowdown
        more = (pairs * 3**k // 2**k for k in range(1, further + 1))
        self.looks = (pairs // 2, 2 * pairs // 3, pairs, *more)
        own = [*(share / 2 for share in SHARES), *[0.5 / further] * further] if further else SHARES
        # Share of alpha and level of the interval at each of them.
        self.tests = [(share, 1 - 2 * (1 - LEVEL) * share if further else LEVEL) for share in own]
        self.values: list[tuple[list[float], list[float]]] = [([], []) for _ in range(cases)]
        self.observed: list[list[tuple[float, float]]] = [[] for _ in range(cases)]
        self.verdicts = [NOT_ENOUGH] * cases
        self.gates = [UNDECIDED] * cases
        self.estimates: list[Estimate | None] = [None] * cases
        self.p = np.ones(cases)

    def count(self, case: int) -> int:
        """Return the number of pairs of a case."""
        return len(self.values[case][0])

    def undecided(self) -> list[int]:
        """Return the cases about which `gate` does not decide, and for which pairs are missing."""
        return [
            case
            for case, found in enumerate(self.gates)
            if found == UNDECIDED
            and self.count(case) < self.looks[-1]
            and not math.isnan(self.p[case])
        ]

    def drop(self, case: int) -> None:
        """Remove a case from the family."""
        self.p[case] = math.nan

    def add(self, case: int, a: float, b: float) -> None:
        """Add a pair of a case, in logarithms of seconds; test if it has enough for a look."""
        for side, value in zip(self.values[case], (a, b), strict=True):
            side.append(value)
        if self.count(case) not in self.looks:
            return
        share, level = self.tests[self.looks.index(self.count(case))]
        estimate = replace(yuen(*self.values[case]), level=level)
        self.estimates[case] = estimate
        self.p[case] = min(self.p[case], estimate.p / share)
        now = decide(self.estimates, self.p)
        self.verdicts = [
            new if old == NOT_ENOUGH else old for old, new in zip(self.verdicts, now, strict=True)
        ]
        self.gates = [
            gate(verdict, known.effect, known.half_width, self.slowdown) if known else UNDECIDED
            for verdict, known in zip(self.verdicts, self.estimates, strict=True)
        ]


def _kept(n: int) -> int:
    return n - 2 * int(TRIM * n)


def _trimmed(x: _Floats) -> tuple[_Floats, _Floats]:
    """Return the trimmed means and the winsorised values along the last axis."""
    n = x.shape[-1]
    cut = int(TRIM * n)
    ordered = np.sort(x, axis=-1)
    low, high = ordered[..., cut, None], ordered[..., n - cut - 1, None]
    return ordered[..., cut : n - cut].mean(axis=-1), np.clip(x, low, high)


def _error(winsorised: _Floats, n: int) -> float:
    """Return the standard error of a trimmed mean of `n` values from the winsorised values."""
    kept = _kept(n)
    variance = float(np.var(winsorised, ddof=1)) * (n - 1) / (kept * (kept - 1))
    return max(math.sqrt(variance), _RESOLUTION * math.sqrt(2 / n))


def _quantile(level: float, freedom: float) -> float:
    """Return the two-sided quantile of Student's t."""
    return student_quantile((1 + level) / 2, freedom)
