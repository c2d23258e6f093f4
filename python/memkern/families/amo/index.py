"""The index array IDX of a case, drawn by one of `RULES`."""

from __future__ import annotations

import functools

import numpy as np

from memkern.errors import InputError
from memkern.families.amo.over_ranks import Layout, targeted_ranks
from memkern.inputs import indices
from memkern.limits import check_memory
from memkern.spec.kernel import IndexArray

RULES = ("random", "circustent")


def _random_places(
    positions: int, n: int, workers: int, private: bool, rng: np.random.Generator
) -> IndexArray:
    """Return n random places; if `private`, each worker's from its own range."""
    if not private:
        return rng.integers(0, positions, n)
    if positions < workers:
        raise InputError(f"{workers} workers can't have private words: there are only {positions}")
    worker = np.minimum(np.arange(n) // (n // workers), workers - 1)
    each = positions // workers
    return worker * each + rng.integers(0, each, n)


def cycle(n: int, seed: int, first: int = 0) -> IndexArray:
    """Return each element's successor in a random cycle through n elements (Sattolo's)."""
    order = indices.chase(n, seed)
    successor = np.empty(n, dtype=np.int64)
    successor[order] = np.roll(order, -1)
    return successor + first


@functools.lru_cache(maxsize=4)
def drawn(pattern: str, rule: str, layout: Layout, private: bool, seed: int) -> IndexArray:
    """Return IDX of one process: one element more than there are iterations."""
    count, iters, workers = layout.iterations, layout.iters, layout.workers
    check_memory(32 * count, f"an index array of {count} iterations")
    rng = np.random.default_rng(seed)
    if pattern == "ptrchase":
        if rule == "circustent":
            n = iters * (workers + 1)
            return rng.integers(0, n, max(n, count + 1))
        shares = range(workers if private else 1)
        cycles = [cycle(count // len(shares), seed + k, k * iters) for k in shares]
        return np.concatenate([*cycles, [0]])
    positions = (layout.words - 1) // layout.step + 1
    if rule == "circustent":
        return rng.integers(0, max(1, positions - 1), count + 1)
    return layout.step * _random_places(positions, count + 1, workers, private, rng)


@functools.lru_cache(maxsize=4)
def drawn_over_ranks(pattern: str, layout: Layout, seed: int) -> IndexArray:
    """Return IDX of all ranks for a layout's targets: one element more than iterations."""
    count = layout.ranks * layout.iterations
    check_memory(64 * count, f"an index array of {count} iterations")
    rng = np.random.default_rng(seed)
    if pattern == "ptrchase":
        return np.concatenate([_cycle_over_ranks(layout, seed), [0]])
    target = targeted_ranks(layout, rng)
    return target * layout.words + layout.step * rng.integers(
        0, layout.words // layout.step, count + 1
    )


def _cycle_over_ranks(layout: Layout, seed: int) -> IndexArray:
    n = layout.iterations
    if layout.targets == "random":
        return cycle(layout.ranks * n, seed)
    if layout.targets == "ring":
        return np.concatenate([cycle(n, seed + k, k * n) for k in range(layout.ranks)])
    # Only the first step of a worker of another rank is outside the first rank's part.
    return np.concatenate([cycle(n, seed), np.tile(np.arange(n), layout.ranks - 1)])
