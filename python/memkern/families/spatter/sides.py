"""The sparse sides of gathers and scatters: accesses, and the lines and bytes that they move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from memkern.shared.cache_lines import accessed, partly_accessed
from memkern.spec.case import Case, once_for_inputs
from memkern.spec.kernel import (
    BLOCK,
    IndexArray,
    Traffic,
    Transfer,
    crossed,
)

# Up to this number of moved elements, all are checked.
WHOLE = 2**18
_DIVIDED = 16  # indices of a block


class SparseSide:
    """A sparse side of a case: its indices, bases and array."""

    def __init__(self, case: Case, side: str) -> None:
        self.count = case.integers["count"]
        index = case.indices[f"pattern_{side}"]
        outer = case.indices.get("pattern")
        self.index = index if outer is None else outer[index]
        self.deltas = case.indices[f"delta_{side}"]
        self.cycle = len(self.deltas)
        self.period = int(self.deltas.sum())
        self.prefix = np.concatenate([[0], np.cumsum(self.deltas)[:-1]]).astype(np.int64)
        phases = np.arange(min(self.cycle, self.count))
        rounds = (self.count - 1 - phases) // self.cycle
        ends = np.concatenate([self.prefix[phases], self.prefix[phases] + rounds * self.period])
        self.origin = -int(ends.min())
        reach = int((index if outer is None else outer).max())
        self.size = int(ends.max()) + self.origin + reach + 1
        self.array = f"sparse_{side}" if case.spec.name == "spatter.gs" else "sparse"

    def base(self, n: IndexArray) -> IndexArray:
        """Return the bases of instances `n`."""
        return self.origin + n // self.cycle * self.period + self.prefix[n % self.cycle]

    def positions(self, n: IndexArray) -> IndexArray:
        """Return positions in the sparse array, shape (len(n), L)."""
        return self.base(n)[:, None] + self.index[None, :]


def gather_side(case: Case) -> SparseSide | None:
    """Return the side that a case reads, None if there is none."""
    return SparseSide(case, "gather") if "pattern_gather" in case.indices else None


def scatter_side(case: Case) -> SparseSide | None:
    """Return the side that a case writes, None if there is none."""
    return SparseSide(case, "scatter") if "pattern_scatter" in case.indices else None


def dense_length(case: Case) -> int:
    """Return the number of values that an instance moves."""
    key = "pattern_gather" if "pattern_gather" in case.indices else "pattern_scatter"
    return len(case.indices[key])


def blocks_of(case: Case) -> int:
    """Return the blocks of indices by which processors divide a pattern; 0 if it is not divided.

    Patterns with more blocks than instances are, so that no thread is idle: each worker has its
    range of the indices for all instances, and all share a dense buffer.
    """
    blocks = -(-dense_length(case) // _DIVIDED)
    return blocks if case.knobs.backend.on_processors and blocks > case.integers["count"] else 0


def access_blocks(side: SparseSide, n: IndexArray) -> Iterator[tuple[IndexArray, int, IndexArray]]:
    """Yield the accesses of instances `n` in blocks that fit in the caches.

    Each block consists of instances, the index of the first element, and the positions of their
    elements in the sparse array, shape (instances, elements).
    """
    length = len(side.index)
    each = max(1, BLOCK // length)
    for first in range(0, len(n), each):
        some = n[first : first + each]
        base = side.base(some)[:, None]
        for begin in range(0, length, BLOCK):
            yield some, begin, base + side.index[begin : begin + BLOCK]


def _lines(case: Case, side: SparseSide, partial: bool = False) -> float:
    """Return the number of distinct accessed lines, extrapolated from the first instances.

    Every window of instances adds the same number of lines, provided that a window is longer than
    the distance over which instances overlap. With `partial`, only lines with elements that are not
    accessed are counted.
    """
    per_line = case.line_B // case.value_B

    def count(instances: int) -> int:
        positions = (block for _, _, block in access_blocks(side, np.arange(instances)))
        accesses = instances * len(side.index)
        if not partial:
            return len(accessed(positions, side.size, per_line, accesses=accesses))
        return partly_accessed(accessed(positions, side.size, accesses=accesses), per_line)

    spread = int(side.index.max() - side.index.min()) + int(np.abs(side.deltas).sum())
    overlap = side.cycle * (spread // max(1, abs(side.period)) + 1)
    line = side.cycle * case.line_B  # instances after which offsets within lines repeat
    window = max(1, min(-(-(overlap + line) // line) * line, WHOLE // 2 // len(side.index)))
    if side.count <= 2 * window:
        return count(side.count) if side.count * len(side.index) <= WHOLE else count(window)
    first = count(window)
    return first + (count(2 * window) - first) / window * (side.count - window)


class _Lines(NamedTuple):
    """Numbers of distinct lines that an invocation loads, stores, and stores only in part."""

    loaded: float
    stored: float
    partial: float


@once_for_inputs
def lines_of(case: Case) -> _Lines:
    """Return the distinct lines of an invocation, counted once for cases with the same inputs."""
    gather, scatter = gather_side(case), scatter_side(case)
    return _Lines(
        0.0 if gather is None else _lines(case, gather),
        0.0 if scatter is None else _lines(case, scatter),
        0.0
        if scatter is None or not case.knobs.backend.is_accelerator
        else _lines(case, scatter, partial=True),
    )


def _filled_B(case: Case) -> float:
    """Return the bytes of the lines that are read before stores write them."""
    lines = lines_of(case)
    return case.line_B * case.filled(lines.stored, lines.partial)


def traffic_of(case: Case) -> Traffic:
    """Return the traffic of an iteration: of an instance, or a block of a divided pattern."""
    size = case.value_B
    length = dense_length(case) * case.integers["count"] / case.iterations
    gather, scatter = "pattern_gather" in case.indices, "pattern_scatter" in case.indices
    lists = len([key for key in case.indices if key.startswith("pattern")])
    return Traffic(
        read=float(length * size if gather else 0),
        write=float(length * size if scatter else 0),
        index=float(length * lists * np.dtype(case.index_dtype).itemsize),
        write_allocate=_filled_B(case) / case.iterations,
    )


def from_memory(case: Case) -> Transfer:
    """Count the lines of an invocation once, and lines that are read before stores once more.

    The lists of indices and the dense buffer of a divided pattern are as large as what they access.
    """
    lines = lines_of(case)
    read, written = case.line_B * lines.loaded + _filled_B(case), case.line_B * lines.stored
    if not blocks_of(case):
        return Transfer(read, written)
    rows = min(case.integers["wrap"], case.integers["count"])
    dense_B = case.value_B * dense_length(case) * rows * (not (lines.loaded and lines.stored))
    read += case.bytes_index_B / case.integers["count"] + dense_B
    return Transfer(read, written + dense_B * (not lines.stored))


def transfers(
    case: Case, levels: Sequence[str], caches: Sequence[Mapping[str, Any]]
) -> dict[str, Transfer]:
    """Count indices and values between registers and L1, and whole lines once beyond L1."""
    moved_B = dense_length(case) * case.integers["count"] / case.iterations * case.value_B
    return crossed(
        levels,
        Transfer(moved_B + case.traffic.index, moved_B),
        Transfer(*(each_B / case.iterations for each_B in from_memory(case))),
        bypass=not case.allocates,
    )
