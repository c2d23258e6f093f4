"""A filter of system calls like those of containers and snaps, for the process that installs it.

``python refusing.py EAGAIN clone,clone3 COMMAND...`` runs a command under it.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence

# Numbers of the calls on x86-64, and on processors with the kernel's generic numbers.
_X86 = {
    "madvise": 28, "clone": 56, "sched_setaffinity": 203, "mbind": 237, "perf_event_open": 298,
    "clone3": 435,
}  # fmt: skip
_GENERIC = {
    "madvise": 233, "clone": 220, "sched_setaffinity": 122, "mbind": 235, "perf_event_open": 241,
    "clone3": 435,
}  # fmt: skip
_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2
_LOAD_NUMBER, _IF_EQUAL, _RETURN = (0x20, 0, 0, 0), 0x15, 0x06
_ERROR, _ALLOW = 0x00050000, 0x7FFF0000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def refuse(calls: Sequence[str], error: int = errno.EPERM) -> None:
    """Let the kernel refuse these system calls of this process and its children."""
    numbers = _X86 if platform.machine() == "x86_64" else _GENERIC
    steps = [_LOAD_NUMBER]
    for call in calls:
        steps += [(_IF_EQUAL, 0, 1, numbers[call]), (_RETURN, 0, 0, _ERROR | error)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = _Program(len(steps), ctypes.addressof(text))
    libc = ctypes.CDLL(None, use_errno=True)
    for words in ((_NO_NEW_PRIVS, 1, 0, 0, 0), (_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)):
        if libc.prctl(*words) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    refuse(sys.argv[2].split(","), getattr(errno, sys.argv[1]))
    os.execvp(sys.argv[3], sys.argv[3:])
