"""The processes that measure: the ranks together, and each of them one case at a time.

The ranks are one process, or those that a launcher started. All run the same program. They agree on
every value that depends on time, samples or one machine, so that all take the same decisions and
call the functions of `Ranks` in the same order. A process measures nothing if it was forked from
one that had measured.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import pickle
import signal
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from memkern import launcher
from memkern.errors import DeviceError, InputError, interrupted_by, warn
from memkern.machine.environment import cpu_list, units_of_core

if TYPE_CHECKING:
    from memkern.engine.processes.transports import Connection, Floats

T = TypeVar("T")
# Status of a rank at a synchronisation; the largest one counts.
_GO, _OVER, _INTERRUPTED, _FAILED = 0.0, 1.0, 2.0, 3.0
_BARRIERS = 200
# Share of the timeout for which a rank waits longer than ranks of other hosts.
_ELSEWHERE = 0.3
# How often during the timeout a rank looks for stopped ones.
_LOOKS = 4


class Ranks:
    """The processes that measure together.

    Parameters
    ----------
    comm : str
        ``none``, ``mpi`` or ``shmem``.
    number, size : int
        Number of this process, from 0, and of all.
    transport : Connection, optional
        Where there are several.

    Attributes
    ----------
    library : str
        Name and version of the library, empty for a single process.
    thread_level : str
        Which threads may call the library, empty for a single process.
    transport : str
        The transport of the data, if known (see `Connection` in `transports`).
    hosts : list of str
        The host of each rank.
    names_hosts : bool
        Whether records name the hosts; set for several ranks, optional for a single process.
    processes : set of int
        The numbers of the ranks' processes on this host.
    host_units : int
        Number of processing units that these ranks may use.
    own_units : float
        Number of units that this rank may use; shared units count as a fraction.
    even : bool
        Whether all ranks have the same number of processing units.
    case_id : str
        The part of a case's identity for several ranks: a hash of their number and binding.
    barrier_s : float
        Median time of a barrier, which bounds how far apart ranks leave it; 0 for one rank.
    """

    def __init__(
        self,
        comm: str = "none",
        number: int = 0,
        size: int = 1,
        transport: Connection | None = None,
    ) -> None:
        self.comm = comm
        self.number = number
        self.size = size
        self._transport = transport
        self.library, self.thread_level, self.transport = (
            (transport.library, transport.thread_level, transport.transport)
            if transport
            else ("", "", "")
        )
        self._together = False
        self._failed = False
        self._signals: list[tuple[int, FrameType | None]] = []
        self.hosts = self.every(os.uname().nodename)
        if transport is not None:
            transport.hosts = self.hosts
        self.names_hosts = size > 1
        self._process_of = dict(self.of_host((number, os.getpid())))
        self.processes = set(self._process_of.values())
        # Set when the watched call has ended.
        self._watched = threading.Event()
        self.host_units = len(set[int]().union(*self.of_host(os.sched_getaffinity(0))))
        self.barrier_s = self._measure_barrier()
        self._note_bindings()

    @property
    def per_node(self) -> int:
        """The largest number of ranks on a host."""
        return max(Counter(self.hosts).values())

    @property
    def first_of_host(self) -> bool:
        """Whether this is the first rank of its host, which does work once per host."""
        return self.hosts.index(self.hosts[self.number]) == self.number

    def _note_bindings(self) -> None:
        """Set the attributes that depend on the processing units of each rank."""
        bindings = self.every(sorted(os.sched_getaffinity(0)))
        self.even = len(set(map(len, bindings))) == 1
        own = bindings[self.number]
        self.own_units = len(own) / self._here(bindings).count(own)
        hosts = map(self.hosts.index, self.hosts)
        text = json.dumps([self.comm, list(zip(hosts, bindings, strict=True))])
        self.case_id = hashlib.sha256(text.encode()).hexdigest()[:8] if self.size > 1 else ""

    def crowded(self, threads: int) -> bool:
        """Return whether this rank, with `threads` workers, or its host has too few units."""
        # Others may have taken units from this process meanwhile.
        own_units = min(self.own_units, len(os.sched_getaffinity(0)))
        return threads > own_units or threads * len(self._process_of) > self.host_units

    def divide_units(self) -> None:
        """Divide processing units that the launcher assigned to several ranks among these ranks."""
        own = sorted(os.sched_getaffinity(0))
        sharing = [number for number, mask in self.of_host((self.number, own)) if mask == own]
        if len(sharing) > 1:
            # The hardware threads of a core belong together.
            cores = {unit: min(cpu_list(units_of_core(unit)) or [unit]) for unit in own}
            units = sorted(own, key=lambda unit: (cores[unit], unit))
            position, share = sharing.index(self.number), len(units) // len(sharing)
            chosen = units[position * share : (position + 1) * share] or [
                units[position % len(units)]
            ]
            # Some code looks up the units of the process, so threads of the library are bound as
            # well.
            for thread in os.listdir("/proc/self/task"):
                with contextlib.suppress(OSError):  # it has ended, or this is refused
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
        """Return the most serious status; raise the error of a rank that failed."""
        assert self._transport is not None
        found = float(self._transport.largest(np.array([status]))[0])
        if found == _INTERRUPTED:
            self._interrupt()
        if found == _FAILED and status != _FAILED:
            self._failed = True
            self._raise(self._transport.every(pickle.dumps(None)))
        return found

    def first(self, value: T) -> T:
        """Return the value of rank 0; see `gate` for the errors."""
        return self.every(value if self.number == 0 else None)[0]  # type: ignore[return-value]

    def every(self, value: T) -> list[T]:
        """Return the values of all ranks, by rank; see `gate` for the errors."""
        if self._transport is None:
            return [value]
        # What may fail comes before the gate, since the others exchange values after it.
        content = pickle.dumps(value)
        self.gate()
        return [pickle.loads(one) for one in self._transport.every(content)]

    def of_host(self, value: T) -> list[T]:
        """Return the values of the ranks on this host; see `gate` for the errors."""
        return self._here(self.every(value))

    def _here(self, values: Sequence[T]) -> list[T]:
        """Return the values of this host's ranks from the values of all ranks."""
        own = self.hosts[self.number]
        return [v for v, host in zip(values, self.hosts, strict=True) if host == own]

    def largest(self, values: npt.ArrayLike) -> Floats:
        """Return the element-wise maximum over the ranks; see `gate` for the errors.

        Parameters
        ----------
        values : array_like of float64
            Of the same shape on all ranks; if an element is NaN on one rank, the result is NaN.
        """
        own = np.asarray(values, dtype=np.float64)
        if self._transport is None:
            return own
        comparable = np.where(np.isnan(own), np.inf, own).ravel()
        self.gate()
        found = self._transport.largest(comparable)
        return np.where(np.isinf(found), np.nan, found).reshape(own.shape)

    def slowest(self, seconds: float) -> float:
        """Return the longest time of a rank."""
        return float(self.largest([seconds])[0])

    def watch(self, begins: bool) -> None:
        """Begin or end watching a call in which a library waits for all ranks.

        If it takes longer than the timeout, all ranks end. A rank that finds stopped or killed
        ranks on its host names them; otherwise the cause must be a rank on another host.
        """
        self._watched.set()
        if begins and self._transport is not None:
            self._watched = threading.Event()
            threading.Thread(
                target=self._give_up, args=(self._watched, self._transport), daemon=True
            ).start()

    def _give_up(self, ended: threading.Event, transport: Connection) -> None:
        """End all ranks, unless a call of the library ends in time."""
        # The second rank gives up later, in case the first rank is the one that does not answer.
        waited_s = launcher.timeout_s() * (1 + 0.1 * min(self.number, 2))
        if ended.wait(waited_s):
            return
        gone = [n for n, process in self._process_of.items() if _state(process) in "ZXTt"]
        elsewhere = [number for number in range(self.size) if number not in self._process_of]
        if not gone and elsewhere:
            # A rank on that host may know which rank it is.
            more_s = _ELSEWHERE * launcher.timeout_s()
            if ended.wait(more_s):
                return
            waited_s += more_s
        transport.give_up(gone or elsewhere, waited_s, one_of=not gone)

    def watch_host(self) -> None:
        """From now on, end all ranks if a rank on this host stays stopped for the timeout.

        Where it holds a lock of the library, the others wait in an operation that nothing ends.
        """
        if self._transport is not None:
            threading.Thread(target=self._look, args=(self._transport,), daemon=True).start()

    def _look(self, transport: Connection) -> None:
        looks, timeout_s = 0, launcher.timeout_s()
        while looks <= _LOOKS:
            # As in `_give_up`, the second rank is later.
            time.sleep(timeout_s / _LOOKS * (1 + 0.1 * min(self.number, 2)))
            stopped = [n for n, process in self._process_of.items() if _state(process) in "Tt"]
            looks = looks + 1 if stopped else 0
        transport.give_up(stopped, timeout_s)

    @contextlib.contextmanager
    def waiting_for_first(self) -> Iterator[None]:
        """Let the other ranks wait at the end of the context, however long the first rank works."""
        yield
        if self._transport is None or self.number == 0:
            self.gate()
            return
        usual, self._transport.timeout_s = self._transport.timeout_s, np.inf
        try:
            self.gate()
        finally:
            self._transport.timeout_s = usual

    def agreed(self, value: bool) -> bool:
        """Return whether it is true on all ranks."""
        return not self.gate(not value)

    def align(self, over: bool = False) -> bool:
        """Do the same as `gate`; the ranks then continue at the same time."""
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
        """Let all ranks leave the context in the same way: all raise the error of one.

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
        """Let the other ranks raise an error of this one at their next synchronisation."""
        assert self._transport is not None
        self._failed = True
        kind = next((k for k in _KINDS if isinstance(error, k)), RuntimeError)
        own = str(error) if kind is not RuntimeError else f"{type(error).__name__}: {error}"
        told = pickle.dumps((kind, own, interrupted_by(error)))
        self._meet(_FAILED)
        self._transport.every(told)

    def _raise(self, told: Sequence[bytes]) -> NoReturn:
        """Raise the error of the first rank that reported one."""
        errors = enumerate(map(pickle.loads, told))
        number, (kind, text, cause) = next(error for error in errors if error[1] is not None)
        if kind is KeyboardInterrupt:
            raise KeyboardInterrupt
        raise kind(f"rank {number} on {self.hosts[number]}: {text}") from cause

    def _interrupt(self) -> NoReturn:
        """Raise KeyboardInterrupt as the deferred signal would have."""
        pending, self._signals = self._signals, []
        for number, frame in pending:
            if before := self._handlers.get(number):
                before(number, frame)
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def _deferring_signals(self) -> Iterator[None]:
        # Only the main thread may set handlers.
        in_main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if in_main else ()
        handlers = {int(one): signal.getsignal(one) for one in numbers}
        self._handlers = {one: handler for one, handler in handlers.items() if callable(handler)}

        def defer(number: int, frame: FrameType | None) -> None:
            if self._signals:
                raise KeyboardInterrupt
            self._signals.append((number, frame))

        for one in self._handlers:
            signal.signal(one, defer)
        try:
            yield
        finally:
            for one, handler in self._handlers.items():
                signal.signal(one, handler)


def _state(process: int) -> str:
    """Return the state of a process as a letter: X if it has ended, T or t if it is stopped."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            # The name, in parentheses, may contain anything.
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


_KINDS: tuple[type[BaseException], ...] = (
    InputError,
    MemoryError,
    DeviceError,
    KeyboardInterrupt,
    RuntimeError,
)


def start(comm: str = "auto", level: str = "multiple") -> Ranks:
    """Start communication, and return the ranks; called once, before anything is measured.

    Parameters
    ----------
    comm : str
        ``none`` for a single process with any launcher; ``mpi``, ``shmem``, or ``auto`` (see
        `memkern.launcher.comm` and `transports.connect`).
    level : str
        Which threads of a rank will call the library (see `transports.connect`).

    Raises
    ------
    InputError
        The ranks can't communicate.
    """
    global _current
    comm = launcher.comm(comm)
    if _current is not None and comm in ("auto", _current.comm):
        return _current
    if comm == "none":
        if launcher.size() > 1:
            # Processes that this one starts, which inherit the launcher's variables, are alone too.
            os.environ[launcher.COMM] = "none"
        _current = Ranks()
    else:
        from memkern.engine.processes import transports

        others = transports.connect(comm, level)
        transport = others if others.size > 1 else None
        _current = Ranks(others.comm, others.number, others.size, transport)
        _current.divide_units()
        _current.watch_host()
        # Ranks of several hosts have shared memory and TCP connections, in this order.
        by_tcp = _current.transport.partition("shared memory")[0].endswith("TCP")
        if by_tcp and _current.per_node > 1:
            warn(
                "ranks on a host exchange data by TCP, not by shared memory, and so take many "
                "times as long: the folder of shared memory is too small, or variables such as "
                "OMPI_MCA_btl and UCX_TLS exclude it"
            )
    return _current


_current: Ranks | None = None


def ranks() -> Ranks:
    """Return the ranks that measure together."""
    return _current if _current is not None else start()


def connected() -> bool:
    """Return whether there are other ranks, with which this one communicates."""
    return _current is not None and _current.size > 1


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Let all ranks leave the context in the same way (see `Ranks.together`)."""
    with ranks().together():
        yield


_FORKED = (
    "this process was forked after memkern had started threads, which only its parent has: start "
    "processes by spawn (multiprocessing.get_context('spawn')), or before anything is measured"
)
_started = False  # whether this process has prepared a case
_forked = False  # whether it was forked from one that had
# Two cases that are sampled at the same time would evict each other's data from the caches.
_lock = threading.RLock()
# Objects with the extension's prepared case in their attribute `native`.
prepared_cases: weakref.WeakSet[Any] = weakref.WeakSet()


def refuse_forked() -> None:
    """Raise InputError in a process that was forked after its parent had started threads."""
    if _forked:
        raise InputError(_FORKED)


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Hold the lock with which only one thread of this process measures at a time.

    All ranks leave the context in the same way.
    """
    global _started
    refuse_forked()
    _started = True
    with _lock, together():
        yield


class _Unusable:
    """Replacement, in a forked process, of a case that its parent had prepared."""

    def __getattr__(self, name: str) -> NoReturn:
        raise InputError(_FORKED)


def _after_fork() -> None:
    """Make the parent's prepared cases unusable in the child, without freeing them.

    Even freeing them could wait forever for threads that only the parent has.
    """
    global _forked
    _forked = _started
    for each in prepared_cases:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each.native))
        vars(each)["native"] = _Unusable()


os.register_at_fork(after_in_child=_after_fork)


def forked() -> bool:
    """Return whether this process was forked from one that had prepared a case."""
    return _forked
