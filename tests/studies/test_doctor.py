"""Whole checks by memkern doctor: verdict, output, exit codes, baseline and storage."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from checking import interrupt, output_of, refused_words, run

import memkern as mk
from memkern import host, small
from memkern.host import capacity, file, this_host
from memkern.host import environment as host_environment
from memkern.machine.health import BAD, BASELINE, GOOD, NOTE, STATES, UNKNOWN, Finding
from memkern.studies import doctor as doctoring

VERDICTS = ("fit", "fit with reservations", "disturbed")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def small_cases(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make cases small, with enough time for all planned placements."""
    monkeypatch.setenv(small.VARIABLE, "1")
    monkeypatch.setattr(doctoring, "_QUICK", replace(doctoring._QUICK, total_s=120.0))
    return cache


def test_stored_sizes_of_caches_are_judged(cache, monkeypatch):
    def judged() -> Finding:
        (found,) = (f for f in mk.doctor(quick=True).findings if f.subject == "cache sizes")
        return found

    monkeypatch.setattr(doctoring, "_QUICK", replace(doctoring._QUICK, total_s=0.0))
    system = host_environment.machine_environment()["machine"]["caches"]
    assert judged().state == UNKNOWN
    last = system[-1]
    assert capacity.save({f"L{last['level']}": last["size_B"] // 4})
    found = judged()
    assert found.state == NOTE and f"{last['size_B'] // 2**10} KiB of L" in found.text


def test_a_small_check(small_cases):
    shares: list[float] = []
    found = mk.doctor(quick=True, progress=shares.append)
    assert found.verdict in VERDICTS
    assert shares == sorted(shares) and shares[-1] == 1.0
    places = [STATES.index(finding.state) for finding in found.findings]
    assert places == sorted(places)
    subjects = [finding.subject for finding in found.findings]
    assert len(set(subjects)) == len(subjects)
    assert {"governor", "swap", "timer", "steal time", "clock", "load", "triad"} <= set(subjects)
    assert BASELINE not in subjects and not found.worse
    kernels = [record["kernel"] for record in found.results]
    assert kernels == ["loops.load", "stream.triad", "latency.chase"]
    assert {record["doctor"] for record in found.results} == {found.summary}
    first, *lines = str(found).splitlines()
    assert first == found.verdict
    assert max(map(len, lines)) <= 100
    # The verdict of small cases is not stored.
    assert this_host().health == ""
    assert not list(small_cases.rglob("host*.json"))


def test_a_quick_check_is_stored_and_in_later_records(cache, capsys):
    out, _ = output_of(capsys, "doctor", "--quick")
    verdict, *lines = out.splitlines()
    assert verdict in VERDICTS
    assert lines[-1].startswith("took ")
    stored = this_host().health
    assert stored.startswith(verdict)
    record = mk.stream("copy", elements=64, threads=1, runs=1).measure().record
    assert record["doctor"] == stored and stored.endswith(" (less than an hour before)")


def test_it_is_valid_until_the_next_boot(cache, monkeypatch):
    assert this_host().health == ""
    assert mk.stream("copy", elements=64, threads=1, runs=1).measure().record["doctor"] == ""
    this_host().keep_health("disturbed: swap")
    ages = ((0, "less than an hour"), (1, "1 hour"), (30, "30 hours"))
    for hours, age in ages:
        later = datetime.now(timezone.utc) + timedelta(hours=hours, minutes=5)
        with monkeypatch.context() as patch:
            patch.setattr(host, "now", later.isoformat)
            assert this_host().health == f"disturbed: swap ({age} before)"
    with monkeypatch.context() as patch:
        patch.setattr(host, "control_groups", lambda: "0::/another")
        assert this_host().health == ""
    document = json.loads((cache / "cache/memkern/host-2.json").read_text())
    assert document["doctor"]["created"].endswith("+00:00")
    with monkeypatch.context() as patch:
        patch.setenv(small.VARIABLE, "1")
        assert this_host().health == ""
    monkeypatch.setattr(file, "boot_id", lambda: "another")
    assert host.Host(this_host().path).health == ""


def test_verbs_tell_once_that_the_machine_was_disturbed(cache, capsys):
    words = ("stream", "-k", "copy,triad", "-n", "64", "--runs", "1")
    this_host().keep_health("fit with reservations")
    assert run(capsys, *words)[2] == ""
    this_host().keep_health("disturbed: other programs, swap")
    _, err = output_of(capsys, *words)
    (sentence,) = err.splitlines()
    assert "memkern doctor found this machine disturbed: other programs, swap" in sentence


@pytest.fixture
def altered(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return columns that are set in the records of all checks."""
    calibrated, columns = doctoring.calibrated, dict[str, Any]()

    def changed(*arguments: Any) -> Any:
        measurement = calibrated(*arguments)
        measurement.record.update(columns)
        return measurement

    monkeypatch.setattr(doctoring, "calibrated", changed)
    return columns


@pytest.fixture
def earlier(
    small_cases: Path, altered: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> Callable[[float], Path]:
    """Return a function that writes a baseline with the given multiple of the measured times."""
    # The times of small cases vary by more than any effect.
    altered |= {"placement_sd": 0.01, "placements": 5}
    target = small_cases / "baseline.json"
    assert run(capsys, "doctor", "--quick", "-o", str(target))[0] == 0
    results = mk.load(target)
    assert len(results) == 3

    def with_times(factor: float) -> Path:
        records = [
            record
            | {name: factor * record[name] for name in record if name.startswith("time_")}
            | {"ns_per_access": factor * record["ns_per_access"]}
            for record in results
        ]
        mk.ResultSet(records, results.samples, results.environments).save(target)
        return target

    return with_times


def baseline_of(capsys: pytest.CaptureFixture[str], path: Path) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the finding on the baseline of a check."""
    code, out, _ = run(capsys, "doctor", "--quick", "--json", "--baseline", str(path))
    document = json.loads(out)
    assert document.keys() == {"verdict", "findings", "records"}
    assert all(f.keys() == {"subject", "state", "text", "advice"} for f in document["findings"])
    (found,) = (f for f in document["findings"] if f["subject"] == BASELINE)
    return code, found


def without_memory(*plan: Any, build: Any = doctoring._build) -> Any:
    return (*build(*plan)[:2], True)


@pytest.mark.parametrize(
    "factor, replaced, code, expected",
    [
        (1e-4, {}, 3, (BAD, " slower (+", "")),
        (1e4, {}, 0, (GOOD, " faster (-", "")),
        (1e4, {"_measure": lambda *_: False}, 4, (UNKNOWN, "", "without --quick")),
        (1.0, {"_build": without_memory}, 4, (UNKNOWN, "too little memory is free", "free")),
        # An unknown finding does not pass.
        (
            *(1.0, {"against": lambda *_: Finding(BASELINE, UNKNOWN, "", "again")}, 4),
            (UNKNOWN, "", ""),
        ),
    ],
)
def test_a_baseline_decides_on_the_exit_code(
    factor, replaced, code, expected, earlier, monkeypatch, capsys
):
    state, text, advice = expected
    baseline = earlier(factor)
    for name, replacement in replaced.items():
        monkeypatch.setattr(doctoring, name, replacement)
    exit_code, found = baseline_of(capsys, baseline)
    assert (exit_code, found["state"]) == (code, state)
    assert text in found["text"] and advice in found["advice"]
    assert bool(found["advice"]) == (state != GOOD)


def test_a_baseline_of_several_nodes_decides_by_their_range(earlier, altered, capsys):
    own = mk.load(earlier(1.0))
    target = earlier(1.0).with_name("fleet.parquet")

    def write_fleet(nodes: int, factor: float) -> Path:
        """Write the baseline of a fleet whose nodes differ by some percent."""
        found = [
            record
            | {"node": f"n{node}"}
            | {
                name: factor * 1.01 ** (node % 5) * record[name]
                for name in ("time_min_s", "ns_per_access")
            }
            for node in range(nodes)
            for record in own
        ]
        mk.ResultSet(found, [np.ones(1)] * len(found), own.environments).save(target)
        return target

    code, found = baseline_of(capsys, write_fleet(10, 1e-4))
    assert (code, found["state"]) == (3, BAD)
    assert found["text"].startswith("compared with the fleet: all cases slower (+")
    assert "11 nodes, 1 round: a node 20% slow is named with 0." in found["text"]
    code, found = baseline_of(capsys, write_fleet(10, 1e4))
    assert (code, found["state"]) == (0, GOOD) and "all cases faster (-" in found["text"]


def test_earlier_checks_are_the_history(earlier, capsys):
    own = mk.load(earlier(1.0))
    files = []
    for day in range(1, 7):
        started = f"2020-01-{day:02}T00:00:00+00:00"
        factor = 1e-4 * (1 + 0.01 * (day % 3))
        rows = [r | {"started": started, "time_min_s": factor * r["time_min_s"]} for r in own]
        files.append(earlier(1.0).with_name(f"day{day}.parquet"))
        mk.ResultSet(rows, own.samples, own.environments).save(files[-1])
    words = [str(file) for file in files]
    code, out, _ = run(capsys, "doctor", "--quick", "--json", "--baseline", *words)
    (found,) = (f for f in json.loads(out)["findings"] if f["subject"] == BASELINE)
    assert code == 3
    assert found["text"].startswith("compared with the earlier records: all cases slower (+")
    assert "6 earlier looks, 1 round: a node 20% slow" in found["text"]


def test_sizes_are_those_of_the_baseline(cache, monkeypatch):
    found: list[mk.ResultSet] = []

    def elements(memory_B: int, earlier: mk.ResultSet | None) -> tuple[int, bool]:
        monkeypatch.setattr(doctoring, "memory_left", lambda: (memory_B, "memory"))
        runs, refused, too_large = doctoring._build(doctoring._QUICK, earlier)
        assert not refused
        records = [{"kernel": run.case.spec.kernel, **run.case.columns} for run in runs.values()]
        found.append(mk.ResultSet(records, [np.ones(1)] * 3))
        return int(runs["loops.load"].case.columns["elements"]), too_large

    monkeypatch.setattr(doctoring, "beyond_caches_B", lambda: 2**28)
    whole, _ = elements(2**40, None)
    half, _ = elements(2**29, None)
    assert half == whole // 2
    # More memory than at the time of the baseline, equally much, and less.
    assert elements(2**40, found[1]) == (half, False)
    assert elements(2**40, found[0]) == (whole, False)
    assert elements(2**29, found[0]) == (half, True)
    other = mk.ResultSet([{"kernel": "loops.load", "elements": 3}], [np.ones(1)])
    assert elements(2**29, other) == (half, False)


def test_each_case_is_placed_before_the_cores_are_watched_for_long(small_cases, monkeypatch):
    deadlines: list[float] = []
    done: list[str] = []
    measure = doctoring._measure

    def cards() -> list[Finding]:
        done.append("cards")
        return []

    def cases(*all: Any) -> None:
        done.append("cases")
        measure(*all)

    shares: list[int] = []

    def place(run: doctoring.CaseRun, deadline: float, first_s: float, parts: int) -> None:
        deadlines.append(deadline)
        shares.append(parts)

    monkeypatch.setattr(doctoring, "_place", place)
    monkeypatch.setattr(doctoring, "_cards", cards)
    monkeypatch.setattr(doctoring, "_measure", cases)
    mk.doctor(quick=True)
    # GPUs take time too, so they are checked before the cases, which end at a deadline.
    assert done == ["cards", "cases"]
    # Watching takes 0.05 s here, in three parts.
    first, second, third = deadlines[:3], deadlines[3:6], deadlines[6:]
    assert np.allclose(np.subtract(first, second), (2 - doctoring._LEAST_WATCH) * 0.05 / 3)
    assert np.allclose(np.subtract(third, second), 0.05 / 3) and shares[:3] == [4, 3, 2]


def test_slow_trials_of_a_case_leave_time_for_the_others(monkeypatch):
    clock = [0.0]

    class Slow:
        """A case whose trials and samples last until its deadline; its other work takes 0.2 s."""

        def __init__(self) -> None:
            self.deadline = math.inf
            self.interrupted = False
            self.case = SimpleNamespace(placements=3)
            self.placements: list[Any] = []

        def place(self) -> None:
            begin, clock[0] = clock[0], self.deadline + 0.2
            taken = clock[0] - begin
            self.placements.append(SimpleNamespace(wall_s=taken, again_s=taken))

    def observe(seconds: float) -> None:
        clock[0] += max(seconds, 0.0)

    monkeypatch.setattr(doctoring.time, "perf_counter", lambda: clock[0])
    runs: Any = {kernel: Slow() for kernel in ("load", "triad", "chase")}
    watch: Any = SimpleNamespace(observe=observe)
    plan = doctoring._QUICK
    clock[0] = 2.0
    doctoring._measure(plan, plan.total_s, runs, {}, watch, lambda: None)
    assert all(run.placements for run in runs.values())
    assert clock[0] <= plan.total_s + 0.2


def test_files_that_are_no_baseline_are_refused(small_cases, capsys):
    foreign, other = (small_cases / f"{name}.json" for name in ("foreign", "other"))
    results = mk.stream("copy", elements=64, threads=1, runs=1).measure().results
    results.save(other)
    (environment,) = results.environments.values()
    model = {**environment["machine"], "model": "Another Processor"}
    environments = {key: {**environment, "machine": model} for key in results.environments}
    mk.ResultSet(results.records, results.samples, environments).save(foreign)
    for path, culprit in (
        (other, "has no case of this check"),
        (foreign, "another machine (Another Processor"),
        (small_cases / "missing.json", "does not exist"),
    ):
        sentence = refused_words(capsys, "doctor", "--quick", "-q", "--baseline", str(path))
        assert culprit in sentence and path.name in sentence


def test_a_quiet_check_is_one_line_and_may_overwrite(small_cases, capsys):
    target = small_cases / "doctor.json"
    target.write_text("mine")
    out, err = output_of(capsys, "doctor", "--quick", "-q", "-o", str(target), "--force")
    (line,) = out.splitlines()
    assert line.partition(":")[0] in VERDICTS and err == ""
    assert len(mk.load(target)) == 3


def test_a_wrong_result_is_exit_code_1(small_cases, altered, capsys):
    altered["valid"] = False
    code, out, _ = run(capsys, "doctor", "--quick")
    assert code == 1
    assert out.startswith("disturbed\n") and "results are wrong" in out


def test_cases_that_can_not_be_measured_are_unknown(small_cases, monkeypatch):
    case = doctoring.kernel_case

    def refusing(kernel: str, **options: Any) -> Any:
        if kernel == "latency.chase":
            raise mk.InputError("the chase needs 9 GB")
        return case(kernel, **options)

    def place(run: doctoring.CaseRun) -> None:
        raise MemoryError

    monkeypatch.setattr(doctoring, "kernel_case", refusing)
    monkeypatch.setattr(doctoring.CaseRun, "place", place)
    found = {finding.subject: finding for finding in mk.doctor(quick=True).findings}
    assert "9 GB" in found["latency"].text
    assert "out of memory" in found["load"].text
    assert {found[name].state for name in ("latency", "load", "triad")} == {UNKNOWN}


def test_an_interrupted_check_has_no_verdict(small_cases, monkeypatch, capsys):
    monkeypatch.setattr(doctoring.CaseRun, "place", interrupt)
    code, out, err = run(capsys, "doctor", "--quick", "-o", str(small_cases / "x.json"))
    assert (code, out) == (130, "") and "interrupted" in err
    assert not (small_cases / "x.json").exists()
