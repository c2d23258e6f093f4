"""Sequences of cases that are declared by the values of their options and built on access.

A list of a million cases would take time and memory before the first measurement.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import math
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, overload

from memkern.errors import InputError
from memkern.spec.case import Case

_LEAST_OF_PART = 8  # cases that `sample` takes of each joined part
_ROUNDS = 4  # of the Feistel network


class Cases(Sequence[Case]):
    """Sequence whose cases are built on each access.

    Parameters
    ----------
    numbers : range
    build : callable
        Number to case.
    parts : sequence of sequence of Case
        The sequences that were joined; by default the sequence itself.
    """

    def __init__(
        self,
        numbers: range,
        build: Callable[[int], Case],
        parts: Sequence[Sequence[Case]] = (),
    ) -> None:
        self._numbers = numbers
        self._build = build
        self.parts = parts or (self,)

    def __len__(self) -> int:
        """Return the number of cases."""
        return len(self._numbers)

    @overload
    def __getitem__(self, position: int) -> Case: ...

    @overload
    def __getitem__(self, position: slice) -> Cases: ...

    def __getitem__(self, position: int | slice) -> Case | Cases:
        """Return a case, or for a slice a sequence of cases."""
        if isinstance(position, slice):
            return Cases(self._numbers[position], self._build)
        return self._build(self._numbers[position])


def product(build: Callable[..., Case], axes: Mapping[str, Sequence[Any]]) -> Cases:
    """Declare the cases of all combinations of options.

    Parameters
    ----------
    build : callable
        Options by keyword to case.
    axes : mapping
        The values of each option; the last one varies fastest. Without options there is one case.

    Raises
    ------
    InputError
        There are more than `sys.maxsize` combinations.
    """
    size = math.prod(map(len, axes.values()))
    if size > sys.maxsize:
        raise InputError(f"a sweep has at most {sys.maxsize} cases, not {size}")

    def at(number: int) -> Case:
        options = {}
        for name, values in reversed(list(axes.items())):
            number, position = divmod(number, len(values))
            options[name] = values[position]
        return build(**options)

    return Cases(range(size), at)


def joined(parts: Iterable[Sequence[Case]]) -> Cases:
    """Declare the cases of all parts, one part after the other."""
    every = list(parts)
    ends = list(itertools.accumulate(map(len, every)))

    def at(number: int) -> Case:
        k = bisect.bisect_right(ends, number)
        return every[k][number - (ends[k - 1] if k else 0)]

    return Cases(range(ends[-1] if ends else 0), at, every)


class Part(NamedTuple):
    """One of several parts of a sweep, with numbers from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        """Return the name of the part's files."""
        return f"{self.number}-of-{self.of}"

    def select(self, cases: Sequence[Case]) -> Cases:
        """Declare the cases of this part; every case is in one of the parts.

        From each group of consecutive cases, as many as there are parts, each part gets a random
        one: neighbours mostly differ in one option and take about the same time, and no part has
        all cases with one value of an option. The choice depends only on the number of cases.
        """

        def position(block: int) -> int:
            return block * self.of + permuted(self.number - 1, self.of, f"part/{block}")

        blocks = -(-len(cases) // self.of)
        last = bool(blocks) and position(blocks - 1) >= len(cases)
        return Cases(range(blocks - last), lambda block: cases[position(block)])


def sample(cases: Sequence[Case], most: int) -> list[Case]:
    """Return all cases or, if more than `most`, a random sample with some of every part."""
    if len(cases) <= most:
        return list(cases)
    parts = cases.parts if isinstance(cases, Cases) else ()
    if len(parts) > 1:
        each = max(most // len(parts), _LEAST_OF_PART)
        return [case for part in parts for case in sample(part, each)]
    return [
        cases[position] for position in sorted(random.Random(0).sample(range(len(cases)), most))
    ]


def permuted(position: int, size: int, seed: str) -> int:
    """Return the image of a place under a random permutation of ``range(size)``.

    A Feistel network permutes the range up to a power of four, and is applied again while its
    result is not below `size` (cycle walking: Black and Rogaway, Ciphers with arbitrary finite
    domains, 2002). No list of the places is needed.
    """
    bits = max(1, (size - 1).bit_length() + 1 >> 1)
    mask = (1 << bits) - 1
    while True:
        left, right = position >> bits, position & mask
        for number in range(_ROUNDS):
            text = f"{seed}/{number}/{right}".encode()
            mixed = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
            left, right = right, left ^ (mixed & mask)
        position = left << bits | right
        if position < size:
            return position
