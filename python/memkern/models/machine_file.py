"""Machine files: parameters of a processor for models, measured or published.

A machine file is JSON with a versioned schema, which `memkern machine -o host.json` writes. Each
measured quantity has an interval.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from memkern import files
from memkern.checks import shown
from memkern.errors import InputError
from memkern.models.ecm import Ecm, EcmLevel, MemoryRate
from memkern.models.overlap import Overlap
from memkern.statistics import meaningful, with_bounds

FORMAT = "memkern machine"
VERSION = 2
SCALAR_BITS = 64
"""Vector bits of instructions in scalar code."""
# Other instruction sets, such as SVE without a fixed width, have the file's widest vectors.
_ISA_BITS = {"avx512": 512, "avx2": 256, "sse4": 128, "neon": 128, "baseline": 128}


@dataclass(frozen=True)
class Quantity:
    """A value with the interval of its measurement; NaN where unknown."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan

    @property
    def known(self) -> bool:
        """Whether there is a value."""
        return not math.isnan(self.value)

    def scaled(self, factor: float) -> Quantity:
        """Return the quantity times a positive number."""
        return Quantity(self.value * factor, self.low * factor, self.high * factor)

    def __str__(self) -> str:
        """Return the value in the figures of `meaningful`, with the interval if there is one."""
        if not self.known:
            return "unknown"
        if math.isnan(self.low):
            return meaningful(self.value)
        return with_bounds(self.value, self.low, self.high)


@dataclass(frozen=True)
class Level:
    """A cache, or memory.

    Attributes
    ----------
    name : str
        ``L1``, ``L2``, ``L3``, ... or ``memory``.
    size_B : int or None
        Size of one instance; None for memory.
    shared_by : int
        Cores that share an instance; for memory, the cores of a domain.
    latency_ns : Quantity
        Idle latency of a dependent load.
    in_flight : Quantity
        Loads in flight of one core.
    saturating_cores : int or None
        Least number of cores that reach the bandwidth of an instance; None if all are needed, or if
        unknown.
    """

    name: str
    size_B: int | None
    shared_by: int
    latency_ns: Quantity = Quantity()
    in_flight: Quantity = Quantity()
    saturating_cores: int | None = None


@dataclass(frozen=True)
class Bandwidth:
    """Bandwidth of a loop whose data are in a level.

    Measured bandwidths do not count write-allocates, published ones count them as their source
    does.

    Attributes
    ----------
    level : str
    operation : str
        ``load``, ``store``, ``copy`` or ``triad``.
    stores : str
        ``ordinary`` or ``non-temporal``; empty for loads.
    cores : int
        Cores that move data at the same time.
    B_per_cycle, GBps : Quantity
        Bandwidth of all these cores together, per cycle of a core and in decimal GB/s.
    disturbed : bool
        Whether its samples were disturbed.
    """

    level: str
    operation: str
    stores: str
    cores: int
    B_per_cycle: Quantity
    GBps: Quantity
    disturbed: bool = False


@dataclass(frozen=True)
class Tlb:
    """A level of the TLBs.

    Attributes
    ----------
    page_B : int
    reach_B : Quantity
        Bytes that its pages cover; interval from the largest size that fits to the smallest that
        does not. Published ones have no interval.
    cost_ns : float
        Cost of a hit: the median over all sizes of the level, without an interval; NaN if unknown.
    """

    page_B: int
    reach_B: Quantity
    cost_ns: float


@dataclass(frozen=True)
class Cost:
    """Time of a barrier or of the launch of a parallel region, by name and number of threads."""

    name: str
    threads: int
    ns: Quantity


@dataclass(frozen=True)
class Instruction:
    """Reciprocal throughput and latency of an instruction, in cycles.

    Attributes
    ----------
    name : str
        Such as ``fma`` or ``gather, stride 2``.
    vector_bits : int
        Bits of the vectors; 64 for scalar code.
    reciprocal_cycles, latency_cycles : Quantity
    note : str
        A bound, such as ``latency is at least this``, or the instruction's name.
    """

    name: str
    vector_bits: int
    reciprocal_cycles: Quantity
    latency_cycles: Quantity = Quantity()
    note: str = ""


@dataclass(frozen=True)
class EcmParameters:
    """Bandwidths of the ECM model's boundaries, and the hypothesis on their overlap.

    They have no intervals: only the error of the hypothesis on the fitted loops is known, which
    ``memkern ecm`` prints.

    Attributes
    ----------
    levels : tuple of EcmLevel
    overlap : str
        See `memkern.models.Overlap.parse`.
    how : str
        Origin of the parameters.
    memory_rate : str
        ``apart`` or ``common``, see `memkern.models.Ecm`.
    """

    levels: tuple[EcmLevel, ...]
    overlap: str
    how: str
    memory_rate: str = "apart"


@dataclass(frozen=True)
class InCore:
    """Measured time of a compiled body whose data are in a cache close to the core.

    Attributes
    ----------
    body : str
        Name of the compiled body (see `body_of`).
    level : str
        Cache that held the data.
    cycles : float
        Cycles of an element: a value of each array, a nonzero, or a site and s.
    row_cycles : float
        Cycles of a row of a sparse matrix in addition to its nonzeros; 0 for other kernels.
    """

    body: str
    level: str
    cycles: float
    row_cycles: float = 0.0


# Columns that distinguish compiled bodies.
_BODY = (
    *("kernel", "variant", "isa", "dtype", "index_dtype", "unroll"),
    *("result", "C", "layout", "cut", "vector_bits"),
)
# Non-temporal stores and prefetch do not change the work of the core.
_SAME = {"nt": "simd", "nta": "simd"}


def body_of(record: Mapping[Any, Any]) -> str:
    """Return the name of the compiled body of a record."""
    words = []
    for name in _BODY:
        value = record.get(name)
        if name == "variant":
            value = _SAME.get(str(value), value)
        # Vectors over sites have the same body for all dimensions.
        if name == "cut" and value:
            value = "s" if value == "s" else "sites"
        if isinstance(value, (int, float, np.number)):
            value = "" if math.isnan(value) or not value else f"{value:g}"
        if value:
            words.append(f"{name}={value}" if name in ("unroll", "C") else str(value))
    return " ".join(words)


@dataclass(frozen=True)
class MachineFile:
    """A processor as measured or published.

    Attributes
    ----------
    name : str
        Name of the machine in reports.
    model : str
        The processor's model as the operating system reports it; empty if unknown.
    source : str
        Origin of the data: measurement or publication.
    created : str
        Date and time in UTC of a measurement.
    clock_GHz : Quantity
        Frequency of the cores during the measurements.
    vector_bits, line_B : int
        Widest vectors, and size of a line of the last cache.
    cores, domains : int
        Cores of a domain, which share the last cache and memory, and the number of domains.
    levels : tuple of Level
    bandwidths : tuple of Bandwidth
    tlbs : tuple of Tlb
    costs : tuple of Cost
    instructions : tuple of Instruction
    ecm : EcmParameters or None
    in_core : tuple of InCore
    """

    name: str
    model: str
    source: str
    created: str
    clock_GHz: Quantity
    vector_bits: int
    line_B: int
    cores: int
    domains: int
    levels: tuple[Level, ...]
    bandwidths: tuple[Bandwidth, ...] = ()
    tlbs: tuple[Tlb, ...] = ()
    costs: tuple[Cost, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    ecm: EcmParameters | None = None
    in_core: tuple[InCore, ...] = ()

    @property
    def caches(self) -> list[dict[str, Any]]:
        """Return the caches in the form of an environment, one processing unit for each core."""
        return [
            {"level": int(level.name[1:]), "size_B": level.size_B, "shared_by": level.shared_by}
            for level in self.levels
            if level.size_B
        ]

    def cache_sizes_B(self, cores: int = 1) -> dict[str, float]:
        """Return the total sizes of the caches of some cores, by level.

        Cores that share a cache are adjacent, and each core has an equal part of the data.
        """
        return {
            level.name: level.size_B * max(cores / level.shared_by, 1.0)
            for level in self.levels
            if level.size_B
        }

    def model_of(
        self, overlap: Overlap | None = None, memory_rate: MemoryRate | None = None
    ) -> Ecm:
        """Return the ECM model of the processor.

        Parameters
        ----------
        overlap : Overlap, optional
            Hypothesis in place of the file's.
        memory_rate : {"apart", "common"}, optional
            Bandwidths of memory in place of the file's, see `memkern.models.Ecm`.

        Raises
        ------
        InputError
            The file has no parameters of the model.
        """
        if self.ecm is None:
            raise InputError(
                f"the machine file of {self.name} has no parameters of the ECM model: "
                "`memkern ecm --machine FILE` adds them"
            )
        return Ecm(
            self.ecm.levels,
            overlap or Overlap.parse(self.ecm.overlap),
            self.clock_GHz.value,
            self.cores,
            self.domains,
            memory_rate or cast("MemoryRate", self.ecm.memory_rate),
        )

    def instruction(self, name: str, vector_bits: int | None = None) -> Instruction:
        """Return an instruction, by default at the widest vectors.

        Raises
        ------
        InputError
            The file does not have it.
        """
        wanted = self.vector_bits if vector_bits is None else vector_bits
        for row in self.instructions:
            if (row.name, row.vector_bits) == (name, wanted):
                return row
        raise InputError(
            f"the machine file of {self.name} has no instruction {shown(name)} with {wanted} bits"
        )

    @property
    def loads_and_stores(self) -> EcmLevel | None:
        """Bytes per cycle of the widest vector loads and stores; None if unknown."""
        try:
            load, store = (self.instruction(name).reciprocal_cycles for name in ("load", "store"))
        except InputError:
            return None
        if not (load.known and store.known):
            return None
        vector_B = self.vector_bits / 8
        return EcmLevel("instructions", vector_B / load.value, vector_B / store.value)

    def in_core_of(self, record: Mapping[Any, Any]) -> InCore | None:
        """Return the measured time of a record's body; None without one."""
        wanted = body_of(record)
        return next((one for one in self.in_core if one.body == wanted), None)

    def with_in_core(self, measured: Iterable[InCore]) -> MachineFile:
        """Return a copy with these times, which replace times of the same bodies."""
        return replace(
            self, in_core=tuple({one.body: one for one in (*self.in_core, *measured)}.values())
        )

    def bits_of(self, isa: str) -> int:
        """Return the bits of the vectors of a record's instruction set."""
        return _ISA_BITS.get(isa, self.vector_bits)

    @property
    def label(self) -> str:
        """Label of the file in records, figures and reports: its name and date of measurement."""
        return f"{self.name}, {self.created or 'published'}"

    def is_of(self, model: str) -> bool:
        """Return whether records of this model may be of this machine; true if unknown."""
        return not (self.model and model) or self.model == model

    def describes(self, model: str) -> bool:
        """Return whether a processor's model is the file's, or has all words of its name."""
        if self.model:
            return self.model == model
        return set(self.name.split()) <= set(model.replace("(R)", " ").replace("(TM)", " ").split())

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps({"format": FORMAT, "version": VERSION, **_plain(self)}, indent=1) + "\n"

    def save(self, path: str | Path, force: bool = False) -> Path:
        """Write the file.

        Raises
        ------
        InputError
            It can't be written, or it exists and `force` is not set.
        """
        target = files.unused(path, force)
        files.publish({target: self.to_json().encode()})
        return target


def _plain(value: Any) -> Any:
    """Return plain data; numbers without a representation in JSON become null."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Comparison


class Difference(NamedTuple):
    """One quantity of two machines.

    Attributes
    ----------
    what : str
    first, second : Quantity
        Unknown if a file does not have it.
    """

    what: str
    first: Quantity
    second: Quantity

    @property
    def ratio(self) -> float:
        """The second value over the first, NaN if one is unknown."""
        return self.second.value / self.first.value if self.first.value else math.nan

    @property
    def differs(self) -> bool:
        """Whether intervals are disjoint, or values without intervals differ by more than 1 %."""
        a, b = (
            (q.value, q.value) if math.isnan(q.low) else (q.low, q.high)
            for q in (self.first, self.second)
        )
        return bool((a[1] < b[0] or b[1] < a[0]) and abs(self.ratio - 1) > 0.01)


def differences(first: MachineFile, second: MachineFile) -> list[Difference]:
    """Return pairs of all quantities of two machines."""
    both = [_quantities(one) for one in (first, second)]
    return [
        Difference(what, both[0].get(what, Quantity()), both[1].get(what, Quantity()))
        for what in dict.fromkeys((*both[0], *both[1]))
    ]


def _quantities(machine: MachineFile) -> dict[str, Quantity]:
    found = {
        "clock (GHz)": machine.clock_GHz,
        "vector (bit)": Quantity(machine.vector_bits),
        "line (B)": Quantity(machine.line_B),
        "cores of a domain": Quantity(machine.cores),
        "domains": Quantity(machine.domains),
    }
    for level in machine.levels:
        found[f"{level.name}: size (KiB)"] = Quantity(
            math.nan if level.size_B is None else level.size_B / 2**10
        )
        found[f"{level.name}: latency (ns)"] = level.latency_ns
        found[f"{level.name}: loads in flight"] = level.in_flight
    for row in machine.bandwidths:
        how = f"{row.operation}, {row.stores}" if row.stores else row.operation
        cores = "one core" if row.cores == 1 else f"{row.cores} cores"
        found[f"{row.level}: {how}, {cores} (GB/s)"] = row.GBps
    found |= {
        f"TLB {number}: reach (MiB)": tlb.reach_B.scaled(1 / 2**20)
        for number, tlb in enumerate(machine.tlbs, start=1)
    }
    found |= {f"{cost.name}, {cost.threads} threads (ns)": cost.ns for cost in machine.costs}
    for one in machine.instructions:
        found[f"{one.name}, {one.vector_bits} bit: reciprocal (cycles)"] = one.reciprocal_cycles
        found[f"{one.name}, {one.vector_bits} bit: latency (cycles)"] = one.latency_cycles
    for measured in machine.in_core:
        what = f"{measured.body} in {measured.level}"
        found[f"{what}: element (cycles)"] = Quantity(measured.cycles)
        found[f"{what}: row (cycles)"] = Quantity(measured.row_cycles or math.nan)
    return {what: quantity for what, quantity in found.items() if quantity.known}
