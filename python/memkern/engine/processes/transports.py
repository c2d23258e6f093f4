"""How ranks communicate: by MPI, or by a library of one-sided operations such as OpenSHMEM."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from memkern import backends, launcher
from memkern.errors import InputError
from memkern.machine import remote

Floats = npt.NDArray[np.float64]

# Number of polls before the processor is yielded, and seconds before the rank sleeps.
_POLLS, _SLEEP_AFTER_S, _SLEEP_S = 2000, 0.02, 5e-5
# After this time, a rank notifies others that it waits.
_LATE_S = 1.0
_SIZE_B = 8
_MOST_NAMED = 8
# Variables that select the transport of Open MPI, UCX, libfabric and MPICH.
_TRANSPORTS = (
    *(f"OMPI_MCA_{kind}" for kind in ("pml", "mtl", "btl", "osc", "spml")),
    *("UCX_TLS", "UCX_NET_DEVICES", "FI_PROVIDER"),
    *("MPIR_CVAR_CH4_NETMOD", "MPIR_CVAR_OFI_USE_PROVIDER"),
)


class Connection:
    """Communication among the ranks, all of which call each function.

    It waits by polling, so that a rank that does not answer is noticed: after the timeout, the
    first rank that answers names those that do not, and ends all.

    Attributes
    ----------
    comm : str
    number, size : int
        Number of this rank, from 0, and of all.
    library : str
        Name and version of the library.
    thread_level : str
        Which threads of a rank may call it: ``single``, ``funneled`` (the main one),
        ``serialized`` (one at a time) or ``multiple``.
    transport : str
        The transport of the data as the library reports it, or else the variables that select it;
        and how ranks are seen to be connected (see `memkern.machine.remote.links`).
    timeout_s : float
        Seconds after which a rank that does not answer is given up.
    hosts : sequence of str
        By rank, once they are known.
    """

    number, size = 0, 1
    library = ""
    thread_level = ""
    transport = ""
    hosts: Sequence[str] = ()

    def __init__(self, comm: str = "") -> None:
        self.comm = comm
        self.timeout_s = launcher.timeout_s()

    def largest(self, values: Floats) -> Floats:
        """Return the element-wise maximum over the ranks."""
        raise NotImplementedError

    def every(self, content: bytes) -> list[bytes]:
        """Return the contents of all ranks."""
        raise NotImplementedError

    def barrier(self) -> None:
        """Wait for all ranks; poll first, for short waits."""
        raise NotImplementedError

    def _wait(self, complete: Callable[[], bool], sleep_after_s: float = _SLEEP_AFTER_S) -> None:
        """Wait for a common operation of all ranks; after some time, sleep between polls."""
        for _ in range(_POLLS):
            if complete():
                return
        begin = time.monotonic()
        late = False
        while not complete():
            waited_s = time.monotonic() - begin
            if waited_s < sleep_after_s:
                os.sched_yield()
                continue
            time.sleep(_SLEEP_S)
            if waited_s > _LATE_S and not late:
                late = True
                self._tell_late()
            # The second rank gives up later, in case the first rank is the one that does not
            # answer.
            if waited_s > self.timeout_s * (1 + 0.1 * min(self.number, 2)):
                self.give_up(self._missing(), waited_s)

    def _tell_late(self) -> None:
        """Notify others that this rank waits."""

    def _missing(self) -> list[int]:
        """Return the ranks that do not answer."""
        raise NotImplementedError

    def give_up(self, missing: Sequence[int], waited_s: float, *, one_of: bool = False) -> NoReturn:
        """Name the ranks that do not answer, or of which `one_of` does not, and end all."""
        launcher.tell_end(f"{self._named(missing, one_of)} not answer for {waited_s:.0f} s")
        self.abort()
        raise SystemExit(1)  # not reached

    def _named(self, missing: Sequence[int], one_of: bool) -> str:
        """Return the beginning of a sentence about ranks, with their hosts if these are known."""
        if not missing:
            return "a rank does"
        some = missing[:_MOST_NAMED]
        names = [f"{rank} on {self.hosts[rank]}" if self.hosts else f"{rank}" for rank in some]
        listed = ", ".join(names) + (", ..." if len(missing) > len(some) else "")
        if len(missing) == 1:
            return f"rank {listed} does"
        return f"one of ranks {listed} does" if one_of else f"ranks {listed} do"

    def abort(self) -> None:
        """End all ranks."""
        raise NotImplementedError


class _Mpi(Connection):
    """Communication by MPI."""

    def __init__(self, backend: backends.Backend, mpi: Any) -> None:
        super().__init__(backend.name)
        self._mpi = mpi
        self._comm = mpi.COMM_WORLD.Dup()
        self._late = mpi.COMM_WORLD.Dup()
        self._meetings = 0
        self._told: list[Any] = []
        self.number, self.size = self._comm.rank, self._comm.size
        version = mpi.Get_library_version()
        self.library = " ".join(version.split("\n")[0].split(",")[0].split())
        levels = ("single", "funneled", "serialized", "multiple")
        names = {getattr(mpi, f"THREAD_{level.upper()}"): level for level in levels}
        self.thread_level = names[mpi.Query_thread()]
        device = re.search(r"^MPICH Device:\s*(\S+)", version, re.MULTILINE)
        self.transport = _with_links(device[1] if device else requested_transport(), self.every)

    def largest(self, values: Floats) -> Floats:
        found = np.empty_like(values)
        self._meet(self._comm.Iallreduce(values, found, op=self._mpi.MAX))
        return found

    def every(self, content: bytes) -> list[bytes]:
        sizes = np.empty(self.size, dtype=np.int64)
        self._meet(self._comm.Iallgather(np.array([len(content)], dtype=np.int64), sizes))
        ends = np.cumsum(sizes)
        found = bytearray(int(ends[-1]))
        byte = self._mpi.BYTE
        parts = [found, sizes.tolist(), (ends - sizes).tolist(), byte]
        self._meet(self._comm.Iallgatherv([content, byte], parts))
        return [bytes(found[end - size : end]) for size, end in zip(sizes, ends, strict=True)]

    def barrier(self) -> None:
        self._meet(self._comm.Ibarrier(), _LATE_S)

    def abort(self) -> None:
        self._mpi.COMM_WORLD.Abort(1)

    def _meet(self, request: Any, sleep_after_s: float = _SLEEP_AFTER_S) -> None:
        self._meetings += 1
        self._wait(request.Test, sleep_after_s)

    def _tell_late(self) -> None:
        # The ranks that give up first.
        self._told = [self._late.isend(self._meetings, k) for k in range(min(2, self.size))]

    def _missing(self) -> list[int]:
        if self.number > 1:
            return [0, 1]
        waiting, status = {self.number}, self._mpi.Status()
        while self._late.Iprobe(status=status):
            if self._late.recv(source=status.Get_source()) == self._meetings:
                waiting.add(status.Get_source())
        return sorted(set(range(self.size)) - waiting)


class _OneSided(Connection):
    """Communication by one-sided operations: a rank puts its content into the memory of others."""

    def __init__(self, backend: backends.Backend, module: Any) -> None:
        super().__init__(backend.name)
        self._module = module
        self._meetings = module.Meetings()
        self.number, self.size = module.rank(), module.ranks()
        self.library = module.version()
        self.thread_level = "multiple" if module.threads() else "single"
        self.transport = _with_links(requested_transport(), self.every)

    def largest(self, values: Floats) -> Floats:
        all_values = self._exchange(values.tobytes(), values.nbytes)
        return np.asarray(np.max([np.frombuffer(one) for one in all_values], axis=0))

    def every(self, content: bytes) -> list[bytes]:
        sizes = self._exchange(len(content).to_bytes(_SIZE_B, "little"), _SIZE_B)
        return self._exchange(content, max(int.from_bytes(size, "little") for size in sizes))

    def barrier(self) -> None:
        self._meetings.begin()
        self._wait(self._meetings.complete, _LATE_S)

    def abort(self) -> None:
        self._module.abort()

    def _exchange(self, content: bytes, most_B: int) -> list[bytes]:
        """Return the contents of all ranks; the longest has `most_B` bytes."""
        found = [b""] * self.size
        for begin in range(0, most_B, self._meetings.most_B):
            self._meetings.bring(content[begin : begin + self._meetings.most_B])
            self._meetings.begin()
            self._wait(self._meetings.complete)
            found = [a + b for a, b in zip(found, self._meetings.contents(), strict=True)]
        return found

    def _missing(self) -> list[int]:
        return list(self._meetings.missing())


def _with_links(selected: str, every: Callable[[bytes], list[bytes]]) -> str:
    """Return a transport as the library selects it, with the links that several ranks have."""
    all_links = every("\n".join(remote.links()).encode())
    counts = Counter(link for links in all_links for link in links.decode().split("\n"))
    kinds = {link.partition(":")[0] for link, ranks in counts.items() if ranks > 1}
    return " ".join(filter(None, (selected, ", ".join(sorted(kinds, reverse=True)))))


def _copies(started: int) -> str:
    """Return advice for ranks that can't communicate."""
    return f"; --comm none measures {started} independent copies at the same time" * (started > 1)


def requested_transport(variables: Mapping[str, str] = os.environ) -> str:
    """Return the variables that select the transport of a library, as NAME=VALUE.

    Open MPI and OpenSHMEM do not report the transport in use (see `memkern.machine.remote.links`).
    """
    return " ".join(f"{name}={variables[name]}" for name in _TRANSPORTS if variables.get(name))


def _by_mpi(backend: backends.Backend, level: str) -> _Mpi:
    """Connect by mpi4py, if it communicates with all processes that were started.

    Raises
    ------
    InputError
        It does not, with the reason.
    """
    started = launcher.size()
    try:
        with warnings.catch_warnings():
            # mpi4py warns of another MPI's launcher, which is an error below.
            warnings.simplefilter("ignore", RuntimeWarning)
            mpi = remote.mpi(level)
    except InputError as error:
        raise InputError(
            f"{started} ranks can't measure together, because {error}{_copies(started)}"
        ) from None
    if mpi.COMM_WORLD.size < started:
        library = mpi.Get_library_version().split(",")[0]
        raise InputError(
            f"{started} ranks were started, but mpi4py uses {library}, which sees "
            f"{mpi.COMM_WORLD.size}: start them with that library's mpirun, or install mpi4py for "
            f"the MPI that started them{_copies(started)}"
        )
    with launcher.waiting_for_all("connect"):
        return _Mpi(backend, mpi)


def _by_module(backend: backends.Backend, level: str) -> _OneSided:
    """Connect by the module of a backend, if it communicates with all processes that were started.

    Raises
    ------
    InputError
        It does not, with the reason.
    """
    started, module = launcher.size(), remote.extension(backend.device, level == "multiple")
    if module.ranks() < started:
        raise InputError(
            f"{started} ranks were started, but {backend.library} sees {module.ranks()}: start "
            f"them with its {backend.launchers[0]}{_copies(started)}"
        )
    with launcher.waiting_for_all("connect"):
        return _OneSided(backend, module)


def _by(backend: backends.Backend, level: str) -> Connection:
    """Connect by a library over ranks."""
    return (_by_mpi if backend.by_mpi4py else _by_module)(backend, level)


def connect(comm: str, level: str = "multiple") -> Connection:
    """Connect this process with those that were started together with it.

    Parameters
    ----------
    comm : str
        ``mpi``, ``shmem``, or ``auto``: MPI, or if it can't be used, another library whose programs
        the launcher can start.
    level : str
        Which threads of a rank will call the library: ``single`` if it has no other, ``funneled``
        (the main one) or ``multiple``.

    Raises
    ------
    InputError
        The ranks can't communicate.
    """
    launcher.timeout_s()  # raises for a wrong value before a library starts
    known = [b for b in backends.BACKENDS if b.over_ranks and comm in ("auto", b.name)]
    launcher.check_shared_memory(known[0].segments)
    try:
        return _by(known[0], level)
    except InputError:
        for backend in known[1:]:
            if backend.started_by in os.environ and remote.is_built(backend.name):
                return _by(backend, level)
        raise
