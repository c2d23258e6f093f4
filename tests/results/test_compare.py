"""Saved results are compared case by case, and written as tables, JUnit and history."""

import csv
import json
import math
import random
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from checking import output_of, refused_words, run
from compared_records import record
from found_verdicts import FOUND
from in_turns import results
from scipy import stats

import memkern as mk
from memkern.results import comparison_output


def repeats(
    rng: np.random.Generator, sizes: Any = (64,), *, times: float = 1.0, sd: float = 0.01,
    count: int = 5, **more: Any,
) -> mk.ResultSet:  # fmt: skip
    return results(
        [
            record(n, 1e-3 * times * math.exp(sd * rng.standard_normal()), repeat=r, **more)
            for n in sizes
            for r in range(count)
        ]
    )


def test_a_case_is_compared_by_its_repeats(tmp_path):
    rng = np.random.default_rng(0)
    a, b = repeats(rng), repeats(rng, times=1.5, pages_requested="thp")
    (row,) = mk.compare(a, b).to_dict("records")
    for side, name in ((a, "a.csv"), (b, "b.csv")):
        side.save(tmp_path / name)
    assert mk.compare(tmp_path / "a.csv", str(tmp_path / "b.csv")).to_dict("records") == [row]
    times = [np.log([r["time_median_s"] for r in side]) for side in (a, b)]
    test = stats.ttest_ind(*times, equal_var=False)
    assert row["p"] == pytest.approx(test.pvalue)
    assert row["verdict"] == "slower"
    assert row["quantity"] == "GB/s"
    assert row["placements"] == 5
    # The printed ratio is the ratio of the printed quantities.
    assert row["a"] == pytest.approx(1024e-9 / math.exp(times[0].mean()))
    assert row["ratio"] == pytest.approx(row["b"] / row["a"])
    assert row["b_time_s"] / row["a_time_s"] == pytest.approx(1 / row["ratio"])
    interval = test.confidence_interval(0.99)
    assert row["low"] == pytest.approx(math.exp(interval.low))
    assert row["high"] == pytest.approx(math.exp(interval.high))
    assert mk.compare(b, a)["verdict"].item() == "faster"
    for slowdown, found in ((0.0, "slower"), (0.4, "slower"), (0.6, "passed")):
        assert mk.compare(a, b, slowdown=slowdown)["gate"].item() == found


def test_placements_of_one_record_count_like_repeats():
    values = np.log([1.00, 1.02, 0.99, 1.01, 1.03])
    repeated = results([record(time_s=1e-3 * math.exp(v), repeat=k) for k, v in enumerate(values)])
    placed = results(
        [
            record(
                time_s=1e-3 * math.exp(values.mean()),
                placements=5,
                placement_sd=float(values.std(ddof=1)),
            )
        ]
    )
    b = repeats(np.random.default_rng(4), times=1.1)
    one, other = (mk.compare(a, b).to_dict("records")[0] for a in (repeated, placed))
    for column in ("a", "ratio", "low", "high", "p", "placements"):
        assert one[column] == pytest.approx(other[column]), column


def test_one_placement_shows_no_spread():
    frame = mk.compare(results([record()]), results([record(time_s=2e-3)]))
    (row,) = frame.to_dict("records")
    assert row["verdict"] == "not enough data"
    assert row["ratio"] == pytest.approx(0.5)
    assert math.isnan(row["low"])
    assert "placed once" in " ".join(frame.attrs["remarks"])
    assert "drift between them" in " ".join(frame.attrs["remarks"])


def test_noise_between_files_makes_no_verdicts():
    false = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sides = [repeats(rng, range(64, 94), sd=0.02) for _ in range(2)]
        false += sum(verdict in FOUND for verdict in mk.compare(*sides)["verdict"])
    assert false < 0.01 * 20 * 30


def test_few_repeats_of_many_cases_find_a_large_difference():
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        a = repeats(rng, range(64, 94), sd=0.03, count=3)
        slow = repeats(rng, (64,), sd=0.03, count=3, times=1.5)
        frame = mk.compare(a, slow + repeats(rng, range(65, 94), sd=0.03, count=3))
        found.append(frame["verdict"][0] == "slower")
        assert not frame["verdict"][1:].isin(FOUND).any()
    assert np.mean(found) >= 0.9


@pytest.mark.parametrize(
    "other",
    [
        {"kernel": "stream.triad"},
        {"definition": "release"},
        {"name": "mine"},
        {"elements": 65},
    ],
)
def test_inputs_identify_cases_and_are_not_compared(other):
    a, b = results([record(), record()]), results([{**record(), **other}] * 2)
    with pytest.raises(mk.InputError, match="no case in common"):
        mk.compare(a, b)


def test_every_rate_is_listed_and_rows_without_bytes_are_compared_by_time():
    rows = [
        record(1, performance_GFLOPs=2.0),
        record(2, rate_GAMS=3.0, kernel="amo.rand"),
        record(3, bytes_B=0, bandwidth_GBps=0.0, bandwidth_median_GBps=0.0, kernel="launch.empty"),
        record(4, ns_per_access=5.0, bytes_B=0, bandwidth_median_GBps=0.0, kernel="latency.chase"),
    ]
    frame = mk.compare(results(rows * 2), results([{**r, "time_median_s": 2e-3} for r in rows] * 2))
    assert list(frame["quantity"]) == ["GB/s", "GAMS", "s", "ns per access"]
    np.testing.assert_allclose(frame["ratio"], [0.5, 0.5, 2, 2])
    np.testing.assert_allclose(frame["ratio"], frame["b"] / frame["a"])
    assert frame["a_GFLOPs"][0] == pytest.approx(2.0 * 0.9)
    assert frame["a"][1] == pytest.approx(3.0 * 0.9)
    assert frame["a"][2] == pytest.approx(1e-3)
    assert frame["a"][3] == pytest.approx(5.0 / 0.9)
    assert frame["b_GBps"][1] == pytest.approx(32 / 2e-3 / 1e9)
    text = comparison_output.text(frame)
    assert "A GFLOP/s" in text
    assert "B GB/s" in text


@pytest.mark.parametrize("old", [False, True])
def test_disturbed_and_invalid_records_are_not_compared(old):
    rng = np.random.default_rng(7)
    a = repeats(rng, (64, 128, 256))
    disturbed = repeats(rng, (64,), times=3.0, disturbed=True)
    some = results([*repeats(rng, (128,)), record(128, 9e-3, disturbed=True)])
    invalid = repeats(rng, (256,), valid=False)
    b = disturbed + some + invalid
    if old:
        columns = ({**row, "noisy": row["disturbed"]} for row in b)
        b = results([{n: v for n, v in row.items() if n != "disturbed"} for row in columns])
    frame = mk.compare(a, b)
    assert frame["verdict"][0] == "disturbed"
    assert frame["ratio"][0] == pytest.approx(1 / 3, rel=0.05) and math.isnan(frame["low"][0])
    assert math.isnan(frame.attrs["speed"])
    assert "disturbed: not judged" in comparison_output.text(frame)
    assert frame["placements"][1] == 5
    assert frame["verdict"][2] == "invalid"
    assert "1 disturbed, 1 invalid" in comparison_output.summary(frame)


def test_the_mean_is_that_of_cases_with_a_verdict():
    rng = np.random.default_rng(8)
    a = repeats(rng, (64, 128, 256))
    slow = repeats(rng, (64, 256), times=1.2)
    undecided = repeats(rng, (128,))
    frame = mk.compare(a, results([*slow, *undecided]))
    assert list(frame["verdict"]).count("slower") == 2 == frame.attrs["speeds"]
    assert frame.attrs["speed"] == pytest.approx(1 / 1.2, rel=0.03)
    assert "geometric mean of the 2 with a verdict: B has 0.8" in comparison_output.summary(frame)


@pytest.mark.parametrize("half_width, verdict", [(0.05, "slower"), (0.5, "not enough data")])
def test_an_effect_within_the_interval_of_the_next_run_is_not_found(half_width, verdict):
    interval = {"ci_scope": "next run", "ci_relative": half_width}
    rng = random.Random(5)
    sides = [
        results([record(64, time_s, placements=5, placement_sd=0.01, **interval)])
        for time_s in (1e-3, 1.3e-3 * math.exp(rng.gauss(0, 0.001)))
    ]
    frame = mk.compare(*sides)
    assert frame["verdict"][0] == verdict
    # Records of older files have no interval of the next run.
    for side in sides:
        del side.records[0]["ci_scope"]
    assert mk.compare(*sides)["verdict"][0] == "slower"


def test_records_of_different_states_of_the_host_are_not_compared():
    def side(exchange_ns: float, time_s: float) -> mk.ResultSet:
        how = {"placements": 5, "placement_sd": 0.01, "exchange_ns": exchange_ns, "states": "[{}]"}
        return results([record(64, time_s, **how)])

    near, far = side(60.0, 1e-3), side(210.0, 2e-3)
    frame = mk.compare(near, far)
    assert frame["verdict"][0] == "other state" and frame["a"][0] > frame["b"][0]
    assert "1 other state" in comparison_output.summary(frame)
    assert mk.compare(near, side(66.0, 2e-3))["verdict"][0] == "slower"
    assert mk.compare(near, side(math.nan, 2e-3))["verdict"][0] == "slower"


def test_missing_columns_and_nulls_are_accepted():
    columns = ("kernel", "elements", "case_columns", "time_median_s")
    bare = results([{c: record()[c] for c in columns} for _ in range(2)])
    (row,) = mk.compare(bare, bare).to_dict("records")
    assert (row["quantity"], row["verdict"]) == ("s", "same")
    from_rate = results([{**record(), "time_median_s": None, "time_min_s": None}] * 2)
    assert mk.compare(from_rate, from_rate)["a"].item() == pytest.approx(1024e-6)
    no_bytes = results([{k: v for k, v in record().items() if k != "bytes_B"}] * 2)
    assert mk.compare(no_bytes, no_bytes)["a"].item() == pytest.approx(1024e-6)
    timeless = results([{"kernel": "stream.copy", "elements": 64, "case_columns": "elements"}])
    assert mk.compare(timeless, bare)["verdict"].item() == "no time"
    with pytest.raises(mk.InputError, match="B has no records"):
        mk.compare(bare, results([]))
    with pytest.raises(mk.InputError, match="A has no column kernel"):
        mk.compare(results([{"time_s": 1.0}]), bare)


def test_without_case_columns_sizes_identify_cases():
    rows = [{k: v for k, v in record(n).items() if k != "case_columns"} for n in (64, 64, 128, 128)]
    assert len(mk.compare(results(rows), results(rows))) == 2


def saved(path: Path, found: mk.ResultSet) -> str:
    found.save(path)
    return str(path)


def test_files_on_the_command_line(capsys, tmp_path):
    rng = np.random.default_rng(8)
    a = saved(tmp_path / "a.json", repeats(rng, (64, 128)))
    slow = repeats(rng, (64,), times=1.2, pages_requested="thp")
    b = saved(tmp_path / "b.json", slow + repeats(rng, (128,), pages_requested="thp"))
    out, _ = output_of(capsys, "compare", a, b)
    assert "compared: pages_requested" in out
    assert "drift between them" in out
    assert "geometric mean" not in out  # one case has no verdict
    code, out, err = run(capsys, "compare", a, b, "--fail-on", "slower")
    assert code == 3
    assert "slower: 1 of 2 cases; not slower: 0; undecided: 1" in err
    disturbed = saved(tmp_path / "c.json", repeats(rng, (64, 128), disturbed=True))
    code, _, err = run(capsys, "compare", a, disturbed, "--fail-on", "slower")
    assert code == 4 and "slower: 0 of 2 cases; not slower: 0; undecided: 2" in err
    assert run(capsys, "compare", a, disturbed)[0] == 0
    assert run(capsys, "compare", a, b, "--fail-on", "slower:50")[0] == 0
    code, out, _ = run(capsys, "compare", a, a, "--fail-on", "slower:5")
    # The interval excludes 5 % though it is wider than that of the verdict same.
    assert code == 0 and "not enough data" in out and out.count("passed") == 2
    code, out, _ = run(capsys, "compare", a, b, "--fail-on", "slower:22")
    # Around 1.2 times the time: nothing is shown, and the number of placements is told.
    assert code == 4 and re.search(r"undecided: a verdict needs about \d+ placements", out)
    _, out, err = run(capsys, "compare", a, b, "--json")
    assert json.loads(out)[0]["verdict"] == "slower"
    assert "compared: pages_requested" in err and "drift between them" in err
    assert run(capsys, "compare", a, b, "--markdown")[1].startswith("| case | quantity |")
    triad = saved(tmp_path / "c.json", results([record(kernel="stream.triad")] * 3))
    assert "no case in common" in refused_words(capsys, "compare", a, triad)
    bad = saved(tmp_path / "d.json", repeats(rng, valid=False))
    assert run(capsys, "compare", a, bad)[0] == 1


def test_junit_and_history(capsys, tmp_path):
    rng = np.random.default_rng(9)
    a = saved(tmp_path / "a.json", repeats(rng, (64, 128, 256)))
    found = repeats(rng, (64,), times=1.2) + repeats(rng, (128,), sd=0.3)
    b = saved(tmp_path / "b.json", found + repeats(rng, (256,), valid=False))
    junit, history = tmp_path / "junit.xml", tmp_path / "history.csv"
    for label in ("one", "=two"):
        code, _, _ = run(
            capsys, "compare", a, b, "--force",
            "--junit", str(junit), "--history", str(history), "--label", label,
        )  # fmt: skip
        assert code == 1
    suite = ElementTree.parse(junit).getroot()[0]
    assert [suite.get(k) for k in ("tests", "failures", "skipped", "errors")] == list("3111")
    assert [test[0].tag for test in suite] == ["failure", "skipped", "error"]
    with open(history, newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["label"] for line in lines] == ["one", "one", "'=two", "'=two"]
    assert lines[0]["case"] == "stream.copy elements=64"
    assert float(lines[0]["ratio"]) == pytest.approx(float(lines[0]["b"]) / float(lines[0]["a"]))
    history.write_text("something,else\n")
    assert "something,else" in refused_words(capsys, "compare", a, b, "--history", str(history))
