"""Verdicts: their statistics, and how often they are wrong in simulations."""

import math

import numpy as np
import pytest
from compare_simulation import NOISES, independent, simulated
from found_verdicts import FOUND
from scipy import stats

from memkern.results import verdicts


def test_yuen_is_the_textbook_formula():
    rng = np.random.default_rng(1)
    for n in (15, 20, 30):
        a = rng.standard_normal(n)
        b = 0.5 * a + rng.standard_normal(n)
        found = verdicts.yuen(a, b)
        g = n // 5
        h = n - 2 * g
        w = [np.asarray(stats.mstats.winsorize(x, limits=(g / n, g / n))) for x in (a, b)]
        covariance = (n - 1) * np.cov(w)
        error = math.sqrt(
            (covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]) / h / (h - 1)
        )
        assert found.a == pytest.approx(stats.trim_mean(a, 0.2))
        assert found.effect == pytest.approx(stats.trim_mean(b, 0.2) - stats.trim_mean(a, 0.2))
        assert found.error == pytest.approx(error)
        assert found.p == pytest.approx(2 * stats.t.sf(abs(found.effect) / error, h - 1))
        assert found.half_width == pytest.approx(stats.t.ppf(0.995, h - 1) * error)
        assert found.count == n


def test_values_that_agree_by_chance_have_the_resolution_of_samples_as_their_error():
    assert verdicts.welch((1.0, 0.0, 2), (1.0, 0.0, 2)).error == pytest.approx(1e-3)


def test_holm_corrects_stepwise_and_skips_nan():
    corrected = verdicts.holm([0.01, math.nan, 0.04, 0.03, 0.5])
    np.testing.assert_allclose(corrected, [0.04, math.nan, 0.09, 0.09, 0.5])
    assert len(verdicts.holm([])) == 0


@pytest.mark.parametrize(
    ("effect", "error", "itself", "p", "verdict"),
    [
        (0.05, 0.004, 0.01, 0.001, "slower"),
        (-0.05, 0.004, 0.01, 0.001, "faster"),
        (0.05, 0.004, 0.01, 0.02, "not enough data"),
        (0.05, 0.004, 0.06, 0.001, "not enough data"),  # a side differs more from itself
        (0.009, 0.0001, 0.001, 1e-9, "same"),
        (0.015, 0.0001, 0.001, 1e-9, "slower"),
        (0.0, 0.005, 0.01, 1.0, "same"),
        (0.0, 0.01, 0.01, 1.0, "not enough data"),
    ],
)
def test_verdicts(effect, error, itself, p, verdict):
    estimate = verdicts.Estimate(-1.0, effect - 1.0, error, 17, itself, 30)
    assert estimate.verdict(p) == verdict


def test_the_estimated_number_of_pairs_suffices():
    rng = np.random.default_rng(2)
    few = rng.normal(0, 0.02, (2, 15))
    needed = verdicts.yuen(*few).needed(30)
    assert needed > 15
    more = rng.normal(0, 0.02, (2, 4 * needed))
    more[1] += verdicts.yuen(*few).effect - verdicts.yuen(*more).effect
    assert verdicts.yuen(*more).verdict(verdicts.yuen(*more).p * 60) != verdicts.NOT_ENOUGH


def test_a_verdict_is_final_and_a_dropped_case_does_not_count():
    rng = np.random.default_rng(3)
    family = verdicts.Family(3)
    assert family.looks == (15, 20, 30)
    family.drop(2)
    for k in range(30):
        noise = 0.001 * rng.standard_normal(4)
        if 0 in family.undecided():
            family.add(0, noise[0], 0.1 + noise[1])
        family.add(1, 30 * noise[2], 30 * noise[3])
        assert family.undecided() == ([0, 1] if k < 14 else [1] if k < 29 else [])
    assert family.verdicts[0] == verdicts.SLOWER
    assert family.count(0) == 15
    np.testing.assert_array_equal(np.isnan(verdicts.holm(family.p)), [False, False, True])


def test_further_tests_let_few_cases_with_just_that_slowdown_pass():
    rng, found = np.random.default_rng(12), []
    for _ in range(200):
        family = verdicts.Family(1, slowdown=0.05, further=5)
        assert family.looks[2:5] == (30, 45, 67) and len(family.tests) == len(family.looks)
        assert sum(share for share, _ in family.tests) == pytest.approx(1.0)
        while family.undecided():
            a, b = 0.02 * rng.standard_normal(2)
            family.add(0, a, b + math.log1p(0.05))
        found += family.gates
    # With 99 % intervals at each test about five would pass.
    assert found.count(verdicts.PASSED) <= 2


@pytest.mark.parametrize("families", [10, pytest.param(400, marks=pytest.mark.release)])
@pytest.mark.parametrize("noise", NOISES.values(), ids=lambda noise: noise.__name__)
def test_false_verdicts_are_below_one_percent_of_cases(noise, families):
    found = [simulated(noise, np.zeros(30), seed).verdicts for seed in range(families)]
    false = sum(verdict in FOUND for family in found for verdict in family)
    assert false < 0.01 * 30 * families


def test_a_difference_of_five_percent_is_found_in_two_percent_of_noise():
    effects = np.where(np.arange(30) % 2, math.log(1.05), 0.0)
    found = [simulated(independent, effects, seed).verdicts for seed in range(10)]
    differ = [v for family in found for v, e in zip(family, effects, strict=True) if e]
    assert np.mean([v == verdicts.SLOWER for v in differ]) >= 0.8
    equal = [v for family in found for v, e in zip(family, effects, strict=True) if not e]
    assert sum(v in FOUND for v in equal) < 0.01 * len(equal)
