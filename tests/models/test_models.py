"""The T0/Wmax fit: exact data, coverage of intervals on noisy data, refusal of bad data."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checking import refused_words, run

import memkern as mk
from memkern import reference
from memkern.errors import InputError
from memkern.formats import ResultSet
from memkern.models import (
    ModelFit,
    T0WmaxFit,
    fit_both_sides,
    fit_t0_wmax,
    groups,
    predict_sum,
    read,
    strong_scaling_efficiency,
)
from memkern.statistics import student_quantile

T0, WMAX = 5e-6, 800e9
SETS = 2000
# Three binomial standard errors.
TOLERANCE = 3 * math.sqrt(0.95 * 0.05 / SETS)


def sizes(n: int = 20) -> np.ndarray:
    return np.geomspace(1e4, 1e9, n)


def times(x: np.ndarray, t0: float = T0, wmax: float = WMAX) -> np.ndarray:
    return t0 + x / wmax


def noisy(n: int, seed: int = 1, noise: float = 0.02) -> tuple[np.ndarray, np.ndarray]:
    x = sizes(n)
    return x, times(x) * (1 + noise * np.random.default_rng(seed).standard_normal(n))


def exact(t0: float = T0, wmax: float = WMAX) -> T0WmaxFit:
    return fit_t0_wmax({"bytes_B": sizes(), "time_s": times(sizes(), t0, wmax)})


def design(x: np.ndarray) -> np.ndarray:
    return np.stack((np.ones_like(x), x), axis=1)


# The numbers


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


def test_a_slope_that_may_be_zero_leaves_wmax_without_an_upper_end():
    x = np.linspace(1e3, 2e3, 8)
    y = T0 * (1 + 0.02 * np.array([1, -1, -1, 1, 1, -1, -1, 1.5]))
    fit = fit_t0_wmax({"bytes_B": x, "time_s": y})
    assert fit.wmax_ci_GBps[1] == math.inf and fit.wmax_ci_GBps[0] > 0
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


def test_weights_of_measured_times_would_cover_too_little():
    n = 400
    x, (t0, slope), hits = sizes(n), (T0, 1 / WMAX), 0
    quantile = student_quantile(0.975, n - 2)
    for noise in np.random.default_rng(3).standard_normal((SETS, n)):
        y = times(x) * (1 + 0.02 * noise)
        wide = design(x) / y[:, None]
        covariance = np.linalg.inv(wide.T @ wide)
        estimate = covariance @ wide.sum(axis=0)
        squares = np.sum((1 - wide @ estimate) ** 2) / (n - 2)
        error = np.sqrt(np.diag(covariance) * squares)
        hits += np.abs(estimate - (t0, slope)) <= quantile * error
    assert (hits / SETS < 0.95 - TOLERANCE).all(), hits / SETS


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


# Predictions


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: exact().predict(-1), "bytes_B must be finite and not negative"),
        (lambda: exact().predict([1, math.nan]), "bytes_B must be finite"),
        (lambda: exact().b_fraction(1), "fraction must lie between 0 and 1, not 1"),
        (lambda: predict_sum([]), "at least one kernel"),
        (lambda: strong_scaling_efficiency([], 2), "at least one kernel"),
        (lambda: strong_scaling_efficiency([(exact(), 1e6)], 0), "parts must be"),
    ],
)
def test_impossible_predictions_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


# Sizes that are left out

CACHES = [
    {"level": 1, "type": "data", "size_B": 32768, "instances": 2},
    {"level": 3, "type": "unified", "size_B": 500_000, "instances": 2},
]


def our_records(
    x: Any, y: Any, *, kernel: str = "stream.copy", caches: Any = CACHES, **columns: Any
) -> ResultSet:
    records = [
        {
            "case_id": f"{kernel}{number}",
            "repeat": 0,
            "kernel": kernel,
            "platform": "here",
            "threads": 2,
            "environment_id": "e",
            "bytes_B": int(size),
            "time_min_s": float(time),
            "valid": True,
            **columns,
        }
        for number, (size, time) in enumerate(zip(x, y, strict=True))
    ]
    machine = {"machine": {"caches": caches}}
    return ResultSet(records, [np.array([r["time_min_s"]]) for r in records], {"e": machine})


def two_regimes(n: int = 60, noise: float = 0.02) -> tuple[np.ndarray, np.ndarray]:
    """Return sizes and times with 30 GB/s up to 1 MB and 10 GB/s beyond."""
    x = np.geomspace(1e4, 1e9, n)
    y = np.where(x <= 1e6, 1e-6 + x / 30e9, 1e-6 + 1e6 / 30e9 + (x - 1e6) / 10e9)
    return x, y * (1 + noise * np.random.default_rng(5).standard_normal(n))


def measured_at(x: Any, y: Any, caches: Any, size_B: int) -> ResultSet:
    """Return records of a machine whose last-level cache was measured."""
    records = our_records(x, y, caches=caches)
    records.environments["e"]["measured_caches"] = {"sizes_B": {"L3": size_B}}
    return records


@pytest.mark.parametrize("leave_out", [1e6, "caches"])
def test_cache_resident_sizes_are_left_out_by_size_or_by_the_machine(leave_out):
    x, y = two_regimes()
    fit = fit_t0_wmax(our_records(x, y), leave_out_B=leave_out)
    assert fit.left_out == np.count_nonzero(x <= 1e6) and fit.left_out_B == 1e6
    assert fit.points["bytes_B"].min() > 1e6
    assert fit.wmax_ci_GBps[0] < 10 < fit.wmax_ci_GBps[1]
    everything = fit_t0_wmax(our_records(x, y))
    assert everything.left_out == 0 and len(everything.residuals) == 60


def test_the_footprint_decides_what_the_caches_hold():
    x, y = two_regimes()
    records = our_records(x, y, footprint_B=10**5)
    records.records[-1]["footprint_B"] = records.records[-2]["footprint_B"] = 10**9
    records.records[-3]["footprint_B"] = 10**9
    assert len(fit_t0_wmax(records, leave_out_B="caches").residuals) == 3
    frame = pd.DataFrame({"bytes_B": x, "time_s": y})
    assert fit_t0_wmax(frame, leave_out_B="caches", caches_B=1e8).left_out_B == 1e8


def test_change_point_of_two_regimes():
    x, y = two_regimes()
    fit = fit_t0_wmax({"bytes_B": x[::-1], "time_s": y[::-1]}, leave_out_B="changepoint")
    assert 3e5 < fit.left_out_B < 3e6
    assert fit.left_out == np.count_nonzero(x <= fit.left_out_B)
    assert fit.wmax_ci_GBps[0] < 10 < fit.wmax_ci_GBps[1]
    clean = fit_t0_wmax(
        dict(zip(("bytes_B", "time_s"), two_regimes(noise=0), strict=True)),
        leave_out_B="changepoint",
    )
    assert clean.left_out_B == x[x <= 1e6].max()
    assert clean.wmax_GBps == pytest.approx(10, rel=1e-9)


def test_one_regime_has_no_change_point():
    found = 0
    for seed in range(200):
        x, y = noisy(40, seed)
        fit = fit_t0_wmax({"bytes_B": x, "time_s": y}, leave_out_B="changepoint")
        found += fit.left_out_B > 0
    assert found <= 10
    exactly = {"bytes_B": sizes(), "time_s": times(sizes())}
    assert fit_t0_wmax(exactly, leave_out_B="changepoint").left_out == 0


# Input


def test_all_kinds_of_records_give_the_same():
    x, y = noisy(20)
    x = np.round(x)
    wanted = fit_t0_wmax({"bytes_B": x, "time_s": y}).summary()
    ours = our_records(x, y)
    frame = ours.to_frame()
    for records in (
        ours,
        frame,
        frame.astype({"bytes_B": "Int64", "valid": "boolean"}),
        {"bytes_B": [int(size) for size in x], "time_min_s": list(y)},
    ):
        assert mk.fit_t0_wmax(records).summary() == wanted


@pytest.mark.parametrize("name", ["disturbed", "noisy"])
@pytest.mark.parametrize("as_frame", [False, True])
def test_disturbed_records_are_left_out_with_a_remark(name, as_frame):
    x, y = noisy(20)
    good = our_records(x, y, **{name: False})
    bad = our_records([1e5, 1e6], [1.0, 2.0], **{name: True})
    both = good + bad
    fit = fit_t0_wmax(both.to_frame() if as_frame else both)
    assert fit.t0_s == fit_t0_wmax(good).t0_s and len(fit.residuals) == 20
    assert fit.remark == "2 disturbed records left out of the fit"
    assert fit_t0_wmax(good).remark == ""
    with pytest.raises(InputError, match="at least 3 points, not 0 beside 2 that were disturbed"):
        fit_t0_wmax(bad)


def test_records_that_failed_validation_are_left_out():
    x, y = noisy(20)
    good = our_records(x, y)
    bad = our_records([1e5, 1e6], [1.0, math.nan], valid=False)
    assert fit_t0_wmax(good + bad).summary() == fit_t0_wmax(good).summary()


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ({}, "there is no record to fit"),
        (ResultSet(), "there is no record to fit"),
        ([1, 2], "records must be a ResultSet, .* not list"),
        ({"time_s": [1, 2, 3]}, "no column bytes_B, only time_s"),
        ({"bytes_B": [1, 2, 3]}, "no column time_s or time_min_s, only bytes_B"),
        ({"bytes_B": [1, 2], "time_s": [1, 2]}, "at least 3 points, not 2"),
        ({"bytes_B": [8, 8, 8], "time_s": [1, 2, 3]}, "two sizes, but every bytes_B is 8"),
        ({"bytes_B": [1, 2, 0], "time_s": [1, 2, 3]}, r"bytes_B must be .* not 0 \(row 3 of 3\)"),
        ({"bytes_B": [1, 2, 3], "time_s": [1, -2, 3]}, r"time_s must be .* not -2 \(row 2"),
        ({"bytes_B": [1, 2, 3], "time_s": [1, math.nan, 3]}, "time_s must be .* not nan"),
        ({"bytes_B": [1, math.inf, 3], "time_s": [1, 2, 3]}, "bytes_B must be .* not inf"),
        ({"bytes_B": [1, 2, 3], "time_min_s": [1, 0, 3]}, "time_min_s must be positive"),
        ({"bytes_B": [1, 2, "x"], "time_s": [1, 2, 3]}, "column bytes_B must hold numbers"),
        ({"bytes_B": [1, 2, 3], "time_s": [1, 2]}, "time_s must be as long as bytes_B, not 2"),
        ({"bytes_B": [[1], [2]], "time_s": [1, 2]}, "bytes_B must have one dimension"),
    ],
)
def test_bad_records_are_refused(records, message):
    with pytest.raises(InputError, match=message):
        fit_t0_wmax(records)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weighting": "measured"}, "weighting must be fitted or none, not 'measured'"),
        ({"level": 1}, "level must lie between 0 and 1, not 1"),
        ({"leave_out_B": "cache"}, "leave_out_B must be a positive number of bytes, not 'cache'"),
        ({"leave_out_B": -1}, "leave_out_B must be a positive number of bytes, not -1"),
        ({"leave_out_B": 1e9}, "at least 3 points beyond 1000000000 B, not 0"),
        ({"leave_out_B": "caches"}, "give caches_B"),
        ({"leave_out_B": "caches", "caches_B": 0}, "caches_B must be a positive number"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        fit_t0_wmax({"bytes_B": sizes(), "time_s": times(sizes())}, **options)


def test_a_change_point_needs_sizes_on_both_sides():
    with pytest.raises(InputError, match="at least 10 sizes, not 9"):
        fit_t0_wmax({"bytes_B": sizes(9), "time_s": times(sizes(9))}, leave_out_B="changepoint")


@pytest.mark.parametrize("caches", [None, [], [{"level": 1, "size_B": None}]])
def test_caches_of_an_unknown_machine_are_refused(caches):
    with pytest.raises(InputError, match="do not describe their machine's caches"):
        fit_t0_wmax(our_records(*two_regimes(), caches=caches), leave_out_B="caches")


# Files and the command line


def table(*devices: tuple[str, float, float]) -> pd.DataFrame:
    return pd.concat(
        pd.DataFrame({"device": name, "bytes_B": sizes(), "time_s": times(sizes(), t0, wmax)})
        for name, t0, wmax in devices
    )


def test_csv_and_parquet_files_of_other_programs(capsys, tmp_path):
    frame = table(("a", T0, WMAX))
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame["when"] = pd.Timestamp("2020-01-01")
    frame.to_parquet(tmp_path / "x.parquet")
    for name in ("x.csv", "x.parquet"):
        code, out, err = run(capsys, "fit", str(tmp_path / name), "--json")
        (row,) = json.loads(out)
        assert (code, err) == (0, "")
        names = (
            "group side t0_s t0_ci_s t0_resolved wmax_GBps wmax_ci_GBps b80_B b80_ci_B r2 points"
        )
        assert list(row) == names.split()
        assert row["group"] == row["side"] == "all" and row["points"] == 20
        assert row["t0_resolved"] is True
        assert row["t0_s"] == pytest.approx(T0) and row["wmax_GBps"] == pytest.approx(800)
        assert row["t0_ci_s"] == pytest.approx([T0, T0])
        assert row["wmax_ci_GBps"] == pytest.approx([800, 800])
        assert row["b80_B"] == pytest.approx(16e6) and row["r2"] == pytest.approx(1)


def test_groups_of_a_column(capsys, tmp_path):
    path = str(tmp_path / "x.csv")
    table(("b", T0, WMAX), ("a", 2 * T0, WMAX / 2)).to_csv(path, index=False)
    code, out, _ = run(capsys, "fit", path, "--by", "device", "--json")
    assert code == 0
    assert [(row["group"], round(row["wmax_GBps"])) for row in json.loads(out)] == [
        ("b", 800),
        ("a", 400),
    ]
    how = ("--by", "device", "--weighting", "none", "--level", "90")
    code, out, err = run(capsys, "fit", path, *how)
    header, *lines = out.splitlines()
    assert code == 0 and "90 % interval" in header and "unreliable" in err
    assert [line.split()[:4] for line in lines] == [
        ["b", "all", "20", "5"],
        ["a", "all", "20", "10"],
    ]
    code, out, err = run(capsys, "fit", path, "--by", "devise")
    assert (code, out) == (2, "") and "devise" in err and "device" in err


def test_memkerns_records_are_grouped_by_kernel_and_differing_columns(capsys, tmp_path):
    x, y = noisy(20)
    copy, add = our_records(x, y), our_records(x, 2 * y, kernel="stream.add")
    launch = our_records([0], [1e-6], kernel="launch.empty")
    for suffix in ("db", "parquet", "csv", "json"):
        path = str(tmp_path / f"ours.{suffix}")
        (copy + add + launch).save(path)
        code, out, err = run(capsys, "fit", path, "--json", "--leave-out", "caches")
        rows = json.loads(out)
        assert (code, err) == (0, "")
        assert [row["group"] for row in rows] == ["stream.copy", "stream.add"]
        assert {row["points"] for row in rows} == {np.count_nonzero(np.floor(x) > 1e6)}
    for other, names in (
        ({"platform": "there"}, ["stream.copy, here", "stream.copy, there"]),
        ({"threads": 4}, ["stream.copy, threads 2", "stream.copy, threads 4"]),
        ({"pages_requested": "4k"}, ["stream.copy", "stream.copy, 4k"]),
        ({"variant_requested": "nt"}, ["stream.copy", "stream.copy, nt"]),
        (
            {"platform": "there, 4 threads", "threads": 4},
            ["stream.copy, here, threads 2", "stream.copy, there, 4 threads"],
        ),
    ):
        both = copy + our_records(x, 2 * y, **other)
        assert list(groups(both)) == names
        assert [len(group) for group in groups(both).values()] == [20, 20]
    both.save(tmp_path / "mixed.json")
    words = ("fit", str(tmp_path / "mixed.json"), "--by", "kernel,threads", "--json")
    code, out, err = run(capsys, *words)
    rows = json.loads(out)
    assert (code, err) == (0, "")
    assert list(dict.fromkeys(row["group"] for row in rows)) == ["stream.copy, 2", "stream.copy, 4"]


def test_infinity_is_text_in_json_as_in_records(capsys, tmp_path):
    x = np.linspace(1e3, 2e3, 8)
    y = T0 * (1 + 0.02 * np.array([1, -1, -1, 1, 1, -1, -1, 1.5]))
    path = tmp_path / "flat.csv"
    pd.DataFrame({"bytes_B": x, "time_s": y}).to_csv(path, index=False)
    code, out, _ = run(capsys, "fit", str(path), "--json")
    (row,) = json.loads(out)
    assert code == 0 and row["wmax_ci_GBps"][1] == "Infinity" and row["wmax_ci_GBps"][0] > 0
    assert [float(end) for end in row["b80_ci_B"]] == [-math.inf, math.inf]


def test_both_sides_of_the_caches_are_fitted_apart(capsys, tmp_path):
    x, y = two_regimes(noise=0.0)
    path = str(tmp_path / "known.json")
    our_records(x, y).save(path)
    code, out, err = run(capsys, "fit", path, "--json")
    caches, memory = json.loads(out)
    assert (code, err) == (0, "")
    assert (caches["side"], memory["side"]) == ("caches", "memory")
    assert caches["t0_resolved"] and caches["t0_s"] == pytest.approx(1e-6, rel=1e-3)
    assert caches["wmax_GBps"] == pytest.approx(30, rel=1e-3)
    # T0 of memory is negative, because the caches still hold a part of the data.
    assert memory["t0_s"] < 0 and not memory["t0_resolved"]
    assert memory["wmax_GBps"] == pytest.approx(10, rel=1e-3)
    text = run(capsys, "fit", path)[1].splitlines()
    assert [line.split()[1] for line in text[1:]] == ["caches", "memory"]
    assert "not resolved" in text[2] and "-" not in text[2].replace("e-", "")
    for option in (["--leave-out", "caches"], ["--leave-out", "none"]):
        (row,) = json.loads(run(capsys, "fit", path, "--json", *option)[1])
        assert row["side"] == "all"
    our_records(x, y, caches=[]).save(tmp_path / "unknown.json")
    (row,) = json.loads(run(capsys, "fit", str(tmp_path / "unknown.json"), "--json")[1])
    assert row["side"] == "all"
    few = x < 1.5e6
    our_records(x[few], y[few]).save(tmp_path / "few.json")
    code, out, err = run(capsys, "fit", str(tmp_path / "few.json"), "--json")
    assert [row["side"] for row in json.loads(out)] == ["caches"]
    assert "stream.copy: too few sizes beyond the caches" in err


def test_memory_is_not_in_the_caches_of_a_virtual_machine():
    x, y = two_regimes(noise=0.0)
    whole = [{"level": 3, "type": "unified", "size_B": 2**28, "instances": 1}]
    for records in (our_records(x, y, caches=whole), measured_at(x, y, whole, 10**6)):
        caches, memory = fit_both_sides(records)
        assert caches.fit.t0_s == pytest.approx(1e-6, rel=1e-3)
        assert caches.fit.wmax_GBps == pytest.approx(30, rel=1e-3)
        assert memory.fit.wmax_GBps == pytest.approx(10, rel=1e-3)
    # Sizes that do not exceed the reported cache by far may be in it, unless it was measured.
    few = x < 1e8
    first, *others = fit_both_sides(our_records(x[few], y[few], caches=whole))
    assert first.fit.wmax_GBps < 15 and not others
    _, memory = fit_both_sides(measured_at(x[few], y[few], whole, 10**6))
    assert memory.fit.wmax_GBps == pytest.approx(10, rel=1e-3)


def test_an_unresolved_t0_is_shown_by_its_upper_bound(capsys, tmp_path):
    # The noise of large sizes exceeds T0.
    x, y = np.geomspace(1e8, 1e9, 12), times(np.geomspace(1e8, 1e9, 12))
    y = y * (1 + 0.03 * np.random.default_rng(3).standard_normal(12))
    fit = fit_t0_wmax({"bytes_B": x, "time_s": y})
    assert fit.t0_ci_s[0] < 0 < fit.t0_ci_s[1] and not fit.t0_resolved and not fit.far
    path = tmp_path / "x.csv"
    pd.DataFrame({"bytes_B": x, "time_s": y}).to_csv(path, index=False)
    text = run(capsys, "fit", str(path))[1].splitlines()[1]
    assert f"below {1e6 * fit.t0_ci_s[1]:.4g} " in text
    assert f"below {fit.b80_ci_B[1]:.4g} " in text and f"{1e6 * fit.t0_s:.4g} " not in text
    # T0 is not resolved either if the line is far from most points.
    bent = fit_t0_wmax({"bytes_B": [1, 2, 4, 8, 16], "time_s": [1, 1.1, 9, 9.5, 40]})
    assert bent.far and not bent.t0_resolved
    assert exact().t0_resolved and exact().holds.all()


def test_where_a_line_holds():
    x = np.geomspace(1e3, 1e7, 20)
    y = times(x)
    y[3] *= 1.8
    holds = fit_t0_wmax({"bytes_B": x, "time_s": y}).holds
    assert not holds[3] and holds[5:].all()


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("bytes_B,time_s\n1,1\n2,0\n3,3\n", [], "time_s must be positive and finite, not 0 (row 2"),
        ("bytes_B,time_s\n1,1\n2,two\n3,3\n", [], "column time_s must hold numbers"),
        ("bytes_B,time_s\n", [], "bad.csv has no rows"),
        ("", [], "can't be read as a table"),
        ("bytes_B,time_s\n1,1\n2,2\n3,3\n", ["--leave-out", "l2"], "'l2' is not a positive"),
        ("bytes_B,time_s\n1,1\n2,2\n3,3\n", ["--level", "100"], "level must lie between 0 and 1"),
        ("bytes_B,time_s\n1,1\n2,2\n3,3\n", ["--weighting", "x"], "--weighting"),
    ],
)
def test_wrong_input_is_one_sentence(capsys, tmp_path, text, arguments, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    assert message in refused_words(capsys, "fit", str(path), *arguments)


def test_missing_files_and_files_without_a_table_are_refused(capsys, tmp_path):
    for name in ("none.csv", "none.parquet", "none.db"):
        assert "does not exist" in refused_words(capsys, "fit", str(tmp_path / name))
    (tmp_path / "x.parquet").write_bytes(b"no table")
    sentence = refused_words(capsys, "fit", str(tmp_path / "x.parquet"))
    assert "x.parquet can't be read as a table" in sentence


def test_a_bad_group_is_reported_and_the_others_are_fitted(capsys, tmp_path):
    frame = pd.concat([table(("a", T0, WMAX)), table(("b", T0, WMAX)).head(2)])
    path = str(tmp_path / "x.csv")
    frame.to_csv(path, index=False)
    code, out, err = run(capsys, "fit", path, "--by", "device", "--json")
    assert code == 2 and [row["group"] for row in json.loads(out)] == ["a"]
    assert err == "memkern: b: a fit needs at least 3 points, not 2\n"


def test_groups_of_a_file_know_its_machine(tmp_path):
    x, y = noisy(20)
    our_records(x, y).save(tmp_path / "x.parquet")
    (group,) = groups(read(tmp_path / "x.parquet")).values()
    assert fit_t0_wmax(group, leave_out_B="caches").left_out_B == 1e6


# Published fits and imports


def test_published_fits_are_shipped():
    frame = reference.load("chalmers2020")
    assert frame.shape == (28, 6)
    assert frame.groupby("kernel")["platform"].nunique().to_dict() == {
        f"bs.bs{i}": 4 for i in range(1, 8)
    }
    first = reference.rows("chalmers2020")[0]
    assert first["t0_s"] == pytest.approx(8.87e-6) and first["wmax_GBps"] == 870
    assert first["degree"] is None and (frame["degree"].dropna() == 7).all()
    assert "arXiv:2009.10917" in reference.cite("chalmers2020")


def test_models_need_numpy_alone_to_be_imported():
    code = (
        "import sys, memkern.models as m\n"
        "print(*[n for n in ('scipy',) if n in sys.modules])\n"
        "m.fit_t0_wmax({'bytes_B': [1, 2, 3], 'time_s': [1, 2, 3]})\n"
        "print(*[n for n in ('memkern._memkern', 'memkern.engine', 'pandas', 'pyarrow') "
        "if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("time_s", [5e-324, 1e-300, 1e300])
def test_a_fit_of_impossible_times_ends(time_s: float) -> None:
    rows = {"bytes_B": [1e3, 1e4, 1e6, 1e9], "time_s": [2e-6, time_s, 12e-6, 1e-2]}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fit = mk.fit_t0_wmax(rows)
        except InputError as error:
            assert "converge" in str(error)
        else:
            assert np.isfinite(fit.wmax_GBps)
