"""Comparisons: statistics, saved results, sides measured in turns, and output."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from checking import refused_words, run
from compare_simulation import NOISES, independent, simulated
from scipy import stats

import memkern as mk
from memkern import cli
from memkern.results import comparison_output, verdicts
from memkern.results.comparison import Compared
from memkern.spec.sweepfile import read_sweep
from memkern.studies import interleaved
from memkern.studies.comparison_worker import short, value_of

FOUND = (verdicts.FASTER, verdicts.SLOWER)


# Statistics


def test_yuen_is_the_textbook_formula() -> None:
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


def test_welch_agrees_with_scipy() -> None:
    found = verdicts.welch((1.0, 0.02, 5), (1.05, 0.04, 3))
    expected = stats.ttest_ind_from_stats(1.0, 0.02, 5, 1.05, 0.04, 3, equal_var=False)
    assert found.p == pytest.approx(expected.pvalue)
    assert found.count == 3
    # Values that agree by chance get the relative resolution of samples as their error.
    assert verdicts.welch((1.0, 0.0, 2), (1.0, 0.0, 2)).error == pytest.approx(1e-3)


def test_holm_corrects_stepwise_and_skips_nan() -> None:
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
def test_verdicts(effect: float, error: float, itself: float, p: float, verdict: str) -> None:
    estimate = verdicts.Estimate(-1.0, effect - 1.0, error, 17, itself, 30)
    assert estimate.verdict(p) == verdict


def test_the_estimated_number_of_pairs_suffices() -> None:
    rng = np.random.default_rng(2)
    few = rng.normal(0, 0.02, (2, 15))
    needed = verdicts.yuen(*few).needed(30)
    assert needed > 15
    more = rng.normal(0, 0.02, (2, 4 * needed))
    more[1] += verdicts.yuen(*few).effect - verdicts.yuen(*more).effect
    assert verdicts.yuen(*more).verdict(verdicts.yuen(*more).p * 60) != verdicts.NOT_ENOUGH


def test_a_verdict_is_final_and_a_dropped_case_does_not_count() -> None:
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


@pytest.mark.parametrize("families", [20, pytest.param(400, marks=pytest.mark.release)])
@pytest.mark.parametrize("noise", NOISES.values(), ids=lambda noise: noise.__name__)
def test_false_verdicts_are_below_one_percent_of_cases(noise: Any, families: int) -> None:
    found = [simulated(noise, np.zeros(30), seed).verdicts for seed in range(families)]
    false = sum(verdict in FOUND for family in found for verdict in family)
    assert false < 0.01 * 30 * families


def test_a_difference_of_five_percent_is_found_in_two_percent_of_noise() -> None:
    effects = np.where(np.arange(30) % 2, math.log(1.05), 0.0)
    found = [simulated(independent, effects, seed).verdicts for seed in range(10)]
    differ = [v for family in found for v, e in zip(family, effects, strict=True) if e]
    assert np.mean([v == verdicts.SLOWER for v in differ]) >= 0.8
    equal = [v for family in found for v, e in zip(family, effects, strict=True) if not e]
    assert sum(v in FOUND for v in equal) < 0.01 * len(equal)


# Saved results


def record(elements: int = 64, time_s: float = 1e-3, **more: Any) -> dict[str, Any]:
    return {
        "kernel": "stream.copy", "definition": "", "name": "", "case_columns": "elements",
        "elements": elements, "threads": 1, "pages_requested": "4k", "variant_requested": "simd",
        "time_min_s": 0.9 * time_s, "time_median_s": time_s, "bytes_B": 16 * elements,
        "bandwidth_GBps": 16 * elements / time_s / 0.9e9,
        "bandwidth_median_GBps": 16 * elements / time_s / 1e9,
        "rate_GAMS": math.nan, "performance_GFLOPs": math.nan,
        "valid": True, "disturbed": False, **more,
    }  # fmt: skip


def results(records: list[dict[str, Any]]) -> mk.ResultSet:
    return mk.ResultSet(records, [np.array([1.0])] * len(records), {})


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


def test_a_case_is_compared_by_its_repeats() -> None:
    rng = np.random.default_rng(0)
    a, b = repeats(rng), repeats(rng, times=1.5, pages_requested="thp")
    (row,) = mk.compare(a, b).to_dict("records")
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
    assert comparison_output.slower(mk.compare(a, b), 40) == [0]
    assert comparison_output.slower(mk.compare(a, b), 60) == []


def test_placements_of_one_record_count_like_repeats() -> None:
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


def test_one_placement_shows_no_spread() -> None:
    frame = mk.compare(results([record()]), results([record(time_s=2e-3)]))
    (row,) = frame.to_dict("records")
    assert row["verdict"] == "not enough data"
    assert row["ratio"] == pytest.approx(0.5)
    assert math.isnan(row["low"])
    assert "placed once" in " ".join(frame.attrs["remarks"])
    assert "drift between them" in " ".join(frame.attrs["remarks"])


def test_a_file_compared_with_itself_has_no_difference() -> None:
    a = repeats(np.random.default_rng(5), (64, 128), sd=0.002)
    frame = mk.compare(a, a)
    assert list(frame["verdict"]) == ["same", "same"]
    assert list(frame["ratio"]) == [1.0, 1.0]
    assert frame.attrs["compared"] == []


def test_noise_between_files_makes_no_verdicts() -> None:
    false = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        sides = [repeats(rng, range(64, 94), sd=0.02) for _ in range(2)]
        false += sum(verdict in FOUND for verdict in mk.compare(*sides)["verdict"])
    assert false < 0.01 * 40 * 30


def test_few_repeats_of_many_cases_find_a_large_difference() -> None:
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        a = repeats(rng, range(64, 94), sd=0.03, count=3)
        slow = repeats(rng, (64,), sd=0.03, count=3, times=1.5)
        frame = mk.compare(a, slow + repeats(rng, range(65, 94), sd=0.03, count=3))
        found.append(frame["verdict"][0] == "slower")
        assert not frame["verdict"][1:].isin(FOUND).any()
    assert np.mean(found) >= 0.9


def test_variances_are_pooled_between_similar_cases_only() -> None:
    rng = np.random.default_rng(11)

    def estimates(sds: np.ndarray) -> list[verdicts.Estimate]:
        sides = [(0.0, float(s * math.sqrt(rng.chisquare(2) / 2)), 3) for s in (*sds, *sds)]
        return [
            verdicts.welch(a, b) for a, b in zip(sides[: len(sds)], sides[len(sds) :], strict=True)
        ]

    alike, mixed = estimates(np.full(40, 0.02)), estimates(np.geomspace(0.001, 1, 40))
    freedom = [verdicts.moderated(found)[0].freedom - found[0].freedom for found in (alike, mixed)]
    assert freedom[0] > 10
    assert 0 < freedom[1] < 2
    errors = [estimate.error for estimate in verdicts.moderated(alike)]
    assert np.std(np.log(errors)) < 0.5 * np.std([math.log(e.error) for e in alike])
    assert verdicts.moderated(alike[:7]) == alike[:7]


def test_options_are_compared_and_do_not_identify_cases() -> None:
    rng = np.random.default_rng(6)
    frame = mk.compare(repeats(rng, (64, 128)), repeats(rng, (64, 128), pages_requested="thp"))
    assert frame.attrs["compared"] == ["pages_requested"]
    assert list(frame["elements"]) == [64, 128]
    assert list(frame["label"]) == ["stream.copy elements=64", "stream.copy elements=128"]


@pytest.mark.parametrize(
    "other",
    [
        {"kernel": "stream.triad"},
        {"definition": "release"},
        {"name": "mine"},
        {"elements": 65},
    ],
)
def test_inputs_identify_cases_and_are_not_compared(other: Mapping[str, Any]) -> None:
    a, b = results([record(), record()]), results([{**record(), **other}] * 2)
    with pytest.raises(mk.InputError, match="no case in common"):
        mk.compare(a, b)


def test_every_rate_is_listed_and_rows_without_bytes_are_compared_by_time() -> None:
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
def test_disturbed_and_invalid_records_are_not_compared(old: bool) -> None:
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
    # The observed ratio, which is left out of the mean.
    assert frame["ratio"][0] == pytest.approx(1 / 3, rel=0.05) and math.isnan(frame["low"][0])
    assert frame.attrs["speed"] == pytest.approx(1.0, rel=0.05)
    assert "disturbed: not judged" in comparison_output.text(frame)
    assert frame["placements"][1] == 5
    assert frame["verdict"][2] == "invalid"
    assert "1 disturbed, 1 invalid" in comparison_output.summary(frame)


@pytest.mark.parametrize("half_width, verdict", [(0.05, "slower"), (0.5, "not enough data")])
def test_an_effect_within_the_interval_of_the_next_run_is_not_found(
    half_width: float, verdict: str
) -> None:
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


def test_records_of_different_states_of_the_host_are_not_compared() -> None:
    def side(exchange_ns: float, time_s: float) -> mk.ResultSet:
        how = {"placements": 5, "placement_sd": 0.01, "exchange_ns": exchange_ns, "states": "[{}]"}
        return results([record(64, time_s, **how)])

    near, far = side(60.0, 1e-3), side(210.0, 2e-3)
    frame = mk.compare(near, far)
    assert frame["verdict"][0] == "other state" and frame["a"][0] > frame["b"][0]
    assert "1 other state" in comparison_output.summary(frame)
    assert mk.compare(near, side(66.0, 2e-3))["verdict"][0] == "slower"
    assert mk.compare(near, side(math.nan, 2e-3))["verdict"][0] == "slower"


def test_missing_columns_and_nulls_are_accepted() -> None:
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


def test_without_case_columns_sizes_identify_cases() -> None:
    rows = [{k: v for k, v in record(n).items() if k != "case_columns"} for n in (64, 64, 128, 128)]
    assert len(mk.compare(results(rows), results(rows))) == 2


def saved(path: Path, found: mk.ResultSet) -> str:
    found.save(path)
    return str(path)


def test_files_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    a = saved(tmp_path / "a.json", repeats(rng, (64, 128)))
    slow = repeats(rng, (64,), times=1.2, pages_requested="thp")
    b = saved(tmp_path / "b.json", slow + repeats(rng, (128,), pages_requested="thp"))
    code, out, _ = run(capsys, "compare", a, b)
    assert code == 0
    assert "compared: pages_requested" in out
    assert "drift between them" in out
    assert "geometric mean of 2" in out
    code, out, err = run(capsys, "compare", a, b, "--fail-on", "slower")
    assert code == 3
    assert "1 of 2 cases were judged: 1 is slower" in err
    code, _, err = run(capsys, "compare", a, b, "--fail-on", "slower:50,undecided")
    assert code == 3 and "1 of 2 cases were judged: 1 has no verdict" in err
    disturbed = saved(tmp_path / "c.json", repeats(rng, (64, 128), disturbed=True))
    code, _, err = run(capsys, "compare", a, disturbed, "--fail-on", "slower")
    assert code == 3 and "0 of 2 cases were judged: 2 have no verdict" in err
    assert run(capsys, "compare", a, disturbed)[0] == 0
    assert run(capsys, "compare", a, b, "--fail-on", "slower:50")[0] == 0
    assert run(capsys, "compare", a, a, "--fail-on", "slower")[0] == 0
    _, out, err = run(capsys, "compare", a, b, "--json")
    assert json.loads(out)[0]["verdict"] == "slower"
    assert "compared: pages_requested" in err and "drift between them" in err
    assert run(capsys, "compare", a, b, "--markdown")[1].startswith("| case | quantity |")
    triad = saved(tmp_path / "c.json", results([record(kernel="stream.triad")] * 3))
    code, out, err = run(capsys, "compare", a, triad)
    assert (code, out) == (2, "")
    assert "no case in common" in err
    bad = saved(tmp_path / "d.json", repeats(rng, valid=False))
    assert run(capsys, "compare", a, bad)[0] == 1


def test_junit_and_history(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
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
    code, _, err = run(capsys, "compare", a, b, "--history", str(history))
    assert code == 2
    assert "something,else" in err


# Sides measured in turns


class RandomSide:
    """A side with random times; case 2 fails from the third request on."""

    def __init__(
        self, side: str, requests: list[tuple[str, int]], rng: np.random.Generator
    ) -> None:
        self.side, self.requests, self.rng = side, requests, rng

    def request(self, verb: str, case: int) -> dict[str, Any]:
        self.requests.append((self.side, case))
        if case == 2 and self.requests.count((self.side, 2)) > 2:
            return {"error": "no memory"}
        if case == 3 and self.rng.random() < 0.2:
            return {"seconds": None}
        factor = 1.5 if case == 0 and self.side == "B" else 1.0
        return {"seconds": factor * math.exp(0.01 * self.rng.standard_normal())}


def test_pairs_are_measured_in_rounds_until_a_verdict() -> None:
    requests: list[tuple[str, int]] = []
    rounds: list[int] = []
    rng = np.random.default_rng(10)

    @contextlib.contextmanager
    def sides() -> Iterator[tuple[RandomSide, RandomSide]]:
        rounds.append(len(requests))
        yield RandomSide("A", requests, rng), RandomSide("B", requests, rng)

    work = ({"time_s": 1.0}, {"time_s": 1.0})
    cases = [Compared(str(k), {}, work) for k in range(5)]
    family = verdicts.Family(5)
    tried, errors = interleaved.measure_pairs(
        family, cases, sides, random.Random(0), lambda family: None
    )
    assert family.verdicts[0] == "slower"
    assert tried[0] == family.count(0) == 15
    assert list(errors) == [2]
    assert "no memory" in errors[2]
    # Each side is first in one of two successive pairs.
    order = "".join(side for side, case in requests if case == 0)
    pairs = [order[i : i + 2] for i in range(0, 28, 2)]
    assert all(sorted(pairs[i : i + 2]) == ["AB", "BA"] for i in range(0, 14, 2))
    assert len(set(pairs[::2])) == 2
    # Each round has every undecided case once, in random order.
    first = requests[: rounds[1]]
    assert sorted({case for _, case in first}) == [0, 1, 2, 3, 4]
    orders = {
        tuple(dict.fromkeys(case for _, case in requests[start:end]))
        for start, end in itertools.pairwise(rounds[:6])
    }
    assert len(orders) > 1
    # Disturbed values make no pair and are measured again.
    assert tried[3] > family.count(3) >= 15


class FakeWorker:
    """A worker in this process with three cases."""

    started = 0
    disturbed = False
    memory = True
    valid = False

    def __init__(self, side: str, python: str, sweep: Any, changes: Mapping[str, Any]) -> None:
        self.factor = 2.0 if changes.get("variant") == "scalar" else 1.0
        self.about = {"cases": 3 - len(changes.get("pages", "")), "build": {}, "package": python}
        FakeWorker.started += 1
        self.rng = np.random.default_rng(FakeWorker.started)

    def request(self, verb: str, case: int) -> dict[str, Any]:
        if case == 1 and not self.memory:
            return {"error": "8 GB needed"}
        if verb == "measure":
            return {"record": record(64 << case, valid=self.valid or case != 2)}
        noise = math.exp(0.002 * self.rng.standard_normal())
        return {"seconds": None if self.disturbed else 1e-3 * self.factor * noise}

    def close(self) -> None:
        pass


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeWorker]:
    monkeypatch.setattr(interleaved, "Worker", FakeWorker)
    monkeypatch.setattr(FakeWorker, "started", 0)
    return FakeWorker


def test_two_options_are_compared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fake: type[FakeWorker]
) -> None:
    options = ["--run", "x.toml", "--a", "--variant simd", "--b", "--variant scalar", "--json"]
    code, out, _ = run(capsys, "compare", *options, "--fail-on", "slower:10")
    rows = json.loads(out)
    assert [row["verdict"] for row in rows] == ["slower", "slower", "invalid"]
    assert rows[0]["ratio"] == pytest.approx(0.5, rel=0.01)
    assert rows[0]["ratio"] == pytest.approx(rows[0]["b"] / rows[0]["a"])
    assert rows[0]["pairs"] == 15
    assert code == 1  # an invalid result takes precedence over --fail-on
    monkeypatch.setattr(fake, "valid", True)
    code, _, err = run(capsys, "compare", *options, "--fail-on", "slower:10")
    assert code == 3
    assert "3 of 3 cases were judged: 3 are slower by more than 10 %" in err


def test_a_comparison_with_itself_prints_the_rate_of_false_verdicts(
    capsys: pytest.CaptureFixture[str], fake: type[FakeWorker]
) -> None:
    code, out, _ = run(capsys, "compare", "--run", "x.toml", "--self", "--a=--flush", "-q")
    assert code == 1
    assert "both sides are the build in" in out
    assert "false verdicts: 0 of 2 cases" in out


def test_cases_without_memory_or_undisturbed_pairs_are_named(
    monkeypatch: pytest.MonkeyPatch, fake: type[FakeWorker]
) -> None:
    monkeypatch.setattr(fake, "memory", False)
    frame = mk.compare_runs("x.toml", {}, {"variant": "scalar"})
    assert list(frame["verdict"]) == ["slower", "not measured", "invalid"]
    assert "8 GB needed" in " ".join(frame.attrs["remarks"])
    assert frame.attrs["compared"] == ["variant"]
    monkeypatch.setattr(fake, "memory", True)
    monkeypatch.setattr(fake, "disturbed", True)
    frame = mk.compare_runs("x.toml")
    assert list(frame["verdict"]) == ["disturbed", "disturbed", "invalid"]
    assert "0 of 60 pairs were undisturbed" in " ".join(frame.attrs["remarks"])


def test_a_comparison_ends_in_time_with_what_was_measured(fake: type[FakeWorker]) -> None:
    with pytest.raises(mk.InputError, match="time_s must be a positive number"):
        mk.compare_runs("x.toml", time_s=0.0)
    frame = mk.compare_runs("x.toml", {}, {"variant": "scalar"}, time_s=1e-9)
    assert list(frame["verdict"]) == ["not enough data", "not enough data", "invalid"]
    assert "have the pairs that 1e-09 s sufficed for" in " ".join(frame.attrs["remarks"])
    frame = mk.compare_runs("x.toml", {}, {"variant": "scalar"}, time_s=60.0)
    assert list(frame["verdict"]) == ["slower", "slower", "invalid"]


def test_sides_with_different_cases_are_refused(fake: type[FakeWorker]) -> None:
    with pytest.raises(mk.InputError, match="1 cases on side A and 3 on side B"):
        mk.compare_runs("x.toml", {"pages": "4k"})
    with pytest.raises(mk.InputError, match="pairs must be at least 30"):
        mk.compare_runs("x.toml", pairs=20)


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (["--run", "x.toml", "--a", "--variant simd,nt"], "--variant of --a takes one value"),
        (["--run", "x.toml", "--b", "--runs 3"], "--runs is not an option of one side"),
        (["--run", "x.toml", "--b", "--colour red"], "--colour"),
        (["--run", "x.toml", "--b", "'"], "--b"),
        (["--run", "x.toml", "--self", "--b", "--pages 4k"], "--self"),
        (["--run", "x.toml", "a.db"], "a.db"),
        (["--run", "/nowhere.toml"], "/nowhere.toml"),
        (["--run", "x.toml", "--a-python", "/nowhere"], "/nowhere"),
        (["--run", "x.toml", "--b-python", "/bin/false"], "side B ended: exit code 1"),
        (["--run", "x.toml", "--b-python", "/bin/echo"], "must be Python with memkern"),
        (["--self"], "--run SWEEP.toml"),
        (["--seed", "1", "a.db", "b.db"], "--seed"),
        (["a.db"], "two files"),
        ([], "two files"),
        (["a.db", "b.db", "--fail-on", "slower,faster"], "faster"),
        (["a.db", "b.db", "--fail-on", "slower:-1"], "-1"),
    ],
)
def test_wrong_input_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], culprit: str
) -> None:
    sweep = tmp_path / "x.toml"
    sweep.write_text('[[case]]\nkernel = "gather"\npattern = "0"\ncount = 64\nthreads = 1\n')
    words = [str(sweep) if word == "x.toml" else word for word in arguments]
    assert culprit in refused_words(capsys, "compare", *words)


@pytest.fixture
def undisturbed_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let worker processes mark no sample as disturbed, since tests run in parallel."""
    monkeypatch.setenv("MEMKERN_SMALL", "1")


@pytest.mark.usefixtures("undisturbed_workers")
def test_a_worker_returns_values_or_errors(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.toml"
    sweep.write_text(
        '[defaults]\nthreads = 1\nruns = 3\n[[case]]\nkernel = "gather"\npattern = "0,1"\n'
        'count = 64\nvariant = ["scalar", "magic"]\n'
    )
    worker = interleaved.Worker("A", sys.executable, sweep, {"pages": "4k"})
    try:
        assert worker.about["cases"] == 2
        found = worker.request("measure", 0)["record"]
        assert (found["kernel"], found["pages_requested"], found["valid"]) == (
            "spatter.gather", "4k", True,
        )  # fmt: skip
        assert 0 < worker.request("sample", 0)["seconds"] < 1
        assert "magic" in worker.request("sample", 1)["error"]
        worker.request("sample", 0)
        with pytest.raises(mk.InputError, match="side A ended"):
            worker.request("sample", 99)
    finally:
        worker.close()


def test_a_value_takes_few_samples() -> None:
    case = short(mk.loops("sum", elements=1000, threads=1, runs=10**6))
    found = value_of(case)
    assert 0 < (found["observed"] or 0) < 1
    assert found["seconds"] is None or 0 < found["seconds"] < 1
    # Values that double with every invocation would overflow.
    growing = mk.stream("rotation", elements=64, threads=1, dtype="float32", runs=8)
    assert short(growing).stop.runs == 5


def test_the_ci_example_compares_two_builds(tmp_path: Path) -> None:
    # This interpreter prints its arguments.
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$PYTHONPATH" "$@"\n')
    python.chmod(0o755)
    example = Path(__file__).parents[2] / "examples" / "ci"
    words = [example / "compare.sh", python, python, tmp_path]
    subprocess.run(words, check=True, env={**os.environ, "GITHUB_SHA": "abc"})
    given = (tmp_path / "compare.md").read_text().split()
    assert given[:3] == ["-m", "memkern", "compare"]
    args = cli.build_parser().parse_args(given[2:])
    assert (args.a_python, args.b_python) == (str(python), str(python))
    assert (args.fail_on, args.label, args.markdown) == ((5.0, False), "abc", True)
    cases, _ = read_sweep(args.run_file, {})
    assert len(cases) == 14


@pytest.mark.usefixtures("undisturbed_workers")
def test_whole_comparison_of_two_interpreters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(interleaved, "Family", lambda cases, _: verdicts.Family(cases, 6))
    sweep, python = tmp_path / "sweep.toml", tmp_path / "python"
    sweep.write_text('[[case]]\nkernel = "stream.copy"\nelements = [64, 8192]\nthreads = 1\n')
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    code, out, _ = run(
        capsys, "compare", "--run", str(sweep), "--b-python", str(python),
        "--a", "--variant simd", "--b", "--offset 8 --variant scalar", "--json", "-q",
    )  # fmt: skip
    assert code == 0
    rows = json.loads(out)
    assert [row["elements"] for row in rows] == [64, 8192]
    assert all(row["pairs"] >= 3 and row["ratio"] > 0 for row in rows)
