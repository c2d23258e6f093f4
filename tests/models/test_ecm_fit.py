"""The fit of the ECM model recovers known machines and refuses incomplete records."""

import dataclasses
import math

import numpy as np
import pytest
from checking import refused

from memkern.formats import ResultSet
from memkern.models import Ecm, EcmLevel, hypotheses
from memkern.models.ecm_fit import (
    FITTED,
    Judged,
    LoopTime,
    domain_rates,
    fit_ecm,
    fit_levels,
    judge_cores,
    loop_times,
    with_domain,
)
from memkern.spec.kernel import Traffic, Transfer

LEVELS = ("L1", "L2", "L3", "memory")
# Bytes read, written and allocated per vector of 64 bytes of each stream.
LOOPS = {
    "loops.load": (64, 0, 0),
    "loops.copy": (64, 64, 64),
    "loops.triad": (128, 64, 64),
    "loops.daxpy": (128, 64, 0),
    "loops.schoenauer": (192, 64, 64),
    "loops.init": (0, 64, 64),
}
COSTS = {"L1": (128.0, 64.0), "L2": (48.0, 24.0), "L3": (20.0, 9.0), "memory": (5.0, 3.5)}


def machine(overlap):
    levels = tuple(EcmLevel(name, *COSTS[name]) for name in LEVELS)
    return Ecm(levels, overlap, 2.5)


def measured(model, kernels=tuple(LOOPS)):
    """Return the times that the model predicts, for all kernels and levels."""
    rows = []
    for kernel in kernels:
        read, write, allocate = LOOPS[kernel]
        traffic = Traffic(read=read, write=write, write_allocate=allocate)
        moved = traffic.transfers(LEVELS)
        for level in LEVELS:
            rows.append(LoopTime(kernel, level, moved, model.predict(moved, at=level).cycles))
    return rows


@pytest.mark.parametrize("name", ["none", "c", "L1 load + max(L1 store, L2) + max(L3, memory)"])
def test_bandwidths_are_found_again(name):
    overlap = hypotheses(LEVELS)[name]
    truth = machine(overlap)
    fitted = [loop for loop in measured(truth) if loop.kernel in FITTED]
    levels, error = fit_levels(fitted, LEVELS, overlap)
    assert error < 1e-3
    for level in levels:
        assert (level.load_B, level.store_B) == pytest.approx(COSTS[level.name], rel=0.01)
    model = dataclasses.replace(truth, levels=levels)
    for loop in measured(truth):
        predicted = model.predict(loop.transfers, at=loop.level).cycles
        assert predicted == pytest.approx(loop.cycles, rel=0.01)


def test_stores_in_l1_take_time_even_where_loops_with_stores_are_faster():
    overlap = hypotheses(LEVELS)["none"]
    loops = [
        dataclasses.replace(loop, cycles=loop.transfers["L1"].load_B / 160 or 1.0)
        if loop.level == "L1" and loop.kernel != "loops.load"
        else loop
        for loop in measured(machine(overlap))
    ]
    found = fit_ecm(loops, 2.5, {"none": overlap})
    [init] = [j for j in found.judged if j.loop.kernel == "loops.init" and j.loop.level == "L1"]
    assert init.predicted.cycles > 0


def test_the_right_hypothesis_is_among_the_best():
    truth = machine(hypotheses(LEVELS)["none"])
    found = fit_ecm(measured(truth), 2.5)
    assert found.errors["none"] < 1e-3
    assert found.errors["full"] > 0.05
    assert found.errors[found.name] == min(found.errors.values()) < 1e-3
    only = fit_ecm(measured(truth), 2.5, {"none": hypotheses(LEVELS)["none"]})
    assert only.median_error < 0.01
    assert only.share_within(0.25) == 1
    # In each level, three of six loops are judged, and the others are marked as fitted.
    assert len(only.rows) == 6 * 4
    assert len(only.judged) == 3 * 4
    assert all(row.fitted == (row.loop.kernel in FITTED) for row in only.rows)


def test_the_time_in_l1_is_the_time_in_the_core():
    truth = machine(hypotheses(LEVELS)["none"])
    rows = measured(truth)
    slow = [
        dataclasses.replace(row, cycles=40.0) if (row.kernel == "loops.daxpy") else row
        for row in rows
    ]
    found = fit_ecm(slow, 2.5, {"none": hypotheses(LEVELS)["none"]})
    daxpy = {row.loop.level: row for row in found.rows if row.loop.kernel == "loops.daxpy"}
    assert daxpy["L1"].predicted.cycles == pytest.approx(2, rel=0.01)  # from its transfers
    assert daxpy["L2"].predicted.cycles == 40
    assert daxpy["L2"].predicted.bound == "core"


def test_the_time_in_the_core_of_a_loop_in_l1_is_that_of_its_loads_and_stores():
    rows = measured(machine(hypotheses(LEVELS)["none"]))
    # A vector of 64 bytes is stored in four cycles, and loaded in half a cycle.
    units = EcmLevel("instructions", 128.0, 16.0)
    found = fit_ecm(rows, 2.5, {"none": hypotheses(LEVELS)["none"]}, units)
    init = {row.loop.level: row for row in found.rows if row.loop.kernel == "loops.init"}
    assert init["L1"].predicted.core == init["L1"].loop.transfers["L1"].store_B / 16
    assert init["L1"].predicted.bound == "core"
    # Fitted loops have no time in the core; beyond L1 it is the loop's measured time in L1.
    assert all(row.predicted.core == 0 for row in found.rows if row.fitted)
    assert init["L2"].predicted.core == init["L1"].loop.cycles


def test_disturbed_loops_are_shown_but_neither_fitted_nor_judged():
    rows = measured(machine(hypotheses(LEVELS)["none"]))
    odd = dataclasses.replace(rows[-1], cycles=1e3, disturbed=True)
    found = fit_ecm([*rows[:-1], odd], 2.5)
    assert any(row.loop is odd for row in found.rows)
    assert len(found.judged) == 3 * 4 - 1
    # An undisturbed measurement of the same loop is preferred, even if it is slower.
    found = fit_ecm([*rows, dataclasses.replace(rows[-1], cycles=1e-3, disturbed=True)], 2.5)
    assert all(not row.loop.disturbed for row in found.rows)


def test_known_reasons_of_errors():
    model = machine(hypotheses(LEVELS)["none"])
    moved = Traffic(read=64, write=64, write_allocate=64).transfers(LEVELS)

    def judged(kernel, level, ratio, spread=0.01):
        predicted = model.predict(moved, at=level)
        return Judged(
            LoopTime(kernel, level, moved, ratio * predicted.cycles, spread), predicted, False
        )

    assert judged("loops.stencil", "L1", 1.5).reason == "unaligned loads and stores cross lines"
    assert judged("loops.matvec", "L1", 1.5).reason == "every column starts anew"
    assert judged("loops.stencil", "L1", 0.5).reason == ""
    assert judged("loops.stencil", "L2", 1.5).reason == ""
    alone = {level: Transfer(load_B, 0) for level, (load_B, _) in moved.items()}
    share = model.predict(alone, at="L3").cycles / model.predict(moved, at="L3").cycles
    assert share < 0.9
    assert judged("loops.daxpy", "L3", share).reason == "takes as long as its loads alone"
    assert judged("loops.daxpy", "L3", share**0.4).reason == ""
    assert judged("loops.daxpy", "L3", share**2.5).reason == ""
    assert judged("loops.daxpy", "L1", 1.5).reason == ""
    assert judged("loops.daxpy", "L3", 1.5, spread=0.6).reason.startswith("varies by as much")
    assert judged("loops.daxpy", "L3", 0.2, spread=math.nan).reason == ""


def test_loops_whose_loads_take_no_time_are_not_as_fast_as_their_loads():
    truth = machine(hypotheses(LEVELS)["none"])
    free = EcmLevel("L2", math.inf, COSTS["L2"][1])
    model = dataclasses.replace(truth, levels=(truth.levels[0], free, *truth.levels[2:]))
    # Only the read lines of a store are loaded.
    moved = Traffic(write=64, write_allocate=64).transfers(LEVELS)
    predicted = model.predict(moved, at="L2")
    loop = LoopTime("loops.init", "L2", moved, 0.5 * predicted.cycles, 0.01)
    assert Judged(loop, predicted, False).reason == ""


def test_the_three_loops_are_needed_in_each_level():
    rows = measured(machine(hypotheses(LEVELS)["none"]))
    without = [row for row in rows if (row.kernel, row.level) != ("loops.copy", "L3")]
    with refused("needs an undisturbed loops.copy with its data in L3"):
        fit_ecm(without, 2.5)
    with refused("needs an undisturbed loops.load"):
        fit_ecm([], 2.5)
    disturbed = [dataclasses.replace(row, disturbed=True) for row in rows]
    with refused("needs an undisturbed loops.load"):
        fit_ecm(disturbed, 2.5)


def record(**columns):
    found = {
        "kernel": "loops.copy", "environment_id": "here", "threads": 1, "valid": True,
        "footprint_B": 2**20, "clock_GHz": 2.5, "time_min_s": 1e-6, "time_median_s": 1.1e-6,
        "cycles_per_vector": 4.0, "placement_sd": 0.01, "disturbed": False,
    }  # fmt: skip
    for level, (load_B, store_B) in {
        "L1": (1e3, 1e3),
        "L2": (2e3, 1e3),
        "memory": (2e3, 1e3),
    }.items():
        found |= {f"{level}_load_B": load_B, f"{level}_store_B": store_B}
    return {**found, **columns}


def results(*records):
    machine = {"caches": [{"level": 1, "size_B": 2**15}, {"level": 2, "size_B": 2**21}]}
    return ResultSet(list(records), [np.empty(0)] * len(records), {"here": {"machine": machine}})


def test_records_give_loops():
    (loop,), clock = loop_times(results(record(), record(threads=2), record(valid=False)))
    assert clock == 2.5
    assert (loop.kernel, loop.level, loop.spread) == ("loops.copy", "L2", 0.01)
    # The shortest time is 2500 cycles per invocation; a vector takes 4 cycles.
    assert loop.cycles == pytest.approx(4)
    assert loop.transfers["L2"] == pytest.approx((2e3 * 4 / 2500, 1e3 * 4 / 2500))
    assert isinstance(loop.transfers["L2"], Transfer)
    big = loop_times(results(record(footprint_B=2**30)))[0][0]
    assert big.level == "memory"


def test_records_without_transfers_are_refused():
    bare = {key: value for key, value in record().items() if not key.endswith("_B")}
    with refused("no record of one core"):
        loop_times(results({**bare, "footprint_B": 1}))
    with refused("no record of one"):
        loop_times(results(record(cycles_per_vector=math.nan)))
    with refused("several"):
        loop_times(results(record(), record(environment_id="other")))


def test_two_sizes_in_l1_give_the_cycles_by_which_they_differ():
    # Each invocation has an overhead of 500 cycles.
    def sized(vectors, name):
        seconds = (2 * vectors + 500) / 2.5e9
        moved = {
            f"{level}_{way}_B": 64.0 * vectors
            for level in ("L1", "memory")
            for way in ("load", "store")
        }
        return record(
            name=name, time_min_s=seconds, time_median_s=seconds,
            cycles_per_vector=seconds * 2.5e9 / vectors, **moved,
        )  # fmt: skip

    (loop,), _ = loop_times(results(sized(300, "L1"), sized(100, "L1 part")))
    assert loop.cycles == pytest.approx(2)
    assert loop.transfers["L1"] == pytest.approx((64, 64))
    # Each size varies by 1 % of its own time.
    assert loop.spread == pytest.approx(0.01 * math.hypot(300, 100) / 200)
    (alone,), _ = loop_times(results(sized(300, "L1")))
    assert alone.cycles == pytest.approx(2 + 500 / 300)


def test_the_limits_of_a_domain():
    rows = [
        record(kernel=kernel, threads=threads, memory_load_B=load, memory_store_B=store,
               time_min_s=1e-9)
        for kernel, load, store in (("loops.load", 8.0, 0.0), ("loops.triad", 4.5, 1.5))
        for threads in (1, 2)
    ]  # fmt: skip
    assert domain_rates(results(*rows)) == (2, pytest.approx(8), pytest.approx(6))
    # Each of two domains with one core has half; a domain of four cores was measured in part.
    assert domain_rates(results(*rows), 1) == (2, pytest.approx(4), pytest.approx(3))
    assert domain_rates(results(*rows), 4) == (2, pytest.approx(8), pytest.approx(6))
    assert domain_rates(results(*rows[::2])) is None  # one thread only
    quiet = [{**row, "disturbed": True} for row in rows]
    assert domain_rates(results(*quiet)) is None
    model = with_domain(machine(hypotheses(LEVELS)["none"]), 8.0, 6.0, 2, 1)
    memory = model.levels[-1]
    assert memory.domain_load_B == pytest.approx(8 / 2.5)
    triad = 0.75 / memory.domain_load_B + 0.25 / memory.domain_store_B
    assert 2.5 / triad == pytest.approx(6)
    assert (model.cores, model.domains) == (2, 1)
    with refused("too slow for a triad"):
        with_domain(model, 4.0, 6.0, 2, 1)


def test_loops_on_several_cores_are_judged_by_the_limit_of_the_domain():
    found = fit_ecm(measured(machine(hypotheses(LEVELS)["none"])), 2.5)
    single = {row.loop.kernel: row for row in found.rows if row.loop.level == "memory"}

    def on_cores(kernel, cycles, **columns):
        load_B, store_B = (1000 * moved for moved in single[kernel].loop.transfers["memory"])
        # Bytes and time of 1000 vectors.
        return record(
            kernel=kernel, threads=2, memory_load_B=load_B, memory_store_B=store_B,
            time_min_s=1000 * cycles / 2.5e9, **columns,
        )  # fmt: skip

    one = {kernel: row.predicted.cycles for kernel, row in single.items()}
    # Loads scale, so they set no limit for two cores; the triad takes 0.8 of one core's time.
    rows = [
        on_cores("loops.load", one["loops.load"] / 2),
        on_cores("loops.triad", 0.8 * one["loops.triad"]),
        on_cores("loops.copy", one["loops.copy"]),
        on_cores("loops.daxpy", 1.0, disturbed=True),
    ]
    judged = {row.kernel: row for row in judge_cores(found, results(*rows, record()))}
    assert sorted(judged) == ["loops.copy", "loops.daxpy", "loops.load", "loops.triad"]
    assert [judged[kernel].fitted for kernel in sorted(judged)] == [False, False, True, True]
    for kernel in ("loops.load", "loops.triad"):
        assert judged[kernel].ratio() == pytest.approx(1)
    copy = judged["loops.copy"]
    assert copy.cores == 2 and copy.cycles == pytest.approx(one["loops.copy"])
    memory = copy.predicted.model.levels[-1]
    load_B, store_B = single["loops.copy"].loop.transfers["memory"]
    limit = load_B / memory.domain_load_B + store_B / memory.domain_store_B
    least = max(limit, one["loops.copy"] / 2)
    assert copy.ratio() == pytest.approx(one["loops.copy"] / least)
    assert judged["loops.daxpy"].disturbed
    assert judge_cores(found, results(record())) == ()
    # Loads slower than the loads of a triad give no limit.
    slow = [on_cores("loops.load", 9 * one["loops.load"]), rows[1]]
    with refused("are too slow for a triad"):
        judge_cores(found, results(*slow))
