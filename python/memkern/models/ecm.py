"""The ECM model (execution, cache, memory): time of a loop from its transfers between levels.

The time of a loop on one core is ``T = max(T_core, f(T_L1, T_L2, ..., T_memory))``. T_core is the
time of the instructions that overlap with data transfers. The term of a level is the time of the
transfers across the boundary in front of it: ``L1`` between registers and L1, ``L2`` between L1 and
L2, ``memory`` between the last cache and memory. It is the sum of loaded and stored bytes, each
divided by its own bandwidth; the term of memory may also be that of all bytes at one bandwidth, as
in the paper (see `MemoryRate`). Loads include write-allocates.

The hypothesis f (see `memkern.models.overlap`) defines which terms overlap.

Several cores share the bandwidth of memory, and possibly of caches (a domain). Their time is the
time of one core divided by their number, until it reaches the limit of a shared level.

Sources: Treibig and Hager 2010; Stengel et al. 2015; Alappat et al., "ECM modeling and performance
tuning of SpMV and Lattice QCD on A64FX", 2021.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from memkern.checks import integer, number, one_of
from memkern.errors import InputError
from memkern.machine.caches import MEMORY as MEMORY
from memkern.models.overlap import Overlap, Terms
from memkern.spec.kernel import Transfer

Scaling: TypeAlias = Literal["limited", "linear"]
MemoryRate: TypeAlias = Literal["apart", "common"]
"""Bandwidths of memory: ``apart``, of loads and of stores; ``common``, one for all bytes."""

# Share of loads in the traffic of a triad with write-allocates: three arrays of four.
_TRIAD_LOADS = 3 / 4
# Least share of loads with which they dominate. The paper has no number: by this one, sparse
# products have the bandwidth of loads, and the hopping term of lattice QCD (87 %) that of a triad.
_DOMINATING_LOADS = 0.9


def positive(value: float, what: str) -> float:
    """Return a number, named `what` in messages; raise InputError unless it is positive."""
    if not value > 0:
        raise InputError(f"{what} must be positive, not {value!r}")
    return value


def store_GBps(load_GBps: float, triad_GBps: float) -> float:
    """Return the bandwidth of stores that explains the measured bandwidth of a triad.

    Parameters
    ----------
    load_GBps : float
        Bandwidth of loads alone.
    triad_GBps : float
        Bandwidth of a triad with its write-allocates: three loads for each store.

    Raises
    ------
    InputError
        A bandwidth is not positive, or the loads of the triad alone would take longer than the
        triad.
    """
    positive(load_GBps, "load_GBps")
    positive(triad_GBps, "triad_GBps")
    rest = 1 / triad_GBps - _TRIAD_LOADS / load_GBps
    if not rest > 0:
        raise InputError(
            f"loads of {load_GBps:g} GB/s are too slow for a triad of {triad_GBps:g} GB/s, three "
            "quarters of which are loads"
        )
    return (1 - _TRIAD_LOADS) / rest


@dataclass(frozen=True)
class EcmLevel:
    """Bandwidths across the boundary in front of a level, in bytes per cycle of the core.

    Parameters
    ----------
    name : str
        ``L1``, ``L2``, ``L3``, ... or ``memory``.
    load_B, store_B : float
        Bandwidth of one core; infinite for transfers that take no time.
    domain_load_B, domain_store_B : float
        Bandwidth of all cores of a domain; infinite if cores do not share the boundary.
    """

    name: str
    load_B: float
    store_B: float
    domain_load_B: float = math.inf
    domain_store_B: float = math.inf

    def __post_init__(self) -> None:
        """Check the signs."""
        for what in ("load_B", "store_B", "domain_load_B", "domain_store_B"):
            positive(getattr(self, what), f"{what} of {self.name}")

    @property
    def triad(self) -> tuple[float, float]:
        """Bandwidths of a triad with its write-allocates, of one core and of a domain."""
        pairs = ((self.load_B, self.store_B), (self.domain_load_B, self.domain_store_B))
        cycles = [_TRIAD_LOADS / load + (1 - _TRIAD_LOADS) / store for load, store in pairs]
        one, domain = (1 / each if each else math.inf for each in cycles)
        return one, domain

    def longest(self, moved: Transfer) -> float:
        """Return the longer one of the cycles of loads and of stores of one core."""
        return max(moved.load_B / self.load_B, moved.store_B / self.store_B)


@dataclass(frozen=True)
class Ecm:
    """The model of a processor.

    Parameters
    ----------
    levels : tuple of EcmLevel
        From L1 to memory.
    overlap : Overlap
        Hypothesis on these levels.
    clock_GHz : float
        Frequency of the cores.
    cores, domains : int
        Cores of a domain, which share the last cache and memory, and the number of domains.
    memory_rate : {"apart", "common"}
        Whether loads and stores of memory have their own bandwidths, or all bytes that of loads if
        at least nine of ten bytes are loaded, else that of a triad, as in the paper (section
        "Multicore"), which does not say from which share on loads dominate.

    Raises
    ------
    InputError
        A number is out of range, a level occurs twice, or the hypothesis has other levels.
    """

    levels: tuple[EcmLevel, ...]
    overlap: Overlap
    clock_GHz: float
    cores: int = 1
    domains: int = 1
    memory_rate: MemoryRate = "apart"

    def __post_init__(self) -> None:
        """Check every parameter."""
        if len(self.names) < 2 or self.names[-1] != MEMORY or len({*self.names}) < len(self.names):
            raise InputError(f"levels must be caches and then memory, not {', '.join(self.names)}")
        number(self.clock_GHz, "clock_GHz", 1e-6)
        integer(self.cores, "cores", 1)
        integer(self.domains, "domains", 1)
        one_of(self.memory_rate, "memory_rate", get_args(MemoryRate))
        self.overlap.check(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the levels."""
        return tuple(level.name for level in self.levels)

    def predict(
        self, transfers: Mapping[str, Transfer], core: float = 0.0, at: str = MEMORY
    ) -> EcmPrediction:
        """Return the prediction for a loop.

        Parameters
        ----------
        transfers : mapping of str to Transfer
            Bytes across the boundary in front of each level, for a unit of work such as one vector
            of each stream, a row or a site (see `memkern.Case.transfers`).
        core : float
            T_core: cycles of the unit in the core that overlap with all transfers.
        at : str
            Level that holds the data. Boundaries behind it are not crossed.

        Returns
        -------
        EcmPrediction

        Raises
        ------
        InputError
            A level is unknown, a transfer is missing or negative, `core` is negative, or all are
            zero.
        """
        one_of(at, "at", self.names)
        number(core, "core", 0)
        crossed = self.levels[: self.names.index(at) + 1]
        terms, limits, memory_rate = {}, {}, ""
        for level in crossed:
            if level.name not in transfers:
                raise InputError(f"the transfers have no {level.name}, only {', '.join(transfers)}")
            load_B, store_B = transfers[level.name]
            number(load_B, f"loads of {level.name}", 0)
            number(store_B, f"stores of {level.name}", 0)
            if level.name == MEMORY:
                level, memory_rate = self._memory(level, Transfer(load_B, store_B))
            terms[level.name] = (load_B / level.load_B, store_B / level.store_B)
            limits[level.name] = load_B / level.domain_load_B + store_B / level.domain_store_B
        if not core and not any(map(sum, terms.values())):
            raise InputError(
                "a loop without transfers and without cycles in the core takes no time"
            )
        return EcmPrediction(
            self, terms, core, limits, sum(transfers[crossed[-1].name]), memory_rate
        )

    def _memory(self, level: EcmLevel, moved: Transfer) -> tuple[EcmLevel, str]:
        """Return memory with the bandwidths for some bytes, and which ones these are."""
        if self.memory_rate == "apart":
            return level, "apart"
        if moved.load_B >= _DOMINATING_LOADS * sum(moved):
            one, domain, name = level.load_B, level.domain_load_B, "load"
        else:
            one, domain, name = *level.triad, "triad"
        return EcmLevel(MEMORY, one, one, domain, domain), name


@dataclass(frozen=True)
class EcmPrediction:
    """Cycles of one unit of work.

    Attributes
    ----------
    model : Ecm
    terms : mapping of str to (float, float)
        Cycles of the loads and of the stores of each level whose boundary is crossed.
    core : float
        Cycles in the core that overlap with all transfers.
    limits : mapping of str to float
        Least cycles of the unit in a domain at full bandwidth, by level.
    moved_B : float
        Bytes of the unit across the boundary in front of the level that holds the data.
    memory_rate : str
        Bandwidths of the term of memory: ``apart`` (those of loads and of stores), or ``load`` or
        ``triad`` for all bytes; empty if memory is not accessed.
    """

    model: Ecm
    terms: Terms
    core: float
    limits: Mapping[str, float]
    moved_B: float
    memory_rate: str = ""

    @property
    def data(self) -> float:
        """Cycles of the data transfers: f of the terms."""
        return self.model.overlap.cycles(self.terms)

    @property
    def cycles(self) -> float:
        """T: cycles on one core."""
        return max(self.core, self.data)

    @property
    def bound(self) -> str:
        """``core``, or the level with the longest transfers that no other ones hide."""
        cycles = dict.fromkeys(self.terms, 0.0)
        for term, each in self.model.overlap.longest(self.terms):
            if each:
                cycles[term.partition(" ")[0]] += each
        return "core" if self.core >= self.data else max(cycles, key=cycles.__getitem__)

    @property
    def limit(self) -> float:
        """Cycles of the unit in a domain at which a shared level is saturated; 0 without one."""
        return max(self.limits.values())

    @property
    def saturating_cores(self) -> int | None:
        """N_s, the least number of cores that reach the limit; None if a domain has fewer."""
        if not self.limit:
            return None
        # A ratio such as 2.0000000000000004 is 2.
        needed = max(math.ceil(self.cycles / self.limit - 1e-9), 1)
        return needed if needed <= self.model.cores else None

    def cycles_of(self, cores: int, scaling: Scaling = "limited") -> float:
        """Return T(n): average cycles per finished unit of n cores.

        Parameters
        ----------
        cores : int
            They fill one domain after the other.
        scaling : {"limited", "linear"}
            ``limited``: a core's time over n, but never below the limit of the domain. ``linear``,
            as in the paper's figures: a core's time over n up to N_s cores and constant beyond,
            which exceeds the limit unless N_s cores reach it exactly.

        Raises
        ------
        InputError
            There are fewer cores.
        """
        model = self.model
        integer(cores, "cores", 1, model.cores * model.domains)
        one_of(scaling, "scaling", ("limited", "linear"))
        full, rest = divmod(cores, model.cores)
        rate = full * self._rate(model.cores, scaling)
        return 1 / (rate + (self._rate(rest, scaling) if rest else 0.0))

    def _rate(self, cores: int, scaling: Scaling) -> float:
        """Return the units per cycle of some cores of one domain."""
        if scaling == "linear":
            return min(cores, self.saturating_cores or cores) / self.cycles
        return 1 / max(self.cycles / cores, self.limit)

    def bandwidth_GBps(self, cores: int = 1, scaling: Scaling = "limited") -> float:
        """Return B(n): GB/s across the boundary in front of the level that holds the data."""
        return self.rate(cores, scaling) * self.moved_B / 1e9

    def rate(self, cores: int = 1, scaling: Scaling = "limited") -> float:
        """Return the units per second of n cores."""
        return self.model.clock_GHz * 1e9 / self.cycles_of(cores, scaling)
