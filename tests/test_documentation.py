"""Every command and example of the documentation runs as written, on small cases."""

import contextlib
import doctest
import functools
import importlib
import itertools
import os
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import fleet_records
import launching
import pytest
from checking import executable, once_a_kind, warnings_printed
from documents import blocks, commands, options_of_verbs

import memkern
from memkern import cli, host, small
from memkern.cli.questions import QUESTIONS
from memkern.engine.placing.run import CaseRun
from memkern.engine.sweeping import sweep as sweep
from memkern.machine import remote
from memkern.plots import figures, tables
from memkern.spec.sweepfile import read_sweep

ROOT = Path(__file__).parent.parent
EXAMPLES, DOCS = ROOT / "examples", ROOT / "docs"
WRITTEN = [path for path in sorted(DOCS.rglob("*.md")) if DOCS / "generated" not in path.parents]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *WRITTEN]
# Blocks that are not executed.
OTHER_KINDS = {"c", "diff", "text", "yaml"}

# Commands that a test can't run, and why.
NOT_RUN = {
    "make report": "builds the package",
    "make test": "builds the package and runs this test",
    "pip install .": "builds the package",
    "pip install . -C cmake.define.MEMKERN_HIGHWAY_ARCHIVE=/path/highway.tar.gz "
    "-C cmake.define.MEMKERN_HWLOC_ARCHIVE=/path/hwloc.tar.bz2": "builds the package",
    "memkern stream --sizes 1MiB:4GiB:20 --device cuda -o gpu.db": "needs a GPU",
    "memkern sweep examples/ci/short.toml --executor slurm --nodes 4 "
    "--options partition=batch time=60 -o all.parquet": "needs Slurm",
    "memkern transfers -o transfers.parquet": "needs a GPU",
    "python3 -m venv venv-base && venv-base/bin/pip install /path/to/base": "builds the package",
    "python3 -m venv venv-head && venv-head/bin/pip install /path/to/head": "builds the package",
}
# Virtual environments that these commands would create; later commands run their interpreters.
INTERPRETERS = ("venv-base", "venv-head")


def plain(command: str) -> str:
    """The command without its comment and with single blanks."""
    return " ".join(re.sub(r"\s#\s.*$", "", command).split())


EVERY_COMMAND = {
    document: [
        plain(command)
        for kind, block in blocks(document)
        if kind in ("sh", "console")
        for command in commands(block)
    ]
    for document in DOCUMENTS
}


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Run in a folder with links into the repository, with `memkern` on PATH and small cases."""
    for name in ("examples", "notebooks"):
        (tmp_path / name).symlink_to(ROOT / name)
    shims = tmp_path / ".bin"
    python = f'exec "{sys.executable}" "$@"'
    # Scripts may unset PYTHONPATH.
    if "PYTHONPATH" in os.environ:
        python = f'PYTHONPATH="{os.environ["PYTHONPATH"]}" {python}'
    targets = {shims / "python": python, shims / "python3": python}
    targets[shims / "memkern"] = python.replace('"$@"', '-m memkern "$@"')
    for name in INTERPRETERS:
        # The instance is normal, whatever else runs here.
        targets[tmp_path / name / "bin" / "python"] = (
            f'if [ "$3" = doctor ]; then echo fit; exit; fi\n{python}'
        )
    for target, text in targets.items():
        executable(target, text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{shims}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    monkeypatch.setenv(small.VARIABLE, "1")
    for name, value in launching.OPEN_MPI.items():
        monkeypatch.setenv(name, value)
    # Other tests must not use costs that were measured with small cases.
    monkeypatch.setattr(host, "_default", functools.lru_cache(maxsize=1)(host.Host))
    yield tmp_path


def run_command(command: str) -> int | str | None:
    """Run a command; one of memkern runs in this process unless it needs a shell."""
    words = shlex.split(command, comments=True)
    if words[0] != "memkern" or any(set(word) & set("|&;<>$`*?(){}~") for word in words):
        return subprocess.run(["bash", "-c", command]).returncode
    with contextlib.suppress(SystemExit), warnings_printed():
        return cli.main(words[1:])
    return cli.WRONG_INPUT


class Reached(Exception):
    """Raised when a command would measure a prepared case, or start a process."""


def memkern_words(command: str) -> list[str]:
    """The words of a command after `memkern` and before the shell's `||`; empty if it has none."""
    words = shlex.split(command, comments=True)
    words = words[words.index("memkern") + 1 :] if "memkern" in words else []
    return list(itertools.takewhile(lambda word: word != "||", words))


# Errors of commands that need ranks, or a file that an earlier command writes.
MISSING = r"does not exist|No such file|not 'matrix.mtx'|need two ranks"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_is_taken(document, folder, monkeypatch, capsys):
    start = subprocess.Popen.__init__

    def reach(*how: Any, **named: Any) -> None:
        if not any(isinstance(words, list) and "--version" in words for words in how):
            raise Reached
        start(*how, **named)

    def prepare(runs: Iterable[CaseRun]) -> None:
        for run in runs:
            memkern.Prepared(run.case)
        raise Reached

    built = sweep._blocks

    def prepare_all(*how: Any) -> Iterator[None]:
        prepare(run for block in built(*how) for run in block.runs)
        yield

    monkeypatch.setattr(sweep, "_blocks", prepare_all)
    # The ranks' communication libraries need a launcher, so they are not started in this process.
    monkeypatch.setattr(cli, "_ranks", contextlib.nullcontext)
    monkeypatch.setattr(remote, "extension", reach)
    monkeypatch.setattr(CaseRun, "place", lambda run, *how: prepare([run]))
    monkeypatch.setattr(subprocess.Popen, "__init__", reach)
    for command in EVERY_COMMAND[document]:
        if command not in NOT_RUN and (words := memkern_words(command)):
            with contextlib.suppress(Reached), warnings_printed():
                code = cli.main(words)
                err = capsys.readouterr().err
                assert code == 0 or re.search(MISSING, err), f"{command}\n{err}"
                if words[0] in ("figure", "table") and words[1] != "--paper":
                    assert words[1] in {"figure": figures, "table": tables}[words[0]]


# Commands of other documents run only until a case would be measured, except before a release.
RUN_WHOLE = DOCS / "counters.md"


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            path,
            marks=[pytest.mark.ranks] * (path.name == "ranks.md")
            + [pytest.mark.release] * (path != RUN_WHOLE),
        )
        for path in DOCUMENTS
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_every_block_runs_as_written(document, folder, capfd):
    if "nodes/" in document.read_text():
        write_nodes(folder / "nodes")
    session: dict[str, object] = {}
    for kind, block in blocks(document):
        if kind not in ("sh", "console"):
            run_block(document, kind, block, folder, session)
            continue
        for command in commands(block):
            if plain(command) not in NOT_RUN:
                code = run_command(command)
                _, err = capfd.readouterr()
                assert code == 0, f"{command}\n{err}"


def write_nodes(folder: Path) -> None:
    """Write results of ten nodes, which commands of a fleet read."""
    folder.mkdir()
    records = fleet_records.records(10, {"n03": 2.0})
    for node in {record["node"] for record in records}:
        own = [record for record in records if record["node"] == node]
        fleet_records.results(own).save(folder / f"{node}.parquet")


def run_block(
    document: Path, kind: str, block: str, folder: Path, session: dict[str, object]
) -> None:
    """Run a block without shell commands."""
    if kind == "python":
        exec(compile(block, document, "exec"), session)
    elif kind == "toml":
        # The first line is the name of the file.
        name = block.partition("\n")[0].removeprefix("# ")
        assert name.endswith(".toml")
        (folder / name).write_text(block)
        assert read_sweep(folder / name, {})[0]
    else:
        assert kind in OTHER_KINDS, f"{document.name} has a block of {kind or 'no kind'}"


def test_blocks_of_the_readme_that_are_no_commands_run(folder):
    session: dict[str, object] = {}
    for kind, block in blocks(ROOT / "README.md"):
        if kind not in ("sh", "console"):
            run_block(ROOT / "README.md", kind, block, folder, session)


def test_every_block_has_a_kind():
    known = {"sh", "console", "python", "toml", *OTHER_KINDS}
    assert all(kind in known for document in DOCUMENTS for kind, _ in blocks(document))


def test_commands_that_are_not_run_are_in_a_document():
    there = {command for listed in EVERY_COMMAND.values() for command in listed}
    assert set(NOT_RUN) - there == set()
    assert all(NOT_RUN.values())


def code_in_text(document: Path) -> list[str]:
    """Texts between backquotes outside of blocks."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_options_in_the_text_exist(document):
    known = options_of_verbs()
    every = set().union(*known.values())
    for code in code_in_text(document):
        words = code.split()
        named = words[0] == "memkern" and len(words) > 1 and not words[1].startswith("--")
        verb = cli._command(words[1:])[0] if named else None
        assert verb is None or verb in known, code
        words = words[: words.index("--")] if "--" in words else words
        options = {word[2:].partition("=")[0] for word in words if word.startswith("--")}
        # Options of other programs are not tested.
        if words[0] in ("memkern", *(f"--{option}" for option in options)):
            assert options <= (known[verb] if verb else every), code


# Those in folders are for other programs (tests/test_consumers.py).
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("path", once_a_kind(SCRIPTS, name=lambda path: path.stem))
def test_every_example_runs(path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


SWEEPS = sorted(EXAMPLES.rglob("*.toml"))


def test_every_sweep_has_cases():
    assert SWEEPS and all(read_sweep(path, {})[0] for path in SWEEPS)


@pytest.mark.release
def test_every_sweep_runs_as_its_first_line_says(capfd):
    lines = [path.read_text().partition("\n")[0] for path in SWEEPS]
    given = [line.removeprefix("# ") for line in lines if line.startswith("# memkern ")]
    assert given
    for command in given:
        assert run_command(command) == 0, capfd.readouterr().err


# Variables that schedulers set for jobs, and substitutes for programs that start their processes.
JOB = {
    "SLURM_ARRAY_TASK_ID": "2", "SLURM_JOB_ID": "17", "SLURM_CPUS_PER_TASK": "1",
    "PBS_ARRAY_INDEX": "3", "PBS_JOBID": "17.server", "PBS_NODEFILE": "hosts", "PBS_O_WORKDIR": ".",
    "OMP_NUM_THREADS": "1",
}  # fmt: skip
SKIP_OPTIONS = 'while [ "$1" != memkern ]; do shift; done; exec "$@"'
STARTERS = {
    "srun": SKIP_OPTIONS,
    "mpirun": SKIP_OPTIONS,
    "ssh": '[ "$1" = -n ] && [ -n "$2" ] && exec sh -c "$3"',
}
TEMPLATES = {
    "slurm.sh": "triad-17.parquet",
    "slurm-sweep.sh": "sweep-2-of-4.db",
    "pbs.sh": "triad-17.parquet",
    "pbs-sweep.sh": "sweep-3-of-4.db",
    "hostfile.sh": "triad.parquet",
    "hostfile-sweep.sh": "sweep.parquet",
}


@pytest.mark.parametrize("name", once_a_kind(TEMPLATES, kind=lambda name: "sweep" in name))
def test_every_job_template_runs(name, folder):
    for starter, text in STARTERS.items():
        executable(folder / ".bin" / starter, text)
    # A list as written by hand: with an empty line and without a final newline.
    (folder / "hosts").write_text("one\n\ntwo")
    script = EXAMPLES / "cluster" / name
    words = ["hosts"] if "HOSTS" in script.read_text() else []
    done = subprocess.run([script, *words], env=os.environ | JOB, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = memkern.load(TEMPLATES[name])
    assert found
    if name == "hostfile-sweep.sh":
        cases = read_sweep(EXAMPLES / "sweep.toml", {})[0]
        assert len({record["case_id"] for record in found}) == len(cases)


def test_every_job_template_is_listed():
    there = {path.name for path in (EXAMPLES / "cluster").glob("*.sh")}
    assert there == set(TEMPLATES)
    page = (DOCS / "clusters.md").read_text()
    assert all(f"examples/cluster/{name}" in page for name in there)


MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(memkern.__path__, "memkern.")
    if not module.name.rpartition(".")[2].startswith("_")
)


@pytest.mark.parametrize("name", ["memkern", *MODULES])
def test_examples_of_docstrings(name):
    module = importlib.import_module(name)
    source = Path(str(module.__file__)).read_text()
    found = doctest.testmod(module, verbose=False)
    assert found.failed == 0
    assert bool(found.attempted) == (">>>" in source)


def test_the_only_other_block_in_a_docstring_is_a_sweep(folder):
    package = Path(str(memkern.__file__)).parent
    there = [
        (path, block)
        for path in sorted(package.rglob("*.py"))
        for block in re.findall(r"::\n\n((?: {4}.*\n|\n)+)", path.read_text())
    ]
    ((path, block),) = there
    assert path.name == "sweepfile.py"
    (folder / "docstring.toml").write_text(re.sub("^ {4}", "", block, flags=re.MULTILINE))
    assert read_sweep("docstring.toml", {})[0]


# Options of the measuring verbs

COMMON = {
    *("output", "json", "threads", "pin", "pages", "isa", "variant", "dtype", "device", "runs"),
    *("ci", "budget", "repeats", "resume", "seed", "quiet", "force", "wait-quiet", "machine"),
    "explain",
}
NOT_MEASURING = {
    *("info", "columns", "export", "fit", "figure", "table", "compare fleet", "report gallery")
}


def test_every_measuring_verb_takes_the_same_options_or_a_page_tells_which():
    page = (DOCS / "commands.md").read_text()
    documented = {
        verb: set(re.findall(r"`--([\w-]+)`", text.partition(" and in ")[0]))
        for verb, text in re.findall(r"^- `([\w ]+)`: (`--.*)[;.]$", page, re.MULTILINE)
    }
    taken = {verb: options & COMMON for verb, options in options_of_verbs().items()}
    differing = {
        verb: options
        for verb, options in taken.items()
        if options != COMMON and verb not in NOT_MEASURING
    }
    assert differing == documented
    assert len(taken) - len(differing) - len(NOT_MEASURING) >= 11
    paragraph = page[page.index("Every measuring verb takes") : page.index("- `machine barrier`")]
    for option in COMMON:
        short = {"output": "`-o PATH`", "quiet": "`-q`"}
        assert short.get(option, f"`--{option}") in paragraph, option


def test_a_page_lists_the_earlier_verbs():
    page = (DOCS / "commands.md").read_text()
    assert dict(re.findall(r"^\| `memkern (\w+)` \| `memkern (.*)` \|$", page, re.M)) == cli.ALIASES


def test_the_readme_has_the_questions_of_the_prompt_and_two_pages():
    text = (ROOT / "README.md").read_text()
    assert len(text.encode()) < 6000
    table = re.findall(r"^\| (.*) \| `(.*)` \|$", text, re.MULTILINE)
    assert table == list(QUESTIONS)


def test_the_variable_makes_cases_small(monkeypatch):
    case = memkern.stream("copy", elements=10**6, runs=10)
    assert case.integers["elements"] < 10**5
    assert case.stop.runs == 3
    monkeypatch.delenv(small.VARIABLE)
    case = memkern.stream("copy", elements=10**6, runs=10)
    assert case.integers["elements"] == 10**6
    assert case.stop.runs == 10


def test_small_cases_are_announced(monkeypatch, capsys):
    # A test of notebooks in the same process may have loaded it.
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    words = ["stream", "-k", "copy", "-t", "1"]
    assert cli.main(words) == 0
    assert "MEMKERN_SMALL is set" in capsys.readouterr().err
    monkeypatch.delenv(small.VARIABLE)
    assert cli.main([*words, "-n", "64", "--runs", "1"]) == 0
    assert capsys.readouterr().err == ""
