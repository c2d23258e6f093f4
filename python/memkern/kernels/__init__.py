"""The kernel families: one module each, which registers its specs.

A module may also offer ``report_cases(quick, cache_B, memory_B)``: what `memkern report`
measures of it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from memkern.errors import InputError
from memkern.options import Knobs, Stop, declared
from memkern.patterns import shown

if TYPE_CHECKING:
    from memkern.spec import Case, KernelSpec

DEFINITIONS = ("paper", "release")


def load_all() -> list[ModuleType]:
    """Import every family, so that its specs stand in the registry."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [importlib.import_module(f"{__name__}.{name}") for name in names]


def case(kernel: str, *, definition: str = "paper", **options: Any) -> Case:
    """Build a case of any kernel.

    Parameters
    ----------
    kernel : str
        Its name in the registry, such as ``stream.triad``; without a family a gather/scatter
        kernel.
    definition : str
        ``paper`` or ``release``, for kernels that differ between them.
    **options
        What the kernel takes; see its family's module.

    Raises
    ------
    InputError
        There is no such kernel, it has no such option, or its family refuses.
    """
    from memkern.spec import registry

    kernels = registry()
    if definition not in DEFINITIONS:
        raise InputError(f"definition {shown(definition)} is not one of {', '.join(DEFINITIONS)}")
    name = kernel if "." in kernel else f"spatter.{kernel}"
    if f"{name}@{definition}" in kernels:
        name = f"{name}@{definition}"
    if name not in kernels:
        family = f"{name.partition('.')[0]}."
        known = [k for k in kernels if "@" not in k]
        near = [k for k in known if k.startswith(family)]
        raise InputError(f"kernel {shown(kernel)} is not one of {', '.join(near or known)}")
    _check_options(kernels[name], options)
    return kernels[name].build(name, **options)


def options_of(spec: KernelSpec) -> dict[str, Any]:
    """Return what a kernel takes besides its name, with the defaults.

    Returns
    -------
    dict of str to object
        Its own options first; what has to be given is ``inspect.Parameter.empty``.
    """
    parameters = inspect.signature(spec.build).parameters.values()
    own = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    for scalar in {"alpha", "beta"} - {*spec.numbers}:
        own.pop(scalar, None)
    everywhere = {"dtype": spec.dtypes[0], "name": "", "suite": ""}
    fields = {name: default for name, default, _ in (*declared(Knobs), *declared(Stop))}
    return {**own, **everywhere, **fields, **own}


def _check_options(spec: KernelSpec, options: Mapping[str, Any]) -> None:
    """Refuse options that a kernel does not take, and to do without what it needs."""
    known = options_of(spec)
    for option in options:
        if option in ("alpha", "beta") and option not in known:
            raise InputError(f"kernel {spec.name!r} has no scalar {option}")
        if option not in known and not (option == "index_dtype" and options[option] == ""):
            raise InputError(
                f"kernel {spec.name!r} has no option {shown(option)}: there are {', '.join(known)}"
            )
    for option, default in known.items():
        if default is inspect.Parameter.empty and option not in options:
            raise InputError(f"kernel {spec.name!r} needs {option}")


def report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return what a report measures, family by family.

    Parameters
    ----------
    quick : bool
        Whether to have fewer cases, and to measure them more briefly.
    cache_B : int
        Size of the last-level caches together, which memory-sized cases should exceed.
    memory_B : int
        Memory that can be had, of which no case takes more than half.
    """
    cases: list[Case] = []
    for family in load_all():
        if hasattr(family, "report_cases"):
            cases += family.report_cases(quick, cache_B, memory_B)
    return cases
