"""References and checks of gathers and scatters: whole results, or samples of large ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memkern.families.spatter.sides import (
    WHOLE,
    SparseSide,
    access_blocks,
    blocks_of,
    dense_length,
    gather_side,
    lines_of,
    scatter_side,
)
from memkern.shared.checking import Values, distance
from memkern.spec.case import Case
from memkern.spec.kernel import (
    BLOCK,
    Check,
    IndexArray,
    Native,
    Validation,
    fill_values,
)

_SAMPLES = 4_000
_WINDOWS = 24
# Maximum number of accesses that are all searched for accesses to the checked places.
_ACCESSES = 2**28
_LOWEST = 2**20
_UNWRITTEN = -1.0  # never a fill value


def reference(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
    """Apply the instances in order by NumPy's indexing (the last of equal indices wins)."""
    after = {name: np.array(values, copy=True) for name, values in arrays.items()}
    gather, scatter = gather_side(case), scatter_side(case)
    n = np.arange(case.integers["count"])
    row = n % case.integers.get("wrap", 1)
    # A view of `after`; gs has no dense buffer.
    rows = after.get("dense", np.empty(0)).reshape(-1, dense_length(case))
    moved = rows[row] if gather is None else after[gather.array][gather.positions(n)]
    if scatter is None:
        rows[row] = moved
    else:
        after[scatter.array][scatter.positions(n).ravel()] = moved.ravel()
    return after


def _relative(got: Values, wanted: Values) -> Values:
    """Return the relative error of each value; infinite for NaN."""
    return distance(got, wanted) / np.maximum(np.abs(wanted), 1.0)


def _relative_error(got: Values, wanted: Values) -> float:
    return float(np.max(_relative(got, wanted), initial=0.0))


def _last_instances(case: Case, workers: int) -> list[IndexArray]:
    """Return the last instances that write each worker's dense rows (static schedules)."""
    count, wrap, chunk = case.integers["count"], case.integers["wrap"], case.knobs.chunk
    if blocks_of(case):
        return [np.arange(max(0, count - wrap), count)]
    decisive = []
    for worker in range(workers):
        if chunk == 0:
            share, rest = divmod(count, workers)
            begin = share * worker + min(worker, rest)
            end = begin + share + (worker < rest)
            decisive.append(np.arange(max(begin, end - wrap), end))
            continue
        # The last chunks of this worker that together cover every row of the buffer.
        n = np.zeros(0, dtype=np.int64)
        for c in np.arange(worker, -(-count // chunk), workers)[::-1]:
            n = np.concatenate([np.arange(c * chunk, min(count, (c + 1) * chunk)), n])
            if len(np.unique(n % wrap)) == min(wrap, count):
                break
        decisive.append(n)
    return decisive


def _check_dense(case: Case, native: Native, side: SparseSide, workers: int) -> float:
    """Compare every worker's dense rows after a whole invocation."""
    wrap, length = case.integers["wrap"], dense_length(case)
    arrays = native.arrays()

    source, elements = arrays[side.array], np.arange(min(length, BLOCK))
    if case.knobs.schedule == "dynamic" and not blocks_of(case):
        dense = native.copy_out("dense").reshape(workers, wrap, length)
        rows = [fill_values(r * length + np.arange(length), arrays["dense"]) for r in range(wrap)]
        return max(
            _nearest_instance(case, side, dense[w, row], fresh, row, source)
            for w in range(workers)
            for row, fresh in enumerate(rows)
        )
    error = 0.0
    for worker, n in enumerate(_last_instances(case, workers)):
        untouched = np.ones(wrap, dtype=np.bool_)
        untouched[n % wrap] = False
        _, last = np.unique((n % wrap)[::-1], return_index=True)
        n = n[::-1][last]  # the last instance of each row
        for some, begin, positions in access_blocks(side, n):
            at = (
                (worker * wrap + some % wrap)[:, None] * length
                + begin
                + elements[: positions.shape[1]]
            )
            got = native.peek("dense", at.reshape(-1)).reshape(positions.shape)
            error = max(error, _relative_error(got, fill_values(positions, source)))
        for row in np.flatnonzero(untouched).tolist():
            for begin in range(0, length, BLOCK):
                at = row * length + begin + elements[: length - begin]
                got = native.peek("dense", worker * wrap * length + at)
                error = max(error, _relative_error(got, fill_values(at, arrays["dense"])))
    return error


def _nearest_instance(
    case: Case,
    side: SparseSide,
    got: Values,
    fresh: Values,
    row: int,
    source: Mapping[str, Any],
) -> float:
    """Return the smallest error over all instances that may have filled this row."""
    wrap, count, length = case.integers["wrap"], case.integers["count"], len(got)
    best = _relative_error(got, fresh)
    block = max(1, WHOLE // length)
    for first in range(row, count, wrap * block):
        n = np.arange(first, min(count, first + wrap * block), wrap)
        wanted = fill_values(side.positions(n), source)
        best = min(best, float(np.max(_relative(got[None, :], wanted), axis=1).min()))
        if best == 0.0:
            break
    return best


def check_gather(case: Case, native: Native) -> Validation:
    """Check the dense rows of a gather, and samples of the instances that they do not hold."""
    side = SparseSide(case, "gather")
    workers = native.arrays()["dense"]["rows"]
    native.fill(outputs=True)
    yield
    error = _check_dense(case, native, side, workers)
    whole = _rows_hold_all(case, workers)
    if whole or blocks_of(case):  # which no shorter run makes observable
        return Check(error == 0.0, error, "whole" if whole else "sampled")
    # Rows hold only the last instances; others are checked by running single instances.
    rng = np.random.default_rng(0)
    wrap, length = case.integers["wrap"], dense_length(case)
    begins = rng.integers(0, side.count, min(_WINDOWS, max(1, WHOLE // length)))
    wanted = fill_values(side.positions(begins), native.arrays()[side.array])
    # Worker 0 runs a single instance, or any worker with a dynamic schedule.
    candidates = np.arange(workers if case.knobs.schedule == "dynamic" else 1)
    rows = (candidates[:, None] * wrap * length + np.arange(length)).ravel()
    for begin, values in zip(begins.tolist(), wanted, strict=True):
        native.run_range(begin, begin + 1)
        got = native.peek("dense", rows + begin % wrap * length).reshape(-1, length)
        if not (got == values).all():
            error = max(error, float(np.max(_relative(got, values), axis=1).min()))
    return Check(error == 0.0, error, "sampled")


def _rows_hold_all(case: Case, workers: int) -> bool:
    """Return whether the dense rows still hold every instance, without overwriting."""
    count, wrap = case.integers["count"], case.integers["wrap"]
    if blocks_of(case):
        return count <= wrap
    if case.knobs.schedule == "dynamic" or count > wrap * workers:
        return False
    if case.knobs.chunk == 0:
        return True
    return count == sum(len(np.unique(n % wrap)) for n in _last_instances(case, workers))


def check_scatter(case: Case, native: Native) -> Validation:
    """Check the places that a scatter writes: all of them, or samples if they are many."""
    side = SparseSide(case, "scatter")
    workers = native.obtained()["threads"]
    if blocks_of(case) and (case.knobs.chunk or case.knobs.schedule == "dynamic"):
        workers = max(workers, 2)  # instances are not in order
    if side.count * len(side.index) <= WHOLE and side.size <= 8 * WHOLE:
        return (yield from _check_scatter_whole(case, native, side, workers))
    return (yield from _check_scatter_sampled(case, native, side, workers))


def _written_values(case: Case, native: Native, n: IndexArray, element: IndexArray) -> Values:
    """Return the values that instances `n` write with the given elements."""
    arrays = native.arrays()
    gather = gather_side(case)
    if gather is not None:
        return fill_values(gather.base(n) + gather.index[element], arrays[gather.array])
    wrap, length = case.integers["wrap"], dense_length(case)
    return fill_values(n % wrap * length + element, arrays["dense"])


def _check_scatter_whole(case: Case, native: Native, side: SparseSide, workers: int) -> Validation:
    native.fill(outputs=True)
    yield
    got = native.copy_out(side.array).astype(np.float64)
    fresh = fill_values(np.arange(side.size), native.arrays()[side.array])
    n = np.arange(side.count)
    length = len(side.index)
    position = side.positions(n).ravel()
    value = _written_values(case, native, np.repeat(n, length), np.tile(np.arange(length), len(n)))
    wanted = fresh.copy()
    wanted[position] = value
    error = _relative_error(got, wanted)
    if workers == 1 or error == 0.0:
        return Check(error == 0.0, error, "whole")
    # Workers race where scatters overlap: any value written to a place is correct.
    scale = 2**24
    pairs = np.unique(position * scale + value.astype(np.int64))
    whole = np.where((got >= 0) & (got < scale) & (got == np.floor(got)), got, scale - 1)
    found = np.isin(np.arange(side.size) * scale + whole.astype(np.int64), pairs)
    good = np.where(np.bincount(position, minlength=side.size) > 0, found, got == fresh)
    return Check(bool(good.all()), _relative_error(got[~good], wanted[~good]), "membership")


def _check_scatter_sampled(
    case: Case, native: Native, side: SparseSide, workers: int
) -> Validation:
    rng = np.random.default_rng(0)
    length = len(side.index)
    # All accesses are searched if there are few, else only those to sampled places are computed.
    accesses = side.count * length
    # Maximum number of accesses to one place.
    few = accesses <= _ACCESSES
    of_place = accesses // int(lines_of(case).stored) if few else length * side.cycle
    samples = max(64, min(_SAMPLES, WHOLE // max(of_place, 1)))
    # Half are places that instances write, including partition boundaries; half are random.
    boundaries = np.array([side.count * w // workers for w in range(workers)])
    near = np.clip(boundaries[:, None] + np.arange(-2, 3)[None, :], 0, side.count - 1).ravel()
    n = np.concatenate([near, rng.integers(0, side.count, samples // 2)])
    position = np.unique(
        np.concatenate(
            [
                side.base(n) + side.index[rng.integers(0, length, len(n))],
                rng.integers(0, side.size, samples // 2),
            ]
        )
    )
    native.fill(outputs=False)
    native.poke(side.array, position, np.full(len(position), _UNWRITTEN))
    yield
    got = native.peek(side.array, position)

    which, n, element = _writers(case, side, position, workers)
    value = _written_values(case, native, n, element)
    wrong = np.abs(got - _UNWRITTEN)  # the error at places where no instance writes
    touched = np.unique(which)
    several = False
    if workers == 1:
        order = np.lexsort((element, n, which))
        last = order[np.searchsorted(which[order], touched, side="right") - 1]
        wrong[touched] = _relative(got[touched], value[last])
    else:
        wrong[touched] = np.inf
        np.minimum.at(wrong, which, _relative(got[which], value))
        low = np.full(len(position), np.inf)
        high = np.full(len(position), -np.inf)
        np.minimum.at(low, which, value)
        np.maximum.at(high, which, value)
        several = bool(np.any(low[touched] != high[touched]))
    error = float(wrong.max())
    return Check(error == 0.0, error, "membership" if several else "sampled")


def _writers(
    case: Case, side: SparseSide, position: IndexArray, workers: int
) -> tuple[IndexArray, IndexArray, IndexArray]:
    """Return every (index of place, instance, element) that may be the last to write a place."""
    if side.count * len(side.index) <= _ACCESSES:
        return _accesses(side, position, np.arange(side.count))
    if side.period != 0:
        # Solve base(n) + index[element] = place for n in each phase of the cycle of deltas.
        parts = []
        from_base = position[:, None, None] - side.origin - side.prefix[None, :, None]
        block = max(1, WHOLE // from_base.size)
        for begin in range(0, len(side.index), block):
            rest = from_base - side.index[None, None, begin : begin + block]
            which, phase, element = np.nonzero(rest % side.period == 0)
            rounds = rest[which, phase, element] // side.period
            n = rounds * side.cycle + phase
            good = (rounds >= 0) & (n < side.count)
            parts.append((which[good], n[good], begin + element[good]))
        return _joined(parts)
    # The bases repeat with every cycle, so that the final value of a place is one worker's last
    # write: at the end of its range with contiguous ranges, otherwise near the last instance.
    contiguous = case.knobs.schedule == "static" and case.knobs.chunk == 0
    ranges = workers if contiguous and not blocks_of(case) else 1
    many = max(side.cycle, WHOLE // (len(side.index) * ranges))
    ends = [side.count * (w + 1) // ranges + 1 for w in range(ranges)]
    n = np.unique(np.concatenate([np.arange(max(0, e - many), e) for e in ends]))
    return _accesses(side, position, n[n < side.count])


def _accesses(
    side: SparseSide, position: IndexArray, n: IndexArray
) -> tuple[IndexArray, IndexArray, IndexArray]:
    """Return index of place, instance and element of all accesses of instances `n` to places."""
    # The lowest bits of the position exclude most accesses.
    lowest = np.zeros(_LOWEST, dtype=np.bool_)
    lowest[position % _LOWEST] = True
    found = []
    for some, begin, positions in access_blocks(side, n):
        reached = positions.reshape(-1)
        hits = np.flatnonzero(lowest[reached & (_LOWEST - 1)])
        which = np.minimum(np.searchsorted(position, reached[hits]), len(position) - 1)
        equal = position[which] == reached[hits]
        row, element = np.divmod(hits[equal], positions.shape[1])
        found.append((which[equal], some[row], begin + element))
    return _joined(found)


def _joined(
    parts: Sequence[tuple[IndexArray, IndexArray, IndexArray]],
) -> tuple[IndexArray, IndexArray, IndexArray]:
    which, n, element = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return which, n, element
