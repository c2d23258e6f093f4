"""Rounds of trials of variants since the system was booted.

A choice starts from the rounds of earlier choices of the same case, so that it needs fewer new
rounds to distinguish two candidates, and equal commands make the same choice. Only the last rounds
are kept, so that a wrong choice is not permanent.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memkern import small
from memkern.engine import calibration
from memkern.engine.communication import ranks
from memkern.engine.process import at_exit
from memkern.machine.state import kept, updated
from memkern.spec.case import Case

__all__ = ["Round", "add_round", "known_rounds", "load", "name_of", "path"]

Round = dict[str, float]
"""Logarithm of a time by the variant and instruction set, as ``simd/avx2``."""

_MOST_ROUNDS = 12
_MOST_CASES = 200  # the most recently tried ones


def path() -> Path:
    """Return the path of the rounds of this user and machine."""
    return calibration.path().with_name("choices.json")


def name_of(case: Case, iterations: int = 0) -> str:
    """Return the name of the rounds of a case, or of its parts with this many iterations."""
    return f"{case.identity()} {iterations}" if iterations else case.identity()


def load(target: Path) -> dict[str, list[Round]]:
    """Return the rounds since the system was booted; empty if unknown."""
    return kept(target, _rounds, {})


def _rounds(document: Mapping[str, Any]) -> dict[str, list[Round]]:
    return {
        str(name): [{str(key): float(x) for key, x in one.items()} for one in rounds]
        for name, rounds in document["rounds"].items()
    }


@functools.cache
def _known() -> tuple[dict[str, list[Round]], dict[str, list[Round]]]:
    """Return the rounds of earlier processes, and of this one."""
    added: dict[str, list[Round]] = {}
    if small.wanted():
        return {}, added
    target = path()

    def merged(rounds: dict[str, list[Round]] | None) -> dict[str, Any]:
        return {"rounds": dict([*{**(rounds or {}), **added}.items()][-_MOST_CASES:])}

    def save() -> None:
        if added:
            updated(target, _rounds, merged)

    if ranks().number == 0:
        at_exit(save)
    return load(target), added


def known_rounds(name: str) -> list[Round]:
    """Return the last rounds of a name."""
    earlier, added = _known()
    return list(added.get(name, earlier.get(name, [])))


def add_round(name: str, one: Round) -> None:
    """Keep a round for later choices."""
    _, added = _known()
    rounds = [*known_rounds(name), one][-_MOST_ROUNDS:]
    added.pop(name, None)  # last in the order of the cases
    added[name] = rounds
    if len(added) > _MOST_CASES:
        del added[next(iter(added))]
