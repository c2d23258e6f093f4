"""The command line without a home, with odd names, locks and variables, and with Ctrl-C."""

import errno
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import refusing
from checking import python

import memkern as mk
from memkern import files, plots
from memkern.errors import InputError
from memkern.formats import database
from memkern.launcher import python_command

PROCESSORS = range(os.cpu_count() or 1)
SPATTER = ["spatter", "-p", "UNIFORM:8:1", "--runs", "1", "-q"]
STREAM = ["stream", "-k", "copy", "-n", "4096", "--runs", "1", "-q"]


def memkern(words: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command with these environment variables, PATH and MEMKERN_SMALL only."""
    env = {"PATH": os.environ["PATH"], "MEMKERN_SMALL": "1", **variables}
    return python("-m", "memkern", *words, cwd=folder, env=env, errors="surrogateescape")


def test_threads_that_cannot_be_started_end_with_a_sentence(tmp_path):
    words = [sys.executable, "-m", "memkern", *STREAM, "--threads", "2"]
    # OpenBLAS has its own default.
    variables = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    variables["MEMKERN_SMALL"] = "1"
    calls = ("EAGAIN", "clone,clone3")
    done = python(refusing.__file__, *calls, *words, cwd=tmp_path, env=variables)
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, done.stdout) == (2, "")
    assert last.startswith("memkern: only 1 of 2 threads can be started, since the ")
    assert last.endswith(": raise this limit, or request fewer threads")
    assert "OpenBLAS" not in done.stderr


def topology(processors: range, model: str = "") -> str:
    """Return hwloc's description of a machine with one package and one core per processor."""

    def sets(mask: int) -> str:
        return " ".join(
            f'{kind}="{value:#x}"'
            for kind, value in {
                "cpuset": mask, "complete_cpuset": mask, "nodeset": 1, "complete_nodeset": 1,
            }.items()
        )  # fmt: skip

    every = sum(1 << unit for unit in processors)
    cores = "".join(
        f'<object type="Core" os_index="{unit}" {sets(1 << unit)} gp_index="{10 + 2 * unit}">'
        f'<object type="PU" os_index="{unit}" {sets(1 << unit)} gp_index="{11 + 2 * unit}"/>'
        "</object>"
        for unit in processors
    )
    info = f'<info name="CPUModel" value="{model}"/>' if model else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
        f'<topology version="2.0">\n<object type="Machine" os_index="0" {sets(every)} '
        f'allowed_cpuset="{every:#x}" allowed_nodeset="1" gp_index="1">'
        f'<object type="NUMANode" os_index="0" {sets(every)} gp_index="2" local_memory="8000000"/>'
        f'<object type="Package" os_index="0" {sets(every)} gp_index="3">{info}{cores}</object>'
        "</object></topology>"
    )


def test_a_topology_that_a_launcher_exports_is_used(tmp_path):
    (tmp_path / "here.xml").write_text(topology(PROCESSORS))
    done = memkern([*STREAM, "--json"], tmp_path, HWLOC_XMLFILE="here.xml", HWLOC_THISSYSTEM="0")
    assert done.returncode == 0, done.stderr
    assert '"pin": "none"' not in done.stdout


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("HWLOC_XMLFILE", "more.xml", "another machine than this one, because of HWLOC_XMLFILE="),
        ("HWLOC_XMLFILE", "model.xml", "another machine than this one, because of HWLOC_XMLFILE="),
        ("HWLOC_XMLFILE", "damaged.xml", "could not read the topology of HWLOC_XMLFILE="),
        ("HWLOC_SYNTHETIC", f"core:{len(PROCESSORS) + 1} pu:1", "because of HWLOC_SYNTHETIC=core:"),
    ],
)
def test_a_topology_of_another_machine_is_refused(tmp_path, name, value, message):
    (tmp_path / "more.xml").write_text(topology(range(len(PROCESSORS) + 1)))
    (tmp_path / "model.xml").write_text(topology(PROCESSORS, "Other 1000"))
    (tmp_path / "damaged.xml").write_text("<topology")
    if value == "model.xml" and "model name" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("the system does not tell the model of its processors")
    done = memkern(STREAM, tmp_path, **{name: value})
    assert done.returncode == 2 and done.stdout == ""
    assert message in done.stderr and "unset it" in done.stderr and done.stderr.count("\n") == 1


def test_files_of_the_user_replace_no_module(users_files):
    # The module by which `-m` finds memkern is imported before memkern, unless Python contains it.
    (users_files / "runpy.py").unlink()
    path = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = memkern([*STREAM, "--json"], users_files, **path)
    assert done.returncode == 0, done.stderr
    # What PYTHONPATH names is found, and nothing else in the current folder.
    for folder in (users_files, users_files / "named"):
        folder.mkdir(exist_ok=True)
        (folder / "own.py").write_text(f"import sys; print(sys.argv[1:], {folder.name!r})")
    command = python_command("own", "-m", "a b")
    done = python(*command[1:], cwd=users_files, env={"PYTHONPATH": str(users_files / "named")})
    assert done.stdout == "['-m', 'a b'] named\n", done.stderr


# As if Python had been built, or memkern installed, without these modules.
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(",")))
from memkern.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("modules", "words", "message"),
    [
        ("_sqlite3,_lzma,_bz2", ["spmv", "hpcg:4", "-f", "crs", "--runs", "1", "-q"], ""),
        ("_lzma", ["spmv", "m.xz"], "this Python has no module _lzma: use one that was built with"),
        (
            "_sqlite3",
            [*STREAM, "-o", "x.csv"],
            "no module _sqlite3: use one that was built with it",
        ),
        ("_ctypes", ["--version"], "this Python has no module _ctypes: use one that was built"),
        ("tqdm", STREAM, "this Python has no module tqdm: install it"),
    ],
)
def test_modules_that_python_lacks_are_named(tmp_path, modules, words, message):
    (tmp_path / "m.xz").write_bytes(b"\xfd7zXZ\x00")
    done = python("-c", WITHOUT, modules, *words, cwd=tmp_path)
    assert (done.returncode, message in done.stderr) == (2 if message else 0, True), done.stderr
    assert not message or done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["m.xz"]


NOBODY = """
import os, pwd, sys
def unknown(number):
    raise KeyError(f"getpwuid(): uid not found: {number}")
pwd.getpwuid = unknown
os.environ.pop("HOME", None)
from memkern.__main__ import main
sys.exit(main())
"""


def test_a_user_without_a_home_measures_and_draws(tmp_path):
    variables = {"PATH": os.environ["PATH"]}

    def run(*words: str) -> str:
        done = python("-c", NOBODY, *words, cwd=tmp_path, env=variables)
        assert done.returncode == 0, done.stderr
        assert "home" not in done.stderr.lower()
        return done.stderr

    run(*SPATTER, "-o", "x.db")
    assert run("figure", "spatter-fig3", "x.db", "-o", "x.svg") == ""
    assert (tmp_path / "x.svg").exists()


@pytest.mark.parametrize("home", ["/nonexistent", "/proc"])
def test_a_home_that_cannot_be_written_is_no_error(tmp_path, home):
    done = memkern(STREAM, tmp_path, HOME=home)
    assert done.returncode == 0, done.stderr
    assert "home" not in done.stderr.lower() and "cache" not in done.stderr.lower()


def test_an_unknown_backend_of_matplotlib_is_named(tmp_path):
    done = memkern(["figure", "spatter-fig3", "-o", "x.svg"], tmp_path, MPLBACKEND="foo")
    assert done.returncode == 2 and "refuses MPLBACKEND=foo" in done.stderr


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP, errno.EIO])
@pytest.mark.parametrize("which", ["folder", "file"])
def test_a_file_system_without_fsync(tmp_path, monkeypatch, number, which):
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}") == (which == "folder"):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    contents = {tmp_path / "one": b"1", tmp_path / "two": b"2"}
    if number == errno.EIO:
        with pytest.raises(InputError, match="one can't be written: Input/output error"):
            files.publish(contents)
        return
    files.publish(contents)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == contents


def test_a_file_system_that_cannot_be_written_is_named_with_the_file(tmp_path, monkeypatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(InputError, match=r"x\.svg can't be written: Read-only file system"):
        files.publish({tmp_path / "x.svg": b""})


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(database, "BUSY_S", 0.01)
    path = tmp_path / "x.db"
    results = mk.stream("copy", elements=64, runs=1, threads=1).measure().results
    results.save(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    # SQLite reports the same error for a file that another program has locked.
    monkeypatch.setattr("fcntl.lockf", refuse)
    with pytest.raises(InputError, match=r"has no locks.*name a file in a folder of this machine"):
        database.Database.existing(path)
    other.close()


def test_names_that_are_not_utf_8_are_stored_with_escapes(tmp_path):
    name = os.fsdecode(b"m\xff.mtx")
    matrix = tmp_path / name
    matrix.write_text("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 1.0\n")
    odd = os.fsdecode(b"o\xff.parquet")  # beside which a database is kept while it measures
    words = ["spmv", name, "--runs", "1", "-q", "-o", odd]
    done = memkern(words, tmp_path, LC_ALL="C", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    results = mk.load(tmp_path / odd)
    assert results
    assert all(any(r"m\udcff" in str(value) for value in row.values()) for row in results)


# Of a name in a file of another program, of which nothing is drawn.
@pytest.mark.filterwarnings("ignore:Glyph .* missing from font")
def test_control_characters_of_names_are_escaped(tmp_path):
    case = mk.gather("UNIFORM:8:1", count=64, threads=1, runs=1, name="a\x00b\n\x1b[1m")
    assert case.labels["name"] == r"a\x00b\x0a\x1b[1m"
    results = case.measure().results
    # Figures leave out control characters in files of other programs.
    (record,) = results
    results = mk.ResultSet([{**record, "platform": "x\x00\x1by, 1 thread"}], results.samples)
    target = plots.save(plots.figures["spatter-fig3"](results), tmp_path / "x.svg")
    ElementTree.parse(target)
    results.save(tmp_path / "x.csv")
    assert next(iter(mk.load(tmp_path / "x.csv")))["name"] == r"a\x00b\x0a\x1b[1m"


@pytest.mark.parametrize("number", ["0", "3"])
def test_each_rank_without_its_peers_says_why(tmp_path, number):
    variables = {"SLURM_PROCID": number, "SLURM_STEP_NUM_TASKS": "4", "HOME": str(tmp_path)}
    done = memkern(STREAM, tmp_path, **variables)
    assert done.returncode == 2 and done.stdout == ""
    assert "4 " in done.stderr and "--comm none" in done.stderr
    helped = memkern(["stream", "--help"], tmp_path, **variables)
    assert helped.returncode == 0 and (helped.stdout == "") is (number == "3")
    wrong = memkern([*STREAM, "--threads", "x"], tmp_path, **variables)
    assert wrong.returncode == 2 and "--threads" in wrong.stderr


SWEEP = """
[[case]]
kernel = "gather"
pattern = ["UNIFORM:8:1", "UNIFORM:8:2", "UNIFORM:8:3", "UNIFORM:8:4", "UNIFORM:8:5"]
runs = 2
threads = 1
"""
STARTED = """
import sys
from memkern.__main__ import main
print("started", flush=True)
sys.exit(main())
"""


@pytest.mark.parametrize(
    "seed",
    [*range(2), *(pytest.param(seed, marks=pytest.mark.release) for seed in range(2, 300))],
)
def test_ctrl_c_ends_a_sweep_with_130_at_any_moment(tmp_path, seed):
    (tmp_path / "s.toml").write_text(SWEEP)
    words = ["sweep", "s.toml", "-o", "x.db", "-q"]
    variables = {"MEMKERN_SMALL": "1", "XDG_CACHE_HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", STARTED, *words],
        cwd=tmp_path,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "started\n"
        time.sleep(random.Random(seed).uniform(0.002, 1.5))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode in (130, 0), errors
    assert "Traceback" not in errors and "can't be written" not in errors
    if process.returncode == 130:
        assert "interrupted" in errors
        done = memkern([*words, "--resume"], tmp_path, **variables)
        assert done.returncode == 0, done.stderr
    assert len(mk.load(tmp_path / "x.db")) == 5


@pytest.mark.parametrize(("cause", "code"), [("KeyboardInterrupt()", 130), ("None", 1)])
def test_an_interrupt_of_the_extensions_import_is_one(cause, code):
    program = f"""
import sys
from memkern import cli
from memkern.__main__ import main

def fails():
    raise ImportError("initialization failed") from {cause}

cli.main = fails
sys.exit(main())
"""
    done = python("-c", program)
    assert done.returncode == code, done.stderr
    assert ("Traceback" in done.stderr) == (code == 1)
