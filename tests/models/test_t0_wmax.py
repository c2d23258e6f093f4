"""The T0/Wmax fit: exact data, coverage of intervals on noisy data, predictions."""

import math
import warnings

import numpy as np
import pytest
from checking import python
from synthetic_times import T0, WMAX, exact, noisy, sizes, times

import memkern as mk
from memkern.errors import InputError
from memkern.models import (
    ModelFit,
    fit_t0_wmax,
    predict_sum,
    strong_scaling_efficiency,
    weak_scaling_efficiency,
)

SETS = 1000
# Three binomial standard errors.
TOLERANCE = 3 * math.sqrt(0.95 * 0.05 / SETS)


def design(x: np.ndarray) -> np.ndarray:
    return np.stack((np.ones_like(x), x), axis=1)


@pytest.mark.parametrize("weighting", ["fitted", "none"])
def test_exact_data_are_recovered(weighting):
    fit = fit_t0_wmax({"bytes_B": sizes(), "time_s": times(sizes())}, weighting=weighting)
    assert fit.t0_s == pytest.approx(T0, rel=1e-9)
    assert fit.wmax_GBps == pytest.approx(800, rel=1e-12)
    assert fit.b80_B == pytest.approx(4 * T0 * WMAX, rel=1e-9)
    assert fit.r2 == pytest.approx(1, abs=1e-12)
    assert np.abs(fit.residuals / times(sizes())).max() < 1e-9
    low, high = fit.wmax_ci_GBps
    assert low <= high and high - low < 1e-6
    t0, wmax = f"T0 = {1e6 * T0:.3g} [", "Wmax = 800 [800, 800] GB/s"
    assert t0 in repr(fit) and wmax in repr(fit) and f"{len(sizes())} points" in repr(fit)


def test_weighted_fit_is_that_of_polyfit_with_weights_of_fitted_times():
    x, y = noisy(12, noise=0.2)
    fitted = x * np.mean(y / x)
    for _ in range(200):
        fitted = np.polyval(np.polyfit(x, y, 1, w=1 / fitted), x)
    (slope, t0), unscaled = np.polyfit(x, y, 1, w=1 / fitted, cov="unscaled")
    squares = np.sum(((y - fitted) / fitted) ** 2)
    covariance = unscaled[::-1, ::-1] * squares / (len(x) - 2)

    fit = fit_t0_wmax({"bytes_B": x, "time_s": y}, level=0.9)
    assert fit.t0_s == pytest.approx(t0, rel=1e-7)
    assert fit.parameters["slope"].value == pytest.approx(slope, rel=1e-7)
    assert fit.covariance == pytest.approx(covariance, rel=1e-6)
    assert fit.parameters["t0"].error == pytest.approx(math.sqrt(covariance[0, 0]), rel=1e-6)
    mean = np.average(y, weights=fitted**-2)
    assert fit.r2 == pytest.approx(1 - squares / np.sum(((y - mean) / fitted) ** 2), rel=1e-9)
    half_width = (fit.t0_ci_s[1] - fit.t0_ci_s[0]) / 2
    # Student's t with 10 degrees of freedom, 95th percentile.
    assert half_width / fit.parameters["t0"].error == pytest.approx(1.812461, rel=1e-6)
    assert fit.remark == ""


def test_unweighted_fit_has_the_hc3_covariance():
    x, y = noisy(15, noise=0.1)
    slope, t0 = np.polyfit(x, y, 1)
    wide = design(x / x.max())
    inverse = np.linalg.inv(wide.T @ wide)
    hat = wide @ inverse @ wide.T
    residuals = y - hat @ y
    meat = wide.T @ np.diag((residuals / (1 - np.diag(hat))) ** 2) @ wide
    scale = np.array([1, 1 / x.max()])
    covariance = inverse @ meat @ inverse * np.outer(scale, scale)

    fit = fit_t0_wmax({"bytes_B": x, "time_s": y}, weighting="none")
    assert fit.wmax_GBps == pytest.approx(1e-9 / slope)
    assert fit.t0_s == pytest.approx(t0, rel=1e-6)
    assert fit.covariance == pytest.approx(covariance, rel=1e-6)
    assert fit.residuals == pytest.approx(residuals, rel=1e-6, abs=1e-15)
    assert fit.r2 == pytest.approx(1 - residuals @ residuals / np.sum((y - y.mean()) ** 2))
    assert "unreliable" in fit.remark


def test_a_slope_that_one_size_determines_has_no_finite_robust_interval():
    points = {"bytes_B": [1e6, 1e6, 1e9], "time_s": [1e-5, 1.1e-5, 1e-2]}
    fit = fit_t0_wmax(points, weighting="none")
    assert fit.wmax_ci_GBps == (0, math.inf)


def test_the_interval_of_wmax_is_the_inverse_of_that_of_the_slope():
    x, y = noisy(10, noise=0.2)
    fit = fit_t0_wmax({"bytes_B": x, "time_s": y})
    slope, wmax = fit.parameters["slope"], fit.parameters["wmax"]
    assert fit.wmax_ci_GBps == pytest.approx((1e-9 / slope.high, 1e-9 / slope.low))
    assert wmax.high - wmax.value > wmax.value - wmax.low > 0
    assert wmax.error / wmax.value == pytest.approx(slope.error / slope.value)
    assert [p.unit for p in fit.parameters.values()] == ["s", "s/B", "GB/s"]


def test_falling_times_have_no_finite_wmax():
    x = np.linspace(1e3, 2e3, 8)
    y = T0 * (1 + 0.02 * np.array([1, -1, -1, 1, 1, -1, -1, 1.5]))
    falling = fit_t0_wmax({"bytes_B": x, "time_s": y[::-1] - x * 1e-10})
    assert falling.wmax_GBps == math.inf


@pytest.fixture(scope="module", params=[20, 400])
def synthetic(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray]:
    """Return sizes, and `SETS` sets of times with 2 % noise."""
    x = sizes(request.param)
    noise = np.random.default_rng(request.param).standard_normal((SETS, request.param))
    return x, times(x) * (1 + 0.02 * noise)


def test_intervals_cover_the_truth_at_the_stated_rate(synthetic):
    x, sets = synthetic
    fits = [fit_t0_wmax({"bytes_B": x, "time_s": y}) for y in sets]
    t0 = np.mean([f.t0_ci_s[0] <= T0 <= f.t0_ci_s[1] for f in fits])
    wmax = np.mean([f.wmax_ci_GBps[0] <= WMAX / 1e9 <= f.wmax_ci_GBps[1] for f in fits])
    b80 = np.mean([f.b80_ci_B[0] <= 4 * T0 * WMAX <= f.b80_ci_B[1] for f in fits])
    print(f"{len(x)} sizes: T0 {t0:.4f}, Wmax {wmax:.4f}, B0.8 {b80:.4f}")
    assert abs(t0 - 0.95) <= TOLERANCE
    assert abs(b80 - 0.95) <= TOLERANCE
    assert abs(wmax - 0.95) <= TOLERANCE


def test_noise_can_make_t0_negative_and_then_there_is_no_b80():
    x = np.geomspace(1e6, 1e9, 20)
    fit = fit_t0_wmax({"bytes_B": x, "time_s": x / 100e9 - 5e-6})
    assert fit.t0_s == pytest.approx(-5e-6)
    assert math.isnan(fit.b80_B)
    time, bandwidth = fit.predict([0, 1e9])
    assert time[0] < 0 and math.isnan(bandwidth[0]) and bandwidth[1] > 100


def test_a_fit_of_two_regimes_is_positive_at_every_size():
    # Ten times slower beyond the caches: an unweighted T0 is far below zero.
    x = np.geomspace(1e4, 1e9, 60)
    y = 1e-7 + np.where(x < 1e7, x / 1000e9, x / 100e9 - 9e-5)
    y[x >= 1e7] = np.maximum(y[x >= 1e7], 1e-5)
    fit = fit_t0_wmax({"bytes_B": x, "time_s": y})
    assert (fit.predict(x).time_s > 0).all()


def test_prediction_of_any_size():
    fit = exact()
    assert isinstance(fit, ModelFit)
    assert fit.predict(4e6).time_s == pytest.approx(1e-5)
    shape = fit.predict(np.full((2, 3), 4e6))
    assert shape.bandwidth_GBps.shape == (2, 3)
    assert shape.bandwidth_GBps == pytest.approx(np.full((2, 3), 400.0))
    assert fit.predict(fit.b80_B).bandwidth_GBps == pytest.approx(0.8 * 800)
    assert fit.predict(fit.b_fraction(0.25)).bandwidth_GBps == pytest.approx(0.25 * 800)
    assert fit.predict(0).bandwidth_GBps == 0


def test_a_sum_of_kernels_and_its_strong_scaling():
    one, two = exact(), exact(10e-6, 400e9)
    both = predict_sum([(one, 4e6), (two, [4e6, 8e6])])
    assert both.time_s == pytest.approx([30e-6, 40e-6])
    assert both.bandwidth_GBps == pytest.approx([8e6 / 30e-6 / 1e9, 12e6 / 40e-6 / 1e9])
    # T0 = 15 us, 15 us of streaming: 30 / (3 (15 + 5)).
    efficiency = strong_scaling_efficiency([(one, 4e6), (two, 4e6)], [1, 3])
    assert efficiency == pytest.approx([1, 0.5])
    assert strong_scaling_efficiency([(one, 4e6)], 2) == pytest.approx(10 / 2 / 7.5)


def test_weak_scaling_is_lowered_by_communication_alone():
    kernels = [(exact(), 4e6), (exact(10e-6, 400e9), 4e6)]  # 10 and 20 us
    assert weak_scaling_efficiency(kernels, 0) == 1
    found = weak_scaling_efficiency(kernels, [[0, 10e-6, 30e-6]])
    assert found.shape == (1, 3) and found[0] == pytest.approx([1, 0.75, 0.5])
    larger = [(fit, 10 * size) for fit, size in kernels]
    assert weak_scaling_efficiency(larger, 30e-6) > 0.8


def test_b80_is_also_a_number_of_entries():
    x = np.geomspace(1e3, 1e7, 9).round()
    points = {"bytes_B": 24 * x, "time_s": 5e-6 + 24 * x / 800e9, "elements": x}
    fit = fit_t0_wmax(points)
    assert fit.entry_B == 24 and fit.b80_entries == pytest.approx(16e6 / 24)
    assert fit.summary()["b80_entries"] == fit.b80_entries
    # Only the points of the fit count, which must agree.
    other = np.where(x < 2e3, x / 2, x)
    assert math.isnan(fit_t0_wmax(points | {"elements": other}).b80_entries)
    assert fit_t0_wmax(points | {"elements": other}, leave_out_B=48e3).entry_B == 24
    for unknown in (["a"] * 9, [math.nan] * 9, [0] * 9, [None] * 9):
        assert math.isnan(fit_t0_wmax(points | {"elements": unknown}).entry_B)
    assert math.isnan(exact().b80_entries) and exact().summary()["b80_entries"] is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: exact().predict(-1), "bytes_B must be finite and not negative"),
        (lambda: exact().b_fraction(1), "fraction must lie between 0 and 1, not 1"),
        (lambda: predict_sum([]), "at least one kernel"),
        (lambda: strong_scaling_efficiency([], 2), "at least one kernel"),
        (lambda: strong_scaling_efficiency([(exact(), 1e6)], 0), "parts must be"),
        (lambda: weak_scaling_efficiency([], 1e-6), "at least one kernel"),
        (lambda: weak_scaling_efficiency([(exact(), 1e6)], -1e-6), "communication_s must be"),
    ],
)
def test_impossible_predictions_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_models_need_numpy_alone_to_be_imported():
    code = (
        "import sys, memkern.models as m\n"
        "print(*[n for n in ('scipy',) if n in sys.modules])\n"
        "m.fit_t0_wmax({'bytes_B': [1, 2, 3], 'time_s': [1, 2, 3]})\n"
        "print(*[n for n in ('memkern._memkern', 'memkern.engine', 'pandas', 'pyarrow') "
        "if n in sys.modules])"
    )
    assert python("-c", code, check=True).stdout.split() == []


@pytest.mark.parametrize("time_s", [5e-324, 1e-300, 1e300])
def test_a_fit_of_impossible_times_ends(time_s):
    rows = {"bytes_B": [1e3, 1e4, 1e6, 1e9], "time_s": [2e-6, time_s, 12e-6, 1e-2]}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fit = mk.fit_t0_wmax(rows)
        except InputError as error:
            assert "converge" in str(error)
        else:
            assert np.isfinite(fit.wmax_GBps)
