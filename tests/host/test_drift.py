"""Variances between runs, from records repeated over longer times than a calibration takes."""

import itertools
import json
import math

import numpy as np
import pytest

import memkern as mk
from memkern.engine.public import CaseRun, calibrated
from memkern.host import Host, this_host
from memkern.host.file import File, _heading
from memkern.host.variances import RUNS, Drift, Repeated, class_name
from memkern.machine.caches import data_caches
from memkern.statistics import Prior, next_run_interval

CALIBRATED = Prior(1e-4, 18.0)
MEMORY = "memory, 1 thread"


@pytest.fixture
def kept() -> File:
    return this_host()._file


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


def test_the_cases_measured_last_are_kept(kept: File) -> None:
    known = Drift()
    for number in range(2100):
        add(known, [1.0], case=str(number))
    assert list(known.added) == [str(number) for number in range(100, 2100)]
    kept.put((RUNS, {"old": Repeated(MEMORY, 1, 0.0, 0.0, -1.0)}))
    kept.put((RUNS, known.added))
    assert list(kept.get(RUNS)) == list(known.added)


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


def test_records_are_kept_for_later_processes(kept: File) -> None:
    first, second = Drift(), Drift()
    add(first, [1.0, 1.1])
    add(second, [2.0], case="b")
    kept.put((RUNS, first.added))
    kept.put((RUNS, second.added))
    assert File(kept.path).get(RUNS) == first.added | second.added


@pytest.mark.parametrize(
    "content",
    [
        5, {"a": 5}, {"a": ["L1"]}, {"a": ["L1", 0, 1, 0, 0]}, {"a": ["L1", 2, 1, -1, 0]},
        {"a": ["L1", 2, math.nan, 0, 0]},
    ],
)  # fmt: skip
def test_cases_that_are_not_ours_count_as_none(content: object, kept: File) -> None:
    assert kept.path is not None
    kept.path.parent.mkdir(parents=True)
    kept.path.write_text(json.dumps({**_heading(), "runs": content}))
    with pytest.warns(UserWarning, match="section runs of .* was damaged"):
        assert kept.get(RUNS) == {}


@pytest.mark.parametrize("swept", [False, True])
def test_undisturbed_records_are_counted(swept: bool) -> None:
    case = mk.loops("load", elements=64, runs=6, placements=2, threads=1)
    if swept:
        (one,) = (results := mk.sweep([case], progress=False)).records
        record, (machine,) = dict(one), results.environments.values()
    else:
        measured = case.measure()
        record, machine = measured.record, measured.environment
    name = class_name(64 * 8, 1, data_caches(machine))
    identity = f"{record['case_id']} {record['environment_id']} "
    added = this_host()._drift.added
    assert set(added) == {f"{identity} floor", f"{identity} median"}
    for quantity, column in (("floor", "time_min_s"), ("median", "time_median_s")):
        of_case = added[f"{identity} {quantity}"]
        assert of_case.name == f"{name}, {quantity}"
        assert of_case.mean == pytest.approx(math.log(float(str(record[column]))))


@pytest.mark.parametrize("quantity", ["floor", "median"])
def test_intervals_include_the_drift(quantity: str) -> None:
    case = mk.loops("load", elements=64, runs=6, placements=1, threads=1)
    machine = case.measure().environment
    name = f"{class_name(64 * 8, 1, data_caches(machine))}, {quantity}"
    host = Host()
    host._file.put((RUNS, {"b": Repeated(name, 1001, 0.0, 1000 * math.log(2) ** 2, 0.0)}))
    run = CaseRun(case, host=host)
    run.place()
    record = calibrated(run, machine).record
    wide, narrow = record["time_min_ci_relative"], record["ci_relative"]
    if quantity == "median":
        wide, narrow = narrow, wide
    assert wide > 3 > 1 > narrow
