"""Effects of nodes over their cases: estimates, evidence, and the power that is stated."""

import math
import warnings

import numpy as np
import pytest
from scipy import stats

from memkern.results.effects import Effects, adjusted, effects, middle, named, of_rounds


def beside_others(rounds: np.ndarray, tests: float = 1.0) -> Effects:
    """Return the effects of looks beside all others."""
    count = len(rounds)
    found = effects(rounds, ~np.eye(count, dtype=bool), range(count))
    return Effects(**{**vars(found), "tests": tests})


def looks(random: np.random.Generator, count: int = 16, rounds: int = 5, sd: float = 0.03):
    return sd * random.standard_normal((count, rounds))


def test_a_value_is_the_sum_of_case_and_effect():
    random = np.random.default_rng(1)
    effect, case = random.normal(0, 0.1, (6, 4)), random.normal(0, 3, 9)
    times = effect[:, :, None] + case + 0.01 * random.standard_t(2, (6, 4, 9))
    # One case is of no use, one value is wrong, and one round is missing.
    times[:, :, 0] += random.normal(0, 2, (6, 4))
    times[2, 1, 3] += 5
    times[5, 3] = math.nan
    found = of_rounds(times)
    assert np.isnan(found[5, 3])
    known = ~np.isnan(found)
    difference = (found - effect)[known]
    assert np.ptp(difference) < 0.08 and np.std(difference) < 0.02


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 1), (0, 2)])
@pytest.mark.parametrize("share", [0.5, 0.75])
def test_quantiles_leave_out_missing_values(axis, share):
    x = np.random.default_rng(0).normal(size=(5, 4, 3))
    x[x > 0.8] = math.nan
    x[1] = math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = np.nanquantile(x, share, axis=axis)
    np.testing.assert_allclose(middle(x, axis, share), expected)
    assert np.isnan(middle(x[:0], 0)).all()


def test_the_state_of_the_host_is_taken_out():
    random = np.random.default_rng(2)
    share = np.log(random.uniform(0.5, 1.0, (4, 3, 2, 1)))
    share[0, 0] = math.nan  # unknown: that of most
    times = -0.4 * np.nan_to_num(share[..., 0])
    left = adjusted(times, share, [-0.4])
    assert np.ptp(left[~np.isnan(share[..., 0])].reshape(-1, 2), axis=0).max() < 1e-12
    assert np.array_equal(left[0, 0], times[0, 0])


def test_discoveries_are_those_of_benjamini_and_hochberg():
    none = [math.nan, 0.0, math.log(299)]
    assert not named(none).any()
    assert named([math.nan, 0.0, math.log(301)]).tolist() == [False, False, True]
    # The larger one is enough for a second one of half the size.
    assert named([math.log(x) for x in (301, 151, 1)]).tolist() == [True, True, False]
    assert named([math.log(x) for x in (301, 149, 1)]).tolist() == [True, False, False]
    assert named([]).size == 0


def test_the_mean_evidence_of_healthy_looks_is_one():
    # The integral over the distribution of their distances, of known variance.
    sd, x = 0.05, np.linspace(-20, 20, 400_001)
    shape = np.ones(len(x))
    variances = sd**2 * shape, 0 * shape, 0 * shape
    one = Effects(x, shape, 1e9 * shape, 0 * shape, *variances, freedom=8 * shape)
    e, density = np.exp(one.evidence), stats.t(8, scale=sd).pdf(x)
    step = x[1] - x[0]
    assert np.sum(e * density) * step == pytest.approx(1, abs=1e-3)
    # Few healthy looks ever exceed 1 / alpha.
    assert np.sum(density[e > 100]) * step < 0.005


def test_more_of_a_slowdown_is_more_evident():
    random = np.random.default_rng(4)
    evidence = []
    for slowdown in (0.02, 0.1, 0.2, 0.5, 3.0, 1e5):
        rounds = looks(random.spawn(1)[0])
        rounds[3] += math.log1p(slowdown)
        evidence.append(beside_others(rounds).evidence[3])
    assert evidence[0] < 0 < evidence[2] and np.all(np.diff(evidence[:5]) > 0)
    assert evidence[-1] > 20


@pytest.mark.parametrize("sd, rounds, count", [(0.03, 1, 16), (0.04, 5, 16), (0.06, 10, 6)])
def test_the_stated_power_is_that_of_simulated_fleets(sd, rounds, count):
    found, stated = 0, []
    seeds = range(150)
    for seed in seeds:
        values = looks(np.random.default_rng(seed), count, rounds, sd)
        values[0] += math.log(1.2)
        one = beside_others(values, tests=count)
        found += bool(named(one.evidence)[0])
        if seed % 10 == 0:
            stated.append(one.power(0.2)[0])
    assert abs(found / len(seeds) - np.mean(stated)) < 0.12


def test_what_is_found_has_the_power_that_is_asked_for():
    one = beside_others(looks(np.random.default_rng(5)), tests=16)
    for power in (0.5, 0.9):
        slowdowns = np.expm1(one.found(power))
        for k, slowdown in enumerate(slowdowns):
            assert one.power(slowdown)[k] == pytest.approx(power, abs=1e-6)


def test_rounds_or_nodes_that_are_needed():
    values = looks(np.random.default_rng(6), rounds=3, sd=0.07)
    one = beside_others(values, tests=16)
    assert one.power(0.2).max() < 0.9
    rounds, nodes = one.needed()
    assert 3 < rounds < 40 and nodes == 0
    # Nodes that differ by as much as what should be found.
    values = looks(np.random.default_rng(6), rounds=3) + 0.3 * looks(
        np.random.default_rng(7), rounds=1, sd=1
    )
    assert beside_others(values, tests=16).needed() == (0, 0)


def test_effects_are_shrunk_unless_they_are_evident():
    values = looks(np.random.default_rng(8), rounds=8)
    values[2] += math.log(1.5)
    one = beside_others(values)
    shrunk, half = one.shrunk
    assert shrunk[2] == pytest.approx(one.distance[2]) and shrunk[2] - half[2] > math.log(1.3)
    healthy = np.arange(16) != 2
    assert np.all(np.abs(shrunk[healthy]) < np.abs(one.distance[healthy]))
    assert np.mean(np.abs(shrunk[healthy]) < half[healthy]) > 0.8


def test_few_others_that_agree_do_not_make_an_outlier():
    values = np.zeros((4, 1))
    values[0] = 0.12
    assert beside_others(values).evidence[0] < math.log(100)
    # A look has no evidence without others, or without a value.
    assert np.isnan(effects(values, np.zeros((4, 4), bool), range(4)).evidence).all()
    values[1] = math.nan
    assert np.isnan(beside_others(values).evidence).tolist() == [False, True, False, False]


def test_the_distance_is_judged_by_students_distribution():
    values = looks(np.random.default_rng(9), 200, 4, sd=0.3)
    one = beside_others(values)
    z = one.distance / np.sqrt(one.variance)
    assert stats.kstest(z, stats.t(one.freedom[0]).cdf).pvalue > 0.01
