"""Measurements for the ECM model: loops in each level, and compiled bodies in the core.

Cycles in the core are measured in L1, and predicted by static analysis. Predictions differ from
measurements by tens of percent, so models use the measured time. Its part that overlaps with data
transfers follows from the instructions of the loop and their throughput in a machine file.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from memkern import small
from memkern.checks import one_of
from memkern.engine.public import Measurement, calibrated, place_in_rounds, to_result_set
from memkern.errors import InputError
from memkern.extension import _memkern
from memkern.host.environment import machine_environment
from memkern.machine.topology import physical_cores
from memkern.models.ecm_fit import LIMITED, PART, LoopTime, marginal
from memkern.models.machine_file import InCore, MachineFile, body_of
from memkern.spec.case import Case
from memkern.spec.registry import case as kernel_case
from memkern.spec.registry import of_family
from memkern.studies.machine_file import CacheLevel, Measured, levels_of, pinned

_BRIEF_S, _LONG_S = 0.15, 0.75
# Columns of the stencil, least rows of the matrix, and its columns if they fit.
_STENCIL, _ROWS, _MATRIX = 258, 512, 192


# Loops in each level


def loop_kernels() -> list[str]:
    """Return the loops of the ECM studies that move data."""
    return sorted(name for name in of_family("loops") if name != "loops.peakflops")


def measure_loops(
    *,
    seconds: float = 240.0,
    progress: Callable[[float], object] | None = None,
) -> Measured:
    """Measure loops on one core with data in each level, and from memory on all cores.

    All cases are placed in turns, in random order, five times, so that cases for the fit and other
    cases have the same conditions.

    Parameters
    ----------
    seconds : float
        Longest duration.
    progress : callable, optional
        Called with the share of the work that is done, from 0 to 1.

    Returns
    -------
    Measured
        Records of loops on one core, and from memory on all cores.

    Raises
    ------
    InputError
        Nothing could be measured.
    """
    environment = machine_environment()
    cores = [group[0] for group in physical_cores()]
    cases = _loop_cases(loop_kernels(), levels_of(environment, cores), cores)
    placed = place_in_rounds(cases, rounds=5, seconds=seconds, progress=progress)
    done = [calibrated(run, environment) for run in placed.runs.values()]
    return Measured(
        to_result_set(done, placed.interrupted),
        tuple(f"{' '.join(map(str, key))}: {why}" for key, why in placed.refused.items()),
    )


def _loop_cases(
    kernels: Sequence[str], levels: Sequence[CacheLevel], cores: Sequence[int]
) -> dict[tuple[Any, ...], Case]:
    def built(kernel: str, level: CacheLevel, count: int, part: str = "") -> Case:
        options = {
            **size_of(kernel, level.part_B() if part else level.used_B(count)),
            **pinned(cores, count),
            "variant": "simd",
            "repetition": "free" if level.size_B else "fork",
            "budget_s": _BRIEF_S if level.size_B else _LONG_S,
            "name": level.name + part,
        }
        return kernel_case(kernel, **options)

    cases: dict[tuple[Any, ...], Case] = {
        (kernel, level.name, 1): built(kernel, level, 1) for level in levels for kernel in kernels
    }
    cases |= {(k, levels[0].name + PART, 1): built(k, levels[0], 1, PART) for k in kernels}
    if len(cores) > 1 and levels[-1].size_B is None:
        cases |= {
            (kernel, levels[-1].name, len(cores)): built(kernel, levels[-1], len(cores))
            for kernel in dict.fromkeys((*LIMITED, *kernels))
        }
    return cases


def size_of(kernel: str, footprint_B: int) -> dict[str, Any]:
    """Return the options of a size whose inner loops are long enough for whole steps of vectors."""
    values = footprint_B // 8  # float64
    if kernel == "loops.stencil":
        # L1 holds three such rows of two arrays.
        return {"rows": max(values // (2 * _STENCIL), 3), "columns": _STENCIL}
    if kernel == "loops.matvec":
        columns = min(max(values // _ROWS, 1), _MATRIX)
        return {"rows": max(values // columns, 1), "columns": columns}
    return {"footprint_B": footprint_B}


# Bodies in the core

_OTHERS = (
    *(f"stream.{name}" for name in ("copy", "scale", "add", "triad")),
    *(f"raider.{name}" for name in ("copy", "scale", "add", "triad")),
    *(f"bs.bs{number}" for number in range(1, 6)),
    *("spatter.gather", "spatter.scatter", "spmv.crs", "spmv.sell", "dw.hop"),
)
_VARIANTS = ("scalar", "auto", "simd", "pipelined")
# Elements of an instance of the pattern, lengths of rows and columns of the matrices, and a lattice
# that fits in L2.
_PATTERN = 8
_LENGTHS, _COLUMNS = (128, 16), 256
_LATTICE, _LS = (2, 2, 2, 2), 8
# Bytes of a nonzero and its index.
_NONZERO_B = 12


def _elements(case: Case) -> float:
    """Return the elements of an invocation: values of each array, nonzeros, or sites and s."""
    width = case.spec.counts.width(case) * case.columns.get("pattern_length", 1)
    return float(case.iterations * width)


@dataclass(frozen=True, eq=False)
class MeasuredInCore(Measured):
    """Bodies in the core, as measured and as predicted.

    The first record of each body has the columns of its row.

    Attributes
    ----------
    rows : list of dict
        See `measured_in_core`.
    bodies : tuple of InCore
        Undisturbed times, for a machine file.
    """

    rows: list[dict[str, Any]]
    bodies: tuple[InCore, ...]


class _Key(NamedTuple):
    """A body, and which of its two sizes."""

    kernel: str
    layout: str
    variant: str
    isa: str
    unroll: int
    part: bool = False

    def __str__(self) -> str:
        unrolled = f", unrolled {self.unroll}" if self.unroll else ""
        return f"{self.kernel} {self.layout}".rstrip() + f" {self.variant}/{self.isa}{unrolled}"


def in_core_kernels() -> list[str]:
    """Return the kernels whose data fit in a cache of the core without a change of their body."""
    return [*loop_kernels(), *_OTHERS]


def measured_in_core(
    kernels: Sequence[str] | None = None,
    *,
    variants: Sequence[str] = ("simd",),
    isas: Sequence[str] = ("best",),
    unrolls: Sequence[int] = (0,),
    machine: MachineFile | None = None,
    seconds: float = 60.0,
    processor: tuple[str, str] = ("native", ""),
    progress: Callable[[float], object] | None = None,
) -> MeasuredInCore:
    """Measure compiled bodies in L1 on one core, and predict them by llvm-mca and OSACA.

    Each body repeats without barriers on data of two sizes: cycles are computed from the difference
    of the times, so that the start of an invocation does not count. The domain wall has one size,
    in L2.

    Parameters
    ----------
    kernels : sequence of str, optional
        Some of `in_core_kernels`; by default all.
    variants, isas : sequence of str
        Variants ``scalar``, ``auto``, ``simd`` and ``pipelined``, and instruction sets.
    unrolls : sequence of int
        0 for the kernel's default. All compiled combinations are measured.
    machine : MachineFile, optional
        Machine file whose instructions separate arithmetic from loads and stores.
    seconds : float
        Most seconds that it takes.
    processor : tuple of str
        Its names in llvm-mca and in OSACA; the second one is empty for no prediction.
    progress : callable, optional
        Called with the share of the work that is done, from 0 to 1.

    Returns
    -------
    MeasuredInCore
        Rows have ``kernel``, ``layout`` (of the domain wall), ``variant``, ``isa``, ``unroll``,
        ``level``, ``in_core_unit`` (``vector``: one of every stream; ``element``: of the pattern, a
        nonzero, or a site and s), ``units`` (in an iteration of the main loop), and per unit:
        ``in_core_cycles`` as measured, ``llvm_mca_cycles``, ``osaca_cycles`` (NaN without a
        prediction), the cycles of llvm-mca's busiest port (``llvm_mca_port_cycles`` of
        ``llvm_mca_port``), the columns of `terms`, and the bytes of spills (``surplus_load_B``,
        ``surplus_store_B``, see `Body`); ``in_core_row_cycles`` of a matrix's row in addition to
        its nonzeros; ``spread`` and ``disturbed``.

    Raises
    ------
    InputError
        There is no such kernel or variant, or nothing could be measured.
    """
    from memkern.static import analysis

    for kernel in kernels or ():
        one_of(kernel, "kernel", in_core_kernels())
    for variant in variants:
        one_of(variant, "variant", _VARIANTS)
    environment = machine_environment()
    levels = levels_of(environment, [group[0] for group in physical_cores()])
    cases, missing = _body_cases(
        itertools.product(kernels or in_core_kernels(), variants, isas, unrolls), levels
    )
    placed = place_in_rounds(cases, rounds=5, seconds=seconds, progress=progress)
    runs = placed.runs
    missing += [
        f"not measured: {key}: {why}" for key, why in placed.refused.items() if not key.part
    ]
    rows, measured, bodies = [], [], []
    for key, run in runs.items():
        if key.part:
            continue
        obtained = run.placements[-1].obtained
        case, other = cases[key], key._replace(part=True)
        done = calibrated(run, environment)
        part = calibrated(runs[other], environment) if other in runs else None
        measured += [done] if part is None else [done, part]
        time, row_cycles = _times(case, done, cases.get(other), part)
        vectors = case.spec.counts.elementwise and bool(obtained["vector_B"])
        lanes = obtained["vector_B"] // case.value_B if vectors else 1
        body = None
        try:
            body = analysis.main_loop_of(case, obtained)
        except InputError as error:
            missing.append(f"not predicted: {error}")
        columns = {
            "in_core_unit": "vector" if vectors else "element",
            "in_core_cycles": time.cycles * lanes,
            "in_core_row_cycles": row_cycles,
            **analysis.columns_of(body, processor, machine),
        }
        done.record.update(columns)
        record = done.record
        rows.append(
            {
                **{name: record[name] for name in ("kernel", "variant", "isa", "unroll")},
                "layout": key.layout,
                "level": time.level,
                "units": math.nan if body is None else body.units,
                **columns,
                "spread": time.spread,
                "disturbed": time.disturbed,
            }
        )
        if not time.disturbed:
            row = 0.0 if math.isnan(row_cycles) else row_cycles
            bodies.append(InCore(body_of(record), time.level, time.cycles, row))
    if not rows:
        raise InputError(f"nothing could be measured: {next(iter(missing), 'no body')}")
    order = in_core_kernels()
    rows.sort(
        key=lambda row: (
            order.index(row["kernel"]),
            *(row[name] for name in ("layout", "variant", "isa", "unroll")),
        )
    )
    return MeasuredInCore(
        to_result_set(measured, placed.interrupted),
        tuple(missing),
        rows,
        tuple(sorted(bodies, key=lambda one: one.body)),
    )


def _body_cases(
    bodies: Iterable[tuple[str, str, str, int]], levels: Sequence[CacheLevel]
) -> tuple[dict[_Key, Case], list[str]]:
    """Return the cases of each body, and the reasons for missing ones."""
    cores = [group[0] for group in physical_cores()]
    cases: dict[_Key, Case] = {}
    missing = []
    for kernel, variant, isa, unroll in _compiled(bodies):
        for layout, *sizes in _sizes(kernel, variant, levels[0]):
            for number, size in enumerate(sizes):
                key = _Key(kernel, layout, variant, isa, unroll, number > 0)
                level = levels[1 if layout and len(levels) > 2 else 0].name
                options = {
                    **({"unroll": unroll} if unroll else {}),
                    **pinned(cores, 1),
                    "variant": variant,
                    "isa": isa,
                    "repetition": "free",
                    "budget_s": _BRIEF_S,
                    "name": level + (PART if key.part else ""),
                }
                try:
                    cases[key] = kernel_case(kernel, **size, **options)
                except InputError as error:
                    missing.append(f"not measured: {key}: {error}")
                    break
    return cases, missing


def _compiled(
    bodies: Iterable[tuple[str, str, str, int]],
) -> Iterator[tuple[str, str, str, int]]:
    """Yield the compiled bodies, and all bodies of kernels without a compiled one."""
    wanted = list(bodies)
    entries = {(entry[0], entry[1], entry[2], entry[5]) for entry in _memkern.entries()}
    entries |= {(kernel, variant, "best", unroll) for kernel, variant, _, unroll in entries}
    some = {body[0] for body in wanted if body in entries}
    return (body for body in wanted if body in entries or body[0] not in some)


def _sizes(kernel: str, variant: str, level: CacheLevel) -> Iterator[tuple[Any, ...]]:
    """Yield layouts of a kernel (empty except for the domain wall), each with its sizes."""
    every_B = (level.used_B(1), level.part_B())
    if kernel == "dw.hop":
        for layout in ("lexicographic",) if variant == "scalar" else ("RRII", "RIRI"):
            cut = {} if variant == "scalar" else {"cut": "s"}
            yield layout, {"lattice": _LATTICE, "ls": _LS, "layout": layout, **cut}
    elif kernel.startswith("spmv."):
        nonzeros = every_B[0] * 2 // 3 // _NONZERO_B
        rows = [max(nonzeros // length // 8, 1) * 8 for length in _LENGTHS]
        yield (
            "",
            *(
                {"matrix": f"tsm:{count}:{length}:{_COLUMNS}"}
                for count, length in zip(rows, _LENGTHS, strict=True)
            ),
        )
    elif kernel.startswith("spatter."):
        # A value and an index of each element are in L1.
        count = [size_B // (2 * 8 * _PATTERN) for size_B in every_B]
        pattern = {"pattern": f"UNIFORM:{_PATTERN}:1", "delta": _PATTERN}
        yield "", *({**pattern, "count": each} for each in count)
    else:
        yield "", *(size_of(kernel, size_B) for size_B in every_B)


def _times(
    case: Case, done: Measurement, other: Case | None, part: Measurement | None
) -> tuple[LoopTime, float]:
    """Return the time of an element, and the cycles of a matrix's row; NaN for other kernels."""
    whole = _time_of(case, done)
    if other is None or part is None:
        # Without the second size, the start of an invocation counts, so models do not use the time.
        return replace(whole, disturbed=whole.disturbed or other is not None), math.nan
    second = _time_of(other, part)
    counts = _elements(case), _elements(other)
    if "nonzeros" not in case.columns:
        return marginal(whole, counts[0], second, counts[1]), math.nan
    # Cycles of a nonzero include its share of a row: rows of two lengths separate both. Small test
    # cases may have one length only.
    shares = [one.columns["rows"] / one.columns["nonzeros"] for one in (case, other)]
    apart = shares[1] - shares[0]
    row_cycles = max((second.cycles - whole.cycles) / apart, 0.0) if apart else 0.0
    return LoopTime(
        whole.kernel,
        whole.level,
        {},
        whole.cycles - shares[0] * row_cycles,
        whole.spread,
        whole.disturbed or second.disturbed,
    ), row_cycles


def _time_of(case: Case, done: Measurement) -> LoopTime:
    """Return the measured time of an element."""
    record = done.record
    return LoopTime(
        record["kernel"],
        str(record["name"]).removesuffix(PART),
        {},
        record["time_min_s"] * record["clock_GHz"] * 1e9 / _elements(case),
        float(record["placement_sd"]),
        # Small test cases, whose times are meaningless, have too few samples to count as
        # undisturbed.
        bool(record["disturbed"]) and not small.wanted(),
    )
