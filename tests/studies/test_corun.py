"""Cases alone and beside neighbours: units, processes, records, errors."""

import dataclasses
import itertools
import os
import pickle
import signal
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from checking import interrupt, refused
from machines import MACHINES, PROCESSORS, described

import memkern as mk
from memkern import _memkern
from memkern.engine.recording.taken import Measurement
from memkern.engine.sampling import activity as cores
from memkern.engine.sampling.activity import Neighbour
from memkern.engine.sampling.prepared import Choice
from memkern.host import capacity
from memkern.machine import topology
from memkern.spec.case import Case
from memkern.spec.columns import COLUMNS
from memkern.spec.registry import _registry, register
from memkern.studies import corun, neighbour
from memkern.studies.workers import WorkerProcess

# Neighbours are other processes.
pytestmark = pytest.mark.usefixtures("this_machine")
UNITS = PROCESSORS
TWO_UNITS = pytest.mark.skipif(len(UNITS) < 2, reason="a neighbour needs a unit of its own")
SIDES = (UNITS[:1], UNITS[1:2])


def cases() -> list[Case]:
    return [
        mk.loops("load", elements=4096, threads=1, variant="scalar"),
        mk.latency(2**16),
    ]


def beside(units: Any) -> None:
    mk.corun(cases(), units=units)


def test_sides_share_every_cache_and_node():
    # Two nodes with three cores each, of two hardware threads.
    cores = [[0, 6], [1, 7], [2, 8], [3, 9], [4, 10], [5, 11]]
    first, second = corun.halves(cores)
    assert (first, second) == ([0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11])
    # Both sides have cores of both nodes, and no core is on both sides.
    for side in (first, second):
        assert {unit % 6 // 3 for unit in side} == {0, 1}
    assert not {unit % 6 for unit in first} & {unit % 6 for unit in second}
    # Efficiency cores have one hardware thread; an odd core is left out.
    assert corun.halves([[0, 1], [2, 3], [4], [5], [6]]) == ([0, 4, 1], [2, 5, 3])


def test_hardware_threads_of_a_core_are_found(machine):
    cores = topology.physical_cores()
    assert sorted(itertools.chain(*cores)) == sorted(os.sched_getaffinity(0))
    assert len(cores) == _memkern.topology()["cores"]
    assert {len(units) for units in cores} == {2 if machine.topology.endswith("pu:2") else 1}


def test_units_are_read():
    assert corun.read_units("0-3:4,6-7") == ([0, 1, 2, 3], [4, 6, 7])


FORM = "units are two lists of processing units, such as 0-3:4-7"
WRONG = ("", "0", "0:", ":1", "0:1:2", "0-:1", "a:b", "0 : 1", "0:-1", "٣:1")


@pytest.mark.parametrize(
    ("use", "units", "culprit"),
    [
        *((corun.read_units, text, FORM) for text in WRONG),
        (corun.halves, [[5]], "two processing units, and this process may use one"),
        (corun.halves, [], "two processing units"),
        (corun.halves, [[3, 7]], "two cores, .* --units 3:7"),
        (beside, ([UNITS[0]], [UNITS[0]]), f"processing unit {UNITS[0]} twice"),
        (beside, ([UNITS[0]], [70000]), "processing unit 70000, which this process may not use"),
        (beside, ([UNITS[0]], []), "at least one processing unit on each side"),
    ],
)
def test_wrong_units_are_refused(use, units, culprit):
    with refused(culprit):
        use(units)


@TWO_UNITS
@pytest.mark.parametrize(
    ("given", "options", "culprit"),
    [
        (lambda: [], {}, "at least one case"),
        (lambda: [mk.loops("load", 64)] * 2, {}, "two cases are called loops.load"),
        (lambda: [mk.loops("load", 64, device="cuda")], {}, "loops.load runs on cuda:0"),
        (lambda: [mk.loops("load", 64, pin="0")], {}, "loops.load has pin '0'"),
        (
            lambda: [mk.loops("load", 64, threads=3)],
            {},
            "3 threads, and its side 1 processing unit",
        ),
        (lambda: [mk.stream("rotation", 64)], {}, "stream.rotation can't be a neighbour"),
        (lambda: [mk.loops("load", 64, variant="magic")], {}, "no variant 'magic'"),
        (cases, {"turns": 1}, "turns must be at least 2, not 1"),
        (cases, {"turns": 2.5}, "turns must be an integer"),
        (cases, {"seed": -1}, "seed must be at least 0"),
        (cases, {"output": "x.txt"}, "x.txt"),
    ],
)
def test_wrong_cases_are_refused(given, options, culprit):
    with refused(culprit):
        mk.corun(given(), units=SIDES, **options)


def test_the_usual_cases_have_data_in_memory():
    # Filling the data of a machine with larger caches takes seconds.
    with described(MACHINES["little memory"]):
        cache_B = capacity.last_level_cache_B()
        for kernel in corun.KERNELS:
            case = corun.build(kernel, 2)
            assert case.knobs.threads == (1 if kernel == "latency.chase" else 2)
            size_B = case.columns.get("size_B") or case.prepare().obtained["footprint_B"]
            assert size_B > 3 * cache_B, kernel
    # Options replace the default sizes.
    assert corun.build("amo.rand", 2, iters=64).integers["words"] == 128
    assert corun.build("loops.load", 2, elements=64, threads=1).integers["elements"] == 64


@TWO_UNITS
@pytest.mark.usefixtures("small_cases")
def test_what_records_need_is_measured_without_neighbours(monkeypatch):
    told: list[str] = []
    ensure, request = corun.ensure, corun._Process.request

    def noted(self: Any, verb: str, *words: Any) -> dict[str, Any]:
        told.append(f"{verb} {words[0]}")
        return request(self, verb, *words)

    monkeypatch.setattr(corun, "ensure", lambda case: (told.append("ensure"), ensure(case)))
    monkeypatch.setattr(corun._Process, "request", noted)
    mk.corun(cases()[:1], units=SIDES, turns=2)
    assert told == ["ensure", "run True", "run False"] * 2


@TWO_UNITS
@pytest.mark.usefixtures("small_cases")
def test_every_case_is_measured_alone_and_beside_every_neighbour(tmp_path):
    turns: list[Sequence[Measurement]] = []
    output = tmp_path / "x.parquet"
    results = mk.corun(cases(), units=SIDES, turns=2, output=output, on_turn=turns.append)
    names = ["loops.load", "latency.chase"]
    expected = [
        (turn, kernel, beside) for turn in (0, 1) for kernel in names for beside in ("", *names)
    ]
    assert [(r["repeat"], r["kernel"], r["beside"]) for r in results] == expected
    assert [(m.record["repeat"], m.record["beside"]) for turn in turns for m in turn] == [
        (turn, beside) for turn, _, beside in expected
    ]
    assert results.valid and not results.interrupted
    assert {r["pin"] for r in results} == {str(UNITS[0])}
    assert {r["placements"] for r in results} == {1}
    assert set(results.records[0]) <= set(COLUMNS)
    # A case beside a neighbour differs from the case alone.
    assert len({r["case_id"] for r in results}) == 6
    assert mk.load(output) == results
    found = mk.slowdowns(results)
    assert list(zip(found["kernel"], found["beside"], strict=True)) == [
        (kernel, beside) for kernel in names for beside in names
    ]
    assert (found["ratio"] > 0).all() and (found["turns"] == 2).all()


@TWO_UNITS
@pytest.mark.usefixtures("small_cases")
def test_neighbours_may_be_others_than_the_cases():
    load, chase = cases()
    results = mk.corun([load], [chase.with_(name="far")], units=SIDES, turns=2)
    assert [r["beside"] for r in results] == ["", "latency.chase far"] * 2


@TWO_UNITS
@pytest.mark.usefixtures("small_cases")
def test_an_interrupted_run_is_resumed(tmp_path):
    output, again = tmp_path / "x.db", list[Sequence[Measurement]]()
    how: dict[str, Any] = {"units": SIDES, "turns": 2, "output": output}
    with pytest.warns(UserWarning, match="interrupted: 1 of 2 turns done, kept in"):
        first = mk.corun(cases()[:1], on_turn=interrupt, **how)
    assert first.interrupted and len(first) == 2
    results = mk.corun(cases()[:1], on_turn=again.append, resume=True, **how)
    assert [[m.record["repeat"] for m in turn] for turn in again] == [[1, 1]]
    assert results.records[:2] == first.records
    assert [r["repeat"] for r in results] == [0, 0, 1, 1]


@TWO_UNITS
def test_a_neighbour_that_waits_for_its_processor_disturbs_the_record(monkeypatch):
    request = WorkerProcess.request

    def waiting(self: WorkerProcess, verb: str, value: bool, /) -> dict[str, Any]:
        return {**request(self, verb, value), "waited_share": 0.06}

    monkeypatch.setattr(WorkerProcess, "request", waiting)
    results = mk.corun([cases()[0].with_(runs=3)], units=SIDES, turns=2)
    assert [r["disturbed"] for r in results] == [False, True] * 2
    assert np.isnan(results.records[1]["ci_relative"])
    (row,) = mk.slowdowns(results).to_dict("records")
    assert row["disturbed"] and row["turns"] == 0 and row["ratio"] > 0


def test_the_neighbour_is_not_named_as_a_competitor(monkeypatch):
    threads = [(12, "python", 0), (13, "python", 1)]
    monkeypatch.setattr(cores, "_memkern", SimpleNamespace(running_threads=lambda: threads))
    assert cores.competitors() == ((12, "python", 0), (13, "python", 1))
    assert cores.competitors(Neighbour("loops.load", "abc", 12)) == ((13, "python", 1),)


def started(case: Case) -> WorkerProcess:
    """Start the process of a neighbour that prepares a case."""
    process = WorkerProcess("runs it", "memkern.studies.neighbour")
    process.send(pickle.dumps((case, Choice("scalar", "baseline", "requested"))))
    return process


@pytest.mark.usefixtures("small_cases")
def test_a_neighbour_runs_between_two_requests_and_ends_with_its_input():
    process = started(cases()[0])
    try:
        assert process.answer() == {}
        os.kill(process.process.pid, signal.SIGINT)  # is ignored
        for _ in range(2):
            assert process.request("run", True) == {}
            time.sleep(0.1)
            found = process.request("run", False)
            assert found["invocations"] > 0
            assert 0 <= found["waited_share"] <= 1
        process.request("run", True)
        # As if this process had died.
        assert process.process.stdin is not None
        process.process.stdin.close()
        assert process.process.wait(60) == 0
    finally:
        process.close()


def test_a_neighbour_is_absent_without_processor_time_where_waits_are_unknown(monkeypatch):
    known = SimpleNamespace(run_queue_delays_known=lambda: False)
    monkeypatch.setattr(neighbour, "_memkern", known)
    for threads in (1, 2):
        before, used = neighbour.absent_s(threads), time.process_time()
        time.sleep(0.05)
        after = neighbour.absent_s(threads)
        # The process slept at least 0.05 s; time in which it computed is not absence.
        assert after[""] - before[""] >= 0.05 - (time.process_time() - used) / threads


@TWO_UNITS
@pytest.mark.usefixtures("small_cases")
def test_a_neighbour_that_dies_is_named(monkeypatch, tmp_path):
    wait = corun._Process.wait

    def kill(self: corun._Process) -> None:
        wait(self)
        os.kill(self.process.pid, signal.SIGKILL)

    monkeypatch.setattr(corun._Process, "wait", kill)
    with refused("the process that runs the neighbour loops.load ended: signal 9"):
        mk.corun(cases()[:1], units=SIDES, turns=2, output=tmp_path / "x.json")
    assert not list(tmp_path.iterdir())


@TWO_UNITS
@pytest.mark.usefixtures("small_cases")
def test_a_neighbour_without_invocations_is_refused(monkeypatch):
    monkeypatch.setattr(
        WorkerProcess, "request", lambda *words: {"invocations": 0, "waited_share": 0.0}
    )
    with refused("the neighbour loops.load made no invocation beside loops.load"):
        mk.corun(cases()[:1], units=SIDES, turns=2)


@TWO_UNITS
@pytest.mark.usefixtures("small_cases")
def test_a_kernel_that_other_processes_do_not_know_is_refused():
    load = cases()[0]
    spec = register(dataclasses.replace(mk.registry()["loops.load"], name="loops.load@mine"))
    try:
        case = dataclasses.replace(load, spec=spec)
        with refused("loops.load@mine"):
            mk.corun([case], units=SIDES, turns=2)
    finally:
        del _registry["loops.load@mine"]
