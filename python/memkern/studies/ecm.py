"""Measurement of all loops in each level, in turns, for the ECM model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from memkern.checks import one_of
from memkern.engine.public import calibrated, place_in_rounds, to_result_set
from memkern.formats import ResultSet
from memkern.host.environment import machine_environment
from memkern.machine.topology import physical_cores
from memkern.models.ecm_fit import LIMITED, PART
from memkern.spec.case import Case
from memkern.spec.registry import case as kernel_case
from memkern.spec.registry import of_family
from memkern.studies.machine_file import CacheLevel, levels_of, pinned

_BRIEF_S, _LONG_S = 0.15, 0.75
# Columns of the stencil, least rows of the matrix, and its columns if they fit.
_COLUMNS, _ROWS, _MATRIX = 258, 512, 192


@dataclass(frozen=True, eq=False)
class MeasuredLoops:
    """Loops on one core, with data in each level.

    Attributes
    ----------
    results : ResultSet
    missing : tuple of str
        Cases that could not be measured, with the reasons.
    """

    results: ResultSet
    missing: tuple[str, ...]


def loop_kernels() -> list[str]:
    """Return the loops of the ECM studies that move data."""
    return sorted(name for name in of_family("loops") if name != "loops.peakflops")


def measure_loops(
    *,
    kernels: Sequence[str] | None = None,
    levels: int | None = None,
    seconds: float = 240.0,
    progress: Callable[[float], object] | None = None,
) -> MeasuredLoops:
    """Measure loops on one core with data in each level, and from memory on all cores.

    All cases are placed in turns, in random order, five times, so that cases for the fit and other
    cases have the same conditions.

    Parameters
    ----------
    kernels : sequence of str, optional
        Names such as ``loops.daxpy``; by default all loops that move data.
    levels : int, optional
        Number of levels, from L1 on; by default all, with memory.
    seconds : float
        Longest duration.
    progress : callable, optional
        Called with the share of the work that is done, from 0 to 1.

    Returns
    -------
    MeasuredLoops

    Raises
    ------
    InputError
        Nothing could be measured.
    """
    environment = machine_environment()
    cores = [group[0] for group in physical_cores()]
    every = levels_of(environment, cores)
    for kernel in kernels or ():
        one_of(kernel, "kernel", loop_kernels())
    cases = _cases(kernels or loop_kernels(), every[:levels], cores)
    placed = place_in_rounds(cases, rounds=5, seconds=seconds, progress=progress)
    done = [calibrated(run, environment) for run in placed.runs.values()]
    return MeasuredLoops(
        to_result_set(done, placed.interrupted),
        tuple(f"{' '.join(map(str, key))}: {why}" for key, why in placed.refused.items()),
    )


def _cases(
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
    for kernel in kernels:
        cases[kernel, levels[0].name + PART, 1] = built(kernel, levels[0], 1, PART)
    if len(cores) > 1 and levels[-1].size_B is None:
        for kernel in dict.fromkeys((*LIMITED, *kernels)):
            cases[kernel, levels[-1].name, len(cores)] = built(kernel, levels[-1], len(cores))
    return cases


def size_of(kernel: str, footprint_B: int) -> dict[str, Any]:
    """Return the options of a size whose inner loops are long enough for whole steps of vectors."""
    values = footprint_B // 8  # float64
    if kernel == "loops.stencil":
        # L1 holds three such rows of two arrays.
        return {"rows": max(values // (2 * _COLUMNS), 3), "columns": _COLUMNS}
    if kernel == "loops.matvec":
        columns = min(max(values // _ROWS, 1), _MATRIX)
        return {"rows": max(values // columns, 1), "columns": columns}
    return {"footprint_B": footprint_B}
