"""Latency: loads that each wait for the previous load, alone, in parallel, and under load.

``latency.chase`` follows one or more independent chains of addresses through the lines of a buffer.
All chains are on one cycle through all lines, with equal distances between their starts, so that
together they access every line equally often.  ``latency.loaded`` is one chain while the other
workers load and store lines of separate buffers.  In ``latency.ping_pong`` two workers alternately
write a word and wait for the other worker's word.  In ``latency.banks`` the lanes of a GPU's warp
follow chains through shared memory at a given distance in words: accesses to the same bank are
serialized.
"""

from __future__ import annotations

import dataclasses
import functools
import mmap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern import small
from memkern.checks import integer, one_of
from memkern.errors import InputError
from memkern.host import capacity
from memkern.inputs.sizes import byte_count, parse_sizes, sizes
from memkern.limits import check_memory
from memkern.machine import caches, gpu
from memkern.machine.declarations import declared
from memkern.machine.environment import cpu_list
from memkern.machine.topology import workers_of
from memkern.shared.checking import Values
from memkern.spec.case import Case, Checks, Counts, KernelSpec, Limits, Model
from memkern.spec.inputs import Given, row
from memkern.spec.kernel import Check, IndexArray, Native, Traffic, Validation, fill_values
from memkern.spec.options import INTEGERS
from memkern.spec.registry import case, register, shows_options_of

PAIRS = ("pairs", "pairs-across")
ORDERS = ("random", "in-page", "sequential", "one-per-page", *PAIRS)
CHAINS = (*range(1, 17), *range(18, 33, 2))
GPU_CHAINS = (1, 2, 4, 8, 16)
# Lines that a generator of traffic moves between two pauses (see cpp/families/latency/args.hpp).
GROUP = 8
# Columns of `ends` after those of the chains, and their number.
_ACCESSES, _ENDS = 32, 33
_LOADED, _STORED, _SUM, _FROM, _TO = range(5)
# Dependent loads of an invocation: enough for its begin and end to be negligible, and few enough to
# take only some milliseconds. The next invocation continues where the previous one ended.
_LEAST_STEPS, _MOST_STEPS = 2**12, 2**16
_WORD_B = 8
# As in cpp/families/latency/args.hpp.
_BANK_WORDS, _BANK_HOP, MOST_STRIDE = 4096, 33, 64
_WARP = 32
# Largest L1 cache of a GPU. L1 is empty at each launch, so that chases through such buffers make
# enough rounds for the first one to be negligible.
MOST_GPU_L1_B = 2**18
_LEAST_GPU_STEPS, _GPU_ROUNDS = 2**14, 64
# Each pair is in a separate part of the buffer of this size, so that prefetches for one pair do not
# serve another pair, and no pair spans two pages.
_PAIR_B = 2**12
_FARTHEST_B = _PAIR_B // 4
# Memory of a chain over its size: the order has a number for each line, and is copied.
_CHAIN_PARTS = 1.5


@functools.lru_cache(maxsize=4)
def line_order(
    order: str, size_B: int, line_B: int, seed: int = 0, distance_B: int | None = None
) -> IndexArray:
    """Return the order in which a chase accesses the lines of a buffer.

    Parameters
    ----------
    order : str
        ``random``: all lines in random order.  ``in-page``: pages in random order, and in each page
        all lines in random order, so that few accesses miss the TLB.  ``sequential``: ascending, so
        that the hardware can prefetch.  ``one-per-page``: pages in random order, one line of each,
        so that accesses miss the TLB although few lines are in use.  ``pairs``: for every 4 KiB, in
        random order, two lines `distance_B` apart, either of them first, in the same aligned block
        of twice the distance.  ``pairs-across``: the same across the boundary of two blocks.
    size_B, line_B : int
        Size of the buffer and of a line, in bytes.
    seed : int
    distance_B : int, optional
        Distance of the lines of a pair: a power of two, at least `line_B` and at most 1024.

    Returns
    -------
    ndarray of int64
        Numbers of lines, each at most once.

    Raises
    ------
    InputError
        The order is unknown, the buffer is smaller than a line, or than a page if the order uses
        pages, or the distance is out of range.

    Notes
    -----
    A random order of all lines, closed to a ring, is a uniformly random cycle, as drawn by
    Sattolo's algorithm (Information Processing Letters 22, 1986).
    """
    one_of(order, "order", ORDERS)
    if distance_B is not None and order not in PAIRS:
        raise InputError(f"distance_B is for order {' and '.join(PAIRS)}, not for {order}")
    lines = size_B // line_B
    if lines < 1:
        raise InputError(f"a buffer of {size_B} bytes has no line of {line_B} bytes")
    check_memory(24 * lines, f"the order of {lines} lines")
    rng = np.random.default_rng(seed)
    if order == "sequential":
        return np.arange(lines)
    if order == "random":
        return rng.permutation(lines)
    part_B = _PAIR_B if order in PAIRS else mmap.PAGESIZE
    per_part = max(part_B // line_B, 1)
    parts = lines // per_part
    if parts < 1:
        raise InputError(f"order {order} needs a buffer of at least {part_B} bytes, not {size_B}")
    first = rng.permutation(parts)[:, None] * per_part
    if order == "one-per-page":
        # All places in a page are used equally often: lines concentrated in few cache sets would
        # cause earlier misses than the same number of lines in any other order.
        within = rng.permutation(parts)[:, None] % per_part
    elif order in PAIRS:
        within = _pairs(rng, parts, per_part, _apart(distance_B, line_B), order != "pairs")
    else:
        within = rng.permuted(np.tile(np.arange(per_part), (parts, 1)), axis=1)
    return (first + within).ravel()


def _apart(distance_B: int | None, line_B: int) -> int:
    """Return the distance of a pair in lines."""
    distances = [2**power for power in range(_FARTHEST_B.bit_length())]
    if distance_B is None or distance_B not in distances or distance_B % line_B:
        raise InputError(
            f"distance_B must be a power of two from {line_B} to {_FARTHEST_B} and a multiple of "
            f"line_B for pairs, not {distance_B}"
        )
    return distance_B // line_B


def _pairs(
    rng: np.random.Generator, parts: int, per_part: int, apart: int, across: bool
) -> IndexArray:
    """Return the positions of two lines in each part, shape (parts, 2)."""
    block = rng.integers(0, per_part // (2 * apart) - across, parts)
    lower = (2 * block + across) * apart + rng.integers(0, apart, parts)
    # The order within a pair is random, since prefetchers learn a direction.
    return rng.permuted(np.stack([lower, lower + apart], axis=1), axis=1)


def _ring(
    given: Given, parts: float = _CHAIN_PARTS
) -> tuple[dict[str, int], IndexArray, dict[str, Any]]:
    """Return the integers, the order and the columns of a case with a chain through lines.

    By default the chain is limited so that `parts` times its size fits in memory.
    """
    order, line_B, size = given.order, given.line_B, given.size_B
    distance_B = given.inputs.get("distance_B")
    named = isinstance(order, str)
    if line_B is None:
        line_B = _WORD_B if named and order in PAIRS else caches.line_B()
    if line_B % _WORD_B:
        raise InputError(f"line_B must be a multiple of {_WORD_B}, not {line_B}")
    size_B = small.cut(capacity.from_memory(whole_B=parts) if size is None else size, 2**18)
    lines = size_B // line_B
    if isinstance(order, str):
        numbers = line_order(
            order, size_B, line_B, integer(given.option("seed"), "seed", 0), distance_B
        )
    else:
        numbers = np.asarray(order)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not len(numbers):
            raise InputError("order must be a word or a 1-d array of line numbers")
        numbers = numbers.astype(np.int64)
        if numbers.min() < 0 or len(np.unique(numbers)) < len(numbers):
            raise InputError("order must have every line at most once, and none below 0")
        if distance_B is not None:
            raise InputError(f"distance_B is for order {' and '.join(PAIRS)}, not for an array")
        lines = max(0 if size is None else lines, int(numbers.max()) + 1)
    columns = {
        "size_B": lines * line_B,
        "lines": len(numbers),
        "line_B": line_B,
        "order": order if named else "array",
    }
    return {"lines": lines, "line_B": line_B}, numbers, columns


def _workers(threads: int) -> int:
    return integer(threads, "threads", 0, 2**20) or workers_of("cpu")


_SIZE = row(
    "size_B",
    None,
    "bytes of the buffer, or a list",
    read=byte_count,
    type="float | str",
    flag="sizes",
    parse=parse_sizes,
    metavar="LOW:HIGH:COUNT",
    meaning="Size of the buffer, such as ``64KiB``; by default four times the last-level caches.",
)
_ORDER = row(
    "order",
    "random",
    f"{', '.join(ORDERS)} (random): order in which lines are accessed",
    type="str | npt.ArrayLike",
    several=True,
    metavar="NAME,...",
    meaning="One of `ORDERS` (see `line_order`), or the numbers of the lines in the order of "
    "access.",
)
_LINE = row(
    "line_B",
    None,
    "distance between loaded addresses in the buffer (a cache line); larger distances, such as "
    "4096, leave out lines",
    least=_WORD_B,
    most=2**20,
    flag="line",
    metavar="BYTES",
    meaning="Bytes from a line to the next; by default the size of a line of the caches, of pairs "
    "8.",
)
_STEPS = row(
    "steps",
    None,
    "loads of each chain in an invocation",
    least=1,
    most=2**40,
    metavar="N",
    meaning="Loads of each chain in an invocation, which continues where the previous one ended; "
    "by default enough to access every line once, at least 4096 and at most 65536, of a loaded "
    "chain 16384. On a GPU, whose L1 is empty at each launch, 64 times the number of lines, at "
    "least 16384, for buffers of at most 256 KiB.",
)
_CHAINS = row(
    "chains",
    1,
    "independent chains at the same time, 1 to 32 (1)",
    least=1,
    most=CHAINS[-1],
    several=True,
    metavar="N,...",
    goes_to=INTEGERS,
    meaning="Independent chains that each worker follows at the same time, one of `CHAINS` or, on "
    "a GPU, of `GPU_CHAINS`.",
)
_DISTANCE = row(
    "distance_B",
    None,
    "of the orders pairs and pairs-across: bytes between the two lines of a pair",
    least=_WORD_B,
    flag="distance",
    several=True,
    metavar="BYTES,...",
    meaning="Bytes between the two lines of a pair (see `line_order`).",
)


def _chase(given: Given) -> Case:
    chains, on_gpu = given.chains, given.knobs.backend.is_accelerator
    for known, where in ((CHAINS, ""), *([(GPU_CHAINS, " on a GPU")] if on_gpu else [])):
        if chains not in known:
            words = ", ".join(map(str, known))
            raise InputError(f"chains{where} must be one of {words}, not {chains}")
    if on_gpu:
        # The caches of all GPUs since 2010 have lines of this size.
        usual = {"size_B": given.size_B, "line_B": given.line_B or 128}
        if given.size_B is None:
            usual["size_B"] = 4 * int(gpu.facts(given.knobs.device)["l2_B"])
        given = dataclasses.replace(given, inputs={**given.inputs, **usual})
    ring, lines, columns = _ring(given)
    workers = _workers(given.option("threads"))
    rounds = min(max(-(-len(lines) // (workers * chains)), _LEAST_STEPS), _MOST_STEPS)
    if on_gpu and len(lines) * ring["line_B"] <= MOST_GPU_L1_B:
        rounds = max(_LEAST_GPU_STEPS, _GPU_ROUNDS * len(lines))
    steps = {"steps": given.steps or rounds}
    return given.case(
        integers={**ring, **steps, "workers": workers},
        indices={"order": lines},
        index_dtype="int64",
        columns={**columns, **steps},
        template_variant=str(chains),
        options={"variant": "simt"} if on_gpu else {"variant": "scalar", "repetition": "free"},
        fixed={"threads": workers},
    )


_OF_TRAFFIC = (
    row(
        "traffic_B",
        None,
        "of loaded: buffers of the traffic",
        read=byte_count,
        type="float | str",
        flag="traffic",
        metavar="BYTES",
        meaning="Size of the two buffers of each generator; by default the buffers of all "
        "generators together have four times the size of the last-level caches.",
    ),
    row(
        "loads",
        GROUP,
        "of loaded: lines loaded of every 8, the others stored (8,7,6,5,4,0)",
        least=0,
        most=GROUP,
        several=True,
        metavar="N,...",
        goes_to=INTEGERS,
        meaning="Number of loads, 0 to 8, among every 8 lines that a generator moves; the others "
        "are written by non-temporal stores. On processors other than x86 these may be ordinary "
        "stores; then the counted traffic does not include the write-allocate reads.",
    ),
    row(
        "pause",
        0,
        "of loaded: multiplications after every 8 lines (0 to 512)",
        least=0,
        most=2**30,
        several=True,
        metavar="N,...",
        goes_to=INTEGERS,
        meaning="Dependent multiplications of a generator after every 8 lines; more of them reduce "
        "traffic.",
    ),
)


def _loaded(given: Given) -> Case:
    parts = _CHAIN_PARTS + 1  # the traffic of all workers is as large
    ring, lines, columns = _ring(given, parts)
    if given.option("variant") == "best" and "variant" in given.options:
        raise InputError(
            "variant of latency.loaded must be simd, auto or scalar, not best, because the chain "
            "is timed and not the traffic"
        )
    # The first worker follows the chain.
    workers = _workers(given.option("threads"))
    if workers < 2:
        raise InputError(
            "latency.loaded needs at least two workers: one for the chain, others for traffic"
        )
    usual_B = max(capacity.from_memory(whole_B=parts) // (2 * (workers - 1)), 2**20)
    traffic_B = small.cut(given.traffic_B or usual_B, 2**18)
    traffic_lines = max(traffic_B // ring["line_B"], GROUP)
    steps = {"steps": given.steps or 2**14}
    return given.case(
        integers={
            **ring, **steps, "chains": 1, "workers": workers, "traffic_lines": traffic_lines
        },
        indices={"order": lines},
        index_dtype="int64",
        columns={**columns, **steps, "traffic_B": traffic_lines * ring["line_B"]},
        options={"repetition": "barrier", "variant": "simd"},
        fixed={"threads": workers},
    )  # fmt: skip


_OF_PING_PONG = (
    row(
        "lines",
        1,
        "of cores: 1: one line that both write, 2: one in each direction (1,2)",
        least=1,
        most=2,
        several=True,
        metavar="N,...",
        goes_to=INTEGERS,
        meaning="1: both workers write the same word; 2: each writes a word in a separate line, "
        "which only the other worker reads.",
    ),
    row(
        "take_by",
        "load",
        "of cores: load (then a store), swap (compare-and-swap, of one line) (load)",
        choices=("load", "swap"),
        several=True,
        metavar="NAME,...",
        column="-",
        meaning="Method by which a worker waits for the other's word and acquires the line: "
        "``load``, followed by a store, which requests the line twice; or ``swap``, a "
        "compare-and-swap, which requests it once (only with one line).",
    ),
    _LINE,
    row(
        "turns",
        2**12,
        "of cores: turns in an invocation (4096)",
        least=1,
        most=2**40,
        metavar="N",
        goes_to=INTEGERS,
        meaning="Turns of each worker in an invocation.",
    ),
)


def _ping_pong(given: Given) -> Case:
    if given.take_by == "swap" and given.lines == 2:
        raise InputError("take_by swap needs one line that both write: set lines to 1")
    if given.option("threads") not in (0, 2):
        raise InputError(f"latency.ping_pong runs 2 threads, not {given.option('threads')}")
    line_B, turns = given.line_B or caches.line_B(), small.cut(given.turns, 2**6)
    return given.case(
        integers={"line_B": line_B, "turns": turns},
        columns={"line_B": line_B, "turns": turns},
        template_variant=given.take_by,
        options={"variant": "scalar", "repetition": "free"},
        fixed={"threads": 2},
    )


_OF_BANKS = (
    row(
        "stride",
        1,
        "of banks: words between neighbouring lanes of a warp (1..32)",
        least=0,
        most=MOST_STRIDE,
        several=True,
        metavar="N,...",
        goes_to=INTEGERS,
        meaning="Distance between consecutive lanes of a warp in words, 0 (the same word) to 64. "
        "Banks are 4 bytes wide: with words of 32 bits and 32 banks, the number of lanes that "
        "access the same bank is the greatest common divisor of stride and 32.",
    ),
    row(
        "steps",
        2**14,
        "loads of each chain in an invocation",
        least=1,
        most=2**40,
        metavar="N",
        meaning="Loads of each thread in an invocation, each of which waits for the previous load.",
    ),
)


def _banks(given: Given) -> Case:
    if not given.knobs.backend.is_accelerator:
        raise InputError(
            "latency.banks reads the shared memory of a GPU: give device cuda (--device)"
        )
    steps = {"steps": small.cut(given.steps, 2**6)}
    # Blocks. Each has one warp, or the threads of `block_threads`.
    blocks = integer(given.option("threads"), "threads", 1, 2**20)
    return given.case(
        integers={**steps, "workers": blocks}, columns=steps, options={"variant": "simt"}
    )


def _ends(native: Native) -> npt.NDArray[np.uint64]:
    """Return the positions of the chains and the number of accesses, a row for each worker."""
    return native.copy_out("ends").reshape(-1, _ENDS)


def _walked(
    case: Case,
    before: npt.NDArray[np.uint64],
    after: npt.NDArray[np.uint64],
    runs: int,
) -> bool:
    """Return whether all chains advanced by the requested number of steps along the cycle."""
    n, order = case.integers, case.indices["order"]
    began, ended = (rows[:, : n["chains"]].astype(np.int64) for rows in (before, after))
    on_cycle = np.flatnonzero(np.isin(order, began // n["line_B"]))
    positions = {int(order[k] * n["line_B"]): int(k) for k in on_cycle}
    if not {*began.flat} <= positions.keys():
        return False
    at = np.array([positions[int(first)] for first in began.flat]) + runs * n["steps"]
    same = (order[at % len(order)] * n["line_B"] == ended.ravel()).all()
    followed = after[:, _ACCESSES] - before[:, _ACCESSES]
    return bool(same and (followed == runs * n["steps"] * n["chains"]).all())


def _verdict(valid: bool) -> Check:
    return Check(valid, 0.0 if valid else float("inf"), "whole")


def _check_chase(case: Case, native: Native) -> Validation:
    native.fill(outputs=True)
    native.run(1)
    before = _ends(native)
    runs = yield
    return _verdict(_walked(case, before, _ends(native), runs))


@functools.lru_cache(maxsize=2)
def _line_sums(lines: int, words: int, salt: int) -> npt.NDArray[np.uint64]:
    """Return the sum of the words of every line of a freshly filled row."""
    sums = np.empty(lines, dtype=np.uint64)
    # In parts, since the values of a row would take several times its memory.
    for first in range(0, lines, 2**16):
        at = np.arange(first * words, min(first + 2**16, lines) * words)
        values = fill_values(at, {"salt": salt}).astype(np.uint64)
        sums[first : first + 2**16] = values.reshape(-1, words).sum(axis=1)
    return sums


def _tallies(native: Native) -> npt.NDArray[np.uint64]:
    """Return the tallies of the traffic generators, a row for each generator."""
    return native.copy_out("tally").reshape(-1, 5)[1:]


def _check_loaded(case: Case, native: Native) -> Validation:
    native.fill(outputs=True)
    filled = _tallies(native)
    native.run(1)
    before, tally = _ends(native)[:1], _tallies(native)
    runs = yield
    after, moved = _ends(native)[:1], _tallies(native)
    valid = _walked(case, before, after, runs)
    loads, lines, line_B = (case.integers[k] for k in ("loads", "traffic_lines", "line_B"))
    loaded, stored = (int((moved - tally)[:, k].sum()) for k in (_LOADED, _STORED))
    valid = valid and loaded * (GROUP - loads) == stored * loads
    line_sums = _line_sums(lines, line_B // _WORD_B, int(native.arrays()["source"]["salt"]))
    for number, (first, old, new) in enumerate(zip(filled, tally, moved, strict=True), start=1):
        valid = valid and _generated(old, new, loads, lines, line_sums)
        valid = valid and _stored(case, native, number, first, new)
    return _verdict(valid)


def _generated(
    old: npt.NDArray[np.uint64],
    new: npt.NDArray[np.uint64],
    loads: int,
    lines: int,
    line_sums: npt.NDArray[np.uint64],
) -> bool:
    """Return whether a generator's sums and positions match its counts of lines."""
    for each, moved, position in ((loads, _LOADED, _FROM), (GROUP - loads, _STORED, _TO)):
        if not each:
            continue
        groups_of_row = lines // each
        begin, count = int(old[position]) // each, int(new[moved] - old[moved]) // each
        if int(new[position]) != (begin + count) % groups_of_row * each:
            return False
        if moved == _LOADED:
            sums = line_sums[: groups_of_row * each].reshape(groups_of_row, each).sum(axis=1)
            total = int(sums.sum()) * (count // groups_of_row)
            total += int(np.roll(sums, -begin)[: count % groups_of_row].sum())
            if total % 2**64 != int(new[_SUM] - old[_SUM]):
                return False
    return True


def _stored(
    case: Case,
    native: Native,
    worker: int,
    filled: npt.NDArray[np.uint64],
    new: npt.NDArray[np.uint64],
) -> bool:
    """Return whether a generator's target contains exactly the lines stored since it was filled."""
    stores = GROUP - case.integers["loads"]
    if not stores:
        return True
    lines, words = case.integers["traffic_lines"], case.integers["line_B"] // _WORD_B
    groups_of_row = lines // stores
    done = int(new[_STORED] - filled[_STORED]) // stores
    end = int(new[_TO]) // stores
    salt = {"salt": int(native.arrays()["target"]["salt"])}
    # In parts, as in `_line_sums`.
    for first in range(0, lines, 2**16):
        line = np.arange(first, min(first + 2**16, lines))
        at = line[:, None] * words + np.arange(words)
        ago = (end - 1 - line // stores) % groups_of_row
        written = (ago < done) & (line < groups_of_row * stores)
        last = new[_STORED] - (np.uint64(stores) * (ago + 1).astype(np.uint64))
        expected = np.where(
            written[:, None], last[:, None], fill_values(at, salt).astype(np.uint64)
        )
        if (native.peek("target", worker * lines * words + at.ravel()) != expected.ravel()).any():
            return False
    return True


def _check_ping_pong(case: Case, native: Native) -> Validation:
    native.fill(outputs=True)
    before = native.copy_out("tally").reshape(2, 2)
    runs = yield
    turns, wrong = (native.copy_out("tally").reshape(2, 2) - before).T
    return _verdict(bool((turns == runs * case.integers["turns"]).all() and not wrong.any()))


def _ended(case: Case, threads: int) -> IndexArray:
    """Return the words at which the chains of a block's threads end."""
    number = np.arange(threads)
    first = number % _WARP * case.integers["stride"] + number // _WARP
    return (first + _BANK_HOP * case.integers["steps"]) % _BANK_WORDS


def _check_banks(case: Case, native: Native) -> Validation:
    native.fill(outputs=True)
    yield
    threads = int(native.obtained()["block_threads"])
    ends = native.copy_out("ends").reshape(case.integers["workers"], -1)[:, :threads]
    return _verdict(bool((ends == _ended(case, threads).astype(np.uint64)).all()))


def _reference_banks(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
    ends = np.array(arrays["ends"], copy=True).reshape(case.integers["workers"], -1)
    threads = case.knobs.block_threads or _WARP
    ends[:, :threads] = _ended(case, threads)
    return {"ends": ends.reshape(np.shape(arrays["ends"]))}


def _reference_chase(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
    n, order = case.integers, case.indices["order"]
    ends = np.array(arrays["ends"], copy=True).reshape(-1, _ENDS)
    every = n["workers"] * n["chains"]
    # As the extension computes them.
    begin = np.array([int(chain / every * len(order)) for chain in range(every)])
    positions = (begin.reshape(-1, n["chains"]) + n["steps"]) % len(order)
    ends[:, : n["chains"]] = order[positions] * n["line_B"]
    ends[:, _ACCESSES] += np.uint64(n["steps"] * n["chains"])
    return {"ends": ends.reshape(np.shape(arrays["ends"]))}


def _reference_ping_pong(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
    tally = np.array(arrays["tally"], copy=True).reshape(2, 2)
    tally[:, 0] += np.uint64(case.integers["turns"])
    return {"tally": tally.reshape(np.shape(arrays["tally"]))}


# What the two kernels with chains through memory have in common.
_OF_CHAINS: dict[str, Any] = {
    "indices": ("order",),
    "traffic": lambda case: Traffic(read=float(_WORD_B)),
    "model": Model(bytes_B=lambda case: float(case.integers["line_B"] * case.iterations)),
    "limits": Limits(dtypes=("uint64",), index_dtypes=("int64",), idle_knobs=("prefetch",)),
}

register(
    KernelSpec(
        name="latency.chase",
        summary="p = *p, for each chain p",
        source="McVoy and Staelin, lmbench: Portable Tools for Performance Analysis, USENIX 1996",
        arrays=declared("latency.chase").arrays,
        iterations=lambda case: (
            case.integers["steps"] * case.integers["chains"] * case.integers["workers"]
        ),
        checks=Checks(
            check=_check_chase, reference=_reference_chase, idempotent=False, repeatable=True
        ),
        inputs=(_SIZE, _ORDER, _CHAINS, _LINE, _DISTANCE, _STEPS),
        build=_chase,
        usual={"threads": 1},
        counts=Counts(accesses=lambda case: case.integers["steps"] * case.integers["chains"]),
        **_OF_CHAINS,
    )
)
register(
    KernelSpec(
        name="latency.loaded",
        summary="p = *p by one worker; by the others sum += source[i] and target[i] = count",
        source="Esmaili-Dokht et al., A Mess of Memory System Benchmarking, Simulation and "
        "Application Profiling, MICRO 2024",
        arrays=declared("latency.loaded").arrays,
        iterations=lambda case: case.integers["steps"],
        checks=Checks(
            check=_check_loaded,
            # The amount of traffic depends on time.
            reference=lambda case, arrays: {},
            idempotent=False,
            repeatable=True,
        ),
        inputs=(_SIZE, _ORDER, _LINE, _STEPS, *_OF_TRAFFIC),
        build=_loaded,
        counts=Counts(accesses=lambda case: case.integers["steps"]),
        **_OF_CHAINS,
    )
)
register(
    KernelSpec(
        name="latency.ping_pong",
        summary="while (*theirs < turn); *mine = turn + 1",
        source="nviennot, core-to-core-latency, 2022; multichase's pingpong, Google 2015",
        arrays=declared("latency.ping_pong").arrays,
        traffic=lambda case: Traffic(),
        iterations=lambda case: case.integers["turns"],
        checks=Checks(
            check=_check_ping_pong,
            reference=_reference_ping_pong,
            idempotent=False,
            repeatable=True,
        ),
        inputs=_OF_PING_PONG,
        build=_ping_pong,
        limits=Limits(dtypes=("uint64",), idle_knobs=("prefetch",)),
        template_columns=("take_by",),
        counts=Counts(
            # An access is the time from one worker's write to the other worker's answer.
            accesses=lambda case: 2 * case.integers["turns"],
        ),
    )
)


register(
    KernelSpec(
        name="latency.banks",
        summary="i = shared[i], by each lane of a warp",
        source="Mei and Chu, Dissecting GPU Memory Hierarchy Through Microbenchmarking, IEEE TPDS "
        "28 (2017), section 6.2",
        arrays=declared("latency.banks").arrays,
        traffic=lambda case: Traffic(),
        iterations=lambda case: case.integers["steps"],
        checks=Checks(check=_check_banks, reference=_reference_banks),
        inputs=_OF_BANKS,
        build=_banks,
        usual={"threads": 1},
        limits=Limits(dtypes=("uint32", "uint64")),
        counts=Counts(accesses=lambda case: case.integers["steps"]),
    )
)


@shows_options_of("latency.chase")
def latency(size_B: float | str | None = None, **options: Any) -> Case:
    """Case of a chase: loads that each wait for the previous load.

    Parameters
    ----------
    size_B : float or str, optional
        Size of the buffer; by default four times the last-level caches.
    """
    return case("latency.chase", size_B=size_B, **options)


def numa_cases(
    nodes: Sequence[Mapping[str, Any]],
    units: Collection[int],
    memories: Collection[int] | None = None,
    **options: Any,
) -> list[Case]:
    """Return a chase and a triad from the units of each NUMA node to the memory of each node.

    Parameters
    ----------
    nodes : sequence of mapping
        As in an environment: ``node``, ``cpus`` (such as ``0-3,8``, empty for a node with only
        memory) and ``memory_B`` (0 for a node with only units, None if unknown). Without nodes, all
        units belong to node 0, and memory is placed by first touch.
    units : collection of int
        Processing units that may be used.
    memories : collection of int, optional
        Nodes whose memory may be used; by default all.
    **options
        Fields of `memkern.Knobs` and `memkern.Stop`, and the ``size_B`` of the chase.

    Returns
    -------
    list of Case
        Their names are ``units of node A, memory of node B``.

    Raises
    ------
    InputError
        No node has units that may be used, or an option is out of range.
    """
    size_B = options.pop("size_B", None)
    parts = [(node["node"], sorted({*cpu_list(node["cpus"])} & {*units})) for node in nodes]
    positions = {
        node["node"]: {"numa": f"node:{node['node']}"}
        for node in nodes
        if node["memory_B"] != 0 and (memories is None or node["node"] in memories)
    }
    if not nodes:
        parts, positions = [(0, sorted({*units}))], {0: {}}
    cases = []
    for near, own in parts:
        for far, position in positions.items() if own else ():
            how = options | position | {"name": f"units of node {near}, memory of node {far}"}
            pin = ",".join(map(str, own))
            cases += [
                latency(size_B, pin=str(own[0]), **how),
                case("stream.triad", threads=len(own), pin=pin, **how),
            ]
    if not cases:
        raise InputError("no NUMA node has processing units that this process may use")
    return cases


def octaves(low_B: int, high_B: int, each: int) -> list[int]:
    """Return sizes from `low_B` to `high_B`, `each` per octave."""
    return sizes(low_B, high_B, round(each * np.log2(high_B / low_B)) + 1)


def structure_cases(cache_B: int, line_B: int, memory_B: float, **options: Any) -> list[Case]:
    """Return the chases that determine capacities of caches, reaches of TLBs, and line sizes.

    Parameters
    ----------
    cache_B, line_B : int
        Bytes of the last-level caches and of a line, as the system reports them.
    memory_B : float
        Bytes that may be allocated.
    **options
        Fields of `memkern.Knobs` and `memkern.Stop`.

    Returns
    -------
    list of Case
        Lines in random order, four sizes per octave from 1 KiB to four times the caches; the same
        numbers of lines in separate pages, 16 to 131072; pairs 8 to 1024 bytes apart, in a buffer
        whose lines fit in L2 but not in L1, and in the largest buffer.
    """
    largest = int(min(max(4 * cache_B, 2**26), memory_B / 8))
    dense = octaves(2**10, largest, 4)
    # Many times more than the TLBs of any processor.
    most = min(2**17, memory_B / 8 / mmap.PAGESIZE)
    counts = [n for n in dict.fromkeys(size // line_B for size in dense) if 16 <= n <= most]
    # Pages of other sizes than 4 KiB can only be requested as the default.
    pages = "4k" if mmap.PAGESIZE == 2**12 else "default"
    # Pairs in a buffer of 8 MiB have 2048 or 4096 lines, which fit in L2 but not in L1.
    return [
        *(latency(size, **options) for size in dense),
        *(latency(n * mmap.PAGESIZE, order="one-per-page", pages=pages, **options) for n in counts),
        *(
            latency(size, order=order, distance_B=distance, **options)
            for size in (2**23, largest)
            for order in PAIRS
            for distance in (8, 16, 32, 64, 128, 256, 512, _FARTHEST_B)
        ),
    ]


def report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return chases from 8 KiB to beyond the caches, and chains of loads in the largest buffer."""
    largest = min(max(2 * cache_B, 2**24), memory_B // 16, 2**28)
    count = max(round((0.5 if quick else 2) * np.log2(largest / 2**13)), 1) + 1
    brief: dict[str, Any] = {"budget_s": 0.05}
    chases = [latency(size, **brief) for size in sizes(2**13, largest, count)]
    chains = (8, 32) if quick else (2, 4, 8, 16, 32)
    return [*chases, *(latency(largest, chains=number, **brief) for number in chains)]


def gpu_report_cases(device: str, quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return chases on a GPU from 4 KiB to four times its cache, and bank conflicts."""
    brief: dict[str, Any] = {"budget_s": 0.05, "invocations": 1, "device": device}
    lengths = octaves(2**12, min(4 * cache_B, memory_B // 4), 1 if quick else 2)
    variants = ("simt",) if quick else ("simt", "l2")
    chases = [latency(size, variant=variant, **brief) for size in lengths for variant in variants]
    strides = (1, 2, 4, 8, 16, 32) if quick else range(1, 33)
    return [*chases, *(case("latency.banks", stride=stride, **brief) for stride in strides)]
