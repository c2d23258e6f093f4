"""Rounds of trials of variants since the system was booted.

A choice starts from the rounds of earlier choices of the same case, so that it needs fewer new
rounds to distinguish two candidates, and equal commands make the same choice. Only the last rounds
are kept, so that a wrong choice is not permanent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memkern.host.file import Section, finite

__all__ = ["CHOICES", "Choices", "Round"]

Round = Mapping[str, float]
"""Logarithm of a time by the variant and instruction set, as ``simd/avx2``."""

_MOST_ROUNDS = 12
_MOST_CASES = 200  # the most recently tried ones

Rounds = Mapping[str, Sequence[Round]]


def _last(known: Rounds, new: Rounds) -> Rounds:
    """Return the last rounds of the cases that were tried last."""
    tried = {name: [*known.get(name, ()), *rounds][-_MOST_ROUNDS:] for name, rounds in new.items()}
    others = {name: rounds for name, rounds in known.items() if name not in new}
    return dict([*others.items(), *tried.items()][-_MOST_CASES:])


CHOICES: Section[Rounds] = Section(
    "choices",
    {},
    lambda content: {
        name: [{str(key): finite(log) for key, log in one.items()} for one in rounds]
        for name, rounds in content.items()
    },
    _last,
)


class Choices:
    """Rounds by the name of a case, or of its parts.

    Parameters
    ----------
    earlier : mapping of str to sequence of Round
        Of earlier processes.
    """

    def __init__(self, earlier: Rounds) -> None:
        self._known = earlier
        self.added: Rounds = {}
        """The rounds of this process."""

    def known(self, name: str) -> list[Round]:
        """Return the last rounds of a name."""
        return list(self._known.get(name, ()))

    def add(self, name: str, one: Round) -> None:
        """Keep a round for later choices."""
        self._known, self.added = (
            _last(every, {name: [one]}) for every in (self._known, self.added)
        )
