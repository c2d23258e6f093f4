"""Code that depends on the machine, on each described machine (tests/machines.py)."""

import dataclasses
import math
import os
import warnings
from collections import Counter

import pytest
from checking import refused
from machines import MACHINES, described

import memkern as mk
from memkern import _memkern, small
from memkern.engine.sampling import prepared
from memkern.host import capacity
from memkern.host import environment as host_environment
from memkern.limits import Quota
from memkern.machine import caches, topology
from memkern.models.layer_conditions import shares


def test_the_described_machine_replaces_this_one_until_the_block_ends():
    before = _memkern.topology()
    for machine in MACHINES.values():
        with described(machine):
            assert os.sched_getaffinity(0) == set(_memkern.topology()["units"])
    assert _memkern.topology() == before
    with pytest.raises(ValueError, match="hwloc refused the described topology 'two cores'"):
        _memkern.describe_machine("two cores")
    with pytest.raises(ValueError, match="kinds has more values than there are cores"):
        _memkern.describe_machine("core:2 pu:1", kinds=[0, 0, 0])
    assert _memkern.topology() == before


@pytest.mark.usefixtures("this_machine")
def test_this_machine_is_read():
    found = _memkern.topology()
    assert set(found["units"]) == os.sched_getaffinity(0)
    assert found["cores"] >= 1 and found["packages"] >= 1 and found["numa_nodes"]
    assert len(found["core_of_unit"]) == len(found["core_kinds"]) == len(found["units"])
    assert all(c["size_B"] > 0 and c["instances"] >= 1 for c in found["caches"])
    # Sizes that the system reports by another interface.
    reported = {
        c["level"]: c["system_B"]
        for c in caches.data_caches(host_environment.machine_environment())
    }
    assert {c["level"]: c["size_B"] for c in found["caches"]} == reported or not reported


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        # units, cores, sockets, NUMA nodes
        ("large cache", (2, 2, 1, 1)),
        ("efficiency cores", (8, 8, 1, 1)),
        ("NUMA clusters", (64, 32, 2, 4)),
        ("256 units", (256, 128, 2, 2)),
        ("large pages", (48, 48, 1, 4)),
        ("one unit", (1, 1, 1, 1)),
    ],
)
def test_units_cores_and_nodes_are_counted(name, counts):
    with described(MACHINES[name]):
        found = _memkern.topology()
        nodes = topology.numa_nodes()
        described_here = host_environment.machine_environment()["machine"]
        assert topology.workers_of("cpu") == counts[0]
    assert (len(found["units"]), found["cores"], found["packages"], len(nodes)) == counts
    assert [described_here[k] for k in ("threads", "cores", "sockets")] == list(counts[:3])


def test_each_unit_has_one_cache_of_each_level(machine):
    found = _memkern.topology()
    for cache in found["caches"]:
        assert cache["instances"] * cache["shared_by"] == len(found["units"])
        assert cache["line_B"] == machine.line_B
    assert caches.line_B() == machine.line_B
    last = found["caches"][-1]
    assert found["last_level_cache_B"] == last["instances"] * last["size_B"]
    # The size is rounded up to a power of two.
    assert 1 <= capacity.last_level_cache_B() / found["last_level_cache_B"] < 2
    assert capacity.last_level_cache_B().bit_count() == 1


def test_workers_are_placed_close_together_or_far_apart(machine):
    found = _memkern.topology()
    cores = dict(zip(found["units"], found["core_of_unit"], strict=True))
    workers = min(2, len(cores))  # more would share units on small machines
    chosen = {
        pin: [int(unit) for unit in prepared.obtained["pin"].split(",")]
        for pin in ("compact", "spread")
        for prepared in [mk.stream("copy", elements=64, threads=workers, pin=pin).prepare()]
    }
    assert chosen["compact"] == found["units"][:workers]
    assert len(set(chosen["spread"])) == workers
    # Spread workers share a core only if there are fewer cores than workers.
    used = Counter(cores[unit] for unit in chosen["spread"])
    assert len(used) == min(workers, found["cores"])
    if workers > 1 and found["packages"] > 1:
        half = len(cores) // 2
        assert {unit < half for unit in chosen["spread"]} == {True, False}


def test_a_unit_of_another_machine_is_refused(machine):
    absent = len(_memkern.topology()["units"])
    with refused(f"pin names processing unit {absent}, which"):
        mk.stream("copy", elements=64, threads=1, pin=str(absent)).prepare()


def test_data_in_memory_exceed_the_caches(machine):
    cache_B = capacity.last_level_cache_B()
    assert capacity.beyond_caches_B() >= max(caches.MULTIPLE * cache_B, 2**26)
    for kernel in ("stream.triad", "loops.load"):
        array_B = 8 * mk.case(kernel).integers["elements"]
        assert array_B >= max(caches.MULTIPLE * cache_B, 8 * 10**6)


def test_more_memory_than_the_machine_has_is_refused(machine):
    available_B, source = _memkern.memory_limit()
    if machine.memory_B is not None:
        assert (available_B, source) == (machine.memory_B, "available memory")
    with pytest.raises(MemoryError, match="use smaller sizes") as caught:
        mk.stream("copy", footprint_B=2.0 * available_B, threads=1).prepare()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("numa", "node", "most_B"),
    [
        ("node:1", "memory of NUMA node 1 leaves 0.053 GB", 1e8),
        ("interleave", "node 1, which", 4.5e8),
    ],
)
def test_more_memory_than_a_node_has_is_refused(numa, node, most_B):
    clusters = MACHINES["NUMA clusters"]
    few_B = 12 * 10**7
    with described(dataclasses.replace(clusters, nodes_B=(4 * 10**9, few_B, 10**9, 10**9))):
        for where in ("first-touch", "node:0"):
            mk.stream("copy", footprint_B=most_B, threads=1, numa=where).prepare()
        with pytest.raises(MemoryError, match="use smaller sizes") as caught:
            mk.stream("copy", footprint_B=most_B, threads=1, numa=numa).prepare()
        assert node in str(caught.value)
        mk.stream("copy", footprint_B=1e7, threads=1, numa=numa).prepare()


def test_pages_of_4_kib_are_obtained_where_they_are_the_smallest(machine):
    case = mk.stream("copy", elements=512, threads=1, pages="4k")
    if machine.page_B > 4096:
        with refused(f"pages '4k' are not available: this machine's base page has {2**16} bytes"):
            case.prepare()
    else:
        assert case.prepare().run(1) > 0


def test_instruction_sets_are_those_of_the_machine(machine):
    with described(None):
        every = topology.supported_isas()
    found = topology.supported_isas()
    assert found[-1] == "baseline"
    widest = machine.widest_isa
    assert found == (every[every.index(widest) :] if widest in every else every)
    case = mk.stream("copy", elements=64, threads=1)
    assert {isa for _, isa in case.prepare().native.candidates()} <= set(found)


def test_workers_share_the_caches_of_a_level(machine):
    found = _memkern.topology()
    workers = len(found["units"])
    per_core = Counter(found["core_of_unit"]).most_common(1)[0][1]
    known = {share.name: share for share in shares(capacity.data_caches(), workers)}
    assert list(known) == [f"L{cache['level']}" for cache in found["caches"]]
    for cache in found["caches"]:
        assert known[f"L{cache['level']}"].workers == cache["shared_by"]
        assert known[f"L{cache['level']}"].size_B == cache["size_B"]
    assert known["L1"].workers == per_core


def with_memory(monkeypatch: pytest.MonkeyPatch, left_B: float) -> None:
    """Set the memory that is left on a machine whose caches have 300 MiB."""
    monkeypatch.setattr(capacity, "last_level_cache_B", lambda: 300 * 2**20)
    monkeypatch.setattr(capacity, "memory_left", lambda: (left_B, "the limit of a test"))


def test_default_sizes_are_four_times_the_caches_where_memory_suffices(monkeypatch):
    with_memory(monkeypatch, 2.0**35)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert capacity.from_memory() == 4 * 300 * 2**20 == capacity.beyond_caches_B()
        assert capacity.from_memory(8, 24) == 4 * 300 * 2**20 // 8
    with_memory(monkeypatch, math.inf)
    assert capacity.from_memory(least=2**40) == 2**40


@pytest.mark.parametrize(
    ("left_B", "parts", "size_B", "held"),
    [(2e9, 1, 2**29, False), (1e9, 2, 2**27, True), (4e8, 1, 2**27, True), (1.0, 1, 1, True)],
)
def test_default_sizes_fit_a_small_memory(monkeypatch, left_B, parts, size_B, held):
    with_memory(monkeypatch, left_B)
    with pytest.warns(UserWarning, match=r"limited by the limit of a test\)") as caught:
        assert capacity.beyond_caches_B(parts) == size_B
    assert ("not from memory" in str(caught[0].message)) == held


@pytest.mark.parametrize("left_B", [4e8, 1e9, 2e9])
def test_cases_of_default_sizes_fit_a_small_memory(monkeypatch, left_B):
    monkeypatch.delenv(small.VARIABLE, raising=False)
    with_memory(monkeypatch, left_B)
    for make, element_B in (
        (lambda: mk.stream("copy"), 16),
        (lambda: mk.stream("rotation"), 24),
        (lambda: mk.loops("stencil"), 16),
        (lambda: mk.raider("copy", dtype="float32"), 8),
        (lambda: mk.raider("gather_copy"), 32),
    ):
        with pytest.warns(UserWarning, match="MB by default"):
            case = make()
        assert left_B / 4 <= case.columns["elements"] * element_B * 1.01
        assert case.columns["elements"] * element_B <= left_B / 2
    with pytest.warns(UserWarning, match="MB by default"):
        chain = mk.latency()
    assert chain.columns["size_B"] * 1.5 <= left_B / 2


@pytest.mark.parametrize(
    ("quota", "workers"), [(None, 64), (0.5, 1), (1.5, 1), (8.0, 8), (63.9, 63), (64.0, 64)]
)
def test_defaults_have_as_many_workers_as_a_quota_carries(monkeypatch, quota, workers):
    found = None if quota is None else Quota(quota, 0.1)
    monkeypatch.setattr(topology, "processor_quota", lambda: found)
    with described(MACHINES["NUMA clusters"]):
        assert topology.workers_of("cpu") == workers
        assert topology.workers_by_quota() == (0 if workers == 64 else workers)


def test_cases_of_default_threads_keep_to_a_quota(monkeypatch):
    monkeypatch.setattr(topology, "processor_quota", lambda: Quota(1.5, 0.1))
    prepared._warn_once.cache_clear()
    with described(MACHINES["large cache"]):
        with pytest.warns(
            UserWarning, match=r"quota of 1\.5 of 2 processors: cases have 1 thread by"
        ):
            assert mk.stream("copy", elements=64).prepare().obtained["threads"] == 1
        assert mk.stream("copy", elements=64, threads=2).prepare().obtained["threads"] == 2
        assert mk.stream("copy", elements=64, pin="0,1").prepare().obtained["threads"] == 2
