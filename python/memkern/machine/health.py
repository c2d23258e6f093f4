"""Properties that the system reports and that make measurements wrong, biased or unsteady.

Every function reads files under `root`, as in `memkern.machine.environment`, and returns a
`Finding`. Values that the system does not report are ``unknown``, never an error. `memkern.doctor`
adds its measurements.

It has more than 600 lines because it is a list of properties, each with a function of its own.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memkern.limits import cgroup_folders, read_number, read_text
from memkern.machine import smbios
from memkern.machine.environment import (
    IN_USE,
    Environment,
    cpu_list,
    each_cpu,
    folios,
    numbered,
)
from memkern.machine.memory_counters import memory_counters

__all__ = [
    "ASK_HOST",
    "BAD",
    "BASELINE",
    "DISTURBED",
    "FIT",
    "GOOD",
    "NOTE",
    "RESERVATIONS",
    "SHOW_FILES",
    "UNKNOWN",
    "Counters",
    "Finding",
    "findings",
    "graded",
    "grown",
    "judgement",
    "read_counters",
    "summary",
    "timer",
]

BAD, NOTE, UNKNOWN, GOOD = STATES = ("bad", "note", "unknown", "good")
FIT, RESERVATIONS, DISTURBED = "fit", "fit with reservations", "disturbed"
# Subject of the comparison with earlier records.
BASELINE = "baseline"


@dataclass(frozen=True)
class Finding:
    """One finding on a machine.

    Attributes
    ----------
    subject : str
        Subject of the finding.
    state : str
        ``bad``: numbers are wrong, or change while measuring; ``note``: numbers are biased, or may
        change; ``unknown``: the system does not report it; ``good``.
    text : str
        One sentence with the value found.
    advice : str
        One sentence with the remedy; empty for good findings.
    """

    subject: str
    state: str
    text: str
    advice: str = ""


def judgement(found: Iterable[Finding]) -> str:
    """Return the verdict on a machine.

    Returns
    -------
    str
        ``disturbed`` if a finding is bad, except the comparison with earlier records, which does
        not show the current state; else ``fit with reservations`` if a finding is bad or a note;
        else ``fit``. Unknown findings do not count.
    """
    states = {(finding.state, finding.subject == BASELINE) for finding in found}
    if (BAD, False) in states:
        return DISTURBED
    return RESERVATIONS if states & {(BAD, True), (NOTE, False), (NOTE, True)} else FIT


def summary(found: Sequence[Finding]) -> str:
    """Return the verdict with the subjects of all bad findings: ``disturbed: steal time, swap``."""
    bad = ", ".join(finding.subject for finding in found if finding.state == BAD)
    return f"{judgement(found)}: {bad}" if bad else judgement(found)


def graded(value: float, note: float, bad: float) -> str:
    """Return the state of a value: good up to `note`, bad above `bad`, else a note.

    NaN is ``unknown``.
    """
    if value != value:
        return UNKNOWN
    return BAD if value > bad else NOTE if value > note else GOOD


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# The kernel's counters

# Pages swapped in and out, reclaimed, and moved between NUMA nodes; names of /proc/vmstat.
_SWAPPED = ("pswpin", "pswpout")
_RECLAIMED = ("pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive")
_MIGRATED = ("numa_pages_migrated",)
_CORRECTED = ("memory_errors",)

Counters = Mapping[str, int]


def read_counters(root: Path) -> Counters:
    """Return the kernel's counters that show activity between two readings.

    These are the counters of ``/proc/vmstat``; ``memory_errors`` of `memory_counters`;
    ``throttled``, how often this process's control groups have used up their processor time; and
    ``busy_ticks``, the time that all processors worked, in hundredths of a second (``SC_CLK_TCK``).
    Missing counters are left out.
    """
    errors = memory_counters(root)["memory_errors"]
    counters = {_CORRECTED[0]: int(errors)} if errors == errors else {}
    for line in (read_text(root, "proc/stat") or "").splitlines():
        name, *ticks = line.split()
        if name == "cpu" and len(ticks) > 6 and all(map(str.isdecimal, ticks)):
            user, nice, system, _, _, irq, softirq = map(int, ticks[:7])
            counters["busy_ticks"] = user + nice + system + irq + softirq
    for line in (read_text(root, "proc/vmstat") or "").splitlines():
        name, _, value = line.partition(" ")
        if value.strip().isdecimal():
            counters[name] = int(value)
    for folder in cgroup_folders(root):
        for line in (read_text(folder, "cpu.stat") or "").splitlines():
            name, _, value = line.partition(" ")
            if name == "nr_throttled" and value.strip().isdecimal():
                counters["throttled"] = counters.get("throttled", 0) + int(value)
    return counters


def grown(before: Counters, after: Counters, names: Iterable[str]) -> int | None:
    """Return the total increase of these counters; None if none of them is known."""
    known = [after[name] - before[name] for name in names if name in before and name in after]
    return sum(known) if known else None


# Findings from files


def findings(
    environment: Environment,
    before: Counters,
    after: Counters,
    *,
    root: str | Path = "/",
) -> list[Finding]:
    """Return the findings from the system's files.

    Parameters
    ----------
    environment : dict
        As `memkern.machine.environment.collect` returns it for the same `root`.
    before, after : mapping
        `read_counters` before and after the measurement.
    root : path
        Folder that contains ``proc`` and ``sys``.
    """
    base = Path(root)
    machine, settings = environment["machine"], environment["settings"]
    nodes = machine["numa_nodes"]
    return [
        _processors(environment),
        _governor(settings),
        _frequency(base),
        _turbo(base),
        _smt(machine, settings),
        _numa_balancing(nodes, settings, grown(before, after, _MIGRATED)),
        _huge_pages(settings),
        _pools(machine, settings),
        _mitigations(settings),
        _cgroup(base, environment, grown(before, after, ("throttled",))),
        _swap(base, grown(before, after, _SWAPPED)),
        _reclaim(grown(before, after, _RECLAIMED)),
        _ksm(base),
        _damon(base),
        _balloon(base, before, after),
        _memory(base, machine["hypervisor"]),
        _memory_errors(after, grown(before, after, _CORRECTED)),
    ]


# Advice for values that the firmware or a hypervisor does not report, or that containers hide.
ASK_HOST = (
    "see the firmware's setup, or ask the operator of a virtual machine's host; otherwise compare "
    "times of this machine only"
)
SHOW_FILES = "run it where /proc and /sys are visible, such as outside of this container"
_CPU = "sys/devices/system/cpu"
_UNTOLD = "the system does not report"


def _processors(environment: Environment) -> Finding:
    subject = "processors"
    usable = len(cpu_list(environment["run"]["cpus_allowed"]))
    there = environment["machine"]["threads"]
    if not (usable and there):
        return Finding(
            subject, UNKNOWN, f"{_UNTOLD} which processing units this process may use", SHOW_FILES
        )
    if usable < there:
        return Finding(
            subject,
            NOTE,
            f"this process may use {usable} of {there} processing units, and others may use the "
            "rest, which share caches and memory with it",
            "run it without taskset, in an exclusive job or container, and state in reports how "
            "many units it had",
        )
    return Finding(subject, GOOD, f"this process may use all {there} processing units")


def _governor(settings: Mapping[str, Any]) -> Finding:
    governor, driver = settings["governor"], settings["frequency_driver"]
    if governor is None:
        text = f"{_UNTOLD} how the clock is governed (virtual machines usually do not)"
        return Finding("governor", UNKNOWN, text, ASK_HOST)
    if governor == "performance":
        return Finding("governor", GOOD, f"performance ({driver or 'driver unknown'})")
    return Finding(
        "governor",
        NOTE,
        f"{governor} ({driver or 'driver unknown'}): the clock follows the load, and a worker that "
        "waits has a lower one",
        "as root: cpupower frequency-set -g performance",
    )


def _GHz(base: Path, name: str) -> float | None:
    """Return the largest value in GHz of a file (in kHz) over all frequency policies."""
    texts = (each_cpu(base, name) or "").split(", ")
    return max((int(text) / 1e6 for text in texts if text.isdecimal()), default=None)


def _frequency(base: Path) -> Finding:
    names = ("cpuinfo_max_freq", "scaling_max_freq", "scaling_cur_freq")
    most, allowed, now = (_GHz(base, name) for name in names)
    if most is None or allowed is None:
        return Finding("frequency", UNKNOWN, f"{_UNTOLD} the limits of the clock", ASK_HOST)
    is_now = f", and the fastest core has {now:.2f} GHz now" if now else ""
    if allowed < most:
        return Finding(
            "frequency",
            NOTE,
            f"the clock is limited to {allowed:.2f} of {most:.2f} GHz{is_now}",
            f"as root: cpupower frequency-set -u {most * 1e6:.0f}, or state the limit in reports",
        )
    return Finding("frequency", GOOD, f"the clock may rise to {most:.2f} GHz{is_now}")


def _turbo(base: Path) -> Finding:
    for path, on in (("intel_pstate/no_turbo", 0), ("cpufreq/boost", 1)):
        value = read_number(base, f"{_CPU}/{path}")
        if value not in (0, 1):
            continue
        if value != on:
            return Finding("turbo", GOOD, "off")
        return Finding(
            "turbo",
            NOTE,
            "on: the clock depends on temperature and on the number of active cores",
            f"as root, for steady numbers: echo {1 - on} > /{_CPU}/{path}; records have clock_GHz",
        )
    return Finding(
        "turbo", UNKNOWN, f"{_UNTOLD} whether the clock may exceed its nominal value", ASK_HOST
    )


def _smt(machine: Mapping[str, Any], settings: Mapping[str, Any]) -> Finding:
    control, cores, threads = settings["smt"], machine["cores"], machine["threads"]
    if control == "on" or (control is None and cores and threads and threads > cores):
        units = f"{threads} units on {cores} cores" if cores and threads else "two units on a core"
        return Finding(
            "SMT",
            NOTE,
            f"on, with {units}: a program on the other unit of a core takes a third to a half of "
            "its throughput",
            f"measure with --threads {cores or 'CORES'} and with all units, or, as root: "
            f"echo off > /{_CPU}/smt/control",
        )
    if control in ("off", "forceoff", "notsupported", "notimplemented") or (cores and threads):
        return Finding("SMT", GOOD, "off" if control in ("off", "forceoff") else "none")
    return Finding("SMT", UNKNOWN, f"{_UNTOLD} whether units share cores", ASK_HOST)


def _numa_balancing(
    nodes: Sequence[Any] | None, settings: Mapping[str, Any], migrated: int | None
) -> Finding:
    subject, value = "NUMA balancing", settings["numa_balancing"]
    if nodes is not None and len(nodes) == 1:
        return Finding(subject, GOOD, "one node")
    if value is None:
        return Finding(
            subject, UNKNOWN, f"{_UNTOLD} whether the kernel moves pages between nodes", SHOW_FILES
        )
    if value == 0:
        return Finding(subject, GOOD, "off")
    moved = "" if migrated is None else f", {migrated} of them while doctor measured"
    return Finding(
        subject,
        BAD if migrated else NOTE,
        f"on: the kernel unmaps pages to see who uses them, and moves pages between nodes{moved}",
        "as root: sysctl kernel.numa_balancing=0",
    )


def _huge_pages(settings: Mapping[str, Any]) -> Finding:
    subject, sizes = "transparent huge pages", folios(settings)
    largest, enabled = sizes.popitem() if sizes else ("", None)
    if enabled in IN_USE:
        others = [f"{word} for pages of {size}" for size, word in sizes.items() if word in IN_USE]
        return Finding(subject, GOOD, ", ".join([enabled, *others]))
    if enabled == "never":
        own = f"hugepages-{largest}/" * (settings["thp"]["enabled"] != "never")
        return Finding(
            subject,
            NOTE,
            "never: memory is in small pages, so that random accesses also miss the TLB",
            f"as root: echo madvise > /sys/kernel/mm/transparent_hugepage/{own}enabled",
        )
    return Finding(
        subject, UNKNOWN, f"{_UNTOLD} whether there are transparent huge pages", SHOW_FILES
    )


def _pools(machine: Mapping[str, Any], settings: Mapping[str, Any]) -> Finding:
    subject, pools = "huge page pools", settings["hugepages"]
    if not pools:
        return Finding(subject, UNKNOWN, f"{_UNTOLD} which pages are reserved", SHOW_FILES)
    reserved_B = 0
    parts = []
    for size, pool in pools.items():
        pages = pool["reserved"] or 0
        parts.append(f"{pages} of {size}")
        if found := re.fullmatch(r"(\d+)kB", size):
            reserved_B += pages * int(found[1]) * 1024
    text = f"reserved are {' and '.join(parts)}"
    if reserved_B > 0.5 * (machine["memory_B"] or float("inf")):
        return Finding(
            subject,
            NOTE,
            f"{text}: more than half of the memory, which ordinary pages can't use",
            "as root: sysctl vm.nr_hugepages=0, unless you measure with --pages hugetlb-2m",
        )
    return Finding(subject, GOOD, text)


def _mitigations(settings: Mapping[str, Any]) -> Finding:
    """Judge mitigations that slow down loads: slow gathers, loads waiting for all stores."""
    subject = "mitigations"
    gathers = settings["mitigations"]["gather_data_sampling"] or ""
    stores = settings["mitigations"]["spec_store_bypass"] or ""
    slow = []
    if gathers.startswith("Mitigation"):
        slow.append(f"gather_data_sampling slows down gathers ({gathers})")
    if re.fullmatch("Mitigation: Speculative Store Bypass disabled", stores):
        slow.append("loads wait for the addresses of earlier stores (spec_store_bypass)")
    if slow:
        return Finding(
            subject,
            NOTE,
            " and ".join(slow),
            "compare --variant scalar with simd, and state it in reports; mitigations=off on the "
            "kernel's command line switches them off, for machines without secrets",
        )
    if not gathers or gathers.startswith("Unknown"):
        return Finding(
            subject,
            UNKNOWN,
            f"{_UNTOLD} whether gathers are slowed down",
            "compare --variant scalar with simd where gathers matter",
        )
    return Finding(subject, GOOD, f"none slows down gathers (gather_data_sampling: {gathers})")


def _cgroup(base: Path, environment: Environment, throttled: int | None) -> Finding:
    subject, limits = "cgroup", environment["settings"]["cgroup"]
    if next(cgroup_folders(base), None) is None:
        return Finding(subject, UNKNOWN, f"{_UNTOLD} which limits this process has", SHOW_FILES)
    units = len(cpu_list(environment["run"]["cpus_allowed"])) or environment["machine"]["threads"]
    cpus, memory_B = limits["cpus"], limits["memory_limit_B"]
    parts = []
    if memory_B is not None:
        parts.append(f"a memory limit of {memory_B / 1e9:.3g} GB")
    if cpus is not None:
        parts.append(f"a quota of {cpus:g} processors for {units or 'an unknown number of'} units")
    if limits["processes"] is not None:
        parts.append(f"at most {limits['processes']} processes and threads")
    for name, most_B in (limits["hugetlb_B"] or {}).items():
        if most_B is not None:
            parts.append(f"at most {most_B / 1e9:.3g} GB of huge pages ({name})")
    text = " and ".join(parts) or "no limits on memory, huge pages, processes or processor time"
    if throttled:
        text += f"; it was stopped {_counted(throttled, 'time')} while doctor measured"
    if throttled or (cpus is not None and cpus < (units or float("inf"))):
        return Finding(
            subject,
            BAD,
            f"{text}: workers are stopped when the quota is used up",
            f"measure with --threads {max(int(cpus or 1), 1)}, or lift the quota (docker run "
            "without --cpus, cpu.max of the group)",
        )
    return Finding(subject, GOOD, text)


def _swap(base: Path, moved: int | None) -> Finding:
    lines = (read_text(base, "proc/swaps") or "").splitlines()
    if not lines or not lines[0].startswith("Filename"):
        if not moved:
            return Finding("swap", UNKNOWN, f"{_UNTOLD} whether memory is swapped", SHOW_FILES)
        lines = []
    sizes = [words[2:4] for line in lines[1:] if len(words := line.split()) >= 4]
    used_B = sum(int(used) * 1024 for _, used in sizes if used.isdecimal())
    in_use = f"{used_B / 1e9:.3g} GB of swap are in use"
    if moved:
        return Finding(
            "swap",
            BAD,
            f"{_counted(moved, 'page')} moved from or to swap while doctor measured; {in_use}",
            "stop programs that need the memory (see free and top), or, as root: swapoff -a",
        )
    if used_B:
        return Finding(
            "swap",
            NOTE,
            f"{in_use}, though no page moved while doctor measured",
            "stop programs that need the memory (see free and top), or, as root: swapoff -a",
        )
    return Finding("swap", GOOD, "nothing is swapped" if sizes else "there is none")


def _reclaim(pages: int | None) -> Finding:
    subject = "memory reclaim"
    if pages is None:
        return Finding(subject, UNKNOWN, f"{_UNTOLD} whether the kernel reclaims pages", SHOW_FILES)
    if pages:
        return Finding(
            subject,
            NOTE,
            f"the kernel reclaimed {_counted(pages, 'page')} while doctor measured: little memory "
            "is free",
            "stop programs that need the memory, or, as root: echo 1 > /proc/sys/vm/drop_caches",
        )
    return Finding(subject, GOOD, "none while doctor measured")


def _ksm(base: Path) -> Finding:
    run = read_number(base, "sys/kernel/mm/ksm/run")
    if run is None:
        return Finding("KSM", UNKNOWN, f"{_UNTOLD} whether equal pages are merged", SHOW_FILES)
    if run != 1:
        return Finding("KSM", GOOD, "off")
    sharing = read_number(base, "sys/kernel/mm/ksm/pages_sharing")
    return Finding(
        "KSM",
        NOTE,
        "on: a kernel thread compares pages, which takes processor time and bandwidth"
        + ("" if sharing is None else f"; {_counted(sharing, 'merged page')}"),
        "as root: echo 0 > /sys/kernel/mm/ksm/run",
    )


# Actions of DAMON that remove pages, and actions that move pages in use.
_TAKES, _MOVES = {"pageout"}, {"migrate_hot", "migrate_cold"}


def _damon(base: Path) -> Finding:
    subject = "DAMON"
    threads = numbered(base, "sys/kernel/mm/damon/admin/kdamonds/*")
    running = [folder for folder in threads if read_text(folder, "state") == "on"]
    actions = {
        action
        for folder in running
        for scheme in numbered(folder, "contexts/*/schemes/*")
        if (action := read_text(scheme, "action"))
    }
    modules = [
        name
        for name in ("damon_reclaim", "damon_lru_sort")
        if (read_text(base, f"sys/module/{name}/parameters/enabled") or "") in ("Y", "1")
    ]
    if "damon_reclaim" in modules:
        actions.add("pageout")
    if not (running or modules):
        if (base / "sys/kernel/mm").is_dir():
            return Finding(subject, GOOD, "off")
        return Finding(subject, UNKNOWN, f"{_UNTOLD} whether DAMON watches memory", SHOW_FILES)
    stops = [f"echo off > /{(f / 'state').relative_to(base)}" for f in running]
    stops += [f"echo N > /sys/module/{name}/parameters/enabled" for name in modules]
    advice = f"as root: {'; '.join(stops)}"
    found = ", ".join(sorted(actions)) or "no action"
    # Without swap, memory of a measurement can't be swapped out.
    swap = len((read_text(base, "proc/swaps") or "").splitlines()) > 1
    if actions & _MOVES or (swap and actions & _TAKES):
        text = f"on ({found}): it reclaims or moves pages that a measurement has not used for a "
        "while"
        return Finding(subject, BAD, text, advice)
    text = f"on ({found}): it clears marks in page tables to see which pages are used"
    if actions & _TAKES:
        text += "; without swap it can only reclaim pages of files"
    return Finding(subject, NOTE, text, advice)


_BALLOONS = ("virtio/drivers/virtio_balloon", "vmbus/drivers/hv_balloon")


def _balloon(base: Path, before: Counters, after: Counters) -> Finding:
    subject = "balloon"
    # The counters exist even without a balloon: only a bound device indicates one.
    drivers = [name.rpartition("/")[2] for name in _BALLOONS if numbered(base, f"sys/bus/{name}/*")]
    if (base / "sys/module/vmw_balloon").is_dir():
        drivers.append("vmw_balloon")
    if not drivers:
        if (base / "sys/bus").is_dir():
            return Finding(subject, GOOD, "none")
        return Finding(
            subject, UNKNOWN, f"{_UNTOLD} whether a hypervisor may take memory away", SHOW_FILES
        )
    held = after.get("nr_balloon_pages")
    if held is None and "balloon_inflate" in after:
        held = after["balloon_inflate"] - after.get("balloon_deflate", 0)
    moved = grown(before, after, ("balloon_inflate", "balloon_deflate"))
    text = f"{' and '.join(drivers)} lets the hypervisor take memory away"
    advice = "give the virtual machine fixed memory: no ballooning, in the hypervisor's settings"
    if held is None:
        return Finding(subject, UNKNOWN, f"{text}; {_UNTOLD} how much", advice)
    text += f"; it has {held * os.sysconf('SC_PAGE_SIZE') / 1e9:.3g} GB"
    if moved:
        text = f"{text}, and {_counted(moved, 'page')} moved while doctor measured"
        return Finding(subject, BAD, text, advice)
    if held:
        return Finding(subject, NOTE, text, advice)
    return Finding(subject, GOOD, text)


def _memory(base: Path, hypervisor: str | None) -> Finding:
    subject, found = "memory population", smbios.population(base)
    if found is None:
        return Finding(
            subject, UNKNOWN, f"the firmware's table, /{smbios.TABLE}, is damaged", ASK_HOST
        )
    if hypervisor:
        text = "this is a virtual machine, whose host has the memory modules"
        if found.modules:
            text += f": the {len(found.modules)} in its table are not real"
        return Finding(subject, UNKNOWN, text, ASK_HOST)
    if not found.modules:
        text = f"{_UNTOLD} which modules there are"
        if found.channels:
            text = (
                f"{_counted(found.channels, 'populated channel')} (counted {found.counted_by}), of "
                "unknown speed"
            )
        return Finding(subject, UNKNOWN, text, f"root can read it (/{smbios.TABLE}): run it once")
    sizes = {module.size_B for module in found.modules}
    speeds = {module.configured_MTs or module.rated_MTs for module in found.modules}
    rated = max(module.rated_MTs for module in found.modules)
    text = (
        f"{_counted(len(found.modules), 'module')} "
        f"({sum(m.size_B for m in found.modules) / 2**30:.0f} GiB) in "
        f"{_counted(found.channels, 'channel')}, counted {found.counted_by}, at "
        f"{found.speed_MTs} MT/s"
    )
    if found.peak_GBps is not None:
        text += f": at most {found.peak_GBps:.1f} GB/s, with 64 bits in a channel"
    wrong = []
    if found.empty_channels:
        wrong.append(_counted(found.empty_channels, "empty channel"))
    if len(sizes) > 1 or len(speeds) > 1:
        wrong.append("the modules differ in size or speed")
    if rated > found.speed_MTs > 0:
        wrong.append(f"modules for {rated} MT/s run at {found.speed_MTs}")
    if wrong:
        return Finding(
            subject,
            NOTE,
            f"{text}; {', '.join(wrong)}",
            "equip every channel with equal modules (see the board's manual), and check the speed "
            "in the firmware's setup",
        )
    return Finding(subject, GOOD, text)


def _memory_errors(counters: Counters, more: int | None) -> Finding:
    subject = "memory errors"
    if more is None:
        text = f"{_UNTOLD} errors of the memory that were corrected (EDAC)"
        return Finding(subject, UNKNOWN, text, ASK_HOST)
    number = counters[_CORRECTED[0]]
    text = f"{_counted(number, 'error')} of the memory corrected since the boot"
    if not number:
        return Finding(subject, GOOD, text)
    return Finding(
        subject,
        BAD if more else NOTE,
        f"{text}, {more} of them while doctor measured: each delays accesses",
        "find the module (ras-mc-ctl --error-count, edac-util -v), and replace it",
    )


# Clock sources that are read through a system call and a slow device.
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")
# Steps of the clock: a sample has at least 1000 steps, so longer steps make samples longer.
_STEP_S = (200e-9, 2e-6)


def timer(tick_s: float, launch_s: float, *, root: str | Path = "/") -> Finding:
    """Return the finding on the system's clock.

    Parameters
    ----------
    tick_s : float
        Smallest step of the clock in seconds.
    launch_s : float
        Seconds of an empty parallel region; NaN if its samples were disturbed.
    root : path
        Folder that contains ``sys``.
    """
    folder = Path(root) / "sys/devices/system/clocksource/clocksource0"
    source = read_text(folder, "current_clocksource")
    state = BAD if source in _SLOW_CLOCKS else graded(tick_s, *_STEP_S)
    region = "an unknown time (disturbed)" if math.isnan(launch_s) else f"{launch_s * 1e6:.2f} us"
    text = (
        f"the clock is {source or 'of unknown source'}, its smallest step {tick_s * 1e9:.0f} ns; "
        f"an empty parallel region takes {region}"
    )
    if state == GOOD:
        return Finding("timer", state, text)
    if state == UNKNOWN:
        return Finding("timer", state, text, SHOW_FILES)
    others = (read_text(folder, "available_clocksource") or "").split()
    better = [name for name in others if name not in (source, *_SLOW_CLOCKS)]
    advice = "see in dmesg why the kernel rejects the processor's counter (tsc=reliable)"
    if better:
        advice = f"as root: echo {better[0]} > /{folder.relative_to(root)}/current_clocksource"
    return Finding("timer", state, text, advice)
