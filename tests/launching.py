"""Programs run by several ranks, started by the launchers of this machine."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import memkern as mk
from memkern import launcher as launched
from memkern.spec.sweepfile import read_sweep
from memkern.studies import scaling as studied_scaling

# Open MPI's settings for tests: allow root and more ranks than processing units, yield while
# waiting, and don't wait a second for the other ranks after a rank has failed.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_mapby": ":oversubscribe",  # from release 5 on
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_odls_base_sigkill_timeout": "0",
}
# The launcher's words before the number of ranks.
_COMMANDS = {
    "openmpi": ["mpirun.openmpi"],
    "mpich": ["mpirun.mpich"],
    "oshmem": ["oshrun"],
}
KINDS = tuple(_COMMANDS)
# Launcher by device.
LAUNCHERS = {"mpi": "openmpi", "shmem": "oshmem"}
# Compiler wrappers with which the extension modules are built.
_WRAPPERS = {"mpi": "mpicxx", "shmem": "oshc++"}
_MPICH = "libmpich.so.12"
# Time limit of a program that hangs. Ranks that share processors of a busy machine take minutes.
_LIMIT_S = 600


def need_module(device: str) -> None:
    """Skip the test if there is no library for the extension module ``mpi`` or ``shmem``."""
    if importlib.util.find_spec(f"memkern._memkern_{device}") is None:
        wrapper = _WRAPPERS[device]
        assert shutil.which(wrapper) is None, f"{wrapper} is installed, but was not used"
        pytest.skip(f"{wrapper} is not installed (tools/install-system-packages.sh --test)")


def launcher(kind: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return a launcher's words and environment; skip the test if it is not installed.

    `folder` is a temporary folder for links to libraries.
    """
    command = _COMMANDS[kind]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed (tools/install-system-packages.sh --test)")
    return command, {
        **_variables(),
        **OPEN_MPI,
        **(_mpich(folder) if kind == "mpich" else {}),
    }


@contextmanager
def start(
    kind: str,
    ranks: int,
    words: Sequence[str],
    folder: Path,
    variables: dict[str, str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Start ``python WORDS`` as this number of ranks (see `launcher`).

    At the end, a launcher that still runs is killed with its ranks, which may be stopped.
    """
    command, known = launcher(kind, folder)
    with subprocess.Popen(
        [*command, "-n", str(ranks), sys.executable, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**known, **(variables or {})},
    ) as process:
        try:
            yield process
        finally:
            for number in [*ranks_of(process), process.pid] if process.poll() is None else []:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)


def run(
    kind: str,
    ranks: int,
    words: Sequence[str],
    folder: Path,
    variables: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``python WORDS`` as this number of ranks (see `start`)."""
    with start(kind, ranks, words, folder, variables) as process:
        out, err = process.communicate(timeout=_LIMIT_S)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def started(
    program: str,
    device: str,
    ranks: int,
    words: str,
    folder: Path,
    variables: dict[str, str] | None = None,
    kind: str = "",
) -> Any:
    """Run a program on ranks with ``DEVICE WORDS`` as arguments; return its JSON output.

    `kind` is the kind of launcher, by default the device's.
    """
    need_module(device)
    arguments = [program, device, *words.split()]
    done = run(kind or LAUNCHERS[device], ranks, arguments, folder, variables)
    assert done.returncode == 0, done.stderr
    # Network libraries also log on standard output.
    found, _ = json.JSONDecoder().raw_decode(done.stdout)
    return found


def alone(words: Sequence[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run ``python WORDS`` as one process, with the variables that a launcher would set."""
    return subprocess.run(
        [sys.executable, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**_variables(), **variables},
        timeout=_LIMIT_S,
    )


def ranks_of(process: subprocess.Popen[str]) -> list[int]:
    """Return the process ids of a launcher's ranks, by rank."""
    # Some launchers start ranks via another process, and children of ranks inherit their variables.
    parents, numbers = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = dict(
                word.split("=", 1)
                for word in (folder / "environ").read_text().split("\0")
                if "=" in word
            )
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        parents[int(folder.name)] = parent
        if launched.size(variables) > 1:
            numbers[int(folder.name)] = launched.number(variables)

    def is_started(child: int) -> bool:
        while child in parents and child != process.pid:
            child = parents[child]
        return child == process.pid

    found = {
        number: child
        for child, number in numbers.items()
        if parents[child] not in numbers and is_started(child)
    }
    return [found[k] for k in sorted(found)]


def _variables() -> dict[str, str]:
    """Return the environment with the test modules on PYTHONPATH."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _mpich(folder: Path) -> dict[str, str]:
    """Return variables with which mpi4py's wheel loads Debian's MPICH, whose file name differs."""
    variables = {"MPI4PY_MPIABI": "mpich"}
    library = next(Path("/usr/lib").glob(f"*/{_MPICH}"), None)
    if library is not None:
        link = folder / "libmpi.so.12"
        if not link.exists():
            link.symlink_to(library)
        others = os.environ.get("LD_LIBRARY_PATH")
        variables["LD_LIBRARY_PATH"] = f"{folder}:{others}" if others else str(folder)
    return variables


class Ranks:
    """A launcher for scaling that measures in this process and records the command lines."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[list[str]] = []
        self.fails: Callable[[int], tuple[int, str] | None] = lambda ranks: None
        monkeypatch.setenv("MEMKERN_SMALL", "1")
        monkeypatch.setattr(studied_scaling, "run", self)

    def __call__(self, command: list[str], timeout_s: float = 0) -> tuple[int, str]:
        self.commands.append(command)
        if "--version" in command:
            return 0, "mpirun (Open MPI) 4.1.4"
        ranks = int(command[command.index("-n") + 1])
        failure = self.fails(ranks)
        if failure is not None:
            return failure
        results = mk.sweep(read_sweep(command[command.index("sweep") + 1], {})[0])
        for record in results:
            record |= {"ranks": ranks, "ranks_per_node": ranks, "oversubscribed": ranks > 2}
        results.save(command[command.index("-o") + 1])
        return 0, ""
