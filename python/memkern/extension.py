"""The compiled extension `_memkern`, loaded so that this process keeps its processing units."""

from __future__ import annotations

import contextlib
import os

__all__ = ["_memkern"]

# With OMP_PROC_BIND or GOMP_CPU_AFFINITY, the OpenMP runtime binds this thread to one unit when it
# is loaded, and memkern could use no other.
_usable = os.sched_getaffinity(0)
import memkern._memkern as _memkern  # noqa: E402

if os.sched_getaffinity(0) != _usable:
    with contextlib.suppress(OSError):  # refused: pinning falls back as well
        os.sched_setaffinity(0, _usable)
