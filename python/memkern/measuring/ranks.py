"""The ranks that measure together: one process, or those that a launcher started.

All ranks run the same program. Whatever depends on time, on samples or on one machine is agreed,
so that every rank takes the same decisions and calls the functions of `Ranks` in the same order.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import itertools
import json
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from memkern import launcher
from memkern.errors import InputError
from memkern.machine.environment import cpu_list, units_of_core

__all__ = ["TIMEOUT", "Ranks", "ranks", "start", "together"]

T = TypeVar("T")
Floats = npt.NDArray[np.float64]

# Environment variable for the seconds after which a rank that does not answer is given up.
TIMEOUT = "MEMKERN_RANK_TIMEOUT_S"
_TIMEOUT_S = 120.0

# What a rank brings to a meeting; the largest one counts.
_GO, _OVER, _INTERRUPTED, _FAILED = 0.0, 1.0, 2.0, 3.0
# Polls of a request before the processor is offered to others, and seconds before it is left to
# them for a while.
_POLLS, _SLEEP_AFTER_S, _SLEEP_S = 2000, 0.02, 5e-5
# After this time in a meeting, a rank tells the first two ranks that it waits.
_LATE_S = 1.0
_BARRIERS = 200


class Transport(Protocol):
    """Communication among the ranks, each function of which is called by all of them."""

    library: str

    def largest(self, values: Floats) -> Floats:
        """Return the element-wise maximum over the ranks."""

    def every(self, content: bytes) -> list[bytes]:
        """Return the contents of all ranks."""

    def barrier(self) -> None:
        """Wait for all ranks, without leaving the processor as long as they come soon."""

    def abort(self) -> NoReturn:
        """End all ranks."""


class Ranks:
    """The processes that measure together.

    Parameters
    ----------
    comm : str
        ``none`` or ``mpi``.
    number, size : int
        Number of this process, from 0, and of all.
    transport : Transport, optional
        Where there are several.

    Attributes
    ----------
    hosts : list of str
        The host of each rank.
    processes : set of int
        The numbers of the ranks' processes on this host.
    host_units : int
        Number of processing units that these ranks may use.
    even : bool
        Whether all ranks have as many processing units as each other.
    case_id : str
        What the identity of a case says of several ranks: a hash of their number and binding.
    barrier_s : float
        Median time of a barrier, which bounds how far apart ranks leave it; 0 for one rank.
    """

    def __init__(
        self, comm: str = "none", number: int = 0, size: int = 1, transport: Transport | None = None
    ) -> None:
        self.comm = comm
        self.number = number
        self.size = size
        self._transport = transport
        self._together = False
        self._failed = False
        self._signals: list[tuple[int, FrameType | None]] = []
        self.hosts = self.every(os.uname().nodename)
        self.processes = set(self.of_host(os.getpid()))
        self.host_units = len(set(itertools.chain(*self.of_host(os.sched_getaffinity(0)))))
        self.barrier_s = self._measure_barrier()
        self._note_bindings()

    @property
    def library(self) -> str:
        """Name and version of the library, empty for a single process."""
        return self._transport.library if self._transport else ""

    @property
    def per_node(self) -> int:
        """The largest number of ranks on a host."""
        return max(Counter(self.hosts).values())

    def _note_bindings(self) -> None:
        """Set what depends on the processing units of each rank."""
        bindings = self.every(sorted(os.sched_getaffinity(0)))
        self.even = len(set(map(len, bindings))) == 1
        hosts = map(self.hosts.index, self.hosts)
        text = json.dumps([self.comm, list(zip(hosts, bindings, strict=True))])
        self.case_id = hashlib.sha256(text.encode()).hexdigest()[:8] if self.size > 1 else ""

    def divide_units(self) -> None:
        """Divide processing units that the launcher gave to several ranks among these."""
        own = sorted(os.sched_getaffinity(0))
        masks = self.of_host((self.number, own))
        sharing = [number for number, mask in masks if mask == own]
        if len(sharing) > 1:
            # The hardware threads of a core belong together.
            cores = {unit: min(cpu_list(units_of_core(unit)) or [unit]) for unit in own}
            units = sorted(own, key=lambda unit: (cores[unit], unit))
            place, share = sharing.index(self.number), len(units) // len(sharing)
            chosen = units[place * share : (place + 1) * share] or [units[place % len(units)]]
            # Threads of the library count, too, where the process's units are looked up.
            for thread in os.listdir("/proc/self/task"):
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread), chosen)
        self._note_bindings()

    def gate(self, over: bool = False) -> bool:
        """Wait for all ranks, and return whether it is `over` for one of them.

        Raises
        ------
        InputError, MemoryError, RuntimeError
            Another rank has failed.
        KeyboardInterrupt
            A rank was interrupted.
        """
        if self._transport is None:
            return over
        return self._meet(_INTERRUPTED if self._signals else _OVER if over else _GO) == _OVER

    def _meet(self, status: float) -> float:
        """Return the most serious status; raise what a rank has met with."""
        assert self._transport is not None
        found = float(self._transport.largest(np.array([status]))[0])
        if found == _INTERRUPTED:
            self._interrupt()
        if found == _FAILED and status != _FAILED:
            self._failed = True
            self._raise(self._transport.every(pickle.dumps(None)))
        return found

    def first(self, value: T) -> T:
        """Return the value of rank 0; see `gate` for what is raised."""
        return self.every(value if self.number == 0 else None)[0]  # type: ignore[return-value]

    def every(self, value: T) -> list[T]:
        """Return the values of all ranks, by rank; see `gate` for what is raised."""
        if self._transport is None:
            return [value]
        self.gate()
        return [pickle.loads(one) for one in self._transport.every(pickle.dumps(value))]

    def of_host(self, value: T) -> list[T]:
        """Return the values of the ranks on this host; see `gate` for what is raised."""
        values = self.every(value)
        own = self.hosts[self.number]
        return [v for v, host in zip(values, self.hosts, strict=True) if host == own]

    def largest(self, values: npt.ArrayLike) -> Floats:
        """Return the element-wise maximum over the ranks; see `gate` for what is raised.

        Parameters
        ----------
        values : array_like of float64
            Of the same shape on all ranks; NaN where a rank does not know, which is NaN then.
        """
        own = np.asarray(values, dtype=np.float64)
        if self._transport is None:
            return own
        self.gate()
        found = self._transport.largest(np.where(np.isnan(own), np.inf, own).ravel())
        return np.where(np.isinf(found), np.nan, found).reshape(own.shape)

    def slowest(self, seconds: float) -> float:
        """Return the longest time of a rank."""
        return float(self.largest([seconds])[0])

    def agreed(self, value: bool) -> bool:
        """Return whether it is true on all ranks."""
        return not self.gate(not value)

    def align(self, over: bool = False) -> bool:
        """Do as `gate` does; the ranks then go on at the same time."""
        found = self.gate(over)
        if self._transport is not None:
            self._transport.barrier()
        return found

    def _measure_barrier(self) -> float:
        if self._transport is None:
            return 0.0
        times = []
        for _ in range(_BARRIERS):
            begin = time.perf_counter()
            self._transport.barrier()
            times.append(time.perf_counter() - begin)
        return self.slowest(float(np.median(times)))

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Let all ranks end what follows in the same way: an error of one is raised by all.

        Interrupting one rank interrupts all of them at the next `gate`; a second signal interrupts
        a rank at once.
        """
        if self._transport is None or self._together:
            yield
            return
        self._together, self._failed = True, False
        try:
            with self._deferring_signals():
                yield
                self.gate()
        except BaseException as error:
            if not (self._failed or isinstance(error, GeneratorExit)):
                self._tell(error)
            raise
        finally:
            self._together = False

    def _tell(self, error: BaseException) -> None:
        """Let the other ranks, at their next meeting, raise an error of this one."""
        assert self._transport is not None
        self._failed = True
        kind = next((k for k in _KINDS if isinstance(error, k)), RuntimeError)
        own = str(error) if kind is not RuntimeError else f"{type(error).__name__}: {error}"
        self._meet(_FAILED)
        self._transport.every(pickle.dumps((kind, own, getattr(error, "resumable", False))))

    def _raise(self, told: Sequence[bytes]) -> NoReturn:
        """Raise the error of the first rank that has told one."""
        for number, content in enumerate(told):
            if (found := pickle.loads(content)) is None:
                continue
            kind, text, resumable = found
            if kind is KeyboardInterrupt:
                raise KeyboardInterrupt
            error = kind(f"rank {number} on {self.hosts[number]}: {text}")
            vars(error)["resumable"] = resumable
            raise error
        raise RuntimeError("a rank has failed without telling why")

    def _interrupt(self) -> NoReturn:
        """Raise KeyboardInterrupt as the deferred signal would have."""
        pending, self._signals = self._signals, []
        for number, frame in pending:
            before = self._handlers.get(number)
            if callable(before):
                before(number, frame)
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def _deferring_signals(self) -> Iterator[None]:
        self._handlers: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def defer(number: int, frame: FrameType | None) -> None:
            if self._signals:
                raise KeyboardInterrupt
            self._signals.append((number, frame))

        for one in (int(signal.SIGINT), int(signal.SIGTERM)):
            handler = signal.getsignal(one)
            if callable(handler):
                self._handlers[one] = handler
                signal.signal(one, defer)
        try:
            yield
        finally:
            for one, handler in self._handlers.items():
                signal.signal(one, handler)


_KINDS: tuple[type[BaseException], ...] = (
    InputError,
    MemoryError,
    KeyboardInterrupt,
    RuntimeError,
)


class _Mpi:
    """Communication by MPI.

    Collective functions are polled, so that a rank that does not answer is noticed: after the
    timeout, the first rank that answers names those that do not, and ends all.
    """

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi
        self._comm = mpi.COMM_WORLD.Dup()
        self._late = mpi.COMM_WORLD.Dup()
        self._meetings = 0
        self._timeout_s = float(os.environ.get(TIMEOUT, _TIMEOUT_S))
        self.library = " ".join(mpi.Get_library_version().split("\n")[0].split(",")[0].split())

    def largest(self, values: Floats) -> Floats:
        found = np.empty_like(values)
        self._wait(self._comm.Iallreduce(values, found, op=self._mpi.MAX))
        return found

    def every(self, content: bytes) -> list[bytes]:
        sizes = np.empty(self._comm.size, dtype=np.int64)
        self._wait(self._comm.Iallgather(np.array([len(content)], dtype=np.int64), sizes))
        ends = np.cumsum(sizes)
        found = bytearray(int(ends[-1]))
        byte = self._mpi.BYTE
        parts = [found, sizes.tolist(), (ends - sizes).tolist(), byte]
        self._wait(self._comm.Iallgatherv([content, byte], parts))
        return [bytes(found[end - size : end]) for size, end in zip(sizes, ends, strict=True)]

    def barrier(self) -> None:
        request, end = self._comm.Ibarrier(), time.monotonic() + _LATE_S
        while not request.Test():
            if time.monotonic() > end:
                self._wait(request)
                return

    def abort(self) -> NoReturn:
        self._mpi.COMM_WORLD.Abort(1)
        raise SystemExit(1)  # not reached

    def _wait(self, request: Any) -> None:
        """Wait for a collective operation."""
        self._meetings += 1
        for _ in range(_POLLS):
            if request.Test():
                return
        begin = time.monotonic()
        told: list[Any] = []
        while not request.Test():
            waited_s = time.monotonic() - begin
            if waited_s < _SLEEP_AFTER_S:
                os.sched_yield()
                continue
            time.sleep(_SLEEP_S)
            if waited_s > _LATE_S and not told:
                told = [self._late.isend(self._meetings, k) for k in range(min(2, self._late.size))]
            # The second rank gives up later, in case that the first is the one to be given up.
            if waited_s > self._timeout_s * (1 + 0.1 * min(self._comm.rank, 2)):
                self._give_up(waited_s)

    def _give_up(self, waited_s: float) -> NoReturn:
        """Name the ranks that do not answer, and end all."""
        waiting, status = {self._comm.rank}, self._mpi.Status()
        while self._late.Iprobe(status=status):
            meeting = self._late.recv(source=status.Get_source())
            if meeting == self._meetings:
                waiting.add(status.Get_source())
        missing = sorted(set(range(self._comm.size)) - waiting)
        listed = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        does = "ranks {} do" if len(missing) > 1 else "rank {} does"
        if self._comm.rank > 1:
            listed, does = "0 and 1", "ranks {} do"
        print(
            f"memkern: {does.format(listed)} not answer for {waited_s:.0f} s: all ranks end "
            f"({TIMEOUT} sets after how long)",
            file=sys.__stderr__,
            flush=True,
        )
        self.abort()


def _mpi() -> Any:
    """Return mpi4py's module, if it communicates with all processes that were started.

    Raises
    ------
    InputError
        It does not, with the reason.
    """
    started = launcher.size()
    copies = f"; --comm none measures {started} independent copies at the same time" * (started > 1)
    try:
        with warnings.catch_warnings():
            # It warns of another MPI's launcher, which is an error below.
            warnings.simplefilter("ignore", RuntimeWarning)
            mpi = importlib.import_module("mpi4py.MPI")
    except ImportError as error:
        why = "mpi4py is not installed" if error.name == "mpi4py" else f"mpi4py: {error}"
        raise InputError(
            f"{started} ranks can't measure together, because {why}: "
            f"pip install 'memkern[mpi]'{copies}"
        ) from None
    if mpi.COMM_WORLD.size < started:
        library = mpi.Get_library_version().split(",")[0]
        raise InputError(
            f"{started} ranks were started, but mpi4py uses {library}, which sees "
            f"{mpi.COMM_WORLD.size}: start them with that library's mpirun, or install mpi4py for "
            f"the MPI that started them{copies}"
        )
    return mpi


def start(comm: str = "auto") -> Ranks:
    """Begin to communicate, and return the ranks; called once, before anything is measured.

    Parameters
    ----------
    comm : str
        ``none`` for a single process, whatever started it; ``mpi``, or ``auto`` (see
        `memkern.launcher.comm`).

    Raises
    ------
    InputError
        The ranks can't communicate.
    """
    global _current
    comm = launcher.comm(comm)
    if _current is not None and _current.comm == comm:
        return _current
    if comm == "none":
        if launcher.size() > 1:
            # Processes that this one starts, which inherit the launcher's variables, are alone too.
            os.environ[launcher.COMM] = "none"
        _current = Ranks()
    else:
        mpi = _mpi()
        world = mpi.COMM_WORLD
        _current = Ranks(comm, world.rank, world.size, _Mpi(mpi) if world.size > 1 else None)
        _current.divide_units()
    return _current


_current: Ranks | None = None


def ranks() -> Ranks:
    """Return the ranks that measure together."""
    return _current if _current is not None else start()


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Let all ranks end what follows in the same way (see `Ranks.together`)."""
    with ranks().together():
        yield
