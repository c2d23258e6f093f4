"""Processes started together: variables of launchers such as ``mpirun``, and commands."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping

from memkern import checks
from memkern.checks import one_of

__all__ = [
    "BINDINGS",
    "CHOICES",
    "COMM",
    "TIMEOUT",
    "comm",
    "number",
    "python_command",
    "size",
    "starts_shmem",
    "tell_end",
    "timeout_s",
    "waiting_for_all",
]

# Runs a module as `python -m` does, but without the current folder on the path, whose files would
# replace modules of Python. Before 3.11 no option does so and leaves PYTHONPATH.
_RUN = (
    "import sys; sys.path = [path for path in sys.path if path]; "
    "del sys.argv[: sys.argv.index('-m') + 1]; "
    "import runpy; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
# Communication of processes that were started together.
CHOICES = ("auto", "none", "mpi", "shmem")
# Objects to which a launcher can bind each process.
BINDINGS = ("node", "socket", "core")
# Environment variable that applies without an option, also to processes started by this one.
COMM = "MEMKERN_COMM"
# Environment variable for the seconds after which a rank without an answer is given up.
TIMEOUT = "MEMKERN_RANK_TIMEOUT_S"
_TIMEOUT_S = 120.0
_LEAST_TIMEOUT_S, _MOST_TIMEOUT_S = 1e-3, 1e9
# MPICH's launcher loses the last output of a rank that ends all ranks.
_READ_S = 0.3

# Variables with the number of a process and the number of all processes, by launcher.
_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI's mpirun and oshrun
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI, srun --mpi=pmi2
    ("PALS_RANKID", "PALS_SIZE"),  # Cray PALS
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ("MPT_MPI_RANK", "MPT_MPI_SIZE"),  # HPE MPT
    # Variable of the step, because a batch script has the job's number of tasks, but is one
    # process.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


def _found(variables: Mapping[str, str]) -> tuple[int, int]:
    for number, size in _VARIABLES:
        try:
            return int(variables[number]), int(variables[size])
        except (KeyError, ValueError):
            continue
    return 0, 1


def number(variables: Mapping[str, str] = os.environ) -> int:
    """Return the number of this process among those started together, from 0."""
    return _found(variables)[0]


def size(variables: Mapping[str, str] = os.environ) -> int:
    """Return the number of processes that were started together; 1 without a launcher."""
    return _found(variables)[1]


def starts_shmem(variables: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process may use OpenSHMEM: Open MPI's oshrun equals its mpirun."""
    return "OMPI_COMM_WORLD_SIZE" in variables


def python_command(*words: str, python: str = sys.executable) -> list[str]:
    """Return the command that runs a module in another process, safe from the user's files.

    `words` are the module and its arguments; without them, ``-m`` and a module follow the command.
    """
    return [python, "-u", "-c", _RUN, *(("-m", *words) if words else ())]


def comm(requested: str = "auto", variables: Mapping[str, str] = os.environ) -> str:
    """Return the communication with processes that were started together with this one.

    Parameters
    ----------
    requested : str
        One of `CHOICES`; ``auto``: ``none`` unless a launcher started several processes, which then
        use the available library.

    Raises
    ------
    InputError
        `requested` or the environment variable has another value.
    """
    one_of(requested, "comm", CHOICES)
    if requested == "auto":
        requested = variables.get(COMM, "")
        if not requested:
            return "auto" if size(variables) > 1 else "none"
        one_of(requested, COMM, CHOICES[1:])
    return requested


def timeout_s() -> float:
    """Return the seconds after which a rank that does not answer is given up.

    Raises
    ------
    InputError
        The environment variable is not such a number.
    """
    given = checks.read_number(os.environ.get(TIMEOUT, str(_TIMEOUT_S)), TIMEOUT)
    return checks.number(given, TIMEOUT, _LEAST_TIMEOUT_S, _MOST_TIMEOUT_S)


def tell_end(why: str) -> None:
    """Print why all ranks end because of one that does not answer, before ending them."""
    print(
        f"memkern: {why}: all ranks end ({TIMEOUT} sets the time limit)",
        file=sys.__stderr__,
        flush=True,
    )
    time.sleep(_READ_S)


@contextlib.contextmanager
def waiting_for_all(do: str) -> Iterator[None]:
    """End this process if a library waits too long for all ranks within the context.

    A launcher then ends the other ranks. The library must let other threads of Python run.

    Parameters
    ----------
    do : str
        Common action of the ranks, for the message.
    """
    ended, most_s = threading.Event(), timeout_s()

    def end() -> None:
        if ended.wait(most_s):
            return
        tell_end(f"a rank has kept others waiting for {most_s:g} s to {do}")
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
