"""Imports by name: modules of families, and of layers above the caller.

No code names a family: every family's folder in `memkern/families` has modules with fixed names.
"""

from __future__ import annotations

import functools
import importlib.util
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any


@functools.cache
def family_modules(name: str) -> tuple[ModuleType, ...]:
    """Import a module of every family that has it.

    Parameters
    ----------
    name : str
        ``kernels``, ``verb`` or ``figures``.

    Returns
    -------
    tuple of module
        In alphabetical order of the families.
    """
    return tuple(filter(None, (family_module(family, name) for family in _families())))


@functools.cache
def family_module(family: str, name: str) -> ModuleType | None:
    """Import a module of one family; None if there is no such family, or it has no such module."""
    module = f"{__package__}.families.{family}.{name}"
    if family not in _families() or importlib.util.find_spec(module) is None:
        return None
    return importlib.import_module(module)


@functools.cache
def family_names() -> dict[str, str]:
    """Return where the families' public names are, as ``PUBLIC`` of their packages tells.

    Returns
    -------
    dict of str to str
        By name ``module:attribute``, or ``module`` if the module itself is public.
    """
    return {
        name: f"families.{family}.{home}"
        for family, package in _packages().items()
        for name, home in vars(package).get("PUBLIC", {}).items()
    }


def family_of(verb: str) -> str:
    """Return the family of a verb: ``VERB`` of its package, or its name; empty without one."""
    if verb in _families():
        return verb
    return next((f for f, package in _packages().items() if vars(package).get("VERB") == verb), "")


def _packages() -> dict[str, ModuleType]:
    return {f: importlib.import_module(f"{__package__}.families.{f}") for f in _families()}


@functools.cache
def _families() -> list[str]:
    return sorted(
        m.name for m in pkgutil.iter_modules([str(Path(__file__).parent / "families")]) if m.ispkg
    )


# Modules that lower layers use, by purpose.
_ABOVE = {
    **{"engine": "engine.public", "isolated": "studies.isolated"},
    **{"peak": "models.peak", "roofline": "models.roofline"},
}


def above(what: str) -> Any:
    """Import a module of a higher layer.

    Parameters
    ----------
    what : str
        ``engine``, which measures cases, ``isolated``, which runs code of users, or ``roofline``
        and ``peak``, which add columns to records.
    """
    return importlib.import_module(f"{__package__}.{_ABOVE[what]}")
