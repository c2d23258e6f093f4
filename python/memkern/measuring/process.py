"""One measurement at a time in a process, and none in a forked one."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from memkern.errors import InputError

if TYPE_CHECKING:
    from memkern.measuring.prepared import Prepared

_FORKED = (
    "this process was forked after memkern had started threads, which only its parent has: start "
    "processes by spawn (multiprocessing.get_context('spawn')), or before anything is measured"
)
# Whether this process, or one that it was forked from, has prepared a case; whether the latter.
_started = _forked = False
# Samples of two cases in turns would find each other's data in the caches.
_turn = threading.RLock()
prepared: weakref.WeakSet[Prepared] = weakref.WeakSet()


def refuse_forked() -> None:
    """Raise InputError in a process that was forked after its parent had started threads."""
    if _forked:
        raise InputError(_FORKED)


@contextmanager
def alone() -> Iterator[None]:
    """Keep other threads of this process from measuring, which wait for their turn."""
    global _started
    refuse_forked()
    _started = True
    with _turn:
        yield


class _Left:
    """What a forked process has in place of what its parent had prepared."""

    def __getattr__(self, name: str) -> NoReturn:
        raise InputError(_FORKED)


def _after_fork() -> None:
    """Give up, in a child, what its parent had prepared: even freeing it could wait for ever."""
    global _forked
    _forked = _started
    for each in prepared:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each.native))
        vars(each)["native"] = _Left()


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def as_input_error() -> Iterator[None]:
    """Turn the extension's ValueErrors into what they are: about what a person asked for."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(str(error)) from None


def forked() -> bool:
    """Return whether this process was forked from one that had started threads."""
    return _forked
