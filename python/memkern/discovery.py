"""The families of kernels, found in the folder `memkern/families`.

No other code names a family: every family's folder has modules with fixed names, which are found
and imported from here.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from pathlib import Path
from types import ModuleType


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
    package = f"{__package__}.families"
    folder = str(Path(__file__).parent / "families")
    families = sorted(m.name for m in pkgutil.iter_modules([folder]) if m.ispkg)
    modules = [f"{package}.{family}.{name}" for family in families]
    found = (m for m in modules if importlib.util.find_spec(m) is not None)
    return tuple(map(importlib.import_module, found))
