"""Results derived from records: comparisons, verdicts, slowdowns, efficiencies, merged files.

`memkern.formats` defines records and their files.
"""

import importlib
from typing import Any

from memkern.formats import *  # noqa: F403
from memkern.formats import __all__ as _of_records

# Names of the module that writes files while cases are measured, which few commands need.
_OF_FILES = ("Sink", "Store", "check_output", "open_output")
__all__ = sorted([*_of_records, *_OF_FILES])
__dir__ = __all__.copy  # public names only


def __getattr__(name: str) -> Any:
    if name not in _OF_FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("memkern.formats.store"), name)
