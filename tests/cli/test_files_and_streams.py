"""Existing files, full disks, closed standard streams and interrupts of the command line."""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from checking import (
    interrupt,
    once_a_kind,
    one_sentence,
    output_of,
    python,
    records_in,
    refused_words,
    run,
    wait_until,
)

import memkern as mk
from memkern import cli
from memkern.formats.resultset import working_file

LIMITED = (
    # Python would keep incomplete bytecode of what it imports.
    "import resource, sys; most = int(sys.argv[1]); sys.dont_write_bytecode = True;"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (most, most));"
    "from memkern.cli import main; sys.exit(main(sys.argv[2:]))"
)


def limited(most_B: int, folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run memkern with a limit on the size of files, which acts like a full disk."""
    return python("-c", LIMITED, most_B, *words, cwd=folder)


@pytest.mark.parametrize("target", once_a_kind(["out.csv", "out.db"]))
def test_a_sweep_is_resumed_after_a_full_disk(tmp_path, target):
    words = "stream -k copy -n 512 -t 1 --variant scalar --runs 2 --budget 0.05 --repeats 30 -q"
    words = [*words.split(), "-o", target]
    working = "out.db" if target == "out.db" else "out.csv.db"
    done = limited(40960, tmp_path, words)
    assert done.returncode == 2
    kept, reason, resume = done.stderr.splitlines()
    finished = len(mk.load(tmp_path / working))
    assert kept == f"memkern: {finished} of 30 measurements done, kept in {working}"
    assert reason == (
        f"memkern: {working} can't be written: a file may have at most 40960 bytes here (ulimit -f)"
    )
    assert resume == f"memkern: resume with: memkern {' '.join(words)} --resume"
    assert 0 < finished < 30
    assert limited(2**30, tmp_path, [*words, "--resume"]).returncode == 0
    assert len(mk.load(tmp_path / target)) == 30


def test_a_full_disk_leaves_no_incomplete_file(tmp_path):
    for most_B, words in (
        (4096, "stream -k copy -n 512 -t 1 --runs 2 -q -o x.db"),
        (512, "table spatter-table4 -o x.csv"),
    ):
        done = limited(most_B, tmp_path, words.split())
        assert done.returncode == 2
        told = f"can't be written: a file may have at most {most_B} bytes"
        assert told in one_sentence(done.stderr)
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "suffixes"),
    [
        ("report -o x.html", (".html", ".parquet", ".samples.parquet", ".parquet.db")),
        ("report -o x.html --quick", (".html", ".parquet", ".samples.parquet", ".parquet.db")),
        ("stream -n 512 --runs 1 -o x.csv", (".csv", ".samples.csv", ".csv.db")),
        ("tune -p UNIFORM:8:4 -l 64 -o x.json", (".json", ".json.db")),
        ("spmv poisson:4 --tune -o x.db", (".db",)),
        ("machine barrier --runs 2 -o x.json", (".json",)),
        ("table spatter-table4 -o x.csv", (".csv",)),
        ("compare a.json b.json --junit x.xml", (".xml",)),
        ("doctor --quick -o x.json", (".json",)),
    ],
)
def test_existing_files_are_not_overwritten(capsys, tmp_path, monkeypatch, words, suffixes):
    monkeypatch.chdir(tmp_path)
    for suffix in suffixes:
        mine = tmp_path / f"x{suffix}"
        mine.write_text("mine")
        told = refused_words(capsys, *words.split())
        assert f"{mine.name} exists already" in told and "--force" in told
        assert [file.name for file in tmp_path.iterdir()] == [mine.name]
        assert mine.read_text() == "mine"
        mine.unlink()


def test_force_overwrites(capsys, tmp_path):
    target = tmp_path / "x.json"
    for file in (target, tmp_path / "x.json.db"):
        file.write_text("mine")
    words = ("stream", "-n", "512", "--runs", "2", "-q", "-o", str(target))
    output_of(capsys, *words, "--force")
    assert len(mk.load(target)) == 5
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]
    csv = tmp_path / "x.csv"
    csv.write_text("mine")
    assert run(capsys, "table", "spatter-table4", "-o", str(csv), "--force")[0] == 0
    assert csv.read_text() != "mine"


@pytest.mark.parametrize("encoding", once_a_kind(["ascii", "latin-1", "utf-8"]))
def test_output_in_any_encoding(encoding):
    words = ["stream", "-k", "copy", "-n", "512", "-t", "1", "--runs", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "memkern", *words],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
    )
    assert done.returncode == 0, done.stderr
    assert b"GB/s" in done.stdout
    assert "±%".encode(encoding, errors="replace") in done.stdout


COPY = "stream -k copy -n 512 -t 1 --runs 2 -q"
REPEATED = "stream -k copy -n 512 -t 1 --runs 2 --repeats 2 -o x.csv"


@pytest.mark.parametrize(
    ("words", "streams", "code", "message"),
    [
        (f"{COPY} --json", ">/dev/full", 2, "standard output can't be written: the disk is full"),
        (REPEATED, ">/dev/full", 2, "output can't be written: the disk is full; x.csv is complete"),
        (REPEATED, "| true", 0, ""),
        (f"{COPY} -o x.csv", "2>/dev/full", 0, ""),
        (f"{COPY} -o x.csv", ">&- 2>&-", 0, ""),
        ("stream --help", ">/dev/full", 2, "standard output can't be written: the disk is full"),
        ("stream -k nope", "2>/dev/full", 2, ""),
        ("stream --nope", "2>/dev/full", 2, ""),
        ("fit none.json", ">/dev/full 2>/dev/full", 2, ""),
        ("fit none.json", ">&- 2>&-", 2, ""),
    ],
)
def test_results_are_kept_when_standard_streams_fail(tmp_path, words, streams, code, message):
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m memkern {words} {streams}"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == code, done.stderr
    # Earlier lines may report that the machine is not quiet.
    assert (done.stderr.splitlines() or [""])[-1].endswith(message)
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    if "-o" in words.split():
        assert len(mk.load(tmp_path / "x.csv")) == (2 if "--repeats" in words else 1)
        assert not (tmp_path / "x.csv.db").exists()


@pytest.mark.parametrize("setting", ["PYTHONIOENCODING=ascii", "LC_ALL=C"])
def test_non_ascii_arguments_raise_no_exception(tmp_path, setting):
    name, _, value = setting.partition("=")
    for words in (["fit", "µ±.json"], ["spatter", "-p", "µ±"], ["bs", "--help"]):
        done = subprocess.run(
            [sys.executable, "-m", "memkern", *words],
            capture_output=True,
            env={**os.environ, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", name: value},
            cwd=tmp_path,
        )
        assert done.returncode == (0 if "--help" in words else 2)
        assert b"Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) == (0 if "--help" in words else 1)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "terminated"]
)
def test_an_interrupted_sweep_says_how_to_resume(tmp_path, number, code):
    words = ["stream", "-k", "copy", "--sizes", "64KiB:4MiB:400", "-o", "x.csv"]
    words += ["--budget", "0.1", "--placements", "1"]
    command = [sys.executable, "-m", "memkern", *words]
    running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    working = tmp_path / "x.csv.db"
    wait_until(lambda: records_in(working), running)
    running.send_signal(number)
    _, err = running.communicate(timeout=60)
    assert running.returncode == code, err
    assert "Traceback" not in err
    assert "measurements done, kept in x.csv.db" in err
    assert f"resume with: memkern {' '.join(words)} --resume" in err
    assert len(mk.load(working)) > 0
    assert not (tmp_path / "x.csv").exists()


def test_the_command_that_resumes_overwrites_nothing(tmp_path, capsys):
    working_file(tmp_path / "x.csv").touch()
    args = argparse.Namespace(resume=False, output=str(tmp_path / "x.csv"))
    cli._print_resume_command(args, ["stream", "--force", "-t", "1"])
    assert capsys.readouterr().err == "memkern: resume with: memkern stream -t 1 --resume\n"


def test_ctrl_c_before_the_first_record_leaves_no_file(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("memkern.engine.placing.run.CaseRun.place", interrupt)
    target = tmp_path / "x.parquet"
    code, _, err = run(capsys, "stream", "-k", "copy", "-n", "512", "-q", "-o", str(target))
    assert code == 130
    assert "0 of 1 measurements done" in one_sentence(err)
    assert "kept" not in err and "--resume" not in err
    assert list(tmp_path.iterdir()) == []
