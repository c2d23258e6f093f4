"""The file with values that hold for this user and machine until the next boot.

It has sections, each with its own check and its own rule for merging the values of several
processes. The process that wrote it may have been killed, and other users may be able to write to
the folder: all values are checked. A damaged section is unknown, with a warning, and the next
writing replaces it. Other versions of memkern have files with other names.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import stat
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from memkern.errors import InputError
from memkern.files import publish
from memkern.machine.restoring import boot, locked

T = TypeVar("T")

_VERSION = 2
_MOST_B = 2**24
_LOCK_S = 1.0  # longest time for which another process may hold the lock
_DAMAGES = (
    *(AttributeError, LookupError, TypeError),
    *(ValueError, ArithmeticError, RecursionError),
)

boot_id = functools.cache(boot)


def usual_path() -> Path:
    """Return the path of the file; one that can't be created for a user without a home."""
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # neither HOME nor an entry of the user
        caches = Path(os.devnull)
    return caches / "memkern" / f"host-{_VERSION}.json"


@dataclass(frozen=True)
class Section(Generic[T]):
    """A section of the file.

    Parameters
    ----------
    name : str
    unknown : object
        Its value before any is known.
    read : callable
        From its content in JSON to its value; raises an error if the content is damaged.
    merged : callable
        From the known and a new value to the value that is stored; by default the new one.
    content : callable
        From its value to its content in JSON.
    """

    name: str
    unknown: T
    read: Callable[[Any], T]
    merged: Callable[[T, T], T] = lambda known, new: new
    content: Callable[[T], Any] = lambda value: value


class File:
    """The file; it is read again only after it was replaced.

    Parameters
    ----------
    path : Path, optional
        Without one, values are kept in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._written = (0, 0, 0)  # inode, time and size of the file that was read
        self._contents: dict[str, Any] = {}
        self._values: dict[str, Any] = {}

    def get(self, section: Section[T]) -> T:
        """Return the value of a section."""
        if self.path is not None:
            self._read(self.path)
        if section.name not in self._values:
            self._values[section.name] = self._value(section)
        return cast("T", self._values[section.name])

    def put(self, *changes: tuple[Section[Any], Any]) -> bool:
        """Merge new values of sections into the file, while no other process writes it.

        Returns
        -------
        bool
            Whether the file could be written.
        """
        if self.path is None:
            self._values |= {s.name: s.merged(self.get(s), value) for s, value in changes}
            return True
        with contextlib.suppress(InputError, OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with locked(str(self.path.parent), _LOCK_S):
                new = {s.name: s.content(s.merged(self.get(s), value)) for s, value in changes}
                publish({self.path: json.dumps({**_heading(), **self._contents, **new}).encode()})
                return True
        return False

    def _read(self, path: Path) -> None:
        """Read the file unless it is the one that was read before."""
        try:
            found = path.stat()
            written = found.st_ino, found.st_mtime_ns, found.st_size
        except OSError:
            written = 0, 0, 0
        if written == self._written:
            return
        self._written, self._contents, self._values = written, {}, {}
        try:
            self._contents = _document(path)
        except _DAMAGES:
            with contextlib.suppress(OSError):
                path.unlink()
                warnings.warn(f"{path} was damaged, and is written anew", stacklevel=4)

    def _value(self, section: Section[T]) -> T:
        if section.name not in self._contents:
            return section.unknown
        try:
            return section.read(self._contents[section.name])
        except _DAMAGES:
            del self._contents[section.name]
            warnings.warn(
                f"section {section.name} of {self.path} was damaged, and is written anew",
                stacklevel=4,
            )
            return section.unknown


def _heading() -> dict[str, Any]:
    """Return the entries by which a file of another version or boot is recognised."""
    return {"version": _VERSION, "boot": boot_id()}


def _document(path: Path) -> dict[str, Any]:
    """Return the sections that were written since the system was booted; empty without any.

    Raises
    ------
    TypeError, ValueError, RecursionError
        The file can't be read.
    """
    try:
        # Opening a pipe would wait for a writer.
        with open(path, "rb", opener=lambda p, flags: os.open(p, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_B:
                raise ValueError("it is not a regular file, or too large")
            document = json.loads(file.read(_MOST_B))
    except OSError:
        return {}
    if not isinstance(document, dict):
        raise TypeError("it is not an object")
    return document if _heading().items() <= document.items() else {}
