"""The kernel families: one module each, which registers its specs."""

import importlib
import pkgutil


def load_all() -> None:
    """Import every family, so that its specs stand in the registry."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
