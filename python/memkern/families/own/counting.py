"""The accesses of a kernel, counted by instrumented code before anything is timed.

The ranges of several workers run one after the other, so that a race is found without luck: an
element that one of them writes and another one accesses.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError
from memkern.families.own.roles import INDEX, READ, SUM, UPDATE, WRITE, Array

WORKERS = 3
SUM_B = 256  # between the sums of two workers
_LINE_B = 64
# Bytes between arrays that an index may miss its array by; as many as the system permits.
_GAPS_B = (2**35, 2**30, 2**24)
_NORESERVE = 0x4000
_TRIED_S = 20


class _Counts(ctypes.Structure):
    """An array of ``counted.c``."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("begin", "end", "first", "last", "state")),
        *((name, ctypes.c_int64) for name in ("loads", "stores", "load_B", "store_B", "outside")),
        *((name, ctypes.c_int32) for name in ("was_outside", "atomics")),
    )


Counted = dict[str, int]
"""Accesses of an array: ``loads`` and ``stores``, their bytes (``load_B``, ``store_B``), different
bytes that were loaded and stored (``read_B``, ``written_B``), different lines, and in ``raced`` the
first element that one worker writes and another one accesses (-1 without any)."""


class Called(NamedTuple):
    """A function with its parameters, and the arrays that it is called with.

    Attributes
    ----------
    arrays : sequence of Array
    values : mapping of str to ndarray
        The contents of each array before the calls.
    integers, numbers : sequence
        Values of the parameters.
    n : int
        Number of iterations.
    """

    arrays: Sequence[Array]
    values: Mapping[str, npt.NDArray[Any]]
    integers: Sequence[int]
    numbers: Sequence[float]
    n: int

    def call(self, address: int, worker: int, own: Mapping[str, int]) -> None:
        """Call a function with the iterations of a worker, and arrays at the addresses `own`."""
        begin, end = worker * self.n // WORKERS, (worker + 1) * self.n // WORKERS
        types = [ctypes.c_void_p] * len(self.arrays) + [ctypes.c_int64] * (2 + len(self.integers))
        kind = ctypes.CFUNCTYPE(None, *types, *[ctypes.c_double] * len(self.numbers))
        kind(address)(
            *(own[a.name] + worker * SUM_B * (a.role == SUM) for a in self.arrays),
            *(begin, end, *self.integers, *self.numbers),
        )


def counted(
    path: str, address: int, function: str, called: Called
) -> tuple[dict[str, Counted], int]:
    """Run a counted function on a few iterations by several workers.

    Returns
    -------
    counts : dict of str to Counted
        By array.
    elsewhere : int
        Accesses to other memory, such as tables of the function itself.

    Raises
    ------
    InputError
        It accesses an element outside of an array, or starts threads.
    """
    library = ctypes.CDLL(path)
    names = [array.name for array in called.arrays]
    bytes_B = sum(-(-values.nbytes // 4096) * 4096 for values in called.values.values())
    memory, gap_B = _reserved(bytes_B, len(names))
    begin, places = np.frombuffer(memory, dtype=np.uint8).ctypes.data + gap_B, dict[str, int]()
    counts = (_Counts * len(names))()
    states = {name: np.zeros(called.values[name].nbytes, dtype=np.uint8) for name in names}
    for k, name in enumerate(names):
        values, one = called.values[name], counts[k]
        places[name] = one.begin = begin
        one.end = begin + values.nbytes
        one.first, one.last = begin - gap_B // 2, one.end + gap_B // 2
        one.state = states[name].ctypes.data
        begin += -(-values.nbytes // 4096) * 4096 + gap_B
        ctypes.memmove(one.begin, values.ctypes.data, values.nbytes)
    library.memkern_count(counts, ctypes.c_int64(len(names)))
    before = {*os.listdir("/proc/self/task")}
    for w in range(WORKERS):
        library.memkern_worker(w)
        called.call(address, w, places)
    # It may have changed the modes of floating-point arithmetic: -1 are the default ones.
    ctypes.CDLL(None).fesetenv(ctypes.c_void_p(-1))
    time.sleep(0.002)
    if {*os.listdir("/proc/self/task")} - before:
        raise InputError(
            f"{function} starts threads that do not end with it: it is called by all threads of "
            "memkern, each with its own iterations"
        )
    found = {}
    for array, one in zip(called.arrays, counts, strict=True):
        size_B = called.values[array.name].itemsize
        if one.was_outside:
            raise InputError(
                f"{function} accesses {array.name}[{one.outside // size_B}] of "
                f"{len(called.values[array.name])} elements, with {called.n} iterations"
            )
        found[array.name] = _of_array(one, states[array.name], size_B)
    library.memkern_elsewhere.restype = ctypes.c_int64
    return found, int(library.memkern_elsewhere())


def tried(address: int, called: Called, name: str) -> None:
    """Call a function in a copy of this process, which it may end.

    Raises
    ------
    InputError
        It does not return.
    """
    process = os.fork()
    if process == 0:
        faulthandler.disable()
        signal.alarm(_TRIED_S)
        try:
            for w in range(WORKERS):
                called.call(address, w, {k: v.ctypes.data for k, v in called.values.items()})
        finally:
            os._exit(0)
    status = os.waitpid(process, 0)[1]
    if os.WIFSIGNALED(status):
        how = signal.Signals(os.WTERMSIG(status)).name
        raise InputError(f"{name} does not return from its first iterations: {how}")


def differences(
    arrays: Sequence[Array], counts: Mapping[str, Counted], wanted: Mapping[str, tuple[int, int]]
) -> list[str]:
    """Return how arrays are accessed otherwise than declared, by more than 1 %.

    `wanted` are the bytes that are read and written, by array; of arrays that are accessed through
    an index array, every access counts, and of the others every byte once.
    """
    found = []
    for array in arrays:
        one, (read_B, written_B) = counts[array.name], wanted[array.name]
        through = any(other.role == INDEX and other.of == array.name for other in arrays)
        names = ("load_B", "store_B") if through else ("read_B", "written_B")
        for verb, name, declared_B in (
            ("reads", names[0], read_B),
            ("writes", names[1], written_B),
        ):
            counted_B = one[name]
            if array.role != SUM and abs(counted_B - declared_B) > 0.01 * max(declared_B, 1):
                found.append(
                    f"it {verb} {counted_B} bytes of {array.name}, not {declared_B} as declared"
                )
    return found


def bytes_of(array: Array, length: int, value_B: int) -> tuple[int, int]:
    """Return the bytes of an array that its role reads and writes."""
    reads, writes = array.role in (READ, INDEX, UPDATE), array.role in (WRITE, UPDATE)
    return reads * length * value_B, writes * length * value_B


def _of_array(one: _Counts, state: npt.NDArray[np.uint8], size_B: int) -> Counted:
    readers, writers = state & 15, state >> 4
    both = readers | writers
    raced = np.flatnonzero((writers > 0) & (both & (both - 1) > 0))
    return {
        **{name: getattr(one, name) for name in ("loads", "stores", "load_B", "store_B")},
        "read_B": int(np.count_nonzero(readers)),
        "written_B": int(np.count_nonzero(writers)),
        "lines": len(np.unique(np.flatnonzero(state) // _LINE_B)),
        "raced": int(raced[0]) // size_B if len(raced) and not one.atomics else -1,
    }


def _reserved(bytes_B: int, arrays: int) -> tuple[mmap.mmap, int]:
    """Return memory for arrays, with gaps before, between and after them, and a gap's size.

    Only what is accessed is obtained from the system.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    for gap_B in _GAPS_B:
        try:
            return mmap.mmap(-1, bytes_B + (arrays + 1) * gap_B, flags=flags), gap_B
        except (OSError, ValueError, OverflowError):
            continue
    raise InputError("memory does not suffice to count the accesses of a kernel")
