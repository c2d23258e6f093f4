"""Described machines, so that results do not depend on the machine that runs the tests.

The extension's topology, Python's processing units and the machine's part of an environment are
replaced. Workers still run on this machine: each described unit is mapped to a real processor.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from memkern import _memkern
from memkern.host import capacity
from memkern.machine import caches, environment


@dataclass(frozen=True)
class Machine:
    """A described machine.

    Attributes
    ----------
    topology : str
        Sockets, caches, NUMA nodes, cores and processing units in hwloc's synthetic format.
    line_B, page_B : int
        Bytes of a cache line and of a base page; 0 is the page size of the real machine.
    kinds : tuple of int
        Kind of each core, if there are several kinds.
    memory_B : int, optional
        Largest available memory in bytes.
    nodes_B : tuple of int
        Free memory of each NUMA node, if they are small.
    widest_isa : str, optional
        The widest instruction set.
    loads_per_cycle : float
        Best throughput of a core in loads and additions per cycle.
    """

    topology: str
    line_B: int = 64
    page_B: int = 0
    kinds: tuple[int, ...] = ()
    memory_B: int | None = None
    widest_isa: str | None = None
    loads_per_cycle: float = 2.0
    nodes_B: tuple[int, ...] = ()


MACHINES = {
    "two cores": Machine("pack:1 l3:1(size=4MB) l2:2(size=512KB) l1d:1(size=32KB) core:1 pu:1"),
    # A part of a large processor, as in virtual machines.
    "large cache": Machine(
        "pack:1 l3:1(size=300MB) l2:2(size=2MB) l1d:1(size=48KB) core:1 pu:1",
        loads_per_cycle=3.0,
    ),
    "AVX2": Machine(
        "pack:1 l3:1(size=32MB) l2:4(size=512KB) l1d:1(size=32KB) core:1 pu:2", widest_isa="avx2"
    ),
    "AVX-512": Machine(
        "pack:1 l3:1(size=32MB) l2:4(size=1MB) l1d:1(size=32KB) core:1 pu:2", widest_isa="avx512"
    ),
    "efficiency cores": Machine(
        "pack:1 l3:1(size=12MB) l2:4(size=2MB) l1d:2(size=32KB) core:1 pu:1",
        kinds=(1, 1, 1, 1, 0, 0, 0, 0),
        loads_per_cycle=3.0,
    ),
    "NUMA clusters": Machine(
        "pack:2 group:2 [numa] l3:1(size=64MB) l2:8(size=2MB) l1d:1(size=48KB) core:1 pu:2",
        loads_per_cycle=3.0,
    ),
    "256 units": Machine(
        "pack:2 [numa] l3:8(size=32MB) l2:8(size=512KB) l1d:1(size=32KB) core:1 pu:2"
    ),
    "large pages": Machine(
        "pack:1 group:4 [numa] l2:1(size=8MB) l1d:12(size=64KB) core:1 pu:1",
        line_B=256,
        page_B=2**16,
    ),
    "one unit": Machine("pack:1 l2:1(size=1MB) l1d:1(size=32KB) core:1 pu:1", loads_per_cycle=1.0),
    "little memory": Machine(
        "pack:1 l3:1(size=16MB) l2:4(size=256KB) l1d:1(size=32KB) core:1 pu:1",
        memory_B=2 * 10**9,
    ),
}
STANDARD = "two cores"


_GET_AFFINITY, _SET_AFFINITY = os.sched_getaffinity, os.sched_setaffinity
PROCESSORS = sorted(_GET_AFFINITY(0))
"""Processors of this machine, which are the units of programs that a test starts."""
_THIS_MACHINE, _MEASURE = environment.this_machine, capacity.measure
current: Machine | None = None


def describe(machine: Machine | None) -> None:
    """Replace this machine in this process by a described one; None restores it."""
    global current
    current = machine
    get_affinity, set_affinity, this_machine = _GET_AFFINITY, _SET_AFFINITY, _THIS_MACHINE

    def nothing(*_: Any, **__: Any) -> dict[str, int]:
        # The caches of a described machine have the reported sizes.
        return {}

    if machine is None:
        _memkern.describe_machine()
    else:
        _memkern.describe_machine(
            machine.topology,
            line_B=machine.line_B,
            kinds=list(machine.kinds),
            page_B=machine.page_B,
            memory_B=machine.memory_B,
            widest_isa=machine.widest_isa,
            nodes_B=machine.nodes_B,
        )
        topology = _memkern.topology()
        here = _section(topology, machine)

        def processor(unit: int) -> int:
            return PROCESSORS[unit % len(PROCESSORS)]

        def get_affinity(process: int) -> set[int]:
            allowed = _GET_AFFINITY(process)
            return {unit for unit in topology["units"] if processor(unit) in allowed}

        def set_affinity(process: int, units: Iterable[int]) -> None:
            _SET_AFFINITY(process, set(map(processor, units)))

        def this_machine() -> dict[str, Any]:
            return here

    os.sched_getaffinity, os.sched_setaffinity = get_affinity, set_affinity
    for module in (environment, caches):
        module.this_machine = this_machine
    capacity.measure = _MEASURE if machine is None else nothing


def loads_per_cycle() -> float:
    """Return the best throughput of a core of the described machine."""
    return MACHINES[STANDARD].loads_per_cycle if current is None else current.loads_per_cycle


@contextmanager
def described(machine: Machine | None) -> Iterator[None]:
    """Replace this machine by a described one within the block."""
    before = current
    describe(machine)
    try:
        yield
    finally:
        describe(before)


def _section(topology: dict[str, Any], machine: Machine) -> dict[str, Any]:
    """Return the section ``machine`` of a described machine's environment."""
    units = topology["units"]
    nodes = topology["numa_nodes"]
    each = len(units) // len(nodes)
    memory_B = machine.memory_B or 16 * 2**30
    return {
        **_THIS_MACHINE(),
        "sockets": topology["packages"],
        "cores": topology["cores"],
        "threads": len(units),
        "caches": [
            {
                "level": cache["level"],
                "type": "data" if cache["level"] == 1 else "unified",
                "size_B": cache["size_B"],
                "line_B": cache["line_B"],
                "ways": 8,
                "shared_by": cache["shared_by"],
                "instances": cache["instances"],
            }
            for cache in topology["caches"]
        ],
        "memory_B": memory_B,
        "numa_nodes": [
            {
                "node": node,
                "cpus": f"{k * each}-{(k + 1) * each - 1}" if each > 1 else str(k * each),
                "memory_B": memory_B // len(nodes),
            }
            for k, node in enumerate(nodes)
        ],
        "units": ",".join(map(str, units)),
    }
