"""The roofline model with a ceiling for every level, for records of any family.

The time of an invocation is at least that of the transfers across each boundary which it crosses,
and at least that of its floating-point operations. Transfers of different levels overlap. Ceilings
are those of a machine file: loads by the bandwidth of loads, stores by what is left of the time of
stores after the loads of their write-allocates.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", 2009.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memkern.checks import integer
from memkern.errors import InputError
from memkern.models.ecm import store_GBps
from memkern.models.ecm_fit import level_of, transfers_of
from memkern.models.machine_file import MachineFile
from memkern.spec.kernel import Transfer

__all__ = ["Ceiling", "Roofline", "ceilings", "peak_GFLOPs", "roofline"]

# Least time of a store after its write-allocate, as a share of that of a load.
_LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Ceiling:
    """Bandwidths across the boundary in front of a level.

    Attributes
    ----------
    load_GBps, store_GBps : float
        Of loads and of stores.
    apart : float
        Share of the shorter one of both that does not overlap with the longer one: 1 if loads and
        stores follow each other, 0 if they take place at the same time.
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

    def with_copy(self, moved: Transfer, seconds: float) -> Ceiling:
        """Return the ceiling at which a copy with these transfers takes so long, or nearly so."""
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
        Level whose boundary takes so long, or ``core`` for floating-point operations.
    levels_s : mapping of str to float
        Least time by level.
    fraction : float
        Least time divided by the median time.
    """

    seconds: float
    bound: str
    levels_s: Mapping[str, float]
    fraction: float


def ceilings(machine: MachineFile, cores: int = 1) -> dict[str, Ceiling]:
    """Return the ceilings of some cores, by level.

    Parameters
    ----------
    machine : MachineFile
        Its stores in caches behind L1 and in memory first read their lines, if it was measured.
        Copies show how far loads and stores overlap; without them, they do not.
    cores : int
        Of several numbers of cores that were measured, the largest one up to it counts; the rest of
        the cores add their share where a level is not shared. Without it, the smallest one counts.

    Raises
    ------
    InputError
        There is no core, or the file lacks the bandwidths of loads or of stores of a level.
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
            # A stored byte is loaded before. What hides behind that takes no time of its own.
            store = 1 / max(1 / store - 1 / load, _LEAST_SHARE / load)
        if load is None or store is None:
            raise InputError(
                f"the machine file of {machine.name} has no bandwidth of loads and stores in "
                f"{level.name} for {cores} cores"
            )
        found[level.name] = Ceiling(load, store)
        if copy is not None:
            # Half of the bytes of a copy are stored.
            moved = Transfer(2.0 if allocates else 1.0, 1.0)
            found[level.name] = found[level.name].with_copy(moved, 2 / copy / 1e9)
    return found


def _rate(machine: MachineFile, level: str, operation: str, cores: int) -> float | None:
    rows = {
        row.cores: row.GBps.value
        for row in machine.bandwidths
        if (row.level, row.operation) == (level, operation)
        and row.stores in ("", "ordinary")
        and row.GBps.known
    }
    shared = next(one.shared_by for one in machine.levels if one.name == level) > 1
    fewer = [count for count in rows if count <= cores]
    if fewer:
        return rows[max(fewer)] * (1.0 if shared else cores / max(fewer))
    # What more cores have together is a limit of some of them as well.
    return rows[min(rows)] if rows and shared else None


def _instruction_GBps(machine: MachineFile, name: str, cores: int) -> float:
    """Return the bandwidth at which instructions move whole vectors; 0 if it is unknown."""
    rates = [
        row.vector_bits / 8 / row.reciprocal_cycles.value
        for row in machine.instructions
        if row.name == name and row.reciprocal_cycles.known
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
    rates = [
        2 * row.vector_bits / (8 * value_B) / row.reciprocal_cycles.value
        for row in machine.instructions
        if row.name == "fma" and row.vector_bits > 64 and row.reciprocal_cycles.known
    ]
    return max(rates, default=math.nan) * machine.clock_GHz.value * cores


def roofline(
    machine: MachineFile, record: Mapping[str, Any], sizes_B: Mapping[str, float] | None = None
) -> Roofline:
    """Return the limit of a record.

    Parameters
    ----------
    machine : MachineFile
    record : mapping
        With the columns of transfers (``L1_load_B`` and so on), ``threads``, ``footprint_B``,
        ``time_median_s``, and for floating-point operations ``performance_GFLOPs`` and
        ``time_min_s``.
    sizes_B : mapping of str to float, optional
        Sizes of the caches of all threads; by default those of the machine file.

    Raises
    ------
    InputError
        The record has no transfers, or the file no bandwidths.
    """
    moved = transfers_of(record)
    if not moved:
        raise InputError(
            f"the record of {record.get('kernel')} has no bytes of each level: it is of a kernel "
            "or of a version without them"
        )
    cores = int(record["threads"])
    if sizes_B is None:
        sizes_B = {
            level.name: level.size_B * max(cores // max(level.shared_by, 1), 1)
            for level in machine.levels
            if level.size_B
        }
    at = level_of(record, list(moved), sizes_B)
    tops = ceilings(machine, cores)
    crossed = _until(list(moved), at)
    levels_s = {name: tops[name].seconds(moved[name]) for name in crossed if name in tops}
    flops = _flops(record)
    peak = peak_GFLOPs(machine, cores, 4 if record.get("dtype") == "float32" else 8)
    core_s = flops / peak / 1e9 if flops and not math.isnan(peak) else 0.0
    bound, seconds = max(levels_s.items(), key=lambda pair: pair[1])
    if core_s > seconds:
        bound, seconds = "core", core_s
    return Roofline(seconds, bound, levels_s, seconds / float(record["time_median_s"]))


def _flops(record: Mapping[str, Any]) -> float:
    performance = record.get("performance_GFLOPs") or math.nan
    flops = performance * 1e9 * record["time_min_s"]
    return 0.0 if math.isnan(flops) else float(flops)


def _until(levels: Sequence[str], last: str) -> list[str]:
    return list(levels[: levels.index(last) + 1])
