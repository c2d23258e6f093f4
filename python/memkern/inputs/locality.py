"""Patterns by distance of reuse: temporal locality that strides and deltas can't express.

The distance of reuse of an access is the number of different elements between it and the previous
access to the same element: a cache with least recently used replacement that holds more elements
has it. Lavin et al., MEMSYS 2020 (section 7), name patterns by temporal locality and models of
complex patterns as future work.

Source: Mattson, Gecsei, Slutz and Traiger, "Evaluation Techniques for Storage Hierarchies", IBM
Systems Journal 9(2), 1970.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from memkern.checks import integer, several
from memkern.errors import InputError
from memkern.inputs.pattern import Pattern, as_indices, check_largest, check_length, owned

_Ints = npt.NDArray[np.int64]
FIRST = -1
"""The distance of the first access to an element."""


def reuse_distances(indices: npt.ArrayLike) -> _Ints:
    """Return the distance of reuse of each access.

    Parameters
    ----------
    indices : array_like of int, shape (length,)
        Elements in the order of the accesses.

    Returns
    -------
    numpy.ndarray of int64, shape (length,)
        Number of different elements since the previous access to the same one; `FIRST` for the
        first access to an element.

    Raises
    ------
    InputError
        If the indices are empty, negative, not integers or not one-dimensional.

    Examples
    --------
    >>> reuse_distances([5, 6, 7, 6, 5, 5]).tolist()
    [-1, -1, -1, 1, 2, 0]
    """
    elements = as_indices(indices)
    length = len(elements)
    order = np.argsort(elements, kind="stable")
    again = elements[order][1:] == elements[order][:-1]
    previous = np.full(length, FIRST)
    previous[order[1:][again]] = order[:-1][again]
    # Between are as many accesses as positions, less those that are repeated within.
    between = np.arange(length) - previous - 1
    return np.where(previous == FIRST, FIRST, between - _larger_before(previous))


def _larger_before(values: _Ints) -> _Ints:
    """Return the number of larger values before each value, by merging sorted blocks."""
    length = len(values)
    found = np.zeros(length, dtype=np.int64)
    place, width = np.arange(length), 1
    while width < length:
        block, half = place // (2 * width), place // width % 2
        keys = values + 1 + block * (length + 1)
        left = np.sort(keys[half == 0])
        right = np.flatnonzero(half == 1)
        end = np.searchsorted(left, (block[right] + 1) * (length + 1))
        found[right] += end - np.searchsorted(left, keys[right], side="right")
        width *= 2
    return found


def _touched(stack: list[int], distances: Iterable[int]) -> _Ints:
    """Return the elements that are accessed, given the distance of reuse of each access."""
    found = []
    for distance in distances:
        stack.insert(0, stack.pop(distance))
        found.append(stack[0])
    return np.array(found, dtype=np.int64)


def reuse(length: int, distances: int | Iterable[int], stride: int = 1, seed: int = 0) -> Pattern:
    """Make a pattern whose accesses have given distances of reuse.

    Parameters
    ----------
    length : int
        Number of indices.
    distances : int or iterable of int
        Numbers of different elements between two accesses to an element. Of several, each access
        has one at random, all with the same probability: repeat one to make it more probable.
    stride : int
        Distance between neighbouring elements in values, such as those of a line.
    seed : int
        Seed of NumPy's default generator, not negative.

    Returns
    -------
    Pattern
        With delta 0, named ``REUSE:length:distances:stride:seed``. Its elements are as many as the
        largest distance and one; with a single distance, it runs through them in turn. Applied
        again, the first access to an element has another distance than the given ones.

    Raises
    ------
    InputError
        If a number is not positive (distances and the seed may be 0), or an index would not fit.

    Examples
    --------
    >>> reuse(7, 2).indices.tolist()
    [2, 1, 0, 2, 1, 0, 2]
    >>> int(reuse_distances(reuse(4096, [7, 7, 63]).indices)[64:].max())
    63
    """
    length, stride = integer(length, "length", 1), integer(stride, "stride", 1)
    every = [integer(one, f"distance {k}") for k, one in enumerate(several(distances, "distance"))]
    if not every:
        raise InputError("there must be at least one distance")
    check_length(max(length, max(every) + 1), 3)
    check_largest(max(every) * stride)
    drawn = np.random.default_rng(integer(seed, "seed")).choice(np.array(every), length)
    name = f"REUSE:{length}:{','.join(map(str, every))}:{stride}:{seed}"
    return owned(_touched([*range(max(every) + 1)], drawn.tolist()) * np.int64(stride), name, 0)


def model(length: int, indices: npt.ArrayLike, seed: int = 0, name: str = "indices") -> Pattern:
    """Make a pattern that resembles given indices: by distances of reuse and by steps.

    Where a given access is the first to an element, it is one of the given steps between such
    elements, with the probability that it has after the step before it (a Markov chain of first
    order), within the range of the given elements unless the pattern is longer; one that was
    accessed before is passed over.
    All others have the distance of reuse of a given access at random. `model_error` tells how far
    the distances of reuse are from the given ones.

    Parameters
    ----------
    length : int
        Number of indices of the pattern.
    indices : array_like of int, shape (n,)
        What it resembles, at least two.
    seed : int
        Seed of NumPy's default generator, not negative.
    name : str
        Of the indices.

    Returns
    -------
    Pattern
        With delta 0, named ``MODEL:length:name:seed``, shifted to begin at 0.

    Raises
    ------
    InputError
        If there are fewer than two indices, they are no indices (see `Pattern`), or an index would
        not fit.
    """
    elements, length = as_indices(indices), integer(length, "length", 1)
    check_length(length, 3)
    if len(elements) < 2:
        raise InputError("a model needs at least two indices")
    given = reuse_distances(elements)
    rng = np.random.default_rng(integer(seed, "seed"))
    steps = np.diff(elements[given == FIRST], prepend=elements[0]).tolist()
    after: dict[int, list[int]] = {}
    for step, following in itertools.pairwise(steps):
        after.setdefault(step, []).append(following)
    stack: list[int] = []
    # Where an element that was accessed before leads to the next one that may be free.
    beyond: dict[int, int] = {}
    # The elements of a longer pattern are more than the given ones: it has no range.
    span = int(np.ptp(elements)) + 1 if length <= len(elements) else 0
    newest, step, found = 0, 0, []
    again = given[given > FIRST] if np.any(given > FIRST) else given
    distances = np.where(np.resize(given, length) == FIRST, FIRST, rng.choice(again, length))
    for distance in distances.tolist():
        if distance == FIRST:
            choices = after.get(step, steps)
            step = choices[rng.integers(len(choices))]
            place = newest + step
            begin = place = place % span if span else place
            while place in beyond:
                place = beyond[place]
            newest = place
            beyond[begin] = beyond[place] = place + 1
        else:
            place = stack.pop(min(distance, len(stack) - 1))
        stack.insert(0, place)
        found.append(place)
    least = min(found)
    check_largest(max(found) - least)
    return owned(np.array([one - least for one in found]), f"MODEL:{length}:{name}:{seed}", 0)


def model_error(indices: npt.ArrayLike, imitation: npt.ArrayLike) -> float:
    """Return how far the distances of reuse of a model are from those of what it resembles.

    Parameters
    ----------
    indices, imitation : array_like of int, shape (n,), (m,)

    Returns
    -------
    float
        The largest difference, over all sizes of a cache with least recently used replacement, of
        the shares of accesses that it would have: from 0 to 1 (Kolmogorov and Smirnov's distance).

    Raises
    ------
    InputError
        As `reuse_distances`.
    """
    both = [reuse_distances(one) for one in (indices, imitation)]
    sizes = np.unique(np.concatenate(both))
    hits = [
        # A first access is in no cache.
        np.searchsorted(np.sort(one), sizes, side="right") / len(one) - np.mean(one == FIRST)
        for one in both
    ]
    return float(np.max(np.abs(hits[0] - hits[1])))
