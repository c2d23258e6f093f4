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
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern import small
from memkern.backends import GPUS, PROCESSORS, RANKS, named
from memkern.checks import integer, one_of, shown
from memkern.errors import InputError
from memkern.families.amo import index, over_ranks
from memkern.families.amo.checks import (
    CONSTANT,
    STRIDED,
    check_updates,
    direct_places,
    hit_words,
    pattern_of,
    updated,
)
from memkern.families.amo.over_ranks import Layout
from memkern.inputs import indices
from memkern.inputs.sizes import sizes
from memkern.machine import caches
from memkern.machine.declarations import declared
from memkern.machine.remote import description, refuse_faulty
from memkern.shared.cache_lines import accessed
from memkern.spec.case import Case, Checks, Counts, KernelSpec, Limits, Model
from memkern.spec.kernel import DTYPES, WORD_DTYPES, IndexArray, Traffic
from memkern.spec.options import Knobs
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
# A GPU has thousands of times more workers; operations on other ranks take microseconds.
_ITERS = {PROCESSORS: 2**18, GPUS: 2**8, RANKS: 2**12}


def exists(
    pattern: str,
    primitive: str,
    order: str = "relaxed",
    dtype: str = "uint64",
    device_kind: str = PROCESSORS,
) -> bool:
    """Return whether a pattern has a primitive in a memory order, for a type.

    Over ranks, the primitives for a type depend on the library (see `over_ranks.refuse`).
    """
    floats = dtype in DTYPES
    return not (
        (pattern not in CONSTANT and (primitive == "exchange" or floats))
        or (floats and device_kind != RANKS and primitive not in ("add", "plain"))
        or (primitive == "cas-target" and device_kind != PROCESSORS)
        or (primitive == "plain" and order != "relaxed")
    )


def amo_case(  # noqa: C901, PLR0913
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
    if not exists(pattern, primitive, order, dtype, knobs.backend.kind):
        raise InputError(
            f"amo.{pattern} has no {primitive} in order {order} for {dtype}: exchange and "
            "floating-point types are for rand, stride1, striden and central, floating-point types "
            f"have only add except on {named((RANKS,))}, plain has only order relaxed, and "
            f"cas-target is for {PROCESSORS}"
        )
    always = pattern == "ptrchase" or primitive.startswith("cas")
    if returns == "unused" and always:
        raise InputError(f"{primitive} in {pattern} always uses its result")
    returns = returns or ("used" if always else "unused")
    size = np.dtype(dtype).itemsize
    threads = integer(threads, "threads", 0, 2**20)
    ranks = 1
    if knobs.backend.over_ranks:
        over_ranks.refuse(
            knobs.backend,
            primitive=primitive,
            order=order,
            dtype=dtype,
            sharing=sharing,
            drawn=indices,
        )
        targets = over_ranks.targets_of(pattern, targets, remote)
        if hot is not None and targets == "ring":
            raise InputError("the targets 'ring' have a hot word for each worker: leave out hot")
        found = description(knobs.device, threads)
        refuse_faulty(found, swaps_64=primitive.startswith("cas") and size == 8, threads=threads)
        ranks = found.ranks
    elif targets or remote is not None:
        raise InputError(
            f"targets and remote are for {named((RANKS,))}: leave them out on {knobs.device}"
        )
    from memkern.machine.topology import workers_of

    threads = threads or workers_of(knobs.device)
    workers = ranks * threads
    usual = _ITERS[knobs.backend.kind]
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
    usual = workers if sharing == "private" else 1
    hot = integer(usual if hot is None else hot, "hot", 1, 2**40)
    arrays: dict[str, IndexArray] = {}
    label = ""
    if pattern not in _INDEXED and not (isinstance(indices, str) and indices == "random"):
        raise InputError(f"amo.{pattern} has no indices")
    if knobs.backend.over_ranks:
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
        same_words = sharing == "shared" and pattern in STRIDED
        accessed = hot if pattern == "central" else iters if same_words else iters * workers
        length = _words(words, memsize, size, (accessed - 1) * step + 1)
        shared = sharing == "shared" or (pattern == "central" and sharing == "original")
        if pattern in _INDEXED:
            label, arrays["IDX"] = _build_indices(
                indices, pattern, (length - 1) // pad + 1, pad, iters, workers, sharing, seed
            )
    integers = {
        "workers": workers,
        "iters": iters,
        "words": ranks * length,
        "stride": step,
        "hot": hot,
        "shared": int(shared),
        "operand": 2**22 if primitive == "max" else 15 if pattern in STRIDED else 1,
    }
    columns: dict[str, Any] = {
        "iters": iters,
        "words": len(arrays["IDX"]) // ranks if pattern == "ptrchase" else length,
        "stride": stride,
        "sharing": sharing,
        "padding_B": padding,
        "hot": hot if pattern == "central" else 0,
        "index_pattern": label,
    }
    if knobs.backend.over_ranks:
        remote_share, node_share = over_ranks.remote_shares(
            pattern,
            layout,
            arrays.get("IDX", np.empty(0, dtype=np.int64)),
            lambda i: direct_places(integers, pattern, *np.divmod(i, iters)),
            found.nodes,
        )
        integers["shift"] = layout.shift
        columns |= {"targets": targets, "remote_share": remote_share, "node_share": node_share}
    return Case(
        find(kernel),
        integers=integers,
        indices=arrays,
        dtype=dtype,
        index_dtype=("int64" if size == 8 else "int32") if arrays else "",
        template_variant=f"{primitive}/{order}/{returns}",
        columns=columns,
    ).with_(threads=threads, seed=seed, **options)


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
    positions: int,
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
    return rule, index.drawn(
        pattern, rule, positions, pad, iters, workers, sharing == "private", seed
    )


def _idle(case: Case) -> dict[str, str]:
    """Return why batches have no effect, if updates are completed one by one."""
    if not case.knobs.backend.over_ranks:
        return {}
    primitive, _, returns = case.template_variant.split("/")
    why = over_ranks.one_by_one(case.knobs.backend, pattern_of(case), primitive, returns)
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
        positions = [hit_words(case)] if pattern in CONSTANT else [case.indices["IDX"][: n + 1]]
        if pattern in ("scatter", "gather"):
            positions.append(np.arange(n) * case.integers["stride"])
        lines = len(accessed(positions, case.integers["words"], per_line))
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
            checks=Checks(
                check=check_updates, reference=updated, idempotent=False, repeatable=True
            ),
            model=Model(bytes_B=model_bytes),
            build=amo_case,
            limits=Limits(
                dtypes=(*WORD_DTYPES, *(("float64", "float32") if pattern in CONSTANT else ())),
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
    return [
        amo(pattern, primitive=primitive, device=device, budget_s=0.05)
        for pattern in (("rand", "stride1", "central") if quick else PATTERNS)
        for primitive in (("add", "cas") if quick else ("add", "cas", "plain"))
    ]
