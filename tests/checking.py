"""What the tests of validation share: prepared cases that do something else, and their check."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from memkern.errors import InputError
from memkern.spec.case import Case
from memkern.spec.kernel import Check

# What the extension is asked for, where a test asks for nothing else: an empty kernel.
ASKED: dict[str, Any] = {
    "kernel": "launch.empty", "dtype": "float64", "index_dtype": "", "form": "",
    "integers": {"prefetch": 0}, "numbers": {}, "arrays": [], "indices": {}, "data": {},
    "threads": 1, "pin": "none", "pages": "default", "numa": "first-touch", "offset": 0,
    "schedule": "static", "chunk": 0, "repetition": "fork", "unroll": 0, "flush": False, "seed": 0,
    "device": None, "timer": "host", "block_threads": 0,
}  # fmt: skip


class Changed:
    """A prepared case of which something is otherwise than it says."""

    def __init__(self, native: Any, **changes: Any) -> None:
        self.native, self.changes = native, changes

    def __getattr__(self, name: str) -> Any:
        return self.changes.get(name) or getattr(self.native, name)


def checked(case: Case, native: Any, runs: int = 1) -> Check:
    """Return what the check of a case finds after so many runs."""

    def invoke() -> int:
        for _ in range(runs):
            native.run(1)
        return runs

    return case.spec.check(case, native, invoke)


@contextmanager
def refused(culprit: str) -> Iterator[None]:
    """Expect wrong input to be refused in one sentence that names the culprit."""
    with pytest.raises(InputError, match=culprit) as caught:
        yield
    assert "\n" not in str(caught.value)
