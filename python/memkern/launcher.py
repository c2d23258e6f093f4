"""What a launcher such as ``mpirun`` or ``srun`` tells the processes that it starts."""

from __future__ import annotations

import os
from collections.abc import Mapping

from memkern.checks import one_of

__all__ = ["BINDINGS", "CHOICES", "COMM", "comm", "number", "size", "starts_shmem"]

# How processes that were started together communicate.
CHOICES = ("auto", "none", "mpi", "shmem")
# What a launcher can bind each of them to.
BINDINGS = ("node", "socket", "core")
# Environment variable that decides where no option does, also for processes that are started by
# this one.
COMM = "MEMKERN_COMM"

# Variables with the number of a process and with that of all processes, by launcher.
_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI's mpirun and oshrun
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI, srun --mpi=pmi2
    ("PALS_RANKID", "PALS_SIZE"),  # Cray PALS
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ("MPT_MPI_RANK", "MPT_MPI_SIZE"),  # HPE MPT
    # Of the step, because a batch script has the job's number of tasks, but is one process.
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
    """Return how many processes were started together, 1 without a launcher."""
    return _found(variables)[1]


def starts_shmem(variables: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process may be one of OpenSHMEM: Open MPI's oshrun is its mpirun."""
    return "OMPI_COMM_WORLD_SIZE" in variables


def comm(asked: str = "auto", variables: Mapping[str, str] = os.environ) -> str:
    """Return how this process communicates with those started together with it.

    Parameters
    ----------
    asked : str
        One of `CHOICES`; ``auto``: ``none`` unless a launcher started several processes, which
        then communicate by what they find.

    Raises
    ------
    InputError
        It, or the environment variable, is something else.
    """
    one_of(asked, "comm", CHOICES)
    if asked == "auto":
        asked = variables.get(COMM, "")
        if not asked:
            return "auto" if size(variables) > 1 else "none"
        one_of(asked, COMM, CHOICES[1:])
    return asked
