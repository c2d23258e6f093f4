"""Latency: orders of lines, chases and their checks, concurrent traffic, and pairs of workers."""

import math
import mmap
import re
from typing import Any

import numpy as np
import pytest
from checking import output_of, refused
from machines import PROCESSORS

import memkern as mk
from memkern import _memkern
from memkern.engine.placing.run import CaseRun, calibrated
from memkern.engine.sampling import series as sampling
from memkern.families.latency import kernels as latency
from memkern.families.latency import verb
from memkern.families.latency.data import level_in, level_lines, loaded_sentence
from memkern.families.latency.verb import _matrix
from memkern.formats import ResultSet
from memkern.host.environment import machine_environment
from memkern.spec import registry
from memkern.spec.case import Case
from memkern.spec.kernel import finish

LINES_PER_PAGE = mmap.PAGESIZE // 64


def chase(size_B: int = 2**14, **options: Any) -> Case:
    return mk.latency(size_B, line_B=64, runs=3, **options)


def loaded(**options: Any) -> Case:
    how = {"size_B": 2**14, "traffic_B": 2**14, "threads": 2, "runs": 3, "line_B": 64, **options}
    return registry.case("latency.loaded", **how)


def pairs(**options: Any) -> Case:
    return mk.latency(**{"size_B": 2**14, "order": "pairs", **options})


def ping_pong(**options: Any) -> Case:
    return registry.case("latency.ping_pong", **{"turns": 200, "runs": 3, **options})


@pytest.mark.parametrize("order", [o for o in latency.ORDERS if o not in latency.PAIRS])
def test_an_order_has_its_lines_once(order):
    lines = latency.line_order(order, 8 * mmap.PAGESIZE + 640, 64, seed=3)
    whole = order in ("random", "sequential")
    assert len(lines) == (
        8 * LINES_PER_PAGE + 10 if whole else 8 if order == "one-per-page" else 8 * LINES_PER_PAGE
    )
    assert len(np.unique(lines)) == len(lines)
    assert lines.min() >= 0 and lines.max() < 8 * LINES_PER_PAGE + (10 if whole else 0)


def test_orders_are_what_they_are_called():
    size_B = 16 * mmap.PAGESIZE
    sequential = latency.line_order("sequential", size_B, 64)
    assert (sequential == np.arange(len(sequential))).all()
    in_page = latency.line_order("in-page", size_B, 64) // LINES_PER_PAGE
    assert np.count_nonzero(np.diff(in_page)) == 15
    one = latency.line_order("one-per-page", size_B, 64)
    assert sorted(one // LINES_PER_PAGE) == list(range(16))
    assert len(np.unique(one % LINES_PER_PAGE)) == 16
    many = latency.line_order("one-per-page", (2 * LINES_PER_PAGE + 1) * mmap.PAGESIZE, 64)
    assert set(np.bincount(many % LINES_PER_PAGE)) == {2, 3}
    other = latency.line_order("random", size_B, 64, seed=1)
    assert (other != latency.line_order("random", size_B, 64, seed=0)).any()


@pytest.mark.parametrize("order", latency.PAIRS)
@pytest.mark.parametrize("distance_B", [8, 32, 64, 256, 1024])
@pytest.mark.parametrize("line_B", [8, 64])
def test_pairs_are_as_far_apart_as_they_say(order, distance_B, line_B):
    if distance_B < line_B:
        with refused("distance_B must be a power of two from 64 to 1024 and a multiple of line_B"):
            latency.line_order(order, 2**20, line_B, distance_B=distance_B)
        return
    places = latency.line_order(order, 2**20 + 2**11, line_B, 1, distance_B) * line_B
    pairs = places.reshape(-1, 2)
    assert sorted(pairs[:, 0] // 4096) == list(range(256))
    assert (pairs[:, 0] // 4096 == pairs[:, 1] // 4096).all()
    assert (np.abs(np.diff(pairs)) == distance_B).all()
    blocks = pairs // (2 * distance_B)
    assert (blocks[:, 0] == blocks[:, 1]).all() == (order == "pairs")
    assert (blocks[:, 0] != blocks[:, 1]).all() == (order == "pairs-across")
    # Either place of a pair may come first, and pairs are spread over their 4 KiB.
    assert 64 < (pairs[:, 0] < pairs[:, 1]).sum() < 192
    lowest = pairs.min(axis=1) % 4096
    assert len(np.unique(lowest)) > min(4096 // line_B, 256) // 4 or distance_B > 256
    assert len(np.unique(pairs)) == 512


def test_pairs_are_of_words_and_say_their_distance():
    case = mk.latency(2**14, order="pairs", distance_B=32, runs=2)
    record = case.measure().record
    assert record["valid"] and record["distance_B"] == 32 and record["line_B"] == 8
    assert (record["lines"], record["size_B"]) == (8, 2**14)
    assert "distance_B" not in chase().columns


@pytest.mark.parametrize("chains", [1, 3, 16, 32])
@pytest.mark.parametrize("threads", [1, 2])
def test_chase_is_valid_and_counts_its_accesses(chains, threads):
    case = chase(chains=chains, threads=threads, steps=500)
    record = case.measure().record
    assert record["valid"] and record["kernel"] == "latency.chase"
    assert record["threads"] == threads and record["chains"] == chains
    per_worker = 500 * chains
    assert case.iterations == per_worker * threads
    expected = record["time_median_s"] / per_worker * 1e9
    assert record["ns_per_access"] == pytest.approx(expected)
    cycles = record["ns_per_access"] * record["clock_GHz"]
    assert record["cycles_per_access"] == pytest.approx(cycles, rel=0.5)
    assert record["bytes_B"] == 8 * case.iterations
    assert record["bytes_model_B"] == 64 * case.iterations


def test_chase_follows_a_given_order():
    case = chase(order=[3, 1, 2], steps=2)
    before = np.zeros(latency._ENDS, dtype=np.uint64)
    after = case.apply(ends=before)["ends"]
    assert after[0] == 2 * 64 and after[latency._ACCESSES] == 2
    assert case.columns["order"] == "array" and case.integers["lines"] == 256


def test_apply_agrees_with_the_reference():
    case = chase(2**13, chains=5, threads=2, steps=77)
    before = np.zeros((2, latency._ENDS), dtype=np.uint64)
    after = case.apply(ends=before)["ends"]
    assert (after == case.spec.checks.reference(case, {"ends": before})["ends"]).all()


VARIANTS = sorted({(v, isa) for k, v, isa, *_ in _memkern.entries() if k == "latency.loaded"})


@pytest.mark.parametrize("variant, isa", VARIANTS)
@pytest.mark.parametrize("loads", [0, 3, 8])
def test_traffic_adds_up(loads, variant, isa):
    if isa not in _memkern.supported_isas():
        pytest.skip(f"this processor does not run {isa}")
    case = loaded(loads=loads, pause=10, variant=variant, isa=isa, steps=2**16)
    # If other programs use the processors, the chain may end before other workers run.
    for _ in range(50):
        record = case.measure().record
        assert (record["variant"], record["isa"]) == (variant, isa)
        assert record["valid"] and record["loads"] == loads
        if record["traffic_per_access_B"] > 0 or len(PROCESSORS) == 1:
            return
    pytest.fail("no other worker has moved anything beside the chain")


def test_traffic_is_that_of_the_samples_whose_time_counts(monkeypatch):
    taken: list[tuple[float, float]] = []
    sample = sampling.sample

    def in_turn(prepared: Any, judge: Any, out: Any, *how: Any, **options: Any) -> None:
        sample(prepared, judge, out, *how, **options)
        moved = options["moved_B"]
        # Every third sample has a hundred times as much traffic, and is disturbed.
        moved[2::3] *= 100
        # All samples have different times, which identify the kept samples below.
        out[:, 0] *= 1 + 1e-12 * np.arange(len(taken), len(taken) + len(out))
        taken.extend(zip(out[:, 0], moved, strict=True))

    def every_third(judge: Any, conditions: Any, *_: Any) -> Any:
        return np.arange(len(conditions)) % 3 == 2

    monkeypatch.setattr(sampling, "sample", in_turn)
    monkeypatch.setattr(sampling.Judge, "disturbed", every_third)
    case = loaded(loads=8, steps=2**12, budget_s=10.0, runs=None, max_samples=40, placements=2)
    once = CaseRun(case)
    rates = []
    for _ in range(2):
        taken.clear()
        samples = once.place().samples
        kept = [(s, moved) for s, moved in taken if s in samples.seconds[:, 0]]
        assert samples.rejected > 0 and len(kept) == len(samples.seconds)
        rates.append(np.median([moved / s for s, moved in kept]) / 1e9)
    record = calibrated(once, machine_environment()).record
    assert record["traffic_GBps"] == pytest.approx(np.median(rates))
    per_access_B = record["traffic_GBps"] * record["ns_per_access"]
    assert record["traffic_per_access_B"] == pytest.approx(per_access_B)
    assert "traffic_GBps" not in chase().measure().record


TALLIED = (latency._LOADED, latency._SUM, latency._FROM, latency._TO)
STORES = loaded(loads=5, pause=1000, steps=2**12)


@pytest.mark.parametrize(
    "case, array, at, more",
    [
        (chase(chains=2), "ends", 1, 64),  # elsewhere
        (chase(chains=2), "ends", latency._ACCESSES, 1),
        *((loaded(loads=5), "tally", (1, column), 5) for column in TALLIED),
        *((STORES, "target", (1, 8 * line + 3), 1) for line in (0, 5, 255)),  # not the last number
        (ping_pong(), "tally", (1, 0), -1),
    ],
)
def test_wrong_ends_tallies_and_lines_are_invalid(case, array, at, more):
    prepared = case.prepare()
    assert prepared.check().valid
    validation = prepared.validation()
    prepared.native.run(2)
    values = prepared.native.copy_out(array)
    values[at] = int(values[at]) + more
    prepared.native.copy_in(array, values)
    assert not finish(validation, 2).valid


@pytest.mark.parametrize("lines, take_by", [(1, "load"), (2, "load"), (1, "swap")])
def test_two_workers_take_turns(lines, take_by):
    record = ping_pong(lines=lines, take_by=take_by).measure().record
    assert record["valid"] and record["threads"] == 2 and record["lines"] == lines
    assert record["take_by"] == take_by
    assert record["ns_per_access"] == pytest.approx(record["time_median_s"] / 400 * 1e9)


@pytest.mark.parametrize(
    "build, options, problem",
    [
        (chase, {"chains": 17}, "chains must be one of 1, 2"),
        (mk.latency, {"size_B": 2**14, "line_B": 12}, "line_B must be a multiple of 8"),
        (chase, {"order": [1, 1]}, "at most once"),
        (chase, {"order": [-1, 1]}, "none below 0"),
        (chase, {"order": [[1, 2]]}, "1-d array"),
        (chase, {"order": "shuffled"}, "order 'shuffled' is not one of random, in-page"),
        (chase, {"order": "random", "size_B": 63}, "has no line of 64 bytes"),
        (pairs, {"distance_B": 8, "size_B": 4088}, "needs a buffer of at least 4096 bytes"),
        (
            chase,
            {"order": "in-page", "size_B": mmap.PAGESIZE - 64},
            f"needs a buffer of at least {mmap.PAGESIZE} bytes",
        ),
        (pairs, {"distance_B": 48}, "a power of two from 8 to 1024"),
        (pairs, {"order": "pairs-across", "distance_B": 2048}, "not 2048"),
        (pairs, {"order": "random", "distance_B": 64}, "pairs and pairs-across, not for random"),
        (pairs, {"order": [1, 2], "distance_B": 64}, "pairs and pairs-across, not for an array"),
        (loaded, {"threads": 1}, "needs at least two workers"),
        (loaded, {"variant": "best"}, "not best, because the chain"),
        (ping_pong, {"threads": 3}, "runs 2 threads"),
        (ping_pong, {"take_by": "swap", "lines": 2}, "swap needs one line"),
        # Workers wait for each other.
        (loaded, {"schedule": "dynamic"}, "use schedule 'static' without chunk"),
        (loaded, {"repetition": "free"}, "use repetition 'barrier'"),
        (loaded, {"offset": 8}, "offset must be a multiple of 64 bytes"),
    ],
)
def test_wrong_cases_are_refused(build, options, problem):
    with refused(problem):
        build(**options).prepare()


def test_numa_cases_are_of_every_pair_of_nodes():
    nodes = [
        {"node": 0, "cpus": "0-3", "memory_B": 2**34},
        {"node": 1, "cpus": "4-7", "memory_B": 2**34},
        {"node": 2, "cpus": "8-11", "memory_B": 2**34},
        {"node": 3, "cpus": "", "memory_B": None},  # memory only
    ]
    cases = latency.numa_cases(nodes, range(1, 8), size_B=2**14, runs=3)
    assert [case.labels["name"] for case in cases[::2]] == [
        f"units of node {near}, memory of node {far}" for near in (0, 1) for far in (0, 1, 2, 3)
    ]
    assert {case.spec.name for case in cases[::2]} == {"latency.chase"}
    assert {case.spec.name for case in cases[1::2]} == {"stream.triad"}
    pins = [(case.knobs.pin, case.knobs.numa, case.knobs.threads) for case in cases]
    assert pins[:4] == [
        ("1", "node:0", 1), ("1,2,3", "node:0", 3), ("1", "node:1", 1), ("1,2,3", "node:1", 3),
    ]  # fmt: skip
    assert pins[-1] == ("4,5,6,7", "node:3", 4)
    with refused("no NUMA node has processing units"):
        latency.numa_cases(nodes, [12])


def test_the_structure_has_as_many_lines_in_pages_as_side_by_side():
    cases = latency.structure_cases(2**25, 64, 2**34, budget_s=0.01)
    by_order: dict[str, list[Case]] = {}
    for case in cases:
        by_order.setdefault(case.columns["order"], []).append(case)
    sizes = [case.columns["size_B"] for case in by_order["random"]]
    assert (sizes[0], sizes[-1], len(sizes)) == (2**10, 2**27, 4 * 17 + 1)
    pages = [case.columns["lines"] for case in by_order["one-per-page"]]
    assert (pages[0], pages[-1]) == (16, 2**17) and sorted(set(pages)) == pages
    assert set(pages) <= {case.columns["lines"] for case in by_order["random"]}
    assert {case.knobs.pages for case in by_order["one-per-page"]} <= {"4k", "default"}
    for order in latency.PAIRS:
        cases_of_pairs = [
            (case.columns["size_B"], case.columns["distance_B"]) for case in by_order[order]
        ]
        assert cases_of_pairs == [(size, 2**k) for size in (2**23, 2**27) for k in range(3, 11)]
    few = latency.structure_cases(2**25, 64, 2**24)
    assert max(case.columns["size_B"] for case in few) <= 2**23
    assert {case.stop.budget_s for case in cases} == {0.01}
    assert latency.structure_cases(2**15, 64, float("inf"))


@pytest.mark.parametrize(
    "words, rows",
    [
        ("--sizes 4KiB,8KiB --chains 1,2", 4),
        ("loaded --sizes 16KiB --traffic 16KiB --loads 8,4 --pause 0,64", 5),
        ("cores --lines 1", 1),
        ("-k ping_pong --turns 50", 1),
        ("-k chase --sizes 8KiB --order in-page,sequential", 2),
        ("-k chase --sizes 8KiB --order pairs,pairs-across --distance 8,64", 4),
    ],
)
@pytest.mark.usefixtures("small_cases")
def test_the_verb_prints_a_row_for_each_case(words, rows, capsys):
    out, _ = output_of(capsys, "latency", *words.split())
    found = [row for row in out.splitlines() if re.match(r"( *\d+ )?\d+ +\S", row)]
    assert len(found) == rows


@pytest.mark.usefixtures("small_cases")
def test_structure_of_this_machine(capsys, tmp_path):
    path = tmp_path / "structure.parquet"
    out, _ = output_of(capsys, "latency", "structure", "--runs", "3", "-o", str(path))
    assert "L1" in out.split() and "random" not in out.split()
    assert re.search(r"^ *what +found +system +agrees +ns +cycles$", out, re.MULTILINE)
    again, _ = output_of(capsys, "table", "latency-structure", str(path))
    assert "exceeds_B" in again
    assert re.search(r"line +(not found|\d+ (Ki)?B)", again)


def test_rows_are_printed_on_request(capsys, monkeypatch):
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    monkeypatch.setattr(verb, "_sizes", lambda _: [2**13, 2**14])
    found = {}
    for words in ((), ("--rows",)):
        out, _ = output_of(capsys, "latency", "--runs", "1", *words)
        found[words] = [line.split()[0] for line in out.splitlines()]
    assert {"level", "L1"} <= {*found[()]} and not {"case", "0", "1"} & {*found[()]}
    assert found["--rows",][:3] == ["case", "0", "1"] and "level" not in found["--rows",]


LEVELS: dict[str, Any] = {
    "kernel": "latency.chase", "backend": "openmp", "environment_id": "e", "order": "random",
    "chains": 1, "line_B": 64, "threads": 1, "pages_requested": "default",
    "variant_requested": "best", "ci_relative": 0.012, "disturbed": False,
}  # fmt: skip


def levels(*changes: dict[str, Any], caches: bool = True) -> list[str]:
    """Return the words of each line of the summary of chases by level."""
    records = [
        {**LEVELS, "size_B": 2**k, "ns_per_access": ns + k / 100, **change}
        for change in changes
        for k, ns in ((k, 1.0 if k < 16 else 4.0 if k < 20 else 90.0) for k in range(12, 25))
    ]
    known = [
        {"level": level, "type": "unified", "size_B": size_B, "instances": 1, "line_B": 64}
        for level, size_B in ((1, 2**15), (2, 2**19))
    ]
    environments = {"e": {"machine": {"caches": known if caches else []}}}
    found = level_lines(ResultSet(records, [np.empty(0)] * len(records), environments))
    return [" ".join(line.split()) for line in found]


def test_chases_are_summarised_by_level():
    assert levels({}) == [
        "level sizes records ns ±% ns of its sizes",
        "L1 4 KiB to 32 KiB 4 1.13 1.2 1.12 to 1.15",
        "L2 64 KiB to 512 KiB 4 4.17 1.2 4.16 to 4.19",
        "memory 1 MiB to 16 MiB 5 90.2 1.2 90.20 to 90.24",
    ]
    _, *found = levels({}, caches=False)
    assert [line.split()[:2] for line in found] == [["level", "1"], ["level", "2"], ["level", "3"]]
    assert found[2] == "level 3 1 MiB to 16 MiB 5 90.2 1.2 90.20 to 90.24"
    _, first, *_, second = levels({"chains": 1}, {"chains": 4, "disturbed": True})
    assert first == "chains 1" and second == "memory 1 MiB to 16 MiB 5 disturbed"


def test_memory_is_beyond_the_caches_that_were_larger_at_another_time():
    ends = [("L1", 2**15), ("L3", 2**23)]
    sizes = (2**14, 2**15, 2**18, 2**23, 2**24)
    found = [level_in({"size_B": size_B}, ends) for size_B in sizes]
    assert found == ["L1", "", "L3", "", "memory"]
    for multiple, level in ((4.0, "memory"), (math.nan, "memory"), (0.8, "")):
        assert level_in({"size_B": 2**24, "caches_multiple": multiple}, ends) == level
    assert level_in({"size_B": 2**14}, []) == ""


@pytest.mark.usefixtures("small_cases")
def test_numa_of_this_machine(capsys):
    out, _ = output_of(capsys, "latency", "numa", "--sizes", "64KiB")
    nodes = mk.describe()["environment"]["machine"]["numa_nodes"] or [None]
    assert ("this machine has one NUMA node" in out) == (len(nodes) == 1)
    assert "units of node 0, memory of node 0" in out


@pytest.mark.parametrize(
    "most_ns, threads, end",
    [
        (199.0, 2, "1.99 times as long; not saturated with 1 generator"),
        (199.0, 4, "1.99 times as long; not saturated with 3 generators"),
        (200.0, 2, "of traffic, 2.00 times as long"),
    ],
)
def test_idle_and_loaded_latency_are_compared(most_ns, threads, end):
    sure = {"valid": True, "disturbed": False}
    alone = {"kernel": "latency.chase", "ns_per_access": 100.0, "threads": 1, **sure}
    beside = {"kernel": "latency.loaded", "ns_per_access": most_ns, "threads": threads, **sure}
    beside["traffic_GBps"] = 12.34
    less = {**beside, "ns_per_access": 110.0, "traffic_GBps": 1.0}
    text = loaded_sentence([alone, less, beside])
    assert text.endswith(end)
    assert f"idle 100.0 ns, loaded {most_ns:.1f} ns beside 12.3 GB/s" in text
    unsure = {**beside, "disturbed": True}
    assert loaded_sentence([alone, unsure]).endswith("no undisturbed record beside traffic")
    assert loaded_sentence([beside]).endswith("no undisturbed record without traffic")


def test_all_pairs_are_measured_in_both_orders(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 0, 1})
    assert verb._pairs() == ["0,1", "0,3", "1,0", "1,3", "3,0", "3,1"]


@pytest.mark.parametrize(
    "units, words, budget_s",
    [
        (2, "", 1.0),
        (64, "", 600 / (64 * 63 * 2)),
        (128, "", 0.05),
        (64, "--lines 1", 600 / (64 * 63)),
        (64, "--budget 0.5", 0.5),
        (64, "--runs 3", 1.0),
    ],
)
def test_many_pairs_have_less_time_each(units, words, budget_s, capsys, monkeypatch):
    every: list[Case] = []

    def measured(cases: Any, *_: Any, most_s: float, answers: Any) -> ResultSet:
        assert most_s == math.inf  # every pair is requested
        every.extend(cases[:1])
        return ResultSet([], [], {})

    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(units)))
    monkeypatch.setattr(verb, "measure", measured)
    _, error = output_of(capsys, "latency", "cores", *words.split())
    assert every[0].stop.usual_s == pytest.approx(max(budget_s, 0.05))
    assert ("instead of 1 s" in error) == (units > 2 and "-" not in words.replace("--lines", ""))


def test_the_matrix_of_cores_marks_disturbed_times():
    record = {"lines": 1, "take_by": "load", "valid": True, "oversubscribed": False}
    times = (("0,2", 50.0, False), ("2,1", 900.0, True), ("1,2", 60.0, False))
    records = [
        {**record, "pin": pair, "ns_per_access": ns, "disturbed": disturbed}
        for pair, ns, disturbed in times
    ]
    smt = {"e": {"machine": {"units": "0,2,1"}}}
    text = _matrix(ResultSet(records, [np.empty(0)] * 3, smt), 1, "load")
    assert text.splitlines()[1:] == [
        "unit        0       2       1",
        "   0             50.0        ",
        "   2                  (900.0)",
        "   1             60.0        ",
        "in parentheses: disturbed",
    ]
    quiet = ResultSet(records[::2], [np.empty(0)] * 2, {})
    assert "parentheses" not in _matrix(quiet, 1, "load")
