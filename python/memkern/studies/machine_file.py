"""The measurement of a machine file: bandwidths, latencies, costs and instructions."""

from __future__ import annotations

import itertools
import math
import mmap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from memkern.checks import one_of
from memkern.engine.public import Measurement, calibrated, place_in_rounds, to_result_set
from memkern.errors import InputError
from memkern.formats import ResultSet
from memkern.host.capacity import beyond_caches_B
from memkern.host.environment import machine_environment
from memkern.inputs.sizes import sizes
from memkern.limits import memory_left
from memkern.machine.caches import data_caches, line_B, shares
from memkern.machine.declarations import template_variants
from memkern.machine.environment import cpu_list, now
from memkern.machine.topology import physical_cores, supported_isas
from memkern.models.ecm import MEMORY
from memkern.models.machine_file import (
    SCALAR_BITS,
    Bandwidth,
    Cost,
    Instruction,
    Level,
    MachineFile,
    Quantity,
    Tlb,
)
from memkern.models.structure import tlb_levels
from memkern.spec.case import Case
from memkern.spec.registry import case as kernel_case

# Seconds of samples of each case in all rounds.
_BRIEF_S, _LONG_S = 0.06, 0.3
_CHAINS = (1, 8, 12, 16, 24, 32)
# Cores with this share of the bandwidth of all cores saturate a level.
_SATURATED = 0.95
# Footprint of a case in memory, unless the caches of its cores require a larger one.
_MEMORY_B = 2**31
_CHASE_B = 2**29
_BEYOND = 4
_MOST_PAGES = 2**13
_LEAST_PAGES = 16
_PER_OCTAVE = 3
_INSTRUCTIONS = "instructions.repeat"
_STRIDES = ("0", "1", "2", "random")
_INVOCATIONS = 500  # in a sample of a barrier

# Kernel of an operation and of its form with non-temporal stores.
_OPERATIONS = {"load": "loops.load", "store": "loops.init", "copy": "loops.copy"}
_ORDINARY, _NONTEMPORAL = "ordinary", "non-temporal"


class _Key(NamedTuple):
    """Purpose of a case, and the values that distinguish it."""

    what: str
    values: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Measured:
    """What a study has measured.

    Attributes
    ----------
    results : ResultSet
    missing : tuple of str
        What could not be measured, with the reasons.
    """

    results: ResultSet
    missing: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class MeasuredMachine(Measured):
    """A machine file with the records from which it was made.

    Attributes
    ----------
    machine : MachineFile
    """

    machine: MachineFile


def measure_machine(
    *, seconds: float = 150.0, progress: Callable[[float], object] | None = None
) -> MeasuredMachine:
    """Measure the parameters of this machine for models.

    All cases are placed in turns, in random order, three times. Bandwidths are of loads, stores and
    copies in each cache and in memory, by one core and more, up to all; latencies are of chases in
    buffers of the same sizes. Instructions are measured at the vector widths of all instruction
    sets of this processor.

    Parameters
    ----------
    seconds : float
        Longest duration; cases for which the time is too short are left out.
    progress : callable, optional
        Called with the share of the work that is done, from 0 to 1.

    Returns
    -------
    MeasuredMachine

    Raises
    ------
    InputError
        Nothing could be measured.
    """
    environment = machine_environment()
    cores = [group[0] for group in physical_cores()]
    levels = levels_of(environment, cores)
    chases, too_large = _latencies(levels)
    cases = {
        **{
            _Key("instruction", (case.template_variant, case.identity())): case
            for case in instruction_cases(budget_s=_BRIEF_S)
        },
        **_bandwidths(levels, cores),
        **chases,
        **_pages(),
        **_costs(len(cores)),
    }
    placed = place_in_rounds(cases, rounds=3, seconds=seconds, progress=progress)
    done = {key: calibrated(run, environment) for key, run in placed.runs.items()}
    bits = {
        key: 8 * int(run.placements[-1].obtained["vector_B"] or 0)
        for key, run in placed.runs.items()
    }
    missing = tuple(
        f"{key.what} {', '.join(map(str, key.values))}: {why}"
        for key, why in {**placed.refused, **too_large}.items()
    )
    return MeasuredMachine(
        to_result_set(list(done.values()), placed.interrupted),
        missing,
        _machine(environment, levels, cores, done, bits),
    )


class CacheLevel(NamedTuple):
    """A level with the footprints of its cases.

    Attributes
    ----------
    name : str
    size_B : int or None
        Size of an instance of a cache.
    shared_by : int
        Cores that share an instance; for memory, the cores of a NUMA domain.
    smaller : CacheLevel or None
        The next smaller cache.
    """

    name: str
    size_B: int | None
    shared_by: int
    smaller: CacheLevel | None = None

    def used_B(self, cores: int, memory_B: int = _MEMORY_B) -> int:
        """Return the footprint of cases of some cores.

        It is three quarters of L1, and beyond it the geometric mean of the sizes of a cache and of
        the next smaller one, at most half of the cache: a virtual machine may have only a part of a
        large shared cache. In memory it is four times all caches, or `memory_B` if this is less but
        at least four times the caches of these cores.
        """
        if self.size_B is None:
            held_B = self.smaller._of_cores(cores) if self.smaller else 0
            return min(beyond_caches_B(), max(_BEYOND * held_B, memory_B))
        size_B = self._of_cores(cores)
        if self.smaller is None:
            return 3 * size_B // 4
        return min(size_B // 2, math.isqrt(size_B * self.smaller._of_cores(cores)))

    def part_B(self, cores: int = 1) -> int:
        """Return a third of `used_B`, the smaller of two sizes in L1."""
        return self.used_B(cores) // 3

    def _of_cores(self, cores: int) -> int:
        """Return the size of the instances of adjacent cores, in proportion to their number."""
        return (self.size_B or 0) * max(cores, self.shared_by) // self.shared_by


def levels_of(environment: Mapping[str, Any], cores: Sequence[int]) -> list[CacheLevel]:
    """Return the data caches of a machine (see `memkern.machine.caches.data_caches`), and memory.

    Parameters
    ----------
    environment : mapping
        As a record's.
    cores : sequence of int
        A processing unit of each core that this process may use.
    """
    found: list[CacheLevel] = []
    for name, size_B, shared_by in shares(data_caches(environment), len(cores)):
        found.append(CacheLevel(name, size_B, shared_by, found[-1] if found else None))
    of_domain = max(len(cores) // domains_of(environment["machine"], cores), 1)
    return [*found, CacheLevel(MEMORY, None, of_domain, found[-1] if found else None)]


def domains_of(machine: Mapping[str, Any], cores: Sequence[int]) -> int:
    """Return the number of NUMA nodes of these cores; 1 if unknown.

    Parameters
    ----------
    machine : mapping
        With ``numa_nodes``, as in an environment.
    cores : sequence of int
        As for `levels_of`.
    """
    nodes = [set(cpu_list(node["cpus"])) for node in machine.get("numa_nodes") or ()]
    return max(sum(not units.isdisjoint(cores) for units in nodes), 1)


# Cases


def instruction_cases(
    names: Collection[str] = (),
    *,
    quantities: Collection[str] = (),
    isas: Collection[str] = (),
    **options: Any,
) -> list[Case]:
    """Return cases of the instructions that this processor has, at each width of vectors.

    Parameters
    ----------
    names, quantities : collection of str
        Instructions, and ``throughput`` or ``latency``; by default all.
    isas : collection of str
        Instruction sets; by default all that the processor has, and single values by the widest.
    **options
        Fields of `memkern.Knobs` and `memkern.Stop`.

    Raises
    ------
    InputError
        The processor has no such instruction or instruction set.
    """
    for isa in isas:
        one_of(isa, "isa", supported_isas())
    ways = [
        # Single values with the widest instruction set, which has the others' instructions as well.
        ("scalar", next(iter(isas), "best")),
        *(("simd", isa) for isa in isas or supported_isas()),
    ]
    built = {
        way: [word.split("/") for word in sorted(template_variants(_INSTRUCTIONS, way[1], way[0]))]
        for way in ways
    }
    every = [word for words in built.values() for word in words]
    for what, wanted, position in (("instruction", names, 0), ("quantity", quantities, 1)):
        for word in wanted:
            one_of(word, what, sorted({words[position] for words in every}))
    return [
        kernel_case(
            _INSTRUCTIONS,
            instruction=instruction,
            quantity=quantity,
            vector=int("".join(narrow) or 0),
            index_stride=stride,
            variant=variant,
            isa=isa,
            **options,
        )
        for (variant, isa), words in built.items()
        for instruction, quantity, *narrow in words
        if instruction in (names or (instruction,)) and quantity in (quantities or (quantity,))
        for stride in (_STRIDES if instruction.startswith("gather") else ("1",))
    ]


def core_counts(cores: int) -> list[int]:
    """Return numbers of cores from 1 to all: powers of two, and all."""
    return sorted({*(2**k for k in range(cores.bit_length())), cores} - {0})[: cores + 1]


def pinned(cores: Sequence[int], count: int) -> dict[str, Any]:
    """Return the options that place one worker on each of the first cores."""
    return {"threads": count, "pin": ",".join(map(str, cores[:count]))}


def _bandwidths(levels: Sequence[CacheLevel], cores: Sequence[int]) -> dict[_Key, Case]:
    cases: dict[_Key, Case] = {}
    for level in levels:
        for count, (operation, kernel) in itertools.product(
            sorted({*core_counts(level.shared_by), len(cores)}), _OPERATIONS.items()
        ):
            # With a part of the cores that share a level, loads show the number that saturates it.
            if count not in (1, level.shared_by, len(cores)) and operation != "load":
                continue
            for stores in ("",) if operation == "load" else (_ORDINARY, _NONTEMPORAL):
                values = (level.name, operation, stores, count)
                used = {"bandwidth": level.used_B(count)}
                if level is levels[0]:
                    used["part"] = level.part_B(count)
                cases |= {
                    _Key(what, values): kernel_case(
                        kernel,
                        footprint_B=footprint_B,
                        variant="nt" if stores == _NONTEMPORAL else "simd",
                        repetition="free" if level.size_B else "fork",
                        budget_s=_BRIEF_S if level.size_B else _LONG_S,
                        **pinned(cores, count),
                    )
                    for what, footprint_B in used.items()
                }
    return cases


def _latencies(levels: Sequence[CacheLevel]) -> tuple[dict[_Key, Case], dict[_Key, str]]:
    """Return chases in each level, and the reasons for those that do not fit in memory."""
    cases, too_large = {}, {}
    for level, chains in itertools.product(levels, _CHAINS):
        key = _Key("latency", (level.name, chains))
        try:
            cases[key] = kernel_case(
                "latency.chase",
                size_B=level.used_B(1, _CHASE_B),
                chains=chains,
                budget_s=_BRIEF_S if level.size_B else _LONG_S,
            )
        except InputError as error:
            too_large[key] = str(error)
    return cases, too_large


def _pages() -> dict[_Key, Case]:
    """Return chases through adjacent lines, and through as many lines in different pages."""
    most = min(_MOST_PAGES, memory_left()[0] // 8 // mmap.PAGESIZE)
    small_pages = {"pages": "4k" if mmap.PAGESIZE == 2**12 else "default"}
    count = round(math.log2(most / _LEAST_PAGES) * _PER_OCTAVE) + 1
    return {
        _Key("pages", (order, lines)): kernel_case(
            "latency.chase", size_B=lines * each_B, order=order, budget_s=_BRIEF_S, ci=1e-3, **pages
        )
        for lines in sizes(_LEAST_PAGES, most, count)
        for order, each_B, pages in (
            ("random", line_B(), {}),
            ("one-per-page", mmap.PAGESIZE, small_pages),
        )
    }


def _costs(cores: int) -> dict[_Key, Case]:
    cases = {}
    for count in core_counts(cores):
        cases[_Key("launch", (count,))] = kernel_case(
            "launch.empty", threads=count, repetition="fork", budget_s=_BRIEF_S
        )
        for repetition in ("free", "barrier", "spin") if count > 1 else ():
            cases[_Key("work", (repetition, count))] = kernel_case(
                "launch.compute", threads=count, repetition=repetition
            ).with_(invocations=_INVOCATIONS, budget_s=_LONG_S)
    return cases


# Results

_Done = Mapping[_Key, Measurement]


def _records_of(done: _Done, what: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the records of the cases of a purpose, by the values that distinguish them."""
    return {key.values: m.record for key, m in done.items() if key.what == what}


def _machine(
    environment: dict[str, Any],
    levels: Sequence[CacheLevel],
    cores: Sequence[int],
    done: _Done,
    bits: Mapping[_Key, int],
) -> MachineFile:
    """Return the machine file of measurements, with the bits of the vectors of each."""
    machine, build = environment["machine"], environment["build"]
    domains = domains_of(machine, cores)
    bandwidths = tuple(_bandwidth_rows(done))
    return MachineFile(
        name=machine.get("model") or "unknown processor",
        model=machine.get("model") or "",
        source=f"measured by memkern {build['version']}",
        created=now(),
        clock_GHz=clock(m.record["clock_GHz"] for m in done.values()),
        vector_bits=max(bits.values()),
        line_B=line_B(),
        cores=max(len(cores) // domains, 1),
        domains=domains,
        levels=tuple(_level(level, done, bandwidths) for level in levels),
        bandwidths=bandwidths,
        tlbs=tuple(_tlbs(done)),
        costs=tuple(_cost_rows(done)),
        instructions=tuple(_instruction_rows(done, bits)),
    )


def clock(values_GHz: Iterable[float]) -> Quantity:
    """Return the median clock of records, with the range of the middle 95 %."""
    known = np.array([value for value in values_GHz if value == value])
    if not len(known):
        return Quantity()
    low, middle, high = np.quantile(known, (0.025, 0.5, 0.975))
    return Quantity(float(middle), float(low), float(high))


def time_of(record: Mapping[str, Any], factor: float = 1.0) -> Quantity:
    """Return the shortest time of a record in seconds, times a factor, with its interval."""
    names = ("time_min_s", "time_min_ci_low_s", "time_min_ci_high_s")
    return Quantity(*(float(record[name]) for name in names)).scaled(factor)


def _per_access(record: Mapping[str, Any], column: str) -> Quantity:
    """Return the shortest time of an access in the unit of a column of its median, as `time_of`."""
    return time_of(record, record[column] / record["time_median_s"])


def _rate(amount: float, time: Quantity) -> Quantity:
    """Return an amount over a time."""
    high = amount / time.low if time.low > 0 else math.nan
    return Quantity(amount / time.value, amount / time.high, high)


def _difference(time: Quantity, other: Quantity) -> Quantity:
    """Return a time minus another one; the errors of both are independent.

    It is unknown if it is not positive: the two were measured in different states of the host.
    """
    value = time.value - other.value
    if not value > 0:
        return Quantity()
    below = math.hypot(time.value - time.low, other.high - other.value)
    above = math.hypot(time.high - time.value, other.value - other.low)
    return Quantity(value, max(value - below, 0.0), value + above)


def _bandwidth_rows(done: _Done) -> list[Bandwidth]:
    rows = []
    parts = _records_of(done, "part")
    for values, record in _records_of(done, "bandwidth").items():
        amount, time = record["bytes_B"], time_of(record)
        disturbed = bool(record["disturbed"])
        if (part := parts.get(values)) is not None:
            # In L1 the start and end of an invocation take as long as many bytes.
            amount -= part["bytes_B"]
            time = _difference(time, time_of(part))
            disturbed = disturbed or bool(part["disturbed"])
        if time.value > 0:
            rate = _rate(amount / 1e9, time)
            per_cycle = rate.scaled(1 / record["clock_GHz"])
            level, operation, stores, cores = values
            rows.append(Bandwidth(level, operation, stores, cores, per_cycle, rate, disturbed))
    return rows


def saturating_cores(rates: Mapping[int, float]) -> int | None:
    """Return the least number of cores that reach the bandwidth of all; None if all are needed.

    Parameters
    ----------
    rates : mapping of int to float
        Bandwidth by number of cores that share an instance of a cache or a domain, up to all.
    """
    if len(rates) < 2:
        return None
    most = max(rates.values())
    needed = min(count for count, rate in rates.items() if rate >= _SATURATED * most)
    return needed if needed < max(rates) else None


def _level(level: CacheLevel, done: _Done, bandwidths: Sequence[Bandwidth]) -> Level:
    chases = {
        chains: record
        for (name, chains), record in _records_of(done, "latency").items()
        if name == level.name
    }
    latency, in_flight = Quantity(), Quantity()
    if 1 in chases:
        latency = _per_access(chases[1], "ns_per_access")
        fastest = min(chases.values(), key=lambda record: float(record["ns_per_access"]))
        each = _per_access(fastest, "ns_per_access")
        in_flight = Quantity(
            latency.value / each.value, latency.low / each.high, latency.high / each.low
        )
    rates = {
        row.cores: row.GBps.value
        for row in bandwidths
        if row.level == level.name and row.operation == "load" and row.cores <= level.shared_by
    }
    return Level(
        level.name, level.size_B, level.shared_by, latency, in_flight, saturating_cores(rates)
    )


def _tlbs(done: _Done) -> list[Tlb]:
    """Return the levels of TLBs, from the additional cost of lines in separate pages.

    Shortest times count, since any other activity during a chase takes entries of the TLBs.
    """
    quiet = {
        values: record
        for values, record in _records_of(done, "pages").items()
        if not record["disturbed"]
    }
    shortest_ns = {key: _per_access(one, "ns_per_access").value for key, one in quiet.items()}
    costs_ns = {
        lines * mmap.PAGESIZE: each_ns - shortest_ns["random", lines]
        for (order, lines), each_ns in shortest_ns.items()
        if order == "one-per-page" and ("random", lines) in shortest_ns
    }
    GHz = clock(record["clock_GHz"] for record in quiet.values()).value
    if not GHz > 0:
        return []
    sizes_B = sorted(costs_ns)
    return [
        Tlb(
            mmap.PAGESIZE,
            Quantity(
                level.end_B,
                level.end_B,
                float(
                    min((size_B for size_B in sizes_B if size_B > level.end_B), default=math.nan)
                ),
            ),
            level.value,
        )
        for level in tlb_levels(sizes_B, [costs_ns[size_B] for size_B in sizes_B], 1 / GHz)
    ]


def _cost_rows(done: _Done) -> list[Cost]:
    rows = []
    for key, measured in done.items():
        if key.what == "launch":
            rows.append(Cost("launch", key.values[0], time_of(measured.record, 1e9)))
        elif key.what == "work" and key.values[0] != "free":
            repetition, count = key.values
            name = "spinning barrier" if repetition == "spin" else "barrier"
            if without := done.get(_Key("work", ("free", count))):
                both = [time_of(m.record, 1e9) for m in (measured, without)]
                rows.append(Cost(name, count, _difference(*both)))
    return rows


def _instruction_rows(done: _Done, bits: Mapping[_Key, int]) -> list[Instruction]:
    found: dict[tuple[str, int], dict[str, Quantity]] = {}
    for values, record in _records_of(done, "instruction").items():
        name, quantity = record["instruction"], record["quantity"]
        if stride := record.get("index_stride"):
            name += ", random" if stride == "random" else f", stride {stride}"
        width = record.get("vector_bits") or bits[_Key("instruction", values)]
        width = SCALAR_BITS if record["variant"] == "scalar" else width
        found.setdefault((name, width), {})[quantity] = _per_access(record, "cycles_per_access")
    return [
        Instruction(
            name,
            width,
            each.get("throughput", Quantity()),
            each.get("latency", Quantity()),
            "latency: store and load of the same address" if name == "store" else "",
        )
        for (name, width), each in sorted(found.items())
    ]
