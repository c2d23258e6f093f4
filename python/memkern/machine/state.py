"""Files on this machine that are valid for this user until the system is booted again."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from memkern.errors import InputError
from memkern.files import publish

__all__ = ["boot_id", "folder", "heading", "keep", "kept", "store", "stored"]

T = TypeVar("T")

_VERSION = 1


@functools.cache
def boot_id() -> str:
    """Return the identity of this boot of the system, empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def folder() -> Path:
    """Return the folder of these files."""
    return _folder(os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME"))


@functools.lru_cache(maxsize=1)
def _folder(caches: str | None, _home: str | None) -> Path:
    return Path(caches or Path.home() / ".cache") / "memkern"


def heading() -> dict[str, Any]:
    """Return the entries that each of these files has."""
    return {"version": _VERSION, "boot": boot_id()}


def stored(target: Path) -> dict[str, Any]:
    """Return a document that was stored since the system was booted.

    Raises
    ------
    KeyError, TypeError, ValueError
        There is none, or it can't be read.
    """
    try:
        document: dict[str, Any] = json.loads(target.read_bytes())
    except OSError as error:
        raise ValueError(f"{target} can't be read: {error.strerror}") from None
    if {name: document[name] for name in heading()} != heading():
        raise ValueError("it is of another version or boot")
    return document


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


def kept(target: Path, read: Callable[[dict[str, Any]], T], unknown: T) -> T:
    """Return what `read` finds in a document of this boot; `unknown` if there is no such one."""
    try:
        return read(stored(target))
    except (InputError, AttributeError, KeyError, TypeError, ValueError):
        return unknown
