"""The roofline model with a ceiling for every level, for records of any family.

The time of an invocation is at least the time of the transfers across each boundary, and at least
the time of its floating-point operations. Transfers of different levels overlap. Ceilings come from
a machine file: loads have the bandwidth of loads, stores the rest of the time of a store after the
load of its write-allocate. Without a machine file, records of some families contain measured
ceilings of memory.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", 2009.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from memkern.checks import integer
from memkern.errors import InputError
from memkern.machine.environment import processor_model
from memkern.models.ecm import MEMORY, store_GBps
from memkern.models.ecm_fit import level_of, transfers_of
from memkern.models.machine_file import MachineFile
from memkern.models.machine_reading import machine_of
from memkern.spec.kernel import Transfer

BESIDE = "measured beside"
"""Value in place of a machine file for ceilings that were measured with the record."""
# Factor by which memory may be faster than its ceiling, due to the variance of ceilings.
_MOST_FRACTION = 1.05


@dataclass(frozen=True)
class Ceiling:
    """Bandwidths across the boundary in front of a level.

    Attributes
    ----------
    load_GBps, store_GBps : float
        Bandwidths of loads and of stores.
    apart : float
        Share of the shorter transfer that does not overlap with the longer one: 1 if loads and
        stores follow each other, 0 if they are simultaneous.
    """

    load_GBps: float
    store_GBps: float
    apart: float = 1.0

    def seconds(self, moved: Transfer) -> float:
        """Return the least time of a transfer."""
        load_s, store_s = self._both(moved)
        return max(load_s, store_s) + self.apart * min(load_s, store_s)

    def _both(self, moved: Transfer) -> tuple[float, float]:
        return moved.load_B / self.load_GBps / 1e9, moved.store_B / self.store_GBps / 1e9

    def times(self, number: float) -> Ceiling:
        """Return the combined ceiling of several equal machines, ranks or nodes."""
        return replace(self, load_GBps=number * self.load_GBps, store_GBps=number * self.store_GBps)

    def with_copy(self, moved: Transfer, seconds: float) -> Ceiling:
        """Return the ceiling whose copy with these transfers takes about this time."""
        load_s, store_s = self._both(moved)
        apart = (seconds - max(load_s, store_s)) / min(load_s, store_s)
        return replace(self, apart=min(max(apart, 0.0), 1.0))


@dataclass(frozen=True)
class Roofline:
    """The limit of a record.

    Attributes
    ----------
    seconds : float
        Least time of an invocation.
    bound : str
        Level with the longest time, or ``core`` for floating-point operations.
    levels_s : mapping of str to float
        Least time by level.
    """

    seconds: float
    bound: str
    levels_s: Mapping[str, float]


def ceilings(machine: MachineFile, cores: int = 1) -> dict[str, Ceiling]:
    """Return the ceilings of some cores, by level.

    Parameters
    ----------
    machine : MachineFile
        If measured, its stores in caches behind L1 and in memory first read their lines. Copies
        determine the overlap of loads and stores; without copies, there is none.
    cores : int
        They fill one instance of a cache, or one domain, after the other. If the file does not have
        this number, the bandwidth is the least bound from other numbers: more cores have at least
        as much, instances and domains add up, and so do the cores of one at most.

    Raises
    ------
    InputError
        `cores` is below 1, or the file lacks the bandwidth of loads or of stores of a level.
    """
    integer(cores, "cores", 1)
    found = {}
    for number, level in enumerate(machine.levels):
        load, store, copy, triad = (
            _rate(machine, level.name, operation, cores)
            for operation in ("load", "store", "copy", "triad")
        )
        if number == 0:
            # Loops have further instructions.
            load, store = (
                max(rate or 0.0, _instruction_GBps(machine, name, cores)) or None
                for name, rate in (("load", load), ("store", store))
            )
        allocates = number > 0 and bool(machine.created)
        if load is not None and store is None and triad is not None:
            store = store_GBps(load, triad)
        elif load is not None and store is not None and allocates:
            # A stored byte is loaded before.
            store = Transfer(1.0, 1.0).stores_GBps(load, 1 / store / 1e9)
        if load is None or store is None:
            raise InputError(
                f"the machine file of {machine.name} has no bandwidth of loads and stores in "
                f"{level.name} for {cores} cores"
            )
        found[level.name] = Ceiling(load, store)
        if copy is not None:
            # Half of the bytes of a copy are stored.
            found[level.name] = found[level.name].with_copy(
                Transfer(2.0 if allocates else 1.0, 1.0), 2 / copy / 1e9
            )
    return found


def _rate(machine: MachineFile, level: str, operation: str, cores: int) -> float | None:
    rows = {
        row.cores: row.GBps.value
        for row in machine.bandwidths
        if (row.level, row.operation) == (level, operation)
        and row.stores in ("", "ordinary")
        and row.GBps.known
    }
    shared_by = next(one.shared_by for one in machine.levels if one.name == level)
    return _rate_of(rows, shared_by, cores) if rows else None


def _rate_of(rows: Mapping[int, float], shared_by: int, cores: int) -> float:
    """Return an upper bound of the bandwidth of some cores, from other numbers of cores."""
    if cores in rows:
        return rows[cores]
    # Private caches have equal shares of the bandwidth of more cores.
    limits = [
        rate * (cores / count if shared_by == 1 else 1.0)
        for count, rate in rows.items()
        if count > cores
    ]
    if cores > shared_by:
        block = max(
            [count for count in rows if count < cores and count % shared_by == 0], default=shared_by
        )
        blocks, rest = divmod(cores, block)
        sum_of_parts = blocks * _rate_of(rows, shared_by, block)
        limits.append(sum_of_parts + (_rate_of(rows, shared_by, rest) if rest else 0.0))
    elif fewer := [count for count in rows if count < cores]:
        limits.append(rows[max(fewer)] * cores / max(fewer))
    return min(limits)


def _instruction_GBps(machine: MachineFile, name: str, cores: int, least_bits: int = 0) -> float:
    """Return the rate of instructions on vectors of so many bits, in their bytes; 0 if unknown."""
    rates = [
        row.vector_bits / 8 / row.reciprocal_cycles.value
        for row in machine.instructions
        if row.name == name and row.vector_bits >= least_bits and row.reciprocal_cycles.known
    ]
    return max(rates, default=0.0) * machine.clock_GHz.value * cores


def peak_GFLOPs(machine: MachineFile, cores: int = 1, value_B: int = 8) -> float:
    """Return the peak of multiply-adds of some cores; NaN if the file has no instruction.

    Parameters
    ----------
    machine : MachineFile
    cores : int
    value_B : int
        Size of a value in bytes.
    """
    return 2 * _instruction_GBps(machine, "fma", cores, 65) / value_B or math.nan


def roofline(machine: MachineFile, record: Mapping[str, Any]) -> Roofline:
    """Return the limit of a record by a machine file.

    Parameters
    ----------
    machine : MachineFile
        Machine file of each node, if the record is of ranks on several nodes.
    record : mapping
        With the columns of transfers (``L1_load_B`` and so on), ``threads``, ``footprint_B``,
        ``time_median_s``, and for floating-point operations ``performance_GFLOPs`` and
        ``time_min_s``.

    Raises
    ------
    InputError
        The record has no transfers, or the file has no bandwidths.
    """
    ranks = _count(record.get("ranks"))
    nodes = max(ranks // _count(record.get("ranks_per_node")), 1)
    cores = min(int(record["threads"]) * ranks // nodes, machine.cores * machine.domains)
    sizes_B = {name: nodes * size_B for name, size_B in machine.cache_sizes_B(cores).items()}
    tops = {name: one.times(nodes) for name, one in ceilings(machine, cores).items()}
    value_B = 4 if record.get("dtype") in ("float32", "int32") else 8
    return limit(record, tops, sizes_B, nodes * peak_GFLOPs(machine, cores, value_B))


def limit(
    record: Mapping[str, Any],
    tops: Mapping[str, Ceiling],
    sizes_B: Mapping[str, float],
    peak: float = math.nan,
) -> Roofline:
    """Return the limit of a record by the ceilings of some levels.

    Parameters
    ----------
    record : mapping
        As for `roofline`.
    tops : mapping of str to Ceiling
        By level.
    sizes_B : mapping of str to float
        Sizes of the caches that may hold its data; without any, data come from memory.
    peak : float
        Largest GFLOP/s; NaN for no limit.

    Raises
    ------
    InputError
        The record has no transfers, or none of the ceilings limits it.
    """
    moved = transfers_of(record)
    at = level_of(record, list(dict.fromkeys([*sizes_B, *moved])), sizes_B) if moved else MEMORY
    if at not in moved:
        raise InputError(
            f"the record of {record.get('kernel')} lacks the bytes of a level up to {at}: its "
            "kernel or its version of memkern does not model them"
        )
    names = list(moved)
    levels_s = {
        name: tops[name].seconds(moved[name])
        for name in names[: names.index(at) + 1]
        if name in tops
    }
    flops = _flops(record)
    if flops and not math.isnan(peak):
        levels_s["core"] = flops / peak / 1e9
    bound, seconds = max(levels_s.items(), key=lambda pair: pair[1], default=("", 0.0))
    if not seconds:
        raise InputError(f"this roofline does not limit the record of {record.get('kernel')}")
    levels_s.pop("core", None)
    return Roofline(seconds, bound, levels_s)


def step(machine_file: str = "") -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return the function that adds the roofline columns to a measured record.

    Parameters
    ----------
    machine_file : str
        As for `load_machine`; by default the bandwidths measured with each record are used.

    Returns
    -------
    callable
        Record to columns; none without known transfers across a boundary with a ceiling.

    Raises
    ------
    InputError
        The file can't be read, is of another machine, or has no bandwidths.
    """
    machine = machine_of(machine_file, [processor_model()]) if machine_file else None
    if machine is not None:
        ceilings(machine)
    return functools.partial(_added_columns, machine)


def _added_columns(machine: MachineFile | None, record: Mapping[str, Any]) -> dict[str, Any]:
    try:
        if machine is not None:
            return roofline_columns(record, roofline(machine, record), machine.label)
        load_GBps = record.get("load_GBps", math.nan)
        if math.isnan(load_GBps):
            return {}
        return roofline_columns(
            record, limit(record, {MEMORY: Ceiling(load_GBps, record["store_GBps"])}, {}), BESIDE
        )
    except InputError as error:
        # The traffic is unknown, or there is none across a boundary with a ceiling.
        if machine is not None:
            warnings.warn(f"no roofline by {machine.label}: {error}", stacklevel=2)
        return {}


def roofline_columns(record: Mapping[str, Any], found: Roofline, source: str) -> dict[str, Any]:
    """Return a record's columns on its roofline, the same for all families.

    Parameters
    ----------
    record : mapping
        As for `roofline`.
    found : Roofline
    source : str
        Source of the ceilings: the label of the machine file, or `BESIDE`.
    """
    return {
        "machine_file": source,
        "bound": found.bound,
        "roofline_s": found.seconds,
        "roofline_GFLOPs": _flops(record) / found.seconds / 1e9 or math.nan,
        "roofline_fraction": _fraction(found, float(record["time_median_s"])),
        "roofline_min_fraction": _fraction(found, float(record["time_min_s"])),
    }


def _fraction(found: Roofline, seconds: float) -> float:
    """Return the least time over a measured one; NaN if memory was faster than its ceiling."""
    fraction = found.seconds / seconds
    return math.nan if found.bound == MEMORY and fraction > _MOST_FRACTION else fraction


def _count(value: Any) -> int:
    """Return a number of ranks; 1 if unknown, as in older records."""
    return int(value) if value and value == value else 1


def _flops(record: Mapping[str, Any]) -> float:
    flops = (record.get("performance_GFLOPs") or math.nan) * 1e9 * record["time_min_s"]
    return 0.0 if math.isnan(flops) else float(flops)
