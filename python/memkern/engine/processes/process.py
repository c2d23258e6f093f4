"""One measurement at a time in a process, and none in a process forked from one that measured."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from memkern.engine.processes.communication import together
from memkern.errors import InputError

_FORKED = (
    "this process was forked after memkern had started threads, which only its parent has: start "
    "processes by spawn (multiprocessing.get_context('spawn')), or before anything is measured"
)
_started = False  # whether this process has prepared a case
_forked = False  # whether it was forked from one that had
# Two cases that are sampled at the same time would evict each other's data from the caches.
_lock = threading.RLock()
# Objects with the extension's prepared case in their attribute `native`.
prepared: weakref.WeakSet[Any] = weakref.WeakSet()


def refuse_forked() -> None:
    """Raise InputError in a process that was forked after its parent had started threads."""
    if _forked:
        raise InputError(_FORKED)


@contextmanager
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
    for each in prepared:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each.native))
        vars(each)["native"] = _Unusable()


os.register_at_fork(after_in_child=_after_fork)


def forked() -> bool:
    """Return whether this process was forked from one that had prepared a case."""
    return _forked
