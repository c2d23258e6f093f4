"""Samples: when they end, which are disturbed, and states of the host."""

import contextlib
import dataclasses
import itertools
import json
import math
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conditions_of_samples import conditions, replace_samples
from machines import loads_per_cycle

import memkern as mk
from memkern import _memkern
from memkern.engine.placing.preparing import ready
from memkern.engine.placing.run import CaseRun, environment_of_ranks
from memkern.engine.sampling import activity
from memkern.engine.sampling import series as sampling
from memkern.engine.sampling.prepared import Prepared
from memkern.engine.sampling.series import take_samples
from memkern.host import Host
from memkern.host.distances import Distances, Spread
from memkern.host.rates import RATES, CoreRates
from memkern.limits import Quota
from memkern.spec.case import Case

SPREAD = Spread(Distances(3.0, 0.03), Distances(3.0, 0.03))
UNLIKE = Spread(Distances(3.0, 0.03), Distances(3.0, 30.0))


def test_sampling_stops_by_precision(case, monkeypatch):
    # Other processes may correlate real samples so much that they have no interval.
    rng = np.random.default_rng(5)
    replace_samples(monkeypatch, lambda n: 1e-4 * (1 + rng.exponential(0.1, (n, 1))))
    loose = case.with_(ci=0.3, budget_s=30.0).measure().record
    tight = case.with_(ci=0.03, budget_s=30.0).measure().record
    assert loose["stop"] == tight["stop"] == "ci"
    assert loose["samples"] < tight["samples"]


@pytest.mark.parametrize("swept", [False, True])
@pytest.mark.parametrize(
    "noise, stop, budget_s", [(1e-4, "precision", 5.0), (0.5, "budget", 0.2), (0.5, "budget", 0.4)]
)
def test_a_case_is_placed_until_its_precision_or_budget(
    noise, stop, budget_s, swept, case,
    monkeypatch):  # fmt: skip
    rng = np.random.default_rng(6)
    replace_samples(monkeypatch, lambda n: 1e-4 * rng.lognormal(0, noise))
    # Other hosts let one expect a distance that few placements do not refute.
    monkeypatch.setattr("memkern.host.packaged", lambda name: UNLIKE)
    monkeypatch.setattr("memkern.spec.options._USUAL_S", 1e-3)
    asked = case.with_(precision=0.02, budget_s=budget_s, placements=3)
    if swept:
        told = pytest.warns(UserWarning, match="1 of 1 measurements are less precise")
        with told if stop == "budget" else contextlib.nullcontext():
            (record,) = mk.sweep([asked], progress=False).records
    else:
        record = asked.measure().record
    assert record["stop"] == stop and record["budget_s"] == budget_s
    assert record["placements"] == 4 if stop == "precision" else record["placements"] > 3
    assert (record["time_min_ci_relative"] <= 0.02) == (stop == "precision")
    if stop == "budget":
        assert record["wall_s"] >= budget_s


def test_a_precision_takes_at_least_the_usual_time(case):
    """Placements in less time tell too little of how the host changes."""
    record = case.with_(precision=0.99, budget_s=0.2).measure().record
    assert record["stop"] == "precision" or record["disturbed"]
    assert record["wall_s"] >= 0.2


def test_the_budget_of_a_precision_is_half_a_minute(case):
    usual, precise = mk.loops("load", elements=64), mk.loops("load", elements=64, precision=0.05)
    assert (usual.stop.usual_s, usual.stop.most_s) == (1.0, 1.0)
    assert (precise.stop.usual_s, precise.stop.most_s) == (1.0, 30.0)
    long = precise.with_(budget_s=300.0)
    assert (long.stop.usual_s, long.stop.most_s) == (1.0, 300.0)
    brief = precise.with_(budget_s=0.5)
    assert (brief.stop.usual_s, brief.stop.most_s) == (0.5, 0.5)
    assert usual.with_(budget_s=5.0).stop.usual_s == 5.0


def test_sampling_stops_by_samples_or_budget(case):
    few = case.with_(ci=1e-9, budget_s=30.0, max_samples=12).measure().record
    assert (few["stop"], few["samples"]) == ("samples", 12)
    brief = case.with_(ci=1e-9, budget_s=1e-6, max_samples=10**6).measure().record
    assert brief["stop"] == "budget"
    assert brief["samples"] >= 1


def with_times(prepared: Prepared, begin_s: float, each_s: dict[str, float]) -> Prepared:
    """Set the time of an invocation of each variant, and the time in which all workers begin."""
    variant = prepared.obtained["variant"]
    native = prepared.native

    def select(chosen: str, isa: str) -> None:
        nonlocal variant
        native.select(variant := chosen, isa)

    prepared.native = SimpleNamespace(select=select)
    prepared.run = lambda n: begin_s + n * each_s[variant]  # type: ignore[method-assign]
    prepared.run_range = lambda *_: begin_s  # type: ignore[method-assign]
    return prepared


def test_each_variant_has_samples_of_the_same_length(monkeypatch):
    monkeypatch.setattr(_memkern, "clock_tick", lambda: 2e-8)
    case = mk.loops("load", elements=64, variant="scalar", threads=1)
    isa = case.prepare().obtained["isa"]
    prepared = with_times(case.prepare(), 0.0, {"scalar": 2e-7, "auto": 5e-8})
    assert 100 <= prepared.invocations <= 200
    prepared.select("auto", isa)
    assert 400 <= prepared.invocations <= 800
    # After a long invocation, none is tried for another variant.
    prepared = with_times(case.prepare(), 0.0, {"scalar": 1.0, "auto": 5e-8})
    assert prepared.invocations == 1
    prepared.select("auto", isa)
    assert prepared.invocations == 1


@pytest.mark.parametrize(
    "repetition, begin_s, least, most",
    [("free", 1e-6, 1800, 4000), ("barrier", 1e-6, 360, 800), ("free", 1e-3, 1, 1)],
)
def test_samples_are_long_beside_the_time_in_which_threads_start(
    repetition, begin_s, least, most, monkeypatch
):
    monkeypatch.setattr(_memkern, "clock_tick", lambda: 2e-8)
    case = mk.loops("load", elements=64, variant="scalar", threads=1, repetition=repetition)
    prepared = with_times(case.prepare(), begin_s, {"scalar": 5e-8})
    assert least <= prepared.invocations <= most


class Scripted:
    """Prepared case whose samples have the given shares of the processor, later samples 1.

    Warming up the caches before the first sample takes `untimed_s`. In the samples with the numbers
    `far`, from 0, an exchange takes 200 instead of 50 ns and an invocation 2 instead of 1 ms.
    """

    def __init__(
        self, shares: list[float], untimed_s: float = 0.0, far: Sequence[int] = ()
    ) -> None:
        self.shares, self.far, self.taken = shares, far, 0
        self.untimed_s = untimed_s
        self.slept_s = 0.0

    def sample(self, rows: np.ndarray, invocations: int, deadline_s: float, **_: Any) -> int:
        time.sleep(self.untimed_s - self.slept_s)
        self.slept_s = self.untimed_s
        for row in rows:
            share = self.shares.pop(0) if self.shares else 1.0
            far = self.taken in self.far
            # With several states the times vary, so that precision does not end sampling.
            time_s = 1e-3 * (1 + far) * (1 + bool(self.far) * self.taken % 7 / 100)
            row[:] = [time_s / share, *conditions(share, 2e-7 if far else 5e-8)]
            self.taken += 1
        return len(rows)

    def untimed(self) -> tuple[int, float]:
        return 0, self.slept_s

    def obtained(self) -> dict[str, Any]:
        return {"pin": "0", "stages": [], "threads": 99, "footprint_B": 4096}


def scripted(
    case: Case,
    shares: list[float],
    untimed_s: float = 0.0,
    far: Sequence[int] = (),
    host: Host | None = None,
) -> Prepared:
    prepared = ready(case, host=host)
    prepared.native = Scripted(shares, untimed_s, far)  # type: ignore[assignment]
    prepared.invocations = 1
    return prepared


@pytest.mark.usefixtures("disturbances")
def test_warming_up_the_caches_leaves_the_budget_for_samples(case):
    # With 21 of 40 samples disturbed, more are taken within twice the budget.
    how = {"runs": None, "ci": 0.5, "placements": 1, "budget_s": 0.25}
    samples = take_samples(scripted(case.with_(**how), [0.5] * 20, untimed_s=0.6))
    assert not samples.disturbed and samples.taken >= 40


@pytest.mark.usefixtures("disturbances", "machine")
def test_disturbed_samples_are_taken_again(case):
    prepared = scripted(case.with_(runs=5), [1.0, 0.97, 1.0, 0.94, 1.0])
    samples = take_samples(prepared)
    assert (samples.taken, samples.rejected) == (5 + 1, 1)
    # Other samples count, since workers had the processor for nearly all the time.
    assert samples.seconds[:, 0].tolist() == [1e-3, 1e-3 / 0.97, 1e-3, 1e-3, 1e-3]
    assert not samples.disturbed
    assert 0.98 < samples.cpu_share < 1
    assert samples.waited_share == pytest.approx(1 - samples.cpu_share)
    assert samples.absent_share == 0


@pytest.mark.usefixtures("disturbances")
def test_more_samples_are_taken_where_workers_waited_in_most(case):
    lost = [0.5] * 20
    samples = take_samples(scripted(case.with_(runs=5), list(lost)))
    assert samples.rejected >= 20
    assert samples.taken >= 40
    assert samples.seconds[:, 0].tolist() == [1e-3] * 5
    assert not samples.disturbed
    # Without time for more samples, the result is disturbed.
    samples = take_samples(scripted(case.with_(runs=5, budget_s=1e-9), [*lost, *[1.0] * 5]))
    assert samples.disturbed


@pytest.mark.usefixtures("disturbances")
@pytest.mark.parametrize(
    ("period_s", "stopped_s", "rejected"),
    [
        (1e-3, 2e-2, 0),  # too long for a period: all include a stop
        (1.0, 2e-2, 20),  # samples are short enough to be without a stop
        (1e-3, 1e-3, 20),  # other programs had the processor
    ],
)
def test_samples_that_a_quota_has_to_stop_count(case, monkeypatch, period_s, stopped_s, rejected):
    quota = Quota(0.5, period_s * 99)  # scripted cases have 99 threads
    monkeypatch.setattr(sampling, "limiting_quota", lambda: quota)
    clock = itertools.count()
    monkeypatch.setattr(sampling, "throttled_s", lambda: stopped_s * next(clock))
    samples = take_samples(scripted(case.with_(runs=5, budget_s=1e-9), [0.2] * 20))
    assert samples.rejected == min(rejected, samples.taken) and samples.disturbed == bool(rejected)
    assert samples.throttled_share > 0
    assert samples.seconds[:, 0] == pytest.approx([5e-3] * 5)


@pytest.mark.usefixtures("disturbances")
def test_without_a_quota_nothing_is_throttled(case, monkeypatch):
    monkeypatch.setattr(sampling, "limiting_quota", lambda: None)
    assert math.isnan(take_samples(scripted(case, [])).throttled_share)


@pytest.mark.usefixtures("disturbances")
def test_a_narrow_interval_is_not_enough_where_workers_waited_in_most(case):
    how = {"runs": None, "ci": 0.5, "placements": 1}
    samples = take_samples(scripted(case.with_(budget_s=1.0, **how), [0.5] * 30))
    assert not samples.disturbed and samples.stop == "ci"
    assert samples.taken >= 62
    few = scripted(case.with_(budget_s=1e-9, **how), [0.5] * 20 + [1.0] * 10)
    assert take_samples(few).disturbed


def placed_in_states(monkeypatch: pytest.MonkeyPatch, case: Case, far: Sequence[int]) -> CaseRun:
    """Return a run of one placement, with the samples `far` in a state of slow exchanges."""
    obtained = {"threads": 2, "pin": "0,1"}
    bins = {math.floor(math.log(rate) / 0.01): 500 for rate in (1 / 5e-8, 1 / 2e-7)}
    host = Host()
    host._file.put((RATES, {activity.names_of_cores(obtained)[1]: bins}))
    run = CaseRun(case.with_(placements=1), host=host)
    placement = run.place()
    prepared = scripted(run.case, [], far=far, host=host)
    monkeypatch.setattr(Scripted, "obtained", lambda _: {**placement.obtained, **obtained})
    samples, both = take_samples(prepared), prepared.native.obtained()
    run.placements[0] = dataclasses.replace(placement, samples=samples, obtained=both, others=())
    run._taken = None
    return run


@pytest.mark.usefixtures("disturbances")
def test_samples_of_the_most_frequent_state_count(case, monkeypatch):
    how = {"runs": None, "ci": 1e-9, "max_samples": 100}
    run = placed_in_states(monkeypatch, case.with_(**how), far=range(70))
    record = run.measurement(environment_of_ranks(), spread=SPREAD).record
    assert record["state"] == "shared" and not record["disturbed"]
    assert record["samples"] == 70
    assert record["time_min_s"] == 2e-3
    assert 2e-3 < record["time_median_s"] < 2.1e-3
    assert record["exchange_ns"] == pytest.approx(200)
    states = json.loads(record["states"])
    assert [(s["exchange_ns"], s["share"], s["samples"], s["counts"]) for s in states] == [
        (200.0, 0.7, 70, True),
        (50.0, 0.3, 30, False),
    ]
    assert states[1]["time_min_s"] == 1e-3
    assert run.class_of(environment_of_ranks()).endswith(", shared")


@pytest.mark.usefixtures("disturbances")
def test_all_samples_count_where_no_state_has_enough(case, monkeypatch):
    run = placed_in_states(monkeypatch, case.with_(runs=12), far=range(7))
    record = run.measurement(environment_of_ranks(), spread=SPREAD).record
    assert record["samples"] == 12 and record["time_min_s"] == 1e-3
    assert all(state["counts"] for state in json.loads(record["states"]))
    assert run.class_of(environment_of_ranks()).endswith(", mixed states")


@pytest.mark.usefixtures("disturbances")
def test_one_state_at_its_best_is_quiet(case, monkeypatch):
    how = {"runs": None, "ci": 1e-9, "max_samples": 100}
    run = placed_in_states(monkeypatch, case.with_(**how), far=range(2))
    assert run.taken.quiet and not run.taken.mixed
    assert run.class_of(environment_of_ranks()).endswith(" placement")
    # Exchanges of lines take four times the shortest time.
    run = placed_in_states(monkeypatch, case.with_(**how), far=range(100))
    assert not run.taken.quiet and not run.taken.mixed


def test_programs_beside_a_case_make_a_class_of_their_own(case, monkeypatch):
    run = CaseRun(case.with_(runs=5, placements=1))
    placement = run.place()
    assert run.class_of(environment_of_ranks()).endswith(" placement")
    others = ((77, "stress", 0),)
    run.placements[0] = dataclasses.replace(placement, others=others)
    run._taken = None
    assert run.class_of(environment_of_ranks()).endswith(", beside programs")
    record = run.measurement(environment_of_ranks(), spread=SPREAD).record
    assert record["shared_with"] == "stress (process 77)"


@pytest.mark.usefixtures("disturbances")
@pytest.mark.parametrize(
    "changes",
    [{"waited_share": 0.02}, {"absent_share": 0.02}, {"throughput": 0.9 * loads_per_cycle()}],
)
def test_a_host_that_takes_time_or_throughput_is_shared(case, monkeypatch, changes):
    best = loads_per_cycle() * np.linspace(0.99, 1.0, 200)
    run = CaseRun(case.with_(runs=5, placements=1), host=Host())
    placement = run.place()
    monkeypatch.setattr(run.host.cores, "added", {})
    run.host.cores.add(best, placement.samples.cores)
    monkeypatch.setattr(CoreRates, "modes", lambda self, which: [])
    quiet = {"waited_share": 0.0, "absent_share": 0.0, "throughput": loads_per_cycle()}
    for change, expected in (({}, True), (changes, False)):
        samples = dataclasses.replace(placement.samples, **quiet | change)
        run.placements[0] = dataclasses.replace(placement, samples=samples, others=())
        run._taken = None
        assert run.taken.quiet is expected
        record = run.measurement(environment_of_ranks(), spread=SPREAD).record
        assert record["state"] == ("quiet" if expected else "shared")


@pytest.mark.usefixtures("disturbances")
def test_a_disturbed_result_has_the_samples_with_most_processor_time(case):
    prepared = scripted(case.with_(runs=2, budget_s=0.1), [0.5, 0.6, 0.8, 0.7] * 10**5)
    samples = take_samples(prepared)
    assert samples.disturbed and samples.rejected == samples.taken >= 2
    assert samples.seconds[:, 0].tolist() == [1e-3 / 0.8] * 2


def test_the_worst_conditions_of_all_ranks_count(monkeypatch):
    # Seconds, then shares of the processor, throughput, clock, times of an exchange and of memory.
    every = [
        [[1.0, 0.9, 2.0, 3e9, 5e-8, 0.0, 0.1, 0.0, 1e-7, 3e-8]],
        [[2.0, 0.8, 3.0, 2e9, 4e-8, 1.0, 0.0, 0.2, 2e-7, 4e-8]],
    ]
    known: list[np.ndarray] = []

    def largest(values: np.ndarray) -> np.ndarray:
        known.append(values)
        return np.max(known, axis=0)

    monkeypatch.setattr(sampling, "ranks", lambda: SimpleNamespace(largest=largest))
    _, found = (sampling._of_all_ranks(np.array(rows), 1) for rows in every)
    assert found.tolist() == [[2.0, 0.8, 2.0, 2e9, 5e-8, 1.0, 0.1, 0.2, 2e-7, 3e-8]]
