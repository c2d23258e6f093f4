"""The ECM model fitted to three measured loops, and tested on the other loops.

The bandwidths of each boundary are fitted to the times of `load`, `copy` and `triad` with data in
each level, from L1 to memory, for every hypothesis on the overlap. The hypothesis with the least
error is chosen, and predicts all other loops. For data in L1, T_core is the time of the vector
loads and stores by the instruction table of a machine file, if there is one; for data beyond L1 it
is the time of the same loop in L1. Records of any family are predicted by a machine file.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern import small
from memkern.errors import InputError
from memkern.formats import ResultSet
from memkern.formats.resultset import need_columns
from memkern.machine.caches import data_caches
from memkern.models.ecm import (
    MEMORY,
    Ecm,
    EcmLevel,
    EcmPrediction,
    MemoryRate,
    Scaling,
    store_GBps,
)
from memkern.models.machine_file import MachineFile
from memkern.models.overlap import Overlap, hypotheses
from memkern.spec.kernel import Transfer

FITTED = ("loops.load", "loops.copy", "loops.triad")
"""Loops for fitting constants and choosing the hypothesis."""
LIMITED = ("loops.load", "loops.triad")
"""Loops on all cores for fitting the limit of a domain."""

# Reasons why these loops take longer in L1 than their transfers.
_LONGER_IN_L1 = {
    "loops.stencil": "unaligned loads and stores cross lines",
    "loops.matvec": "every column starts anew",
}
_VARIES = "varies by as much between placements"
_LOADS_ALONE = "takes as long as its loads alone"

# Logarithmic grid of the cycles per byte: points on each axis, decades, and number of refinements
# around the best point.
_POINTS, _DECADES, _NARROWED = 40, 3.0, 6

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LoopTime:
    """A loop measured on one core.

    Attributes
    ----------
    kernel : str
    level : str
        Level that holds its data.
    transfers : mapping of str to Transfer
        Bytes of one vector of every stream across the boundary in front of each level.
    cycles : float
        Measured cycles of one vector of every stream.
    spread : float
        Relative spread from placement to placement; NaN if it is unknown.
    disturbed : bool
    """

    kernel: str
    level: str
    transfers: Mapping[str, Transfer]
    cycles: float
    spread: float = math.nan
    disturbed: bool = False


@dataclass(frozen=True)
class Judged:
    """A loop and its prediction.

    Attributes
    ----------
    loop : LoopTime
    predicted : EcmPrediction
    fitted : bool
        Whether constants were fitted to it.
    """

    loop: LoopTime
    predicted: EcmPrediction
    fitted: bool

    @property
    def ratio(self) -> float:
        """Measured over predicted cycles."""
        return self.loop.cycles / self.predicted.cycles

    @property
    def reason(self) -> str:
        """Why measured and predicted cycles differ; empty if that is unknown."""
        if self.loop.spread >= abs(self.ratio - 1):
            return _VARIES
        if self.ratio < 1:
            return _LOADS_ALONE if self._takes_as_long_as_its_loads() else ""
        in_l1 = self.loop.level == next(iter(self.loop.transfers))
        return _LONGER_IN_L1.get(self.loop.kernel, "") if in_l1 else ""

    def _takes_as_long_as_its_loads(self) -> bool:
        """Return whether a prediction without stores has less than half the error."""
        loads = {level: (load, 0.0) for level, (load, _) in self.predicted.terms.items()}
        # Loads that other transfers hide are fitted without cycles.
        if not loads[self.loop.level][0]:
            return False
        alone = self.predicted.model.overlap.cycles(loads)
        return abs(math.log(self.loop.cycles / alone)) < abs(math.log(self.ratio)) / 2


@dataclass(frozen=True)
class JudgedCores:
    """A loop from memory on several cores, and its prediction.

    Attributes
    ----------
    kernel : str
    cores : int
    cycles : float
        Measured average cycles per finished vector of every stream.
    spread : float
        Relative spread from placement to placement; NaN if it is unknown.
    predicted : EcmPrediction
        With the limit of the domain.
    fitted : bool
        Whether that limit was fitted to it.
    disturbed : bool
    """

    kernel: str
    cores: int
    cycles: float
    spread: float
    predicted: EcmPrediction
    fitted: bool
    disturbed: bool

    def ratio(self, scaling: Scaling = "limited") -> float:
        """Return measured over predicted cycles, for a kind of scaling to several cores."""
        return self.cycles / self.predicted.cycles_of(self.cores, scaling)

    @property
    def reason(self) -> str:
        """Why measured and predicted cycles differ; empty if that is unknown."""
        return _VARIES if self.spread >= abs(self.ratio() - 1) else ""


@dataclass(frozen=True)
class EcmFit:
    """Result of `fit_ecm`.

    Attributes
    ----------
    model : Ecm
        With the chosen hypothesis.
    name : str
        Name of the hypothesis (see `memkern.models.hypotheses`).
    errors : mapping of str to float
        Root mean square of the logarithms of measured over predicted on the fitted loops, by
        hypothesis, ascending.
    rows : tuple of Judged
        Every loop, by kernel and level.
    """

    model: Ecm
    name: str
    errors: Mapping[str, float]
    rows: tuple[Judged, ...]

    @property
    def judged(self) -> list[Judged]:
        """The undisturbed loops that were not used in the fit."""
        return [row for row in self.rows if not (row.fitted or row.loop.disturbed)]

    @property
    def median_error(self) -> float:
        """Median relative error of `judged`; NaN without any."""
        errors = [abs(row.ratio - 1) for row in self.judged]
        return float(np.median(errors)) if errors else math.nan

    def share_within(self, error: float) -> float:
        """Return the share of `judged` with at most this relative error; NaN without any."""
        errors = [abs(row.ratio - 1) <= error for row in self.judged]
        return float(np.mean(errors)) if errors else math.nan


def fit_ecm(
    loops: Iterable[LoopTime],
    clock_GHz: float,
    overlaps: Mapping[str, Overlap] | None = None,
    instructions: EcmLevel | None = None,
    memory_rate: MemoryRate = "apart",
) -> EcmFit:
    """Fit the model to load, copy and triad, choose the hypothesis, and predict all loops.

    Parameters
    ----------
    loops : iterable of LoopTime
        Of several measurements of the same kernel and level, the fastest counts.
    clock_GHz : float
    overlaps : mapping of str to Overlap, optional
        Hypotheses by name; by default all hypotheses on the levels.
    instructions : EcmLevel, optional
        Bytes per cycle of vector loads and stores (`MachineFile.loads_and_stores`).
    memory_rate : {"apart", "common"}
        Bandwidths of memory in the predictions, see `memkern.models.Ecm`. Those of loads and of
        stores are fitted; that of a triad follows from them.

    Raises
    ------
    InputError
        The three loops were not measured undisturbed in each level.
    """
    best: dict[tuple[str, str], LoopTime] = {}
    for loop in sorted(loops, key=lambda one: (one.disturbed, one.cycles)):
        best.setdefault((loop.kernel, loop.level), loop)
    levels = tuple(next(iter(best.values())).transfers) if best else ()
    known = {key: loop for key, loop in best.items() if key[0] in FITTED and not loop.disturbed}
    for kernel, level in itertools.product(FITTED, levels or ("L1",)):
        if (kernel, level) not in known:
            raise InputError(
                f"the model needs an undisturbed {kernel} with its data in {level}: "
                "`memkern ecm` measures it"
            )
    overlaps = overlaps or hypotheses(levels)
    fits = {name: fit_levels(known.values(), levels, overlap) for name, overlap in overlaps.items()}
    ranking = sorted(fits, key=lambda name: fits[name][1])
    chosen = ranking[0]
    model = Ecm(fits[chosen][0], overlaps[chosen], clock_GHz, memory_rate=memory_rate)
    in_l1 = {kernel: loop.cycles for (kernel, level), loop in best.items() if level == levels[0]}
    rows = []
    for kernel, level in sorted(best, key=lambda key: (key[0], levels.index(key[1]))):
        loop = best[kernel, level]
        fitted = kernel in FITTED
        core = 0.0
        if not fitted and level != levels[0]:
            core = in_l1.get(kernel, 0.0)
        elif not fitted and instructions is not None:
            core = instructions.longest(loop.transfers[level])
        rows.append(Judged(loop, model.predict(loop.transfers, core, level), fitted))
    return EcmFit(model, chosen, {name: fits[name][1] for name in ranking}, tuple(rows))


def fit_levels(
    loops: Iterable[LoopTime], levels: Sequence[str], overlap: Overlap
) -> tuple[tuple[EcmLevel, ...], float]:
    """Fit the bandwidths of all boundaries under a hypothesis, from the innermost outwards.

    Parameters
    ----------
    loops : iterable of LoopTime
        With data in each of the levels.
    levels : sequence of str
    overlap : Overlap

    Returns
    -------
    levels : tuple of EcmLevel
    error : float
        Root mean square of the logarithms of measured over predicted.
    """
    every = list(loops)
    found: dict[str, tuple[float, float]] = {}
    errors: list[float] = []
    for level in levels:
        found[level], each = _fit_level(
            [loop for loop in every if loop.level == level], level, found, overlap
        )
        errors += each
    fitted = tuple(
        EcmLevel(level, *(1 / cost if cost else math.inf for cost in found[level]))
        for level in levels
    )
    return fitted, float(np.sqrt(np.mean(np.square(errors))))


def _fit_level(
    loops: Sequence[LoopTime],
    level: str,
    inner: Mapping[str, tuple[float, float]],
    overlap: Overlap,
) -> tuple[tuple[float, float], list[float]]:
    """Return the cycles of a loaded and a stored byte of a level, and the errors of the loops."""
    measured = np.array([loop.cycles for loop in loops])
    moved = np.array([loop.transfers[level] for loop in loops]).T[:, :, None]
    fixed = {
        name: tuple(
            cost * np.array([[loop.transfers[name][way]] for loop in loops])
            for way, cost in enumerate(costs)
        )
        for name, costs in inner.items()
    }

    def errors(load: _Floats, store: _Floats) -> _Floats:
        terms = {**fixed, level: (moved[0] * load, moved[1] * store)}
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(measured[:, None] / overlap.cycles_each(terms)))

    # No transfer takes longer than a whole loop.
    with np.errstate(divide="ignore", invalid="ignore"):
        most = np.nanmax(np.where(moved[..., 0] > 0, measured / moved[..., 0], np.nan), axis=1)
    centre, width = np.nan_to_num(most), _DECADES
    best = (0.0, 0.0)
    for step in range(_NARROWED):
        axes = []
        for value in centre:
            high = value if step == 0 else value * 10 ** (width / 2)
            powers = np.logspace(-width, 0, _POINTS) if value else np.zeros(1)
            # Beyond L1, other transfers can hide a cost; in L1, every loop takes time.
            least = [0.0] if inner or not value else []
            axes.append(np.concatenate([least, high * powers]) if value else np.array(least))
        load, store = (grid.ravel() for grid in np.meshgrid(*axes, indexing="ij"))
        squares = np.square(errors(load, store)).sum(axis=0)
        # Of equally good costs, the least is used, such as for hidden transfers.
        position = int(np.argmin(np.where(np.isnan(squares), np.inf, squares)))
        best = (float(load[position]), float(store[position]))
        # A cost of zero stays possible.
        centre = np.array([value or old / 10 for value, old in zip(best, centre, strict=True)])
        width = max(width / 4, 1e-4)
    return best, list(errors(np.array([best[0]]), np.array([best[1]]))[:, 0])


PART = " part"
"""Suffix of the level in the names of records of a smaller size (see `loop_times`)."""


def loop_times(results: ResultSet) -> tuple[list[LoopTime], float]:
    """Return the loops in records of one core, and the median clock in GHz.

    If a loop was measured with two sizes in a level, the smaller one with a name such as ``L1
    part``, its cycles per vector are computed from the difference of the times, since in L1 the
    start and end of an invocation take as long as many vectors.

    Parameters
    ----------
    results : ResultSet
        Records with the columns of transfers (``L1_load_B`` and so on). The level that holds the
        data is the record's name, or the smallest cache that is as large as the footprint.

    Raises
    ------
    InputError
        There is no such record, or the records are of several machines.
    """
    found: list[tuple[Mapping[str, Any], LoopTime, float]] = []
    for record in results:
        transfers = transfers_of(record)
        per_vector = _number(record.get("cycles_per_vector"))
        usable = str(record.get("valid")) != "False" and record.get("threads") == 1 and transfers
        if not usable or per_vector != per_vector:
            continue
        need_columns(record, "kernel", "time_min_s", "clock_GHz", "footprint_B")
        vectors = record["time_min_s"] * record["clock_GHz"] * 1e9 / per_vector
        caches = data_caches(results.environments.get(str(record.get("environment_id")), {}))
        sizes_B = {f"L{cache['level']}": float(cache["size_B"]) for cache in caches}
        loop = LoopTime(
            str(record["kernel"]),
            level_of(record, list(transfers), sizes_B),
            {
                level: Transfer(load_B / vectors, store_B / vectors)
                for level, (load_B, store_B) in transfers.items()
            },
            per_vector,
            _number(record.get("placement_sd")),
            # Small test cases, whose times are meaningless, have too few samples to count as
            # undisturbed.
            str(record.get("disturbed")) == "True" and not small.wanted(),
        )
        found.append((record, loop, vectors))
    if not found:
        raise InputError(
            "no record of one core has cycles per vector and the bytes of each level: "
            "`memkern ecm` measures the loops"
        )
    if len({record.get("environment_id") for record, _, _ in found}) > 1:
        raise InputError("the records are of several machines or builds: give records of one")
    clock_GHz = float(np.median([record["clock_GHz"] for record, _, _ in found]))
    parts = {
        (loop.kernel, str(record.get("name")).removesuffix(PART)): (loop, vectors)
        for record, loop, vectors in found
        if str(record.get("name")).endswith(PART)
    }
    return [
        marginal(loop, vectors, *parts.get((loop.kernel, loop.level), (None, 0.0)))
        for record, loop, vectors in found
        if not str(record.get("name")).endswith(PART)
    ], clock_GHz


def marginal(loop: LoopTime, vectors: float, part: LoopTime | None, fewer: float) -> LoopTime:
    """Return a loop with the cycles per vector from the difference to a part of it."""
    if part is None or fewer >= vectors:
        return loop
    cycles = (loop.cycles * vectors - part.cycles * fewer) / (vectors - fewer)
    spread = math.hypot(loop.spread * vectors, part.spread * fewer) / (vectors - fewer)
    if not cycles > 0:
        return replace(loop, disturbed=True)
    return replace(loop, cycles=cycles, spread=spread, disturbed=loop.disturbed or part.disturbed)


def transfers_of(record: Mapping[str, Any]) -> dict[str, Transfer]:
    """Return the bytes of an invocation across each boundary in a record."""
    found = {}
    for name, value in record.items():
        level = str(name).removesuffix("_load_B")
        load_B, store_B = _number(value), _number(record.get(f"{level}_store_B"))
        if level != name and load_B == load_B and store_B == store_B:
            found[level] = Transfer(load_B, store_B)
    return found


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float, np.number)) else math.nan


def level_of(record: Mapping[str, Any], levels: Sequence[str], sizes_B: Mapping[str, float]) -> str:
    """Return the level that holds a record's data: its name, or the smallest that is large enough.

    Parameters
    ----------
    record : mapping
        With ``footprint_B``, and optionally ``name``.
    levels : sequence of str
        From L1 to memory.
    sizes_B : mapping of str to float
        Sizes of the caches.
    """
    if record.get("name") in levels:
        return str(record["name"])
    return next(
        (level for level in levels if record["footprint_B"] <= sizes_B.get(level, 0.0)), MEMORY
    )


def domain_rates(results: ResultSet, cores: int | None = None) -> tuple[int, float, float] | None:
    """Return the number of cores, and the bandwidths of a domain's loads and triad from memory.

    They are from the records with the most threads, in GB/s, with write-allocates; None if a kernel
    has no undisturbed record with several threads. All domains of these cores have equal shares.

    Parameters
    ----------
    results : ResultSet
        As of ``memkern ecm``.
    cores : int, optional
        Cores of a domain; by default all measured cores are one domain.
    """
    found: dict[tuple[int, str], float] = {}
    for record in results:
        moved = transfers_of(record).get(MEMORY)
        quiet = str(record.get("disturbed")) != "True" or small.wanted()
        if moved is not None and quiet and record["threads"] > 1:
            found[record["threads"], str(record["kernel"])] = (
                sum(moved) / record["time_min_s"] / 1e9
            )
    for threads in sorted({threads for threads, _ in found}, reverse=True):
        both = [found.get((threads, name)) for name in LIMITED]
        if both[0] is not None and both[1] is not None:
            domains = max(threads // (cores or threads), 1)
            return threads, both[0] / domains, both[1] / domains
    return None


def judge_cores(found: EcmFit, results: ResultSet) -> tuple[JudgedCores, ...]:
    """Compare the model with loops from memory on all measured cores.

    The limit of the domain is fitted to the loads and the triad on these cores (see
    `domain_rates`), all other constants to one core.

    Parameters
    ----------
    found : EcmFit
    results : ResultSet
        Results with the records of one core of the fit.

    Returns
    -------
    tuple of JudgedCores
        By kernel; empty without loads and a triad on several cores.

    Raises
    ------
    InputError
        The loads alone would take longer than the triad, so that there is no limit.
    """
    rates = domain_rates(results)
    if rates is None:
        return ()
    cores = rates[0]
    model = with_domain(found.model, *rates[1:], cores, 1)
    single = {row.loop.kernel: row for row in found.rows if row.loop.level == MEMORY}
    judged = []
    for record in results:
        kernel, moved = str(record["kernel"]), transfers_of(record).get(MEMORY)
        if moved is None or record["threads"] != cores or kernel not in single:
            continue
        one = single[kernel]
        vectors = sum(moved) / sum(one.loop.transfers[MEMORY])
        judged.append(
            JudgedCores(
                kernel,
                cores,
                record["time_min_s"] * record["clock_GHz"] * 1e9 / vectors,
                _number(record.get("placement_sd")),
                model.predict(one.loop.transfers, one.predicted.core),
                kernel in LIMITED,
                str(record.get("disturbed")) == "True" and not small.wanted(),
            )
        )
    return tuple(sorted(judged, key=lambda row: row.kernel))


def with_domain(model: Ecm, load_GBps: float, triad_GBps: float, cores: int, domains: int) -> Ecm:
    """Return a model with the measured limits of memory for all cores of a domain.

    Parameters
    ----------
    model : Ecm
    load_GBps, triad_GBps : float
        Bandwidths of all cores of a domain, write-allocates of the triad included.
    cores, domains : int

    Raises
    ------
    InputError
        The loads alone would take longer than the triad.
    """
    *inner, memory = model.levels
    limited = replace(
        memory,
        domain_load_B=load_GBps / model.clock_GHz,
        domain_store_B=store_GBps(load_GBps, triad_GBps) / model.clock_GHz,
    )
    return replace(model, levels=(*inner, limited), cores=cores, domains=domains)


def predict_record(
    machine: MachineFile, record: Mapping[str, Any], core: float = 0.0
) -> EcmPrediction:
    """Return the prediction for a record of one process; its unit of work is an invocation.

    Parameters
    ----------
    machine : MachineFile
        With parameters of the ECM model.
    record : mapping
        With the columns of transfers (``L1_load_B`` and so on), ``threads`` and ``footprint_B``.
    core : float
        T_core: cycles of an invocation in the core that overlap with all transfers, of all threads
        together. It is at least the time of the vector loads and stores, if the file has it.

    Raises
    ------
    InputError
        The file has no parameters of the model, or the record has no bytes of one of its levels.
    """
    model = machine.model_of()
    moved = transfers_of(record)
    for name in model.names:
        if name not in moved:
            raise InputError(
                f"the record of {record.get('kernel')} has no bytes of {name}, which the ECM model "
                f"of {machine.name} needs: measure kernels that stream or gather, such as "
                "stream.triad, on a machine with its levels"
            )
    instructions = machine.loads_and_stores
    if instructions is not None:
        core = max(core, instructions.longest(moved[model.names[0]]))
    cores = min(int(record["threads"]), machine.cores * machine.domains)
    return model.predict(moved, core, level_of(record, model.names, machine.cache_sizes_B(cores)))
