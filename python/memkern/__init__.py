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

import sys

# `python -m memkern` puts the current folder first, whose files would replace modules of Python.
if (
    sys.argv[:1] == ["-m"]  # while the module is located
    and sys.orig_argv[-len(sys.argv)].removeprefix("-m").partition(".")[0] == "memkern"
    and not getattr(sys.flags, "safe_path", sys.flags.isolated)
):
    del sys.path[0]

import importlib
import importlib.util
import os
from typing import Any

from memkern.errors import DeviceError as DeviceError
from memkern.errors import InputError as InputError

# libgomp reads this when it is loaded. Threads sleep after waiting for about 0.25 ms: on a shared
# processor, longer spinning would delay the thread for which they wait.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

# Where public names are defined: modules by name, then functions and classes by module. Families
# have their own (see `memkern.discovery.family_names`).
_MODULES = {
    "lattice": "inputs.lattice",
    "matrices": "inputs.matrices",
    "models": "models",
    "patterns": "inputs.patterns",
    "plots": "plots",
    "reference": "reference",
    "report": "report",
    "results": "results",
    "statistics": "statistics",
}
_NAMES = {
    "inputs.sizes": ("sizes",),
    "studies.corun": ("corun",),
    "studies.describe": ("describe",),
    "studies.doctor": ("doctor",),
    "studies.extraction": ("extract",),
    "studies.explain": ("explain",),
    "studies.machine_file": ("measure_machine",),
    "studies.interleaved": ("compare_runs",),
    "engine.public": ("Measurement", "Prepared", "apply", "measure", "prepare", "sweep", "vary"),
    "studies.scaling": ("scaling",),
    "studies.tracing": ("trace",),
    "studies.tune": ("tune",),
    "models": ("fit_t0_wmax",),
    "formats": ("ResultSet", "concat", "load"),
    "results.comparison": ("compare",),
    "results.fleet": ("fleet",),
    "results.merging": ("merge",),
    "results.scaling": ("efficiencies",),
    "results.slowdowns": ("slowdowns",),
    "spec.case": ("Case",),
    "spec.options": ("Knobs", "Stop"),
    "spec.registry": ("case", "registry"),
}
_HOMES = {
    **_MODULES,
    **{name: f"{module}:{name}" for module, names in _NAMES.items() for name in names},
}


def _all_homes() -> dict[str, str]:
    return {**_HOMES, **importlib.import_module("memkern.discovery").family_names()}


def __getattr__(name: str) -> Any:
    # Lazy: the analysis of saved results needs neither the extension nor its start-up time.
    if name == "_memkern":
        return importlib.import_module("memkern.extension")._memkern
    if name == "__version__":
        from importlib.metadata import version

        return version("memkern")
    if name == "__all__":
        return sorted(["DeviceError", "InputError", *_all_homes()])
    home = _HOMES.get(name)
    # An import of a module from the package asks for an attribute first: no family has it.
    if home is None and importlib.util.find_spec(f"memkern.{name}") is None:
        home = _all_homes().get(name)
    if home is None:
        raise AttributeError(f"module 'memkern' has no attribute {name!r}")
    module, _, attribute = home.partition(":")
    found = importlib.import_module(f"memkern.{module}")
    return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    return sorted([*__getattr__("__all__"), "__version__"])
