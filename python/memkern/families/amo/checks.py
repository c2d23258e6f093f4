"""References and checks of atomic operations: simulations of workers, and counts of operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.shared.checking import WHOLE, Values, error, extent, fresh, outcome, positions
from memkern.spec.case import Case
from memkern.spec.inputs import Given
from memkern.spec.kernel import IndexArray, Native, Validation

STRIDED = ("stride1", "striden")
# Patterns whose operations all have the same operand, so that results have a closed form.
CONSTANT = ("rand", *STRIDED, "central")
# Most iterations of one worker, and most steps of pointer chases, that a check simulates.
_SIMULATED_ITERATIONS = 2**12
_SIMULATED_STEPS = 2**22
# Columns of `tally`, as in cpp/families/amo/patterns.hpp.
_APPLIED, _RETURNED, _ATTEMPTS, _SUCCESSES, _END, _ITERATIONS = range(6)
_TALLIES = 6

# Primitives that have the same result for one operation as for several, or (xor) cancel in pairs.
_ONCE: dict[str, Callable[[Values, Any], Values]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
    "exchange": np.full_like,
    "cas-target": lambda old, operand: old,
}

Tally = npt.NDArray[np.uint64]


def pattern_of(case: Case | Given) -> str:
    """Return the pattern of a case."""
    return case.spec.name.partition(".")[2]


def direct_places(
    n: Mapping[str, int], pattern: str, worker: IndexArray, within: IndexArray
) -> IndexArray:
    """Return the words accessed without an index by iterations `within` each worker's range."""
    if pattern == "central":
        return (worker + n["shared"] * within) % n["hot"] * n["stride"]
    return (within if n["shared"] else worker * n["iters"] + within) * n["stride"]


def hit_words(case: Case) -> IndexArray:
    """Return the word that each iteration of a constant pattern accesses."""
    n, pattern = case.integers, pattern_of(case)
    if pattern == "rand":
        return case.indices["IDX"][: case.iterations]
    if pattern == "central" and n["hot"] == 1:
        return np.zeros(case.iterations, dtype=np.int64)
    return np.broadcast_to(
        direct_places(n, pattern, np.arange(n["workers"])[:, None], np.arange(n["iters"])),
        (n["workers"], n["iters"]),
    ).ravel()


def _after(case: Case, before: Values, hits: Values) -> Values:
    """Return the values of words after `hits` operations with the case's operand."""
    primitive, operand = case.template_variant.partition("/")[0], case.integers["operand"]
    floats = np.dtype(case.dtype).kind == "f"
    exact = np.float64 if floats else np.uint64
    old, o, n = before.astype(exact), exact(operand), hits.astype(exact)
    if primitive in _ONCE:
        changed = (hits % 2 if primitive == "xor" else hits) > 0
        after = np.where(changed, _ONCE[primitive](old, o), old)
    else:
        after = old + n * o
        if case.value_B == 4 and floats and operand == 1:
            # In float32, adding 1 no longer changes a sum of 2^24.
            after = np.minimum(after, 2.0**24)
    return after if floats else after & np.uint64(2 ** (8 * case.value_B) - 1)


def _serial(case: Case, values: dict[int, Any], iterations: int) -> list[int]:  # noqa: C901
    """Simulate one worker's operations in order on `values`; return its tally."""
    pattern, (primitive, _, returns) = pattern_of(case), case.template_variant.split("/")
    idx = case.indices["IDX"].tolist() if case.indices else []
    n, o = case.integers, case.integers["operand"]
    floats = np.dtype(case.dtype).kind == "f"
    mask = 2 ** (8 * case.value_B) - 1
    tally = [0] * _TALLIES
    tally[_ITERATIONS] = iterations
    cas = primitive.startswith("cas")

    def operation(at: int, operand: Any, swap: bool = False) -> Any:
        """Combine a word with the operand, or replace it; return the old value."""
        old = values[at]
        new = {
            "and": lambda: old & operand,
            "or": lambda: old | operand,
            "xor": lambda: old ^ operand,
            "min": lambda: min(old, operand),
            "max": lambda: max(old, operand),
            "exchange": lambda: operand,
            "cas-target": lambda: operand if swap else old,
        }.get(primitive, lambda: operand if swap and cas else old + operand)()
        values[at] = new if floats else new & mask
        if cas:
            tally[_APPLIED] += values[at] - old
            tally[_ATTEMPTS] += 1
        elif primitive == "xor":
            tally[_APPLIED] ^= int(operand)
        else:
            tally[_APPLIED] += int(operand)
        return old

    def read(at: int) -> Any:
        return operation(at, values[at], swap=True) if cas else operation(at, o)

    def look(i: int) -> int:
        tally[_ATTEMPTS] += int(cas)
        return int(idx[i])

    def last(at: int, operand: Any, swap: bool = False) -> None:
        old = operation(at, operand, swap)
        if returns == "used":
            tally[_RETURNED] += int(old)

    walk = 0
    hits = hit_words(case)[:iterations].tolist() if pattern in CONSTANT else []
    for i in range(iterations):
        if pattern == "ptrchase":
            walk = look(walk)
            tally[_RETURNED] += walk
        elif pattern == "scatter":
            last(look(i + 1), read(i * n["stride"]), swap=True)
        elif pattern == "gather":
            last(i * n["stride"], read(look(i + 1)), swap=True)
        elif pattern == "sg":
            last(look(i + 1), read(look(i)), swap=True)
        else:
            last(hits[i], o)
    tally[_END], tally[_SUCCESSES] = walk, tally[_ATTEMPTS]
    return [t % 2**64 for t in tally]


def updated(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
    """Return the arrays after all operations of one worker."""
    words = arrays.get("VAL", np.zeros(0, dtype=case.dtype))
    values = dict(enumerate(words.tolist()))
    tally = np.array(_serial(case, values, case.iterations), dtype=np.uint64)
    sums = tally + arrays["tally"]
    if case.template_variant.startswith("xor"):
        sums[_APPLIED] = tally[_APPLIED] ^ arrays["tally"][_APPLIED]
    sums[_END] = tally[_END]
    after = {"tally": sums}
    if len(words):
        after["VAL"] = np.array(list(values.values()), dtype=case.dtype)
    return after


def _reset(native: Native) -> None:
    """Refill VAL and clear the tallies."""
    native.fill(outputs=True)
    native.copy_in("tally", np.zeros_like(native.copy_out("tally")))


def _tallies(native: Native) -> Tally:
    """Return the workers' tallies, a row each."""
    return native.copy_out("tally").reshape(-1, _TALLIES)


def _differs_at_first(case: Case, native: Native) -> bool:
    """Return whether one worker's first iterations differ from their simulation in any word."""
    first = min(case.iterations, _SIMULATED_ITERATIONS)
    idx, stride = case.indices["IDX"], case.integers["stride"]
    own = np.arange(first) * stride if pattern_of(case) != "sg" else idx[:first]
    touched = np.unique([*own, *idx[: first + 1]])
    values = dict(zip(touched.tolist(), map(int, fresh(native, "VAL", touched)), strict=True))
    _reset(native)
    native.run_range(0, first)
    tally = _serial(case, values, first)
    same = (native.peek("VAL", touched) == np.array(list(values.values()), dtype=case.dtype)).all()
    return not same or _tallies(native)[0].tolist() != tally


def _walks(idx: IndexArray, workers: int, steps: int, runs: int = 1) -> list[list[int]]:
    """Return the end of each worker's walk and, over all runs, the sum of the visited places.

    The `steps` iterations are divided among the workers, of which the first ones get one more if
    the division leaves a remainder. A worker starts at the first iteration of its share.
    """
    shares = [steps // workers + (w < steps % workers) for w in range(workers)]
    successor = idx.tolist()
    found, start = [], 0
    for share in shares:
        at, positions = start, 0
        for _ in range(share):
            at = successor[at]
            positions += at
        found.append([at, runs * positions % 2**64])
        start += share
    return found


def _check_chase(case: Case, native: Native) -> Validation:
    idx, n, workers = case.indices["IDX"], case.iterations, case.integers["workers"]
    before = native.digest("IDX")
    wanted = (int(idx.sum()) % 2**64, int(np.bitwise_xor.reduce(idx)))
    # Walk along a part of the cycle: a walk along all of it would end at its start.
    part = min(-(-n // 2), _SIMULATED_STEPS)
    _reset(native)
    native.run_range(0, part)
    tally = _tallies(native)
    bad = (
        tally[:, [_END, _RETURNED]].tolist() != _walks(idx, workers, part)
        or int(tally[:, _ITERATIONS].sum()) != part
    )
    _reset(native)
    runs = yield
    tally = _tallies(native)
    whole = n <= _SIMULATED_STEPS
    columns = _attempts(case, tally, runs)
    bad = (
        bad
        or (whole and tally[:, [_END, _RETURNED]].tolist() != _walks(idx, workers, n, runs))
        or int(tally[:, _ITERATIONS].sum()) != runs * n
        or not before == wanted == native.digest("IDX")
        or _miscounted(case, columns)
    )
    return outcome(case, float("inf") if bad else 0.0, extent(n if whole else WHOLE + 1), **columns)


def _miscounted(case: Case, columns: Mapping[str, float]) -> bool:
    """Return whether the number of compare-and-swaps contradicts the number of operations."""
    per_amo = columns.get("attempts_per_amo", 1.0)
    return per_amo < 1 or (per_amo > 1 and not case.template_variant.startswith("cas-retry"))


def _attempts(case: Case, tally: Tally, runs: int) -> dict[str, float]:
    """Return the columns on the success of compare-and-swaps."""
    if not case.template_variant.startswith("cas"):
        return {}
    attempts = float(tally[:, _ATTEMPTS].sum())
    return {
        "success_fraction": float(tally[:, _SUCCESSES].sum()) / max(attempts, 1.0),
        "attempts_per_amo": attempts / (runs * case.iterations * case.spec.counts.amos),
    }


def check_updates(case: Case, native: Native) -> Validation:  # noqa: C901
    """Check values, walks and tallies after an invocation, and first iterations word by word."""
    pattern, (primitive, _, returns) = pattern_of(case), case.template_variant.split("/")
    if pattern == "ptrchase":
        return (yield from _check_chase(case, native))
    n, words, workers = case.iterations, case.integers["words"], case.integers["workers"]
    mask = 2 ** (8 * case.value_B) - 1
    constant, floats = pattern in CONSTANT, np.dtype(case.dtype).kind == "f"
    wrong = [workers == 1 and not constant and _differs_at_first(case, native)]
    look = positions(words, native)
    old = fresh(native, "VAL", look)
    _reset(native)
    before, index = native.digest("VAL"), native.digest("IDX") if case.indices else (0, 0)
    runs = yield
    after, tally = native.digest("VAL"), _tallies(native)
    got = native.peek("VAL", look)
    applied, returned = (sum(tally[:, k].tolist()) for k in (_APPLIED, _RETURNED))
    grown = after[0] - before[0]
    columns = _attempts(case, tally, runs)
    wrong += [
        _miscounted(case, columns),
        int(tally[:, _ITERATIONS].sum()) != runs * n,
        bool(case.indices) and native.digest("IDX") != index,
    ]
    exact = (
        primitive not in ("cas", "plain") or workers == 1 or columns.get("success_fraction") == 1.0
    )
    worst = 0.0
    if constant:
        hits, total = runs * _hits_at(case, look), runs * n * case.integers["operand"]
        if exact:
            worst = error(got, _after(case, old, hits))
        else:
            # Even if updates were lost, a word grows by at most the operands of its iterations.
            least = got.astype(np.float64) - old
            most = hits * float(case.integers["operand"])
            wrong.append(bool(((least < 0) | (least > most)).any()))
        if primitive == "add" and not floats:
            wrong.append(applied % 2**64 != total % 2**64)
        if primitive == "plain" and total <= mask and not floats:
            columns["lost_fraction"] = 1 - (grown & mask) / total
    elif primitive in ("and", "or", "min", "max"):
        start = old.astype(case.dtype)
        holds = {
            "and": (got & ~start) == 0,
            "or": (start & ~got) == 0,
            "min": got <= start,
            "max": got >= start,
        }[primitive]
        wrong.append(not holds.all())
    elif primitive == "cas-target" and len(look) == words:
        # All stored values are values of other words, also those that a failed attempt stores.
        wrong.append(not np.isin(got, old).all())
    if not floats:
        if primitive in ("add", "cas", "cas-retry") or (primitive == "cas-target" and workers == 1):
            wrong.append((grown - applied) & mask != 0)
        elif primitive == "xor":
            folded = int(np.bitwise_xor.reduce(tally[:, _APPLIED]))
            wrong.append((before[1] ^ after[1] ^ folded) & mask != 0)
        elif primitive == "exchange" and returns == "used":
            wrong.append((before[0] + applied - returned - after[0]) & mask != 0)
    elif primitive == "exchange" and returns == "used" and len(look) == words:
        # Sums of these whole numbers are exact.
        sums = [int(values.sum(dtype=np.float64)) for values in (old, got)]
        wrong.append(sums[0] + applied - returned != sums[1])
    how = extent(words) if exact and (constant or workers == 1) else "invariants"
    return outcome(case, float("inf") if any(wrong) else worst, how, **columns)


def _hits_at(case: Case, look: IndexArray) -> IndexArray:
    """Return how many iterations access each of the words at `look` (ascending)."""
    hits = hit_words(case)
    if len(look) < case.integers["words"]:
        hits = hits[np.isin(hits, look, kind="table")]
    return np.bincount(np.searchsorted(look, hits), minlength=len(look))
