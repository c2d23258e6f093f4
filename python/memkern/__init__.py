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
from typing import Any

from memkern.errors import DeviceError as DeviceError
from memkern.errors import InputError as InputError

# libgomp reads this when it is loaded. Threads sleep after waiting for about a quarter of a
# millisecond: on a shared processor, longer spinning would delay the thread that they wait for.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

# Where the public names are defined: modules by name, then functions and classes by module.
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
    "families.instructions.kernels": ("instructions",),
    "families.latency.kernels": ("latency",),
    "families.launch.kernels": ("launch",),
    "families.loops.kernels": ("loops",),
    "families.messages.kernels": ("messages",),
    "families.messages.model": ("halo_time",),
    "families.raider.kernels": ("raider",),
    "families.spatter.kernels": ("gather", "gs", "multigather", "multiscatter", "scatter"),
    "families.stream.kernels": ("stream",),
    "families.transfers.kernels": ("transfers",),
    "inputs.sizes": ("sizes",),
    "studies.calibrate": ("calibrate",),
    "studies.corun": ("corun",),
    "studies.describe": ("describe",),
    "studies.doctor": ("doctor",),
    "studies.machine_file": ("measure_machine",),
    "studies.interleaved": ("compare_runs",),
    "engine": ("Measurement", "Prepared", "apply", "measure", "prepare", "sweep", "vary"),
    "studies.scaling": ("scaling",),
    "studies.tune": ("tune",),
    "models": ("fit_t0_wmax",),
    "formats": ("ResultSet", "load"),
    "results.comparison": ("compare",),
    "results.merging": ("merge",),
    "results.scaling": ("efficiencies",),
    "results.slowdowns": ("slowdowns",),
    "spec.case": ("Case",),
    "spec.options": ("Knobs", "Stop"),
    "spec.registry": ("case", "registry"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(["DeviceError", "InputError", *_MODULES, *_HOMES])


def __getattr__(name: str) -> Any:
    # Lazy: the analysis of saved results needs neither the extension nor its start-up time.
    if name == "_memkern":
        return importlib.import_module("memkern.extension")._memkern
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
