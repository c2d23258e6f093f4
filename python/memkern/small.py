"""Small cases, so that tests can run every command and example of the documentation as written.

Where the environment variable ``MEMKERN_SMALL`` is set, sizes, samples and times are limited so
that a case takes milliseconds. Records hold the sizes that were measured; their times mean nothing.
"""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T", int, float)

VARIABLE = "MEMKERN_SMALL"


def wanted() -> bool:
    """Return whether cases are to be small."""
    return bool(os.environ.get(VARIABLE))


def cut(value: T, most: T) -> T:
    """Return `value`, limited to `most` where cases are to be small."""
    return min(value, most) if wanted() else value
