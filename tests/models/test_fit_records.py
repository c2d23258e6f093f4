"""Records of a fit: sizes that are left out, disturbed and wrong ones, change points."""

import math

import numpy as np
import pandas as pd
import pytest
from synthetic_times import measured_at, noisy, our_records, sizes, times, two_regimes

import memkern as mk
from memkern.errors import InputError
from memkern.formats import ResultSet
from memkern.models import fit_both_sides, fit_t0_wmax


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
        ({"leave_out_B": "changepoint"}, "at least 10 sizes, not 9"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        fit_t0_wmax({"bytes_B": sizes(9), "time_s": times(sizes(9))}, **options)


@pytest.mark.parametrize("caches", [None, [], [{"level": 1, "size_B": None}]])
def test_caches_of_an_unknown_machine_are_refused(caches):
    with pytest.raises(InputError, match="do not describe their machine's caches"):
        fit_t0_wmax(our_records(*two_regimes(), caches=caches), leave_out_B="caches")


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


def test_where_a_line_holds():
    x = np.geomspace(1e3, 1e7, 20)
    y = times(x)
    y[3] *= 1.8
    holds = fit_t0_wmax({"bytes_B": x, "time_s": y}).holds
    assert not holds[3] and holds[5:].all()
