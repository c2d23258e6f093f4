"""The journal of settings of the machine that a process has changed, and their restoration.

A setting is a file, or the clock limit of a GPU, which NVML sets. This module is also the program
of the guardian, a process that restores settings after the process that changed them has died;
therefore it imports only the standard library. A journal is a file in a folder that only its owner
can write to; it is written before any change, and removed when all settings are restored.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

JOURNAL, LOCK = "changed.json", "lock"
# Prefix of a GPU's bus address: the setting of its clock.
GPU = "gpu:"
_NVML = "libnvidia-ml.so.1"
_NO_PERMISSION = 4  # of NVML
_DYING_S = 10.0  # longest time between the closing of two files of a killed process


class Owner(NamedTuple):
    """A process, by its number and its start in ticks after the boot, since numbers are reused."""

    pid: int
    start: int


def started(pid: int) -> int:
    """Return the start of a process in ticks after the boot; -1 if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name, in parentheses, may contain anything.
            state, *fields = file.read().rpartition(")")[2].split()
    except OSError:
        return -1
    return -1 if state in "ZX" else int(fields[18])


def boot() -> str:
    """Return the identity of this boot of the system, '' if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def read_value(path: str, offset: int | None, length: int) -> bytes:
    """Return `length` bytes at an offset of a file, or its whole text without an offset."""
    with open(path, "rb", buffering=0) as file:
        return file.read(2**16) if offset is None else os.pread(file.fileno(), length, offset)


def write_value(path: str, offset: int | None, value: bytes) -> None:
    """Write bytes at an offset of an existing file, or its whole text without an offset.

    The value of a GPU is the lowest and the highest clock in MHz, such as ``210,1500``, empty for
    no limit.
    """
    if path.startswith(GPU):
        _limit_clock(path.removeprefix(GPU), value.decode())
        return
    kind = os.O_WRONLY | os.O_CLOEXEC
    file = os.open(path, kind | os.O_TRUNC if offset is None else kind)
    try:
        written = os.write(file, value) if offset is None else os.pwrite(file, value, offset)
        if written != len(value):
            raise OSError(5, "only a part was written")
    finally:
        os.close(file)


def _limit_clock(bus: str, limits: str) -> None:
    """Set or remove the clock limit of the GPU at a bus address."""
    nvml = ctypes.CDLL(_NVML)
    nvml.nvmlErrorString.restype = ctypes.c_char_p
    device = ctypes.c_void_p()

    def call(name: str, *arguments: Any) -> None:
        try:
            function = getattr(nvml, name)
        except AttributeError:
            raise OSError(errno.ENOSYS, f"NVML has no {name}") from None
        if code := function(*arguments):
            text = (nvml.nvmlErrorString(code) or b"").decode()
            raise OSError(errno.EPERM if code == _NO_PERMISSION else errno.EIO, f"NVML: {text}")

    call("nvmlInit_v2")
    try:
        call("nvmlDeviceGetHandleByPciBusId_v2", bus.encode(), ctypes.byref(device))
        if limits:
            call("nvmlDeviceSetGpuLockedClocks", device, *map(int, limits.split(",")))
        else:
            call("nvmlDeviceResetGpuLockedClocks", device)
    finally:
        nvml.nvmlShutdown()


@contextlib.contextmanager
def locked(folder: str, seconds: float = 0.0) -> Iterator[bool]:
    """Try for some seconds to hold the lock of a folder; yield whether it is held.

    Locks of this kind are not inherited by processes that are forked.
    """
    file = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + seconds
        held = False
        while not held:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
            except OSError:
                if time.monotonic() >= end:
                    break
                time.sleep(0.01)
        yield held
    finally:
        os.close(file)


def write_journal(folder: str, owner: Owner, changes: Sequence[Any]) -> None:
    """Write path, offset and value before the change of each setting to the journal, durably."""
    document = {
        "boot": boot(),
        "owner": list(owner),
        "changes": [[path, offset, before.hex()] for path, offset, before in changes],
    }
    target = os.path.join(folder, JOURNAL)
    with open(f"{target}.new", "w", encoding="ascii") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{target}.new", target)


def read_journal(folder: str) -> tuple[Owner, list[tuple[str, int | None, bytes]]] | None:
    """Return the owner of a journal and its settings; None without a journal of this boot.

    Raises
    ------
    ValueError
        The journal can't be read or is incomplete; the message is one sentence.
    """
    journal = os.path.join(folder, JOURNAL)
    try:
        # Any user who can write to the journal could make this process write to any file.
        status = os.stat(journal)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            return None
        with open(journal, encoding="ascii") as file:
            document = json.load(file)
        if document["boot"] != boot():
            return None
        changes = [(path, start, bytes.fromhex(old)) for path, start, old in document["changes"]]
        return Owner(*document["owner"]), changes
    except FileNotFoundError:
        return None
    except (OSError, KeyError, TypeError, ValueError):
        raise ValueError(
            f"{journal}, which lists settings that a killed process had changed, can't be read or "
            "is not complete: remove it when the settings are restored"
        ) from None


def restore(folder: str, made: int | None = None) -> list[str]:
    """Restore settings of a journal, the last change first, and return those that failed.

    Only the first `made` changes were made; by default all were. The caller holds the lock. The
    journal is removed unless a setting failed. See `read_journal` for the errors.
    """
    found = read_journal(folder)
    failed = []
    for path, offset, before in reversed(found[1][:made] if found else []):
        try:
            write_value(path, offset, before)
        except OSError as error:
            failed.append(f"{path}: {error.strerror or error}")
    if not failed:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, JOURNAL))
    return failed


def guard(folder: str, owner: Owner) -> None:
    """Wait until the owner has died or closed this process's standard input, then restore."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    files = [sys.stdin.fileno()]
    with contextlib.suppress(OSError):
        files.append(os.pidfd_open(owner.pid))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if owner.start == started(owner.pid):
        select.select(files, [], [])
    # A dying process may close this process's standard input before it loses the lock. If another
    # process holds the lock for longer, it has restored the settings.
    with locked(folder, _DYING_S) as held:
        found = read_journal(folder) if held else None
        if found is not None and found[0] == owner:
            restore(folder)


if __name__ == "__main__":
    guard(sys.argv[1], Owner(int(sys.argv[2]), int(sys.argv[3])))
