"""Read and write whole files; errors are one sentence."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import resource
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from memkern.errors import InputError
from memkern.limits import check_memory

# Limit for reading from a pipe or device, whose size is unknown.
_MOST_STREAMED_B = 2**27


def publish(files: Mapping[Path, bytes]) -> None:
    """Write files, each atomically and in the given order.

    Parameters
    ----------
    files : mapping of Path to bytes
        Contents by path.

    Raises
    ------
    InputError
        If a file can't be written. No file is replaced before the contents of all are written to
        temporary files.
    """
    for path in files:
        writable(path)
    temporaries = {path: temporary(path) for path in files}
    try:
        for path, content in files.items():
            with writing(path), open(temporaries[path], "xb") as stream:
                stream.write(content)
                stream.flush()
                _sync(stream.fileno())
        for path, written in temporaries.items():
            with writing(path):
                rename(written, path)
    finally:
        for written in temporaries.values():
            with contextlib.suppress(OSError):  # for a read-only file system
                written.unlink()


def writable(path: str | Path) -> Path:
    """Return a path that may be written.

    Raises
    ------
    InputError
        If its folder is missing, or the path is not a regular file.
    """
    target = Path(path)
    try:
        folder = target.parent.stat().st_mode
        try:
            mode = target.lstat().st_mode
        except FileNotFoundError:
            mode = None
    except (OSError, ValueError) as error:
        raise InputError(f"{target} can't be written: {reason(error)}") from None
    if not stat.S_ISDIR(folder):
        raise InputError(f"{target} can't be written: {target.parent} is not a folder")
    if mode is None or stat.S_ISREG(mode):
        return target
    kinds = {
        stat.S_IFLNK: "a symbolic link: name the file itself",
        stat.S_IFDIR: "a folder: name a file",
    }
    what = kinds.get(stat.S_IFMT(mode), "not a regular file: name a file")
    raise InputError(f"{target} can't be written because it is {what}")


def unused(path: str | Path, force: bool = False) -> Path:
    """Return a path that may be written and at which no file exists.

    Parameters
    ----------
    path : path
    force : bool
        Whether an existing file may be overwritten.

    Raises
    ------
    InputError
        If it can't be written, or a file exists and `force` is not set.
    """
    target = writable(path)
    if target.exists() and not force:
        raise InputError(
            f"{target} exists already: name another file, or overwrite it with --force"
        )
    return target


def temporary(path: Path) -> Path:
    """Return an unused hidden name in the folder of a file."""
    return path.with_name(f".memkern-{secrets.token_hex(8)}.tmp")


def rename(written: Path, path: Path) -> None:
    """Rename a written file durably: the new name survives a power failure."""
    os.replace(written, path)
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # a folder that may be written, but not read
        return
    try:
        _sync(folder)
    finally:
        os.close(folder)


def _sync(number: int) -> None:
    """Wait until an open file or folder is on the disk, if the file system supports it."""
    try:
        os.fsync(number)
    except OSError as error:
        # CIFS and some file systems in user space refuse it for folders, others for all files.
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF):
            raise


def read(path: Path, size: int = -1, most_B: float = math.inf) -> bytes:
    """Return a file's first `size` bytes, or all bytes if these are at most `most_B`.

    Raises
    ------
    InputError
        If the file is missing, can't be read, is too large or larger than the available memory.
    """
    with opened(path) as stream:
        status = os.fstat(stream.fileno())
        if size >= 0:
            return stream.read(size)
        if stat.S_ISREG(status.st_mode):
            if status.st_size > most_B:
                raise InputError(f"{path} is larger than {most_B} bytes")
            check_memory(status.st_size, str(path))
            return stream.read()
        content = stream.read(_MOST_STREAMED_B + 1)
    if len(content) > _MOST_STREAMED_B:
        raise InputError(
            f"{path} must be a regular file, or end after at most {_MOST_STREAMED_B} bytes"
        )
    return content


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading; raise InputError if it is missing or reading it fails."""
    try:
        with open(path, "rb") as stream:
            yield stream
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} can't be read: {reason(error)}") from None


def sqlite_errors(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return other exceptions, and those of SQLite once it is in use: some Pythons lack it."""
    module = sys.modules.get("sqlite3")
    return (*others, module.Error) if module else others


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of the system and of SQLite into an InputError: the file can't be written."""
    try:
        yield
    except sqlite_errors(OSError) as error:
        raise InputError(f"{path} can't be written: {_reason_at(path, error)}") from error


def _reason_at(path: Path, error: BaseException) -> str:
    if isinstance(error, sqlite_errors()) and "is locked" in str(error) and not _has_locks(path):
        return (
            "its file system has no locks, which results need while they are written: name a file "
            "in a folder of this machine, and copy it afterwards"
        )
    return reason(error)


def _has_locks(path: Path) -> bool:
    """Return whether a file can be locked, or is locked by another process."""
    try:
        with open(path, "rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
    return True


@contextlib.contextmanager
def parsing(path: Path, what: str) -> Iterator[None]:
    """Turn errors caused by wrong content into an InputError: the file can't be read as `what`."""
    try:
        yield
    except sqlite_errors(
        *(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
        *(NotImplementedError, RecursionError),
    ) as error:
        raise InputError(f"{path} can't be read as {what}: {_reason_at(path, error)}") from error


# Meanings of errors of the system, EAGAIN of fork.
_REASONS: Mapping[int | None, str] = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk is full",
    errno.EAGAIN: "no more processes may start (pids.max of the control group, or ulimit -u)",
}
# Meanings of parts of SQLite's messages.
_SQLITE_REASONS = {
    "is full": "the disk is full",
    "is locked": "another program is using it",
    "readonly database": "it may not be written",
    "unable to open": "its folder may not be written",
    "malformed": "it is damaged",
    "not a database": "it is not a database",
    "disk I/O error": "its disk or file system failed",
}


def reason(error: BaseException) -> str:
    """Return why something failed, as the end of a sentence."""
    number = error.errno if isinstance(error, OSError) else None
    most_B, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    # SQLite does not pass on the system's error number.
    of_disk = isinstance(error, sqlite_errors()) and "disk I/O" in str(error)
    if number == errno.EFBIG or (of_disk and most_B != resource.RLIM_INFINITY):
        return f"a file may have at most {most_B} bytes here (ulimit -f)"
    if number in _REASONS:
        return _REASONS[number]
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, sqlite_errors()):
        return next(
            (means for words, means in _SQLITE_REASONS.items() if words in str(error)),
            _first_line(error),
        )
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing or unknown"
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
