"""Squares of elements."""

from __future__ import annotations

from typing import Any

from memkern.shared.elementwise import regular
from memkern.spec.case import Case
from memkern.spec.registry import case, shows_options_of

regular(
    "squares.square", "a = b b", lambda v, s, t: {"a": v["b"] * v["b"]}, source="tests/new_family"
)


@shows_options_of("squares.square")
def squares(elements: int | None = None, **options: Any) -> Case:
    """Case of the squares; parameters as for `memkern.shared.elementwise.case_of`."""
    return case("squares.square", elements=elements, **options)
