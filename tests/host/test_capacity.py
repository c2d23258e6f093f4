"""Capacity of the last-level caches by times of loads, and default sizes based on it."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from checking import output_of
from machines import MACHINES, described

import memkern as mk
from memkern import _memkern
from memkern.engine.placing import costs
from memkern.host import Host, capacity, file, this_host
from memkern.host.environment import machine_environment
from memkern.limits import UNLIMITED_B
from memkern.machine import caches, environment
from memkern.machine.environment import differences, identity
from memkern.models.memory import FromMemory, in_memory

MIB = 2**20
SIZES = [2**power for power in range(20, 31)]
MEMORY_S = 120e-9
REPORTED_B = 300 * 10**6


def times(
    sizes_B: Sequence[int], held_B: float, walk_s: float = 0.0, noise: float = 0.0
) -> list[float]:
    """Return seconds of loads from a smaller cache, a cache of `held_B`, and memory.

    Page walks take up to `walk_s` above 8 MiB; every second value is larger by `noise`.
    """
    found = []
    for number, size_B in enumerate(sizes_B):
        inner, held = (min(part / size_B, 1.0) for part in (2 * MIB, held_B))
        loads_s = inner * 5e-9 + (held - inner) * 25e-9 + (1 - held) * MEMORY_S
        walks_s = walk_s * (1 - min(8 * MIB / size_B, 1.0))
        found.append((loads_s + walks_s) * (1 + noise * (number % 2)))
    return found


def pass_time(**changes: Any) -> None:
    """Let the capacity have been measured 100 s ago, with other values."""
    known = this_host().caches
    assert known is not None
    this_host().keep_caches(known._replace(tried_s=known.tried_s - 100, **changes))


def grown(footprint_B: float) -> bool:
    """Return whether caches have come to hold more than half of a case, measured again if due."""
    capacity.refresh(footprint_B, this_host())
    return capacity.capacity().has_grown(footprint_B)


@pytest.fixture
def holds(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], list[list[int]]]:
    """Let caches hold less than the reported 300 MB; return the sizes that are loaded."""

    def hold(held_B: float) -> list[list[int]]:
        looked_at: list[list[int]] = []

        def measure_loads(sizes_B: list[int], most_s: float) -> tuple[list[float], float]:
            assert 0 < most_s <= 3
            looked_at.append(sizes_B)
            return times(sizes_B, held_B), MEMORY_S

        monkeypatch.setattr(_memkern, "measure_loads", measure_loads)
        monkeypatch.setattr(capacity, "measure", MEASURE)
        capacity._measured.cache_clear()
        return looked_at

    return hold


with described(None):
    MEASURE, THIS_MACHINE = capacity.measure, environment.this_machine


@pytest.fixture
def large_cache() -> Any:
    with described(MACHINES["large cache"]):
        yield
    capacity._measured.cache_clear()


@pytest.mark.parametrize("held_MiB", [3, 5, 8, 11, 20, 32, 48, 100, 190])
@pytest.mark.parametrize("walk_s", [0.0, 20e-9])
@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("memory_s", [MEMORY_S, math.nan])
def test_a_part_of_a_cache_is_found(held_MiB, walk_s, noise, memory_s):
    found_B = capacity.held_B(
        SIZES, times(SIZES, held_MiB * MIB, walk_s, noise), memory_s, REPORTED_B
    )
    assert found_B is not None
    # Increments between neighbouring sizes differ by several times the noise.
    assert 1 / (1.25 + 6 * noise) <= found_B / (held_MiB * MIB) <= 1.25 + 6 * noise


@pytest.mark.parametrize("held_MiB", [260, 300, 340])
def test_a_whole_cache_has_the_size_of_the_system(held_MiB):
    assert capacity.held_B(SIZES, times(SIZES, held_MiB * MIB), MEMORY_S, REPORTED_B) == REPORTED_B


@pytest.mark.parametrize(
    "seconds",
    [
        [],
        [20e-9, 100e-9],
        times(SIZES, 100 * MIB)[:6],  # time suffices only for sizes that the cache holds
        [0.0] * len(SIZES),
    ],
)
@pytest.mark.parametrize("memory_s", [MEMORY_S, math.nan])
def test_times_without_an_end_of_a_cache_show_nothing(seconds, memory_s):
    assert capacity.held_B(SIZES, seconds, memory_s, REPORTED_B) is None


def test_a_cache_that_holds_all_sizes_is_not_mistaken_for_memory():
    seconds = times(SIZES, 2**40)
    assert capacity.held_B(SIZES, seconds, MEMORY_S, REPORTED_B) is None
    # If the latency of memory is unknown, a plateau faster than any memory is no memory either.
    assert capacity.held_B(SIZES, seconds, math.nan, REPORTED_B) is None


@pytest.mark.parametrize(
    "reported",
    [
        {1: 2**15, 2: 2**19},  # a virtual machine without L3, Arm's caches of the system
        {1: 2**15},
        {},
        {1: 2**15, 2: 2**21, 3: 2**20},  # an L3 below L2
        {1: 2**15, 2: 2**19, 3: 2**22},  # an L3 that is larger than it is reported
    ],
)
@pytest.mark.parametrize("memory_s", [MEMORY_S, math.nan, 30e-9])
def test_memory_begins_beyond_caches_that_are_not_reported(monkeypatch, reported, memory_s):
    machine = caches.this_machine()
    about = {"type": "unified", "line_B": 64, "shared_by": 1, "instances": 1}
    system = [{"level": level, "size_B": size_B, **about} for level, size_B in reported.items()]
    machine = {**machine, "caches": system or None, "cores": 2, "threads": 2}
    for module in (environment, caches):
        monkeypatch.setattr(module, "this_machine", lambda: machine)

    def measure_loads(sizes_B: list[int], most_s: float) -> tuple[list[float], float]:
        return times([size for size in sizes_B if size <= 512 * MIB], 20 * MIB), memory_s

    monkeypatch.setattr(_memkern, "measure_loads", measure_loads)
    monkeypatch.setattr(capacity, "measure", MEASURE)
    monkeypatch.setattr(capacity, "memory_left", lambda: (16 * 10**9, "the limit of a test"))
    capacity._measured.cache_clear()
    known = capacity.capacity()
    assert known.sized_B == 32 * MIB and known.largest_B == pytest.approx(20 * MIB, rel=0.1)
    assert capacity.beyond_caches_B() == 128 * MIB
    last = capacity.data_caches()[-1]
    assert (last["level"], last["size_B"], last["source"]) == (3, known.largest_B, "measured")
    assert last["system_B"] == reported.get(3, 0)
    # Such a record tells where memory begins to whoever analyses it.
    sizes_B = capacity.measured_caches()["sizes_B"]
    found = caches.data_caches(caches.in_environment(system, sizes_B))
    assert found == capacity.data_caches()
    assert caches.level_of(30 * MIB, caches.ends(found, 2)) == caches.MEMORY
    # A larger cache is noticed also beyond what is reported.
    pass_time()
    monkeypatch.setattr(
        _memkern, "measure_loads",
        lambda sizes_B, most_s: (times([s for s in sizes_B if s <= 2**30], 120 * MIB), memory_s),
    )  # fmt: skip
    assert grown(200 * MIB) and capacity.capacity().sized_B == 32 * MIB


@pytest.mark.usefixtures("large_cache")
def test_loads_are_tried_where_the_memory_is_unknown(holds, monkeypatch):
    looked_at = holds(20 * MIB)
    monkeypatch.setattr(capacity, "memory_left", lambda: (UNLIMITED_B, "nothing"))
    assert capacity.capacity().sized_B == 32 * MIB
    assert 2 * REPORTED_B < looked_at[0][-1] < 8 * REPORTED_B


@pytest.mark.parametrize(("reported", "sized"), [(32, 32), (64, 64), (65, 8), (4, 8)])
def test_default_sizes_count_small_caches_whole(reported, sized):
    """Neighbours that leave 8 MiB when the capacity is measured may return the rest."""
    cache = {"level": 3, "type": "unified", "line_B": 64, "ways": 16, "instances": 1}
    system = [{**cache, "size_B": reported * MIB, "shared_by": 2}]
    known = capacity._found(Host(), system, {"L3": 8 * MIB})
    assert known == (sized * MIB, 8 * MIB, reported * MIB)


def test_caches_that_the_files_do_not_list_are_those_of_hwloc(monkeypatch):
    files = {"caches": [{"level": 1, "type": "data", "size_B": 2**15}]}
    monkeypatch.setattr(
        environment, "_machine", lambda root: dict(files, caches=[*files["caches"]])
    )
    with described(MACHINES["two cores"]):
        found = THIS_MACHINE.__wrapped__()["caches"]
    sizes_B = [(cache["level"], cache["size_B"]) for cache in found]
    assert sizes_B == [(1, 2**15), (2, 512_000), (3, 4_000_000)]
    assert [c["type"] for c in found] == ["data", "unified", "unified"]


def test_a_folder_of_a_cache_without_files_is_no_cache(tmp_path):
    folder = tmp_path / "sys/devices/system/cpu/cpu0/cache"
    (folder / "index0").mkdir(parents=True)
    (tmp_path / "sys/devices/system/cpu/online").write_text("0")
    assert environment._system_caches(tmp_path) is None


@pytest.mark.usefixtures("large_cache")
def test_sizes_follow_what_caches_hold_until_the_next_boot(holds, monkeypatch):
    looked_at = holds(20 * MIB)
    known = capacity.capacity()
    assert known.sized_B == 32 * MIB and known.system_B == REPORTED_B
    assert known.largest_B == pytest.approx(20 * MIB, rel=0.1)
    # From a size within L2 to far beyond the reported size, in three tries.
    assert len(looked_at) == 3 and looked_at[0][0] == MIB and looked_at[0][-1] > REPORTED_B
    assert capacity.from_memory() == capacity.beyond_caches_B() == 128 * MIB
    assert mk.stream("triad").integers["elements"] == 128 * MIB // 8
    assert machine_caches() == {"L3": known.largest_B}
    # A larger capacity is stored, but default sizes do not change.
    assert capacity.save({"L3": 50 * MIB})
    assert capacity.capacity() == (32 * MIB, 50 * MIB, REPORTED_B)
    assert capacity.save({"L1": 2**15, "L3": 10 * MIB})
    assert capacity.capacity() == (32 * MIB, 50 * MIB, REPORTED_B)
    assert machine_caches() == {"L1": 2**15, "L3": 10 * MIB} and len(looked_at) == 3
    # Stored values are not used for other caches, after a boot or from a broken file.
    assert capacity._known(this_host(), [*caches.reported(), {}]) is None
    holds(50 * MIB)
    monkeypatch.setattr(file, "boot_id", lambda: "another")
    assert capacity.capacity(Host(file.usual_path())).sized_B == 64 * MIB
    file.usual_path().write_text("[]")
    with pytest.warns(UserWarning, match="was damaged"):
        assert capacity.capacity().sized_B == 64 * MIB
    assert not capacity.save({})


def machine_caches() -> dict[str, int]:
    return machine_environment()["measured_caches"]["sizes_B"]


@pytest.mark.usefixtures("large_cache")
def test_caches_are_measured_once_where_nothing_can_be_stored(holds, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    looked_at = holds(20 * MIB)
    for _ in range(3):
        assert capacity.capacity().sized_B == 32 * MIB
    assert len(looked_at) == 3
    assert not capacity.save({"L3": 2**20})


@pytest.mark.usefixtures("large_cache")
def test_loads_fit_a_small_memory(holds, monkeypatch):
    looked_at = holds(20 * MIB)
    monkeypatch.setattr(capacity, "memory_left", lambda: (4 * 10**8, "the limit of a test"))
    assert capacity.capacity().sized_B == 32 * MIB
    assert max(looked_at[0]) == 64 * MIB
    # If loads do not exceed the cache, the reported size is used.
    file.usual_path().unlink()
    holds(200 * MIB)
    assert capacity.capacity() == (512 * MIB, REPORTED_B, REPORTED_B)


@pytest.mark.usefixtures("large_cache")
@pytest.mark.parametrize("variables", [{"MEMKERN_SMALL": "1"}, {"PMI_RANK": "0", "PMI_SIZE": "2"}])
def test_small_cases_and_ranks_have_what_the_system_reports(holds, monkeypatch, variables):
    looked_at = holds(20 * MIB)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert capacity.capacity() == (512 * MIB, REPORTED_B, REPORTED_B)
    assert not looked_at


@pytest.mark.usefixtures("large_cache", "ceilings")
def test_a_record_tells_that_caches_have_come_to_hold_it(holds, capsys):
    holds(2.5 * MIB)
    case = mk.stream("copy", elements=8 * MIB // 8, threads=1, runs=1)  # two arrays: 16 MiB
    assert capacity.capacity().sized_B == 4 * MIB
    record = case.measure().record
    assert record["caches_multiple"] == pytest.approx(16 / 2.5, rel=0.2)
    assert record["system_caches_multiple"] == pytest.approx(16 * MIB / REPORTED_B)
    assert record["caches_grown"] is False
    looked_at = holds(40 * MIB)
    assert case.measure().record["caches_grown"] is False and not looked_at
    # After a minute the caches are measured again.
    pass_time()
    record = case.measure().record
    assert record["caches_grown"] is True and len(looked_at) == 1
    assert record["caches_multiple"] == pytest.approx(16 / 40, rel=0.2)
    assert capacity.capacity().sized_B == 4 * MIB
    # One case was never from memory, and the other exceeds twice the reported size.
    assert not grown(4 * MIB) and not grown(600 * MIB)
    out, err = output_of(capsys, "stream", "--kernel", "copy", "--size", "8MiB", "--runs", "1")
    assert "caches_grown" in out and "give a larger size" in err
    assert math.isnan(costs._ceilings(this_host(), 1, "compact", "default").load_GBps)
    # Loads without a result do not count as the whole cache.
    pass_time(largest_B=2 * MIB)
    holds(2**40)
    assert not grown(16 * MIB)


def test_what_caches_have_come_to_hold_is_not_from_memory():
    import pandas as pd

    frame = pd.DataFrame(
        {"platform": "p", "kernel": "stream.copy", "footprint_B": [2**20, 2**24, 2**24]}
    )
    least = {"p": FromMemory(2**22, "plateau")}
    assert in_memory(frame, least).tolist() == [False, True, True]
    frame["caches_grown"] = [None, True, False]
    assert in_memory(frame, least).tolist() == [False, False, True]


def test_measured_caches_are_part_of_the_environment():
    before = machine_environment()
    assert "measured_caches" not in before
    assert capacity.save({"L1": 2**11, "L3": 2 * capacity.last_level_cache_B()})
    case = mk.loops("stencil", rows=40, columns=64, threads=1, variant="scalar", runs=1)
    measured = case.measure()
    assert measured.environment["measured_caches"]["sizes_B"]["L1"] == 2**11
    assert measured.record["conditions"].startswith("L1 none, L2 rows")
    # The identity differs, but comparisons of results list no difference.
    now = machine_environment()
    assert measured.record["environment_id"] == identity(now) != identity(before)
    assert differences(before, now) == []


@pytest.mark.usefixtures("this_machine")
def test_this_machines_caches_hold_at_most_a_few_times_what_it_reports():
    known = capacity.capacity()
    assert file.usual_path().exists()
    assert known.largest_B > 0 or not known.system_B
    seconds, memory_s = _memkern.measure_loads([2**14, 2**18, 2**22], 3.0)
    assert 1 <= len(seconds) <= 3 and min(seconds) > 0 and not memory_s <= 0
    assert _memkern.measure_loads([], 3.0)[0] == []
    assert _memkern.measure_loads([2**14], 0.0)[0] == []


@pytest.mark.parametrize("sizes_B", [[0], [63, 128], [256, 128], [-64]])
def test_sizes_of_loads_increase_from_a_line(sizes_B):
    with pytest.raises(ValueError, match="sizes_B must increase, from a line of 64 B on"):
        _memkern.measure_loads(sizes_B, 1.0)
