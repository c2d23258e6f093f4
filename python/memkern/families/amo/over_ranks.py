"""Atomics on words that are distributed over ranks: the rank whose words an iteration accesses.

Each rank has an equal part of VAL and of IDX, and the iterations whose indices are in its part of
IDX. The targets are

- ``random``: indices refer to words of all ranks;
- ``ring``: each rank carries out the next rank's iterations, whose words are all on that rank, as
  in CircusTent;
- ``share``: a given share of the indices refers to words of other ranks, the rest to words of the
  own rank;
- ``one``: all accessed words of VAL are on the first rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from memkern.backends import Backend
from memkern.errors import InputError
from memkern.shared.over_ranks import PART_B
from memkern.spec.kernel import IndexArray

TARGETS: tuple[str, ...] = ("random", "ring", "share", "one")

FEWER: dict[str, tuple[str, ...]] = {
    "ptrchase": ("random", "ring", "one"),
    **dict.fromkeys(("stride1", "striden", "central"), ("ring", "one")),
}
"""Targets of the patterns that do not have all of them; the first is a pattern's default."""


@dataclass(frozen=True)
class Layout:
    """Distribution of words and iterations.

    Parameters
    ----------
    ranks : int
    workers : int
        Threads of each rank.
    iters : int
        Iterations of each worker.
    words : int
        Words of VAL of each rank.
    step : int
        Distance between consecutive accessed words, in words.
    targets : str
        One of `TARGETS`.
    share : float
        For the targets ``share``, the share of indices of words on other ranks.
    """

    ranks: int
    workers: int
    iters: int
    words: int
    step: int
    targets: str
    share: float = 0.0

    @property
    def iterations(self) -> int:
        """Iterations of each rank."""
        return self.workers * self.iters

    @property
    def shift(self) -> int:
        """Distance, in ranks, to the rank whose iterations a rank carries out."""
        return int(self.targets == "ring")


def refuse(backend: Backend, primitive: str, dtype: str) -> None:
    """Raise InputError for a primitive that a library does not have."""
    known = backend.atomics.get(np.dtype(dtype).kind, ())
    if primitive not in known:
        raise InputError(
            f"{backend.library} has no atomic {primitive} of {dtype}: it has "
            f"{', '.join(known) or 'none'}"
        )


def one_by_one(backend: Backend, pattern: str, primitive: str, returns: str) -> str:
    """Return why updates can't be completed together; empty if they can."""
    if pattern == "ptrchase":
        return "each step of a chase depends on the previous one"
    if primitive.startswith("cas"):
        return f"each {primitive} needs the old value"
    # The updates of these patterns follow operations that return a value.
    if backend.fetches_singly and (returns == "used" or pattern in ("scatter", "gather", "sg")):
        return f"{backend.library} completes an operation that returns a value before the next one"
    return ""


def check_parts(layout: Layout, word_B: int) -> None:
    """Raise InputError unless the parts of ranks consist of whole words of 8 bytes."""
    for what, number in (("iterations", layout.iterations), ("words", layout.words)):
        if number * word_B % PART_B:
            raise InputError(
                f"the part of a rank must consist of whole words of {PART_B} bytes, not of "
                f"{number} {what} of {word_B} bytes: use an even number"
            )


def targeted_ranks(layout: Layout, rng: np.random.Generator) -> IndexArray:
    """Return the rank that owns the target of each index of all ranks, and of one more index."""
    count = layout.ranks * layout.iterations + 1
    own = np.minimum(np.arange(count) // layout.iterations, layout.ranks - 1)
    if layout.targets == "random":
        return rng.integers(0, layout.ranks, count)
    if layout.targets == "one":
        return np.zeros(count, dtype=np.int64)
    if layout.targets == "ring" or layout.ranks == 1:
        return own
    remote = np.zeros((layout.ranks * layout.workers, layout.iters), dtype=bool)
    remote[:, : round(layout.share * layout.iters)] = True
    shuffled = np.append(rng.permuted(remote, axis=1).ravel(), False)
    return (own + shuffled * rng.integers(1, layout.ranks, count)) % layout.ranks


def remote_shares(
    pattern: str,
    layout: Layout,
    idx: IndexArray,
    words: Callable[[IndexArray], IndexArray],
    nodes: Sequence[int],
) -> tuple[float, float]:
    """Return the shares of atomic operations on other ranks, and on other ranks of the same node.

    Parameters
    ----------
    pattern : str
    layout : Layout
    idx : ndarray of int64
        IDX of all ranks, empty if the pattern has none.
    words : callable
        Maps iterations to the words that they access without an index.
    nodes : sequence of int
        The first rank on the node of each rank.

    Returns
    -------
    remote, node : float
        Of all operations; the first share includes the second.
    """
    node = np.asarray(nodes)
    remote = same_node = every = 0
    for rank, owner in _accesses(pattern, layout, idx, words):
        other = owner != rank
        remote += int(np.count_nonzero(other))
        same_node += int(np.count_nonzero(other & (node[owner] == node[rank])))
        every += len(rank)
    return remote / every, same_node / every


def _accesses(
    pattern: str, layout: Layout, idx: IndexArray, words: Callable[[IndexArray], IndexArray]
) -> Iterator[tuple[IndexArray, IndexArray]]:
    """Yield the ranks that carry out operations, and the ranks that own the words."""
    if pattern == "ptrchase":
        yield from _steps_of_chase(layout, idx)
        return
    i = np.arange(layout.ranks * layout.iterations)
    rank = (i // layout.iterations - layout.shift) % layout.ranks
    # The owners of the words that each operation of the iterations accesses.
    index = [np.minimum(j // layout.iterations, layout.ranks - 1) for j in (i, i + 1)]
    found = [idx[j] // layout.words for j in (i, i + 1)] if len(idx) else []
    own = words(i) // layout.words
    owners = {
        "rand": found[:1],
        "scatter": [index[1], own, *found[1:]],
        "gather": [index[1], own, *found[1:]],
        "sg": [*index, *found],
    }.get(pattern, [own])
    for owner in owners:
        yield rank, owner


def _steps_of_chase(layout: Layout, idx: IndexArray) -> Iterator[tuple[IndexArray, IndexArray]]:
    """Yield, for the first steps, the ranks that carry them out and the owners of their words."""
    worker = np.arange(layout.ranks * layout.workers)
    rank = (worker // layout.workers - layout.shift) % layout.ranks
    at = worker * layout.iters
    for _ in range(min(layout.iters, 2**16)):
        yield rank, at // layout.iterations
        at = idx[at]
