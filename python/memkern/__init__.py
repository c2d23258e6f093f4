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
    from memkern import models, plots, reference, report, results, statistics
    from memkern.families.amo.kernels import amo
    from memkern.families.bs.kernels import bs
    from memkern.families.dw import operator as dw
    from memkern.families.launch.kernels import launch
    from memkern.families.loops.kernels import loops
    from memkern.families.raider.kernels import raider
    from memkern.families.spatter import suites
    from memkern.families.spatter.kernels import gather, gs, multigather, multiscatter, scatter
    from memkern.families.spmv import product as spmv
    from memkern.families.stream.kernels import stream
    from memkern.inputs import lattice, matrices, patterns
    from memkern.inputs.sizes import sizes
    from memkern.measuring.calibrate import calibrate
    from memkern.measuring.describe import describe
    from memkern.measuring.interleaved import compare_runs
    from memkern.measuring.prepared import Prepared, apply, prepare
    from memkern.measuring.record import Measurement, measure
    from memkern.measuring.sweep import sweep, vary
    from memkern.measuring.tune import tune
    from memkern.models import fit_t0_wmax
    from memkern.results import ResultSet, load
    from memkern.results.comparison import compare
    from memkern.spec.case import Case
    from memkern.spec.options import Knobs, Stop
    from memkern.spec.registry import case, registry

# OpenMP's runtime reads this when it is loaded. Workers that wait longer than about a quarter of a
# millisecond sleep, instead of taking whole slices of the scheduler from those that they wait for.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

# Where what people use stands: modules, and the functions and classes of modules.
_MODULES = {
    "dw": "families.dw.operator",
    "lattice": "inputs.lattice",
    "matrices": "inputs.matrices",
    "models": "models",
    "patterns": "inputs.patterns",
    "plots": "plots",
    "reference": "reference",
    "report": "report",
    "results": "results",
    "spmv": "families.spmv.product",
    "statistics": "statistics",
    "suites": "families.spatter.suites",
}
_NAMES = {
    "families.amo.kernels": ("amo",),
    "families.bs.kernels": ("bs",),
    "families.launch.kernels": ("launch",),
    "families.loops.kernels": ("loops",),
    "families.raider.kernels": ("raider",),
    "families.spatter.kernels": ("gather", "gs", "multigather", "multiscatter", "scatter"),
    "families.stream.kernels": ("stream",),
    "inputs.sizes": ("sizes",),
    "measuring.calibrate": ("calibrate",),
    "measuring.describe": ("describe",),
    "measuring.interleaved": ("compare_runs",),
    "measuring.prepared": ("Prepared", "apply", "prepare"),
    "measuring.record": ("Measurement", "measure"),
    "measuring.sweep": ("sweep", "vary"),
    "measuring.tune": ("tune",),
    "models": ("fit_t0_wmax",),
    "results": ("ResultSet", "load"),
    "results.comparison": ("compare",),
    "spec.case": ("Case",),
    "spec.options": ("Knobs", "Stop"),
    "spec.registry": ("case", "registry"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Case",
    "InputError",
    "Knobs",
    "Measurement",
    "Prepared",
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
    "sizes",
    "spmv",
    "statistics",
    "stream",
    "suites",
    "sweep",
    "tune",
    "vary",
]


def __getattr__(name: str) -> Any:
    # Lazy: the analysis of saved results needs neither the extension nor its start-up time.
    if name in _MODULES:
        return importlib.import_module(f"memkern.{_MODULES[name]}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"memkern.{_HOMES[name]}"), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("memkern")
    raise AttributeError(f"module 'memkern' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
