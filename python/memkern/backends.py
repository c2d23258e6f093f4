"""The backends on which cases run, one row each.

Code asks the row of a device for a feature, never for a name. A further backend is a row and its
folder in ``cpp/backends`` (see `Backend`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from memkern.checks import shown
from memkern.errors import InputError

# Kinds of devices, each of which has its own options of a case.
PROCESSORS, GPUS, RANKS = "processors", "GPUs", "ranks"
EVERYWHERE = (PROCESSORS, GPUS, RANKS)


@dataclass(frozen=True)
class Backend:
    """A row: a backend's devices and features.

    Parameters
    ----------
    name : str
        Value of the column ``backend``. The extension module of ``NAME`` is ``_memkern_NAME``.
    library : str
        Name of its library or model in sentences and figures.
    kind : str
        One of `EVERYWHERE`: options of a case are declared for kinds (see `Option.where`).
    device : str
        Name of its device. Those of accelerators are numbered, and the name alone is the first one:
        ``cuda`` is ``cuda:0``.
    compiler : str
        Compiler that must be on ``PATH`` when memkern is built, so that the module is built.
    install : str
        What pip installs, so that the state of its devices is read, or its library is started.
    meter : str
        Of an accelerator: module with NVML's functions, by which clocks, power and settings are
        read; empty if they are unknown.
    sector_B : int
        Smallest transfer of its memory in bytes; 0 for a cache line of this processor.
    launchers : tuple of str
        Over ranks: commands that start ranks; the first is the library's own.
    started_by : str
        Environment variable without which the library must not be started, unless it is requested,
        since it might end the process.
    segments : int
        Number of libraries, one on the other, of which each needs its own shared memory.
    by_mpi4py : bool
        Whether mpi4py starts it, instead of the module.
    sends : bool
        Whether it has send and receive, by which ranks exchange values of a distributed case.
    private_contexts : bool
        Whether each thread can have its own context.
    fetches_singly : bool
        Whether an operation that returns a value is complete before the next one starts.
    atomics : mapping
        Atomic operations on words of other ranks, of unsigned words ("u") and of floating-point
        numbers ("f").
    moves : tuple of str
        Variants of gather and scatter over ranks.
    """

    name: str
    library: str
    kind: str
    device: str
    compiler: str = ""
    install: str = ""
    meter: str = ""
    sector_B: int = 0
    launchers: tuple[str, ...] = ()
    started_by: str = ""
    segments: int = 1
    by_mpi4py: bool = False
    sends: bool = False
    private_contexts: bool = False
    fetches_singly: bool = False
    atomics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    moves: tuple[str, ...] = ()

    @property
    def on_processors(self) -> bool:
        """Whether cases run on the processors of this host, in the memory of this process."""
        return self.kind == PROCESSORS

    @property
    def is_accelerator(self) -> bool:
        """Whether it has its own memory, and kernels are launched whose lanes share sectors."""
        return self.kind == GPUS

    @property
    def over_ranks(self) -> bool:
        """Whether a case is distributed over the memory of all ranks."""
        return self.kind == RANKS


_ATOMICS = ("add", "and", "or", "xor", "exchange", "cas", "cas-retry")
HOST = Backend("openmp", "OpenMP", PROCESSORS, "cpu")
"""The backend of cases without a device."""

BACKENDS: tuple[Backend, ...] = (
    HOST,
    Backend(
        "cuda",
        "CUDA",
        GPUS,
        "cuda",
        compiler="nvcc",
        install="nvidia-ml-py",
        meter="pynvml",
        sector_B=32,
    ),
    Backend(
        "mpi",
        "MPI",
        RANKS,
        "mpi",
        compiler="mpicxx",
        install="'memkern[mpi]'",
        launchers=("mpirun", "srun"),
        by_mpi4py=True,
        sends=True,
        atomics={"u": (*_ATOMICS, "min", "max"), "f": ("add", "min", "max", "exchange")},
        moves=("single", "indexed", "packed", "neighbor"),
    ),
    Backend(
        "shmem",
        "OpenSHMEM",
        RANKS,
        "shmem",
        compiler="oshc++",
        launchers=("oshrun", "srun"),
        # Open MPI's oshrun equals its mpirun.
        started_by="OMPI_COMM_WORLD_SIZE",
        # It uses UCX besides MPI.
        segments=2,
        private_contexts=True,
        fetches_singly=True,
        atomics={"u": _ATOMICS, "f": ("exchange",)},
        moves=("single",),
    ),
)
"""All backends, in the order in which sentences list their devices."""

ACCELERATORS = [backend.name for backend in BACKENDS if backend.is_accelerator]
"""Values of the column ``backend`` in records of accelerators."""

LIBRARIES = {backend.name: backend.library for backend in BACKENDS if backend.over_ranks}
"""The libraries of ranks by device, which is also the value of ``backend`` and ``comm``."""


def of(device: object) -> Backend:
    """Return the backend of a device such as ``cuda:0``.

    Raises
    ------
    InputError
        No backend has such a device.
    """
    name, colon, number = str(device).partition(":")
    for backend in BACKENDS:
        numbered = backend.is_accelerator and re.fullmatch("[0-9]{1,3}", number)
        if name == backend.device and (numbered or not colon):
            return backend
    *known, last = (
        word for b in BACKENDS for word in (b.device, *[f"{b.device}:N"] * b.is_accelerator)
    )
    raise InputError(f"device must be {', '.join(known)} or {last}, not {shown(str(device))}")


def named(kinds: Iterable[str]) -> str:
    """Return the kinds of devices as sentences name them; for ranks, their libraries."""
    return " and ".join(
        dict.fromkeys(b.library if b.over_ranks else b.kind for b in BACKENDS if b.kind in kinds)
    )
