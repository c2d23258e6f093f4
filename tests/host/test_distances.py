"""Distances between runs: of other hosts, of repeated records, and of a run's own placements."""

import itertools
import json
import math

import numpy as np
import pytest
from plotting import Results

import memkern as mk
from memkern.engine.public import CaseRun, calibrated
from memkern.host import Host, this_host
from memkern.host.distances import (
    BESIDE,
    MIXED,
    RUNS,
    SHARED,
    Distances,
    History,
    Repeated,
    class_name,
    observed,
    packaged,
)
from memkern.host.file import File, _heading
from memkern.machine.caches import data_caches

PRIOR = Distances(3.0, 0.06)
MEMORY = "memory, 1 thread, 10 placements, floor"
DATA_CACHES = data_caches(Results([]).environments["e1"])


@pytest.fixture
def kept() -> File:
    return this_host()._file


def add(known: History, seconds: list[float], every_s: float = 30.0, case: str = "a") -> None:
    for number, time_s in enumerate(seconds):
        known.add(case, MEMORY, time_s, PRIOR, number * every_s)


def test_class_names():
    assert class_name(1000, 1, DATA_CACHES, 10) == "L1, 1 thread, 10 placements"
    assert class_name(2**30, 2, DATA_CACHES, 1) == "memory, 2 threads, 1 placement"
    assert class_name(1000, 2, [], 10) == "memory, 2 threads, 10 placements"
    for state in (SHARED, MIXED, BESIDE):
        name = class_name(1000, 1, DATA_CACHES, 10, state)
        assert name == f"L1, 1 thread, 10 placements, {state}"


@pytest.mark.parametrize("level", ["L1", "L2", "L3", "L4", "memory"])
@pytest.mark.parametrize("threads", ["1 thread", "2 threads", "64 threads"])
def test_every_class_has_distances_of_other_hosts(level, threads):
    names = [f"{level}, {threads}, {n} placement{'s' * (n > 1)}" for n in (1, 3, 10, 100)]
    once, three, ten, hundred = map(packaged, names)
    for quantity in ("floor", "median"):
        means = [getattr(one, quantity).total / 3 for one in (once, three, ten)]
        # Three placements are between one and ten.
        assert max(means) < 0.3 and min(means) > 0.005 and sorted(means)[1] == means[1]
        for name in names:
            shared = getattr(packaged(f"{name}, {SHARED}"), quantity)
            assert 0.4 > shared.total / 3 > 0.005
    assert ten == hundred
    if level == "L4":  # has the distances of memory
        assert ten == packaged(f"memory, {threads}, 10 placements")


def test_mixed_states_vary_more_than_one():
    for level in ("L1", "L2", "memory"):
        name = f"{level}, 2 threads, 10 placements"
        mixed = packaged(f"{name}, {MIXED}")
        assert mixed.floor.total > packaged(name).floor.total
        beside, shared = (packaged(f"{name}, {word}") for word in (BESIDE, SHARED))
        assert beside == shared


def test_the_interval_is_the_predictive_quantile():
    # As many observations as wanted have the quantile of an exponential distribution.
    assert Distances(1e6, 2e4).within() == pytest.approx(-0.02 * math.log(0.05), rel=1e-4)
    few = Distances(3.0, 0.06)
    assert few.within() == pytest.approx(0.06 * (20 ** (1 / 3) - 1))
    assert few.within(0.5) < few.within() and few.at_most(2).within() > few.within()
    assert few.at_most(5) == few and (few + few).at_most(3) == few


@pytest.mark.parametrize(
    "of, value, draw, rel",
    [("floor", np.min, "exponential", 0.05), ("median", np.median, "normal", 0.15)],
)
def test_observed_distances_are_those_of_independent_placements(of, value, draw, rel):
    rng, found, apart = np.random.default_rng(4), Distances(), []
    for _ in range(2000):
        some, others = np.exp(0.1 * getattr(rng, draw)(size=(2, 10)))
        found += getattr(observed([*some], [*some]), of)
        apart.append(abs(math.log(value(some) / value(others))))
    assert of == "median" or found.number == 2000 * 3
    assert found.total / found.number == pytest.approx(np.mean(apart), rel=rel)


def test_the_shortest_placements_count():
    times = [1.0, 1.1, 1.3, 1.2, 5.0]
    found = observed(times, times).floor
    spacings = np.diff(np.log(sorted(times)))[:3] @ [4, 3, 2] / 5
    assert found == Distances(3, pytest.approx(spacings))
    many = np.exp(np.arange(40) / 100)
    assert observed([*many], [*many]).floor.number == 10
    once = observed([1.0], [1.0])
    assert once.floor == once.median == Distances()


def test_distances_of_repeated_records_are_added():
    known = History()
    add(known, [1.0, math.exp(0.02), math.exp(-0.02)])
    add(known, [5.0, 5.0 * math.exp(0.03)], case="b")
    assert known.known(MEMORY) == Distances(3, pytest.approx(0.09))
    assert known.known("L1") == Distances()


def test_equal_records_narrow_the_interval():
    known = History()
    add(known, [1.0] * 30)
    assert known.known(MEMORY) == Distances(16, 0.0)
    assert (PRIOR + known.known(MEMORY)).within() < 0.3 * PRIOR.within()


def test_records_in_quick_succession_are_not_counted():
    known = History()
    add(known, [1.0, 1.02, 1.04, 1.06], every_s=4.0)
    assert known.known(MEMORY).number == 1


def test_one_record_that_is_far_off_counts_as_five_mean_distances():
    known = History()
    add(known, [1.0, 10.0])
    assert known.known(MEMORY) == Distances(1, pytest.approx(5 * 0.02))


def test_a_case_of_another_class_begins_anew():
    known = History({"a": Repeated("L1, 1 thread", 5, 1.0, 0.0, 0.0)})
    assert known.known("L1, 1 thread") == Distances(5, 1.0)
    known.add("a", MEMORY, 1.0, PRIOR, 100.0)
    assert known.added == {"a": Repeated(MEMORY, 0.0, 0.0, 0.0, 100.0)}
    assert known.known("L1, 1 thread") == Distances()


def test_the_cases_measured_last_are_kept(kept):
    known = History()
    for number in range(2100):
        add(known, [1.0], case=str(number))
    assert list(known.added) == [str(number) for number in range(100, 2100)]
    kept.put((RUNS, {"old": Repeated(MEMORY, 1, 0.0, 0.0, -1.0)}))
    kept.put((RUNS, known.added))
    assert list(kept.get(RUNS)) == list(known.added)


def held(learns: bool, rng: np.random.Generator) -> float:
    """Return the share of 40 runs whose interval contains the next run.

    Runs are 30 s apart and drift with a correlation time of five minutes; their distance is three
    times that of other hosts.
    """
    rho, place = math.exp(-30 / 300), 0.0
    values = np.empty(40)
    for number in range(40):
        place = rho * place + math.sqrt(1 - rho**2) * rng.normal(0, 0.1)
        values[number] = place + rng.normal(0, 0.03)
    known, count = History(), 0
    for number, (value, following) in enumerate(itertools.pairwise(values)):
        every = PRIOR + known.known(MEMORY) if learns else PRIOR
        count += abs(following - value) <= every.within()
        known.add("a", MEMORY, math.exp(value), PRIOR, 30.0 * number)
    return count / (len(values) - 1)


def test_intervals_learn_the_distances_of_this_boot():
    learning, without = (
        np.mean([held(learns, np.random.default_rng(seed)) for seed in range(200)])
        for learns in (True, False)
    )
    assert without < 0.92 < 0.93 < learning < 0.995


def test_records_are_kept_for_later_processes(kept):
    first, second = History(), History()
    add(first, [1.0, 1.1])
    add(second, [2.0], case="b")
    kept.put((RUNS, first.added))
    kept.put((RUNS, second.added))
    assert File(kept.path).get(RUNS) == first.added | second.added


@pytest.mark.parametrize(
    "content",
    [
        5, {"a": 5}, {"a": ["L1"]}, {"a": ["L1", -1, 1, 0, 0]}, {"a": ["L1", 2, -1, 1, 0]},
        {"a": ["L1", 2, math.nan, 0, 0]}, {"a": ["L1", 2, 1, math.nan, 0]},
    ],
)  # fmt: skip
def test_cases_that_are_not_ours_count_as_none(content, kept):
    assert kept.path is not None
    kept.path.parent.mkdir(parents=True)
    kept.path.write_text(json.dumps({**_heading(), "runs": content}))
    with pytest.warns(UserWarning, match="section runs of .* was damaged"):
        assert kept.get(RUNS) == {}


@pytest.mark.parametrize("swept", [False, True])
def test_undisturbed_records_are_counted(swept):
    case = mk.loops("load", elements=64, runs=6, placements=2, threads=1)
    if swept:
        (one,) = (results := mk.sweep([case], progress=False)).records
        record, (machine,) = dict(one), results.environments.values()
    else:
        measured = case.measure()
        record, machine = measured.record, measured.environment
    name = class_name(64 * 8, 1, data_caches(machine), 2)
    identity = f"{record['case_id']} {record['environment_id']} "
    added = this_host()._history.added
    assert set(added) == {f"{identity} floor", f"{identity} median"}
    for quantity, column in (("floor", "time_min_s"), ("median", "time_median_s")):
        of_case = added[f"{identity} {quantity}"]
        assert of_case.name == f"{name}, {quantity}"
        assert of_case.value == pytest.approx(math.log(float(str(record[column]))))


@pytest.mark.parametrize("quantity", ["floor", "median"])
def test_intervals_include_the_distances_of_this_boot(quantity):
    case = mk.loops("load", elements=64, runs=6, placements=1, threads=1)
    machine = case.measure().environment
    name = f"{class_name(64 * 8, 1, data_caches(machine), 1)}, {quantity}"
    host = Host()
    host._file.put((RUNS, {"b": Repeated(name, 16.0, 16.0, 0.0, 0.0)}))
    run = CaseRun(case, host=host)
    run.place()
    record = calibrated(run, machine).record
    wide, narrow = record["time_min_ci_relative"], record["ci_relative"]
    if quantity == "median":
        wide, narrow = narrow, wide
    assert wide > 3 > 1 > narrow


def test_cases_of_a_sweep_share_what_their_placements_tell():
    cases = [mk.loops(k, elements=64, placements=4, threads=1) for k in ("load", "copy", "dot")]
    results = mk.sweep(cases, progress=False)
    (width,) = {float(str(record["time_min_ci_relative"])) for record in results.records}
    (machine,) = results.environments.values()
    known = packaged(class_name(64 * 8, 1, data_caches(machine), 4)).floor
    # Three spacings of each of the three cases, and no earlier records of this boot.
    assert math.asinh(width) > known.total * (20 ** (1 / (3 + 3 * 3)) - 1)
    assert math.asinh(width) != pytest.approx(known.within())
