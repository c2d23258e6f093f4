"""Sweeps as job arrays of a real Slurm, which runs only on this machine (``--cluster``)."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checking import executable, interrupt, output_of, refused_words, run, task_of, wait_until
from launching import OPEN_MPI
from slurm import cluster_of, missing

import memkern as mk
from memkern.studies import cluster

pytestmark = pytest.mark.cluster

SWEEP = """
[[case]]
kernel = ["stream.copy", "stream.triad"]
elements = [512, 1024, 4096]
runs = 2
"""
EXAMPLES = Path(__file__).parents[2] / "examples"
# Long enough to be ended before completion: six seconds for each part.
LONG = SWEEP.replace("runs = 2", "placements = 1\nci = 1e-9\nbudget_s = 2")


@pytest.fixture(scope="module", params=[1])
def configuration(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Start a cluster of one node, or of more."""
    if lacking := missing():
        pytest.fail(f"{', '.join(lacking)}: tools/install-system-packages.sh --cluster")
    with cluster_of(request.param, tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture
def sweep(
    configuration: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[list[str]]:
    """Words of a sweep in two tasks, in a separate folder."""
    monkeypatch.setenv("SLURM_CONF", str(configuration))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setattr(cluster._Slurm, "poll_s", 0.5)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    words = "sweep sweep.toml -o all.parquet --executor slurm --nodes 2"
    yield words.split()
    slurm("scancel", "--me")


def slurm(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def jobs() -> list[str]:
    return slurm("squeue", "--me", "--noheader", "--array", "--format=%i").split()


def test_a_sweep_is_a_job_array(capsys, sweep):
    out, err = output_of(capsys, *sweep)
    assert sum(line[0].isdigit() for line in out.splitlines()) == 6
    results = mk.load("all.parquet")
    assert len(results) == 6 and results.valid
    # A task has all units of its node.
    assert {row["threads"] for row in results} == {len(os.sched_getaffinity(0))}
    tasks = Path("all.parquet.tasks")
    assert len(list(tasks.glob("*-of-2.*.db"))) == 2
    (script,) = (path for path in (tasks / "jobs").glob("*_submission.sh"))
    text = script.read_text()
    assert re.search(r"^#SBATCH --array=0-1", text, re.MULTILINE)
    assert re.search(r"^#SBATCH --exclusive$", text, re.MULTILINE)
    assert "--time" not in text and "srun" not in text
    # All cases are finished, so nothing is submitted.
    before = len(list((tasks / "jobs").iterdir()))
    code, out, err = run(capsys, *sweep, "--resume", "-q")
    assert (code, out) == (0, ""), err
    assert len(list((tasks / "jobs").iterdir())) == before
    assert mk.load("all.parquet") == results


@pytest.mark.parametrize("configuration", [2], indirect=True)
def test_a_fleet_is_measured_in_one_job(capsys, sweep):
    short = SWEEP.replace("elements = [512, 1024, 4096]", "elements = 1024\nthreads = 1")
    Path("sweep.toml").write_text(short)
    words = [*sweep, "--every-node", "0.05", "--repeats", "2"]
    out, _ = output_of(capsys, *words)
    assert "2 nodes, " in out and "a node 20% slow is named with" in out
    results = mk.load("all.parquet")
    assert len({row["node"] for row in results}) == 2
    (script,) = Path("all.parquet.tasks/jobs").glob("*_submission.sh")
    text = script.read_text()
    assert "--nodes=2" in text and "--cpu-bind=none" in text and "--array" not in text
    # The printed command compares the same nodes.
    code, out, err = run(capsys, *words, "--force", "--no-wait")
    assert code == 0, err
    merge = out.splitlines()[-1].removeprefix("merge:     memkern ")
    assert merge.startswith("compare fleet -o all.parquet ")
    wait_until(lambda: not jobs())


def test_options_are_those_of_sbatch(capsys, sweep):
    options = ["time=7", "cpus-per-task=1", "exclusive=false", "comment=a=b"]
    assert run(capsys, *sweep, "-q", "--no-wait", "--options", *options)[0] == 0
    (number, *_) = jobs()
    shown = slurm("scontrol", "show", "job", number)
    for text in ("TimeLimit=00:07:00", "CPUs/Task=1", "Comment=a=b", "OverSubscribe=OK"):
        assert text in shown
    wait_until(lambda: not jobs())


def test_what_sbatch_refuses_is_said(capsys, sweep):
    refusal = refused_words(capsys, *sweep, "--options", "partition=nowhere")
    assert "the jobs can't be submitted: invalid partition specified: nowhere" in refusal
    assert not Path("all.parquet.tasks").exists()
    refusal = refused_words(capsys, *sweep, "--options", "partitoin=all")
    assert "partitoin" in refusal


def test_a_submitted_sweep_is_merged_later(capsys, sweep):
    code, out, err = run(capsys, *sweep, "--no-wait")
    assert (code, err) == (0, "")
    submitted, follow, merge, *_ = out.splitlines()
    assert re.fullmatch(r"submitted: (\d+)_0 \1_1", submitted)
    assert not Path("all.parquet").exists()
    # The same command waits for these jobs.
    _, err = output_of(capsys, *sweep, "--resume", "-q")
    assert not jobs()
    results = mk.load("all.parquet")
    assert len(results) == 6
    # The printed command does the same.
    words = merge.removeprefix("merge:     memkern ").replace("all.parquet ", "again.parquet ")
    subprocess.run(f"{sys.executable} -m memkern {words}", shell=True, check=True)
    assert mk.load("again.parquet") == results
    slurm(*follow.removeprefix("follow:    ").split())


def test_a_task_that_dies_is_resumed(capsys, sweep):
    Path("sweep.toml").write_text(LONG)
    assert run(capsys, *sweep, "-q", "--no-wait")[0] == 0
    tasks = Path("all.parquet.tasks").absolute()
    refusal = refused_words(capsys, *sweep, "-q", "--resume", "--no-wait")
    assert "is still running" in refusal
    assert "still writes to" in refused_words(capsys, *sweep, "-q", "--force")
    wait_until(lambda: list(tasks.glob("1-of-2.*.db")))
    process = task_of(tasks)
    assert process is not None
    os.kill(process, signal.SIGKILL)
    # The command waits for the other task, and submits the first one again.
    output_of(capsys, *sweep, "-q", "--resume")
    assert len(mk.load("all.parquet")) == 6
    assert len(list((tasks / "jobs").glob("*_submitted.pkl"))) == 3


def test_tasks_that_are_cancelled_are_named_with_their_logs(capsys, monkeypatch, sweep):
    Path("sweep.toml").write_text(LONG)
    tasks = Path("all.parquet.tasks")
    original = cluster.Array._submit

    def submit(self: cluster.Array, parts: Any) -> Any:
        found = original(self, parts)
        wait_until(lambda: list(tasks.glob("1-of-2.*.db")))
        slurm("scancel", found[0].job_id.partition("_")[0])
        return found

    monkeypatch.setattr(cluster.Array, "_submit", submit)
    code, _, err = run(capsys, *sweep, "-q")
    assert code == 2
    # Only the first task has started, since it uses the node exclusively.
    for number, why in (
        (1, "it was interrupted, by .* time limit"),
        (2, "it was ended without a message"),
    ):
        assert re.search(
            rf"task {number} of 2 failed: {why} \(log: .*_{number - 1}_0_log.err\)", err
        )
    assert "2 of 2 tasks failed" in err.splitlines()[-1]


def test_ctrl_c_leaves_the_jobs(capsys, monkeypatch, sweep):
    Path("sweep.toml").write_text(LONG)

    with monkeypatch.context() as patch:
        patch.setattr(cluster.time, "sleep", interrupt)
        code, _, err = run(capsys, *sweep, "-q")
    assert code == 130
    number = jobs()[0].partition("_")[0]
    assert f"scancel {number} ends them" in err and "--resume" in err
    assert len(jobs()) == 2


def test_the_templates_are_jobs(monkeypatch, sweep):
    Path("examples").symlink_to(EXAMPLES)
    memkern = Path("bin/memkern").absolute()
    executable(memkern, f'exec {sys.executable} -m memkern "$@"')
    monkeypatch.setenv("PATH", f"{memkern.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    for name, value in OPEN_MPI.items():
        monkeypatch.setenv(name, value)
    units = len(os.sched_getaffinity(0))
    shape = ["--nodes=1", f"--ntasks-per-node={min(units, 2)}", "--cpus-per-task=1"]
    slurm("sbatch", *shape, "--output=ranks.log", "examples/cluster/slurm.sh")
    slurm("sbatch", "examples/cluster/slurm-sweep.sh")
    wait_until(lambda: not jobs())
    found = [path for path in Path().glob("triad-*.parquet") if "samples" not in path.name]
    assert found, Path("ranks.log").read_text()
    assert [row["ranks"] for row in mk.load(found[0])] == [min(units, 2)]
    logs = [path.read_text() for path in sorted(Path().glob("sweep-*.log"))]
    parts = list(Path().glob("sweep-*-of-4.db"))
    assert len(parts) == 4, logs
    assert len(mk.merge(parts)) == sum(len(mk.load(path)) for path in parts)
