"""Variances between runs, from records repeated over longer times than a calibration takes."""

import itertools
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import memkern as mk
from memkern.engine import calibration, drift
from memkern.engine.drift import Drift, Repeated
from memkern.machine import state
from memkern.machine.caches import data_caches
from memkern.machine.state import boot_id
from memkern.statistics import Prior, next_run_interval

CALIBRATED = Prior(1e-4, 18.0)
MEMORY = "memory, 1 thread"


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return drift.path()


def add(known: Drift, medians: list[float], every_s: float = 30.0, case: str = "a") -> None:
    for number, median_s in enumerate(medians):
        known.add(case, MEMORY, median_s, CALIBRATED, number * every_s)


def test_the_variance_of_repeated_records_is_pooled_with_the_calibrated_one() -> None:
    known = Drift()
    add(known, [1.0, math.exp(0.02), math.exp(0.04)])
    add(known, [5.0, 5.0 * math.exp(0.02)], case="b")
    found = known.variance(MEMORY, CALIBRATED)
    assert found.freedom == 8 + 2 + 1
    assert found.variance == pytest.approx((8 * 1e-4 + 8e-4 + 2e-4) / 11)
    other = known.variance("L1, 1 thread", CALIBRATED)
    assert (other.variance, other.freedom) == (pytest.approx(1e-4), 8)


def test_equal_records_reduce_the_variance() -> None:
    known = Drift()
    add(known, [1.0] * 25)
    found = known.variance(MEMORY, CALIBRATED)
    assert found.variance == pytest.approx(8 * 1e-4 / 32) and found.freedom == 32


def test_records_in_quick_succession_are_not_counted() -> None:
    known = Drift()
    add(known, [1.0, 1.02, 1.04, 1.06], every_s=4.0)
    assert known.variance(MEMORY, CALIBRATED).freedom == 8 + 1


def test_one_record_that_is_far_off_counts_as_three_standard_deviations() -> None:
    known = Drift()
    add(known, [1.0, 1.0, 10.0])
    found = known.variance(MEMORY, CALIBRATED)
    assert found.variance == pytest.approx((8 * 1e-4 + 9e-4) / 10)


def test_a_case_of_another_class_begins_anew() -> None:
    known = Drift({"a": Repeated("L1, 1 thread", 5, 0.0, 1.0, 0.0)})
    known.add("a", MEMORY, 1.0, CALIBRATED, 100.0)
    assert known.added == {"a": Repeated(MEMORY, 1, 0.0, 0.0, 100.0)}
    assert known.variance("L1, 1 thread", CALIBRATED).freedom == 8


def test_the_cases_measured_last_are_kept(target: Path) -> None:
    known = Drift()
    for number in range(2100):
        add(known, [1.0], case=str(number))
    assert list(known.added) == [str(number) for number in range(100, 2100)]
    drift.save({"old": Repeated(MEMORY, 1, 0.0, 0.0, -1.0)}, target)
    drift.save(known.added, target)
    assert list(drift.load(target)) == list(known.added)


def held(drifts: bool, rng: np.random.Generator) -> float:
    """Return the share of 40 runs whose interval contains the next run.

    Runs are 30 s apart and drift with a correlation time of five minutes. The drift is three times
    as large as their other variation. The calibration takes two minutes.
    """
    rho, place = math.exp(-30 / 300), 0.0
    values = np.empty(44)
    for number in range(44):
        place = rho * place + math.sqrt(1 - rho**2) * rng.normal(0, 0.03)
        values[number] = place + rng.normal(0, 0.01)
    calibrated = Prior(float(np.var(values[:4], ddof=1)), 18.0)
    known, runs = Drift(), values[4:]
    count = 0
    for number, (value, following) in enumerate(itertools.pairwise(runs)):
        between = known.variance(MEMORY, calibrated) if drifts else calibrated
        found = next_run_interval([math.exp(value)], between)
        count += found.low <= math.exp(following) <= found.high
        known.add("a", MEMORY, math.exp(value), calibrated, 30.0 * number)
    return count / (len(runs) - 1)


def test_intervals_hold_in_spite_of_drift() -> None:
    with_drift, without = (
        np.mean([held(drifts, np.random.default_rng(seed)) for seed in range(200)])
        for drifts in (True, False)
    )
    assert without < with_drift
    assert 0.93 < with_drift < 0.995


def test_records_are_kept_until_the_next_boot(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Drift(), Drift()
    add(first, [1.0, 1.1])
    add(second, [2.0], case="b")
    drift.save(first.added, target)
    drift.save(second.added, target)
    assert drift.load(target) == first.added | second.added
    drift.save({}, target)
    assert drift.load(target) == first.added | second.added
    monkeypatch.setattr(state, "boot_id", lambda: "another")
    assert drift.load(target) == {}


@pytest.mark.parametrize(
    "content",
    [
        '{"cases": 5}', '{"cases": {"a": 5}}', '{"cases": {"a": {"name": "L1"}}}',
        '{"cases": {"a": {"name": "L1", "count": 0, "mean": 1, "squares": 0, "last_s": 0}}}',
        '{"cases": {"a": {"name": "L1", "count": 2, "mean": 1, "squares": -1, "last_s": 0}}}',
        '{"cases": {"a": {"name": "L1", "count": 2, "mean": NaN, "squares": 0, "last_s": 0}}}',
    ],
)  # fmt: skip
def test_a_file_that_is_not_ours_counts_as_none(content: str, target: Path) -> None:
    start = f'{{"version": 1, "boot": "{boot_id()}", '
    target.parent.mkdir()
    target.write_text(content.replace("{", start, 1))
    assert drift.load(target) == {}


@pytest.mark.parametrize("swept", [False, True])
def test_undisturbed_records_are_counted(
    swept: bool, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMKERN_SMALL", "1")  # no record is disturbed
    case = mk.loops("load", elements=64, runs=6, placements=2, threads=1)
    machine = case.measure().environment
    name = calibration.class_name(64 * 8, 1, data_caches(machine))
    known = Drift()
    monkeypatch.setattr("memkern.engine.run.known_drift", lambda: known)
    if swept:
        record = dict(mk.sweep([case], progress=False).records[0])
    else:
        record = dict(case.measure().record)
    identity = f"{record['case_id']} {record['environment_id']} "
    assert set(known.added) == {f"{identity} floor", f"{identity} median"}
    for quantity, column in (("floor", "time_min_s"), ("median", "time_median_s")):
        added = known.added[f"{identity} {quantity}"]
        assert added.name == f"{name}, {quantity}"
        assert added.mean == pytest.approx(math.log(float(str(record[column]))))


@pytest.mark.parametrize("quantity", ["floor", "median"])
def test_intervals_include_the_drift(
    quantity: str, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMKERN_SMALL", "1")  # no record is disturbed
    case = mk.loops("load", elements=64, runs=6, placements=1, threads=1)
    machine = case.measure().environment
    name = f"{calibration.class_name(64 * 8, 1, data_caches(machine))}, {quantity}"
    known = Drift({"b": Repeated(name, 1001, 0.0, 1000 * math.log(2) ** 2, 0.0)})
    monkeypatch.setattr("memkern.engine.run.known_drift", lambda: known)
    record = case.measure().record
    wide, narrow = record["time_min_ci_relative"], record["ci_relative"]
    if quantity == "median":
        wide, narrow = narrow, wide
    assert wide > 3 > 1 > narrow


@pytest.mark.parametrize("small", [False, True])
def test_a_process_stores_its_records_when_it_ends(
    small: bool, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_one = """
from memkern.engine.drift import known_drift
from memkern.statistics import Prior
known_drift().add("a", "L1, 1 thread", 1.0, Prior(1e-4, 18.0), 5.0)
"""
    if small:
        monkeypatch.setenv("MEMKERN_SMALL", "1")
    subprocess.run([sys.executable, "-c", add_one], check=True)
    stored = {"a": Repeated("L1, 1 thread", 1, 0.0, 0.0, 5.0)}
    assert drift.load(target) == ({} if small else stored)
