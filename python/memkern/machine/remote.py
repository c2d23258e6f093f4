"""The memory of all ranks as one device: MPI's and OpenSHMEM's one-sided operations.

Devices come from extension modules such as ``_memkern_mpi`` and ``_memkern_shmem``, which are built
where the library's compiler wrapper is found. MPI is initialised by mpi4py.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern import backends, launcher
from memkern.errors import InputError
from memkern.limits import read_text

Positions = npt.NDArray[np.int64]

_MPI = next(backend for backend in backends.BACKENDS if backend.by_mpi4py)
# Variable with which Open MPI's launcher passes the choice of a component for windows.
_OSC = "OMPI_MCA_osc"
# Variable with the thread level for which mpi4py initialises MPI.
_THREAD_LEVEL = "MPI4PY_RC_THREAD_LEVEL"


@dataclass(frozen=True)
class Description:
    """Name and version of a library, and its ranks.

    `nodes` is, by rank, the first rank on its node; `threads`, whether several threads of a rank
    may use the library at the same time.
    """

    library: str
    rank: int
    nodes: tuple[int, ...]
    threads: bool

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.nodes)


def _line(version: str) -> str:
    """Return the first part of a library's version, which may have many lines."""
    return " ".join(version.split("\n")[0].split(",")[0].split())


def mpi(level: str) -> Any:
    """Return mpi4py's module of MPI, which initialises MPI when it is first imported.

    Parameters
    ----------
    level : str
        Which threads of a rank will call it: ``single`` if it has no other, ``funneled`` (the main
        one) or ``multiple``. The first call determines the level, unless mpi4py is configured
        otherwise. Open MPI 4.1 takes locks, which cost up to 0.1 us per message, unless the level
        is ``single``.

    Raises
    ------
    InputError
        mpi4py, or the MPI library that it is configured for, can't be loaded, with the reason.
    """
    try:
        settings = importlib.import_module("mpi4py").rc
        if not (_THREAD_LEVEL in os.environ or "thread_level" in vars(settings)):
            settings.thread_level = level
        return importlib.import_module("mpi4py.MPI")
    # RuntimeError is from mpi4py's wheel, which searches for a library itself.
    except (ImportError, RuntimeError) as error:
        if getattr(error, "name", "") == "mpi4py":
            raise InputError(f"mpi4py is not installed: pip install {_MPI.install}") from None
        raise InputError(
            f"mpi4py can't be used ({', '.join(str(error).splitlines())}): install the MPI library "
            "that it needs, or set MPI4PY_LIBMPI to its path"
        ) from None


def is_built(name: str) -> bool:
    """Return whether memkern was built with the module of a backend, or of another MPI."""
    return importlib.util.find_spec(f"memkern._memkern_{name}") is not None


@functools.cache
def extension(device: str, threads: bool = False) -> ModuleType:
    """Return the module of a device over ranks, started for one thread of each rank or several.

    Libraries are faster with one thread; the first call determines the mode.

    Raises
    ------
    InputError
        It can't be used, with the reason.
    """
    backend, library, name = backends.of(device), None, device
    if backend.by_mpi4py:
        library = mpi("multiple" if threads else "single")
        # With two MPI libraries, the module for mpicxx has the plain name.
        own = f"mpi_{library.get_vendor()[0].replace(' ', '').lower()}"
        name = own if is_built(own) else device
    try:
        module = importlib.import_module(f"memkern._memkern_{name}")
    except ModuleNotFoundError:
        raise InputError(
            f"memkern was built without {backend.library}: install it, so that "
            f"{backend.compiler} is on PATH, and install memkern again"
        ) from None
    except ImportError as error:
        raise InputError(f"{backend.library} can't be used: {error}") from None
    if library is None:
        with launcher.waiting_for_all(f"start {backend.library}"):
            module.start(threads)
    else:
        _start_mpi(module, library)
    atexit.register(module.finish)
    if library is None:
        atexit.register(_keep_callbacks)  # runs before it
    return module


def _keep_callbacks() -> None:
    """Keep Open MPI's library of its components for UCX loaded while OpenSHMEM ends.

    Version 4.1 unloads it, calls a function of it when memory is unmapped after that, and so ends
    with a segmentation fault.
    """
    with contextlib.suppress(OSError):
        mapped = Path("/proc/self/maps").read_text().splitlines()
        for path in {line.split()[-1] for line in mapped if "/libmca_common_ucx.so" in line}:
            ctypes.CDLL(path)  # is never unloaded


def _start_mpi(module: Any, library: Any) -> None:
    """Let the module use the processes of mpi4py, if both use the same MPI."""
    built, used = module.version(), library.Get_library_version()
    if built != used:
        raise InputError(
            f"memkern was built for {_line(built)}, but mpi4py uses {_line(used)}: start it with "
            "the former's mpirun, or build memkern with the latter's mpicxx first on PATH"
        )
    with launcher.waiting_for_all("start MPI"):
        module.start(library.COMM_WORLD.py2f())


def description(device: str, threads: int = 1) -> Description:
    """Return the description of a device over ranks.

    Parameters
    ----------
    device : str
    threads : int
        Threads of each rank that will use it.

    Raises
    ------
    InputError
        It can't be used, with the reason.
    """
    module: Any = extension(device, threads > 1)
    library, nodes = _line(module.version()), tuple(module.nodes())
    return Description(library, module.rank(), nodes, module.threads())


def links(root: Path = Path("/")) -> set[str]:
    """Return the memory and the TCP connections that this process may share with other ranks.

    Parameters
    ----------
    root : Path
        Folder that contains ``proc``.

    Returns
    -------
    set of str
        ``shared memory (NAME):IDENTITY`` and ``TCP:IDENTITY``, equal in both processes.
    """
    # Address, mode, offset, device, inode, and name: /dev/shm/vader_segment.0, /SYSV00000000, ...
    maps = [line.split(None, 5) for line in (read_text(root, "proc/self/maps") or "").splitlines()]
    memory = {
        f"shared memory ({re.split('[^A-Za-z]', row[5].rpartition('/')[2])[0]}):{row[3]} {row[4]}"
        for row in maps
        # Launchers share memory with their processes as well.
        if row[1][1] + row[1][3] == "ws" and len(row) == 6 and "pmix" not in row[5]
    }
    files = {
        os.path.realpath(file).rpartition("/")[2] for file in (root / "proc/self/fd").glob("*")
    }
    # Number, own and other address, ..., and the inode of a socket.
    rows = map(str.split, (read_text(root, "proc/self/net/tcp") or "").splitlines()[1:])
    return memory | {f"TCP:{sorted(row[1:3])}" for row in rows if f"socket:[{row[9]}]" in files}


def refuse_faulty(found: Description, *, swaps_64: bool, threads: int) -> None:
    """Raise InputError for operations in which the library is known to crash.

    Parameters
    ----------
    found : Description
        Of ``mpi``.
    swaps_64 : bool
        Whether words of 64 bits are compared and swapped.
    threads : int
        Threads of each rank.
    """
    shares_node = found.nodes.count(found.nodes[found.rank]) > 1
    faulty = found.library.startswith("Open MPI v4.") and shares_node
    if faulty and (swaps_64 or threads > 1) and _OSC not in os.environ:
        raise InputError(
            f"windows of {found.library} end with a segmentation fault, where ranks share a node, "
            "in compare-and-swaps of 64 bits and with several threads: start memkern with another "
            "component (mpirun --mca osc sm, or ucx on several nodes)"
        )


def handle(
    device: str,
    *,
    flush_every: int,
    contexts: str,
    threads: int,
    shift: int,
    barrier: Callable[[], object],
    largest: Callable[[float], float],
    watch: Callable[[bool], object],
) -> Any:
    """Return the extension's object for a device over ranks.

    Parameters
    ----------
    device : str
    flush_every : int
        Number of updates that are completed together.
    contexts : str
        ``default``, or ``private``: one for each thread.
    threads : int
        Threads of each rank that will use it.
    shift : int
        Each rank executes the iterations of the rank that is `shift` ranks ahead.
    barrier : callable
        Waits for all ranks; raises an exception if one has failed.
    largest : callable
        Returns the largest of the ranks' numbers; raises likewise.
    watch : callable
        Begins (True) or ends watching a call in which the library waits for all ranks.

    Raises
    ------
    InputError
        The library can't be used, or does not support the request.
    """
    module: Any = extension(device)
    library = backends.of(device).library
    if threads > 1 and not module.threads():
        raise InputError(
            f"{library} was initialised for one thread of each rank: use threads 1, or "
            "measure all cases of several threads in a separate run"
        )
    if contexts == "private" and not module.private_contexts():
        raise InputError(f"{library} here has no private contexts: leave contexts out")
    module.meet_by(barrier, largest, watch)
    return module.device(flush_every, contexts == "private", shift)


def exchange(
    neighbours: Sequence[tuple[int, Positions, int]],
    to: Positions,
    of: Positions,
    *,
    adds: bool,
    rank: int,
    ranks: int,
    timeout_s: float,
) -> Any:
    """Return the extension's object for an exchange; all ranks must call this together.

    Parameters
    ----------
    neighbours, to, of, adds
        As in `memkern.spec.kernel.Exchange`.
    rank, ranks : int
        The number of this rank, and of all that measure together.
    timeout_s : float
        Seconds without a message after which a rank ends all ranks.

    Raises
    ------
    InputError
        MPI can't be used, with the reason, or it has other ranks.
    ValueError
        The arguments of a rank are wrong, or do not match another rank's.
    """
    module: Any = extension(_MPI.device)
    if (module.rank(), module.ranks()) != (rank, ranks):
        raise InputError(
            f"rank {rank} of {ranks} is rank {module.rank()} of {module.ranks()} in MPI: start all "
            "ranks by its mpirun"
        )
    return module.exchange(list(neighbours), to, of, adds, timeout_s)
