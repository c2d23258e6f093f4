"""Plans for a limited time, with simulated machines and clocks."""

import functools
import math
import random
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest

import memkern as mk
from memkern import small
from memkern.discovery import family_modules
from memkern.engine.sweeping import planning
from memkern.engine.sweeping import sweep as sweeping
from memkern.engine.sweeping.planning import LEAST_PLACEMENTS, Rates, cost, expected_s, planned
from memkern.spec.case import Case

GIB = 2**30
# Last-level cache and memory of machines.
MACHINES = {"a small one": (2**21, 2 * GIB), "one of a server": (300 * 2**20, 20 * GIB)}


class Clock:
    """A clock that only simulated work advances."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def perf_counter(self) -> float:
        return self.now_s


class Run:
    """A case whose placements advance the clock by `factor` times the estimate."""

    interrupted = False

    def __init__(self, case: Case, clock: Clock, by: Rates, factor: float) -> None:
        self.placements: list[SimpleNamespace] = []
        self.case, self.out_of_time = case, False
        self.deadline, self._clock, self._by, self._factor = math.inf, clock, by, factor
        self.times_s: list[float] = []

    def place(self) -> None:
        begin_s = self._clock.now_s
        one = cost(self.case, self._by)
        most_s = planning._sampled_s(self.case, self._by)
        least_s = planning._least_sampled_s(self.case, self._by)
        overhead_s = self._factor * (one.again_s - least_s)
        first_s = 0.0 if self.placements else self._factor * (one.first_s - one.again_s)
        self._clock.now_s += overhead_s + first_s
        left_s = max(self.deadline - self._clock.now_s, 0.0)
        sampled_s = most_s if self.case.stop.runs else min(most_s, max(left_s, 1e-3))
        self._clock.now_s += sampled_s
        wall_s = self._clock.now_s - begin_s
        self.placements.append(
            SimpleNamespace(again_s=wall_s - first_s, sampled_s=sampled_s, wall_s=wall_s)
        )
        self.times_s.append(begin_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Return the clock of plans and sweeps."""
    made = Clock()
    monkeypatch.setattr(planning, "time", made)
    monkeypatch.setattr(planning, "rates", lambda device: Rates())
    return made


@functools.cache
def report_cases(machine: str, quick: bool) -> list[Case]:
    """Return the report cases of some families for a machine.

    Indices in random order, which take seconds to draw, are in rounds of steps of 64.
    """
    cache_B, memory_B = MACHINES[machine]
    found: list[Case] = []

    def rounds(n: int) -> npt.NDArray[np.int64]:
        return np.concatenate([np.arange(first, n, 64) for first in range(64)])

    with mock.patch("memkern.inputs.indices.seeded", lambda _: mock.Mock(permutation=rounds)):
        for module in family_modules("kernels"):
            if module.__name__.split(".")[2] in ("loops", "stream", "spatter", "raider"):
                found += module.report_cases(quick, cache_B, memory_B)
    return found


def family(case: Case) -> str:
    return case.spec.kernel.partition(".")[0]


def simulated(
    cases: Sequence[Case],
    time_s: float,
    clock: Clock,
    factors: tuple[float, float],
    declared: bool = False,
) -> list[Run]:
    order = random.Random(3)
    low, high = map(math.log, factors)
    runs = [Run(case, clock, Rates(), math.exp(order.uniform(low, high))) for case in cases]
    bar = SimpleNamespace(total=None, update=lambda: None)
    some: Any = runs
    generator = None if declared else order
    sweeping._in_rounds(some, generator, bar, clock.now_s + time_s, lambda *_: None)
    return runs


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("factors", [(0.5, 1.0), (1.0, 4.0)])
def test_what_is_begun_has_three_placements_in_the_time(machine, quick, factors, clock):
    cases, time_s = report_cases(machine, quick), 30.0 if quick else 165.0
    begin_s = clock.now_s
    runs = simulated(cases, time_s, clock, factors)
    took_s = clock.now_s - begin_s
    begun = [run for run in runs if run.placements]
    assert all(len(run.placements) >= min(LEAST_PLACEMENTS, run.case.placements) for run in begun)
    assert took_s <= 1.1 * time_s
    # Most of the time is used, unless all cases were measured.
    assert took_s >= 0.7 * time_s or all(len(r.placements) == r.case.placements for r in runs)
    if len(begun) < len(cases):
        # Each family with cases below a tenth of the time, even at 4 times the estimate, is begun.
        brief = [case for case in cases if cost(case, Rates()).least_s(3) < time_s / 40]
        assert {family(run.case) for run in begun} >= {family(case) for case in brief}
    # The placements of a case are spread over the run.
    large = [run for run in begun if len(run.placements) > 1]
    assert all(run.times_s[-1] - run.times_s[0] > 0.1 * took_s for run in large)


def test_no_case_is_begun_without_the_time_for_its_least_placements(clock):
    small_one, large = (
        mk.stream("copy", elements=elements, threads=1, variant="simd", budget_s=9.0)
        for elements in (10**3, 10**7)
    )
    whole_s = cost(large, Rates()).least_s(LEAST_PLACEMENTS)
    assert cost(large, Rates()).first_s < 0.6 * whole_s
    for time_s, begun in ((0.7 * whole_s, False), (1.3 * whole_s, True)):
        runs: list[Any] = [Run(case, clock, Rates(), 1.0) for case in (small_one, large)]
        plan = planning.Plan(runs, clock.now_s + time_s)
        assert [plan.suffices(run) for run in runs] == [True, begun]


@pytest.mark.parametrize("declared", [False, True])
def test_the_most_telling_cases_come_first(declared, clock):
    how: dict[str, Any] = {"threads": 1, "variant": "simd", "budget_s": 0.5}
    cases = [mk.stream("copy", elements=1000 + n, **how) for n in range(30)]
    runs = simulated(cases, 3.0, clock, (1.0, 1.0), declared)
    if not declared:
        runs = planning.by_importance(runs, lambda run: run.case)
    begun = [bool(run.placements) for run in runs]
    assert begun == sorted(begun, reverse=True) and 0 < sum(begun) < 30
    first = sorted((run.times_s[0], number) for number, run in enumerate(runs) if run.placements)
    assert [number for _, number in first] == list(range(sum(begun)))
    assert len(planned(cases, 3.0)) == pytest.approx(sum(begun), abs=1)


def test_a_case_that_does_not_fit_is_left_out_and_smaller_ones_are_not(clock):
    how: dict[str, Any] = {"threads": 1, "variant": "simd", "budget_s": 0.1}
    small = mk.stream("copy", elements=1000, **how)
    large = mk.stream("copy", elements=10**9, **how)
    runs = simulated([large, small], 2.0, clock, (1.0, 1.0))
    assert [len(run.placements) for run in runs] == [0, small.placements]
    assert [run.out_of_time for run in runs] == [True, False]
    assert planned([large, small], 2.0) == [small]


def test_one_case_is_placed_whatever_the_time(clock):
    how: dict[str, Any] = {"threads": 1, "variant": "simd", "budget_s": 0.1}
    cases = [mk.stream("copy", elements=n, **how) for n in (10**9, 10**8, 10**9)]
    runs = simulated(cases, 0.01, clock, (1.0, 1.0))
    assert [len(run.placements) for run in runs] == [0, LEAST_PLACEMENTS, 0]
    assert planned(cases, 0.01) == [cases[1]]
    assert planned([], 0.01) == []


def test_without_a_limit_nothing_is_planned(monkeypatch):
    monkeypatch.setattr(planning, "rates", lambda *device: pytest.fail("measured"))
    case = mk.stream("copy", elements=100, threads=1, variant="scalar", runs=2)
    assert len(mk.sweep([case], progress=False)) == 1


def test_rates_are_measured(monkeypatch):
    monkeypatch.delenv(small.VARIABLE, raising=False)
    planning.rates.cache_clear()
    found = planning.rates()
    assert 0 < found.once_s < 1 and 0 < found.first_s < 1
    assert 1e6 < found.placed_Bps < 1e12 and 1e6 < found.validated_Bps < 1e12
    assert planning.rates() is found


def test_the_time_expected_follows_from_the_cases(clock):
    case = mk.stream("copy", elements=1000, threads=1, variant="simd")

    def expected(**how: Any) -> float:
        return expected_s([case.with_(**how)])

    assert expected(budget_s=3.0, placements=2) > 3.0
    longer_s = expected(budget_s=6.0, placements=2) - expected(budget_s=3.0, placements=2)
    assert longer_s == pytest.approx(3.0)
    assert expected(budget_s=3.0, placements=5) > expected(budget_s=3.0, placements=2)
    once_s, none_s = expected_s([case]), expected_s([])
    # What both need besides is measured once.
    assert 1.9 * once_s < expected_s([case, case]) <= 2 * once_s
    assert none_s == 0


def test_the_order_of_importance_covers_all_kernels_and_ranges():
    sizes = [mk.stream("copy", elements=n) for n in range(1, 10)]
    others = [mk.loops("load", 8), mk.loops("load", 9)]
    found = planning.by_importance([*sizes, *others], lambda case: case)
    assert sorted(map(id, found)) == sorted(map(id, [*sizes, *others]))
    assert found[:2] == [sizes[0], others[0]]
    of_sizes = [case for case in found if case in sizes]
    assert of_sizes[:3] == [sizes[0], sizes[8], sizes[4]]
    assert planning.by_importance([], lambda case: case) == []
