"""Properties that the system reports and that make measurements wrong, biased or unsteady.

Every function reads files under `root`, as in `memkern.machine.environment`, and returns a
`Finding`. Values that the system does not report are ``unknown``, never an error. `memkern.doctor`
adds its measurements.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memkern.checks import counted
from memkern.limits import cgroup_folders, read_number, read_text
from memkern.machine import smbios
from memkern.machine.environment import (
    CPU,
    IN_USE,
    Environment,
    cpu_list,
    each_cpu,
    folios,
    numbered,
    parse_bytes,
)
from memkern.machine.kernel_counters import Counters, grown

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


def first_that_holds(subject: str, *rows: tuple[object, str, str, str]) -> Finding:
    """Return the finding of the first row that holds: whether it does, state, text and advice."""
    return next(
        Finding(subject, state, text, advice) for holds, state, text, advice in rows if holds
    )


def _untold(holds: object, what: str, advice: str) -> tuple[object, str, str, str]:
    return holds, UNKNOWN, f"the system does not report {what}", advice


def _those_that_hold(*rows: tuple[object, str]) -> list[str]:
    return [text for holds, text in rows if holds]


def _GB(size_B: int | None) -> str:
    return f"{(size_B or 0) / 1e9:.3g} GB"


# Pages that the kernel has reclaimed: names of /proc/vmstat.
_RECLAIMED = ("pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive")


def findings(
    environment: Environment, before: Counters, after: Counters, *, root: str | Path = "/"
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
        _numa_balancing(nodes, settings, grown(before, after, ["numa_pages_migrated"])),
        _huge_pages(settings),
        _pools(machine, settings),
        _mitigations(settings),
        _cgroup(base, environment, grown(before, after, ["throttled"])),
        _swap(base, grown(before, after, ["pswpin", "pswpout"])),
        _reclaim(grown(before, after, _RECLAIMED)),
        _ksm(base),
        _damon(base),
        _balloon(base, before, after),
        _memory(base, machine["hypervisor"]),
        _memory_errors(after, grown(before, after, ["memory_errors"])),
    ]


# Advice for values that the firmware or a hypervisor does not report, or that containers hide.
ASK_HOST = (
    "see the firmware's setup, or ask the operator of a virtual machine's host; otherwise compare "
    "times of this machine only"
)
SHOW_FILES = "run it where /proc and /sys are visible, such as outside of this container"


def _processors(environment: Environment) -> Finding:
    usable = len(cpu_list(environment["run"]["cpus_allowed"]))
    there = environment["machine"]["threads"] or 0
    return first_that_holds(
        "processors",
        _untold(not (usable and there), "which processing units this process may use", SHOW_FILES),
        (
            usable < there,
            NOTE,
            f"this process may use {usable} of {there} processing units, and others may use the "
            "rest, which share caches and memory with it",
            "run it without taskset, in an exclusive job or container, and state in reports how "
            "many units it had",
        ),
        (True, GOOD, f"this process may use all {there} processing units", ""),
    )


def _governor(settings: Mapping[str, Any]) -> Finding:
    governor = settings["governor"]
    driver = settings["frequency_driver"] or "driver unknown"
    return first_that_holds(
        "governor",
        _untold(
            governor is None,
            "how the clock is governed (virtual machines usually do not)",
            ASK_HOST,
        ),
        (governor == "performance", GOOD, f"performance ({driver})", ""),
        (
            True,
            NOTE,
            f"{governor} ({driver}): the clock follows the load, and a worker that waits has a "
            "lower one",
            "as root: cpupower frequency-set -g performance",
        ),
    )


def _GHz(base: Path, name: str) -> float:
    """Return the largest value in GHz of a file (in kHz) over all frequency policies, or NaN."""
    texts = (each_cpu(base, name) or "").split(", ")
    return max((int(text) / 1e6 for text in texts if text.isdecimal()), default=math.nan)


def _frequency(base: Path) -> Finding:
    names = ("cpuinfo_max_freq", "scaling_max_freq", "scaling_cur_freq")
    most, allowed, now = (_GHz(base, name) for name in names)
    is_now = f", and the fastest core has {now:.2f} GHz now" if now > 0 else ""
    return first_that_holds(
        "frequency",
        _untold(math.isnan(most + allowed), "the limits of the clock", ASK_HOST),
        (
            allowed < most,
            NOTE,
            f"the clock is limited to {allowed:.2f} of {most:.2f} GHz{is_now}",
            f"as root: cpupower frequency-set -u {most * 1e6:.0f}, or state the limit in reports",
        ),
        (True, GOOD, f"the clock may rise to {most:.2f} GHz{is_now}", ""),
    )


def _turbo(base: Path) -> Finding:
    files = ((f"{CPU}/intel_pstate/no_turbo", 0), (f"{CPU}/cpufreq/boost", 1))
    found = ((path, on, read_number(base, path)) for path, on in files)
    path, on, value = next((row for row in found if row[2] in (0, 1)), ("", 0, None))
    return first_that_holds(
        "turbo",
        _untold(value is None, "whether the clock may exceed its nominal value", ASK_HOST),
        (value != on, GOOD, "off", ""),
        (
            True,
            NOTE,
            "on: the clock depends on temperature and on the number of active cores",
            f"as root, for steady numbers: echo {1 - on} > /{path}; records have clock_GHz",
        ),
    )


def _smt(machine: Mapping[str, Any], settings: Mapping[str, Any]) -> Finding:
    control, cores, threads = settings["smt"], machine["cores"], machine["threads"]
    known = cores and threads
    off = control in ("off", "forceoff")
    none = control in ("notsupported", "notimplemented")
    units = f"{threads} units on {cores} cores" if known else "two units on a core"
    return first_that_holds(
        "SMT",
        (
            control == "on" or (control is None and known and threads > cores),
            NOTE,
            f"on, with {units}: a program on the other unit of a core takes a third to a half of "
            "its throughput",
            f"measure with --threads {cores or 'CORES'} and with all units, or, as root: "
            f"echo off > /{CPU}/smt/control",
        ),
        (off or none or known, GOOD, "off" if off else "none", ""),
        _untold(True, "whether units share cores", ASK_HOST),
    )


def _numa_balancing(
    nodes: Sequence[Any] | None, settings: Mapping[str, Any], migrated: int | None
) -> Finding:
    value = settings["numa_balancing"]
    moved = "" if migrated is None else f", {migrated} of them while doctor measured"
    return first_that_holds(
        "NUMA balancing",
        (nodes is not None and len(nodes) == 1, GOOD, "one node", ""),
        _untold(value is None, "whether the kernel moves pages between nodes", SHOW_FILES),
        (value == 0, GOOD, "off", ""),
        (
            True,
            BAD if migrated else NOTE,
            "on: the kernel unmaps pages to see who uses them, and moves pages between "
            f"nodes{moved}",
            "as root: sysctl kernel.numa_balancing=0",
        ),
    )


def _huge_pages(settings: Mapping[str, Any]) -> Finding:
    sizes = folios(settings)
    largest, enabled = sizes.popitem() if sizes else ("", None)
    others = [f"{word} for pages of {size}" for size, word in sizes.items() if word in IN_USE]
    own = f"hugepages-{largest}/" * (settings["thp"]["enabled"] != "never")
    return first_that_holds(
        "transparent huge pages",
        (enabled in IN_USE, GOOD, ", ".join([str(enabled), *others]), ""),
        (
            enabled == "never",
            NOTE,
            "never: memory is in small pages, so that random accesses also miss the TLB",
            f"as root: echo madvise > /sys/kernel/mm/transparent_hugepage/{own}enabled",
        ),
        _untold(True, "whether there are transparent huge pages", SHOW_FILES),
    )


def _pools(machine: Mapping[str, Any], settings: Mapping[str, Any]) -> Finding:
    pages = {size: pool["reserved"] or 0 for size, pool in (settings["hugepages"] or {}).items()}
    reserved_B = sum(number * (parse_bytes(size) or 0) for size, number in pages.items())
    text = f"reserved are {' and '.join(f'{number} of {size}' for size, number in pages.items())}"
    return first_that_holds(
        "huge page pools",
        _untold(not pages, "which pages are reserved", SHOW_FILES),
        (
            reserved_B > 0.5 * (machine["memory_B"] or math.inf),
            NOTE,
            f"{text}: more than half of the memory, which ordinary pages can't use",
            "as root: sysctl vm.nr_hugepages=0, unless you measure with --pages hugetlb-2m",
        ),
        (True, GOOD, text, ""),
    )


def _mitigations(settings: Mapping[str, Any]) -> Finding:
    """Judge mitigations that slow down loads: slow gathers, loads waiting for all stores."""
    gathers = settings["mitigations"]["gather_data_sampling"] or ""
    stores = settings["mitigations"]["spec_store_bypass"]
    slow = _those_that_hold(
        (gathers.startswith("Mitigation"), f"gather_data_sampling slows down gathers ({gathers})"),
        (
            stores == "Mitigation: Speculative Store Bypass disabled",
            "loads wait for the addresses of earlier stores (spec_store_bypass)",
        ),
    )
    return first_that_holds(
        "mitigations",
        (
            slow,
            NOTE,
            " and ".join(slow),
            "compare --variant scalar with simd, and state it in reports; mitigations=off on the "
            "kernel's command line switches them off, for machines without secrets",
        ),
        _untold(
            not gathers or gathers.startswith("Unknown"),
            "whether gathers are slowed down",
            "compare --variant scalar with simd where gathers matter",
        ),
        (True, GOOD, f"none slows down gathers (gather_data_sampling: {gathers})", ""),
    )


def _cgroup(base: Path, environment: Environment, throttled: int | None) -> Finding:
    limits = environment["settings"]["cgroup"]
    units = len(cpu_list(environment["run"]["cpus_allowed"])) or environment["machine"]["threads"]
    memory_B, cpus, processes = limits["memory_limit_B"], limits["cpus"], limits["processes"]
    limited = _those_that_hold(
        (memory_B is not None, f"a memory limit of {_GB(memory_B)}"),
        (
            cpus is not None,
            f"a quota of {cpus or 0:g} processors for {units or 'an unknown number of'} units",
        ),
        (processes is not None, f"at most {processes} processes and threads"),
        *(
            (most_B is not None, f"at most {_GB(most_B)} of huge pages ({name})")
            for name, most_B in (limits["hugetlb_B"] or {}).items()
        ),
    )
    text = " and ".join(limited) or "no limits on memory, huge pages, processes or processor time"
    stopped = counted(throttled or 0, "time")
    text += f"; it was stopped {stopped} while doctor measured" * bool(throttled)
    return first_that_holds(
        "cgroup",
        _untold(not [*cgroup_folders(base)], "which limits this process has", SHOW_FILES),
        (
            throttled or (cpus is not None and cpus < (units or math.inf)),
            BAD,
            f"{text}: workers are stopped when the quota is used up",
            f"measure with --threads {max(int(cpus or 1), 1)}, or lift the quota (docker run "
            "without --cpus, cpu.max of the group)",
        ),
        (True, GOOD, text, ""),
    )


def _swap(base: Path, moved: int | None) -> Finding:
    head, *lines = (read_text(base, "proc/swaps") or "").splitlines() or [""]
    known = head.startswith("Filename")
    sizes = [words[2:4] for line in lines if known and len(words := line.split()) >= 4]
    used_B = sum(int(used) * 1024 for _, used in sizes if used.isdecimal())
    in_use = f"{_GB(used_B)} of swap are in use"
    pages = f"{counted(moved or 0, 'page')} moved from or to swap while doctor measured"
    advice = "stop programs that need the memory (see free and top), or, as root: swapoff -a"
    return first_that_holds(
        "swap",
        _untold(not known and not moved, "whether memory is swapped", SHOW_FILES),
        (moved, BAD, f"{pages}; {in_use}", advice),
        (used_B, NOTE, f"{in_use}, though no page moved while doctor measured", advice),
        (True, GOOD, "nothing is swapped" if sizes else "there is none", ""),
    )


def _reclaim(pages: int | None) -> Finding:
    return first_that_holds(
        "memory reclaim",
        _untold(pages is None, "whether the kernel reclaims pages", SHOW_FILES),
        (
            pages,
            NOTE,
            f"the kernel reclaimed {counted(pages or 0, 'page')} while doctor measured: little "
            "memory is free",
            "stop programs that need the memory, or, as root: echo 1 > /proc/sys/vm/drop_caches",
        ),
        (True, GOOD, "none while doctor measured", ""),
    )


def _ksm(base: Path) -> Finding:
    run = read_number(base, "sys/kernel/mm/ksm/run")
    sharing = read_number(base, "sys/kernel/mm/ksm/pages_sharing")
    merged = "" if sharing is None else f"; {counted(sharing, 'merged page')}"
    return first_that_holds(
        "KSM",
        _untold(run is None, "whether equal pages are merged", SHOW_FILES),
        (run != 1, GOOD, "off", ""),
        (
            True,
            NOTE,
            f"on: a kernel thread compares pages, which takes processor time and bandwidth{merged}",
            "as root: echo 0 > /sys/kernel/mm/ksm/run",
        ),
    )


# Actions of DAMON that remove pages, and actions that move pages in use.
_TAKES, _MOVES = {"pageout"}, {"migrate_hot", "migrate_cold"}


def _damon(base: Path) -> Finding:
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
    stops = [
        *(f"echo off > /{(folder / 'state').relative_to(base)}" for folder in running),
        *(f"echo N > /sys/module/{name}/parameters/enabled" for name in modules),
    ]
    advice = f"as root: {'; '.join(stops)}"
    on = f"on ({', '.join(sorted(actions)) or 'no action'}): it"
    # Without swap, memory of a measurement can't be swapped out.
    swap = len((read_text(base, "proc/swaps") or "").splitlines()) > 1
    only_files = "; without swap it can only reclaim pages of files" if actions & _TAKES else ""
    return first_that_holds(
        "DAMON",
        (not stops and (base / "sys/kernel/mm").is_dir(), GOOD, "off", ""),
        _untold(not stops, "whether DAMON watches memory", SHOW_FILES),
        (
            actions & _MOVES or (swap and actions & _TAKES),
            BAD,
            f"{on} reclaims or moves pages that a measurement has not used for a while",
            advice,
        ),
        (
            True,
            NOTE,
            f"{on} clears marks in page tables to see which pages are used{only_files}",
            advice,
        ),
    )


_BALLOONS = ("virtio/drivers/virtio_balloon", "vmbus/drivers/hv_balloon")


def _balloon(base: Path, before: Counters, after: Counters) -> Finding:
    # The counters exist even without a balloon: only a bound device indicates one.
    drivers = [name.rpartition("/")[2] for name in _BALLOONS if numbered(base, f"sys/bus/{name}/*")]
    if (base / "sys/module/vmw_balloon").is_dir():
        drivers.append("vmw_balloon")
    held = after.get("nr_balloon_pages")
    if held is None and "balloon_inflate" in after:
        held = after["balloon_inflate"] - after.get("balloon_deflate", 0)
    moved = grown(before, after, ("balloon_inflate", "balloon_deflate")) or 0
    text = f"{' and '.join(drivers)} lets the hypervisor take memory away"
    it_has = f"{text}; it has {_GB((held or 0) * os.sysconf('SC_PAGE_SIZE'))}"
    advice = "give the virtual machine fixed memory: no ballooning, in the hypervisor's settings"
    return first_that_holds(
        "balloon",
        (not drivers and (base / "sys/bus").is_dir(), GOOD, "none", ""),
        _untold(not drivers, "whether a hypervisor may take memory away", SHOW_FILES),
        (held is None, UNKNOWN, f"{text}; the system does not report how much", advice),
        (
            moved,
            BAD,
            f"{it_has}, and {counted(moved, 'page')} moved while doctor measured",
            advice,
        ),
        (held, NOTE, it_has, advice),
        (True, GOOD, it_has, ""),
    )


def _memory(base: Path, hypervisor: str | None) -> Finding:
    subject, table, found = "memory population", f"/{smbios.TABLE}", smbios.population(base)
    if found is None:
        return Finding(subject, UNKNOWN, f"the firmware's table, {table}, is damaged", ASK_HOST)
    modules, speed_MTs = found.modules, found.speed_MTs
    of_table = f": the {len(modules)} in its table are not real" * bool(modules)
    virtual = f"this is a virtual machine, whose host has the memory modules{of_table}"
    unknown = (
        f"{counted(found.channels, 'populated channel')} (counted {found.counted_by}), of unknown "
        "speed"
        if found.channels
        else "the system does not report which modules there are"
    )
    text = (
        f"{counted(len(modules), 'module')} ({sum(m.size_B for m in modules) / 2**30:.0f} GiB) in "
        f"{counted(found.channels, 'channel')}, counted {found.counted_by}, at {speed_MTs} MT/s"
    )
    if found.peak_GBps is not None:
        text += f": at most {found.peak_GBps:.1f} GB/s, with 64 bits in a channel"
    kinds = {(module.size_B, module.configured_MTs or module.rated_MTs) for module in modules}
    rated = max((module.rated_MTs for module in modules), default=0)
    wrong = _those_that_hold(
        (found.empty_channels, counted(found.empty_channels, "empty channel")),
        (len(kinds) > 1, "the modules differ in size or speed"),
        (rated > speed_MTs > 0, f"modules for {rated} MT/s run at {speed_MTs}"),
    )
    return first_that_holds(
        subject,
        (hypervisor, UNKNOWN, virtual, ASK_HOST),
        (not modules, UNKNOWN, unknown, f"root can read it ({table}): run it once"),
        (
            wrong,
            NOTE,
            f"{text}; {', '.join(wrong)}",
            "equip every channel with equal modules (see the board's manual), and check the speed "
            "in the firmware's setup",
        ),
        (True, GOOD, text, ""),
    )


def _memory_errors(counters: Counters, more: int | None) -> Finding:
    number = counters.get("memory_errors", 0)
    text = f"{counted(number, 'error')} of the memory corrected since the boot"
    return first_that_holds(
        "memory errors",
        _untold(more is None, "errors of the memory that were corrected (EDAC)", ASK_HOST),
        (not number, GOOD, text, ""),
        (
            True,
            BAD if more else NOTE,
            f"{text}, {more} of them while doctor measured: each delays accesses",
            "find the module (ras-mc-ctl --error-count, edac-util -v), and replace it",
        ),
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
    others = (read_text(folder, "available_clocksource") or "").split()
    better = [name for name in others if name not in (source, *_SLOW_CLOCKS)]
    advice = (
        f"as root: echo {better[0]} > /{folder.relative_to(root)}/current_clocksource"
        if better
        else "see in dmesg why the kernel rejects the processor's counter (tsc=reliable)"
    )
    return Finding("timer", state, text, {GOOD: "", UNKNOWN: SHOW_FILES}.get(state, advice))
