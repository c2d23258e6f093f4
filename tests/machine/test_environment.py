"""Environments, read from small copies of /proc and /sys and from this machine."""

import json
import math
import os

import pytest
from checking import python, tree
from machines import PROCESSORS

from memkern import _memkern
from memkern.machine.environment import (
    collect,
    differences,
    folios,
    identity,
    machine_label,
    platform_label,
    read_steal_s,
)

CPUINFO = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz
stepping\t: 7
microcode\t: 0x5003707
flags\t\t: fpu vme sse2 hypervisor avx512f

processor\t: 1
model name\t: another
"""


@pytest.fixture
def server(tmp_path):
    """Two sockets of two cores with two threads each, in a limited control group."""
    cpu = "sys/devices/system/cpu"
    files = {
        "proc/cpuinfo": CPUINFO,
        "proc/meminfo": "MemTotal:       1000 kB\nMemFree: 10 kB\nMemAvailable:   600 kB\n",
        "proc/sys/kernel/osrelease": "6.1.0-9-amd64\n",
        "proc/sys/kernel/numa_balancing": "1\n",
        "proc/sys/kernel/randomize_va_space": "2\n",
        "proc/sys/vm/overcommit_memory": "0\n",
        "proc/loadavg": "0.50 0.25 0.10 1/100 4242\n",
        "proc/stat": "cpu  1 2 3 4 5 6 7 800 9 10\ncpu0 1 2 3 4 5 6 7 400 9 10\n",
        "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-3,6\n",
        "proc/self/cgroup": "0::/jobs/one\n",
        "proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\nbroken\n",
        "sys/fs/cgroup/memory.max": "max\n",
        "sys/fs/cgroup/jobs/memory.max": "4096\n",
        "sys/fs/cgroup/jobs/one/memory.max": "8192\n",
        "sys/fs/cgroup/jobs/one/cpu.max": "150000 100000\n",
        "etc/os-release": 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
        f"{cpu}/online": "0-7\n",
        f"{cpu}/smt/control": "on\n",
        f"{cpu}/vulnerabilities/gather_data_sampling": "Mitigation: Microcode\n",
        f"{cpu}/vulnerabilities/meltdown": "Not affected\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/kernel/mm/transparent_hugepage/defrag": "[always] defer madvise never\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "64\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages": "0\n",
        "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
        "sys/class/dmi/id/product_name": "m5.metal\n",
    }
    for i in range(8):
        core, socket = i % 4, i % 4 // 2
        files[f"{cpu}/cpu{i}/topology/physical_package_id"] = str(socket)
        files[f"{cpu}/cpu{i}/topology/core_cpus_list"] = f"{core},{core + 4}"
        files[f"{cpu}/cpu{i}/cpufreq/scaling_governor"] = "performance\n"
        files[f"{cpu}/cpu{i}/cpufreq/scaling_driver"] = "intel_pstate\n"
        for index, (level, kind, size, shared) in enumerate(
            [
                (1, "Data", "32K", f"{core},{core + 4}"),
                (1, "Instruction", "32K", f"{core},{core + 4}"),
                (2, "Unified", "1024K", f"{core},{core + 4}"),
                (3, "Unified", "36608K", "0-1,4-5" if socket == 0 else "2-3,6-7"),
            ]
        ):
            folder = f"{cpu}/cpu{i}/cache/index{index}"
            files[f"{folder}/level"] = f"{level}\n"
            files[f"{folder}/type"] = f"{kind}\n"
            files[f"{folder}/size"] = f"{size}\n"
            files[f"{folder}/coherency_line_size"] = "64\n"
            files[f"{folder}/ways_of_associativity"] = "11\n"
            files[f"{folder}/shared_cpu_list"] = f"{shared}\n"
    for i in (0, 1):
        files[f"sys/devices/system/node/node{i}/cpulist"] = "0-1,4-5" if i == 0 else "2-3,6-7"
        files[f"sys/devices/system/node/node{i}/meminfo"] = f"Node {i} MemTotal:  500 kB\n"
    return tree(tmp_path, files)


def test_machine(server):
    machine = collect(root=server)["machine"]
    assert machine["model"] == "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"
    assert (machine["vendor"], machine["microcode"]) == ("GenuineIntel", "0x5003707")
    assert (machine["sockets"], machine["cores"], machine["threads"]) == (2, 4, 8)
    assert machine["memory_B"] == 1000 * 1024
    assert machine["hypervisor"] == "Amazon EC2 m5.metal"
    assert [
        (c["level"], c["type"], c["size_B"], c["shared_by"], c["instances"])
        for c in machine["caches"]
    ] == [
        (1, "data", 32768, 2, 4),
        (1, "instruction", 32768, 2, 4),
        (2, "unified", 1 << 20, 2, 4),
        (3, "unified", 36608 << 10, 4, 2),
    ]
    assert machine["caches"][0]["line_B"] == 64
    assert machine["units"] == "0,4,1,5,2,6,3,7"
    assert machine["numa_nodes"][1] == {"node": 1, "cpus": "2-3,6-7", "memory_B": 500 * 1024}


def test_settings_and_system(server):
    environment = collect({"compiler": "GCC 12.2", "flags": "-O3"}, root=server)
    settings = environment["settings"]
    assert settings["thp"] == {"enabled": "madvise", "defrag": "always", "sizes": None}
    assert settings["hugepages"] == {"2048kB": {"reserved": 64, "overcommit": 0}}
    assert (settings["governor"], settings["frequency_driver"]) == ("performance", "intel_pstate")
    assert (settings["smt"], settings["numa_balancing"]) == ("on", 1)
    assert settings["mitigations"]["gather_data_sampling"] == "Mitigation: Microcode"
    assert settings["mitigations"]["mds"] is None
    assert environment["run"]["cpus_allowed"] == "0-3,6"
    limits = {"memory_limit_B": 4096, "cpus": 1.5, "processes": None, "hugetlb_B": None}
    assert settings["cgroup"] == limits
    assert environment["os"]["kernel"] == "6.1.0-9-amd64"
    assert environment["os"]["distribution"] == "Debian GNU/Linux 12 (bookworm)"
    assert environment["build"] == {"compiler": "GCC 12.2", "flags": "-O3"}
    assert environment["run"]["load"] == [0.5, 0.25, 0.1]
    assert environment["run"]["memory_available_B"] == 600 * 1024
    assert environment["run"]["time"].endswith("+00:00")


def test_older_control_groups(server):
    tree(
        server,
        {
            "proc/self/cgroup": "4:memory:/a\n3:cpuset:/\n1:cpu,cpuacct:/b\n0::/\n",
            "proc/self/mounts": (
                "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
                "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n"
            ),
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "12288\n",
            "sys/fs/cgroup/cpu/b/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu/b/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    found = collect(root=server)["settings"]["cgroup"]
    assert (found["memory_limit_B"], found["cpus"]) == (12288, 2.0)
    tree(server, {"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n"})
    assert collect(root=server)["settings"]["cgroup"]["memory_limit_B"] is None


def test_limits_of_pages_and_processes_are_settings_that_a_comparison_names(server):
    before = collect(root=server)
    thp, group = "sys/kernel/mm/transparent_hugepage", "sys/fs/cgroup/jobs/one"
    tree(
        server,
        {
            f"{thp}/hugepages-64kB/enabled": "[always] inherit madvise never\n",
            f"{thp}/hugepages-2048kB/enabled": "always [inherit] madvise never\n",
            f"{thp}/hugepages-128kB/enabled": "always inherit madvise [never]\n",
            f"{group}/pids.max": "300\n",
            "sys/fs/cgroup/pids.max": "max\n",
            f"{group}/hugetlb.2MB.max": "max\n",
            f"{group}/hugetlb.2MB.rsvd.max": "4194304\n",
            "proc/sys/vm/overcommit_ratio": "50\n",
            "proc/self/limits": (
                "Limit                     Soft Limit           Hard Limit           Units\n"
                "Max data size             1000                 unlimited            bytes\n"
                "Max address space         unlimited            unlimited            bytes\n"
                "Max processes             95000                95000                processes\n"
            ),
        },
    )
    after = collect(root=server)
    assert [*after["settings"]["thp"]["sizes"]] == ["64kB", "128kB", "2048kB"]
    assert folios(after["settings"]) == {"64kB": "always", "128kB": "never", "2048kB": "madvise"}
    assert folios(before["settings"]) == {"": "madvise"}
    assert folios({}) == {}
    assert {
        "settings.thp.sizes.64kB: nothing -> always",
        "settings.cgroup.processes: nothing -> 300",
        "settings.cgroup.hugetlb_B.2MB.rsvd.max: nothing -> 4194304",
        "settings.limits.data_size: nothing -> 1000",
        "settings.overcommit_ratio: nothing -> 50",
    } < {*differences(before, after)}
    assert after["settings"]["limits"] == {"data_size": 1000}  # the system derives the others


def test_processors_with_different_settings(server):
    tree(
        server,
        {"sys/devices/system/cpu/cpu7/cpufreq/scaling_governor": "powersave\n"}
        | {f"sys/devices/system/cpu/cpu{i}/cache/index0/size": "48K\n" for i in (3, 7)},
    )
    environment = collect(root=server)
    assert environment["settings"]["governor"] == "performance, powersave"
    sizes = {c["size_B"]: c["instances"] for c in environment["machine"]["caches"][:2]}
    assert sizes == {32768: 3, 49152: 1}


@pytest.mark.parametrize(
    ("text", "model", "short"),
    [
        ("model name\t: AMD EPYC 9654 96-Core Processor\n", None, "AMD EPYC 9654"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd40\n", "Arm Neoverse V1", None),
        ("CPU implementer\t: 0x99\nCPU part\t: 0x1\n", "Arm implementer 0x99 part 0x1", None),
        ("CPU implementer\t: many\nCPU part\t: few\n", "Arm implementer many part few", None),
        ("cpu\t\t: POWER9, altivec\n", "POWER9, altivec", None),
    ],
)
def test_models_and_labels(tmp_path, text, model, short):
    environment = collect(root=tree(tmp_path, {"proc/cpuinfo": text}))
    assert model is None or environment["machine"]["model"] == model
    assert platform_label(environment, 2) == f"{short or model}, 2 threads"


def test_labels_of_incomplete_environments(server):
    assert platform_label(collect(root=server), 1) == "Intel Xeon Platinum 8259CL, 1 thread"
    assert platform_label({}, 4) == "unknown processor, 4 threads"
    assert platform_label({"machine": {"architecture": "riscv64"}}, 4) == "riscv64, 4 threads"


@pytest.mark.parametrize("machine", ["AMD EPYC", "a rank, 2 ranks of X", "nocona"])
def test_labels_of_machines_have_no_threads_and_ranks(machine):
    for more in (
        "",
        ", 1 thread",
        ", 2 threads",
        ", 2 threads a rank, 16 ranks",
        " a rank, 2 ranks",
    ):
        assert machine_label(machine + more) == machine


def leaves(value):
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    return [value]


def test_an_empty_tree_gives_no_values_and_no_error(tmp_path):
    environment = collect(root=tmp_path)
    machine = environment["machine"] | {"architecture": None}
    assert set(leaves(machine)) == {None}
    assert set(leaves(environment["settings"])) == {None}
    assert environment["os"]["kernel"] is None
    assert environment["build"] == {}
    assert math.isnan(read_steal_s(root=tmp_path))


def test_garbage_in_any_file_raises_no_error(server):
    files = [path for path in server.rglob("*") if path.is_file()]
    for garbage in (b"", b"\xff\xfe\x00garbage", b": : :\n[[]", b"9" * 30, b"-1 -1"):
        for path in files:
            path.write_bytes(garbage)
        json.dumps(collect(root=server), allow_nan=False)
        read_steal_s(root=server)
    for path in files:
        path.unlink()
        path.mkdir()
    assert collect(root=server)["machine"]["model"] is None


def test_identity_depends_on_what_affects_measurements(server):
    before = collect({"commit": "abc"}, root=server)
    tree(
        server,
        {
            "proc/loadavg": "9.00 9.00 9.00 1/100 4242\n",
            "proc/meminfo": "MemTotal: 1004 kB\nMemAvailable: 5 kB\n",
        },
    )
    later = collect({"commit": "abc"}, root=server)
    assert later != before
    assert identity(later) == identity(before)
    assert differences(before, later) == []
    tree(server, {"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n"})
    (server / "sys/devices/system/cpu/vulnerabilities/meltdown").unlink()
    changed = collect({"commit": "abd", "flags": "-O2"}, root=server)
    assert identity(changed) != identity(before)
    assert differences(before, changed) == [
        "build.commit: abc -> abd",
        "build.flags: nothing -> -O2",
        "settings.mitigations.meltdown: Not affected -> nothing",
        "settings.thp.enabled: madvise -> always",
    ]


@pytest.mark.usefixtures("this_machine")
def test_pinning_does_not_make_another_environment():
    before, allowed = collect(), os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        pinned = collect()
    finally:
        os.sched_setaffinity(0, allowed)
    assert pinned["run"]["cpus_allowed"] == str(min(allowed))
    assert differences(before, pinned) == []


@pytest.mark.usefixtures("this_machine")
@pytest.mark.parametrize(
    "name, value", [("OMP_PROC_BIND", "true"), ("GOMP_CPU_AFFINITY", str(PROCESSORS[0]))]
)
def test_the_openmp_runtime_hides_no_unit(name, value):
    program = "from memkern import _memkern; print(*_memkern.topology()['units'])"
    done = python("-c", program, env={**os.environ, name: value})
    assert done.stdout.split() == [str(unit) for unit in _memkern.topology()["units"]]


def test_identity_survives_json(server):
    environment = collect(
        {"versions": {"hwloc": "2.9"}, "targets": ("avx2", "avx512")}, root=server
    )
    loaded = json.loads(json.dumps(environment))
    assert identity(loaded) == identity(environment)
    assert differences(loaded, environment) == []
    assert len(identity(environment)) == 16
    assert int(identity(environment), 16) >= 0
    assert differences({}, {}) == []


def test_stolen_time_is_read_in_seconds(server):
    ticks = os.sysconf("SC_CLK_TCK")
    assert read_steal_s(root=server) == 800 / ticks
    tree(server, {"proc/stat": "cpu  1 2 3 4 5 6 7 950 9 10\n"})
    assert read_steal_s(root=server) == 950 / ticks
    tree(server, {"proc/stat": "cpu  1 2 3\n"})
    assert math.isnan(read_steal_s(root=server))
