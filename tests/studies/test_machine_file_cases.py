"""Cases from which a machine file is made, for machines other than this one."""

import pytest

from memkern.models.machine_file import Quantity
from memkern.studies import machine_file
from memkern.studies.machine_file import _difference, domains_of, levels_of, saturating_cores

KIB, MIB = 2**10, 2**20


def cache(level, size_B, shared_by, kind="unified"):
    return {"level": level, "type": kind, "size_B": size_B, "shared_by": shared_by}


def epyc(threads_per_core=1):
    """Return a machine of 96 cores: twelve L3 caches of eight cores, four NUMA nodes."""
    nodes = [
        {"node": n, "cpus": f"{24 * n}-{24 * n + 23},{96 + 24 * n}-{119 + 24 * n}"}
        for n in range(4)
    ]
    return {
        "caches": [
            cache(3, 32 * MIB, 8 * threads_per_core),
            cache(1, 32 * KIB, threads_per_core, "data"),
            cache(1, 32 * KIB, threads_per_core, "instruction"),
            cache(2, 512 * KIB, threads_per_core),
        ],
        "numa_nodes": nodes,
    }


@pytest.mark.parametrize("threads_per_core", [1, 2])
def test_levels_are_shared_by_cores(threads_per_core):
    levels = levels_of({"machine": epyc(threads_per_core)}, range(96))
    assert [(level.name, level.shared_by) for level in levels] == [
        ("L1", 1), ("L2", 1), ("L3", 8), ("memory", 24)
    ]  # fmt: skip
    # A batch system gave only four cores to this process.
    few = levels_of({"machine": epyc(threads_per_core)}, range(4))
    assert [level.shared_by for level in few] == [1, 1, 4, 4]


def test_of_several_kinds_of_caches_a_core_has_the_smallest_share():
    machine = {
        "caches": [
            cache(1, 48 * KIB, 2, "data"),
            cache(1, 32 * KIB, 1, "data"),
            cache(2, 1280 * KIB, 2),
            cache(2, 2 * MIB, 4),
            cache(3, 16 * MIB, 8),
        ]
    }
    for caches in (machine["caches"], machine["caches"][::-1]):
        levels = levels_of({"machine": {"caches": caches}}, range(6))
        assert [(level.size_B, level.shared_by) for level in levels] == [
            (32 * KIB, 1), (2 * MIB, 4), (16 * MIB, 6), (None, 6)
        ]  # fmt: skip


def test_only_nodes_with_cores_of_this_process_are_domains():
    machine = epyc()
    assert domains_of(machine, range(96)) == 4
    assert domains_of(machine, range(24)) == 1
    assert domains_of(machine, range(20, 30)) == 2
    # Memory behind a link has no cores.
    machine["numa_nodes"].append({"node": 4, "cpus": None})
    assert domains_of(machine, range(96)) == 4
    assert domains_of({"numa_nodes": None}, range(96)) == 1


def test_cores_that_share_a_cache_fill_half_of_it_at_most():
    *_, third, memory = levels_of({"machine": epyc()}, range(96))
    assert third.used_B(1) <= third.used_B(8) <= 16 * MIB
    assert third.used_B(16) == pytest.approx(2 * third.used_B(8))
    assert third.used_B(96) == pytest.approx(12 * third.used_B(8))
    assert memory.shared_by == 24


def test_memory_exceeds_the_caches_of_its_cores(monkeypatch):
    monkeypatch.setattr(machine_file, "beyond_caches_B", lambda: 4 * 1024 * MIB)
    machine = {"caches": [cache(1, 32 * KIB, 1), cache(3, 512 * MIB, 64)]}
    memory = levels_of({"machine": machine}, range(128))[-1]
    assert memory.used_B(1, 512 * MIB) == 4 * 512 * MIB
    assert memory.used_B(128) == 4 * 1024 * MIB
    machine["caches"][1]["size_B"] = 16 * MIB
    few = levels_of({"machine": machine}, range(128))[-1]
    assert few.used_B(1, 512 * MIB) == 512 * MIB


def test_bandwidths_of_whole_caches_and_domains_are_measured():
    levels = levels_of({"machine": epyc(2)}, range(96))
    cases = machine_file._bandwidths(levels, range(96))
    counts = {}
    for (what, (level, operation, stores, count)), case in cases.items():
        assert case.knobs.threads == count and case.knobs.pin.count(",") == count - 1
        if what == "bandwidth":
            counts.setdefault((level, operation, stores), []).append(count)
    assert counts["L1", "load", ""] == counts["L2", "copy", "ordinary"] == [1, 96]
    assert counts["L3", "load", ""] == [1, 2, 4, 8, 96]
    assert counts["L3", "store", "non-temporal"] == [1, 8, 96]
    assert counts["memory", "load", ""] == [1, 2, 4, 8, 16, 24, 96]
    assert counts["memory", "copy", "ordinary"] == [1, 24, 96]


def test_cores_that_saturate_are_those_of_one_domain():
    rates = {1: 20.0, 2: 38.0, 4: 60.0, 8: 97.0, 16: 100.0, 24: 101.0}
    assert saturating_cores(rates) == 8
    assert saturating_cores({1: 20.0, 2: 40.0}) is None
    assert saturating_cores({1: 20.0}) is None


def test_a_chase_that_memory_cannot_hold_is_reported(monkeypatch):
    def build(kernel, *, size_B, **options):
        if size_B > 100 * MIB:
            raise machine_file.InputError("too large")
        return size_B

    monkeypatch.setattr(machine_file, "kernel_case", build)
    monkeypatch.setattr(machine_file, "beyond_caches_B", lambda: 4 * 12 * 32 * MIB)
    cases, too_large = machine_file._latencies(levels_of({"machine": epyc()}, range(96)))
    assert {key.values[0] for key in cases} == {"L1", "L2", "L3"}
    assert {key.values[0] for key in too_large} == {"memory"}
    assert set(too_large.values()) == {"too large"}


def test_no_difference_of_times_is_negative():
    """A time that is shorter with the barrier than without met another state of the host."""
    without = Quantity(300.0, 250.0, 400.0)
    found = _difference(Quantity(340.0, 200.0, 420.0), without)
    assert found.value == 40.0 and found.low == 0.0 and found.high > 100
    assert not _difference(Quantity(162.0, 100.0, 200.0), without).known
