"""Atomic memory operations in CircusTent's eight patterns.

Workers own consecutive ranges of iterations. VAL holds the values, IDX indices into VAL (in the
pointer chase, into IDX itself); both are unsigned words of the same width. The operand of an
operation on IDX leaves the index unchanged. The operand of an operation on VAL is 1; in strided
patterns it is 15; of ``max`` it is 2^22, since half of the initial values are below this and hardly
any below 1. In the last operation of scatter, gather and sg it is the value read just before.

The primitives are ``add``, ``and``, ``or``, ``xor``, ``min``, ``max``, ``exchange``, ``cas``,
``cas-retry``, ``cas-target`` and ``plain``. A ``cas`` is one attempt to replace a value that was
just read by a relaxed load. The new value is the same value where a word is only read, the sum with
the operand in rand, stride1, striden and central, and the value read just before in the last
operation of the other patterns. ``cas-retry`` repeats the attempt until it succeeds. ``plain`` is a
relaxed load and a relaxed store, whose updates may be lost; the difference is the cost of
atomicity. Minima, maxima and floating-point sums are loops of compare-and-swap, since processors of
this kind have no instruction for them.

``cas-target`` is the compare-and-swap of CircusTent's OpenMP kernels, for processors: in rand,
stride1, striden and central and in the last operation of scatter, gather and sg, the variable with
the expected value is the word itself. In the former patterns the word is replaced by its own value,
so that no value changes and each attempt succeeds. A failed attempt in the latter patterns stores
the value that it found, which may undo an update of another worker. Words that are only read are
read as by ``cas``; CircusTent expects an earlier value there, so that its attempts fail, by the
same instructions. CircusTent's CAS rates can be compared with those of ``cas-target``, not with
those of ``cas``.

It has more than 600 lines because the builder, the simulation of a worker and the checks of all
patterns use the same tallies and operands.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern import small
from memkern.checks import integer, one_of, shown
from memkern.errors import InputError
from memkern.families.amo import index, over_ranks
from memkern.families.amo.over_ranks import Layout
from memkern.inputs import indices
from memkern.inputs.sizes import sizes
from memkern.machine import caches
from memkern.machine.declarations import declared
from memkern.machine.remote import describe, refuse_faulty
from memkern.shared.cache_lines import accessed
from memkern.shared.checking import WHOLE, Values, error, extent, fresh, positions, verdict
from memkern.spec.case import Case, Checks, Counts, KernelSpec, Limits, Model
from memkern.spec.kernel import DTYPES, WORD_DTYPES, IndexArray, Native, Traffic, Validation
from memkern.spec.options import GPUS, PROCESSORS, RANKS, Knobs
from memkern.spec.registry import case, find, register, shows_options_of

CIRCUSTENT = (
    "Williams, Leidel, Wang, Donofrio and Chen, CircusTent: A Benchmark Suite for Atomic Memory "
    "Operations, MEMSYS 2020"
)
PATTERNS = {
    "rand": "AMO(VAL[IDX[i]])",
    "stride1": "AMO(VAL[i])",
    "striden": "AMO(VAL[i * stride])",
    "ptrchase": "start = AMO(IDX[start])",
    "central": "AMO(VAL[0])",
    "scatter": "dest = AMO(IDX[i+1]); val = AMO(VAL[i]); AMO(VAL[dest], val)",
    "gather": "src = AMO(IDX[i+1]); val = AMO(VAL[src]); AMO(VAL[i], val)",
    "sg": "src = AMO(IDX[i]); dest = AMO(IDX[i+1]); val = AMO(VAL[src]); AMO(VAL[dest], val)",
}
PRIMITIVES = (
    *("add", "and", "or", "xor", "min", "max", "exchange"),
    *("cas", "cas-retry", "cas-target", "plain"),
)
ORDERS = ("relaxed", "acq_rel", "seq_cst")
SHARING = ("original", "private", "shared")

_INDEXED = ("rand", "ptrchase", "scatter", "gather", "sg")
_STRIDED = ("stride1", "striden")
# Patterns whose operations all have the same operand, so that results have a closed form.
_CONSTANT = ("rand", *_STRIDED, "central")
# A GPU has thousands of times more workers; operations on other ranks take microseconds.
_ITERS = {PROCESSORS: 2**18, GPUS: 2**8, RANKS: 2**12}
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


def exists(
    pattern: str,
    primitive: str,
    order: str = "relaxed",
    dtype: str = "uint64",
    place: str = PROCESSORS,
) -> bool:
    """Return whether a pattern has a primitive in a memory order, for a type.

    Over ranks, the primitives for a type depend on the library (see `over_ranks.refuse`).
    """
    if pattern not in _CONSTANT and (primitive == "exchange" or dtype in DTYPES):
        return False
    if dtype in DTYPES and place != RANKS and primitive not in ("add", "plain"):
        return False
    if primitive == "cas-target" and place != PROCESSORS:
        return False
    return primitive != "plain" or order == "relaxed"


def _pattern(case: Case) -> str:
    return case.spec.name.partition(".")[2]


def _bits(case: Case) -> int:
    return 8 * case.value_B


def amo_case(
    kernel: str,
    *,
    primitive: str = "add",
    order: str = "relaxed",
    returns: str = "",
    iters: int | None = None,
    words: int | None = None,
    memsize: int | None = None,
    stride: int = 1,
    sharing: str = "original",
    padding: int = 0,
    hot: int | None = None,
    indices: str | npt.ArrayLike = "random",
    targets: str = "",
    remote: float | None = None,
    dtype: str = "uint64",
    threads: int = 0,
    seed: int = 0,
    **options: Any,
) -> Case:
    """Build a case of atomic memory operations.

    Parameters
    ----------
    kernel : str
        Such as ``amo.rand``.
    primitive : str
        One of `PRIMITIVES`; see this module.
    order : str
        Memory order: ``relaxed``, ``acq_rel`` or ``seq_cst``.
    returns : str
        Whether the value that the last operation of an iteration returns is ``used`` (added up)
        or ``unused``, as in CircusTent; a pointer chase and a compare-and-swap always use it.
    iters : int
        Iterations of each worker; by default 2**18, 2**8 on a GPU, and 2**12 on ``mpi`` and
        ``shmem``.
    words, memsize : int
        Length of VAL, or of its part on each rank, in words or bytes; by default the number of
        accessed words, or with random indices the number of iterations.
    stride : int
        Distance, in words, between consecutive iterations of striden.
    sharing : str
        ``original`` as in CircusTent; ``private``: each worker has separate words; ``shared``: all
        workers access the same words.
    padding : int
        Distance, in bytes, between used words, 0 if they are adjacent; with at least 64, workers
        share no lines.
    hot : int
        Words that central accesses: 1, or with private sharing the number of workers.
    indices : str or array_like of int
        Rule by which IDX is drawn. ``random``: uniformly among the used words, or in the pointer
        chase as one cycle through all (Sattolo's). ``circustent``: CircusTent's rule, which omits
        the last word, and whose chase soon enters a short cycle. Or IDX itself, with one element
        more than the number of iterations of all workers.
    targets : str
        On ``mpi`` and ``shmem``, the ranks whose words are accessed: ``random``, ``ring``,
        ``share`` or ``one`` (see `memkern.families.amo.over_ranks`); by default ``random``, and
        ``ring`` for patterns without indices.
    remote : float
        Percentage of the indices that refer to words of other ranks, for the targets ``share``.
    dtype : str
        ``uint64`` or ``uint32``; in rand, stride1, striden and central also ``float64`` or
        ``float32``, for add and plain, on ``mpi`` for add, min, max and exchange, on ``shmem`` for
        exchange.
    threads : int
        Workers; 0 for one on each processing unit, or on a GPU 1024 on each multiprocessor. On
        ``mpi`` and ``shmem`` the workers of each rank, by default 1.
    seed : int
        Seed of the indices and of the values.
    **options
        Fields of `memkern.Knobs` and `memkern.Stop`, and the labels `name` and `suite`.

    Raises
    ------
    InputError
        Something is out of range.
    """
    pattern = kernel.partition(".")[2]
    for what, value, allowed in (
        ("primitive", primitive, PRIMITIVES),
        ("order", order, ORDERS),
        ("returns", returns, ("", "used", "unused")),
        ("sharing", sharing, SHARING),
        ("dtype", dtype, find(kernel).limits.dtypes),
    ):
        one_of(value, what, allowed)
    knobs = Knobs(device=options.get("device", "cpu"))
    if not exists(pattern, primitive, order, dtype, knobs.place):
        raise InputError(
            f"amo.{pattern} has no {primitive} in order {order} for {dtype}: exchange and "
            "floating-point types are for rand, stride1, striden and central, floating-point types "
            f"have only add except on {RANKS}, plain has only order relaxed, and cas-target is for "
            f"{PROCESSORS}"
        )
    always = pattern == "ptrchase" or primitive.startswith("cas")
    if returns == "unused" and always:
        raise InputError(f"{primitive} in {pattern} always uses its result")
    returns = returns or ("used" if always else "unused")
    size = np.dtype(dtype).itemsize
    threads = integer(threads, "threads", 0, 2**20)
    ranks = 1
    if knobs.place == RANKS:
        wanted = {"primitive": primitive, "order": order, "dtype": dtype, "sharing": sharing}
        over_ranks.refuse(knobs.device, drawn=indices, **wanted)
        targets = over_ranks.targets_of(pattern, targets, remote)
        if hot is not None and targets == "ring":
            raise InputError("the targets 'ring' have a hot word for each worker: leave out hot")
        found = describe(knobs.device, threads)
        swaps_64 = primitive.startswith("cas") and size == 8
        refuse_faulty(found, swaps_64=swaps_64, threads=threads)
        ranks = found.ranks
    elif targets or remote is not None:
        raise InputError(f"targets and remote are for {RANKS}: leave them out on {knobs.device}")
    from memkern.machine.topology import workers_of

    threads = threads or workers_of(knobs.device)
    workers = ranks * threads
    usual = _ITERS[knobs.place]
    iters = small.cut(integer(usual if iters is None else iters, "iters", 1, 2**40), 2**8)
    integer(stride, "stride", 1, 2**40)
    integer(seed, "seed", 0)
    integer(padding, "padding", 0, 2**20)
    if padding % size:
        raise InputError(f"padding must be a multiple of the {size} bytes of a word, not {padding}")
    if stride != 1 and pattern != "striden":
        raise InputError(f"amo.{pattern} has no stride: only amo.striden has one")
    pad = max(1, padding // size)
    step = stride * pad
    if pattern == "ptrchase":
        for what, given in (("words", words), ("memsize", memsize), ("padding", padding or None)):
            if given is not None:
                raise InputError(f"amo.ptrchase has no {what}: it only accesses its indices")
    if hot is not None and pattern != "central":
        raise InputError(f"amo.{pattern} has no hot words: only amo.central has them")
    hot = integer(1 if sharing != "private" else workers, "hot") if hot is None else hot
    integer(hot, "hot", 1, 2**40)
    arrays: dict[str, IndexArray] = {}
    label = ""
    if pattern not in _INDEXED and not (isinstance(indices, str) and indices == "random"):
        raise InputError(f"amo.{pattern} has no indices")
    if knobs.place == RANKS:
        # Words that consecutive ranks access are in the parts of different ranks.
        step = max(step, 8 // size) if pattern == "central" else step
        layout = Layout(ranks, threads, iters, 0, step, targets, (remote or 0) / 100)
        needed = step * over_ranks.accessed(pattern, layout, hot)
        if pattern not in ("rand", "sg") and {words, memsize} != {None}:
            raise InputError(
                f"amo.{pattern} accesses {needed} words of each rank: leave out words and memsize"
            )
        length = _words(words, memsize, size, needed)
        layout = dataclasses.replace(layout, words=length)
        over_ranks.check_parts(layout, size)
        shared = targets == "one"
        hot = hot if shared else workers
        if pattern in _INDEXED:
            label, arrays["IDX"] = "random", index.drawn_over_ranks(pattern, layout, seed)
    else:
        same_words = sharing == "shared" and pattern in _STRIDED
        accessed = hot if pattern == "central" else iters if same_words else iters * workers
        length = _words(words, memsize, size, (accessed - 1) * step + 1)
        shared = sharing == "shared" or (pattern == "central" and sharing == "original")
        if pattern in _INDEXED:
            label, arrays["IDX"] = _build_indices(
                indices, pattern, (length - 1) // pad + 1, pad, iters, workers, sharing, seed
            )
    built = Case(
        find(kernel),
        integers={
            "workers": workers,
            "iters": iters,
            "words": ranks * length,
            "stride": step,
            "hot": hot,
            "shared": int(shared),
            "operand": 2**22 if primitive == "max" else 15 if pattern in _STRIDED else 1,
        },
        indices=arrays,
        dtype=dtype,
        index_dtype=("int64" if size == 8 else "int32") if arrays else "",
        template_variant=f"{primitive}/{order}/{returns}",
        columns={
            "iters": iters,
            "words": len(arrays["IDX"]) // ranks if pattern == "ptrchase" else length,
            "stride": stride,
            "sharing": sharing,
            "padding_B": padding,
            "hot": hot if pattern == "central" else 0,
            "index_pattern": label,
        },
    ).with_(threads=threads, seed=seed, **options)
    if knobs.place != RANKS:
        return built

    def places(i: IndexArray) -> IndexArray:
        return _places(built.integers, pattern, *np.divmod(i, iters))

    idx = arrays.get("IDX", np.empty(0, dtype=np.int64))
    shares = over_ranks.remote_shares(pattern, layout, idx, places, found.nodes)
    return dataclasses.replace(
        built,
        integers={**built.integers, "shift": layout.shift},
        columns={
            **built.columns,
            "targets": targets,
            **dict(zip(("remote_share", "node_share"), shares, strict=True)),
        },
    )


def _words(words: int | None, memsize: int | None, size: int, needed: int) -> int:
    """Return the length of VAL."""
    if words is not None and memsize is not None:
        raise InputError("give words or memsize, not both")
    if memsize is not None:
        integer(memsize, "memsize", 1, 2**50)
        if memsize % size:
            raise InputError(f"memsize must be a multiple of {size} bytes, not {memsize}")
        words = memsize // size
    words = needed if words is None else integer(words, "words", 1, 2**47)
    return small.cut(words, max(needed, 2**12))


def _build_indices(
    rule: str | npt.ArrayLike,
    pattern: str,
    places: int,
    pad: int,
    iters: int,
    workers: int,
    sharing: str,
    seed: int,
) -> tuple[str, IndexArray]:
    """Return IDX and its name in the record."""
    if not isinstance(rule, str):
        given = indices.whole_numbers(rule, "indices")
        if len(given) < iters * workers + 1:
            raise InputError(
                f"indices must have {iters * workers + 1} elements, one more than iterations, not "
                f"{len(given)}"
            )
        return "array", given
    if rule not in index.RULES:
        known = ", ".join(index.RULES)
        raise InputError(f"indices must be one of {known} or an array, not {shown(rule)}")
    if rule == "circustent" and (pad > 1 or sharing == "private"):
        raise InputError("indices 'circustent' support neither padding nor private words")
    private = sharing == "private"
    return rule, index.drawn(pattern, rule, places, pad, iters, workers, private, seed)


def _places(
    n: Mapping[str, int], pattern: str, worker: IndexArray, within: IndexArray
) -> IndexArray:
    """Return the words accessed without an index by iterations `within` each worker's range."""
    if pattern == "central":
        return (worker + n["shared"] * within) % n["hot"] * n["stride"]
    return (within if n["shared"] else worker * n["iters"] + within) * n["stride"]


def _hits(case: Case) -> IndexArray:
    """Return the word that each iteration of a constant pattern accesses."""
    n, pattern = case.integers, _pattern(case)
    if pattern == "rand":
        return case.indices["IDX"][: case.iterations]
    if pattern == "central" and n["hot"] == 1:
        return np.zeros(case.iterations, dtype=np.int64)
    places = _places(n, pattern, np.arange(n["workers"])[:, None], np.arange(n["iters"]))
    return np.broadcast_to(places, (n["workers"], n["iters"])).ravel()


def _after(case: Case, before: Values, hits: Values) -> Values:
    """Return the values of words after `hits` operations with the case's operand."""
    primitive, operand = case.template_variant.partition("/")[0], case.integers["operand"]
    floats = np.dtype(case.dtype).kind == "f"
    exact = np.float64 if floats else np.uint64
    old, o, n = before.astype(exact), exact(operand), hits.astype(exact)
    if primitive in _ONCE:
        times = hits % 2 if primitive == "xor" else hits
        after = np.where(times > 0, _ONCE[primitive](old, o), old)
    else:
        after = old + n * o
        if _bits(case) == 32 and floats and operand == 1:
            # In float32, adding 1 no longer changes a sum of 2^24.
            after = np.minimum(after, 2.0**24)
    return after if floats else after & np.uint64(2 ** _bits(case) - 1)


def _serial(case: Case, values: dict[int, Any], iterations: int) -> list[int]:
    """Simulate one worker's operations in order on `values`; return its tally."""
    pattern, (primitive, _, returns) = _pattern(case), case.template_variant.split("/")
    idx = case.indices["IDX"].tolist() if case.indices else []
    n, o = case.integers, case.integers["operand"]
    floats = np.dtype(case.dtype).kind == "f"
    mask = 2 ** _bits(case) - 1
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
            tally[_SUCCESSES] += 1
        elif primitive == "xor":
            tally[_APPLIED] ^= int(operand)
        else:
            tally[_APPLIED] += int(operand)
        return old

    def read(at: int) -> Any:
        return operation(at, values[at], swap=True) if cas else operation(at, o)

    def look(i: int) -> int:
        if cas:
            tally[_ATTEMPTS] += 1
            tally[_SUCCESSES] += 1
        return int(idx[i])

    def last(at: int, operand: Any, swap: bool = False) -> None:
        old = operation(at, operand, swap)
        if returns == "used":
            tally[_RETURNED] += int(old)

    walk = 0
    hits = _hits(case)[:iterations].tolist() if pattern in _CONSTANT else []
    for i in range(iterations):
        if pattern == "ptrchase":
            walk = look(walk)
            tally[_RETURNED] += walk
        elif pattern == "scatter":
            last(look(i + 1), read(i * n["stride"]), swap=True)
        elif pattern == "gather":
            last(i * n["stride"], read(look(i + 1)), swap=True)
        elif pattern == "sg":
            src, dest = look(i), look(i + 1)
            last(dest, read(src), swap=True)
        else:
            last(hits[i], o)
    tally[_END] = walk
    return [t % 2**64 for t in tally]


def _reference(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
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


def _wrong(flag: bool) -> float:
    return float("inf") if flag else 0.0


def _check_first(case: Case, native: Native) -> float:
    """Compare one worker's first iterations with their simulation, word by word."""
    first = min(case.iterations, _SIMULATED_ITERATIONS)
    idx, stride = case.indices["IDX"], case.integers["stride"]
    own = np.arange(first) * stride if _pattern(case) != "sg" else idx[:first]
    touched = np.unique([*own, *idx[: first + 1]])
    values = dict(zip(touched.tolist(), map(int, fresh(native, "VAL", touched)), strict=True))
    _reset(native)
    native.run_range(0, first)
    tally = _serial(case, values, first)
    got = native.peek("VAL", touched)
    same = (got == np.array(list(values.values()), dtype=case.dtype)).all()
    return _wrong(not same or _tallies(native)[0].tolist() != tally)


def _walks(idx: IndexArray, workers: int, steps: int) -> list[tuple[int, int]]:
    """Return the end of each worker's walk and the sum of the visited places.

    The `steps` iterations are divided among the workers, of which the first ones get one more if
    the division leaves a remainder. A worker starts at the first iteration of its share.
    """
    shares = [steps // workers + (w < steps % workers) for w in range(workers)]
    successor = idx.tolist()
    found, start = [], 0
    for share in shares:
        at, places = start, 0
        for _ in range(share):
            at = successor[at]
            places += at
        found.append((at, places))
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
    walked = [(int(row[_END]), int(row[_RETURNED])) for row in tally]
    bad = walked != _walks(idx, workers, part) or int(tally[:, _ITERATIONS].sum()) != part
    _reset(native)
    runs = yield
    tally = _tallies(native)
    whole = n <= _SIMULATED_STEPS
    if whole:
        walked = [(int(row[_END]), int(row[_RETURNED])) for row in tally]
        walks = [(end, runs * places % 2**64) for end, places in _walks(idx, workers, n)]
        bad = bad or walked != walks
    bad = bad or int(tally[:, _ITERATIONS].sum()) != runs * n
    bad = bad or not before == wanted == native.digest("IDX")
    columns = _attempts(case, tally, runs)
    return verdict(
        case,
        _wrong(bad or _miscounted(case, columns)),
        extent(n if whole else WHOLE + 1),
        **columns,
    )


def _miscounted(case: Case, columns: Mapping[str, float]) -> bool:
    """Return whether the number of compare-and-swaps contradicts the number of operations."""
    per_amo = columns.get("attempts_per_amo", 1.0)
    return per_amo < 1 or (per_amo > 1 and not case.template_variant.startswith("cas-retry"))


def _attempts(case: Case, tally: Tally, runs: int) -> dict[str, float]:
    """Return the columns on the success of compare-and-swaps."""
    if not case.template_variant.startswith("cas"):
        return {}
    attempts = float(tally[:, _ATTEMPTS].sum())
    amos = runs * case.iterations * case.spec.counts.amos
    return {
        "success_fraction": float(tally[:, _SUCCESSES].sum()) / max(attempts, 1.0),
        "attempts_per_amo": attempts / amos,
    }


def _check(case: Case, native: Native) -> Validation:
    pattern, (primitive, _, returns) = _pattern(case), case.template_variant.split("/")
    if pattern == "ptrchase":
        return (yield from _check_chase(case, native))
    n, words, workers = case.iterations, case.integers["words"], case.integers["workers"]
    mask = 2 ** _bits(case) - 1
    constant, floats = pattern in _CONSTANT, np.dtype(case.dtype).kind == "f"
    worst = 0.0
    if workers == 1 and not constant:
        worst = _check_first(case, native)
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
    worst = max(worst, _wrong(_miscounted(case, columns)))
    worst = max(worst, _wrong(int(tally[:, _ITERATIONS].sum()) != runs * n))
    exact = primitive not in ("cas", "plain") or workers == 1
    exact = exact or columns.get("success_fraction") == 1.0

    if case.indices:
        worst = max(worst, _wrong(native.digest("IDX") != index))
    if constant:
        hits = runs * _hits_at(case, look)
        wanted = _after(case, old, hits)
        if exact:
            worst = max(worst, error(got, wanted))
        else:
            # Even if updates were lost, a word grows by at most the operands of its iterations.
            least = got.astype(np.float64) - old
            most = hits * float(case.integers["operand"])
            worst = max(worst, _wrong(bool(((least < 0) | (least > most)).any())))
        if primitive == "add" and not floats:
            worst = max(
                worst, _wrong(applied % 2**64 != runs * n * case.integers["operand"] % 2**64)
            )
        if primitive == "plain" and runs * n * case.integers["operand"] <= mask and not floats:
            columns["lost_fraction"] = 1 - (grown & mask) / (runs * n * case.integers["operand"])
    elif primitive in ("and", "or", "min", "max"):
        start = old.astype(case.dtype)
        holds = {
            "and": (got & ~start) == 0,
            "or": (start & ~got) == 0,
            "min": got <= start,
            "max": got >= start,
        }[primitive]
        worst = max(worst, _wrong(not holds.all()))
    elif primitive == "cas-target" and len(look) == words:
        # All stored values are values of other words, also those that a failed attempt stores.
        worst = max(worst, _wrong(not np.isin(got, old).all()))
    if not floats:
        if primitive in ("add", "cas", "cas-retry") or (primitive == "cas-target" and workers == 1):
            worst = max(worst, _wrong((grown - applied) & mask != 0))
        elif primitive == "xor":
            folded = functools.reduce(operator.xor, tally[:, _APPLIED].tolist(), 0)
            worst = max(worst, _wrong((before[1] ^ after[1] ^ folded) & mask != 0))
        elif primitive == "exchange" and returns == "used":
            worst = max(worst, _wrong((before[0] + applied - returned - after[0]) & mask != 0))
    elif primitive == "exchange" and returns == "used" and len(look) == words:
        # Sums of these whole numbers are exact.
        sums = [int(values.sum(dtype=np.float64)) for values in (old, got)]
        worst = max(worst, _wrong(sums[0] + applied - returned != sums[1]))
    how = extent(words) if exact and (constant or workers == 1) else "invariants"
    return verdict(case, worst, how, **columns)


def _hits_at(case: Case, look: IndexArray) -> IndexArray:
    """Return how many iterations access each of the words at `look` (ascending)."""
    hits = _hits(case)
    if len(look) < case.integers["words"]:
        wanted = np.zeros(case.integers["words"], dtype=bool)
        wanted[look] = True
        hits = hits[wanted[hits]]
    return np.bincount(np.searchsorted(look, hits), minlength=len(look))


def _idle(case: Case) -> dict[str, str]:
    """Return why batches have no effect, if updates are completed one by one."""
    if case.knobs.place != RANKS:
        return {}
    primitive, _, returns = case.template_variant.split("/")
    why = over_ranks.one_by_one(case.knobs.device, _pattern(case), primitive, returns)
    return {"flush_every": why} if why else {}


def _spec(pattern: str, summary: str) -> None:
    chases = pattern == "ptrchase"
    declaration = declared(f"amo.{pattern}")
    amos = declaration.amos

    def traffic(case: Case) -> Traffic:
        moved = amos * float(case.value_B)
        return Traffic(read=moved, write=moved, index=moved if pattern == "rand" else 0.0)

    def model_bytes(case: Case) -> float:
        """Count every accessed line as read and, unless it is of IDX, as written."""
        size, n = case.value_B, case.iterations
        per_line = case.line_B // size
        looked = (
            0 if pattern not in _INDEXED else (n // per_line + 1) * (1 if pattern == "rand" else 2)
        )
        if chases:
            return float(looked * case.line_B)
        places = [_hits(case)] if pattern in _CONSTANT else [case.indices["IDX"][: n + 1]]
        if pattern in ("scatter", "gather"):
            places.append(np.arange(n) * case.integers["stride"])
        lines = len(accessed(places, case.integers["words"], per_line))
        return float((2 * lines + looked) * case.line_B)

    register(
        KernelSpec(
            name=f"amo.{pattern}",
            summary=summary,
            source=CIRCUSTENT,
            arrays=declaration.arrays,
            indices=("IDX",) if pattern in _INDEXED else (),
            traffic=traffic,
            iterations=lambda case: case.integers["iters"] * case.integers["workers"],
            checks=Checks(check=_check, reference=_reference, idempotent=False, repeatable=True),
            model=Model(bytes_B=model_bytes),
            build=amo_case,
            limits=Limits(
                dtypes=(*WORD_DTYPES, *(("float64", "float32") if pattern in _CONSTANT else ())),
                index_dtypes=("int64", "int32") if pattern in _INDEXED else ("",),
                idle_knobs=("prefetch",),
                idle=_idle,
            ),
            counts=Counts(
                amos=amos, accesses=(lambda case: case.integers["iters"]) if chases else None
            ),
            template_columns=("primitive", "order", "returns"),
        )
    )


for _name, _summary in PATTERNS.items():
    _spec(_name, _summary)


@shows_options_of("amo.rand")
def amo(pattern: str, **options: Any) -> Case:
    """Case of atomic memory operations, such as ``rand`` or ``ptrchase``.

    Parameters
    ----------
    pattern : str
        One of `PATTERNS`.
    """
    return case(f"amo.{pattern}", **options)


def report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return the patterns by one worker and by all, the cost of sharing, and latencies by size."""
    workers = len(os.sched_getaffinity(0))
    ends = sorted({1, workers})
    brief: dict[str, Any] = {"budget_s": 0.05, "iters": 2**14 if quick else 2**16}
    if quick:
        return [
            amo(pattern, primitive=primitive, threads=n, **brief)
            for pattern in ("rand", "stride1", "ptrchase", "central")
            for primitive in ("add", "cas")
            for n in ends
        ]
    counts = sorted({*(2**k for k in range(workers.bit_length())), workers})
    compared = ("add", "cas", "plain")
    cases = [
        amo(pattern, primitive=primitive, threads=n, **brief)
        for pattern in PATTERNS
        for primitive in compared
        for n in (counts if primitive == "add" else ends)
    ]
    apart: list[dict[str, Any]] = [{"sharing": "private", "padding": p} for p in (0, 64, 128)]
    cases += [
        amo("central", threads=n, **how, **brief)
        for how in (*apart, {"sharing": "shared"})
        for n in counts
    ]
    most_B = min(2 * cache_B, memory_B // 16)
    # One access per line of VAL, up to a number that is quickly checked: with fewer, the caches
    # would hold all accessed lines.
    line_B = caches.line_B()
    accesses = min(most_B // line_B, 2**22)
    cases += [
        amo(
            "rand",
            primitive=primitive,
            words=most_B // 8,
            threads=workers,
            budget_s=0.05,
            iters=-(-accesses // workers),
        )
        for primitive in compared
    ]
    for size in sizes(2**14, max(min(most_B, 2**27), 2**14), 9):
        # One word per line: a chase over all words would only take longer.
        lines = size // line_B
        chain = np.arange(line_B // 8 * lines)
        chain[:: line_B // 8] = line_B // 8 * index.cycle(lines, 0)
        cases += [
            amo(
                "ptrchase",
                primitive=primitive,
                indices=chain,
                iters=lines,
                threads=1,
                repetition="free",
                budget_s=0.05,
            )
            for primitive in compared
        ]
    return cases


def gpu_report_cases(device: str, quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return the patterns on a GPU."""
    primitives = ("add", "cas") if quick else ("add", "cas", "plain")
    return [
        amo(pattern, primitive=primitive, device=device, budget_s=0.05)
        for pattern in (("rand", "stride1", "central") if quick else PATTERNS)
        for primitive in primitives
    ]
