"""What the tests of validation share: prepared cases that do something else, and their check."""

from __future__ import annotations

from typing import Any

from memkern.spec import Case, Check


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
