"""Counters of a case: software events of the kernel, and processors' events with known counts.

The processors are small copies of their /proc and /sys. The counts are steps, which the extension's
sampler reads instead of the kernel's counters.
"""

import errno
import json
import math
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checking import measured, one_sentence, output_of, refused, refused_words, run, tree
from counters_here import COMMAND, ELEMENTS, NEEDS_COUNTERS, OF_ALL_CODE, counted
from event_trees import COUNTERS, ZEN_4
from plotting import Results, footnotes

import memkern as mk
from memkern import _memkern
from memkern.engine.recording import counting as recorded
from memkern.engine.recording import record
from memkern.engine.sampling import counters as counting
from memkern.engine.sampling import series as sampling
from memkern.host import this_host
from memkern.machine import caches, events
from memkern.plots import counted_traffic, figures, traffic_table
from memkern.spec.kernel import Transfer
from memkern.studies import known_counts

PAGES = 1000
QUANTITIES = [f"{level}_{way}" for level in events.BOUNDARIES for way in events.WAYS]


@pytest.fixture(autouse=True)
def kernel_counts_again() -> Iterator[None]:
    yield
    _memkern.step_events([])


def use(root: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> dict[str, Any]:
    """Replace this machine by another, whose arrays are never in a cache; return its codes."""
    files, codes = COUNTERS[name]
    monkeypatch.setattr(counting, "ROOT", tree(root / name, files))
    monkeypatch.setattr(record, "level_of", lambda *_: "memory")
    return codes


# Steps of the events of the system that are counted by default.
OF_THE_SYSTEM = [(1, config, 0, 1000, 1000, 0, -1) for config in (2, 3, 4)]


def step(
    codes: dict[str, Any], lines: dict[str, float], share: float = 1.0, workers: int = 2
) -> None:
    """Let each quantity count the given lines in a sample of one invocation."""
    steps = {}
    for quantity, those in codes.items():
        system = quantity.startswith("memory")
        each = round(lines[quantity] * share / len(those) / (1 if system else workers))
        for type, config in those:
            steps[type, config] = (type, config, each, 1000, round(1000 * share), 0, -1)
    _memkern.step_events([*steps.values(), *OF_THE_SYSTEM])


@NEEDS_COUNTERS
def test_software_events_are_those_of_the_kernel(capsys):
    (row,) = measured(
        capsys, *COMMAND, "-t", "2", "--counters", "page-faults,task-clock,minor-faults:u"
    )
    counts = {one["event"]: one for one in json.loads(row["counter_rows"])}
    assert list(counts) == ["page-faults", "task-clock", "minor-faults:u"]
    assert all(one["running"] == 1 for one in counts.values())
    # All memory was touched before, so that there are few page faults.
    assert counts["page-faults"]["count"] <= 5
    assert counts["task-clock"]["count"] > 0
    assert row["counters"] == "page-faults,task-clock,minor-faults:u"
    assert (row["counters_note"] == "") == OF_ALL_CODE


def test_auto_says_what_is_missing(capsys, tmp_path,
                                   monkeypatch):  # fmt: skip
    monkeypatch.setattr(counting, "ROOT", tmp_path)
    _memkern.step_events(OF_THE_SYSTEM)
    (row,) = measured(capsys, *COMMAND, "--counters", "auto")
    assert row["counters_note"] == (
        "traffic is not counted: the table of events lacks this processor (unknown)"
    )
    with refused("no record has counts of the traffic of a level: traffic is not counted"):
        counted_traffic(Results([row]))
    with refused("no record has counts of the traffic of a level: measure with --counters auto"):
        counted_traffic(Results([{**row, "counters_note": "", "counter_rows": ""}]))


@pytest.mark.parametrize("name", COUNTERS)
def test_from_events_to_the_figure(name, capsys, tmp_path, monkeypatch):
    codes = use(tmp_path, monkeypatch, name)
    # a = s a: each byte is loaded from and stored to every level.
    lines = ELEMENTS * 8 / 64
    ratios = dict.fromkeys(codes, 1.0) | {"L2_load": 1.5, "L3_load": 0.9, "memory_load": 1.25}
    counts = {quantity: ratio * lines for quantity, ratio in ratios.items()}
    # Counters are multiplexed: each one is on the processor for a quarter of the time.
    step(codes, counts, share=0.25)
    file = tmp_path / "counted.json"
    output_of(capsys, *COMMAND, "-t", "2", "--counters", "auto", "-o", str(file))
    (row,) = mk.load(file).records
    lacking = [name for name in QUANTITIES if name not in codes]
    assert row["counters_note"] == (
        f"{', '.join(lacking)} can't be counted: the table of events has no such event for this "
        "processor"
        if lacking
        else ""
    )
    found = {one["event"]: one for one in json.loads(row["counter_rows"])}
    invocations = row["invocations"]
    for quantity in codes:
        assert math.isclose(
            found[quantity]["count"] * invocations, counts[quantity], rel_tol=2e-3
        ), quantity
        assert found[quantity]["running"] == 0.25
    for quantity in (q for q in codes if q != "tlb_misses"):
        assert found[quantity]["model"] == lines
        assert "checked" not in found[quantity]
    for quantity in QUANTITIES:
        counted_B = row.get(f"counted_{quantity}_B")
        if quantity in lacking:
            assert counted_B is None
        else:
            assert math.isclose(counted_B * invocations, 64 * counts[quantity], rel_tol=2e-3)
    for level in events.BOUNDARIES:
        both = [ratios[q] for way in events.WAYS if (q := f"{level}_{way}") in ratios]
        ratio = sum(both) / len(both)
        assert math.isclose(row[f"counted_{level}_ratio"] * invocations, ratio, rel_tol=2e-3)
    assert math.isclose(row["counted_tlb_misses"] * invocations, counts["tlb_misses"], rel_tol=2e-3)

    table = traffic_table(mk.load(file))
    assert set(table["quantity"]) == set(codes) - {"tlb_misses"}
    by_name = table.set_index("quantity")
    assert np.allclose(by_name["ratio"] * invocations, by_name.index.map(ratios), rtol=2e-3)
    figure = figures["counters"](mk.load(file))
    drawn = {line.get_label(): line.get_xdata() for line in figure.axes[0].get_lines()}
    assert math.isclose(drawn["loads from L2"][0] * invocations, 1.5, rel_tol=2e-3)
    assert "at least 25%" in footnotes(figure)


@pytest.fixture
def small_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let known work be one invocation, on caches of 16 KiB."""
    caches = [{"level": level, "type": "unified", "size_B": 2**14} for level in (1, 2, 3)]
    machine = {"machine": {"caches": caches}}
    monkeypatch.setattr(known_counts, "machine_environment", lambda: machine)
    monkeypatch.setattr(
        known_counts, "build", lambda *a, **k: mk.case(*a, **k).with_(invocations=1)
    )


@pytest.mark.usefixtures("small_work")
def test_counts_of_known_work_decide_what_is_believed(capsys, tmp_path, monkeypatch):
    codes = use(tmp_path, monkeypatch, "Cascade Lake")
    monkeypatch.setattr(known_counts, "_WORK", {})
    lines = 4 * 2**14 / 64
    # Counters of prefetched lines count twice, as published for real processors.
    wrong = {"L3_load": 2 * lines, "tlb_misses": 0.5 * 2**12}
    step(codes, dict.fromkeys(codes, lines) | wrong, workers=1)
    monkeypatch.setattr(known_counts, "_TLB_PAGES", 64)
    out, err = output_of(capsys, "machine", "counters", "--check")
    assert one_sentence(err) == (
        "memkern: L3_load, tlb_misses differ from the true count by more than a tenth"
    )
    rows = [line.split(maxsplit=4) for line in out.splitlines()[1:]]
    found = {(name, work.partition(",")[0]): float(ratio) for name, _, _, ratio, work in rows}
    update, copy, load = "a = s a", "a = b", "maximum of a"
    assert found == {
        **{(f"{level}_load", work): 2 if level == "L3" else 1
           for level in events.BOUNDARIES for work in (load, update)},
        **{(f"{level}_store", work): 1 for level in events.BOUNDARIES for work in (copy, update)},
        ("tlb_misses", "loads from 64 pages  differs"): 0.5,
    }  # fmt: skip
    assert this_host().counters == {**dict.fromkeys(codes, 1), "L3_load": 2,
                                           "tlb_misses": 0.5}  # fmt: skip
    names = "L2_load,L3_load,page-faults"
    this_host().keep_counters({"page-faults": 1.0})
    (row,) = measured(capsys, *COMMAND, "--counters", names, "-t", "1")
    # Events of the system are checked too, although no model predicts them.
    assert [one["checked"] for one in json.loads(row["counter_rows"])] == [1, 2, 1]
    assert row["counters_note"] == (
        "L3_load: 2 times the true count in memkern machine counters --check"
    )


@pytest.mark.usefixtures("small_work")
def test_events_by_their_names_are_checked(capsys, tmp_path, monkeypatch):
    use(tmp_path, monkeypatch, "Cascade Lake")
    this_host().keep_counters({"page-faults": 1.0})
    lines = 4 * 2**14 // 64
    _memkern.step_events([(4, 0x1234, 3 * lines, 10, 10, 0, -1), (1, 2, 4096, 1, 1, 0, -1),
                           (4, 0, 0, 1, 1, 0, -1)])  # fmt: skip
    pairs = (
        "L2_load=cpu/event=0x34,umask=0x12/,memory_store=r1234,minor-faults=page-faults:u,"
        "context-switches=r0"
    )
    out, _ = output_of(capsys, "machine", "counters", "--check", pairs, "--json")
    assert [(row["event"], row["ratio"]) for row in json.loads(out)] == [
        ("page-faults:u", 1),
        ("r0", 0),
        *[("cpu/event=0x34,umask=0x12/", 3)] * 2,  # load and update
        *[("r1234", 3)] * 2,  # copy and update
    ]
    assert this_host().counters == {
        "page-faults": 1, "page-faults:u": 1, "cpu/event=0x34,umask=0x12/": 3, "r1234": 3,
        "r0": 0,
    }  # fmt: skip
    (row,) = measured(capsys, *COMMAND, "--counters", "r1234", "-t", "1")
    assert (
        row["counters_note"] == "r1234: 3 times the true count in memkern machine counters --check"
    )
    for pair in ("r1234", "L9_load=r1234", "L2_load", "L2_load=", "page-faults=", "L2_load=auto"):
        assert "must be QUANTITY=EVENT" in refused_words(
            capsys, "machine", "counters", "--check", pair
        )
    assert "is unknown" in refused_words(capsys, "machine", "counters", "--check", "L2_load=nosuch")
    assert "can't be counted" in refused_words(
        capsys, "machine", "counters", "--check", "L2_load=r1"
    )


def test_migrations_are_not_checked_on_a_single_unit(monkeypatch, capsys):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert "cpu-migrations" not in known_counts._every()
    pair = "cpu-migrations=page-faults"
    assert "must be QUANTITY=EVENT" in refused_words(capsys, "machine", "counters", "--check", pair)


def test_a_check_without_any_event_says_why(capsys):
    _memkern.step_events([(1, 2, 1, 1, 1, errno.EACCES, -1)])
    for words in ((), ("--json",)):
        assert refused_words(capsys, "machine", "counters", "--check", *words).startswith(
            "memkern: no event with a known true count can be counted here: page-faults: "
            "the system does not permit it"
        )


def test_a_count_that_is_unknown_is_null(capsys, monkeypatch):
    unknown = [
        known_counts.Known("L2_load", "a = s a", 100.0, math.nan),
        known_counts.Known("L3_in", "a = s a", 0.0, 5.0),
    ]
    monkeypatch.setattr(known_counts, "_of_system", lambda names: [])
    monkeypatch.setattr(known_counts, "_of_processor", lambda names: unknown)
    code, out, err = run(capsys, "machine", "counters", "--check", "--json")
    rows = json.loads(out, parse_constant=pytest.fail)
    assert [(row["count"], row["ratio"]) for row in rows] == [(None, None), (5.0, None)]
    assert (code, err) == (0, "")
    code, out, err = run(capsys, "machine", "counters", "--check")
    assert (code, err) == (0, "") and out.count("  not counted\n") == 2
    assert this_host().counters == {}


def test_a_known_processor_without_counting_units_checks_the_events_of_the_system(
    capsys, tmp_path, monkeypatch
):
    """Virtual machines hide the units of processors that are in the table."""
    cpuinfo = "proc/cpuinfo"
    monkeypatch.setattr(counting, "ROOT", tree(tmp_path, {cpuinfo: ZEN_4[cpuinfo]}))
    out, _ = output_of(capsys, "machine", "counters", "--check")
    assert {line.split()[0] for line in out.splitlines()[1:]} <= set(known_counts._WORK)
    assert "page-faults" in out


@NEEDS_COUNTERS
def test_events_of_the_system_are_right():
    found = {known.event: known for known in known_counts._of_system(known_counts._every())}
    assert {"page-faults", "minor-faults", "task-clock"} <= set(found)
    for name in ("page-faults", "minor-faults"):
        assert found[name].true <= found[name].count <= found[name].true + 20
    assert ("context-switches" in found) == counted("context-switches")
    if "context-switches" in found:
        # Other programs may cause further context switches.
        assert found["context-switches"].count >= found["context-switches"].true
    assert found["task-clock"].count >= 0.9 * found["task-clock"].true


def test_an_event_that_is_named_must_be_counted(capsys):
    _memkern.step_events([(4, 0x0151, 1, 1, 1, errno.EOPNOTSUPP, -1)])
    sentence = refused_words(capsys, *COMMAND, "--counters", "r0151")
    reason = "the processor's counters do not support it"
    assert sentence.startswith(f"memkern: event 'r0151' can't be counted: {reason}")
    assert "is unknown" in refused_words(capsys, *COMMAND, "--counters", "nosuch")
    assert "lack a name" in refused_words(capsys, *COMMAND, "--counters", "cycles,")
    both = refused_words(capsys, *COMMAND, "--counters", "auto,page-faults")
    assert "counters must be auto alone or names without auto, not" in both


def test_quantities_of_other_processors_are_named_as_such(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(counting, "ROOT", tmp_path)
    assert refused_words(capsys, *COMMAND, "--counters", "L2_load") == (
        "memkern: event 'L2_load' can't be counted: the table of events lacks this processor "
        "(unknown)"
    )
    use(tmp_path, monkeypatch, "Zen 4")
    assert refused_words(capsys, *COMMAND, "--counters", "L2_store") == (
        "memkern: event 'L2_store' can't be counted: the table of events has no such event for "
        "this processor"
    )


# Without the capabilities that let root count everything.
UNPRIVILEGED = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
PARANOID = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())


def unprivileged(*words: str) -> subprocess.CompletedProcess[str]:
    command = [*UNPRIVILEGED, sys.executable, "-m", "memkern", *words]
    env = {**os.environ, "MEMKERN_SMALL": "1"}
    return subprocess.run(command, env=env, capture_output=True, text=True)


def test_ordinary_users_count_what_user_code_causes():
    reduced = PARANOID == 2
    done = unprivileged("machine", "counters", "--json")
    assert done.returncode == 0, done.stderr
    listed = {row["event"]: row for row in json.loads(done.stdout)["events"]}
    if PARANOID > 2:
        assert "the system does not permit it" in listed["page-faults"]["why_not"]
        pytest.skip("the system permits ordinary users no counters")
    assert not any(listed[name]["why_not"] for name in ("page-faults", "minor-faults", "cpu-clock"))
    assert listed["page-faults"]["meaning"].endswith("of user code only") == reduced
    # User code alone has no context switches: a count would be a wrong 0.
    assert bool(listed["context-switches"]["why_not"]) == reduced

    for names in ("page-faults,task-clock", "auto"):
        done = unprivileged(*COMMAND, "--counters", names, "--json")
        assert done.returncode == 0, done.stderr
        (row,) = json.loads(done.stdout)
        assert json.loads(row["counter_rows"])[0]["event"] == "page-faults"
        assert ("page-faults: counted in user code only" in row["counters_note"]) == reduced
    done = unprivileged(*COMMAND, "--counters", "context-switches")
    assert done.returncode == (2 if reduced else 0)


def test_levels_say_whose_faults_count():
    def by_user() -> None:
        with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
            memory.madvise(mmap.MADV_NOHUGEPAGE)
            for page in range(PAGES):
                memory[page * mmap.PAGESIZE] = 1

    def by_kernel() -> None:
        with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory, zeros.open("rb", buffering=0) as file:
            memory.madvise(mmap.MADV_NOHUGEPAGE)
            file.readinto(memory)

    zeros = Path("/dev/zero")
    codes = [events.find(f"page-faults:{level}").codes[0] for level in ("u", "k", "uk")]
    if why := _memkern.why_not_counted(codes[1]):
        assert "the system does not permit it" in why
        pytest.skip("the system does not permit this user to count what the kernel does")
    for work, least in ((by_user, (PAGES, 0, PAGES)), (by_kernel, (0, PAGES, PAGES))):
        counts = [count for count, _, _ in _memkern.count(codes, work)]
        assert all(
            each <= count < each + PAGES / 2 for count, each in zip(counts, least, strict=True)
        ), counts


def test_auto_leaves_out_what_is_not_permitted(capsys, tmp_path, monkeypatch):
    codes = use(tmp_path, monkeypatch, "Zen 4")
    steps = [(type, config, 64, 10, 10, 0, -1) for type, config in codes["L2_load"]]
    steps += [(type, config, 1, 1, 1, errno.EACCES, -1)
              for q in ("memory_load", "memory_store") for type, config in codes[q]]  # fmt: skip
    _memkern.step_events(steps)
    (row,) = measured(capsys, *COMMAND, "--counters", "auto")
    assert [one["event"] for one in json.loads(row["counter_rows"])] == ["L2_load"]
    assert (
        "memory_load, memory_store can't be counted: the system does not permit it"
        in (row["counters_note"])
    )
    assert "L3_load, tlb_misses, page-faults, context-switches, cpu-migrations can't be counted: " \
        "this machine has no counter" in row["counters_note"]  # fmt: skip


def test_tables_show_what_was_counted(capsys, tmp_path, monkeypatch):
    codes = use(tmp_path, monkeypatch, "Zen 4")
    lines = ELEMENTS * 8 // 64
    ((type, config),) = codes["L2_load"]
    _memkern.step_events([(type, config, 3 * lines // 2, 1, 1, 0, -1), (1, 3, 0, 1, 0, 0, -1),
                          (1, 2, 20, 1, 1, 0, -1)])  # fmt: skip
    names = "L2_load,page-faults,context-switches"
    case = ("update", "--elements", str(ELEMENTS), "--runs", "2", "-t", "1")
    out, _ = output_of(capsys, "loops", "-k", *case, "--counters", names)
    _, _, counted, *_, note = out.splitlines()
    event = r"L2_load \S+ \(\d+\.\d\d of the model's\)"
    rest = r"page-faults \S+, context-switches unknown"
    assert re.fullmatch(f"     counted in an invocation: {event}, {rest}", counted)
    assert note == "context-switches has no count: its counter never ran"


ANY = {"platform": "Own, 1 thread", "valid": True, "disturbed": False}


def test_cases_of_the_figure_are_told_apart():
    counts = [{"event": "L2_load", "count": 64.0, "model": 32.0, "running": 1.0}]
    common = {"variant": "simd", "counter_rows": json.dumps(counts), "memory_line_B": 64, **ANY}
    table = traffic_table(pd.DataFrame([
        {"kernel": "loops.triad", "elements": 2.0**20, **common},
        {"kernel": "spmv.crs", "matrix": "hpcg:8", "elements": 512.0, **common},
        {"kernel": "spmv.crs", "matrix": "hpcg:16", "elements": 4096.0, **common},
        {"kernel": "dw.hop", "lattice": "8x8x8x8", "layout": "RRII", **common},
        {"kernel": "dw.hop", "lattice": "8x8x8x8", "layout": "RIRI", **common},
    ]))  # fmt: skip
    assert [case.replace("\u00a0", " ") for case in table["case"]] == [
        "triad, simd, 1 048 576 elements", "crs, simd, hpcg:8", "crs, simd, hpcg:16",
        "hop, simd, 8x8x8x8, RRII", "hop, simd, 8x8x8x8, RIRI",
    ]  # fmt: skip


def test_each_counter_of_an_event_is_extrapolated_by_its_own_share(tmp_path, capsys, monkeypatch):
    codes = use(tmp_path, monkeypatch, "Cascade Lake")
    loads, stores = codes["tlb_misses"]
    words = (*COMMAND, "-t", "1", "--counters", "tlb_misses", "--placements", "2")
    for running, count in ((1000, 800), (500, 1100), (0, None)):
        _memkern.step_events([(*loads, 500, 1000, 1000, 0, -1),
                              (*stores, 300, 1000, running, 0, -1)])  # fmt: skip
        (row,) = measured(capsys, *words)
        (one,) = json.loads(row["counter_rows"])
        assert one["running"] == running / 1000
        if count is None:
            assert one["count"] is None
            assert row["counters_note"] == "tlb_misses has no count: its counter never ran"
        else:
            assert one["count"] * row["invocations"] == pytest.approx(count)


def test_lines_of_counts_are_those_of_the_system(monkeypatch):
    monkeypatch.setattr(caches, "line_B", lambda: 256)
    case = mk.loops("triad", elements=1024, variant="nt")
    lines = recorded._modelled(case, case.bytes_model_B, {}, "memory")
    assert lines["memory_load"] == 2 * 1024 * 8 / 256
    rows = [{"event": "memory_load", "count": 64.0}]
    found = recorded._levels(rows, lines, case.line_B)
    assert found == {"counted_memory_load_B": 64 * 256, "counted_memory_ratio": 1.0}
    counted = {**rows[0], "model": 32.0, "running": 1.0}
    row = {"kernel": "loops.triad", "memory_line_B": 256, "counter_rows": json.dumps([counted])}
    frame = pd.DataFrame([{**row, **ANY}, {**row, **ANY, "memory_line_B": None}])
    assert traffic_table(frame)["model_B"].tolist() == [32 * 256, 32 * 64]


def test_levels_that_hold_the_array_have_no_traffic():
    case = mk.loops("triad", elements=1024, variant="simd")
    model_B = case.bytes_model_B
    lines = recorded._modelled(case, model_B, {}, "L2")
    # Two arrays are loaded and one is stored; its lines are loaded first.
    assert (lines["L2_load"], lines["L2_store"]) == (3 * 1024 * 8 / 64, 1024 * 8 / 64)
    assert all(lines[name] == 0 for name in lines if not name.startswith("L2"))
    moved = {
        "L1": Transfer(6400.0, 640.0),
        "L2": Transfer(640.0, 320.0),
        "memory": Transfer(128.0, 64.0),
    }
    hop = mk.case("dw.hop", lattice=(4, 4, 4, 4), layout="lexicographic", threads=1)
    lines = recorded._modelled(hop, 1.0, moved, "memory")
    assert (lines["L2_load"], lines["L2_store"]) == (10, 5)
    assert (lines["L3_load"], lines["L3_store"]) == (2, 1)
    assert (lines["memory_load"], lines["memory_store"]) == (2, 1)
    lines = recorded._modelled(hop, 1.0, moved, "L2")
    assert lines["L2_load"] == 10
    assert lines["L3_load"] == lines["memory_load"] == 0


def test_counting_belongs_to_a_case_and_not_to_older_identities():
    case = mk.loops("copy", elements=64)
    assert case.with_(counters="auto").identity() != case.identity()
    assert "counters" not in case.knobs.requested


@NEEDS_COUNTERS
def test_the_extension_checks_what_it_gets():
    prepared = mk.loops("copy", elements=64, threads=1, variant="scalar").prepare()
    code = events.find("page-faults:u").codes[0]
    out = np.empty((2, 1 + len(sampling.CONDITIONS)))
    for shape in ((1, 1, 3), (2, 2, 3), (2, 1, 2), (2, 3)):
        with pytest.raises(ValueError, match="counts must have the shape"):
            prepared.native.sample(out, 1, 1.0, events=[code], counts=np.empty(shape))
    counts = np.full((2, 1, 3), np.nan)
    assert prepared.native.sample(out, 1, 1.0, events=[code], counts=counts) >= 1
    assert counts[0, 0, 1] > 0
