"""Coverage of the intervals, also if they stop the sampling; means, ratios, stop rules.

Coverage is simulated with fixed seeds on series whose true median is known. The tolerance is
three binomial standard errors of the number of replications.
"""

import math
from statistics import NormalDist

import numpy as np
import pytest
from checking import once_a_kind

from memkern import statistics
from memkern.errors import InputError
from memkern.statistics import (
    StopRule,
    geometric_mean,
    harmonic_mean,
    harmonic_mean_error,
    median_interval,
    pearson,
    quartiles,
    ratio_interval,
    summarise,
)

LEVEL = 0.95


def tolerance(replications, level=LEVEL):
    return 3 * math.sqrt(level * (1 - level) / replications)


# Series: each function returns (replications, n) samples around 1 with noise s, and the median.


def normal(rng, shape, s):
    return 1 + s * rng.standard_normal(shape), 1.0


def lognormal(rng, shape, s):
    return np.exp(s * rng.standard_normal(shape)), 1.0


def shifted_exponential(rng, shape, s):
    return 1 + s * rng.exponential(size=shape), 1 + s * math.log(2)


def outliers(rng, shape, s):
    x = 1 + s * rng.standard_normal(shape)
    late = rng.random(shape) < 0.03
    return np.where(late, x * rng.uniform(2, 20, shape), x), 1 + s * NormalDist().inv_cdf(
        0.5 / 0.97
    )


def autoregressive(phi, transform=lambda z: 1 + z):
    def series(rng, shape, s):
        z = rng.standard_normal(shape)
        for i in range(1, shape[1]):
            z[:, i] = phi * z[:, i - 1] + math.sqrt(1 - phi * phi) * z[:, i]
        return transform(s * z), 1.0

    return series


def bursts(share, length, height=3.0):
    """Return noise with bursts of mean `length` that add `height` to a `share` of the samples."""

    def series(rng, shape, s):
        begin = share / (1 - share) / length
        busy = np.empty(shape, dtype=bool)
        busy[:, 0] = rng.random(shape[0]) < share
        change = rng.random(shape)
        for i in range(1, shape[1]):
            busy[:, i] = np.where(busy[:, i - 1], change[:, i] >= 1 / length, change[:, i] < begin)
        cdf = NormalDist().cdf
        low, high = 0.0, height
        for _ in range(60):
            z = (low + high) / 2
            below = (1 - share) * cdf(z) + share * cdf(z - height)
            low, high = (z, high) if below < 0.5 else (low, z)
        return 1 + s * (rng.standard_normal(shape) + height * busy), 1 + s * low

    return series


INDEPENDENT = {
    "normal": normal,
    "lognormal": lognormal,
    "shifted exponential": shifted_exponential,
    "outliers": outliers,
}


def covered(series, n, *, s=0.2, replications=600, seed=1):
    x, median = series(np.random.default_rng(seed), (replications, n), s)
    intervals = [median_interval(row) for row in x]
    return np.mean([i.low <= median <= i.high for i in intervals])


def stopped(series, s, *, replications=400, seed=2):
    """Return the coverage of the interval at which the rule stops, and the mean sample count."""
    rule = StopRule()
    x, median = series(np.random.default_rng(seed), (replications, rule.max_samples), s)
    hits, counts = 0, 0
    for row in x:
        n = rule.next_count(0)
        while rule.done(row[:n], 0.0) is None:
            n = rule.next_count(n)
        interval = median_interval(row[:n])
        hits += interval.low <= median <= interval.high
        counts += n
    return hits / replications, counts / replications


@pytest.mark.parametrize("name", INDEPENDENT)
@pytest.mark.parametrize("n", once_a_kind([10, 400, 23, 100], lambda n: n >= 100))
def test_independent_samples_are_covered(name, n):
    assert covered(INDEPENDENT[name], n) >= LEVEL - tolerance(600)


@pytest.mark.parametrize("phi", once_a_kind([0.3, 0.9, 0.5, 0.7], lambda phi: phi >= 0.5))
@pytest.mark.parametrize("n", [100, 400])
def test_correlated_samples_are_covered(phi, n):
    assert covered(autoregressive(phi), n, s=0.1) >= LEVEL - tolerance(600)
    skewed = autoregressive(phi, np.exp)
    assert covered(skewed, n, s=0.5, replications=500, seed=3) >= LEVEL - tolerance(500)


@pytest.mark.parametrize(("share", "length"), [(0.1, 10), (0.25, 10)])
def test_bursts_are_covered_once_there_are_many(share, length):
    assert covered(bursts(share, length), 1000, replications=500) >= LEVEL - tolerance(500)


def test_negative_correlation_does_not_shorten_the_interval():
    assert covered(autoregressive(-0.5), 100, s=0.1) >= LEVEL


def test_interval_of_independent_samples_is_hardly_longer_than_the_binomial_one():
    x = np.random.default_rng(4).standard_normal((500, 400)) + 10
    ours = np.mean([i.high - i.low for i in map(median_interval, x)])
    x.sort(axis=1)
    # Ranks 180 and 221 of 400: P(X < 180) = 0.020, P(X < 181) = 0.026.
    assert ours <= 1.15 * np.mean(x[:, 220] - x[:, 179])


@pytest.mark.parametrize("name", INDEPENDENT)
@pytest.mark.parametrize("s", once_a_kind([0.005, 0.07, 0.035], lambda s: s > 0.01))
def test_stopping_on_independent_samples_keeps_the_coverage(name, s):
    coverage, count = stopped(INDEPENDENT[name], s)
    assert coverage >= LEVEL - tolerance(400)
    # The rule must stop early: a rule that always takes the most samples would cover as well. Noise
    # without a floor has shortest times that are far apart.
    assert count < (200 if s < 0.03 else 900)


def test_sampling_goes_on_until_the_lowest_agree():
    rule = StopRule()
    few = np.ones(51)
    few[[3, 20]] = 0.9
    assert median_interval(few).relative_half_width == 0
    assert rule.done(few, 0.0) is None
    few[[5, 30, 40]] = 0.91
    assert rule.done(few, 0.0) == "ci"


@pytest.mark.parametrize("phi", once_a_kind([0.3, 0.7, 0.5], lambda phi: phi >= 0.5))
@pytest.mark.parametrize("s", [0.005, 0.035])
def test_stopping_on_correlated_samples_keeps_the_coverage(phi, s):
    coverage, count = stopped(autoregressive(phi), s)
    assert coverage >= LEVEL - tolerance(400)
    assert count < (200 if s < 0.03 else 600)


def test_stopping_on_strongly_correlated_samples_loses_two_percent():
    # 23 samples are too few to show a correlation over ten samples: the coverage is 0.93.
    coverage, _ = stopped(autoregressive(0.9), 0.02)
    assert coverage >= 0.93 - tolerance(400, 0.93)


def zigzag(n):
    """Return 1..n in an order whose neighbours are negatively correlated."""
    values = np.arange(1.0, n + 1)
    return np.ravel(np.column_stack((values[: (n + 1) // 2], values[::-1][: (n + 1) // 2])))[:n]


@pytest.mark.parametrize(
    ("n", "low", "high"),
    [(6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (20, 6, 15), (25, 8, 18), (100, 40, 61)],
)
def test_ranks_are_those_of_binomial_tables(n, low, high):
    assert sorted(zigzag(n)) == list(range(1, n + 1))
    interval = median_interval(zigzag(n))
    assert (interval.low, interval.high) == (low, high)
    assert (interval.median, interval.level, interval.batch) == ((n + 1) / 2, 0.95, 1)
    assert interval.autocorrelation < 0
    assert interval.relative_half_width == (high - low) / (n + 1)


@pytest.mark.parametrize(("n", "level"), [(1, 0.0), (2, 0.5), (3, 0.75), (4, 0.875), (5, 0.9375)])
def test_few_samples_give_their_range_and_its_level(n, level):
    interval = median_interval(zigzag(n))
    assert (interval.low, interval.high, interval.level) == (1, n, level)


def test_other_levels_have_other_ranks():
    # P(X < 3) = 56 / 1024, P(X < 1) = 1 / 1024
    narrow, wide = median_interval(zigzag(10), 0.89), median_interval(zigzag(10), 0.99)
    assert (narrow.low, narrow.high, wide.low, wide.high) == (3, 8, 1, 10)


def test_autocorrelation_time_by_hand():
    # Ranks -1.5, -0.5, 0.5, 1.5 have the lagged correlations 1, 0.25, -0.3, -0.45: only the first
    # pair's sum, 1.25, is positive, so that the time is 2 * 1.25 - 1, multiplied by 1 + 2 / 4.
    interval = median_interval([1.0, 2.0, 3.0, 40.0])
    assert interval.autocorrelation == pytest.approx(0.25)
    assert interval.batch == pytest.approx(2.25)
    assert (interval.low, interval.high, interval.level) == (1, 40, 0)


def test_equal_samples_are_uncorrelated():
    interval = median_interval([2.0] * 50)
    assert (interval.low, interval.high, interval.level) == (2, 2, 0.95)
    assert (interval.batch, interval.autocorrelation) == (1, 0)
    coarse = np.round(np.random.default_rng(7).standard_normal((200, 100)) * 2) + 9
    assert np.mean([median_interval(row).batch for row in coarse]) < 1.3


def test_a_drift_does_not_reach_the_level():
    interval = median_interval(np.linspace(1, 2, 50))
    assert interval.level < 0.95
    assert (interval.low, interval.high) == (1, 2)


def test_interval_lies_inside_the_samples():
    rng = np.random.default_rng(8)
    for n in [*range(1, 40), 100, 999]:
        x = rng.lognormal(size=n) * rng.choice([1, 50], size=n)
        for series in (x, np.sort(x), np.repeat(x, 3)):
            interval = median_interval(series)
            assert interval.low in series
            assert interval.high in series
            assert interval.low <= interval.median <= interval.high


@pytest.mark.parametrize("samples", [[], [[1.0, 2.0]], [1.0, math.nan], [math.inf]])
def test_bad_series_are_refused(samples):
    with pytest.raises(InputError, match="samples must be"):
        median_interval(samples)
    with pytest.raises(InputError, match="samples must be"):
        summarise(samples)


def test_levels_out_of_range_are_refused():
    for level in (0, 1, 95, math.nan):
        with pytest.raises(InputError, match="level must lie between 0 and 1"):
            median_interval([1, 2], level)
        with pytest.raises(InputError, match="level must lie between 0 and 1"):
            ratio_interval([1, 2], [1, 2], level)


def test_the_stop_rule_examines_growing_counts_only():
    quiet = zigzag(1000) * 1e-9 + 1
    rule = StopRule(max_samples=60)
    stops = [n for n in range(1, 60) if rule.done(quiet[:n], 0.0) == "ci"]
    assert stops == [23, 34, 51]
    assert StopRule(min_samples=10).done(quiet[:10], 0.0) == "ci"
    assert rule.done(quiet[:60], 0.0) == "samples"
    assert rule.done([], 0.0) is None
    assert rule.done([], 2.0) == "budget"
    assert rule.done(quiet[:22], 1.9) is None
    assert rule.done(quiet[:22], 2.0) == "budget"
    assert rule.done(quiet[:23], 2.0) == "ci"
    assert [rule.next_count(n) for n in (0, 22, 23, 51, 60)] == [23, 23, 34, 60, 60]


def test_the_stop_rule_waits_for_precision_and_a_known_autocorrelation():
    rule = StopRule(target=0.1)
    assert rule.done(zigzag(51), 0.0) is None
    assert rule.done(zigzag(51) + 100, 0.0) == "ci"
    slow = 1000 + np.sin(np.arange(114) / 3)
    assert median_interval(slow[:76]).level == 0.95
    assert rule.done(slow[:76], 0.0) is None
    assert rule.done(slow, 0.0) == "ci"
    # The whole range is narrow, but its level is too low.
    assert rule.done(np.linspace(1000, 1001, 114), 0.0) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"target": 0},
        {"target": math.nan},
        {"min_samples": 0},
        {"max_samples": 0},
        {"budget_s": -1},
        {"level": 1},
    ],
)
def test_impossible_stop_rules_are_refused(wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))} must"):
        StopRule(**wrong)


def test_summary_by_hand():
    few = summarise(zigzag(10))
    assert few == {
        "time_min_s": 1,
        "time_mean_s": 5.5,
        "time_median_s": 5.5,
        "time_p95_s": few["time_p95_s"],
        "time_max_s": 10,
        "within_ci_low_s": 2,
        "within_ci_high_s": 9,
        "within_ci_level": 0.95,
        "within_ci_relative": 3.5 / 5.5,
        "within_ci_batch": 1,
        "within_ci_autocorrelation": few["within_ci_autocorrelation"],
    }
    assert math.isnan(few["time_p95_s"])
    assert math.isnan(summarise(zigzag(19))["time_p95_s"])
    assert summarise(zigzag(20))["time_p95_s"] == pytest.approx(19.05)
    assert all(type(value) is float for value in few.values())


def test_means_by_hand():
    assert harmonic_mean([1, 2, 4]) == pytest.approx(12 / 7)
    # Reciprocals 1, 1/2, 1/4: mean 7/12, variance 7/48.
    assert harmonic_mean_error([1, 2, 4]) == pytest.approx(math.sqrt(7 / 48 / 3) * (12 / 7) ** 2)
    assert math.isnan(harmonic_mean_error([3]))
    assert geometric_mean([1, 2, 4]) == pytest.approx(2)
    assert quartiles([1, 2, 3, 4, 5, 6, 7, 8, 9]) == (3, 5, 7)
    for mean in (harmonic_mean, harmonic_mean_error, geometric_mean):
        with pytest.raises(InputError, match=r"must be positive, not 0\.0"):
            mean([1, 0])
        with pytest.raises(InputError, match="non-empty"):
            mean([])


def test_pearson_by_hand():
    assert pearson([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
    assert pearson([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert pearson([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    assert math.isnan(pearson([1, 1], [1, 2]))
    with pytest.raises(InputError, match="same length, not 2 and 3"):
        pearson([1, 2], [1, 2, 3])


@pytest.mark.parametrize(
    ("pairs", "quantile"), [(2, 12.7062), (3, 4.30265), (7, 2.44691), (8, 2.36462), (31, 2.04227)]
)
def test_paired_ratio_uses_the_table_of_student(pairs, quantile):
    logs = zigzag(pairs) / 100
    deviation = np.std(logs, ddof=1) / math.sqrt(pairs)
    ratio = ratio_interval(3 * np.exp(logs), np.full(pairs, 2.0), paired=True)
    assert ratio.ratio == pytest.approx(1.5 * math.exp(logs.mean()))
    assert ratio.high / ratio.ratio == pytest.approx(math.exp(quantile * deviation), rel=1e-5)
    assert ratio.ratio / ratio.low == pytest.approx(ratio.high / ratio.ratio)
    assert ratio.level == 0.95


def test_welch_lies_between_the_smaller_side_and_the_pool():
    a, b = np.exp(zigzag(5) / 100), np.exp(zigzag(5) / 100)
    error = math.sqrt(2 * np.var(zigzag(5) / 100, ddof=1) / 5)
    # Equal variances: 8 degrees of freedom.
    assert ratio_interval(a, b).high == pytest.approx(math.exp(2.30600 * error), rel=1e-5)
    # One side without variance: the other's 4 degrees of freedom.
    alone = ratio_interval(a, np.ones(5))
    error /= math.sqrt(2)
    assert alone.high / alone.ratio == pytest.approx(math.exp(2.77645 * error), rel=1e-5)
    # Five and nine measurements: 11.91 degrees of freedom, rounded down.
    more = ratio_interval(a, np.exp(zigzag(9) / 100))
    error = math.sqrt(np.var(zigzag(5), ddof=1) / 5 + np.var(zigzag(9), ddof=1) / 9) / 100
    assert more.high / more.ratio == pytest.approx(math.exp(2.20099 * error), rel=1e-5)


def test_a_ratio_of_single_measurements_has_no_interval():
    for paired in (False, True):
        ratio = ratio_interval([3.0], [2.0], paired=paired)
        assert (ratio.ratio, ratio.level) == (pytest.approx(1.5), 0)
        assert math.isnan(ratio.low)
        assert math.isnan(ratio.high)
    same = ratio_interval([2.0, 2.0], [1.0, 1.0])
    assert (same.ratio, same.low, same.high) == (pytest.approx(2),) * 3
    with pytest.raises(InputError, match="same length, not 1 and 2"):
        ratio_interval([1], [1, 2], paired=True)
    with pytest.raises(InputError, match=r"positive, not -1\.0"):
        ratio_interval([1, -1], [1, 2])


def test_moderation_recovers_the_prior_of_variances():
    rng = np.random.default_rng(5)
    freedom, prior_freedom, prior_variance = 4, 8.0, 0.02**2
    true = prior_variance * prior_freedom / rng.chisquare(prior_freedom, 4000)
    seen = true * rng.chisquare(freedom, 4000) / freedom
    prior = statistics.moderate(seen, freedom)
    assert prior is not None
    assert prior.variance == pytest.approx(prior_variance, rel=0.1)
    assert prior.freedom == pytest.approx(prior_freedom, rel=0.25)


def test_equal_variances_are_moderated_to_one():
    rng = np.random.default_rng(6)
    prior = statistics.moderate(1e-4 * rng.chisquare(4, 500) / 4, 4)
    assert prior is not None
    assert prior.variance == pytest.approx(1e-4, rel=0.15)
    assert prior.freedom > 30
    assert statistics.moderate([1e-4, 2e-4], 4) is None
    assert statistics.moderate([0.0, 0.0, 1e-4, 1e-4], 4) is None


def test_the_interval_of_the_next_run_is_symmetric_on_logarithms():
    interval = statistics.next_run_interval(2.0, 0.1)
    assert interval.low == pytest.approx(2 * math.exp(-0.1))
    assert interval.high == pytest.approx(2 * math.exp(0.1))
    assert interval.relative_half_width == pytest.approx((interval.high - interval.low) / 4)
    assert interval.level == statistics.RUN_LEVEL == 0.95
    assert statistics.factor_of(interval.relative_half_width) == pytest.approx(math.exp(0.1))


def test_widths_beyond_20_percent_are_factors_or_ends():
    assert statistics.half_width(0.0312) == "±3.1 %" and statistics.half_width(math.nan) == ""
    assert statistics.half_width(0.194, "{}") == "19"
    assert statistics.half_width(64.6) == "×÷129" and statistics.half_width(1.0) == "×÷2.4"
    assert statistics.half_width(0.2) == "×÷1.2" and statistics.half_width(math.inf) == "×÷inf"
    # The factor is that of the interval.
    for factor in (3.0, 47.0, 1e6):
        relative = (factor - 1 / factor) / 2
        assert statistics.factor_of(relative) == pytest.approx(factor)
        assert statistics.half_width(relative, "{}") in (f"×÷{factor:.1f}", f"×÷{factor:.0f}")
    assert statistics.with_interval(37.7, 0.12, "GB/s") == "37.7 GB/s ±12 %"
    assert statistics.with_interval(37.7, 1.47, "GB/s") == "38 GB/s (12 to 120)"
    assert [statistics.with_interval(2.0, w) for w in (0.0, math.nan)] == ["2", "2"]


@pytest.mark.parametrize(
    ("value", "relative", "text"),
    [
        (37.7, 0.36, "38"), (105.0, 0.175, "105"), (31.77, 0.02, "31.8"), (217.4, 0.65, "220"),
        (10.52, 2.47, "11"), (1.11, 64.6, "1.1"), (0.4567, 0.3, "0.46"), (1234.5, 0.5, "1200"),
        (3956.0, 0.0, "3956"), (0.5333, math.nan, "0.533"), (999.7, 0.01, "1000"), (0.0, 0.5, "0"),
        (-217.4, 0.65, "-220"), (math.inf, 0.1, "∞"), (math.nan, 0.1, "nan"),
    ],
)  # fmt: skip
def test_figures_that_the_interval_makes_meaningless_are_left_out(value, relative, text):
    assert statistics.meaningful(value, relative) == text
