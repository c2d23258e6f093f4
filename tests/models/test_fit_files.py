"""Fits of records and of files: sizes that are left out, groups, change points, wrong input."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from checking import measured, refused_words, run
from synthetic_times import (
    T0,
    WMAX,
    exact,
    measured_at,
    noisy,
    our_records,
    sizes,
    times,
    two_regimes,
)

import memkern as mk
from memkern.errors import InputError
from memkern.formats import ResultSet
from memkern.models import fit_both_sides, fit_t0_wmax, groups


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
            "group side t0_s t0_ci_s t0_resolved wmax_GBps wmax_ci_GBps b80_B b80_ci_B "
            "b80_entries r2 points"
        )
        assert list(row) == names.split()
        assert row["group"] == row["side"] == "all" and row["points"] == 20
        assert row["t0_resolved"] is True
        assert row["t0_s"] == pytest.approx(T0) and row["wmax_GBps"] == pytest.approx(800)
        assert row["t0_ci_s"] == pytest.approx([T0, T0])
        assert row["wmax_ci_GBps"] == pytest.approx([800, 800])
        assert row["b80_B"] == pytest.approx(16e6) and row["r2"] == pytest.approx(1)
        assert row["b80_entries"] is None


def test_groups_of_a_column(capsys, tmp_path):
    path = str(tmp_path / "x.csv")
    table(("b", T0, WMAX), ("a", 2 * T0, WMAX / 2)).to_csv(path, index=False)
    rows = measured(capsys, "fit", path, "--by", "device")
    assert [(row["group"], round(row["wmax_GBps"])) for row in rows] == [("b", 800), ("a", 400)]
    how = ("--by", "device", "--weighting", "none", "--level", "90")
    code, out, err = run(capsys, "fit", path, *how)
    header, *lines = out.splitlines()
    assert code == 0 and "90 % interval" in header and "unreliable" in err
    assert [line.split()[:4] for line in lines] == [
        ["b", "all", "20", "5"],
        ["a", "all", "20", "10"],
    ]
    told = refused_words(capsys, "fit", path, "--by", "devise")
    assert "devise" in told and "device" in told


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


def test_the_table_has_b80_in_bytes_and_entries(capsys, tmp_path):
    frame = table(("a", T0, WMAX))
    frame.assign(elements=frame["bytes_B"] / 16).to_csv(tmp_path / "x.csv", index=False)
    head, row = run(capsys, "fit", str(tmp_path / "x.csv"))[1].splitlines()
    assert head.split()[-4:] == ["B0.8", "bytes", "entries", "R2"]
    assert row.split()[-3:] == ["1.6e+07", "1e+06", "1.00000"]
    frame.to_csv(tmp_path / "y.csv", index=False)
    head, row = run(capsys, "fit", str(tmp_path / "y.csv"))[1].splitlines()
    assert row.split()[-2:] == ["1.6e+07", "1.00000"]


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


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
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
        ({"bytes_B": [1, math.inf, 3], "time_s": [1, 2, 3]}, "bytes_B must be .* not inf"),
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
