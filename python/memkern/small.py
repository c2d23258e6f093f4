"""Small cases, so that tests can run every command and example of the documentation as written.

If the environment variable ``MEMKERN_SMALL`` is set, sizes, samples and times are limited so that a
case takes milliseconds. Records contain the measured sizes; their times are meaningless.
"""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T", int, float)

VARIABLE = "MEMKERN_SMALL"


def wanted() -> bool:
    """Return whether small cases are requested."""
    return bool(os.environ.get(VARIABLE))


def cut(value: T, most: T) -> T:
    """Return `value`, limited to `most` if small cases are requested."""
    return min(value, most) if wanted() else value
