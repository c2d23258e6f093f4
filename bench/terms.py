"""Measure what bounds sparse products, the gather of a mesh and the hopping term, in turns.

For SELL-8, BS6 and the domain wall, on one core and on all, it prints the time of a unit of work,
the terms that may explain it, and experiments that show which term does. Every turn places each
case once, in random order, in 4 KiB pages unless a row says otherwise. The terms are times of a
unit of work:

- ``memory``: its bytes over the bandwidths of loads and of stores in the same turns.
- ``L1``, ``L2``, ``L3``: the same for the transfers in front of each cache, by the machine file.
- ``in-core``: the same body on data that fit in L2, with one part for each core.
- ``data in L3``: the same body on data in the last cache, which includes ``in-core``.
- ``latency``: the lines that hardware prefetchers do not foresee over the rate of independent loads
  from the last cache and from memory in the same turns. A simulated cache counts them: lines that
  are, like their predecessor in the page, missing in a core's L2 or in its part of the last cache.
- ``ECM``: the model's time by the machine file, with ``in-core`` as its T_core.
"""

import argparse
import functools
import itertools
import math
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from records import Row, interval, program

import memkern as mk
from memkern.engine.placing.run import CaseRun
from memkern.engine.sweeping.rounds import place_in_rounds
from memkern.host.capacity import data_caches
from memkern.host.environment import machine_environment
from memkern.machine.caches import MEMORY
from memkern.machine.topology import physical_cores
from memkern.models.machine_file import MachineFile
from memkern.models.machine_reading import load_machine
from memkern.models.roofline import Ceiling, ceilings
from memkern.spec.kernel import Transfer
from memkern.statistics import ratio_interval
from memkern.studies.machine_file import CacheLevel, levels_of, measure_machine, pinned

CHAINS = 32
# Accesses that the simulated caches see; the first half fills them.
ACCESSES = 2_000_000
# The share of the time within which the terms explain it.
WITHIN = 0.15
LS = 8
_SITE_B = 16 * (72 + 2 * LS * 12)

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Subject:
    """A kernel with its sizes and experiments.

    `build` takes a size and options, `size` is the size in memory, `within` returns the size for a
    number of bytes, and `units` counts units of work. `accesses` returns the addresses in bytes of
    the accesses through indices, from the first one on; a unit has `per_unit` accesses.
    """

    unit: str
    build: Callable[..., mk.Case]
    size: Any
    within: Callable[[int], Any]
    units: Callable[[mk.Case], float]
    accesses: Callable[[mk.Case], npt.NDArray[np.int64]]
    per_unit: float
    experiments: Mapping[str, Mapping[str, Any]]


@functools.lru_cache(maxsize=8)
def _matrix(text: str) -> tuple[str, Any]:
    return mk.matrices.build(text)


def _product(text: str, format: str = "sell", C: int | None = 8, **options: Any) -> mk.Case:
    label, matrix = _matrix(text)
    form = {"format": format} | ({"C": C} if format == "sell" else {})
    return mk.spmv(matrix, name=label, **form, **options)


def product(text: str) -> Subject:
    """Return SELL-8 of a matrix, ``hpcg:N`` or ``band:ROWS:BANDWIDTH:NONZEROS``."""
    name, *sizes = text.split(":")
    if name not in ("hpcg", "band"):
        raise SystemExit(f"matrix {text} is neither hpcg:N nor band:ROWS:BANDWIDTH:NONZEROS")

    def within(size_B: int) -> str:
        if name == "hpcg":
            return f"hpcg:{max(int((size_B / (27 * 12 + 24)) ** (1 / 3)), 2)}"
        rows = max(size_B // (12 * int(sizes[2]) + 24), 2 * int(sizes[2]))
        return f"band:{rows}:{rows // 2}:{sizes[2]}"

    return Subject(
        "nonzero",
        _product,
        text,
        within,
        lambda case: case.columns["nonzeros"],
        lambda case: 8 * np.asarray(case.indices["columns"], dtype=np.int64),
        1.0,
        {
            **{f"prefetch {n}": {"prefetch": n} for n in (32, 128, 512)},
            "thp": {"pages": "thp"},
            "thp, prefetch 128": {"pages": "thp", "prefetch": 128},
            **{f"SELL-{c}": {"C": c} for c in (16, 32)},
            "CRS": {"format": "crs"},
        },
    )


def mesh(elements: int) -> Subject:
    """Return BS6 of degree 7 on this number of elements in each dimension."""
    return Subject(
        "local node",
        lambda size, **options: mk.bs(6, elements=size, degree=7, **options),
        elements,
        lambda size_B: max(int((size_B / (512 * (8 + 4 + 8))) ** (1 / 3)), 1),
        lambda case: case.columns["local_nodes"],
        lambda case: 8 * np.asarray(case.indices["columns"], dtype=np.int64),
        1.0,
        {
            **{f"prefetch {n}": {"prefetch": n} for n in (0, 256, 4096)},
            "thp": {"pages": "thp"},
            "thp, prefetch 0": {"pages": "thp", "prefetch": 0},
            "lexicographic nodes": {"numbering": "lexicographic"},
        },
    )


def _lattice_within(size_B: int) -> list[int]:
    """Return the largest lattice of extents 2, 4, 8, ... whose fields fit into this size."""
    extents = [2, 2, 2, 2]
    for at in itertools.cycle(range(4)):
        if 2 * math.prod(extents) * _SITE_B > size_B:
            return extents
        extents[at] *= 2


def wall(extent: int) -> Subject:
    """Return the hopping term on a lattice of equal extents."""

    def accesses(case: mk.Case) -> npt.NDArray[np.int64]:
        spinor_B = 16 * 12 * LS * case.columns["partitions"]
        first = np.asarray(case.indices["neighbours"][: ACCESSES * 64 // spinor_B], dtype=np.int64)
        return (spinor_B * first[:, None] + np.arange(0, spinor_B, 64)).ravel()

    blocks = {f"blocks of {n} z": {"block": (0, 0, n, 0)} for n in (4, 8)}
    return Subject(
        "site and s",
        lambda size, **options: mk.case("dw.hop", lattice=size, ls=LS, **options),
        [extent] * 4,
        _lattice_within,
        lambda case: math.prod(int(n) for n in case.columns["lattice"].split("x")) * LS,
        accesses,
        8 * 16 * 12 / 64,
        {
            **{f"prefetch {n}": {"prefetch": n} for n in (0, 1, 6)},
            "prefetch into L1": {"prefetch_into": "L1"},
            **blocks,
            "thp": {"pages": "thp"},
            "thp, prefetch 0": {"pages": "thp", "prefetch": 0},
            "thp, blocks of 8 z": {"pages": "thp", **blocks["blocks of 8 z"]},
        },
    )


def unforeseen(accesses_B: npt.NDArray[np.int64], cache_B: float, line_B: int = 64) -> float:
    """Return the number of lines per access that hardware prefetchers do not foresee.

    A line is fetched if it is missing in a fully associative cache with the policy LRU. It is
    foreseen if the cache has its predecessor in the same page of 4 KiB.
    """
    lines = accesses_B[:ACCESSES] // line_B
    # An access to the same line as the last one changes nothing.
    new = np.flatnonzero(np.diff(lines, prepend=-1))
    trace, room, in_page = lines[new].tolist(), int(cache_B) // line_B, 4096 // line_B
    half = int(np.searchsorted(new, len(lines) // 2))
    cache: OrderedDict[int, None] = OrderedDict()
    counted = 0
    for number, line in enumerate(trace):
        if line in cache:
            cache.move_to_end(line)
            continue
        foreseen = line % in_page and line - 1 in cache
        counted += number >= half and not foreseen
        cache[line] = None
        if len(cache) > room:
            cache.popitem(last=False)
    return counted / max(len(lines) - len(lines) // 2, 1)


def moved_by(case: mk.Case, levels: Sequence[str]) -> dict[str, Transfer]:
    """Return the bytes of an invocation across the boundary in front of each level."""
    found = case.transfers(levels, data_caches())
    return {name: Transfer(*(case.iterations * each for each in found[name])) for name in levels}


def _share(name: str, term: Seconds, whole: Seconds) -> Row:
    """Return the part of a row with the ratio of a term to a time, 0 without transfers."""
    if not np.all(term > 0):
        return {name: 0.0}
    return interval(name, ratio_interval(term, whole, paired=True))


def as_run(run: CaseRun) -> mk.Case:
    """Return a case with the variant that it ran."""
    return run.case.with_(variant=run.placements[-1].choice.variant)


@dataclass(frozen=True)
class Place:
    """The cores of this machine, its levels of memory, and its machine file."""

    cores: Sequence[int]
    levels: Sequence[CacheLevel]
    machine: MachineFile

    @property
    def inner(self) -> CacheLevel:
        """The cache that holds the data of `in-core`: L2, or L1 if it is the last cache."""
        return self.levels[1 if len(self.levels) > 3 else 0]

    def cases(self, subject: Subject, cores: int, seconds: float) -> dict[str, mk.Case]:
        """Return the cases of a subject: itself, those that give its terms, and experiments."""
        how: dict[str, Any] = {**pinned(self.cores, cores), "pages": "4k", "budget_s": seconds}
        small = {**how, "repetition": "free", "variant": "simd", "prefetch": 0}
        last, memory = self.levels[-2], self.levels[-1]
        sizes = {"in-core": self.inner.used_B(cores)}
        if last is not self.inner:
            sizes[f"data in {last.name}"] = last.used_B(cores)
        found = {"measured": subject.build(subject.size, **how)}
        for term, size_B in sizes.items():
            found[term] = subject.build(subject.within(size_B), **small)
        found["load"] = mk.loops("load", footprint_B=memory.used_B(cores), **how)
        found["triad"] = mk.stream("triad", footprint_B=memory.used_B(cores), **how)
        for level in dict.fromkeys((last, memory)):
            found[f"chase {level.name}"] = mk.case(
                "latency.chase", size_B=level.used_B(cores), chains=CHAINS, **how
            )
        for label, changed in subject.experiments.items():
            found[label] = subject.build(subject.size, **{**how, **changed})
        return found

    def terms(
        self,
        subject: Subject,
        cores: int,
        runs: Mapping[str, CaseRun],
        times: Mapping[str, Seconds],
    ) -> dict[str, Seconds]:
        """Return the seconds of a unit of each term, by turn."""
        case = as_run(runs["measured"])
        units, names = subject.units(case), [level.name for level in self.levels]
        moved = moved_by(case, names)
        triad = moved_by(as_run(runs["triad"]), names)[MEMORY]
        tops = []
        for load_s, triad_s in zip(times["load"], times["triad"], strict=True):
            rate = runs["load"].case.bytes_B / load_s / 1e9
            tops.append(Ceiling(rate, triad.stores_GBps(rate, triad_s)))
        memory = np.array([top.seconds(moved[MEMORY]) for top in tops]) / units
        found: dict[str, Seconds] = {
            "memory": memory,
            "in-core": times["in-core"] / subject.units(runs["in-core"].case),
        }
        of_file = ceilings(self.machine, cores)
        for level in names[:-1]:
            if level in of_file:
                seconds = of_file[level].seconds(moved[level]) / units
                found[f"{level} (machine file)"] = np.full(len(tops), seconds)
        lines, latency_s = [], np.zeros(len(tops))
        accesses_B = subject.accesses(case)
        missed = [
            unforeseen(accesses_B, (level.size_B or 0) / max(min(cores, level.shared_by), 1))
            for level in (self.inner, self.levels[-2])
        ]
        # Beyond the last cache, lines come from memory.
        for level, count in zip(self.levels[-2:], (missed[0] - missed[1], missed[1]), strict=True):
            each = f"chase {level.name}"
            if each in times and count > 0:
                done = cores * CHAINS * runs[each].case.columns["steps"]
                of_unit = count * subject.per_unit
                latency_s = latency_s + of_unit * times[each] / done
                lines.append(f"{of_unit:.4f} {level.name}")
        found[f"latency: {' + '.join(lines) or 'no'} lines"] = latency_s
        return found

    def ecm(self, case: mk.Case, in_core: Seconds, cores: int, subject: Subject) -> float:
        """Return the seconds of a unit by the ECM model; 0 without its parameters."""
        if self.machine.ecm is None:
            return 0.0
        model, units = self.machine.model_of(), subject.units(case)
        clock = 1e9 * model.clock_GHz
        core = float(np.median(in_core)) * units * clock * cores
        cycles = model.predict(moved_by(case, model.names), core).cycles_of(cores)
        return cycles / clock / units


def placed(
    title: str, cases: Mapping[str, mk.Case], turns: int, seconds: float
) -> tuple[dict[str, CaseRun], dict[str, Seconds]]:
    """Return the runs of cases that were placed in turns, and their seconds by turn."""
    found = place_in_rounds(cases, rounds=turns, seconds=seconds)
    if found.interrupted:
        raise KeyboardInterrupt
    for why in dict.fromkeys(found.refused.values()):
        keys = ", ".join(key for key in found.refused if found.refused[key] == why)
        print(f"\n{title}: not measured: {keys}: {why}", flush=True)
    every = [placement for run in found.runs.values() for placement in run.placements]
    if not all(placement.check.valid for placement in every):
        raise SystemExit(f"{title} failed its validation")
    number = min((len(run.placements) for run in found.runs.values()), default=0)
    disturbed = sum(placement.samples.disturbed for placement in every)
    print(f"\n{title}: {number} turns, {disturbed} of {len(every)} placements disturbed")
    times = {
        key: np.array([np.median(p.samples.seconds[:, 0]) for p in run.placements[:number]])
        for key, run in found.runs.items()
    }
    return found.runs, times


def rows_of(
    place: Place, name: str, subject: Subject, cores: int, runs: Any, times: Mapping[str, Seconds]
) -> Iterator[Any]:
    """Yield the terms of a subject, and its row."""
    per_unit = {
        key: times[key] / subject.units(runs[key].case)
        for key in runs
        if key in ("measured", "in-core", *subject.experiments) or key.startswith("data in")
    }
    measured_s, case = per_unit["measured"], as_run(runs["measured"])
    terms = place.terms(subject, cores, runs, times)
    # In-core time has the transfers up to the cache that holds the data.
    inner = [level.name for level in place.levels[: place.levels.index(place.inner) + 1]]
    added = {key: s for key, s in terms.items() if key.split()[0] not in inner and np.all(s > 0)}
    terms |= {key: term for key, term in per_unit.items() if key.startswith("data in")}
    predicted = place.ecm(case, per_unit["in-core"], cores, subject)
    if predicted:
        terms["ECM"] = np.full(len(measured_s), predicted)
    head = {"case": name, "cores": cores, "for a": subject.unit}

    def told(term: str, seconds: Seconds, share: Row) -> tuple[str, Row]:
        return "terms", {**head, "term": term, "ns": 1e9 * np.median(seconds)} | share

    yield told(f"measured ({case.knobs.variant})", measured_s, {})
    for key, seconds in terms.items():
        yield told(key, seconds, _share("of the time", seconds, measured_s))
    fastest = measured_s
    for key in subject.experiments:
        if key in per_unit:
            yield told(key, per_unit[key], _share("speed-up", measured_s, per_unit[key]))
            fastest = min((fastest, per_unit[key]), key=lambda some: float(np.median(some)))
    # Whether the time lies between the longest term and the sum of all terms.
    longest = max(added, key=lambda key: float(np.median(added[key])))
    above = ratio_interval(added[longest], measured_s, paired=True)
    below = ratio_interval(sum(added.values()), measured_s, paired=True)
    row = {**head, "measured, ns": 1e9 * np.median(measured_s)}
    row |= {"longest term": longest.partition(":")[0]} | interval("longest, of the time", above)
    row |= interval("all terms, of the time", below)
    row |= _share("memory, of the fastest", terms["memory"], fastest)
    # Without an interval, nothing is explained.
    yield row | {"explained": above.low <= 1 + WITHIN and below.high >= 1 - WITHIN}


def measured(args: argparse.Namespace) -> Iterator[Any]:
    """Yield the rows of all subjects, on one core and on all."""
    subjects = {
        **{f"SELL-8, {text}": ("product", product(text)) for text in args.matrix},
        f"BS6, {args.elements}^3": ("mesh", mesh(args.elements)),
        **{f"hopping term, {extent}^4": ("wall", wall(extent)) for extent in args.extents},
    }
    cores = [group[0] for group in physical_cores()]
    if not args.machine:
        print("measuring a machine file", file=sys.stderr, flush=True)
    machine = load_machine(args.machine) if args.machine else measure_machine(seconds=60).machine
    place = Place(cores, levels_of(machine_environment(), cores), machine)
    end = time.perf_counter() + args.limit
    left = [
        (f"{name}, {number} cores", name, subject, number)
        for name, (kind, subject) in subjects.items()
        for number in sorted({1, len(cores)})
        if kind in (args.only or kind)
    ]
    for done, (title, name, subject, number) in enumerate(left):
        seconds = (end - time.perf_counter()) / (len(left) - done)
        cases = place.cases(subject, number, args.seconds)
        runs, times = placed(title, cases, args.turns, seconds)
        if {"measured", "load", "triad", "in-core"} <= set(runs):
            yield from rows_of(place, name, subject, number, runs, times)


def explained(rows: list[Row]) -> bool:
    """Print which times the terms do not explain, and return whether there are none."""
    names = [f"{row['case']} on {row['cores']}" for row in rows if row.get("explained") is False]
    print(
        f"\nnot explained within {WITHIN:.0%} by the longest term to the sum of all: "
        f"{', '.join(names) or 'none'}"
    )
    return not names


OPTIONS = {
    "--only": {"nargs": "+", "choices": ("product", "mesh", "wall")},
    "--matrix": {"nargs": "+", "default": ["hpcg:112", "band:2000000:1000000:14"]},
    "--elements": (20, "of the mesh, in each dimension"),
    "--extents": {"type": int, "nargs": "+", "default": [16, 24], "help": "of lattices"},
    "--machine": {"metavar": "FILE", "help": "machine file; by default it is measured"},
    "--seconds": (0.1, "of each case in a turn"),
    "--limit": (420.0, "most seconds of turns"),
}
main = program(__name__, __doc__, measured, OPTIONS, turns=5, judge=explained)
