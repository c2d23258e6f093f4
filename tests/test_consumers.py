"""The examples for other programs, read by these: ReFrame, airspeed velocity and GitHub Actions.

`make test-all` installs them (extra ``consumers``); without them the tests fail.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checking import executable, python
from merit_records import records, results

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"

pytestmark = pytest.mark.release


def program(folder: Path, first: str = "") -> None:
    """Write a script `memkern` into the folder ``bin`` of a folder, with a first line."""
    path = folder / "bin" / "memkern"
    executable(path, f'{first}\nexec "{sys.executable}" -m memkern "$@"')


def run(module: str, *words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line of a program in a folder, with `memkern` on PATH."""
    if not (folder / "bin").exists():
        program(folder)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    code = f"import sys; from {module} import main; sys.exit(main())"
    variables = os.environ | {"HOME": str(folder), "PATH": path}
    return python("-c", code, *words, cwd=folder, env=variables)


def reframe(folder: Path) -> dict[str, Any]:
    """Run the example of ReFrame; return the result of its test."""
    report = folder / "report.json"
    done = run(
        "reframe.frontend.cli", "-c", EXAMPLES / "reframe" / "memory.py", "-r",
        "--prefix", folder / "out", "--report-file", report, folder=folder,
    )  # fmt: skip
    assert report.exists(), done.stdout + done.stderr
    (session,) = json.loads(report.read_text())["runs"]
    (found,) = session["testcases"]
    return dict(found)


def test_reframe_reads_the_figures_of_merit(tmp_path):
    saved = tmp_path / "saved.parquet"
    results(records()).save(saved)
    # Instead of measuring, it gives these records.
    program(tmp_path, f'[ "$1" != stream ] || set -- merge "{saved}" -o machine.parquet')
    found = reframe(tmp_path)
    assert found["result"] == "pass", found["fail_reason"]
    values = {key.rpartition(":")[2]: value for key, value in found["perfvalues"].items()}
    assert {name: value[0] for name, value in values.items()} == {"copy": 100.0, "triad": 105.0}
    assert {value[4] for value in values.values()} == {"GB/s"}


def test_reframe_measures(tmp_path):
    found = reframe(tmp_path)
    if found["result"] != "pass":
        # The only reason is that this machine is disturbed now.
        assert found["fail_phase"] == "sanity"
        assert re.search("disturbed", (Path(found["stagedir"]) / "rfm_job.err").read_text())
    else:
        assert all(value[0] > 0 for value in found["perfvalues"].values())


def test_asv_runs_the_benchmarks(tmp_path):
    # A repository of its own: asv asks it for the commit.
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "Empty"]):
        subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e", *words], cwd=tmp_path, check=True
        )
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout.strip()
    example = tmp_path / "examples" / "asv"
    example.parent.mkdir()
    subprocess.run(["cp", "-r", EXAMPLES / "asv", example], check=True)
    for words in (
        ["machine", "--yes"],
        ["run", "--quick", "--environment", f"existing:{sys.executable}",
         "--set-commit-hash", commit],
    ):  # fmt: skip
        done = run("asv.main", *words, "--config", example / "asv.conf.json", folder=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (example / "results").glob("*/*existing*.json")
    found = json.loads(path.read_text())
    values = {
        name: dict(zip(found["result_columns"], row, strict=False))["result"]
        for name, row in found["results"].items()
    }
    assert set(values) == {"memory.Streams.track_shortest_time", "memory.Gather.time_gather"}
    assert values["memory.Gather.time_gather"][0] > 0
    assert len(values["memory.Streams.track_shortest_time"]) == 4


def test_jobs_follow_the_schema_of_github():
    words = ["-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    jobs = sorted((EXAMPLES / "ci").glob("*.yml"))
    assert len(jobs) == 2
    done = subprocess.run([sys.executable, *words, *jobs], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
