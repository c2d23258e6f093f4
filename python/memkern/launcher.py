"""Processes started together: variables of launchers such as ``mpirun``, and commands."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from memkern import backends, checks
from memkern.errors import warn

# Runs a module as `python -m` does, but without the current folder on the path, whose files would
# replace modules of Python. Before 3.11 no option does so and leaves PYTHONPATH.
_RUN = (
    "import sys; sys.path = [path for path in sys.path if path]; "
    "del sys.argv[: sys.argv.index('-m') + 1]; "
    "import runpy; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
# Communication of processes that were started together.
CHOICES = ("auto", "none", *backends.LIBRARIES)
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
# The same among the processes on a host.
_ON_HOST = (
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),  # MPICH, Intel MPI
    ("PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"),
    ("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
    *_VARIABLES,
)

# Bytes of shared memory that each rank needs, in Open MPI and in UCX.
_SEGMENT_B = 4_400_000
_shortage = ""


def _found(
    variables: Mapping[str, str], names: Sequence[tuple[str, str]] = _VARIABLES
) -> tuple[int, int]:
    for number, size in names:
        with contextlib.suppress(KeyError, ValueError):
            # Slurm's number of tasks on each node is such as "2(x3)".
            return int(variables[number]), int(variables[size].partition("(")[0])
    return 0, 1


def number(variables: Mapping[str, str] = os.environ) -> int:
    """Return the number of this process among those started together, from 0."""
    return _found(variables)[0]


def size(variables: Mapping[str, str] = os.environ) -> int:
    """Return the number of processes that were started together; 1 without a launcher."""
    return _found(variables)[1]


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
    checks.one_of(requested, "comm", CHOICES)
    if requested != "auto":
        return requested
    given = variables.get(COMM, "")
    checks.one_of(given, COMM, ("", *CHOICES[1:]))
    return given or ("auto" if size(variables) > 1 else "none")


def check_shared_memory(segments: int = 1, variables: Mapping[str, str] = os.environ) -> None:
    """Warn if this host has too little shared memory for its ranks, before a library starts.

    Libraries then change to another transport, often without a word, or end with a bus error, or
    wait for each other: `tell_end` repeats the reason.

    Parameters
    ----------
    segments : int
        Number of libraries, one on the other, of which each needs its own.
    variables : mapping
        The environment.
    """
    global _shortage
    own, ranks = _found(variables, _ON_HOST)
    # The folder is another one with these variables of Open MPI 4 and 5, and of UCX.
    folder = (
        variables.get("OMPI_MCA_btl_vader_backing_directory")
        or variables.get("OMPI_MCA_btl_sm_backing_directory")
        or variables.get("UCX_POSIX_DIR")
        or "/dev/shm"
    )
    free_B = shutil.disk_usage(folder).free if os.access(folder, os.W_OK) else 0
    needed_B = segments * _SEGMENT_B * ranks
    _shortage = (
        f"{folder} has {free_B / 1e6:.3g} MB that this process may use, but {ranks} ranks of a "
        f"host need about {needed_B / 1e6:.3g} MB of shared memory, without which they use a "
        "slower transport, or end with a bus error or without an answer: enlarge it (docker run "
        f"--shm-size=1g, or as root: mount -o remount,size=1g {folder})"
    ) * (ranks > 1 and free_B < needed_B)
    if _shortage and own == 0:
        # Only the first of all ranks may print otherwise, which can be on another host.
        with contextlib.redirect_stderr(sys.__stderr__):
            warn(_shortage)


def timeout_s() -> float:
    """Return the seconds after which a rank that does not answer is given up.

    Raises
    ------
    InputError
        The environment variable is not such a number.
    """
    return checks.number(
        checks.read_number(os.environ.get(TIMEOUT, str(_TIMEOUT_S)), TIMEOUT),
        TIMEOUT,
        _LEAST_TIMEOUT_S,
        _MOST_TIMEOUT_S,
    )


def tell_end(why: str) -> None:
    """Print why all ranks end because of one that does not answer, before ending them."""
    print(
        f"memkern: {why}: all ranks end ({TIMEOUT} sets the time limit)"
        + f"; probably because {_shortage}" * bool(_shortage),
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
