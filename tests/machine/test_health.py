"""Findings on settings and counters, from small copies of /proc and /sys."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from checking import tree
from smbios_tables import END, TWO_CHANNELS, slot

from memkern.machine import health
from memkern.machine.environment import collect
from memkern.machine.health import (
    BAD,
    BASELINE,
    GOOD,
    NOTE,
    STATES,
    UNKNOWN,
    Finding,
    judgement,
    summary,
    timer,
)
from memkern.machine.kernel_counters import memory_counters, read_counters
from memkern.machine.smbios import TABLE

CPU = "sys/devices/system/cpu"
KERNEL = "sys/kernel/mm"
CGROUP = {
    "proc/self/cgroup": "0::/job\n",
    "proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
}
UNITS = {f"{CPU}/online": "0-3\n", "proc/self/status": "Cpus_allowed_list:\t0-3\n"}
SWAP = "Filename\tType\tSize\tUsed\tPriority\n"
DAMON = f"{KERNEL}/damon/admin/kdamonds/0"


def findings(
    root: Path,
    files: Mapping[str, str | bytes],
    before: Mapping[str, int] | None = None,
    after: Mapping[str, int] | None = None,
) -> dict[str, Finding]:
    """Return the findings on a tree of files, by subject."""
    tree(root, files)
    found = health.findings(collect(root=root), before or {}, after or {}, root=root)
    subjects = [finding.subject for finding in found]
    assert len(set(subjects)) == len(subjects)
    for finding in found:
        assert finding.state in STATES and finding.text
        assert bool(finding.advice) == (finding.state != GOOD)
    return dict(zip(subjects, found, strict=True))


# Files of settings, and trees of several cases.
CLOCK = f"{CPU}/cpu0/cpufreq"
CORES = f"{CPU}/cpu{{}}/topology/core_cpus_list"
HUGE = f"{KERNEL}/transparent_hugepage/enabled"
LARGEST = f"{KERNEL}/transparent_hugepage/hugepages-2048kB/enabled"
NEVER = "always inherit madvise [never]\n"
SMALLER = {
    HUGE: "always [madvise] never\n",
    LARGEST: "always [inherit] madvise never\n",
    f"{KERNEL}/transparent_hugepage/hugepages-64kB/enabled": "[always] inherit madvise never\n",
    f"{KERNEL}/transparent_hugepage/hugepages-128kB/enabled": NEVER,
}
POOL = f"{KERNEL}/hugepages/hugepages-2048kB/nr_hugepages"
GATHERS = f"{CPU}/vulnerabilities/gather_data_sampling"
STORES = f"{CPU}/vulnerabilities/spec_store_bypass"
BYPASS = "Mitigation: Speculative Store Bypass disabled"
RESERVED = "sys/fs/cgroup/job/hugetlb.2MB.rsvd.max"
QUOTA = "sys/fs/cgroup/job/cpu.max"
BALLOONS = "sys/bus/virtio/drivers/virtio_balloon"
EDAC = "sys/devices/system/edac/mc/mc0/dimm0"
MEMORY = {"proc/meminfo": "MemTotal: 8388608 kB\n"}
PARTITION = f"{SWAP}/dev/sda2 partition 8388604"
CLOCKS = {
    f"{CLOCK}/{name}_freq": f"{kHz}\n"
    for name, kHz in {
        "cpuinfo_max": 3700000,
        "scaling_max": 3700000,
        "scaling_cur": 3100000,
    }.items()
}
SLOWER = {f"{CLOCK}/cpuinfo_max_freq": "3700000\n", f"{CLOCK}/scaling_max_freq": "2000000\n"}
GOVERNORS = {
    f"{CLOCK}/scaling_governor": "performance\n",
    f"{CPU}/cpu1/cpufreq/scaling_governor": "powersave\n",
    f"{CPU}/cpu1/cpufreq/scaling_driver": "intel_pstate\n",
}
LIMITS = {QUOTA: "150000 100000\n", "sys/fs/cgroup/memory.max": "4000000\n"}
LIMITED = "a memory limit of 0.004 GB and a quota of 1.5 processors for 4 units"
KSM = {f"{KERNEL}/ksm/run": "1\n"}
WATCHED = {f"{DAMON}/state": "on\n"}
ACTION = f"{DAMON}/contexts/0/schemes/{{}}/action"
PAGEOUT = WATCHED | {ACTION.format(0): "pageout\n"}
MIGRATE = WATCHED | {ACTION.format(0): "stat\n", ACTION.format(1): "migrate_cold\n"}
RECLAIM = {
    "sys/module/damon_reclaim/parameters/enabled": "Y\n",
    "proc/swaps": f"{SWAP}/dev/zram0 partition 8388604 0 -2\n",
}
THREE = slot() + slot(8192, "DIMM_B1") + slot(0, "DIMM_C1") + END
COUNTED = {f"{EDAC}/dimm_location": "channel 0 slot 0\n", f"{EDAC}/size": "16384\n"}
VIRTUAL = {TABLE: TWO_CHANNELS, "proc/cpuinfo": "flags\t: fpu hypervisor\n"}


CASES = [
    ("processors", {}, UNKNOWN, "may use"),
    ("processors", UNITS, GOOD, "all 4"),
    ("processors", UNITS | {"proc/self/status": "Cpus_allowed_list:\t0,2\n"}, NOTE, "2 of 4"),
    ("governor", {}, UNKNOWN, "does not report"),
    ("governor", {f"{CLOCK}/scaling_governor": "performance\n"}, GOOD, "performance"),
    ("governor", GOVERNORS, NOTE, "performance, powersave (intel_pstate)"),
    ("frequency", {}, UNKNOWN, "limits of the clock"),
    ("frequency", CLOCKS, GOOD, "3.70 GHz, and the fastest core has 3.10 GHz"),
    ("frequency", SLOWER, NOTE, "2.00 of 3.70 GHz"),
    ("turbo", {}, UNKNOWN, "nominal"),
    ("turbo", {f"{CPU}/intel_pstate/no_turbo": "1\n"}, GOOD, "off"),
    ("turbo", {f"{CPU}/intel_pstate/no_turbo": "0\n"}, NOTE, "on"),
    ("turbo", {f"{CPU}/cpufreq/boost": "0\n"}, GOOD, "off"),
    ("turbo", {f"{CPU}/cpufreq/boost": "1\n"}, NOTE, "on"),
    ("SMT", {}, UNKNOWN, "share cores"),
    ("SMT", {f"{CPU}/smt/control": "off\n"}, GOOD, "off"),
    ("SMT", {f"{CPU}/smt/control": "notsupported\n"}, GOOD, "none"),
    ("SMT", {f"{CPU}/smt/control": "on\n"}, NOTE, "two units on a core"),
    ("SMT", UNITS | {CORES.format(i): f"{i // 2}" for i in range(4)}, NOTE, "4 units on 2 cores"),
    ("SMT", UNITS | {CORES.format(i): f"{i}" for i in range(4)}, GOOD, "none"),
    ("transparent huge pages", {}, UNKNOWN, "does not report"),
    ("transparent huge pages", {HUGE: "always [madvise] never\n"}, GOOD, "madvise"),
    ("transparent huge pages", {HUGE: "always madvise [never]\n"}, NOTE, "TLB"),
    ("transparent huge pages", SMALLER, GOOD, "madvise, always for pages of 64kB"),
    ("transparent huge pages", SMALLER | {LARGEST: NEVER}, NOTE, "never"),
    ("huge page pools", {}, UNKNOWN, "reserved"),
    ("huge page pools", MEMORY | {POOL: "0\n"}, GOOD, "0 of 2048kB"),
    ("huge page pools", MEMORY | {POOL: "3000\n"}, NOTE, "more than half"),
    ("mitigations", {}, UNKNOWN, "gathers"),
    ("mitigations", {GATHERS: "Not affected\n"}, GOOD, "Not affected"),
    ("mitigations", {GATHERS: "Unknown: Dependent on hypervisor\n"}, UNKNOWN, "gathers"),
    ("mitigations", {GATHERS: "Mitigation: Microcode\n"}, NOTE, "Mitigation: Microcode"),
    ("mitigations", {STORES: f"{BYPASS}\n"}, NOTE, "loads wait"),
    ("mitigations", {GATHERS: "Vulnerable\n", STORES: f"{BYPASS} via prctl\n"}, GOOD, "Vulnerable"),
    ("cgroup", {}, UNKNOWN, "limits"),
    ("cgroup", CGROUP, GOOD, "no limits"),
    ("cgroup", CGROUP | UNITS | {QUOTA: "400000 100000\n"}, GOOD, "4 processors for 4 units"),
    ("cgroup", CGROUP | UNITS | LIMITS, BAD, LIMITED),
    ("cgroup", CGROUP | {"sys/fs/cgroup/job/pids.max": "90\n"}, GOOD, "90 processes and threads"),
    ("cgroup", CGROUP | {RESERVED: "4194304\n"}, GOOD, "0.00419 GB of huge pages (2MB.rsvd.max)"),
    ("swap", {}, UNKNOWN, "swapped"),
    ("swap", {"proc/swaps": SWAP}, GOOD, "none"),
    ("swap", {"proc/swaps": f"{PARTITION} 0 -2\n"}, GOOD, "nothing"),
    ("swap", {"proc/swaps": f"{PARTITION} 2000000 -2\n"}, NOTE, "2.05 GB"),
    ("KSM", {}, UNKNOWN, "merged"),
    ("KSM", KSM | {f"{KERNEL}/ksm/run": "0\n"}, GOOD, "off"),
    ("KSM", KSM, NOTE, "bandwidth"),
    ("KSM", KSM | {f"{KERNEL}/ksm/pages_sharing": "77\n"}, NOTE, "77 merged pages"),
    ("DAMON", {}, UNKNOWN, "watches"),
    ("DAMON", {f"{KERNEL}/ksm/run": "0\n"}, GOOD, "off"),
    ("DAMON", {f"{DAMON}/state": "off\n"}, GOOD, "off"),
    ("DAMON", WATCHED, NOTE, "no action"),
    ("DAMON", PAGEOUT | {"proc/swaps": SWAP}, NOTE, "without swap"),
    ("DAMON", PAGEOUT | {"proc/swaps": f"{PARTITION} 0 -2\n"}, BAD, "on (pageout)"),
    ("DAMON", MIGRATE, BAD, "on (migrate_cold, stat)"),
    ("DAMON", RECLAIM, BAD, "not used for a while"),
    ("DAMON", {"sys/module/damon_lru_sort/parameters/enabled": "Y\n"}, NOTE, "marks"),
    ("balloon", {}, UNKNOWN, "hypervisor"),
    ("balloon", {f"{BALLOONS}/bind": ""}, GOOD, "none"),
    ("balloon", {f"{BALLOONS}/virtio0/x": ""}, UNKNOWN, "how much"),
    ("balloon", {"sys/module/vmw_balloon/refcnt": "0\n"}, UNKNOWN, "vmw_balloon"),
    ("memory population", {}, UNKNOWN, "which modules"),
    ("memory population", {TABLE: b"\x11\x02"}, UNKNOWN, "damaged"),
    ("memory population", {TABLE: slot(rated=2933) + END}, GOOD, "at most 23.5 GB/s"),
    ("memory population", {TABLE: TWO_CHANNELS}, NOTE, "modules for 3200 MT/s run at 2933"),
    ("memory population", {TABLE: THREE}, NOTE, "1 empty channel, the modules differ"),
    ("memory population", COUNTED, UNKNOWN, "1 populated channel (counted by EDAC)"),
    ("memory population", VIRTUAL, UNKNOWN, "the 2 in its table are not real"),
]


@pytest.mark.parametrize(
    "subject, files, state, text", CASES, ids=[f"{case[0]}-{case[2]}" for case in CASES]
)
def test_settings(subject, files, state, text, tmp_path):
    found = findings(tmp_path, files)[subject]
    assert found.state == state
    assert text in found.text


def test_every_state_of_every_setting_is_tested():
    states: dict[str, set[str]] = {}
    for subject, _, state, _ in CASES:
        states.setdefault(subject, set()).add(state)
    assert all({GOOD, UNKNOWN} <= found for found in states.values())
    never = {subject for subject, found in states.items() if not found & {NOTE, BAD}}
    # Only counters show that memory is in a balloon.
    assert never == {"balloon"}


@pytest.mark.parametrize(
    "names, value, state",
    [(("0",), "1", GOOD), (("0", "1"), "0", GOOD), (("0", "1"), "", UNKNOWN), ((), "1", NOTE)],
)
def test_numa_balancing(names, value, state, tmp_path):
    files: dict[str, str | bytes] = {
        f"sys/devices/system/node/node{name}/cpulist": name for name in names
    }
    files["proc/sys/kernel/numa_balancing"] = value
    assert findings(tmp_path, files)["NUMA balancing"].state == state


MOVED = {"proc/sys/kernel/numa_balancing": "1\n"}
BALLOON = {"sys/bus/vmbus/drivers/hv_balloon/1eccfd72-4b41/x": ""}
CORRECTED = "errors of the memory corrected"


@pytest.mark.parametrize(
    "subject, files, before, after, state, text",
    [
        ("NUMA balancing", MOVED, {"numa_pages_migrated": 5}, {"numa_pages_migrated": 5}, NOTE, ""),
        ("NUMA balancing", MOVED, {"numa_pages_migrated": 5}, {"numa_pages_migrated": 9}, BAD, "4"),
        ("cgroup", CGROUP, {"throttled": 3}, {"throttled": 3}, GOOD, "no limits"),
        ("cgroup", CGROUP, {"throttled": 3}, {"throttled": 10}, BAD, "7 times"),
        ("swap", {}, {"pswpin": 1, "pswpout": 1}, {"pswpin": 2, "pswpout": 4}, BAD, "4 pages"),
        ("memory reclaim", {}, {}, {}, UNKNOWN, "does not report"),
        ("memory reclaim", {}, {"pgsteal_kswapd": 4}, {"pgsteal_kswapd": 4}, GOOD, "none"),
        ("memory reclaim", {}, {"pgsteal_direct": 4}, {"pgsteal_direct": 44}, NOTE, "40 pages"),
        ("balloon", BALLOON, {}, {"nr_balloon_pages": 0}, GOOD, "0 GB"),
        ("balloon", BALLOON, {}, {"nr_balloon_pages": 10**6}, NOTE, "GB"),
        ("balloon", BALLOON, {}, {"balloon_inflate": 9, "balloon_deflate": 9}, GOOD, "0 GB"),
        ("balloon", BALLOON, {"balloon_inflate": 8}, {"balloon_inflate": 9}, BAD, "1 page moved"),
        ("balloon", {"sys/bus/x": ""}, {"balloon_inflate": 8}, {"balloon_inflate": 9}, GOOD, "no"),
        ("memory errors", {}, {}, {}, UNKNOWN, "does not report errors of the memory"),
        ("memory errors", {}, {"memory_errors": 0}, {"memory_errors": 0}, GOOD, f"0 {CORRECTED}"),
        ("memory errors", {}, {"memory_errors": 5}, {"memory_errors": 5}, NOTE, f"5 {CORRECTED}"),
        ("memory errors", {}, {"memory_errors": 5}, {"memory_errors": 6}, BAD, "1 of them while"),
    ],
)
def test_counters_that_grow(subject, files, before, after, state, text, tmp_path):
    found = findings(tmp_path, files, before, after)[subject]
    assert found.state == state
    assert text in found.text


def test_counters_are_read(tmp_path):
    files = {
        "proc/vmstat": "pswpin 7\nnr_free_pages 12\nbroken\nodd -1\n",
        "proc/stat": "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n",
        "sys/fs/cgroup/job/cpu.stat": "usage_usec 5\nnr_periods 9\nnr_throttled 2\n",
        "sys/fs/cgroup/cpu.stat": "nr_throttled 40\n",
    }
    assert read_counters(tree(tmp_path, CGROUP | files)) == {
        "pswpin": 7,
        "nr_free_pages": 12,
        "throttled": 42,
        "busy_ticks": 1 + 2 + 3 + 6 + 7,
    }
    assert read_counters(tmp_path / "nowhere") == {}


def test_garbage_in_any_file_is_no_error(tmp_path):
    for _, files, _, _ in CASES:
        tree(tmp_path, files)
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    for garbage in (b"", b"\xff\xfe\x00garbage", b": : :\n[[]", b"9" * 30, b"-1 -1", b"\x11" * 99):
        for path in paths:
            path.write_bytes(garbage)
        counters = read_counters(tmp_path)
        findings(tmp_path, {}, counters, counters)
    for path in paths:
        path.unlink()
        path.mkdir()
    findings(tmp_path, {}, read_counters(tmp_path), {})


@pytest.mark.parametrize(
    "source, step_s, state",
    [
        ("tsc", 20e-9, GOOD),
        ("arch_sys_counter", 40e-9, GOOD),
        ("hpet", 70e-9, BAD),
        ("acpi_pm", 300e-9, BAD),
        ("tsc", 500e-9, NOTE),
        ("", 5e-6, BAD),
        ("", math.nan, UNKNOWN),
    ],
)
def test_timers(source, step_s, state, tmp_path):
    folder = "sys/devices/system/clocksource/clocksource0"
    tree(
        tmp_path,
        {
            f"{folder}/current_clocksource": f"{source}\n",
            f"{folder}/available_clocksource": "tsc hpet acpi_pm\n",
        },
    )
    assert "takes an unknown time (disturbed)" in timer(step_s, math.nan, root=tmp_path).text
    found = timer(step_s, 4e-7, root=tmp_path)
    assert found.state == state
    assert bool(found.advice) == (state != GOOD)
    if source == "hpet":
        assert found.advice == f"as root: echo tsc > /{folder}/current_clocksource"
        (tmp_path / folder / "available_clocksource").write_text("hpet\n")
        assert "dmesg" in timer(step_s, 4e-7, root=tmp_path).advice


def test_the_verdict():
    good = Finding("swap", GOOD, "none")
    unknown = replace(good, state=UNKNOWN)
    note, bad = Finding("KSM", NOTE, "on", "off"), Finding("steal time", BAD, "9 %", "move")
    slower = Finding(BASELINE, BAD, "slower", "check")
    assert judgement([]) == judgement([good, unknown]) == "fit"
    assert judgement([good, note]) == "fit with reservations"
    assert judgement([note, bad, good]) == "disturbed"
    # A machine that is slower than before is not disturbed.
    assert judgement([good, slower]) == "fit with reservations"
    assert summary([good, slower]) == "fit with reservations: baseline"
    assert summary([bad, good, replace(bad, subject="swap")]) == "disturbed: steal time, swap"
    assert summary([good, note]) == "fit with reservations"


def test_this_machine_tells_something():
    counters = read_counters(Path("/"))
    found = health.findings(collect(), counters, read_counters(Path("/")))
    assert any(finding.state != UNKNOWN for finding in found)
    assert counters["busy_ticks"] > 0


def test_what_the_system_counts_of_its_memory(tmp_path):
    # A system that reports nothing, and one with a single node, whose pages can't move.
    assert all(math.isnan(n) for n in memory_counters(tmp_path / "nowhere").values())
    one = tree(tmp_path / "one", {"sys/devices/system/node/node0/cpulist": "0"})
    found = memory_counters(one)
    assert math.isnan(found["memory_errors"]) and found["moved_pages"] == 0
    files = {f"sys/devices/system/node/node{k}/cpulist": str(k) for k in range(2)}
    files |= {f"sys/devices/system/edac/mc/mc{k}/ce_count": str(3 + k) for k in range(2)}
    files |= {"proc/vmstat": "pswpin 7\nnuma_pages_migrated 12\n"}
    root = tree(tmp_path / "two", files)
    assert memory_counters(root) == {"memory_errors": 7, "moved_pages": 12}
    assert read_counters(root)["memory_errors"] == 7
