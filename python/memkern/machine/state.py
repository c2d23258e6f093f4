"""Files on this machine that are valid for this user until the next boot.

The writing process may have been killed, and other users may be able to write to the folder: all
values are checked, and damaged files are removed with a warning.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import stat
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from memkern.checks import INT64_MAX
from memkern.errors import InputError
from memkern.files import publish
from memkern.machine.restoring import locked

__all__ = ["boot_id", "folder", "heading", "keep", "kept", "store", "stored", "updated"]

T = TypeVar("T")
U = TypeVar("U")

_VERSION = 1
_MOST_B = 2**24
_LOCK_S = 1.0  # longest time for which another process may hold the lock


@functools.cache
def boot_id() -> str:
    """Return the identity of this boot of the system, empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def folder() -> Path:
    """Return the folder of these files; one that can't be created for a user without a home."""
    return _folder(os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME"))


@functools.lru_cache(maxsize=1)
def _folder(caches: str | None, _home: str | None) -> Path:
    try:
        return Path(caches or Path.home() / ".cache") / "memkern"
    except RuntimeError:  # neither HOME nor an entry of the user
        return Path(os.devnull) / "memkern"


def heading() -> dict[str, Any]:
    """Return the common entries of these files."""
    return {"version": _VERSION, "boot": boot_id()}


def stored(target: Path) -> dict[str, Any] | None:
    """Return a document that was stored since the system was booted, None without one.

    Raises
    ------
    TypeError, ValueError, ArithmeticError, RecursionError
        It can't be read.
    """
    try:
        # Opening a pipe would wait for a writer.
        number = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_B:
            raise ValueError("it is not a regular file, or too large")
        with open(number, "rb", closefd=False) as file:
            text = file.read(_MOST_B)
    finally:
        os.close(number)
    document = json.loads(text, parse_int=_integer, parse_float=_real, parse_constant=_real)
    if not isinstance(document, dict):
        raise TypeError("it is not an object")
    return document if heading().items() <= document.items() else None


def _integer(text: str) -> int:
    if len(text) > len(str(-INT64_MAX)) or abs(value := int(text)) > INT64_MAX:
        raise ValueError("an integer has more than 64 bits")
    return value


def _real(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError("a number is not finite")
    return value


def store(target: Path, document: Mapping[str, Any]) -> Path:
    """Store a document that is valid until the system is booted again.

    Raises
    ------
    InputError, OSError
        The file can't be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{target.parent} can't be made: {error.strerror}") from None
    whole = {**heading(), **document}
    publish({target: json.dumps(whole, indent=1).encode()})
    return target


def keep(target: Path, document: Mapping[str, Any]) -> bool:
    """Store a document until the next boot, and return whether the file could be written."""
    with contextlib.suppress(InputError, OSError):
        store(target, document)
        return True
    return False


def updated(
    target: Path,
    read: Callable[[dict[str, Any]], T],
    change: Callable[[T | None], Mapping[str, Any]],
) -> bool:
    """Replace a document by the result of `change`, while no other process writes it.

    Parameters
    ----------
    target, read
        As of `kept`.
    change : callable
        Gets the result of `read`, None without one.

    Returns
    -------
    bool
        Whether the file could be written.
    """
    with contextlib.suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(str(target.parent), _LOCK_S):
            return keep(target, change(kept(target, read, None)))
    return False


def kept(target: Path, read: Callable[[dict[str, Any]], T], unknown: U) -> T | U:
    """Return the result of `read` for a document of this boot; `unknown` without a document.

    A file that is damaged is removed, with a warning.
    """
    try:
        document = stored(target)
        return unknown if document is None else read(document)
    except (
        *(AttributeError, LookupError, TypeError),
        *(ValueError, ArithmeticError, RecursionError),
    ):
        pass
    with contextlib.suppress(OSError):
        target.unlink()
        warnings.warn(f"{target} was damaged, and is written anew", stacklevel=3)
    return unknown
