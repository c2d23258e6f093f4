"""The roofline of every level: ceilings of published and measured machines, limits of records."""

import dataclasses
import math

import pytest
from checking import refused

from memkern.models.machine_file import Bandwidth, Quantity
from memkern.models.published_machines import published
from memkern.models.roofline import (
    BESIDE,
    Ceiling,
    ceilings,
    limit,
    peak_GFLOPs,
    roofline,
    roofline_columns,
)
from memkern.spec.kernel import Transfer

A64FX = published("A64FX")


def test_the_ceilings_of_a_published_machine():
    one, domain = ceilings(A64FX, 1), ceilings(A64FX, 12)
    assert one["L1"] == Ceiling(pytest.approx(128 * 2.2), pytest.approx(64 * 2.2))
    assert domain["L1"].load_GBps == pytest.approx(12 * 128 * 2.2)
    # All cores of a domain have less than twelve times the bandwidth of one.
    assert domain["L2"].load_GBps == pytest.approx(512 * 2.2)
    assert domain["memory"].load_GBps == one["memory"].load_GBps == pytest.approx(227)
    triad = Transfer(3.0, 1.0)
    assert 4 / domain["memory"].seconds(triad) / 1e9 == pytest.approx(213)
    # Two domains have twice the bandwidth of one, three at most the measured one of all four.
    two, most = ceilings(A64FX, 24), ceilings(A64FX, 47)
    assert two["memory"].load_GBps == pytest.approx(2 * 227)
    assert two["L2"].load_GBps == pytest.approx(2 * 512 * 2.2)
    assert ceilings(A64FX, 48)["L2"].load_GBps == pytest.approx(4 * 512 * 2.2)
    assert most["memory"].load_GBps == pytest.approx(859)
    # Six cores have at most six times the bandwidth of one.
    assert ceilings(A64FX, 6)["L2"].load_GBps == pytest.approx(6 * 64 * 2.2)
    assert peak_GFLOPs(A64FX, 48) == pytest.approx(3379.2)
    assert peak_GFLOPs(A64FX, 1, 4) == pytest.approx(2 * 3379.2 / 48)


@pytest.mark.parametrize(
    ("name", "l3_GBps", "memory_GBps"),
    [("Xeon Gold 6148", 35.2, 58.96), ("Xeon Platinum 8360Y", 28.8, 84.96)],
)
def test_the_ceilings_of_published_domains(name, l3_GBps, memory_GBps):
    machine = published(name)
    assert machine.domains == 4
    for cores in (1, machine.cores, 2 * machine.cores, 4 * machine.cores):
        found = ceilings(machine, cores)
        assert found["L3"].load_GBps == pytest.approx(cores * l3_GBps)
        domains = max(cores // machine.cores, 1)
        assert found["memory"].load_GBps == pytest.approx(domains * memory_GBps, rel=1e-3)
    assert roofline(
        machine, record(threads=machine.cores, L3_load_B=10e9, L3_store_B=5e9)
    ).bound == ("memory")


def test_private_caches_have_equal_parts_of_a_bandwidth():
    rows = measured(*ROWS).bandwidths
    of_four = [dataclasses.replace(row, cores=4) for row in rows]
    found = ceilings(dataclasses.replace(measured(*ROWS), bandwidths=tuple(of_four)), 3)
    assert found["L1"].load_GBps == pytest.approx(75)
    # Three cores of a domain may reach the bandwidth of four.
    assert found["memory"].load_GBps == pytest.approx(10)


def measured(*rows):
    """Return a measured machine with bandwidths of two levels in GB/s."""
    bandwidths = tuple(
        Bandwidth(level, operation, stores, 1, Quantity(rate), Quantity(rate))
        for level, operation, stores, rate in rows
    )
    levels = (A64FX.levels[0], A64FX.levels[2])
    instructions = tuple(row for row in A64FX.instructions if row.name == "fma")
    return dataclasses.replace(
        A64FX,
        created="2026-01-01T00:00:00+00:00",
        levels=levels,
        bandwidths=bandwidths,
        instructions=instructions,
    )


ROWS = [
    ("L1", "load", "", 100.0),
    ("L1", "store", "ordinary", 50.0),
    ("L1", "copy", "ordinary", 100.0),
    ("memory", "load", "", 10.0),
    ("memory", "store", "ordinary", 5.0),
    ("memory", "store", "non-temporal", 9.0),
    ("memory", "copy", "ordinary", 6.0),
]


def test_the_ceilings_of_a_measured_machine():
    found = ceilings(measured(*ROWS))
    # Copying a byte takes as long as storing it: loads overlap with stores.
    assert found["L1"] == Ceiling(100.0, 50.0, 0.0)
    assert found["L1"].seconds(Transfer(1.0, 1.0)) == pytest.approx(1 / 50e9)
    # Storing a byte takes 0.2 ns, including 0.1 ns of write-allocate.
    assert found["memory"].store_GBps == pytest.approx(10)
    # Copying a byte takes 1/3 ns, but 0.2 ns of loads and 0.1 ns of a store are at most 0.3 ns.
    assert found["memory"].apart == 1
    half = ceilings(measured(*ROWS[:-1], ("memory", "copy", "ordinary", 8.0)))
    assert half["memory"].seconds(Transfer(2.0, 1.0)) == pytest.approx(2 / 8e9)
    with refused("no bandwidth of loads and stores in memory"):
        ceilings(measured(*ROWS[:3]))
    with refused("cores must be at least 1"):
        ceilings(A64FX, 0)


def test_instructions_are_a_ceiling_of_l1():
    slow = [("L1", "load", "", 1.0), ("L1", "store", "ordinary", 1.0), *ROWS[3:]]
    machine = dataclasses.replace(measured(*slow), instructions=A64FX.instructions)
    found = ceilings(machine)["L1"]
    assert (found.load_GBps, found.store_GBps) == pytest.approx((128 * 2.2, 64 * 2.2))


def record(**columns):
    found = {
        "kernel": "loops.daxpy", "threads": 1, "footprint_B": 2**30, "dtype": "float64",
        "time_median_s": 2.0, "time_min_s": 1.8, "performance_GFLOPs": 2 / 1.8,
        "L1_load_B": 20e9, "L1_store_B": 10e9, "memory_load_B": 10e9, "memory_store_B": 5e9,
    }  # fmt: skip
    return {**found, **columns}


def test_limits_of_records():
    machine = measured(*ROWS)
    found = roofline(machine, record())
    assert found.bound == "memory"
    assert found.seconds == pytest.approx(1.0 + 0.5)
    assert found.levels_s["L1"] == pytest.approx(0.2)
    # Data in L1 cause no memory traffic.
    inner = roofline(machine, record(footprint_B=1000))
    assert (inner.bound, inner.seconds) == ("L1", pytest.approx(0.2))
    named = roofline(machine, record(name="L1"))
    assert named.bound == "L1"
    # The peak of one core is 70.4 GFLOP/s.
    busy = roofline(machine, record(performance_GFLOPs=704 / 1.8))
    assert (busy.bound, busy.seconds) == ("core", pytest.approx(10.0))
    # Vectors have twice the number of values in single precision.
    single = roofline(machine, record(performance_GFLOPs=704 / 1.8, dtype="float32"))
    assert single.seconds == pytest.approx(5.0)
    assert roofline(machine, record(performance_GFLOPs=math.nan)).bound == "memory"
    with refused("lacks the bytes of a level"):
        roofline(machine, {"kernel": "amo.rand", "threads": 1})


def test_only_ceilings_that_are_known_limit():
    memory = {"memory": Ceiling(20.0, 10.0)}
    found = limit(record(footprint_B=1000), memory, {})
    # Without sizes of caches, the data come from memory.
    assert (found.bound, found.seconds) == ("memory", pytest.approx(1.0))
    with refused("lacks the bytes of a level up to L2"):
        limit(record(footprint_B=1000), memory, {"L2": 2000.0})
    with refused("this roofline does not limit the record of loops.daxpy"):
        limit(record(memory_load_B=0.0, memory_store_B=0.0), memory, {})


def test_stores_take_what_the_loads_leave():
    assert Transfer(30.0, 10.0).stores_GBps(10.0, 4e-9) == pytest.approx(10)
    # If loads take all of the time, a store is assumed to take a hundredth of a load's time.
    assert Transfer(30.0, 10.0).stores_GBps(10.0, 3e-9) == pytest.approx(1000)


def test_ranks_on_two_nodes_have_twice_the_ceilings():
    machine = measured(*ROWS)
    one = roofline(machine, record())
    both = roofline(machine, record(ranks=2, ranks_per_node=1))
    assert both.seconds == pytest.approx(one.seconds / 2)
    # The file has 48 cores, and the bandwidths of one core.
    assert roofline(machine, record(threads=1000)).seconds == pytest.approx(one.seconds / 48)


def test_the_columns_of_a_record():
    row = record()
    found = roofline_columns(row, limit(row, {"memory": Ceiling(20.0, 10.0)}, {}), BESIDE)
    assert found == {
        "machine_file": "measured beside",
        "bound": "memory",
        "roofline_s": pytest.approx(1.0),
        "roofline_GFLOPs": pytest.approx(2e-9 * 1e9),
        "roofline_fraction": pytest.approx(0.5),
        "roofline_min_fraction": pytest.approx(1 / 1.8),
    }


def test_a_fraction_above_what_memory_reached_is_not_given():
    def fractions(memory_GBps: float, core_s: float = 0.0) -> list[float]:
        row = record()
        found = limit(row, {"memory": Ceiling(memory_GBps, memory_GBps / 2)}, {})
        if core_s:
            found = dataclasses.replace(found, seconds=core_s, bound="core")
        columns = roofline_columns(row, found, BESIDE)
        return [columns["roofline_fraction"], columns["roofline_min_fraction"]]

    assert fractions(20.0) == [pytest.approx(0.5), pytest.approx(1 / 1.8)]
    # Half of the bandwidth suffices for the median time, but not for the shortest time.
    median, shortest = fractions(10.0)
    assert median == pytest.approx(1.0) and math.isnan(shortest)
    assert all(math.isnan(value) for value in fractions(5.0))
    # Limits of the cores do not depend on the state of the memory.
    assert fractions(20.0, core_s=4.0) == [pytest.approx(2.0), pytest.approx(4 / 1.8)]
