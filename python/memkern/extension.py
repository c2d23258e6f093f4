"""The compiled extension `_memkern`, loaded so that this process keeps its processing units."""

from __future__ import annotations

import os

__all__ = ["_memkern"]

# With these variables, the OpenMP runtime binds this thread to one unit when it is loaded, and
# memkern could use no other.
_BINDING = {"GOMP_CPU_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND"} & os.environ.keys()
_usable = os.sched_getaffinity(0)
if _BINDING:
    try:
        os.sched_setaffinity(0, _usable)
    except OSError:  # the runtime would end the process
        for _name in _BINDING:
            del os.environ[_name]
import memkern._memkern as _memkern  # noqa: E402

if os.sched_getaffinity(0) != _usable:
    os.sched_setaffinity(0, _usable)
