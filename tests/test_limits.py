"""The available memory, in Python as in the extension, and the refusal of larger requests."""

import json
import math
import re
import resource
from pathlib import Path

import checking
import pytest
from checking import refused

from memkern import _memkern, files, limits
from memkern.families.latency.kernels import structure_cases as latency_structure
from memkern.host import capacity
from memkern.limits import UNLIMITED_B, check_memory, memory_left, processor_quota, throttled_s
from memkern.machine import caches
from memkern.studies import machine_file

MOUNTS = (
    "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
)
USED = {"a/memory.current": "1200\n"}
COMMIT = {"proc/meminfo": "MemAvailable: 9 kB\nCommitLimit: 8 kB\nCommitted_AS: 3 kB\n"}
FIRST_VERSION = {
    "memory/b/memory.limit_in_bytes": "9223372036854771712\n",
    "memory/b/memory.usage_in_bytes": "1\n",
    "memory/memory.limit_in_bytes": "8000\n",
    "memory/memory.usage_in_bytes": "2000\n",
    "memory/memory.stat": "total_inactive_file 500\n",
}


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:   2048 kB\n"}, 2048 * 1024),
        ({"proc/meminfo": "MemAvailable: much kB\n"}, None),
        (USED | {"a/memory.max": "5000\n"}, 3800),
        (USED | {"a/memory.max": "max\n"}, None),
        (USED | {"a/memory.max": "500\n"}, 0),
        (USED | {"a/memory.max": "5000\n", "a/memory.stat": "anon 1\ninactive_file 700\n"}, 4500),
        ({"memory.max": "70\n", "memory.current": "20\n"}, 50),
        (FIRST_VERSION, 6500),
        (COMMIT | {"proc/sys/vm/overcommit_memory": "0\n"}, 9 * 1024),
        (COMMIT | {"proc/sys/vm/overcommit_memory": "2\n"}, 5 * 1024),
    ],
)
def test_the_smallest_limit_counts_as_in_the_extension(tmp_path, tree, expected):
    groups = {"proc/self/cgroup": "4:memory:/b\n0::/a\n", "proc/self/mounts": MOUNTS}
    groups |= {
        path if path.startswith("proc") else f"sys/fs/cgroup/{path}": text
        for path, text in tree.items()
    }
    checking.tree(tmp_path, groups)
    found, _ = memory_left(tmp_path)
    assert found == (UNLIMITED_B if expected is None else expected)
    assert found == _memkern.memory_limit(str(tmp_path))[0]


def test_an_address_space_limit_counts(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (2**62, 2**62))
    assert memory_left()[1] != "address space limit (ulimit -v)"
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1000, 1000))
    assert memory_left() == (0, "address space limit (ulimit -v)")


def test_a_limit_of_data_counts(monkeypatch):
    endless = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    most = {resource.RLIMIT_DATA: (1000, 1000)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: most.get(which, endless))
    assert memory_left()[1] == "data limit (ulimit -d)"

    def refused_call(which: int) -> tuple[int, int]:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(resource, "getrlimit", refused_call)
    assert "ulimit" not in memory_left()[1]


def test_unknown_memory_is_a_number_of_bytes(capsys, monkeypatch):
    unknown = (UNLIMITED_B, "nothing")
    endless = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(limits, "read_text", lambda root, path: None)
    monkeypatch.setattr(resource, "getrlimit", lambda which: endless)
    monkeypatch.setattr(_memkern, "memory_limit", lambda root="": unknown)
    # No size may be measured here that the memory of the tests' machine lacks.
    monkeypatch.setattr(_memkern, "measure_loads", lambda sizes_B, most_s: ([], math.nan))
    assert memory_left() == unknown
    assert capacity.from_memory(least=2**40) == 2**40
    assert capacity.measure(caches.reported(), tries=1) == {}
    assert len(machine_file._pages()) > 1
    assert latency_structure(2**25, 64, memory_left()[0])
    code, out, _ = checking.run(capsys, "info")
    assert (code, re.findall("^memory +(.*)$", out, flags=re.M)) == (0, ["unknown"])
    facts = json.loads(checking.run(capsys, "info", "--json")[1])
    assert facts["memory_available_B"] is None


def test_too_much_memory_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(limits, "memory_left", lambda: (3e9, "the test"))
    check_memory(3e9, "this")
    with refused(r"^this needs about 4 GB of memory, but the test leaves 3 GB$"):
        check_memory(4e9, "this")
    sparse = tmp_path / "sparse"
    with open(sparse, "wb") as file:
        file.truncate(5 * 10**9)
    with refused(f"^{sparse} needs about 5 GB of memory"):
        files.read(sparse)


def test_an_endless_stream_is_refused(monkeypatch):
    monkeypatch.setattr(files, "_MOST_STREAMED_B", 1000)
    with refused("^/dev/zero must be a regular file, or end after at most 1000 bytes$"):
        files.read(Path("/dev/zero"))
    assert files.read(Path("/dev/zero"), 5) == bytes(5)
    assert files.read(Path("/dev/null")) == b""


def control_groups(root: Path, tree: dict[str, str]) -> None:
    """Write the files of a machine with control groups of both versions, including `tree`."""
    mounts = (
        "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
        "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n"
    )
    found = {f"sys/fs/cgroup/{path}": text for path, text in tree.items()}
    found |= {"proc/self/cgroup": "4:cpu:/b\n0::/a\n", "proc/self/mounts": mounts}
    checking.tree(root, found)


@pytest.mark.parametrize(
    ("tree", "quota"),
    [
        ({}, None),
        ({"unified/a/cpu.max": "max 100000\n"}, None),
        ({"unified/a/cpu.max": "50000 100000\n"}, 0.5),
        ({"unified/a/cpu.max": "300000 100000\n", "unified/cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu/b/cpu.cfs_quota_us": "-1\n", "cpu/b/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/b/cpu.cfs_quota_us": "25000\n", "cpu/b/cpu.cfs_period_us": "50000\n"}, 0.5),
        ({"unified/a/cpu.max": "soon\n"}, None),
    ],
)
def test_the_smallest_quota_of_processor_time_counts(tmp_path, tree, quota):
    control_groups(tmp_path, tree)
    found_quota = processor_quota(tmp_path)
    assert (found_quota and found_quota.processors) == quota
    assert found_quota is None or found_quota.period_s in (0.1, 0.05)


@pytest.mark.parametrize(
    ("tree", "seconds"),
    [
        ({}, math.nan),
        ({"unified/a/cpu.stat": "usage_usec 7\nnr_throttled 3\nthrottled_usec 1500000\n"}, 1.5),
        ({"cpu/b/cpu.stat": "nr_periods 4\nthrottled_time 2000000000\n"}, 2.0),
        # The parent's quota stops this group together with its other groups.
        (
            {
                "unified/a/cpu.stat": "throttled_usec 1500000\n",
                "unified/cpu.stat": "throttled_usec 2500000\n",
            },
            2.5,
        ),
        ({"unified/a/cpu.stat": "throttled_usec\nthrottled_usec x\n"}, math.nan),
    ],
)
def test_the_time_for_which_quotas_stopped_processors(tmp_path, tree, seconds):
    control_groups(tmp_path, tree)
    assert throttled_s(tmp_path) == pytest.approx(seconds, nan_ok=True)
