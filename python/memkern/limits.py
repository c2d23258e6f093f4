"""The memory that this process may still allocate, and a check before allocations."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import resource
from pathlib import Path
from typing import NamedTuple

from memkern.errors import InputError

# More than any memory: a version 1 control group without a limit has a larger number. Infinity
# could not become a number of bytes.
UNLIMITED_B = 1 << 60
# Below this size the check takes longer than the allocation.
_UNCHECKED_B = 2**20


def memory_left(root: Path = Path("/")) -> tuple[int, str]:
    """Return the memory that this process may still allocate, without needing the extension.

    Parameters
    ----------
    root : Path
        Folder that contains ``proc`` and ``sys``.

    Returns
    -------
    available_B : int
        The smallest of MemAvailable, RLIMIT_AS, RLIMIT_DATA, the commit limit (with
        vm.overcommit_memory=2) and the control groups' limits, minus the usage; `UNLIMITED_B` if
        none is known.
    source : str
        Name of the smallest limit.
    """
    limits = [(UNLIMITED_B, "nothing")]
    memory, process = (read_numbers(root, f"proc/{name}") for name in ("meminfo", "self/status"))
    if "MemAvailable:" in memory:
        limits.append((memory["MemAvailable:"], "available memory"))
    for which, usage, name in (
        (resource.RLIMIT_AS, "VmSize:", "address space limit (ulimit -v)"),
        (resource.RLIMIT_DATA, "VmData:", "data limit (ulimit -d)"),
    ):
        with contextlib.suppress(OSError):  # a filter of system calls refuses it
            most, _ = resource.getrlimit(which)
            if most != resource.RLIM_INFINITY:
                limits.append((most - process.get(usage, 0), name))
    if "CommitLimit:" in memory and read_number(root, "proc/sys/vm/overcommit_memory") == 2:
        left = memory["CommitLimit:"] - memory.get("Committed_AS:", 0)
        limits.append((left, "commit limit (vm.overcommit_memory=2)"))
    for folder in cgroup_folders(root, "memory"):
        for limit, usage, cache in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            allowed, used_B = read_number(folder, limit), read_number(folder, usage)
            if allowed is not None and used_B is not None:
                # The page cache counts as usage but can be reclaimed.
                reclaimable = read_numbers(folder, "memory.stat").get(cache, 0)
                limits.append((allowed - max(0, used_B - reclaimable), f"cgroup limit of {folder}"))
    left, source = min(limits)
    return max(left, 0), source


def check_memory(size_B: float, what: str) -> None:
    """Raise InputError if an allocation needs more memory than is left.

    Parameters
    ----------
    size_B : float
        Bytes that will be allocated.
    what : str
        User of the memory, as the subject of the message.

    Raises
    ------
    InputError
        Less memory is left.
    """
    if size_B <= _UNCHECKED_B:
        return
    left, source = memory_left()
    if size_B > left:
        raise InputError(
            f"{what} needs about {size_B / 1e9:.3g} GB of memory, but {source} leaves "
            f"{left / 1e9:.3g} GB"
        )


class Quota(NamedTuple):
    """Processors that control groups allow a process to use, and the period of the quota."""

    processors: float
    period_s: float


def processor_quota(root: Path = Path("/")) -> Quota | None:
    """Return the processor quota of this process's control groups; None without one.

    It is the smallest ratio of quota to period of a group and its parents, of either version.
    """
    texts = (
        read_text(folder, "cpu.max")
        or f"{read_text(folder, 'cpu.cfs_quota_us')} {read_text(folder, 'cpu.cfs_period_us')}"
        for folder in cgroup_folders(root, "cpu")
    )
    # Quota and period in microseconds; a group without a quota has "max" or -1.
    known = filter(None, (re.fullmatch(r"(\d+) ([1-9]\d*)", text) for text in texts))
    return min((Quota(int(one[1]) / int(one[2]), int(one[2]) / 1e6) for one in known), default=None)


def throttled_s(root: Path = Path("/")) -> float:
    """Return the seconds for which quotas have stopped processors of this process's groups.

    It is the longest time of a group and its parents, over all processors; NaN if unknown.
    """
    groups = [read_numbers(folder, "cpu.stat") for folder in cgroup_folders(root, "cpu")]
    units_s = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
    every = [group[name] * units_s[name] for group in groups for name in units_s if name in group]
    return max(every, default=math.nan)


def cgroup_folders(root: Path, controller: str = "") -> tuple[Path, ...]:
    """Return the folders of this process's control groups, each followed by its parents.

    In version 1, where groups differ between controllers, they are of one controller or of all.
    """
    return _folders(root, control_groups(root), controller)


@functools.lru_cache(maxsize=8)
def _folders(root: Path, groups: str, controller: str) -> tuple[Path, ...]:
    found: list[Path] = []
    mounts = [line.split() for line in (read_text(root, "proc/self/mounts") or "").splitlines()]
    for line in groups.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        own = {*controllers.split(",")} & {controller or name for name in controllers.split(",")}
        for mount in mounts:
            if len(mount) < 4:
                continue
            unified = not controllers and mount[2] == "cgroup2"
            if unified or (mount[2] == "cgroup" and own & {*mount[3].split(",")}):
                top = root / mount[1].lstrip("/")
                folder = top / path.lstrip("/")
                found += (one for one in (folder, *folder.parents) if one.is_relative_to(top))
    return tuple(found)


def control_groups(root: Path = Path("/")) -> str:
    """Return the control groups of this process as the system lists them; empty if unknown."""
    return read_text(root, "proc/self/cgroup") or ""


def read_text(root: Path, path: str) -> str | None:
    """Return the text of a file, None if it is empty or can't be read."""
    try:
        return (root / path).read_text(encoding="utf-8", errors="replace").strip() or None
    except (OSError, ValueError):
        return None


def read_number(root: Path, path: str) -> int | None:
    """Return the integer in a file, None if there is none."""
    try:
        return int(read_text(root, path) or "")
    except ValueError:
        return None


def read_numbers(root: Path, path: str) -> dict[str, int]:
    """Return the numbers in a file with lines such as ``pswpin 5`` or ``VmSize: 5 kB``.

    They are by the words before them, in bytes where they are in kB.
    """
    found = re.findall(r"^(\S+)[ \t]+(\d+)( kB)?[ \t]*$", read_text(root, path) or "", re.M)
    return {word: int(number) * (1024 if kB else 1) for word, number, kB in found}
