"""The measuring loop: statistics, stop rules, resuming, interruption, bad input."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import json
import math
import os
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from checking import REQUEST, refused
from machines import loads_per_cycle

import memkern as mk
from memkern import _memkern, cli
from memkern.engine import cores, costs, disturbance, sampling, sweeping, variants
from memkern.engine import prepared as prepared_module
from memkern.engine import run as run_module
from memkern.engine import taken as taken_module
from memkern.engine.calibration import Spread
from memkern.engine.costs import launch_cost_s
from memkern.engine.prepared import Prepared
from memkern.engine.record import measurement_of
from memkern.engine.run import CaseRun, environment_of_ranks, measure
from memkern.engine.sampling import Judge, take_samples
from memkern.errors import InputError
from memkern.families.spatter.data import points_of
from memkern.limits import Quota
from memkern.spec.case import Case
from memkern.spec.sequences import product
from memkern.statistics import Prior

SPREAD = Spread(Prior(1e-4, 8.0), Prior(1e-4, 8.0))


@pytest.fixture
def case() -> Case:
    return mk.gather("UNIFORM:8:4:NR", count=512, threads=1, variant="scalar", budget_s=0.2)


def test_a_record_has_what_was_requested_obtained_and_measured(case: Case) -> None:
    measurement = case.with_(pages="4k", pin="0", name="a label").measure()
    record = measurement.record
    assert record["kernel"] == "spatter.gather"
    assert record["name"] == "a label"
    assert record["pattern"] == "UNIFORM:8:4"
    assert record["delta"] == "32"
    assert (record["threads"], record["pin"], record["pin_requested"]) == (1, "0", "0")
    assert (record["pages"], record["pages_requested"]) == ("4k", "4k")
    assert record["variant"] == record["variant_requested"] == "scalar"
    assert record["isa"] in _memkern.supported_isas()
    assert record["valid"] and record["error_max"] == 0
    samples = measurement.samples
    assert record["samples"] == len(samples)
    assert record["time_min_s"] == samples.min()
    assert record["placements"] == 5
    assert samples.min() <= record["time_median_s"] <= samples.max()
    assert record["within_ci_low_s"] <= np.median(samples) <= record["within_ci_high_s"]
    assert record["time_ci_low_s"] <= record["time_median_s"] <= record["time_ci_high_s"]
    assert record["bytes_B"] == 8 * 8 * 512
    assert record["bandwidth_GBps"] == pytest.approx(8 * 8 * 512 / samples.min() / 1e9)
    median_GBps = 8 * 8 * 512 / record["time_median_s"] / 1e9
    assert record["bandwidth_median_GBps"] == pytest.approx(median_GBps)
    assert record["footprint_B"] == 8 * (28 + 32 * 511 + 1) + 8 * 8
    # A sample is far above the clock's resolution.
    sample_s = record["time_min_s"] * record["invocations"]
    assert sample_s > 500 * _memkern.clock_tick()
    assert set(measurement.environment) >= {"machine", "os", "settings", "build", "python"}
    assert "<table" in measurement._repr_html_()


def test_a_fixed_count_is_exactly_the_number_of_samples(case: Case) -> None:
    large = mk.gather("UNIFORM:8:1:NR", count=2**15, threads=1, variant="scalar", runs=7)
    record = large.measure().record
    assert (record["samples"], record["stop"], record["invocations"]) == (7, "runs", 1)
    # One invocation of a tiny case is below the clock's resolution: a sample has several.
    tiny = mk.gather([0], count=1, threads=1, variant="scalar", runs=3).measure().record
    assert tiny["samples"] == 3
    assert tiny["invocations"] > 1


def test_sampling_stops_by_precision(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other processes may correlate real samples so much that they have no interval.
    rng = np.random.default_rng(5)

    def sample(
        prepared: Prepared, judge: Judge, out: np.ndarray, *others: Any, **options: Any
    ) -> None:
        out[:, -len(sampling.CONDITIONS) :] = conditions(1.0)
        out[:, : -len(sampling.CONDITIONS)] = 1e-4 * (1 + rng.exponential(0.1, (len(out), 1)))

    monkeypatch.setattr(sampling, "sample", sample)
    loose = case.with_(ci=0.3, budget_s=30.0).measure().record
    tight = case.with_(ci=0.03, budget_s=30.0).measure().record
    assert loose["stop"] == tight["stop"] == "ci"
    assert loose["samples"] < tight["samples"]


def test_sampling_stops_by_samples_or_budget(case: Case) -> None:
    few = case.with_(ci=1e-9, budget_s=30.0, max_samples=12).measure().record
    assert (few["stop"], few["samples"]) == ("samples", 12)
    brief = case.with_(ci=1e-9, budget_s=1e-6, max_samples=10**6).measure().record
    assert brief["stop"] == "budget"
    assert brief["samples"] >= 1


def test_short_cases_report_the_time_without_the_launch() -> None:
    # A single thread waits for no others: its shortest sample is short on busy machines too.
    short = mk.gather([0, 1], count=2, threads=1, variant="scalar", budget_s=0.1).measure().record
    assert short["time_net_s"] == short["time_min_s"] - short["launch_s"]
    long = mk.gather("UNIFORM:8:1:NR", count=2**16, threads=1, runs=3).measure().record
    assert np.isnan(long["time_net_s"])
    launch_s = launch_cost_s(1, "auto", "fork")
    assert long["launch_s"] == launch_s > 0
    # Its four kernels are launched one by one.
    rotation = mk.stream(elements=64, threads=1, runs=3).measure()
    assert rotation.record["launch_s"] == 4 * launch_s
    assert [part.record["launch_s"] for part in rotation.parts] == [launch_s] * 4
    assert rotation.record["time_net_s"] == rotation.record["time_min_s"] - 4 * launch_s


@pytest.fixture
def new_costs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let costs be measured again, with small caches."""
    monkeypatch.setattr(costs, "last_level_cache_B", lambda: 2**20)
    costs.forget()
    yield
    costs.forget()


@pytest.mark.usefixtures("new_costs")
def test_ceilings_are_the_largest_since_the_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: dict[str, float] = {}

    def best(which: str, rates: Mapping[str, float]) -> dict[str, float]:
        assert which == "1 auto default 1"
        measured.update(rates)
        return {"load": 4 * rates["load"], "triad": 2 * rates["triad"]}

    monkeypatch.setattr(costs.calibration, "best_rates", best)
    found = costs.ceilings_GBps(1, "auto", "default")
    assert found.load_GBps == 4 * measured["load"] > 0
    assert found.triad_GBps == 2 * measured["triad"] > 0
    assert found.ceiling_share == 0.25
    assert found.times(3).load_GBps == 3 * found.load_GBps
    assert found.times(3).ceiling_share == 0.25


@pytest.mark.usefixtures("new_costs")
def test_ceilings_fit_into_a_small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes_B: list[float] = []

    def sized(kernel: str, footprint_B: float, **knobs: Any) -> Case:
        sizes_B.append(footprint_B)
        return mk.case(kernel, footprint_B=2**16, **knobs)

    monkeypatch.setattr(costs, "case", sized)
    monkeypatch.setattr(costs, "memory_left", lambda: (6 * 2**20, "the group"))
    assert costs.ceilings_GBps(1, "auto", "default").load_GBps > 0
    assert sizes_B == [2 * 2**20, 3 * 2**20]
    costs.forget()
    monkeypatch.setattr(costs, "memory_left", lambda: (4 * 2**20, "the group"))
    assert math.isnan(costs.ceilings_GBps(1, "auto", "default").load_GBps)
    assert len(sizes_B) == 2


@pytest.mark.usefixtures("new_costs")
def test_costs_by_disturbed_samples_are_unknown_and_measured_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(costs, "_AGAIN_SHARE", math.inf)
    product = mk.case("spmv.crs", matrix="hpcg:4", threads=1, variant="scalar", runs=3)
    bandwidths = ("load_GBps", "triad_GBps", "store_GBps")
    with monkeypatch.context() as patch:
        patch.setattr(disturbance, "disturbed_samples", lambda share, *_: share == share)
        assert np.isnan(launch_cost_s(0, "none", "fork"))
        with pytest.warns(UserWarning, match="rooflines by the bandwidths beside a record are"):
            record = product.measure().record
        assert all(np.isnan(record[name]) for name in (*bandwidths, "roofline_fraction"))
        assert record["machine_file"] == ""
        assert cli.main(["info"]) == 0
        assert "parallel region takes an unknown time (disturbed)" in capsys.readouterr().out
        assert mk.describe()["launch_s"] is None
    assert launch_cost_s(0, "none", "fork") == launch_cost_s(0, "none", "fork") > 0
    record = product.measure().record
    assert all(record[name] > 0 for name in (*bandwidths, "roofline_fraction"))


def test_costs_by_disturbed_samples_are_not_measured_for_every_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, calls = 0.0, 0
    monkeypatch.setattr(costs, "time", SimpleNamespace(perf_counter=lambda: now_s))

    @costs._kept_if_undisturbed(math.nan)
    def cost_s(disturbed: bool) -> float:
        nonlocal now_s, calls
        calls += 1
        now_s += 1.0
        if disturbed:
            raise costs._DisturbedError
        return 1.0

    assert [cost_s(False) for _ in range(3)] == [1.0] * 3 and calls == 1
    assert all(math.isnan(cost_s(True)) for _ in range(3)) and calls == 2
    # Measuring again takes at most a twentieth of the time.
    now_s = 21.9
    assert math.isnan(cost_s(True)) and calls == 2
    now_s = 22.0
    assert math.isnan(cost_s(True)) and calls == 3
    costs.forget()
    assert math.isnan(cost_s(True)) and cost_s(False) == 1.0 and calls == 5


def test_samples_with_flushed_caches_have_one_invocation() -> None:
    case = mk.gather("UNIFORM:8:8:NR", count=2**12, threads=1, variant="scalar", flush=True, runs=5)
    record = case.measure().record
    assert record["flush"] is True
    assert record["invocations"] == 1


def test_variant_best_selects_a_candidate_and_records_it(case: Case) -> None:
    record = case.with_(variant="best", runs=3).measure().record
    assert record["variant_requested"] == "best"
    assert (record["variant"], record["isa"]) in case.prepare().native.candidates()
    narrow = case.with_(variant="best", isa="baseline", runs=3).measure().record
    assert narrow["isa"] == "baseline"


def test_apply_runs_the_measured_kernel_on_the_callers_values() -> None:
    case = mk.gather([3, 1, 2, 2], delta=4, count=3, wrap=3, threads=1)
    source = np.arange(12, dtype=np.float64) * 1.5
    out = case.apply(sparse=source)
    np.testing.assert_array_equal(
        out["dense"], [4.5, 1.5, 3, 3, 10.5, 7.5, 9, 9, 16.5, 13.5, 15, 15]
    )
    np.testing.assert_array_equal(out["sparse"], source)


@pytest.mark.parametrize(
    "arrays, match",
    [
        ({"sparse": np.zeros(11)}, "shape"),
        ({"sparse": np.zeros(12, dtype=np.float32)}, "float64"),
        ({"sparse": np.zeros((12, 1))}, "shape"),
        ({"sparse": np.zeros(24)[::2]}, "contiguous"),
        ({"nothing": np.zeros(12)}, "nothing"),
    ],
)
def test_apply_refuses_wrong_arrays(arrays: dict[str, np.ndarray], match: str) -> None:
    case = mk.gather([3, 1, 2, 2], delta=4, count=3, threads=1)
    with pytest.raises(InputError, match=match):
        case.apply(**arrays)


def test_the_extension_checks_the_arguments_of_samples_and_values() -> None:
    native = mk.gather([0, 1], delta=2, count=4, threads=1).prepare().native
    rows = np.full((2, 1 + len(sampling.CONDITIONS)), np.nan)
    with pytest.raises(ValueError, match="outside"):
        native.sample(rows, 1, 1.0, parts=[(0, 2), (2, 5)])
    with pytest.raises(ValueError, match="one for each row"):
        native.sample(rows, 1, 1.0, parts=[(0, 2)])
    assert np.isnan(rows).all()
    assert native.sample(rows, 1, 1.0, parts=[(0, 2), (2, 4)]) == 2 and (rows[:, 0] > 0).all()
    for wrong, match in (([("scalar", "baseline")], "one for each"), ([("a", "b")] * 2, "no var")):
        with pytest.raises(ValueError, match=match):
            native.sample(rows, 1, 1.0, candidates=wrong)
    with pytest.raises(ValueError, match="as many values"):
        native.poke("sparse", np.array([0]), np.array([1.0, 2.0]))


def native(**changes: Any) -> Any:
    gather = {
        "kernel": "spatter.gather",
        "index_dtype": "int64",
        "integers": {"count": 4, "wrap": 1, "prefetch": 0},
        "indices": indices(range(4)),
    }
    return _memkern.Prepared(**{**REQUEST, **gather, **changes})


def indices(pattern: Any) -> dict[str, Any]:
    return {"pattern_gather": np.array(pattern), "delta_gather": np.array([4])}


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"kernel": "spatter.nothing"}, "nothing"),
        ({"indices": indices([[0, 1]])}, "one dimension"),
        ({"integers": {}}, "missing"),
        ({"threads": -1}, "threads"),
        ({"pin": "0,x"}, "pin"),
        ({"pages": "8k"}, "8k"),
        ({"numa": "far"}, "far"),
        ({"schedule": "guided"}, "guided"),
        ({"chunk": -1}, "chunk"),
        ({"repetition": "twice"}, "twice"),
    ],
)
def test_the_extension_refuses_bad_input(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        native(**changes)
    assert "\n" not in str(caught.value)


def test_the_extension_copies_the_indices() -> None:
    mine = indices([0, 1, 2, 3])
    prepared = native(indices=mine)
    mine["pattern_gather"][:] = 2**50
    assert prepared.run(1) > 0
    np.testing.assert_array_equal(prepared.copy_out("dense"), prepared.copy_out("sparse")[12:])


def test_the_identity_depends_on_inputs_and_options_alone(case: Case) -> None:
    assert case.identity() == case.with_(name="other").identity()
    changes: list[dict[str, Any]] = [
        {"threads": 2}, {"pages": "4k"}, {"variant": "auto"}, {"dtype": "float32"},
        {"index_dtype": "int32"}, {"runs": 3}, {"prefetch": 1}, {"chunk": 8}, {"invocations": 7},
        {"repetition": "free"}, {"flush": True}, {"schedule": "dynamic"}, {"pin": "compact"},
    ]  # fmt: skip
    seen = {case.identity()} | {case.with_(**change).identity() for change in changes}
    assert len(seen) == len(changes) + 1
    for longer in ({"ci": 0.5}, {"budget_s": 9.0}, {"placements": 7}, {"max_samples": 9}):
        assert case.with_(**longer).identity() == case.identity()
    other = mk.gather([0, 4, 8, 12, 16, 20, 24, 29], delta=32, count=512)
    same = mk.gather([0, 4, 8, 12, 16, 20, 24, 28], delta=32, count=512)
    assert other.identity() != same.identity()
    with pytest.raises(InputError, match="no knob 'colour'"):
        case.with_(colour="red")


@pytest.mark.parametrize(
    "options, match",
    [
        ({"prefetch": True}, "prefetch"),
        ({"dtype": "float16"}, "dtype"),
        ({"index_dtype": "int16"}, "index_dtype"),
        ({"count": 0}, "count"),
        ({"count": 2.5}, "count"),
        ({"count": 2**61}, "count"),
        ({"delta": 2**59, "count": 2**40}, "2\\*\\*60"),
        ({"delta": []}, "delta"),
        ({"delta": [1.5]}, "delta"),
        ({"wrap": 0}, "wrap"),
    ],
)
def test_cases_refuse_bad_input(options: dict[str, Any], match: str) -> None:
    with refused(match):
        mk.gather([0, 1], **{"count": 4, **options})


def test_kernels_need_their_own_patterns() -> None:
    from memkern.families.spatter import kernels as spatter

    with pytest.raises(InputError, match="needs pattern_scatter"):
        spatter.case("gs", pattern_gather=[0, 1])
    with pytest.raises(InputError, match="'scan'"):
        spatter.case("scan", pattern=[0])
    with pytest.raises(InputError, match="as many of both"):
        mk.gs([0, 1], [0, 1, 2]).prepare()
    with pytest.raises(InputError, match="outside"):
        mk.multigather([0, 1], [2]).measure()


def test_sweep_stores_every_case_and_resumes(tmp_path: Path, case: Case) -> None:
    cases = mk.vary(case.with_(runs=3), pages=["4k", "default"], threads=[1, 2])
    path = tmp_path / "out.db"
    seen: list[str] = []
    results = mk.sweep(
        cases[:2], output=path, progress=False, on_result=lambda m: seen.append(m.record["case_id"])
    )
    assert len(results) == len(seen) == 2
    with pytest.raises(InputError, match="--resume"):
        mk.sweep(cases, output=path, progress=False)
    more = mk.sweep(
        cases,
        output=path,
        progress=False,
        resume=True,
        on_result=lambda m: seen.append(m.record["case_id"]),
    )
    assert [r["case_id"] for r in more] == seen == [c.identity() for c in cases]
    loaded = mk.load(path)
    assert [r["bandwidth_GBps"] for r in loaded] == [r["bandwidth_GBps"] for r in more]


def test_a_kept_record_of_a_smaller_budget_is_told(tmp_path: Path, case: Case) -> None:
    path = tmp_path / "x.json"
    mk.sweep([case.with_(budget_s=0.5)], output=path, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mk.sweep([case.with_(budget_s=0.5)], output=path, resume=True, progress=False)
        mk.sweep([case.with_(budget_s=0.1)], output=path, resume=True, progress=False)
    with pytest.warns(UserWarning, match="1 kept measurement had a smaller budget"):
        kept = mk.sweep([case.with_(budget_s=3.0)], output=path, resume=True, progress=False)
    assert [record["budget_s"] for record in kept] == [0.5]


@pytest.mark.parametrize("cases", [list, iter])
def test_every_repeat_is_measured(case: Case, cases: Any) -> None:
    results = mk.sweep(cases([case.with_(runs=3)]), repeats=3, progress=False)
    assert [record["repeat"] for record in results] == [0, 1, 2]
    assert len({record["case_id"] for record in results}) == 1


def test_interrupt_keeps_the_samples_taken(
    tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ctrl-C while the extension takes samples. A tight target does not suffice: with a coarse
    # clock all samples may be equal, and their interval has no width.
    endless = case.with_(ci=0.5, budget_s=60.0, max_samples=10**6, prefetch=1)
    path = tmp_path / "out.db"
    sample = sampling.sample

    def interrupted(prepared: Any, judge: Any, out: Any, *how: Any) -> None:
        ended = threading.Event()

        def interrupt() -> None:
            # After the first sample, which may take long on a busy machine.
            while np.isnan(out[0, 0]) and not ended.wait(0.001):
                pass
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            sample(prepared, judge, out, *how)
        finally:
            ended.set()
            thread.join()

    with warnings.catch_warnings(record=True) as caught, monkeypatch.context() as patch:
        warnings.simplefilter("always")
        patch.setattr(mk.statistics.StopRule, "next_count", lambda *_: 10**6)
        patch.setattr(sampling, "sample", interrupted)
        results = mk.sweep([endless, case], output=path, progress=False, order="declared")
    assert [record["stop"] for record in results] == ["interrupted"]
    assert 0 < results.records[0]["samples"] == len(results.samples[0]) < 10**6
    assert any("0 of 2" in str(w.message) for w in caught)
    # The interrupted case is measured again.
    again = mk.sweep([endless, case], output=path, resume=True, progress=False)
    assert len(again) == 2
    assert "interrupted" not in {record["stop"] for record in again}


def test_tune_records_the_whole_search(case: Case) -> None:
    best, search = mk.tune(
        case.with_(variant="best"), budget_s=3.0, knobs={"prefetch": [0, 2], "chunk": [0, 8]}
    )
    steps = [record["tune_step"] for record in search]
    assert steps[-1] == "best"
    assert set(steps) <= {"variant", "prefetch", "chunk", "best"}
    assert steps.count("variant") >= 3
    final = search.records[-1]
    assert final["variant_requested"] == best.knobs.variant
    keys = ("variant", "isa", "prefetch", "chunk")
    tried = {tuple(record[key] for key in keys) for record in search.records[:-1]}
    assert tuple(getattr(best.knobs, key) for key in keys) in tried


def test_threads_may_measure_at_once() -> None:
    prepared = [mk.gather([0, 1], count=64, threads=2).prepare() for _ in range(2)]
    done: list[float] = []
    workers = [
        threading.Thread(target=lambda p=p: done.append(sum(p.run(5) for _ in range(20))))
        for p in prepared
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(done) == 2


def test_elements_are_set_and_read_while_others_measure() -> None:
    case = mk.gather("UNIFORM:8:1:NR", count=64, threads=1, variant="scalar")
    native = case.prepare().native
    positions = np.arange(512)

    def values_seen(value: float) -> set[int]:
        seen = set()
        for _ in range(50):
            native.poke("sparse", positions, np.full(512, value))
            seen.add(len(set(native.peek("sparse", positions).tolist())))
        return seen

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        # Calls are atomic: values of two threads never mix.
        assert list(pool.map(values_seen, map(float, range(4)))) == [{1}] * 4


@pytest.mark.parametrize("repetition", ["fork", "barrier"])
def test_samples_start_when_they_are_told_to(case: Case, repetition: str) -> None:
    native = case.with_(repetition=repetition).prepare().native
    rows, calls = np.full((10, 1 + len(sampling.CONDITIONS)), np.nan), []

    def start() -> bool:
        calls.append((~np.isnan(rows[:, 0])).sum())
        return len(calls) < 4

    # `start` decides, although the deadline is past.
    assert native.sample(rows, 1, 0.0, start) == 3
    assert calls == [0, 1, 2, 3]
    assert (rows[:3, 0] > 0).all() and np.isnan(rows[3:]).all()


def test_an_error_at_the_start_of_a_sample_ends_sampling(case: Case) -> None:
    native = case.prepare().native
    rows, starts = np.full((4, 1 + len(sampling.CONDITIONS)), np.nan), iter([True, True])

    def interrupted() -> bool:
        if next(starts, False):
            return True
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        native.sample(rows, 1, 1.0, interrupted)
    assert (rows[:2, 0] > 0).all() and np.isnan(rows[2:]).all()
    with pytest.raises(RuntimeError, match="cast"):
        native.sample(rows, 1, 1.0, lambda: "yes")
    # The case can still be sampled.
    assert native.sample(rows, 1, 1.0) == 4


@pytest.mark.parametrize("probes", [True, False])
def test_samples_without_probes_have_no_conditions(case: Case, probes: bool) -> None:
    rows = np.full((3, 1 + len(sampling.CONDITIONS)), np.nan)
    assert case.prepare().native.sample(rows, 1, 1.0, probes=probes) == 3
    assert (rows[:, 0] > 0).all()
    assert np.isnan(rows[:, 1:4]).all() != probes


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


def test_each_variant_has_samples_of_the_same_length(monkeypatch: pytest.MonkeyPatch) -> None:
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
    repetition: str, begin_s: float, least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_memkern, "clock_tick", lambda: 2e-8)
    case = mk.loops("load", elements=64, variant="scalar", threads=1, repetition=repetition)
    prepared = with_times(case.prepare(), begin_s, {"scalar": 5e-8})
    assert least <= prepared.invocations <= most


def conditions(share: float, exchange_s: float = math.nan) -> list[float]:
    """Return the conditions of a sample whose workers ran for a share of the time."""
    found = dict.fromkeys(sampling.CONDITIONS, 0.0)
    found |= {"cpu_share": share, "waited_share": 1 - share, "throughput": loads_per_cycle()}
    found |= {"clock_Hz": 3e9, "memory_s": 1e-7}
    found |= dict.fromkeys(("exchange_s", "exchange_least_s"), exchange_s)
    return list(found.values())


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
    case: Case, shares: list[float], untimed_s: float = 0.0, far: Sequence[int] = ()
) -> Prepared:
    prepared = case.prepare()
    prepared.native = Scripted(shares, untimed_s, far)  # type: ignore[assignment]
    prepared.invocations = 1
    return prepared


@pytest.mark.usefixtures("disturbances")
def test_warming_up_the_caches_leaves_the_budget_for_samples(case: Case) -> None:
    # With 21 of 40 samples disturbed, more are taken within twice the budget.
    how = {"runs": None, "ci": 0.5, "placements": 1, "budget_s": 0.25}
    samples = take_samples(scripted(case.with_(**how), [0.5] * 20, untimed_s=0.6))
    assert not samples.disturbed and samples.taken >= 40


@pytest.mark.usefixtures("disturbances", "machine")
def test_disturbed_samples_are_taken_again(case: Case) -> None:
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
def test_more_samples_are_taken_where_workers_waited_in_most(case: Case) -> None:
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
def test_samples_that_a_quota_has_to_stop_count(
    case: Case, monkeypatch: pytest.MonkeyPatch, period_s: float, stopped_s: float, rejected: int
) -> None:
    quota = Quota(0.5, period_s * 99)  # scripted cases have 99 threads
    monkeypatch.setattr(sampling, "limiting_quota", lambda: quota)
    clock = itertools.count()
    monkeypatch.setattr(sampling, "throttled_s", lambda: stopped_s * next(clock))
    samples = take_samples(scripted(case.with_(runs=5, budget_s=1e-9), [0.2] * 20))
    assert samples.rejected == min(rejected, samples.taken) and samples.disturbed == bool(rejected)
    assert samples.throttled_share > 0
    assert samples.seconds[:, 0] == pytest.approx([5e-3] * 5)


@pytest.mark.usefixtures("disturbances")
def test_without_a_quota_nothing_is_throttled(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "limiting_quota", lambda: None)
    assert math.isnan(take_samples(scripted(case, [])).throttled_share)


@pytest.mark.usefixtures("disturbances")
def test_a_narrow_interval_is_not_enough_where_workers_waited_in_most(case: Case) -> None:
    how = {"runs": None, "ci": 0.5, "placements": 1}
    samples = take_samples(scripted(case.with_(budget_s=1.0, **how), [0.5] * 30))
    assert not samples.disturbed and samples.stop == "ci"
    assert samples.taken >= 62
    few = scripted(case.with_(budget_s=1e-9, **how), [0.5] * 20 + [1.0] * 10)
    assert take_samples(few).disturbed


def placed_in_states(
    monkeypatch: pytest.MonkeyPatch, case: Case, far: Sequence[int], quiet: bool = False
) -> CaseRun:
    """Return a run of one placement, with the samples `far` in a state of slow exchanges."""
    obtained = {"threads": 2, "pin": "0,1"}
    bins = {math.floor(math.log(rate) / 0.01): 500 for rate in (1 / 5e-8, 1 / 2e-7)}
    known = disturbance.Cores({cores.exchanging_units(obtained): bins})
    monkeypatch.setattr(run_module, "modes_beside", lambda _: cores.modes_beside(obtained))
    for module in (cores, taken_module, sampling):
        monkeypatch.setattr(module, "cores", lambda: known)
    run = CaseRun(case.with_(placements=1))
    placement = run.place()
    prepared = scripted(run.case, [], far=far)
    monkeypatch.setattr(Scripted, "obtained", lambda _: {**placement.obtained, **obtained})
    samples = take_samples(prepared)
    both = {**placement.obtained, **obtained}
    run.placements[0] = dataclasses.replace(placement, samples=samples, obtained=both, others=())
    run._taken = None
    return run


@pytest.mark.usefixtures("disturbances")
def test_samples_of_the_most_frequent_state_count(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_all_samples_count_where_no_state_has_enough(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = placed_in_states(monkeypatch, case.with_(runs=12), far=range(7))
    record = run.measurement(environment_of_ranks(), spread=SPREAD).record
    assert record["samples"] == 12 and record["time_min_s"] == 1e-3
    assert all(state["counts"] for state in json.loads(record["states"]))
    assert run.class_of(environment_of_ranks()).endswith(", mixed states")


@pytest.mark.usefixtures("disturbances")
def test_one_state_at_its_best_is_quiet(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    how = {"runs": None, "ci": 1e-9, "max_samples": 100}
    run = placed_in_states(monkeypatch, case.with_(**how), far=range(2))
    assert run.taken.quiet and not run.taken.mixed
    assert run.class_of(environment_of_ranks()).endswith("threads")
    # Exchanges of lines take four times the shortest time.
    run = placed_in_states(monkeypatch, case.with_(**how), far=range(100))
    assert not run.taken.quiet and not run.taken.mixed


def test_programs_beside_a_case_make_a_class_of_their_own(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CaseRun(case.with_(runs=5, placements=1))
    placement = run.place()
    assert run.class_of(environment_of_ranks()).endswith("thread")
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
def test_a_host_that_takes_time_or_throughput_is_shared(
    case: Case, monkeypatch: pytest.MonkeyPatch, changes: dict[str, float]
) -> None:
    best = loads_per_cycle() * np.linspace(0.99, 1.0, 200)
    run = CaseRun(case.with_(runs=5, placements=1))
    placement = run.place()
    cores.cores().add(best, cores.cores_at_work(placement.obtained))
    monkeypatch.setattr(run_module, "modes_beside", lambda _: [])
    quiet = {"waited_share": 0.0, "absent_share": 0.0, "throughput": loads_per_cycle()}
    for change, expected in (({}, True), (changes, False)):
        samples = dataclasses.replace(placement.samples, **quiet | change)
        run.placements[0] = dataclasses.replace(placement, samples=samples, others=())
        run._taken = None
        assert run.taken.quiet is expected
        record = run.measurement(environment_of_ranks(), spread=SPREAD).record
        assert record["state"] == ("quiet" if expected else "shared")


@pytest.mark.usefixtures("disturbances")
def test_a_disturbed_result_has_the_samples_with_most_processor_time(case: Case) -> None:
    prepared = scripted(case.with_(runs=2, budget_s=0.1), [0.5, 0.6, 0.8, 0.7] * 10**5)
    samples = take_samples(prepared)
    assert samples.disturbed and samples.rejected == samples.taken >= 2
    assert samples.seconds[:, 0].tolist() == [1e-3 / 0.8] * 2


def test_the_worst_conditions_of_all_ranks_count(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_placements_share_the_samples(case: Case) -> None:
    record = case.with_(runs=12, placements=5).measure().record
    assert record["samples"] == 12
    assert case.with_(runs=3, placements=5).placements == 3
    assert case.placements == 5
    assert case.with_(runs=3).placements == 1
    with pytest.raises(InputError, match="placements"):
        case.with_(placements=-1)


def endless(placements: int) -> list[Case]:
    """Return cases that end only by the time limit of their sweep."""
    cases = [mk.gather([0, 1], count=n, threads=1, variant="scalar") for n in (64, 65, 66)]
    how = {"runs": None, "ci": 1e-12, "budget_s": 1e6, "max_samples": 10**7}
    return [case.with_(placements=placements, **how) for case in cases]


def test_a_sweep_divides_its_time_among_its_cases(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results = mk.sweep(endless(placements=2), time_s=2.0, output=path, progress=False)
    assert [record["stop"] for record in results] == ["budget"] * 3
    assert not results.interrupted
    again = mk.sweep(endless(placements=2), output=path, resume=True, progress=False)
    assert [record["started"] for record in again] == [record["started"] for record in results]


def test_a_sweep_leaves_out_what_it_has_no_time_for(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    with pytest.warns(UserWarning, match="3 of 3 measurements are left out: 1e-09 s were too few"):
        none = mk.sweep(endless(placements=50), time_s=1e-9, output=path, progress=False)
    assert (len(none), none.left_out) == (0, 3)
    few = mk.sweep(endless(placements=2), time_s=2.0, output=path, resume=True, progress=False)
    assert (len(few), few.left_out) == (3, 0)
    with pytest.raises(InputError, match="time_s must be a positive"):
        mk.sweep(endless(placements=1), time_s=0.0)


def test_a_sweep_without_time_left_generates_no_more_cases(case: Case) -> None:
    more = product(case.with_, {"offset": range(0, 8 * 10**8, 8)})
    with pytest.warns(UserWarning, match="100000000 of 100000000 measurements are left out"):
        assert len(mk.sweep(more, time_s=1e-9, progress=False)) == 0


def test_the_time_of_a_placement_excludes_the_choice_of_a_variant(
    monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    def slow(prepared: Any, candidates: list[Any]) -> tuple[Any, str]:
        time.sleep(0.3)
        return candidates[0], "trial"

    monkeypatch.setattr(variants, "fastest", slow)
    several = CaseRun(case.with_(variant="best", runs=None, budget_s=0.01, placements=2))
    first, second = several.place(), several.place()
    assert 0 < first.again_s < first.wall_s - 0.3
    assert 0 < second.again_s < second.wall_s


def test_rounds_of_a_sweep_follow_the_recorded_order(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed: list[int] = []
    place = CaseRun.place

    def noted(run: CaseRun) -> Any:
        placed.append(run.case.integers["count"])
        return place(run)

    monkeypatch.setattr(CaseRun, "place", noted)
    counts = list(range(64, 70))
    cases = [mk.gather([0, 1], count=n, threads=1, variant="scalar", runs=None) for n in counts]
    brief = [c.with_(budget_s=0.001, max_samples=10, placements=3) for c in cases]
    orders = []
    for _ in range(2):
        placed.clear()
        results = mk.sweep((c for c in brief), progress=False, order_seed=7)
        assert [record["count"] for record in results] == counts  # in the declared order
        rounds = [placed[k : k + 6] for k in range(0, 18, 6)]
        assert [sorted(r) for r in rounds] == [counts] * 3
        assert len({tuple(r) for r in rounds}) > 1
        assert {record["case_order_seed"] for record in results} == {7}
        assert {record["case_order"] for record in results} == {"random"}
        orders.append(list(placed))
    assert orders[0] == orders[1]
    placed.clear()
    results = mk.sweep(brief, progress=False, order="declared")
    assert placed == counts * 3
    assert {record["case_order_seed"] for record in results} == {None}
    with pytest.raises(InputError, match="order 'backwards' is not"):
        mk.sweep(brief, order="backwards")


@pytest.mark.parametrize("stored", [True, False])
def test_records_are_made_once_and_get_intervals_by_other_cases(
    case: Case, stored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def counted(taken: Any, *how: Any, **named: Any) -> mk.Measurement:
        made.append(taken.case_id)
        return measurement_of(taken, *how, **named)

    def uncertain(runs: Sequence[CaseRun], machine: dict[str, Any]) -> dict[str, Any]:
        wide = Prior(1.0, 100.0)
        return {run.class_of(machine): Spread(wide, wide, wide) for run in runs}

    monkeypatch.setattr("memkern.engine.run.measurement_of", counted)
    monkeypatch.setattr(sweeping, "_spreads", uncertain)
    cases = [case.with_(seed=n, runs=None, max_samples=30, placements=3) for n in range(3)]
    output = tmp_path / "x.json" if stored else None
    results = mk.sweep(cases, output=output, progress=False)
    assert sorted(made) == sorted(one.identity() for one in cases)
    assert all(record["ci_relative"] > 0.3 and record["placements"] == 3 for record in results)
    if output is not None:
        assert mk.load(output) == results


@pytest.mark.parametrize("equal", [False, True])
def test_tuning_judges_by_ratios_within_rounds(
    case: Case, monkeypatch: pytest.MonkeyPatch, equal: bool
) -> None:
    """The host is slower in each round; medians decide if the shortest times are equal."""

    def scripted(case: Case, *args: Any, repeat: int = 0, **options: Any) -> mk.Measurement:
        measurement = measure(case, *args, repeat=repeat, **options)
        shortest = {0: 3.0, 2: 1.0, 4: 1.001 if equal else 1.2}[case.knobs.prefetch]
        if case.knobs.prefetch == 0 and repeat == 0:
            shortest = 0.5  # in the first round only
        median = {0: 4.0, 2: 2.0, 4: 1.5}[case.knobs.prefetch]
        times = {"time_min_s": shortest * 5**repeat, "time_median_s": median * 5**repeat}
        disturbed = {"disturbed": case.knobs.prefetch == 2}
        record = {**measurement.record, **times, **disturbed}
        return dataclasses.replace(measurement, record=record)

    monkeypatch.setattr("memkern.studies.tune.measure", scripted)
    monkeypatch.setattr("memkern.studies.tune.time", SimpleNamespace(perf_counter=lambda: 0.0))
    best, search = mk.tune(case, budget_s=2.0, knobs={"prefetch": [0, 2, 4]})
    assert best.knobs.prefetch == (4 if equal else 2)
    trials = [(r["repeat"], r["prefetch"]) for r in search if r["tune_step"] == "prefetch"]
    assert sorted(trials) == [(turn, value) for turn in range(3) for value in (0, 2, 4)]
    assert [turn for turn, _ in trials] == sorted(turn for turn, _ in trials)


def test_tuning_leaves_out_what_is_wrong_or_refused(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scripted(case: Case, *args: Any, **options: Any) -> mk.Measurement:
        if case.knobs.prefetch == 4:
            raise MemoryError
        measurement = measure(case, *args, **options)
        wrong = {"valid": False, "time_min_s": 1e-9, "time_median_s": 1e-9}
        record = {**measurement.record, **(wrong if case.knobs.prefetch == 2 else {})}
        return dataclasses.replace(measurement, record=record)

    monkeypatch.setattr("memkern.studies.tune.measure", scripted)
    best, search = mk.tune(case, budget_s=2.0, knobs={"prefetch": [8, 2, 4]})
    assert best.knobs.prefetch in (0, 8)
    assert {record["prefetch"] for record in search} == {0, 2, 8}


def test_more_threads_than_processing_units_give_a_warning(case: Case) -> None:
    units = len(_memkern.topology()["units"])
    with pytest.warns(UserWarning, match=f"{units + 1} threads take turns on {units} processing"):
        case.with_(threads=units + 1).prepare()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        case.with_(threads=units).prepare()


def scripted_trials(
    monkeypatch: pytest.MonkeyPatch, seconds: Callable[[str, int], tuple[float, float]]
) -> Counter[str]:
    """Let samples have the time and the processor share given for a variant's n-th round."""
    calls: Counter[str] = Counter()

    def sample(
        prepared: Prepared, judge: Judge, out: np.ndarray, *others: Any, **options: Any
    ) -> None:
        candidates = options.get("candidates") or [(prepared.obtained["variant"],)] * len(out)
        names = [variant for variant, *_ in candidates]
        found = {variant: seconds(variant, calls[variant]) for variant in dict.fromkeys(names)}
        calls.update(found.keys())
        for row, variant in zip(out, names, strict=True):
            time_s, share = found[variant]
            row[-len(sampling.CONDITIONS) :] = conditions(share)
            row[: -len(sampling.CONDITIONS)] = time_s

    monkeypatch.setattr(sampling, "sample", sample)
    return calls


# Trials of whole invocations, of parts and then whole invocations, and of parts only.
@pytest.mark.parametrize("trial_s", [100.0, 1e-4, 1e-9])
@pytest.mark.usefixtures("disturbances", "machine")
def test_trials_of_all_lengths_are_judged_within_rounds(
    monkeypatch: pytest.MonkeyPatch, trial_s: float
) -> None:
    monkeypatch.setattr(variants, "_TRIAL_S", trial_s)
    case = mk.stream("copy", elements=2**21, threads=1)

    # All variants take 250 times as long from the second round on: no ratio changes.
    scripted_trials(
        monkeypatch, lambda variant, n: ((2 - (variant == "scalar")) * 4e-3 ** (n < 1), 1.0)
    )
    prepared = case.prepare()
    assert (prepared.obtained["variant"], prepared.how) == ("scalar", "trial")

    # Samples count if all of them are disturbed.
    scripted_trials(monkeypatch, lambda variant, _: (2e-3 - 1e-3 * (variant == "scalar"), 0.1))
    prepared = case.prepare()
    assert (prepared.obtained["variant"], prepared.how) == ("scalar", "trial")


@pytest.mark.usefixtures("disturbances")
def test_more_rounds_are_tried_while_two_candidates_are_not_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(variants, "_TRIAL_S", 0.25)
    case = mk.stream("copy", elements=2**14, threads=1, isa="baseline")
    rng = np.random.default_rng(3)
    every = {"scalar": 2e-3, "auto": 1.02e-3, "nt": 1e-3}

    def noisy(variant: str, _: int) -> tuple[float, float]:
        return every[variant] * rng.lognormal(0, 0.03), 1.0

    calls = scripted_trials(monkeypatch, noisy)
    prepared = case.prepare()
    assert prepared.obtained["variant"] in ("auto", "nt")
    # A difference of 2 % needs more rounds than excluding the third candidate.
    assert calls["scalar"] <= 3 < min(calls["auto"], calls["nt"])
    assert 0 <= prepared.loss <= 0.05

    calls = scripted_trials(monkeypatch, lambda variant, _: (every[variant], 1.0))
    prepared = case.prepare()
    assert (prepared.obtained["variant"], prepared.loss) == ("nt", 0.0)
    assert calls["nt"] == 3
    record = case.with_(runs=3).measure().record
    assert (record["variant"], record["variant_choice"]) == ("nt", "trial")
    assert record["variant_loss"] == 0.0


def test_each_sample_of_a_round_is_of_its_candidate() -> None:
    prepared = mk.stream("copy", elements=64, threads=1, isa="baseline").prepare()
    rows = np.full((3, 1 + len(sampling.CONDITIONS)), np.nan)
    every = [("scalar", "baseline"), ("auto", "baseline"), ("scalar", "baseline")]
    assert prepared.native.sample(rows, 1, 1.0, candidates=every) == 3
    assert prepared.obtained["variant"] == "scalar"
    prepared.native.sample(rows[:2], 1, 1.0, candidates=every[:2])
    assert prepared.obtained["variant"] == "auto"


@pytest.mark.usefixtures("disturbances")
def test_each_candidate_has_a_sample_after_the_deadline() -> None:
    case = mk.stream("copy", elements=64, threads=1, isa="baseline")
    prepared = case.prepare()
    trials = variants._Trials(prepared)
    prepared.deadline = 0.0
    candidates = prepared.candidates
    assert len(candidates) > 1
    found = trials._round(candidates, 2)
    assert [*found] == ["/".join(one) for one in candidates]
    assert all(map(math.isfinite, found.values()))


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([(9.0, 0), (1.0, 0), (2.0, 0), (3.0, 0), (4.0, 0)], 1.75),
        ([(9.0, 0), (2.0, 1), (4.0, 0), (3.0, 0)], 3.25),  # disturbed samples do not count
        ([(9.0, 0), (2.0, 1), (4.0, 1)], 2.5),  # unless all are disturbed
        ([(9.0, 0), (math.inf, 0), (math.inf, 0)], 9.0),  # only the first sample was taken
        ([(9.0, 0), (5.0, 0), (5.0, 0)], 5.0),
    ],
)
def test_candidates_are_judged_by_the_lower_quartile(
    taken: list[tuple[float, float]], expected: float
) -> None:
    assert variants._lower_quartile(taken) == expected


def test_a_single_candidate_loses_nothing(case: Case) -> None:
    record = case.measure().record
    assert record["variant_choice"] == "requested" and math.isnan(record["variant_loss"])
    assert variants.fastest(case.prepare(), [("scalar", "baseline")])[1] == 0.0


@pytest.mark.usefixtures("disturbances")
def test_the_loss_by_a_wrong_choice_follows_from_the_rounds(case: Case) -> None:
    trials = variants._Trials(case.prepare())
    first, second = ("simd", "avx2"), ("auto", "avx2")
    assert math.isnan(trials.loss([first, second]))
    names = ["/".join(one) for one in (first, second)]
    trials._rounds = [dict(zip(names, (0.0, gain), strict=True)) for gain in (0.01, 0.03, 0.02)]
    trials._rounds.append({names[0]: 0.0})  # the second candidate was not tried
    # The one-sided 95 % quantile of Student's t with two degrees of freedom is 2.92.
    expected = -math.expm1(0.02 - 2.92 * 0.01 / math.sqrt(3))
    assert trials.loss([first, second]) == pytest.approx(max(expected, 0.0), abs=1e-4)
    assert trials.loss([second, first]) == pytest.approx(
        -math.expm1(-0.02 - 2.92 * 0.01 / math.sqrt(3)), abs=1e-4
    )


@pytest.mark.parametrize("suffix", ["", ".db", ".csv"])
def test_duplicate_cases_are_measured_once_with_a_warning(tmp_path: Path, suffix: str) -> None:
    one, other = (mk.stream("copy", elements=n, threads=1, runs=1) for n in (64, 128))
    cases = [one, other, one.with_(name="again"), other, one]
    output = tmp_path / f"x{suffix}" if suffix else None
    with pytest.warns(UserWarning, match="6 of the cases repeat an earlier one"):
        results = mk.sweep(iter(cases), repeats=2, output=output)
    assert sorted((r["elements"], r["repeat"]) for r in results) == [
        (64, 0), (64, 1), (128, 0), (128, 1),
    ]  # fmt: skip
    if output is not None:
        # Cases measured by an earlier run are not duplicates.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(mk.sweep([one, other], repeats=2, output=output, resume=True)) == 4


def test_idle_threads_are_named_and_counted() -> None:
    one = mk.gather("UNIFORM:8:1", count=1, threads=2, runs=1)
    with pytest.warns(
        UserWarning, match=r"1 of 2 threads are idle, since spatter\.gather has only"
    ):
        prepared_module._warn_once.cache_clear()
        record = one.measure().record
    assert (record["threads"], record["working_threads"]) == (2, 1)
    several = mk.gather("UNIFORM:8:1", count=8, threads=2, runs=1).measure().record
    assert several["working_threads"] == 2
    results = mk.sweep([one, one.with_(threads=1)])
    points, notes = points_of(results)
    assert points[points["own"]]["threads"].tolist() == [1.0]
    assert any("1 record with idle threads left out." in note for note in notes)


def test_values_of_the_caller_are_checked() -> None:
    with pytest.raises(InputError, match=r"invocations must be an integer, not 1\.5"):
        mk.stream("copy", elements=64, threads=1).prepare().run(1.5)
    masked = np.ma.masked_array([0, 1, 2], mask=[False, True, False])
    with pytest.raises(InputError, match="has masked values"):
        mk.gather(masked)
    with pytest.raises(InputError, match="array 'a' has masked values"):
        mk.apply(mk.stream("copy", elements=3, threads=1), a=masked.astype(np.float64))
