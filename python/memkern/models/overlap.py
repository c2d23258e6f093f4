"""Hypotheses of the ECM model: which data transfers overlap, as nested sums and maxima.

A term is a level (the sum of its loads and stores) or one of its two parts, such as ``L1 load``.
Terms that are added follow each other; of the terms in a maximum, which overlap, only the longest
one counts. Examples for three levels:

``L1 + L2 + memory``
    Nothing overlaps.
``max(L1, L2, memory)``
    All levels overlap, as in the roofline model.
``max(L1 load + max(L1 store, L2), memory)``
    Loads from L1 do not overlap with stores to L1 and transfers between L1 and L2, which overlap
    with each other. Transfers between L2 and memory overlap with everything.

Source: Alappat et al., "ECM modeling and performance tuning of SpMV and Lattice QCD on A64FX",
2021, section "Overlap hypothesis".
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from memkern.checks import one_of, shown
from memkern.errors import InputError

Terms: TypeAlias = Mapping[str, tuple[float, float]]
"""Cycles of the loads and of the stores of each level."""

_WAYS = ("load", "store")
_TERM = r"(?:L\d|memory)(?: load| store)?"
_EXAMPLE = "max(L1 load + max(L1 store, L2), memory)"
# Every maximum has a term of its own, and no model has as many terms.
_DEEPEST = 20


@dataclass(frozen=True)
class Overlap:
    """A hypothesis on which transfers overlap: a sum or a maximum.

    Parameters
    ----------
    operator : {"+", "max"}
    parts : tuple of str or Overlap
        Terms, such as ``L2`` or ``L1 load``, and nested sums or maxima. A part with the same
        operator is replaced by its own parts, and a part with only one part by this part.

    Raises
    ------
    InputError
        The operator or a term is unknown, there is no part, or a transfer is in two of them.
    """

    operator: Literal["+", "max"]
    parts: tuple[str | Overlap, ...]

    def __post_init__(self) -> None:
        """Simplify the parts, and check that no transfer counts twice."""
        one_of(self.operator, "operator", ("+", "max"))
        parts = tuple(self._simplified())
        operator = self.operator if len(parts) > 1 else "+"
        if len(parts) == 1 and isinstance(parts[0], Overlap):
            operator, parts = parts[0].operator, parts[0].parts
        object.__setattr__(self, "operator", operator)
        object.__setattr__(self, "parts", parts)
        found = list(self.transfers())
        if not found or len(set(found)) < len(found):
            raise InputError(
                f"{shown(str(self))} is not a hypothesis: every transfer must be in it exactly once"
            )

    def _simplified(self) -> Iterator[str | Overlap]:
        for part in self.parts:
            if isinstance(part, str):
                if not re.fullmatch(_TERM, part):
                    raise InputError(f"{shown(part)} is not a term such as L2 or L1 load")
                yield part
            elif part.operator == self.operator or len(part.parts) == 1:
                yield from part.parts
            else:
                yield part

    @classmethod
    def parse(cls, text: str) -> Overlap:
        """Return the hypothesis of a text such as ``max(L1 load + max(L1 store, L2), memory)``.

        Raises
        ------
        InputError
            The text does not consist of such sums and maxima.
        """
        # From the last token to the first, so that the next one is at the end.
        tokens = re.findall(rf"max\(|{_TERM}\b|[+,)]|\S+", text)[::-1]
        found = _parsed_sum(tokens)
        if found is None or tokens:
            raise InputError(
                f"{shown(text)} is not a hypothesis: write sums and maxima of levels, such as "
                f"{_EXAMPLE}"
            )
        return found

    def __str__(self) -> str:
        """Return the hypothesis in the format of `parse`."""
        texts = map(str, self.parts)
        return " + ".join(texts) if self.operator == "+" else f"max({', '.join(texts)})"

    def transfers(self) -> Iterator[str]:
        """Yield the transfers of all terms, such as ``L2 load`` and ``L2 store`` of ``L2``."""
        for part in self.parts:
            yield from _both(part) if isinstance(part, str) else part.transfers()

    def check(self, levels: Sequence[str]) -> None:
        """Raise InputError unless each transfer of these levels is in the hypothesis."""
        odd = {*self.transfers()} ^ {part for level in levels for part in _both(level)}
        for first in sorted(odd):
            fault = "has" if first in self.transfers() else "does not have"
            raise InputError(
                f"the hypothesis {self} {fault} {first}: levels are {', '.join(levels)}"
            )

    def cycles(self, terms: Terms) -> float:
        """Return f of the cycles of loads and of stores of each level; 0 for a missing level."""
        return float(self.cycles_each(terms))

    def cycles_each(self, terms: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]]) -> Any:
        """Return f for arrays of terms, which are broadcast against each other."""
        combine = np.add if self.operator == "+" else np.maximum
        return functools.reduce(combine, (_time(part, terms) for part in self.parts))

    def longest(self, terms: Terms) -> list[tuple[str, float]]:
        """Return the terms that make up f, with their cycles: the longest part of each maximum."""
        parts = self.parts
        if self.operator == "max":
            parts = (max(parts, key=lambda part: float(_time(part, terms))),)
        found: list[tuple[str, float]] = []
        for part in parts:
            if isinstance(part, str):
                found.append((part, float(_time(part, terms))))
            else:
                found += part.longest(terms)
        return found


def _both(term: str) -> tuple[str, ...]:
    return (term,) if " " in term else tuple(f"{term} {way}" for way in _WAYS)


def _time(part: str | Overlap, terms: Mapping[str, tuple[Any, Any]]) -> Any:
    if isinstance(part, Overlap):
        return part.cycles_each(terms)
    level, _, way = part.partition(" ")
    both = terms.get(level, (0.0, 0.0))
    return both[_WAYS.index(way)] if way else both[0] + both[1]


def _parsed_sum(tokens: list[str], depth: int = 0) -> Overlap | None:
    """Take a sum from the end of the tokens; None if there is none."""
    parts: list[str | Overlap] = []
    while not parts or _taken("+", tokens):
        if _taken("max(", tokens):
            part: str | Overlap | None = _parsed_maximum(tokens, depth + 1)
        else:
            part = tokens.pop() if tokens and re.fullmatch(_TERM, tokens[-1]) else None
        if part is None:
            return None
        parts.append(part)
    return Overlap("+", tuple(parts))


def _parsed_maximum(tokens: list[str], depth: int) -> Overlap | None:
    """Take the parts of a maximum and its closing parenthesis; None if they are not there."""
    parts: list[Overlap] = []
    while not parts or _taken(",", tokens):
        part = _parsed_sum(tokens, depth) if depth <= _DEEPEST else None
        if part is None:
            return None
        parts.append(part)
    return Overlap("max", tuple(parts)) if _taken(")", tokens) else None


def _taken(wanted: str, tokens: list[str]) -> bool:
    """Take the next token if it is the wanted one."""
    found = tokens[-1:] == [wanted]
    if found:
        tokens.pop()
    return found


def paper_hypotheses(levels: Sequence[str]) -> dict[str, Overlap]:
    """Return the overlap scenarios (a) to (d) of Alappat et al. 2021 on some levels.

    Parameters
    ----------
    levels : sequence of str
        From L1 to memory.

    Returns
    -------
    dict of str to Overlap
        ``a``: nothing overlaps. ``b``: everything overlaps. ``d``: loads from L1 do not overlap
        with stores to L1 and transfers between L1 and L2, which overlap with each other; transfers
        behind L2 overlap with everything. ``c``: as ``d``, except that stores to memory overlap
        with nothing.

    Notes
    -----
    The paper prints only (d) as a formula, for the levels L1, L2 and memory: ``f = max(T_L1LD +
    max(T_L1ST, T_L2), T_Mem)``. In its words, L1 overlaps partially (stores overlap with the
    transfers between L1 and L2, loads do not) and L2 fully (reads and writes of memory overlap with
    the transfers between L2 and L1). Its text says of (c) that it holds for pages of 64 KiB, with
    which a triad from memory takes longer, and that earlier work used it; it says nothing of (a)
    and (b). These three are derived. In (c), L2 overlaps partially in the sense of L1 in (d): only
    one of loads and stores overlaps; so a triad takes longer than by (d). (a) and (b) are the
    extremes. With an L3, which the paper does not have, its transfers overlap like those of memory.
    """
    first, *behind = levels
    load, store = _both(first)
    last_load, last_store = _both(behind[-1])

    def partly(behind: Sequence[str]) -> Overlap:
        inner = Overlap("+", (load, Overlap("max", (store, behind[0]))))
        return Overlap("max", (inner, *behind[1:]))

    return {
        "a": Overlap("+", (load, store, *behind)),
        "b": Overlap("max", (load, store, *behind)),
        "c": Overlap("+", (partly([*behind[:-1], last_load]), last_store)),
        "d": partly(behind),
    }


def hypotheses(levels: Sequence[str]) -> dict[str, Overlap]:
    """Return the hypotheses on some levels that a fit chooses from, by name.

    Parameters
    ----------
    levels : sequence of str
        From L1 to memory.

    Returns
    -------
    dict of str to Overlap
        ``none`` (nothing overlaps), ``full`` (everything does), ``c`` and ``d``, which are the four
        of `paper_hypotheses`. All other sums of maxima of levels, with separate loads and stores of
        L1, follow, named by their texts.
    """
    none, full, c, d = paper_hypotheses(levels).values()
    named = {"none": none, "full": full, "c": c, "d": d}
    for groups in _partitions((*_both(levels[0]), *levels[1:])):
        overlap = Overlap("+", tuple(Overlap("max", group) for group in groups))
        if overlap not in named.values():
            named[str(overlap)] = overlap
    return named


def _partitions(units: Sequence[str]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Yield all partitions into groups."""
    if not units:
        yield ()
        return
    first, rest = units[0], units[1:]
    for groups in _partitions(rest):
        yield ((first,), *groups)
        for position, group in enumerate(groups):
            yield ((first, *group), *groups[:position], *groups[position + 1 :])


def overlap_of(text: str, levels: Sequence[str]) -> Overlap:
    """Return the hypothesis of a name or a text.

    Parameters
    ----------
    text : str
        A name of `paper_hypotheses` or `hypotheses`, such as ``d``, or a text for `Overlap.parse`.
    levels : sequence of str
        From L1 to memory.

    Raises
    ------
    InputError
        The text is no hypothesis.
    """
    named = paper_hypotheses(levels) | hypotheses(levels)
    return named[text] if text in named else Overlap.parse(text)
