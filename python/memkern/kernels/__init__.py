"""The kernel families: one module each, which registers its specs.

A module names its ``FAMILIES`` and builds their cases by ``case(kernel, **options)``.
A module may also offer ``report_cases(quick, cache_B, memory_B)``: what `memkern report`
measures of it.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import TYPE_CHECKING, Any

from memkern.errors import InputError

if TYPE_CHECKING:
    from memkern.spec import Case


def load_all() -> list[ModuleType]:
    """Import every family, so that its specs stand in the registry."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [importlib.import_module(f"{__name__}.{name}") for name in names]


def case(kernel: str, **options: Any) -> Case:
    """Build a case of any kernel.

    Parameters
    ----------
    kernel : str
        Its name in the registry, such as ``stream.triad``; without a family a gather/scatter
        kernel.
    **options
        Arguments of its family's ``case``.

    Raises
    ------
    InputError
        There is no such family, or the family refuses.
    """
    name = kernel if "." in kernel else f"spatter.{kernel}"
    family = name.partition(".")[0]
    builders = {f: m.case for m in load_all() for f in getattr(m, "FAMILIES", ())}
    if family not in builders:
        raise InputError(f"kernel {kernel!r} is of no family of {', '.join(builders)}")
    built: Case = builders[family](name, **options)
    return built


def report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return what a report measures, family by family.

    Parameters
    ----------
    quick : bool
        Whether to end within half a minute instead of about two.
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
