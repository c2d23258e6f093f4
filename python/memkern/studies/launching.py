"""Launchers of ranks: Open MPI's and MPICH's mpirun, oshrun, srun, and others without binding."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from memkern import backends
from memkern.checks import shown
from memkern.errors import InputError
from memkern.files import reason

OPEN_MPI, MPICH, SLURM = "Open MPI", "MPICH", "Slurm"
# Words in the output of launchers for --version, by kind.
_VERSIONS = {"Open MPI": OPEN_MPI, "OpenRTE": OPEN_MPI, "HYDRA": MPICH, "slurm": SLURM}
_VERSION_S, _END_S = 30.0, 10.0
_MOST_CHARACTERS = 300


@dataclass(frozen=True)
class Launcher:
    """A command that starts ranks.

    Parameters
    ----------
    words : tuple of str
        The command and its options.
    kind : str
        ``Open MPI``, ``MPICH``, ``Slurm``, or empty for another one.
    """

    words: tuple[str, ...]
    kind: str

    def command(self, ranks: int, threads: int, bind: str = "") -> list[str]:
        """Return the command that starts ranks, without the program that they run.

        Parameters
        ----------
        ranks, threads : int
            The number of ranks, and of the workers of each.
        bind : str
            ``node``: one rank on each node; ``socket``: one on each socket; ``core``: each on as
            many cores as it has workers; empty: ranks are not bound.

        Raises
        ------
        InputError
            The binding options of this launcher are unknown.
        """
        return [*self.words, "-n", str(ranks), *self._binding(threads, bind)]

    def _binding(self, threads: int, bind: str) -> list[str]:
        given = any(word.endswith("bind-to") for word in self.words)
        workers = f"--cpus-per-task={threads}"
        options = {
            OPEN_MPI: {
                # Its default depends on the number of ranks.
                "": [] if given else ["--bind-to", "none"],
                "node": ["--map-by", "ppr:1:node", "--bind-to", "none"],
                "socket": ["--map-by", "ppr:1:socket", "--bind-to", "socket"],
                "core": ["--map-by", f"slot:PE={threads}", "--bind-to", "core"],
            },
            MPICH: {
                "": [],
                "node": ["-ppn", "1", "-bind-to", "none"],
                "socket": ["-map-by", "socket", "-bind-to", "socket"],
                "core": ["-bind-to", f"core:{threads}"],
            },
            SLURM: {
                "": [workers],
                "node": [workers, "--ntasks-per-node=1", "--cpu-bind=none"],
                "socket": [workers, "--ntasks-per-socket=1", "--cpu-bind=sockets"],
                "core": [workers, "--cpu-bind=cores"],
            },
        }
        if self.kind in options:
            return options[self.kind][bind]
        if bind:
            raise InputError(
                f"bind {bind} is for Open MPI, MPICH and srun, not for {self.words[0]}: give "
                "options of binding in the launcher's command"
            )
        return []

    def failure(self, code: int, output: str) -> str:
        """Return one sentence on why a launched program failed.

        Parameters
        ----------
        code : int
            Exit code.
        output : str
            Output of the launcher and the program.
        """
        lines = [re.sub(r"^[-=]{4,}$|^= +", "", line.strip()) for line in output.splitlines()]
        own = [line for line in lines if line.startswith("memkern: ")]
        if own:
            return own[-1].removeprefix("memkern: ")
        # The reason is the first paragraph; below it, launchers explain other possible errors.
        paragraphs = itertools.groupby(lines, key=bool)
        first = next((" ".join(some) for filled, some in paragraphs if filled), "")
        if len(first) > _MOST_CHARACTERS:
            first = f"{first[:_MOST_CHARACTERS]}..."
        end = f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
        return f"{self.words[0]} {end}" + (f": {first.rstrip(' .:')}" if first else "")


def find_launcher(command: str | None = None, comm: str = "mpi") -> Launcher:
    """Return a launcher with its kind.

    Parameters
    ----------
    command : str, optional
        Such as ``srun`` or ``mpirun --oversubscribe``; by default ``mpirun``, or ``oshrun`` for
        OpenSHMEM, or else ``srun``.
    comm : str
        ``mpi`` or ``shmem``.

    Raises
    ------
    InputError
        There is no launcher, or it can't be run.
    """
    if command is None:
        usual = backends.of(comm).launchers
        command = next(filter(shutil.which, usual), None)
        if command is None:
            raise InputError(
                f"there is no {' and no '.join(usual)} here that starts ranks: name a launcher"
            )
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"launcher {shown(command)} can't be split: {error}") from None
    if not words:
        raise InputError("launcher must be a command such as mpirun, not an empty text")
    _, output = run([words[0], "--version"], timeout_s=_VERSION_S)
    return Launcher(
        tuple(words), next((kind for word, kind in _VERSIONS.items() if word in output), "")
    )


def run(command: Sequence[str], timeout_s: float | None = None) -> tuple[int, str]:
    """Run a command; return its exit code (or minus a signal's number) and all that it printed.

    Raises
    ------
    InputError
        It can't be run, or does not end in time.
    """
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A process that has initialised MPI has additional variables, which are not in
                # `os.environ` and make mpirun fail.
                env=os.environ,
            )
        except OSError as error:
            raise InputError(f"the launcher {command[0]} can't be run: {reason(error)}") from None
        try:
            code = process.wait(timeout_s)
        except BaseException as error:
            _end(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise InputError(f"{shlex.join(command)} does not end") from None
            raise
        output.seek(0)
        return code, output.read().decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a launcher, with enough time to end its ranks."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    process.kill()
    process.wait()
