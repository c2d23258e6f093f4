"""The ECM model (execution, cache, memory): time of a loop from its transfers between levels.

The time of a loop on one core is ``T = max(T_core, f(T_L1, T_L2, ..., T_memory))``. T_core is the
time of the instructions that overlap with data transfers. The term of a level is the time of the
transfers across the boundary in front of it: ``L1`` between registers and L1, ``L2`` between L1 and
L2, ``memory`` between the last cache and memory. It is the sum of loaded and stored bytes, each
divided by its own bandwidth. Loads include write-allocates.

The hypothesis f defines which terms overlap. It is a sum over groups: the terms in a group overlap,
so only the longest one counts, and the groups follow each other. Examples for three levels:

``L1 + L2 + memory``
    Nothing overlaps.
``max(L1, L2, memory)``
    All levels overlap, as in the roofline model.
``L1 load + max(L1 store, L2, memory)``
    Loads from L1 overlap with nothing; stores to L1 and the levels behind it overlap.

Several cores share the bandwidth of memory, and possibly of caches (a domain). Their time is the
time of one core divided by their number, until it reaches the limit of a shared level.

Sources: Treibig and Hager 2010; Stengel et al. 2015; Alappat et al., "ECM modeling and performance
tuning of SpMV and Lattice QCD on A64FX", 2021.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from memkern.checks import integer, number, one_of, shown
from memkern.errors import InputError
from memkern.machine.caches import MEMORY as MEMORY
from memkern.spec.kernel import Transfer

__all__ = [
    "Ecm",
    "EcmLevel",
    "EcmPrediction",
    "Overlap",
    "Scaling",
    "hypotheses",
    "store_GBps",
]

Terms: TypeAlias = Mapping[str, tuple[float, float]]
Scaling: TypeAlias = Literal["limited", "linear"]

# Share of loads in the traffic of a triad with write-allocates: three arrays of four.
_TRIAD_LOADS = 3 / 4
_WAYS = ("load", "store")


@dataclass(frozen=True)
class Overlap:
    """A hypothesis on which transfers overlap.

    Parameters
    ----------
    groups : tuple of tuple of str
        Terms in a group overlap; groups follow each other. A term is a level (``L2``: the sum of
        its loads and its stores) or one of its two parts (``L1 load``, ``L1 store``).

    Raises
    ------
    InputError
        A group is empty, or a term is part of two.
    """

    groups: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        """Check that no transfer counts twice."""
        parts = [part for group in self.groups for term in group for part in _parts(term)]
        if not all(self.groups) or len(set(parts)) < len(parts):
            raise InputError(
                f"{self} is not a hypothesis: every transfer must be in exactly one group"
            )

    @classmethod
    def parse(cls, text: str) -> Overlap:
        """Return the hypothesis of a text such as ``L1 load + max(L1 store, L2, memory)``.

        Raises
        ------
        InputError
            The text is not such a sum.
        """
        groups = []
        for part in re.split(r"\s*\+\s*", text.strip()):
            inside = re.fullmatch(r"max\((.*)\)", part)
            groups.append(tuple(re.split(r"\s*,\s*", inside[1].strip() if inside else part)))
        for term in itertools.chain(*groups):
            if not re.fullmatch(r"(L\d|memory)( load| store)?", term):
                raise InputError(
                    f"{shown(text)} is not a hypothesis: write a sum of levels, such as L1 load + "
                    "max(L1 store, L2, memory)"
                )
        return cls(tuple(groups))

    def __str__(self) -> str:
        """Return the sum in the format of `parse`."""
        return " + ".join(
            group[0] if len(group) == 1 else f"max({', '.join(group)})" for group in self.groups
        )

    def check(self, levels: Sequence[str]) -> None:
        """Raise InputError unless each transfer of these levels is in one group."""
        parts = {part for group in self.groups for term in group for part in _parts(term)}
        wanted = {part for level in levels for part in _parts(level)}
        if parts != wanted:
            odd = min(parts ^ wanted)
            fault = "does not have" if odd in wanted else "has"
            raise InputError(f"the hypothesis {self} {fault} {odd}: levels are {', '.join(levels)}")

    def cycles(self, terms: Terms) -> float:
        """Return f of the cycles of loads and of stores of each level; 0 for a missing level."""
        return float(self.cycles_each(terms))

    def longest(self, terms: Terms) -> list[tuple[str, float]]:
        """Return the longest term of each group, with its cycles."""
        return [
            max(((term, float(_time(term, terms))) for term in group), key=lambda pair: pair[1])
            for group in self.groups
        ]

    def cycles_each(self, terms: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]]) -> Any:
        """Return f for arrays of terms, which are broadcast against each other."""
        longest = (
            functools.reduce(np.maximum, (_time(term, terms) for term in group))
            for group in self.groups
        )
        return functools.reduce(np.add, longest)


def _parts(term: str) -> tuple[str, ...]:
    return (term,) if " " in term else tuple(f"{term} {way}" for way in _WAYS)


def _time(term: str, terms: Mapping[str, tuple[Any, Any]]) -> Any:
    level, _, way = term.partition(" ")
    both = terms.get(level, (0.0, 0.0))
    return both[_WAYS.index(way)] if way else both[0] + both[1]


def hypotheses(levels: Sequence[str]) -> dict[str, Overlap]:
    """Return all hypotheses on some levels, by name.

    Parameters
    ----------
    levels : sequence of str
        From L1 to memory.

    Returns
    -------
    dict of str to Overlap
        ``none``: nothing overlaps. ``full``: everything overlaps. ``c``: as ``full``, except that
        loads from L1 overlap with nothing. ``d``: as ``c``, and stores to memory also overlap with
        nothing. All other assignments of levels to overlapping groups, with separate loads and
        stores of L1, follow, named by their sums.

    Notes
    -----
    The letters are the names of the hypotheses in Alappat et al. 2021. The published tables in this
    package have predictions and measurements, but not these hypotheses: (c) and (d) are derived. Of
    all hypotheses here, only (c) reproduces the published predictions in L1 and L2, and within 0.3
    cycles in memory. (d) is an interpretation that these tables do not confirm: in memory it is up
    to 2.8 cycles above them.
    """
    first, *behind = levels
    load, store = _parts(first)
    units = [load, store, *behind]
    named = {
        "none": Overlap(tuple((unit,) for unit in units)),
        "full": Overlap((tuple(units),)),
        "c": Overlap(((load,), (store, *behind))),
    }
    if behind:
        last_load, last_store = _parts(behind[-1])
        named["d"] = Overlap(((load,), (store, *behind[:-1], last_load), (last_store,)))
    known = {_key(overlap) for overlap in named.values()}
    for groups in _partitions(units):
        overlap = Overlap(groups)
        if _key(overlap) not in known:
            named[str(overlap)] = overlap
    return named


def _key(overlap: Overlap) -> frozenset[frozenset[str]]:
    return frozenset(frozenset(group) for group in overlap.groups)


def _partitions(units: Sequence[str]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Yield all partitions into groups."""
    if not units:
        yield ()
        return
    first, rest = units[0], units[1:]
    for groups in _partitions(rest):
        yield ((first,), *groups)
        for place, group in enumerate(groups):
            yield ((first, *group), *groups[:place], *groups[place + 1 :])


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
    for value, what in ((load_GBps, "load_GBps"), (triad_GBps, "triad_GBps")):
        if not value > 0:
            raise InputError(f"{what} must be positive, not {value!r}")
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
            if not getattr(self, what) > 0:
                raise InputError(
                    f"{what} of {self.name} must be positive, not {getattr(self, what)!r}"
                )

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

    def __post_init__(self) -> None:
        """Check every parameter."""
        if len(self.names) < 2 or self.names[-1] != MEMORY or len({*self.names}) < len(self.names):
            raise InputError(f"levels must be caches and then memory, not {', '.join(self.names)}")
        number(self.clock_GHz, "clock_GHz", 1e-6)
        integer(self.cores, "cores", 1)
        integer(self.domains, "domains", 1)
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
        terms, limits = {}, {}
        for level in crossed:
            if level.name not in transfers:
                raise InputError(f"the transfers have no {level.name}, only {', '.join(transfers)}")
            load_B, store_B = transfers[level.name]
            number(load_B, f"loads of {level.name}", 0)
            number(store_B, f"stores of {level.name}", 0)
            terms[level.name] = (load_B / level.load_B, store_B / level.store_B)
            limits[level.name] = load_B / level.domain_load_B + store_B / level.domain_store_B
        if not core and not any(map(sum, terms.values())):
            raise InputError(
                "a loop without transfers and without cycles in the core takes no time"
            )
        moved_B = sum(transfers[crossed[-1].name])
        return EcmPrediction(self, terms, core, limits, moved_B)


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
    """

    model: Ecm
    terms: Terms
    core: float
    limits: Mapping[str, float]
    moved_B: float

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
        """``core``, or the level with the longest transfers."""
        longest = max(self.terms, key=lambda level: sum(self.terms[level]))
        return "core" if self.core >= self.data else longest

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
