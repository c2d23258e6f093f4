"""Gather and scatter at moving bases, after Lavin et al., MEMSYS 2020.

Instance ``n`` of ``count`` moves ``L = len(pattern)`` values between a sparse array at
``base(n)`` and a dense buffer that is private to each worker. With one delta
``base(n) = delta * n``; a list of deltas is applied cyclically. If bases are negative, all are
shifted by the same offset. The dense buffer holds ``L * wrap`` values; instance ``n`` uses row
``n mod wrap``.

======================  ==========================================
gather                  ``dense[:] = sparse[base + i[:]]``
scatter                 ``sparse[base + j[:]] = dense[:]``
gs                      ``sparse_scatter[base' + j[:]] = sparse_gather[base + i[:]]``
multigather             ``dense[:] = sparse[base + i1[i2[:]]]``
multiscatter            ``sparse[base + j1[j2[:]]] = dense[:]``
======================  ==========================================

Where scatters overlap, one worker writes the instances in order; with several workers, each
location contains the last value written by any one of them.

On ``mpi`` and ``shmem`` the sparse array is distributed over all ranks; see
`memkern.families.spatter.over_ranks`.

It has more than 600 lines because references, checks and traffic of its five kernels all follow
one definition of sides, bases and dense rows.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memkern import small
from memkern.checks import integer, one_of
from memkern.errors import InputError
from memkern.families.spatter import over_ranks, suites
from memkern.inputs.patterns import Pattern, as_pattern
from memkern.machine.declarations import declared
from memkern.machine.remote import describe
from memkern.shared.cache_lines import accessed, partly_accessed
from memkern.spec.case import Case, Checks, KernelSpec, Limits, Model, once_for_inputs
from memkern.spec.kernel import (
    BLOCK,
    INDEX_DTYPES,
    Check,
    IndexArray,
    Native,
    Traffic,
    Transfer,
    Validation,
    crossed,
    fill_values,
)
from memkern.spec.options import GPUS, RANKS, Knobs
from memkern.spec.registry import Suite, find, register, register_suite, shows_options_of
from memkern.spec.registry import case as any_case

SOURCE = "Lavin et al., Evaluating Gather and Scatter Performance on CPUs and GPUs, MEMSYS 2020"
KERNELS = ("gather", "scatter", "gs", "multigather", "multiscatter")

# Up to this number of moved elements, all are checked.
_WHOLE = 2**18
_SAMPLES = 4_000
_WINDOWS = 24
# Maximum number of accesses that are all searched for accesses to the checked places.
_ACCESSES = 2**28
_LOWEST = 2**20
# Largest memory of a case of the report; the paper's largest cases need 2 GB.
_REPORT_MEMORY_B = 3 * 10**9
# Sums and products of numbers below this fit in 64 bits.
_FAR = 2**60
_UNWRITTEN = -1.0  # never a fill value

Values = npt.NDArray[Any]
PatternLike = Pattern | str | Sequence[int] | npt.NDArray[Any]


class _Side:
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
        reach = index if outer is None else outer
        self.size = int(ends.max()) + self.origin + int(reach.max()) + 1
        self.array = f"sparse_{side}" if case.spec.name == "spatter.gs" else "sparse"

    def base(self, n: IndexArray) -> IndexArray:
        """Return the bases of instances `n`."""
        result: IndexArray = self.origin + n // self.cycle * self.period
        return result + self.prefix[n % self.cycle]

    def places(self, n: IndexArray) -> IndexArray:
        """Return positions in the sparse array, shape (len(n), L)."""
        result: IndexArray = self.base(n)[:, None] + self.index[None, :]
        return result


def _gather_side(case: Case) -> _Side | None:
    return _Side(case, "gather") if "pattern_gather" in case.indices else None


def _scatter_side(case: Case) -> _Side | None:
    return _Side(case, "scatter") if "pattern_scatter" in case.indices else None


def _length(case: Case) -> int:
    key = "pattern_gather" if "pattern_gather" in case.indices else "pattern_scatter"
    return len(case.indices[key])


def _blocks(side: _Side, n: IndexArray) -> Iterator[tuple[IndexArray, int, IndexArray]]:
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


def _lines(case: Case, side: _Side, partial: bool = False) -> float:
    """Return the number of distinct accessed lines, extrapolated from the first instances.

    Every window of instances adds the same number of lines, provided that a window is longer than
    the distance over which instances overlap. With `partial`, only lines with elements that are not
    accessed are counted.
    """
    per_line = case.line_B // case.value_B

    def count(instances: int) -> int:
        places = (block for _, _, block in _blocks(side, np.arange(instances)))
        accesses = instances * len(side.index)
        if not partial:
            return len(accessed(places, side.size, per_line, accesses=accesses))
        return partly_accessed(accessed(places, side.size, accesses=accesses), per_line)

    spread = int(side.index.max() - side.index.min()) + int(np.abs(side.deltas).sum())
    overlap = side.cycle * (spread // max(1, abs(side.period)) + 1)
    line = side.cycle * case.line_B  # instances after which offsets within lines repeat
    window = -(-(overlap + line) // line) * line
    window = max(1, min(window, _WHOLE // 2 // len(side.index)))
    if side.count <= 2 * window:
        return count(side.count) if side.count * len(side.index) <= _WHOLE else count(window)
    first = count(window)
    return first + (count(2 * window) - first) / window * (side.count - window)


class _Lines(NamedTuple):
    """Numbers of distinct lines that an invocation loads, stores, and stores only in part."""

    loaded: float
    stored: float
    partial: float


@once_for_inputs
def _lines_of(case: Case) -> _Lines:
    gather, scatter = _gather_side(case), _scatter_side(case)
    return _Lines(
        0.0 if gather is None else _lines(case, gather),
        0.0 if scatter is None else _lines(case, scatter),
        0.0 if scatter is None or case.knobs.place != GPUS else _lines(case, scatter, partial=True),
    )


def _filled_B(case: Case) -> float:
    """Return the bytes of the lines that are read before stores write them."""
    lines = _lines_of(case)
    return case.line_B * case.filled(lines.stored, lines.partial)


def _traffic(case: Case) -> Traffic:
    size = case.value_B
    length = _length(case)
    gather, scatter = "pattern_gather" in case.indices, "pattern_scatter" in case.indices
    lists = len([key for key in case.indices if key.startswith("pattern")])
    return Traffic(
        read=float(length * size if gather else 0),
        write=float(length * size if scatter else 0),
        index=float(length * lists * np.dtype(case.index_dtype).itemsize),
        write_allocate=_filled_B(case) / case.integers["count"],
    )


def _from_memory(case: Case) -> Transfer:
    """Count the lines of an invocation once, and lines that are read before stores once more."""
    lines = _lines_of(case)
    return Transfer(case.line_B * lines.loaded + _filled_B(case), case.line_B * lines.stored)


def _transfers(
    case: Case, levels: Sequence[str], caches: Sequence[Mapping[str, Any]]
) -> dict[str, Transfer]:
    """Count indices and values between registers and L1, and whole lines once beyond L1."""
    moved_B = float(_length(case) * case.value_B)
    inner = Transfer(moved_B + case.traffic.index, moved_B)
    outer = Transfer(*(each_B / case.iterations for each_B in _from_memory(case)))
    return crossed(levels, inner, outer, bypass=not case.allocates)


def _reference(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
    """Apply the instances in order by NumPy's indexing (the last of equal indices wins)."""
    after = {name: np.array(values, copy=True) for name, values in arrays.items()}
    gather, scatter = _gather_side(case), _scatter_side(case)
    n = np.arange(case.integers["count"])
    wrap = case.integers.get("wrap", 1)
    if gather is not None and scatter is not None:
        after[scatter.array][scatter.places(n).ravel()] = after[gather.array][
            gather.places(n).ravel()
        ]
    elif gather is not None:
        last = n[-min(wrap, len(n)) :]
        rows = after["dense"].reshape(wrap, -1)
        rows[last % wrap] = after[gather.array][gather.places(last)]
    elif scatter is not None:
        rows = after["dense"].reshape(wrap, -1)
        after[scatter.array][scatter.places(n).ravel()] = rows[n % wrap].ravel()
    return after


def _relative(got: Values, wanted: Values) -> npt.NDArray[np.float64]:
    """Return the relative error of each value; infinite for NaN."""
    error: npt.NDArray[np.float64] = np.abs(got.astype(np.float64) - wanted) / np.maximum(
        np.abs(wanted), 1.0
    )
    error[np.isnan(error)] = np.inf
    return error


def _relative_error(got: Values, wanted: Values) -> float:
    if np.array_equal(got, wanted):
        return 0.0
    return float(np.max(_relative(got, wanted))) if got.size else 0.0


def _last_instances(case: Case, workers: int) -> list[IndexArray]:
    """Return the last instances that write each worker's dense rows (static schedules)."""
    count, wrap, chunk = case.integers["count"], case.integers["wrap"], case.knobs.chunk
    decisive = []
    for worker in range(workers):
        if chunk == 0:
            share, rest = divmod(count, workers)
            begin = share * worker + min(worker, rest)
            end = begin + share + (worker < rest)
            decisive.append(np.arange(max(begin, end - wrap), end))
            continue
        # The last chunks of this worker that together cover every row of the buffer.
        own = np.arange(worker, -(-count // chunk), workers)
        n = np.zeros(0, dtype=np.int64)
        for c in own[::-1]:
            n = np.concatenate([np.arange(c * chunk, min(count, (c + 1) * chunk)), n])
            if len(np.unique(n % wrap)) == min(wrap, count):
                break
        decisive.append(n)
    return decisive


def _check_dense(case: Case, native: Native, side: _Side, workers: int) -> float:
    """Compare every worker's dense rows after a whole invocation."""
    wrap, length = case.integers["wrap"], _length(case)
    arrays = native.arrays()

    source, elements = arrays[side.array], np.arange(min(length, BLOCK))
    if case.knobs.schedule == "dynamic":
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
        for some, begin, places in _blocks(side, n):
            at = (worker * wrap + some % wrap)[:, None] * length + begin
            at = at + elements[: places.shape[1]]
            got = native.peek("dense", at.reshape(-1)).reshape(places.shape)
            error = max(error, _relative_error(got, fill_values(places, source)))
        for row in np.flatnonzero(untouched).tolist():
            for begin in range(0, length, BLOCK):
                at = row * length + begin + elements[: length - begin]
                got = native.peek("dense", worker * wrap * length + at)
                error = max(error, _relative_error(got, fill_values(at, arrays["dense"])))
    return error


def _nearest_instance(
    case: Case,
    side: _Side,
    got: Values,
    fresh: Values,
    row: int,
    source: Mapping[str, Any],
) -> float:
    """Return the smallest error over all instances that may have filled this row."""
    wrap, count, length = case.integers["wrap"], case.integers["count"], len(got)
    best = _relative_error(got, fresh)
    block = max(1, _WHOLE // length)
    for first in range(row, count, wrap * block):
        n = np.arange(first, min(count, first + wrap * block), wrap)
        wanted = fill_values(side.places(n), source)
        best = min(best, float(np.max(_relative(got[None, :], wanted), axis=1).min()))
        if best == 0.0:
            break
    return best


def _check_gather(case: Case, native: Native) -> Validation:
    side = _gather_side(case)
    assert side is not None
    workers = native.arrays()["dense"]["rows"]
    native.fill(outputs=True)
    yield
    error = _check_dense(case, native, side, workers)
    if _rows_hold_all(case, workers):
        return Check(error == 0.0, error, "whole")
    # Rows hold only the last instances; others are checked by running single instances.
    rng = np.random.default_rng(0)
    wrap, length = case.integers["wrap"], _length(case)
    source = native.arrays()[side.array]
    begins = rng.integers(0, side.count, min(_WINDOWS, max(1, _WHOLE // length)))
    wanted = fill_values(side.places(begins), source)
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
    if case.knobs.schedule == "dynamic" or count > wrap * workers:
        return False
    if case.knobs.chunk == 0:
        return True
    kept = sum(len(np.unique(n % wrap)) for n in _last_instances(case, workers))
    return kept == count


def _check_scatter(case: Case, native: Native) -> Validation:
    side = _scatter_side(case)
    assert side is not None
    workers = native.obtained()["threads"]
    if side.count * len(side.index) <= _WHOLE and side.size <= 8 * _WHOLE:
        return (yield from _check_scatter_whole(case, native, side, workers))
    return (yield from _check_scatter_sampled(case, native, side, workers))


def _written_values(case: Case, native: Native, n: IndexArray, element: IndexArray) -> Values:
    """Return the values that instances `n` write with the given elements."""
    arrays = native.arrays()
    gather = _gather_side(case)
    if gather is not None:
        return fill_values(gather.base(n) + gather.index[element], arrays[gather.array])
    wrap, length = case.integers["wrap"], _length(case)
    return fill_values(n % wrap * length + element, arrays["dense"])


def _check_scatter_whole(case: Case, native: Native, side: _Side, workers: int) -> Validation:
    native.fill(outputs=True)
    yield
    got = native.copy_out(side.array).astype(np.float64)
    fresh = fill_values(np.arange(side.size), native.arrays()[side.array])
    n = np.arange(side.count)
    length = len(side.index)
    place = side.places(n).ravel()
    value = _written_values(case, native, np.repeat(n, length), np.tile(np.arange(length), len(n)))
    wanted = fresh.copy()
    wanted[place] = value
    error = _relative_error(got, wanted)
    if workers == 1 or error == 0.0:
        return Check(error == 0.0, error, "whole")
    # Workers race where scatters overlap: any value written to a place is correct.
    scale = 2**24
    pairs = np.unique(place * scale + value.astype(np.int64))
    whole = np.where((got >= 0) & (got < scale) & (got == np.floor(got)), got, scale - 1)
    found = np.isin(np.arange(side.size) * scale + whole.astype(np.int64), pairs)
    touched = np.zeros(side.size, dtype=bool)
    touched[place] = True
    good = np.where(touched, found, got == fresh)
    wrong = _relative_error(got[~good], wanted[~good])
    return Check(bool(good.all()), wrong, "membership")


def _check_scatter_sampled(case: Case, native: Native, side: _Side, workers: int) -> Validation:
    rng = np.random.default_rng(0)
    length = len(side.index)
    # All accesses are searched if there are few, else only those to sampled places are computed.
    accesses = side.count * length
    of_place = length * side.cycle  # maximum number of accesses to one place
    if accesses <= _ACCESSES:
        of_place = accesses // int(_lines_of(case).stored)
    samples = max(64, min(_SAMPLES, _WHOLE // max(of_place, 1)))
    # Half are places that instances write, including partition boundaries; half are random.
    boundaries = np.array([side.count * w // workers for w in range(workers)])
    near = np.clip(boundaries[:, None] + np.arange(-2, 3)[None, :], 0, side.count - 1).ravel()
    n = np.concatenate([near, rng.integers(0, side.count, samples // 2)])
    place = np.unique(
        np.concatenate(
            [
                side.base(n) + side.index[rng.integers(0, length, len(n))],
                rng.integers(0, side.size, samples // 2),
            ]
        )
    )
    native.fill(outputs=False)
    native.poke(side.array, place, np.full(len(place), _UNWRITTEN))
    yield
    got = native.peek(side.array, place)

    which, n, element = _writers(case, side, place, workers)
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
        low = np.full(len(place), np.inf)
        high = np.full(len(place), -np.inf)
        np.minimum.at(low, which, value)
        np.maximum.at(high, which, value)
        several = bool(np.any(low[touched] != high[touched]))
    error = float(wrong.max())
    return Check(error == 0.0, error, "membership" if several else "sampled")


def _writers(
    case: Case, side: _Side, place: IndexArray, workers: int
) -> tuple[IndexArray, IndexArray, IndexArray]:
    """Return every (index of place, instance, element) that may be the last to write a place."""
    if side.count * len(side.index) <= _ACCESSES:
        return _accesses(side, place, np.arange(side.count))
    if side.period != 0:
        # Solve base(n) + index[element] = place for n in each phase of the cycle of deltas.
        parts = []
        from_base = place[:, None, None] - side.origin - side.prefix[None, :, None]
        block = max(1, _WHOLE // from_base.size)
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
    ranges = workers if case.knobs.schedule == "static" and case.knobs.chunk == 0 else 1
    many = max(side.cycle, _WHOLE // (len(side.index) * ranges))
    ends = [side.count * (w + 1) // ranges + 1 for w in range(ranges)]
    n = np.unique(np.concatenate([np.arange(max(0, e - many), e) for e in ends]))
    return _accesses(side, place, n[n < side.count])


def _accesses(
    side: _Side, place: IndexArray, n: IndexArray
) -> tuple[IndexArray, IndexArray, IndexArray]:
    """Return index of place, instance and element of all accesses of instances `n` to places."""
    # The lowest bits of the position exclude most accesses.
    lowest = np.zeros(_LOWEST, dtype=np.bool_)
    lowest[place % _LOWEST] = True
    found = []
    for some, begin, places in _blocks(side, n):
        reached = places.reshape(-1)
        hits = np.flatnonzero(lowest[reached & (_LOWEST - 1)])
        which = np.minimum(np.searchsorted(place, reached[hits]), len(place) - 1)
        equal = place[which] == reached[hits]
        row, element = np.divmod(hits[equal], places.shape[1])
        found.append((which[equal], some[row], begin + element))
    return _joined(found)


def _joined(
    parts: Sequence[tuple[IndexArray, IndexArray, IndexArray]],
) -> tuple[IndexArray, IndexArray, IndexArray]:
    which, n, element = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return which, n, element


def _refuse(case: Case) -> None:
    knobs = case.knobs
    if knobs.place == RANKS:
        over_ranks.refuse_batches(knobs.device, knobs.variant, knobs.flush_every)


def _stride(case: Case) -> dict[str, int | None]:
    """Return the stride of the pattern; none for kernels with two patterns."""
    patterns = [Pattern(case.indices[key]) for key in case.indices if key.startswith("pattern")]
    return {"stride": patterns[0].stride if len(patterns) == 1 else None}


def _spec(kernel: str, summary: str) -> None:
    check = _check_gather if kernel in ("gather", "multigather") else _check_scatter
    register(
        KernelSpec(
            name=f"spatter.{kernel}",
            summary=summary,
            source=SOURCE,
            arrays=declared(f"spatter.{kernel}").arrays,
            traffic=_traffic,
            iterations=lambda case: case.integers["count"],
            checks=Checks(check=check, reference=_reference),
            model=Model(bytes_B=lambda case: sum(_from_memory(case)), transfers=_transfers),
            build=case,
            limits=Limits(index_dtypes=INDEX_DTYPES, refuse=_refuse),
            derived_columns=_stride,
        )
    )


def case(
    kernel: str,
    *,
    pattern: PatternLike | None = None,
    pattern_gather: PatternLike | None = None,
    pattern_scatter: PatternLike | None = None,
    delta: int | Sequence[int] | None = None,
    delta_gather: int | Sequence[int] | None = None,
    delta_scatter: int | Sequence[int] | None = None,
    count: int = 1024,
    wrap: int = 1,
    dtype: str = "float64",
    index_dtype: str = "int64",
    name: str = "",
    suite: str = "",
    count_rule: str = "given",
    **options: Any,
) -> Case:
    """Build the case of one gather/scatter kernel.

    Parameters
    ----------
    kernel : str
        ``gather``, ``scatter``, ``gs``, ``multigather`` or ``multiscatter``, also with the prefix
        ``spatter.``.
    pattern, pattern_gather, pattern_scatter : Pattern, str or array_like of int
        Indices in elements, one-dimensional. gather and scatter take `pattern`; gs takes the two
        others, of equal length; multi-kernels take `pattern` as the outer list and `pattern_gather`
        or `pattern_scatter` as the inner list, which contains indices into the outer one.
    delta, delta_gather, delta_scatter : int or sequence of int, optional
        Distance between consecutive bases in elements; a list is applied cyclically. By default the
        delta implied by the pattern (``UNIFORM:8:4:NR``), else 8. gs takes the two others, each
        with `delta` as its default.
    count : int
        Instances.
    wrap : int
        Rows of the dense buffer; gs has none. On ``mpi`` and ``shmem`` the number of a rank's
        instances plus one.
    dtype, index_dtype : str
        ``float64`` or ``float32``; ``int64`` or ``int32``.
    name, suite, count_rule : str
        Labels for the record.
    **options
        Fields of `memkern.Knobs` and `memkern.Stop`.

    Returns
    -------
    Case

    Raises
    ------
    InputError
        A parameter is missing, wrong or does not belong to this kernel.

    References
    ----------
    Lavin et al., MEMSYS 2020, sections 3 and 4.
    """
    kernel = kernel.lower().removeprefix("spatter.")
    one_of(kernel, "kernel", KERNELS)
    given = {
        "pattern": pattern,
        "pattern_gather": pattern_gather,
        "pattern_scatter": pattern_scatter,
    }
    needs = {
        "gather": ("pattern",),
        "scatter": ("pattern",),
        "gs": ("pattern_gather", "pattern_scatter"),
        "multigather": ("pattern", "pattern_gather"),
        "multiscatter": ("pattern", "pattern_scatter"),
    }[kernel]
    patterns: dict[str, Pattern] = {}
    for key in needs:
        value = given[key]
        if value is None:
            raise InputError(f"kernel {kernel} needs {key}")
        patterns[key] = as_pattern(value)
    count = integer(count, "count", 1, _FAR)
    wrap = integer(wrap, "wrap", 1, _FAR)

    sides = ("gather", "scatter") if kernel == "gs" else (kernel.removeprefix("multi"),)
    indices: dict[str, IndexArray] = {}
    deltas: dict[str, list[int]] = {}
    for side in sides:
        single = kernel in ("gather", "scatter")
        own = patterns["pattern"] if single else patterns[f"pattern_{side}"]
        indices[f"pattern_{side}"] = own.indices
        walker = own if kernel == "gs" else patterns["pattern"]
        of_side = delta_gather if side == "gather" else delta_scatter
        chosen = of_side if kernel == "gs" and of_side is not None else delta
        if chosen is None:
            chosen = walker.delta if walker.delta is not None else 8
        deltas[side] = _deltas(chosen)
        # Small cases have few instances, and few values on either side.
        count = small.cut(count, 256)
        count = small.cut(count, max(1, 2**18 // max(1, *map(abs, deltas[side]))))
        indices[f"delta_{side}"] = np.array(deltas[side], dtype=np.int64)
    if kernel.startswith("multi"):
        indices["pattern"] = patterns["pattern"].indices
    knobs = Knobs(device=options.get("device", "cpu"))
    integers = {"count": count, "wrap": wrap}
    if knobs.place == RANKS:
        threads = options.get("threads", 0)
        over_ranks.refuse(knobs.device, kernel, options.get("variant", "best"), threads=threads)
        ranks = describe(knobs.device).ranks
        row_B = len(indices[f"pattern_{sides[0]}"]) * np.dtype(dtype).itemsize
        wrap = over_ranks.rows(wrap, count, ranks, row_B)
        integers = {"count": count, "wrap": wrap, "workers": ranks}
        options["threads"] = 1

    result = Case(
        registered(kernel),
        integers=integers,
        indices=indices,
        dtype=dtype,
        index_dtype=index_dtype,
        columns={
            "pattern": " ".join(map(str, patterns.values())),
            "pattern_length": len(indices[f"pattern_{sides[0]}"]),
            "delta": " ".join(",".join(map(str, d)) for d in deltas.values()),
            "count": count,
            "wrap": wrap,
            "count_rule": count_rule,
        },
        labels={"name": name, "suite": suite},
    ).with_(**options)
    _check_reach(result)
    return result if knobs.place != RANKS else _over_ranks(result)


def _over_ranks(case: Case) -> Case:
    """Return a case with the share of remote elements; refuse it if ranks can't run it."""
    side = _gather_side(case) or _scatter_side(case)
    assert side is not None
    ranks = case.integers["workers"]
    over_ranks.check_size(case.integers["wrap"] * len(side.index), ranks)
    places = side.places(np.arange(side.count))
    if "pattern_scatter" in case.indices:
        over_ranks.check_scatter(places)
    share = over_ranks.remote_share(places, side.size, ranks, case.value_B)
    return dataclasses.replace(case, columns={**case.columns, "remote_share": share})


_spec("gather", "A[:] = B[i[:]]")
_spec("scatter", "A[j[:]] = B[:]")
_spec("gs", "A[j[:]] = B[i[:]]")
_spec("multigather", "A[:] = B[i1[i2[:]]]")
_spec("multiscatter", "A[j1[j2[:]]] = B[:]")


def registered(kernel: str) -> KernelSpec:
    """Return the spec of a kernel by its short name."""
    return find(f"spatter.{kernel}")


def _deltas(delta: int | Sequence[int]) -> list[int]:
    values = list(delta) if isinstance(delta, (Sequence, np.ndarray)) else [delta]
    if not values:
        raise InputError("delta must not be an empty list")
    return [integer(value, "delta", -_FAR, _FAR) for value in values]


def _check_reach(case: Case) -> None:
    """Refuse a case whose bases or number of values would overflow in NumPy."""
    count, length = case.integers["count"], _length(case)
    for key, array in case.indices.items():
        if not key.startswith("delta"):
            continue
        way = sum(abs(int(d)) for d in array) * (count // len(array) + 1)
        if way >= _FAR or count * length >= _FAR:
            raise InputError(
                f"{count} instances of {length} indices at delta {case.columns['delta']} span more "
                "than 2**60 elements: use a smaller count or delta"
            )


@shows_options_of("spatter.gather")
def gather(pattern: PatternLike, **options: Any) -> Case:
    """Case of ``A[:] = B[i[:]]``."""
    return any_case("gather", pattern=pattern, **options)


@shows_options_of("spatter.scatter")
def scatter(pattern: PatternLike, **options: Any) -> Case:
    """Case of ``A[j[:]] = B[:]``."""
    return any_case("scatter", pattern=pattern, **options)


@shows_options_of("spatter.gs")
def gs(pattern_gather: PatternLike, pattern_scatter: PatternLike, **options: Any) -> Case:
    """Case of ``A[j[:]] = B[i[:]]``."""
    return any_case("gs", pattern_gather=pattern_gather, pattern_scatter=pattern_scatter, **options)


@shows_options_of("spatter.multigather")
def multigather(pattern: PatternLike, pattern_gather: PatternLike, **options: Any) -> Case:
    """Case of ``A[:] = B[i1[i2[:]]]``."""
    return any_case("multigather", pattern=pattern, pattern_gather=pattern_gather, **options)


@shows_options_of("spatter.multiscatter")
def multiscatter(pattern: PatternLike, pattern_scatter: PatternLike, **options: Any) -> Case:
    """Case of ``A[j1[j2[:]]] = B[:]``."""
    return any_case("multiscatter", pattern=pattern, pattern_scatter=pattern_scatter, **options)


def from_config(config: Mapping[str, Any], **options: Any) -> Case:
    """Case of a configuration of `memkern.inputs.spatter_files` or `memkern.suites`.

    Parameters
    ----------
    config : mapping
        Arguments of `case`, and ``runs``, which becomes the stop rule unless `options` has one.
    **options
        Override the configuration.
    """
    arguments = {key: value for key, value in config.items() if key != "local_work_size"}
    if config.get("local_work_size") and str(options.get("device", "cpu")).startswith("cuda"):
        arguments["block_threads"] = config["local_work_size"]
    if arguments.get("seed") is None:
        arguments.pop("seed", None)
    if config["kernel"] != "gs":
        arguments = {
            k: v for k, v in arguments.items() if k not in ("delta_gather", "delta_scatter")
        }
    return any_case(**{**arguments, **options})


def _suite_case(
    name: str,
    number: int,
    *,
    count_rule: suites.CountRule = "footprint",
    footprint_B: float = 2e9,
    **options: Any,
) -> Case:
    """Build one case of a suite."""
    config = suites.load(name, count_rule=count_rule, footprint_B=footprint_B)[number]
    return from_config(config, **options)


def _suite_size(name: str) -> int:
    return len(suites.load(name))


for _suite in suites.names():
    register_suite(
        _suite,
        Suite(functools.partial(_suite_size, _suite), functools.partial(_suite_case, _suite)),
    )


def report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return strides by variant and page size, and the 34 application patterns."""
    most_B = min(memory_B // 2, _REPORT_MEMORY_B)
    footprint = min(max(cache_B * (2 if quick else 4), 2**26), most_B)
    brief: dict[str, Any] = {"budget_s": 0.1 if quick else 1.0, "runs": None}
    strides = suites.ustride("cpu", footprint_B=footprint)
    cases = [
        from_config(config, variant=variant, **brief)
        for config in strides
        for variant in ("scalar", "auto", "simd")
    ]
    cases += [from_config(config, pages="4k", **brief) for config in strides]
    # Published counts, unless they move too many bytes or need too much memory.
    most_moved_B = 2e8 if quick else 1e11
    small = {c["name"]: c for c in suites.apps(footprint_B=footprint)}
    for config in suites.apps(count_rule="paper"):
        published = from_config(config, **brief)
        fits = published.bytes_B <= most_moved_B and _sparse_B(published) <= most_B
        cases.append(published if fits else from_config(small[config["name"]], **brief))
    return cases


def gpu_report_cases(device: str, quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return strides on a GPU."""
    footprint_B = min(max(4 * cache_B, 2**26), memory_B // 4)
    brief: dict[str, Any] = {"budget_s": 0.1 if quick else 0.4, "runs": None, "device": device}
    return [from_config(one, **brief) for one in suites.ustride("gpu", footprint_B=footprint_B)]


def _sparse_B(case: Case) -> int:
    sides = (_gather_side(case), _scatter_side(case))
    return sum(side.size for side in sides if side is not None) * case.value_B
