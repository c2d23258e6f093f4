"""The environment of a measurement: machine, operating system, settings and build.

`collect` reads properties that affect memory performance from ``/proc`` and ``/sys``. Values that
the system does not report are None: a missing file in a container or an old kernel must not stop a
measurement. `root` replaces ``/`` to read snapshots of other machines.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import math
import os
import platform
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from memkern.limits import UNLIMITED_B, cgroup_folders, processor_quota, read_number, read_text

Environment = dict[str, Any]
CPU = "sys/devices/system/cpu"

# Mitigations that change the performance of loads, gathers, page tables or store forwarding.
_MITIGATIONS = (
    "gather_data_sampling",
    "itlb_multihit",
    "l1tf",
    "mds",
    "meltdown",
    "mmio_stale_data",
    "reg_file_data_sampling",
    "spec_store_bypass",
    "srbds",
    "tsx_async_abort",
)

# Arm processors identify themselves by numbers only (implementer, part).
_ARM_PARTS = {
    ("0x41", "0xd08"): "Arm Cortex-A72",
    ("0x41", "0xd0b"): "Arm Cortex-A76",
    ("0x41", "0xd0c"): "Arm Neoverse N1",
    ("0x41", "0xd40"): "Arm Neoverse V1",
    ("0x41", "0xd49"): "Arm Neoverse N2",
    ("0x41", "0xd4f"): "Arm Neoverse V2",
    ("0x43", "0x0af"): "Cavium ThunderX2",
    ("0x46", "0x001"): "Fujitsu A64FX",
    ("0x48", "0xd01"): "HiSilicon Kunpeng 920",
}

# More processes and threads than a measurement has. The system derives larger limits from the size
# of the memory, which differs a little from boot to boot.
_MANY = 4096


def collect(native: Mapping[str, Any] | None = None, *, root: str | Path = "/") -> Environment:
    """Describe this machine, its settings and the build, as a nested dict fit for JSON.

    Parameters
    ----------
    native : mapping, optional
        The extension's description of its build: compiler, flags, versions, commit.
    root : path
        Folder that contains ``proc``, ``sys`` and ``etc``.

    Returns
    -------
    dict
        Sections ``machine``, ``os``, ``settings``, ``build``, ``python`` and ``run``; sizes in
        bytes; None for unknown values.
    """
    base = Path(root)
    return {
        "machine": copy.deepcopy(this_machine()) if base == Path("/") else _machine(base),
        "os": _os(base),
        "settings": _settings(base),
        "build": dict(native or {}),
        "python": dict(_python()),
        "run": _run(base),
    }


def identity(environment: Environment) -> str:
    """Return a hash that is equal for environments without `differences`.

    Environments with equal hashes also have the same measured sizes of caches.

    Parameters
    ----------
    environment : dict
        As `collect` returns it.

    Returns
    -------
    str
        16 hexadecimal digits.
    """
    # Models use the measured sizes, which differ between measurements on the same machine.
    sizes_B = (environment.get("measured_caches") or {}).get("sizes_B")
    facts = comparable(environment) | ({"measured_caches": sizes_B} if sizes_B else {})
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def differences(a: Environment, b: Environment) -> list[str]:
    """List the differences of two environments that may affect a measurement.

    The machine, its GPUs, the kernel, the settings, the build and the version of memkern are
    compared, but not the load, the time and the versions of Python and its other packages.

    Parameters
    ----------
    a, b : dict
        As `collect` returns them.

    Returns
    -------
    list of str
        ``"settings.thp.enabled: always -> never"`` and the like, sorted; empty if nothing differs.
    """
    was, now = comparable(a), comparable(b)
    return [
        f"{key}: {_shown(was.get(key))} -> {_shown(now.get(key))}"
        for key in sorted(was.keys() | now.keys())
        if was.get(key) != now.get(key)
    ]


def platform_label(environment: Environment, threads: int) -> str:
    """Return a short name for legends and tables, such as ``AMD EPYC 9654, 2 threads``.

    Parameters
    ----------
    environment : dict
        As `collect` returns it.
    threads : int
        Number of threads that were used.
    """
    machine = environment.get("machine") or {}
    model = machine.get("model") or machine.get("architecture") or ""
    model = re.sub(r"\((R|TM|C)\)|\bCPU\b|@.*|\b\d+-Core\b|\bProcessor\b", " ", model, flags=re.I)
    name = " ".join(model.split()) or "unknown processor"
    return f"{name}, {threads} thread{'' if threads == 1 else 's'}"


def machine_label(platform: object) -> str:
    """Return a platform's name without its numbers of threads and ranks."""
    return re.sub(r"(, \d+ threads?)?( a rank, \d+ ranks)?$", "", str(platform))


def read_steal_s(root: str | Path = "/") -> float:
    """Return the steal time: seconds that the hypervisor gave to other machines.

    Parameters
    ----------
    root : path
        Folder that contains ``proc``.

    Returns
    -------
    float
        Sum over all processors since boot; NaN if unknown.
    """
    # user, nice, system, idle, iowait, irq, softirq, steal, ...
    found = re.match(r"cpu +(?:\d+ +){7}(\d+)", read_text(Path(root), "proc/stat") or "")
    return int(found[1]) / os.sysconf("SC_CLK_TCK") if found else math.nan


def units_of_core(unit: int, root: str | Path = "/") -> str | None:
    """Return the processing units on the core of a unit, such as ``0,64``; None if unknown.

    `root` is the folder that contains ``sys``.
    """
    folder = Path(root) / f"sys/devices/system/cpu/cpu{unit}/topology"
    return read_text(folder, "core_cpus_list") or read_text(folder, "thread_siblings_list")


@functools.cache
def this_machine() -> dict[str, Any]:
    """Return the section ``machine`` of this machine's environment; callers must not change it.

    It is read once, since reading hundreds of files takes longer than many measurements. Levels of
    caches that the files do not list are those of the processor's own description, by hwloc.
    """
    from memkern.extension import _memkern

    machine = _machine(Path("/"))
    listed = machine["caches"] or []
    known = {cache["level"] for cache in listed}
    by_hwloc = [
        {"type": "unified" if cache["level"] > 1 else "data", "ways": None, **cache}
        for cache in _memkern.topology()["caches"]
        if cache["size_B"] and cache["level"] not in known
    ]
    return {**machine, "caches": [*listed, *by_hwloc] or None}


def _machine(root: Path) -> dict[str, Any]:
    cpuinfo = fields_of(read_text(root, "proc/cpuinfo"))
    cpus = cpu_list(read_text(root, "sys/devices/system/cpu/online"))
    topology = [root / f"sys/devices/system/cpu/cpu{cpu}/topology" for cpu in cpus]
    sockets = {read_text(folder, "physical_package_id") for folder in topology} - {None}
    nodes = _numa_nodes(root)
    return {
        "architecture": platform.machine() or None,
        "vendor": cpuinfo.get("vendor_id") or cpuinfo.get("CPU implementer"),
        "model": _model(cpuinfo),
        "family": cpuinfo.get("cpu family") or cpuinfo.get("CPU part"),
        "model_number": cpuinfo.get("model") or cpuinfo.get("CPU variant"),
        "stepping": cpuinfo.get("stepping") or cpuinfo.get("CPU revision"),
        "microcode": cpuinfo.get("microcode"),
        "sockets": len(sockets) or None,
        "cores": len({units_of_core(cpu, root) for cpu in cpus} - {None}) or None,
        "threads": len(cpus) or None,
        "caches": _system_caches(root),
        "memory_B": parse_bytes(fields_of(read_text(root, "proc/meminfo")).get("MemTotal")),
        "numa_nodes": nodes,
        "units": ",".join(map(str, _by_topology(cpus, nodes or (), root))) or None,
        "hypervisor": _hypervisor(root, cpuinfo),
    }


def _model(cpuinfo: Mapping[str, str]) -> str | None:
    implementer, part = cpuinfo.get("CPU implementer"), cpuinfo.get("CPU part")
    if implementer and part:
        return _ARM_PARTS.get((implementer, part)) or f"Arm implementer {implementer} part {part}"
    # x86, then POWER, then RISC-V.
    return cpuinfo.get("model name") or cpuinfo.get("cpu") or cpuinfo.get("uarch")


def processor_model(root: str | Path = "/") -> str:
    """Return the model of this machine's processor, empty if unknown.

    `root` is the folder that contains ``proc``.
    """
    return _model(fields_of(read_text(Path(root), "proc/cpuinfo"))) or ""


def _system_caches(root: Path) -> list[dict[str, Any]] | None:
    """Return the caches as the system reports them, None if it does not."""
    seen = set()
    for cpu in cpu_list(read_text(root, "sys/devices/system/cpu/online")):
        for folder in numbered(root, f"sys/devices/system/cpu/cpu{cpu}/cache/index*"):
            shared, level = read_text(folder, "shared_cpu_list"), read_number(folder, "level")
            if level is None:
                continue
            seen.add(
                (
                    level,
                    (read_text(folder, "type") or "").lower() or None,
                    parse_bytes(read_text(folder, "size")),
                    read_number(folder, "coherency_line_size"),
                    read_number(folder, "ways_of_associativity"),
                    len(cpu_list(shared)) or None,
                    shared,
                )
            )
    if not seen:
        return None
    # Hybrid processors have two kinds of caches on a level.
    kinds = Counter(cache[:-1] for cache in seen)
    names = ("level", "type", "size_B", "line_B", "ways", "shared_by", "instances")
    return [dict(zip(names, (*kind, kinds[kind]), strict=True)) for kind in sorted(kinds, key=repr)]


def _numa_nodes(root: Path) -> list[dict[str, Any]] | None:
    folders = {int(f.name[4:]): f for f in numbered(root, "sys/devices/system/node/node*")}
    return [
        {
            "node": node,
            "cpus": read_text(folder, "cpulist"),
            "memory_B": parse_bytes(
                fields_of(read_text(folder, "meminfo")).get(f"Node {node} MemTotal")
            ),
        }
        for node, folder in folders.items()
    ] or None


def _by_topology(cpus: Iterable[int], nodes: Iterable[Mapping[str, Any]], root: Path) -> list[int]:
    """Return units sorted so that units of a socket, NUMA node, cache and core are adjacent."""
    node_of = {cpu: node["node"] for node in nodes for cpu in cpu_list(node["cpus"])}

    def order_of(cpu: int) -> list[int]:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}"
        socket = read_number(folder, "topology/physical_package_id")
        caches = sorted(
            (-(read_number(index, "level") or 0), min(shared))
            for index in numbered(folder, "cache/index*")
            if (shared := cpu_list(read_text(index, "shared_cpu_list")))
        )
        core = min(cpu_list(units_of_core(cpu, root)), default=cpu)
        return [socket or 0, node_of.get(cpu, 0), *(first for _, first in caches), core, cpu]

    return sorted(cpus, key=order_of)


def _hypervisor(root: Path, cpuinfo: Mapping[str, str]) -> str | None:
    if kind := read_text(root, "sys/hypervisor/type"):
        return kind
    if "hypervisor" not in cpuinfo.get("flags", "").split():
        return None
    dmi = (read_text(root, f"sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name"))
    return " ".join(text for text in dmi if text) or "unknown"


def _os(root: Path) -> dict[str, Any]:
    release = read_text(root, "etc/os-release") or read_text(root, "usr/lib/os-release") or ""
    name = re.search(r'^PRETTY_NAME="?([^"\n]*)', release, flags=re.M)
    return {
        "kernel": read_text(root, "proc/sys/kernel/osrelease"),
        "distribution": name[1] if name else None,
        "libc": " ".join(platform.libc_ver()).strip() or None,
    }


def _settings(root: Path) -> dict[str, Any]:
    thp = "sys/kernel/mm/transparent_hugepage"
    pools = {
        folder.name.removeprefix("hugepages-"): {
            "reserved": read_number(folder, "nr_hugepages"),
            "overcommit": read_number(folder, "nr_overcommit_hugepages"),
        }
        for folder in numbered(root, "sys/kernel/mm/hugepages/hugepages-*")
    }
    return {
        "thp": {
            "enabled": _bracketed(read_text(root, f"{thp}/enabled")),
            "defrag": _bracketed(read_text(root, f"{thp}/defrag")),
            "sizes": {
                folder.name.removeprefix("hugepages-"): _bracketed(read_text(folder, "enabled"))
                for folder in numbered(root, f"{thp}/hugepages-*")
            }
            or None,
        },
        "hugepages": pools or None,
        "governor": each_cpu(root, "scaling_governor"),
        "frequency_driver": each_cpu(root, "scaling_driver"),
        "smt": read_text(root, f"{CPU}/smt/control"),
        "numa_balancing": read_number(root, "proc/sys/kernel/numa_balancing"),
        "randomize_va_space": read_number(root, "proc/sys/kernel/randomize_va_space"),
        "overcommit_memory": read_number(root, "proc/sys/vm/overcommit_memory"),
        "overcommit_ratio": read_number(root, "proc/sys/vm/overcommit_ratio"),
        "mitigations": {
            name: read_text(root, f"{CPU}/vulnerabilities/{name}") for name in _MITIGATIONS
        },
        "cgroup": _cgroup_limits(root),
        "limits": _process_limits(root),
    }


def _cgroup_limits(root: Path) -> dict[str, Any]:
    """Return the smallest limits of this process's control groups and their parents."""
    quota, folders = processor_quota(root), [*cgroup_folders(root)]

    def least(*names: str, below: int = UNLIMITED_B) -> int | None:
        found = [read_number(folder, name) for folder in folders for name in names]
        return min((one for one in found if one is not None and one < below), default=None)

    # Such as hugetlb.2MB.max and hugetlb.2MB.rsvd.max, for pages in use and reserved ones.
    pools = {path.name for folder in folders for path in numbered(folder, "hugetlb.*")}
    limits = [name for name in sorted(pools) if name.endswith((".max", ".limit_in_bytes"))]
    return {
        "memory_limit_B": least("memory.max", "memory.limit_in_bytes"),
        "cpus": None if quota is None else quota.processors,
        "processes": least("pids.max", below=_MANY),
        "hugetlb_B": {name.removeprefix("hugetlb."): least(name) for name in limits} or None,
    }


def _process_limits(root: Path) -> dict[str, int] | None:
    """Return the limits of this process (``ulimit``) that a measurement can reach."""
    text = read_text(root, "proc/self/limits") or ""
    found = re.findall(r"^Max (processes|address space|data size) +(\d+)", text, flags=re.M)
    reachable = {"processes": _MANY}
    return {
        name.replace(" ", "_"): int(most)
        for name, most in found
        if int(most) < reachable.get(name, UNLIMITED_B)
    } or None


# Settings with which there are transparent huge pages.
IN_USE = ("always", "madvise")


def folios(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the setting of each size of transparent huge pages, the largest last.

    ``inherit`` is replaced by the setting of all sizes. Kernels that have only the latter have one
    size; empty if unknown.
    """
    thp = settings.get("thp") or {}
    every = thp.get("enabled")
    sizes = thp.get("sizes") or ({"": every} if every else {})
    return {size: every if word == "inherit" else word for size, word in sizes.items()}


@functools.cache
def _python() -> dict[str, Any]:
    from importlib import metadata

    versions: dict[str, Any] = {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
    }
    for package in ("memkern", "numpy", "pandas", "pyarrow"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def _run(root: Path) -> dict[str, Any]:
    meminfo = fields_of(read_text(root, "proc/meminfo"))
    load = re.findall(r"\d+\.\d+", read_text(root, "proc/loadavg") or "")
    return {
        "time": now(),
        "load": [*map(float, load)] or None,
        "memory_available_B": parse_bytes(meminfo.get("MemAvailable")),
        # Not a setting: pinning changes it, and records contain the obtained pinning.
        "cpus_allowed": fields_of(read_text(root, "proc/self/status")).get("Cpus_allowed_list"),
    }


def comparable(environment: Environment) -> dict[str, Any]:
    """Return the facts of an environment that may affect a measurement, by their names."""
    parts = {
        "machine": environment.get("machine"),
        "memory": environment.get("memory"),
        "os.kernel": (environment.get("os") or {}).get("kernel"),
        "settings": environment.get("settings"),
        "build": environment.get("build"),
        "devices": environment.get("devices"),
        "python.memkern": (environment.get("python") or {}).get("memkern"),
    }
    return {
        key: value
        for name, part in parts.items()
        for key, value in _leaves(name, part)
        if value is not None
    }


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            # The kernel's total memory changes by a few pages between boots, and a device may be
            # busy temporarily.
            if key not in ("memory_B", "unavailable"):
                yield from _leaves(f"{name}.{key}", inner)
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            yield from _leaves(f"{name}[{i}]", inner)
    else:
        yield name, value


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)


def now() -> str:
    """Return the date and time in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def numbered(root: Path, pattern: str) -> list[Path]:
    """Return the matches whose name contains a number, in the order of their first number."""

    def first_number(path: Path) -> int:
        digits = re.search(r"\d+", path.name)
        return int(digits[0]) if digits else -1

    try:
        found = (path for path in root.glob(pattern) if first_number(path) >= 0)
        return sorted(found, key=first_number)
    except OSError:
        return []


def each_cpu(root: Path, name: str) -> str | None:
    """Return a value of all processors' frequency policies, comma-separated where they differ."""
    folders = numbered(root, "sys/devices/system/cpu/cpu[0-9]*")
    return ", ".join(sorted({read_text(f / "cpufreq", name) or "" for f in folders} - {""})) or None


def fields_of(text: str | None) -> dict[str, str]:
    """Parse lines of the form ``key : value``; for a repeated key, the first value counts."""
    fields = re.findall(r"^[ \t]*([^:\n]*?)[ \t]*:[ \t]*(\S.*?)[ \t]*$", text or "", flags=re.M)
    return dict(reversed(fields))


def _bracketed(text: str | None) -> str | None:
    """Return the word in brackets of ``always [madvise] never``."""
    found = re.search(r"\[(.*?)\]", text or "")
    return found[1] if found else text


def parse_bytes(text: str | None) -> int | None:
    """Return the bytes of ``24684084 kB``, ``32768K`` or ``1M``; the kernel's kB is 1024 bytes."""
    found = re.fullmatch(r"(\d+)\s*([KM])B?", (text or "").strip(), flags=re.I)
    return int(found[1]) * (1024 if found[2] in "kK" else 1024**2) if found else None


def cpu_list(text: str | None) -> list[int]:
    """Parse ``0-3,8`` into numbers."""
    parts = (re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip()) for part in (text or "").split(","))
    ends = [(int(part[1]), int(part[2] or part[1])) for part in parts if part]
    return [cpu for first, last in ends for cpu in range(first, last + 1)]
