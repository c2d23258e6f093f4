"""memkern: how fast a machine really moves data.

A pattern becomes a case, a case runs on a kernel, a run yields samples, samples become tidy
records, records become figures:

>>> import memkern as mk
>>> case = mk.gather(mk.patterns.uniform(8, 4), delta=32, count=2**20)
>>> result = case.measure()
>>> result.valid
True
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from memkern.errors import InputError

if TYPE_CHECKING:
    from memkern import (
        dw,
        lattice,
        matrices,
        models,
        patterns,
        plots,
        reference,
        report,
        results,
        spmv,
        statistics,
        suites,
    )
    from memkern.calibrating import calibrate
    from memkern.comparison import compare
    from memkern.interleaved import compare_runs
    from memkern.kernels import case
    from memkern.kernels.amo import amo
    from memkern.kernels.launch import launch
    from memkern.kernels.raider import raider
    from memkern.kernels.spatter import gather, gs, multigather, multiscatter, scatter
    from memkern.kernels.streaming import bs, loops, stream
    from memkern.models import fit_t0_wmax
    from memkern.options import Knobs, Stop
    from memkern.results import ResultSet, load
    from memkern.run import Measurement, apply, describe, measure, prepare, sweep, tune, vary
    from memkern.spec import Case, registry

# OpenMP's runtime reads this when it is loaded. Workers that wait longer than about a quarter of a
# millisecond sleep, instead of taking whole slices of the scheduler from those that they wait for.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

_MODULES = (
    *("dw", "lattice", "matrices", "models", "patterns", "plots", "reference", "report"),
    *("results", "spmv", "statistics", "suites"),
)
_HOMES = {
    "amo": "memkern.kernels.amo",
    "calibrate": "memkern.calibrating",
    "case": "memkern.kernels",
    "compare": "memkern.comparison",
    "compare_runs": "memkern.interleaved",
    "launch": "memkern.kernels.launch",
    **dict.fromkeys(
        ("gather", "scatter", "gs", "multigather", "multiscatter"), "memkern.kernels.spatter"
    ),
    "raider": "memkern.kernels.raider",
    **dict.fromkeys(("bs", "loops", "stream"), "memkern.kernels.streaming"),
    "fit_t0_wmax": "memkern.models",
    **dict.fromkeys(("ResultSet", "load"), "memkern.results"),
    **dict.fromkeys(
        ("Measurement", "apply", "describe", "measure", "prepare", "sweep", "tune", "vary"),
        "memkern.run",
    ),
    **dict.fromkeys(("Knobs", "Stop"), "memkern.options"),
    **dict.fromkeys(("Case", "registry"), "memkern.spec"),
}

__all__ = [
    "Case",
    "InputError",
    "Knobs",
    "Measurement",
    "ResultSet",
    "Stop",
    "amo",
    "apply",
    "bs",
    "calibrate",
    "case",
    "compare",
    "compare_runs",
    "describe",
    "dw",
    "fit_t0_wmax",
    "gather",
    "gs",
    "lattice",
    "launch",
    "load",
    "loops",
    "matrices",
    "measure",
    "models",
    "multigather",
    "multiscatter",
    "patterns",
    "plots",
    "prepare",
    "raider",
    "reference",
    "registry",
    "report",
    "results",
    "scatter",
    "spmv",
    "statistics",
    "stream",
    "suites",
    "sweep",
    "tune",
    "vary",
]


def __getattr__(name: str) -> Any:
    # Whoever only analyses saved results needs neither the compiled part nor its start-up time.
    if name in _MODULES:
        return importlib.import_module(f"memkern.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("memkern")
    raise AttributeError(f"module 'memkern' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
