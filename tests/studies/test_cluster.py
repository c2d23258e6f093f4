"""Sweeps in tasks: parts of the cases, submitit's local executor, tasks that die, resuming."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fleet_records
import pytest
from checking import output_of, refused_words, run, task_of, wait_until

import memkern as mk
from memkern import cli
from memkern.cli import sweep as sweeping
from memkern.formats import ResultSet
from memkern.results.merging import finished_cases
from memkern.spec.sequences import Part
from memkern.studies import cluster

SWEEP = """
repeats = 2
[[case]]
kernel = "stream.copy"
elements = [512, 1024, 4096]
offset = [0, 64]
variant = "scalar"
runs = 2
budget_s = 0.05
threads = 1
"""
SIZE = 2 * 2 * 3


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks, which are other processes, import the modules of this process."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))


@pytest.fixture
def sweep(tmp_path: Path) -> list[str]:
    """Words of a sweep in two tasks."""
    (tmp_path / "sweep.toml").write_text(SWEEP)
    words = ["sweep", str(tmp_path / "sweep.toml"), "-o", str(tmp_path / "all.parquet")]
    return [*words, "--executor", "local", "--nodes", "2"]


def keys(results: ResultSet) -> list[tuple[str, int]]:
    return sorted((row["case_id"], row["repeat"]) for row in results)


@pytest.mark.parametrize("size", [0, 1, 5, 12, 64, 1000])
@pytest.mark.parametrize("of", [1, 2, 3, 7, 16])
def test_every_case_is_in_one_part(size, of):
    cases: Any = range(size)
    parts = [list(Part(number + 1, of).select(cases)) for number in range(of)]
    assert sorted(place for part in parts for place in part) == list(range(size))
    lengths = [len(part) for part in parts]
    assert max(lengths) - min(lengths) <= 1
    assert parts == [list(Part(number + 1, of).select(cases)) for number in range(of)]


def test_no_part_has_all_cases_with_one_value_of_an_option():
    cases: Any = range(64)
    for of in (2, 4):
        for number in range(of):
            part = list(Part(number + 1, of).select(cases))
            # With round robin, a last option with `of` values would be constant in each part.
            assert {place % of for place in part} == set(range(of))
            # Values of slowly varying options are equally frequent in every part.
            assert sum(place < 32 for place in part) == 32 // of


def test_parts_by_hand_make_the_whole(capsys, tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP)
    files = [str(tmp_path / f"{number}.db") for number in (1, 2, 3)]
    for number, file in enumerate(files):
        output_of(capsys, "sweep", str(path), "--part", f"{number + 1}/3", "-o", file, "-q")
    output_of(capsys, "sweep", str(path), "-o", str(tmp_path / "whole.db"), "-q")
    assert [len(mk.load(file)) for file in files] == [4, 4, 4]
    whole = mk.load(tmp_path / "whole.db")
    assert keys(mk.merge(files)) == keys(whole)
    # Merged records of equal machines name their hosts.
    assert {row["hosts"] for row in mk.merge(files)} == {os.uname().nodename}
    assert {row["hosts"] for row in whole} == {""}


@pytest.mark.parametrize("part", ["0/2", "3/2", "2", "a/b", "1/0", "1/2/3", "-1/2", ""])
def test_wrong_parts_are_refused(capsys, part):
    assert "must be K/N" in refused_words(capsys, "sweep", "x.toml", f"--part={part}")


@pytest.mark.usefixtures("users_files")
def test_a_sweep_in_tasks_is_the_sweep(capsys, tmp_path, sweep):
    out, _ = output_of(capsys, *sweep)
    header, *rows, scope = out.splitlines()
    assert header.split()[:2] == ["offset", "case"] and scope.startswith("±%")
    assert sorted(row.split()[0] for row in rows) == sorted(["0", "64"] * 6)
    target = tmp_path / "all.parquet"
    results = mk.load(target)
    assert run(capsys, *sweep[:2], "-q", "-o", str(tmp_path / "whole.db"))[0] == 0
    assert keys(results) == keys(mk.load(tmp_path / "whole.db"))
    assert results.valid
    assert {row["hosts"] for row in results} == {os.uname().nodename}
    tasks = sorted((tmp_path / "all.parquet.tasks").glob("*.db"))
    assert [path.name.partition(".")[0] for path in tasks] == ["1-of-2", "2-of-2"]
    assert [len(mk.load(path)) for path in tasks] == [SIZE // 2, SIZE // 2]
    # Existing results are neither overwritten nor measured again.
    assert f"{target} exists already" in refused_words(capsys, *sweep)
    target.unlink()
    (tmp_path / "all.samples.parquet").unlink()
    assert "all.parquet.tasks exists already" in refused_words(capsys, *sweep)
    out, _ = output_of(capsys, *sweep, "--resume", "--json")
    assert len(json.loads(out)) == SIZE
    assert mk.load(target) == results
    # With --force they are.
    (tmp_path / "sweep.toml").write_text(SWEEP.replace("repeats = 2", "repeats = 1"))
    assert run(capsys, *sweep[:-1], "1", "--force", "-q")[0] == 0
    assert len(mk.load(target)) == SIZE // 2
    (task,) = (tmp_path / "all.parquet.tasks").glob("*.db")
    assert task.name.startswith("1-of-1.")


def test_more_tasks_than_cases_are_not_submitted(capsys, tmp_path, sweep):
    (tmp_path / "sweep.toml").write_text(
        '[[case]]\nkernel = "stream.copy"\nelements = 512\nruns = 2\nvariant = "scalar"'
    )
    assert run(capsys, *sweep[:-1], "9", "-q", "-t", "1")[0] == 0
    assert len(mk.load(tmp_path / "all.parquet")) == 1
    assert len(list((tmp_path / "all.parquet.tasks").glob("*.json"))) == 1


def test_resuming_measures_what_a_changed_file_adds(capsys, tmp_path, sweep):
    assert run(capsys, *sweep[:-1], "1", "-q")[0] == 0
    before = mk.load(tmp_path / "all.parquet")
    (tmp_path / "sweep.toml").write_text(SWEEP.replace("4096", "4096, 8192"))
    # The number of tasks may change too, although parts then have different cases.
    assert run(capsys, *sweep, "-q", "--resume")[0] == 0
    after = mk.load(tmp_path / "all.parquet")
    assert len(after) == SIZE + 4
    assert sum(row["elements"] == 8192 for row in after) == 4
    times = {(row["case_id"], row["repeat"]): row["time_min_s"] for row in after}
    assert all(times[row["case_id"], row["repeat"]] == row["time_min_s"] for row in before)


def test_a_task_that_is_killed_leaves_what_it_finished(capsys, tmp_path, sweep):
    (tmp_path / "sweep.toml").write_text(
        '[[case]]\nkernel = "stream.copy"\nelements = [512, 513, 514, 515, 516, 517, 518, 519]\n'
        "budget_s = 0.4\nmax_samples = 10000000\nci = 1e-9\nplacements = 1\nthreads = 1\n"
        'variant = "scalar"\n'
    )
    folder = tmp_path / "all.parquet.tasks"
    command = [sys.executable, "-m", "memkern", *sweep, "-q"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def cases() -> set[tuple[str, int]]:
        files = [path for path in folder.glob("*.db") if path.stat().st_size]
        return set().union(*map(finished_cases, files))

    wait_until(cases, running)
    # Less than the time of a case, but enough to write all if they were written at the end.
    time.sleep(0.2)
    process = task_of(folder)
    assert process is not None
    os.kill(process, signal.SIGKILL)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 2
    sentences = [line for line in err.splitlines() if line.startswith("memkern: ")]
    log = re.search(r"memkern: task 1 of 2 failed: .* \(log: (.*)\)", err)
    assert log and Path(log[1]).is_relative_to(folder) and Path(log[1]).exists()
    assert "1 of 2 tasks failed" in sentences[-1] and "--resume" in sentences[-1]
    assert not (tmp_path / "all.parquet").exists()
    (part,) = folder.glob("1-of-2.*.db")
    kept = {(row["case_id"], row["repeat"]): row for row in mk.load(part)}
    finished = finished_cases(part)
    assert 0 < len(finished) < 4
    # The second task is finished and does not run again.
    (outcome,) = folder.glob("*.json")
    before = outcome.stat().st_mtime_ns
    assert run(capsys, *sweep, "-q", "--resume")[0] == 0
    assert outcome.stat().st_mtime_ns == before
    after = {(row["case_id"], row["repeat"]): row for row in mk.load(tmp_path / "all.parquet")}
    assert len(after) == 8
    assert all(row["stop"] != "interrupted" for row in after.values())
    for key in finished:
        assert after[key]["time_min_s"] == kept[key]["time_min_s"]


def test_the_error_of_a_task_is_named(capsys, tmp_path, sweep):
    # The file is changed between the submission and the start of the task.
    original = cluster._Executor.submit

    def submit(self: Any, tasks: Any) -> Any:
        (tmp_path / "sweep.toml").write_text(SWEEP + "\n")
        return original(self, tasks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster._Executor, "submit", submit)
        code, _, err = run(capsys, *sweep, "-q")
    assert code == 2
    for number in (1, 2):
        assert f"task {number} of 2 failed: {tmp_path / 'sweep.toml'} was changed after" in err
    assert "2 of 2 tasks failed" in err.splitlines()[-1]


def test_ctrl_c_ends_the_task_and_keeps_its_results(tmp_path, sweep):
    (tmp_path / "sweep.toml").write_text(
        SWEEP.replace("runs = 2\nbudget_s = 0.05", "budget_s = 30\nci = 1e-9")
    )
    folder = tmp_path / "all.parquet.tasks"
    command = [sys.executable, "-m", "memkern", *sweep, "-q"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    process = wait_until(lambda: list(folder.glob("*.db")) and task_of(folder), running)
    # Like a terminal, signal the task and its parents.
    os.killpg(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert err == "memkern: interrupted\n"
    assert not Path(f"/proc/{process}").exists()
    (outcome,) = folder.glob("*.json")
    assert outcome.name == "1-of-2.json"
    assert "it was interrupted" in json.loads(outcome.read_text())["error"]


def measured_elsewhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, sweep: list[str], section: str
) -> ResultSet:
    """Measure the sweep; store its first records as a task's in another environment."""
    file = tmp_path / "whole.db"
    assert run(capsys, *sweep[:2], "-q", "-o", str(file))[0] == 0
    whole = mk.load(file)
    environment = next(iter(whole.environments.values()))
    there = {**environment, section: {**environment[section], "model": "another"}}
    folder = tmp_path / "all.parquet.tasks"
    folder.mkdir()
    records = [{**row, "environment_id": "there"} for row in whole.records[:4]]
    results = ResultSet(records, whole.samples[:4], {"there": there})
    results.save(folder / "1-of-2.there.db")
    return whole


def test_another_kind_of_machine_continues_in_a_file_of_its_own(capsys, tmp_path, sweep):
    whole = measured_elsewhere(capsys, tmp_path, sweep, "machine")
    assert run(capsys, *sweep, "-q", "--resume")[0] == 0
    merged = mk.load(tmp_path / "all.parquet")
    assert keys(merged) == keys(whole)
    assert len(merged.environments) == 2
    assert sum(row["environment_id"] == "there" for row in merged) == 4
    assert len(list((tmp_path / "all.parquet.tasks").glob("1-of-2.*.db"))) == 2


def test_results_of_another_build_are_not_continued(capsys, tmp_path, sweep):
    measured_elsewhere(capsys, tmp_path, sweep, "build")
    refusal = refused_words(capsys, *sweep, "-q", "--resume")
    assert "1-of-2.there.db holds results of another build (build.model: another" in refusal


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--nodes 2", "--nodes has no effect without --executor"),
        ("--no-wait", "--no-wait has no effect without --executor"),
        ("--options time=5", "--options has no effect without --executor"),
        ("--executor local", "--executor needs --output"),
        ("--executor local -o x.db --part 1/2", "--part has no effect with --executor"),
        ("--executor local -o x.db --no-wait", "--no-wait has no effect with --executor local"),
        ("--executor local -o x.db --options time=5", "time=... is for --executor slurm"),
        ("--executor local -o x.db --options time", "NAME=VALUE, not 'time'"),
        ("--executor slurm -o x.db --options array=1-3", "array=... is chosen by memkern"),
        ("--executor local -o x.txt", "x.txt must end in one of"),
        ("--executor local -o /nowhere/x.db", "/nowhere/x.db can't be written"),
        ("--executor local -o x.db --prefetch 0 --threads 0", "--threads"),
    ],
)
def test_nonsense_is_refused(capsys, monkeypatch, tmp_path, words, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    Path("x.toml").write_text(SWEEP)
    assert message in refused_words(capsys, "sweep", "x.toml", *words.split())
    assert [path.name for path in tmp_path.iterdir()] == ["x.toml"]


def test_what_is_missing_is_named(capsys, monkeypatch, sweep):
    slurm = ["slurm" if word == "local" else word for word in sweep]
    monkeypatch.setenv("PATH", "/nowhere")
    assert "needs Slurm's sbatch" in refused_words(capsys, *slurm)
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert "--executor needs submitit: pip install" in refused_words(capsys, *sweep)


def test_ranks_submit_nothing(capsys, monkeypatch, sweep):
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    refusal = refused_words(capsys, *sweep, "--comm", "none")
    assert "--executor submits from one process, not from 2 ranks" in refusal


def test_the_executors_are_those_of_the_command_line():
    (verbs,) = (a.choices for a in cli.build_parser()._actions if isinstance(a.choices, dict))
    (option,) = (a for a in verbs["sweep"]._actions if a.dest == "executor")
    assert list(option.choices) == list(cluster.EXECUTORS)


# ------------------------------------------------------------------------------------------ fleets


def test_a_node_is_measured_in_rounds(capsys, sweep):
    words = [*sweep[:-2], "--every-node", "0.001"]
    out, _ = output_of(capsys, *words, "--repeats", "3")
    target = Path(sweep[3])
    results = mk.load(target)
    assert sorted({row["repeat"] for row in results}) == [0, 1, 2]
    assert len(results) == 3 * SIZE // 2 and len(out.splitlines()) == len(results) + 2
    assert {row["node"] for row in results} == {os.uname().nodename}
    assert [path.stem for path in target.with_name("all.parquet.tasks").glob("*.db")] == [
        os.uname().nodename
    ]
    assert "this node alone" in refused_words(capsys, *words, "--force", "--nodes", "2")
    assert "measured together" in refused_words(capsys, *words, "--resume")
    assert "without --executor" in refused_words(capsys, *sweep[:2], "--every-node")


@pytest.mark.parametrize(
    "slow, rounds, suspect",
    [(1.0, 3, False), (1.12, 2, True), (2.0, 3, False)],
)
def test_a_node_that_may_be_off_gets_more_rounds(slow, rounds, suspect, tmp_path, monkeypatch):
    """A node that is named, or in the range, needs none."""
    rows = fleet_records.records(6, {"n02": slow}, rounds=rounds, spread=0.02)
    for node in {row["node"] for row in rows}:
        own = [row | {"node": "", "stop": ""} for row in rows if row["node"] == node]
        fleet_records.results(own).save(tmp_path / f"{node}.db")
    monkeypatch.setattr(cluster, "node_name", lambda: "n02")
    task = cluster.Task(Part(1, 6), tmp_path, "", frozenset(), lambda _: True, fleet=True)
    assert task.is_suspect(3 * rounds, patience_s=60) == suspect
    # Without an answer of the others, what is there decides.
    assert task.is_suspect(3 * rounds + 1, patience_s=0) == suspect
    monkeypatch.setattr(cluster, "results_of", lambda folder: [folder / "n02.db"])
    assert not task.is_suspect(1, patience_s=0)


@pytest.mark.parametrize(
    "suspect, interrupted, rounds", [(0, False, 3), (5, False, 5), (9, False, 6), (0, True, 1)]
)
def test_rounds_go_on_while_a_node_is_suspect(monkeypatch, suspect, interrupted, rounds):
    done: list[int] = []

    class Task:
        def is_suspect(self, measurements: int, patience_s: float) -> bool:
            assert measurements == 3 and patience_s > 60
            return len(done) < suspect

    def measure(cases: Any, args: Any, **_: Any) -> Any:
        assert args.resume
        done.append(args.repeats)
        return SimpleNamespace(interrupted=interrupted)

    monkeypatch.setattr(sweeping, "measure", measure)
    monkeypatch.setattr(sweeping, "requested", lambda *_: ([1], [1]))
    args: Any = SimpleNamespace(repeats=3, every_node=1e-4, resume=False)
    fake: Any = ([], args, Task())
    assert sweeping._measure_rounds(*fake) is not interrupted
    assert done == [*range(1, rounds + 1)]
