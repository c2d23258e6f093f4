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

import os
from typing import Any

import numpy as np

from memkern import backends, small
from memkern.backends import GPUS, PROCESSORS, RANKS
from memkern.checks import integer, one_of
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
from memkern.inputs import indices
from memkern.inputs.sizes import parse_sizes, sizes
from memkern.machine import caches
from memkern.machine.declarations import declared
from memkern.machine.remote import description, refuse_faulty
from memkern.machine.topology import workers_of
from memkern.shared.cache_lines import accessed
from memkern.spec.case import Case, Checks, Counts, KernelSpec, Limits, Model
from memkern.spec.inputs import Given, row
from memkern.spec.kernel import DTYPES, WORD_DTYPES, IndexArray, Traffic
from memkern.spec.options import INTEGERS
from memkern.spec.registry import case, register, shows_options_of

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


def _rule_or_indices(value: Any, name: str) -> Any:
    """Return a rule, or IDX itself, after a check."""
    if not isinstance(value, str):
        return indices.whole_numbers(value, name)
    one_of(value, name, index.RULES)
    return value


_ROWS = (
    row(
        "memsize",
        None,
        "size of VAL (the accessed size)",
        least=1,
        most=2**50,
        unit="B",
        column="-",
        meaning="Bytes of VAL, or of its part on each rank, instead of `words`.",
    ),
    row(
        "iters",
        None,
        "iterations of each worker (262144; on a GPU 256)",
        least=1,
        most=2**40,
        goes_to=INTEGERS,
        meaning="Iterations of each worker; by default 2**18, 2**8 on a GPU, and 2**12 on ``mpi`` "
        "and ``shmem``.",
    ),
    row(
        "stride",
        1,
        "distance between words of consecutive iterations of striden (1)",
        least=1,
        most=2**40,
        meaning="Distance, in words, between consecutive iterations of striden.",
    ),
    row(
        "primitive",
        PRIMITIVES[0],
        "{choices} (add)",
        choices=PRIMITIVES,
        several=True,
        metavar="NAME,...",
        column="-",
        meaning="One of `PRIMITIVES`; see this module.",
    ),
    row(
        "order",
        ORDERS[0],
        "{choices} (relaxed)",
        where=(PROCESSORS, GPUS),
        choices=ORDERS,
        several=True,
        metavar="NAME,...",
        column="-",
        meaning="Memory order: ``relaxed``, ``acq_rel`` or ``seq_cst``.",
    ),
    row(
        "returns",
        "",
        "whether the result of an iteration's last operation is used (as in CircusTent)",
        choices=("", "used", "unused"),
        column="-",
        meaning="Whether the value that the last operation of an iteration returns is ``used`` "
        "(added up) or ``unused``, as in CircusTent; a pointer chase and a compare-and-swap always "
        "use it.",
    ),
    row(
        "words",
        None,
        "size of VAL in words",
        least=1,
        most=2**47,
        excludes=("memsize",),
        metavar="N",
        meaning="Length of VAL, or of its part on each rank; by default the number of accessed "
        "words, or with random indices the number of iterations.",
    ),
    row(
        "size_B",
        None,
        "bytes of VAL, log-spaced, or a list; where every iteration has a different word, "
        "iterations are limited to the number of words",
        low=1,
        high=2**50,
        excludes=("words", "memsize"),
        flag="sizes",
        parse=parse_sizes,
        metavar="LOW:HIGH:COUNT",
        unit="B",
        column="-",
        meaning="Bytes of VAL, or of its part on each rank, instead of `words`; where every "
        "iteration has a different word, iterations are limited to the number of words.",
    ),
    row(
        "sharing",
        SHARING[0],
        "original, private (separate words for each worker) or shared (the same for all)",
        where=(PROCESSORS, GPUS),
        choices=SHARING,
        several=True,
        metavar="HOW,...",
        meaning="``original`` as in CircusTent; ``private``: each worker has separate words; "
        "``shared``: all workers access the same words.",
    ),
    row(
        "padding",
        0,
        "distance between used words (0: adjacent)",
        least=0,
        most=2**20,
        several=True,
        metavar="BYTES,...",
        unit="B",
        column="padding_B",
        meaning="Distance, in bytes, between used words, 0 if they are adjacent; with at least 64, "
        "workers share no lines.",
    ),
    row(
        "hot",
        None,
        "words that central accesses (1)",
        least=1,
        most=2**40,
        metavar="N",
        meaning="Words that central accesses: 1, or with private sharing the number of workers.",
    ),
    row(
        "indices",
        "random",
        "generator of IDX (random)",
        where=(PROCESSORS, GPUS),
        choices=index.RULES,
        read=_rule_or_indices,
        type="indices.IndicesLike",
        column="-",
        meaning="Rule by which IDX is drawn. ``random``: uniformly among the used words, or in the "
        "pointer chase as one cycle through all (Sattolo's). ``circustent``: CircusTent's rule, "
        "which omits the last word, and whose chase soon enters a short cycle. Or IDX itself, with "
        "one element more than the number of iterations of all workers.",
    ),
    row(
        "targets",
        "",
        "on mpi and shmem, ranks whose words are accessed: {choices} (random; ring without "
        "indices)",
        where=(RANKS,),
        choices=("", *over_ranks.TARGETS),
        several=True,
        metavar="NAME,...",
        column="-",
        meaning="On ``mpi`` and ``shmem``, the ranks whose words are accessed: ``random``, "
        "``ring``, ``share`` or ``one`` (see `memkern.families.amo.over_ranks`); by default "
        "``random``, and ``ring`` for patterns without indices.",
    ),
    row(
        "remote",
        None,
        "indices of words on other ranks, for --targets share",
        where=(RANKS,),
        low=0.0,
        high=100.0,
        metavar="PERCENT",
        column="-",
        meaning="Percentage of the indices that refer to words of other ranks, for the targets "
        "``share``.",
    ),
)
# Patterns that have an input, if not all do. A pointer chase accesses its indices and no words.
_OWNERS = {
    **dict.fromkeys(("words", "memsize", "size_B", "padding"), {*PATTERNS} - {"ptrchase"}),
    "stride": {"striden"},
    "hot": {"central"},
    "indices": {*_INDEXED},
    "remote": {*PATTERNS} - {*over_ranks.FEWER},
}


def _amo(given: Given) -> Case:
    pattern, knobs, ranked = pattern_of(given), given.knobs, given.knobs.backend.over_ranks
    returns = _returns(given, pattern)
    threads = integer(knobs.threads, "threads", 0, 2**20) or workers_of(knobs.device)
    targets, nodes = _ranks(given, pattern, threads) if ranked else ("", (0,))
    ranks, workers = len(nodes), len(nodes) * threads
    separate = targets != "one" if ranked else given.sharing == "private"
    hot = given.inputs.get("hot") or (workers if separate else 1)
    layout = _layout(given, pattern, ranks, threads, targets, hot // ranks if separate else hot)
    usual = ("shared", "original") if pattern == "central" else ("shared",)
    shared = targets == "one" if ranked else given.sharing in usual
    drawn = pattern in _INDEXED
    label, idx = _indices(given, pattern, layout) if drawn else ("", np.empty(0, dtype=np.int64))
    integers = {
        "workers": workers,
        "iters": layout.iters,
        "words": ranks * layout.words,
        "stride": layout.step,
        "hot": hot,
        "shared": int(shared),
        "operand": 2**22 if given.primitive == "max" else 15 if pattern in STRIDED else 1,
    }
    columns = {
        "iters": layout.iters,
        "words": len(idx) // ranks if pattern == "ptrchase" else layout.words,
        "stride": given.inputs.get("stride", 1),
        "padding_B": given.inputs.get("padding", 0),
        "hot": hot if pattern == "central" else 0,
        "index_pattern": label,
    }
    if ranked:
        remote_share, node_share = over_ranks.remote_shares(
            pattern,
            layout,
            idx,
            lambda i: direct_places(integers, pattern, *np.divmod(i, layout.iters)),
            nodes,
        )
        integers["shift"] = layout.shift
        columns |= {"targets": targets, "remote_share": remote_share, "node_share": node_share}
    return given.case(
        integers=integers,
        indices={"IDX": idx} if drawn else {},
        index_dtype=("int64" if given.dtype.endswith("64") else "int32") if drawn else "",
        template_variant=f"{given.primitive}/{given.order}/{returns}",
        columns=columns,
        fixed={"threads": threads},
    )


def _returns(given: Given, pattern: str) -> str:
    """Return whether results are used, after a check that the primitive exists."""
    primitive, device_kind = given.primitive, given.knobs.backend.kind
    if not exists(pattern, primitive, given.order, given.dtype, device_kind):
        raise InputError(
            f"amo.{pattern} has no {primitive} in order {given.order} for {given.dtype}: exchange "
            "and floating-point types are for rand, stride1, striden and central, floating-point "
            f"types have only add except on {backends.named((RANKS,))}, plain has only order "
            f"relaxed, and cas-target is for {PROCESSORS}"
        )
    always = pattern == "ptrchase" or primitive.startswith("cas")
    if given.returns == "unused" and always:
        raise InputError(f"{primitive} in {pattern} always uses its result")
    return given.returns or ("used" if always else "unused")


def _ranks(given: Given, pattern: str, threads: int) -> tuple[str, tuple[int, ...]]:
    """Return the targets and the node of each rank, after checks of what the library has."""
    device, remote = given.knobs.device, given.inputs.get("remote")
    known = over_ranks.FEWER.get(pattern, over_ranks.TARGETS)
    over_ranks.refuse(given.knobs.backend, given.primitive, given.dtype)
    targets = given.targets or ("share" if remote is not None else known[0])
    if targets not in known:
        raise InputError(f"amo.{pattern} has no targets {targets!r}: it has {', '.join(known)}")
    if (targets == "share") != (remote is not None):
        raise InputError(
            "targets 'share' and remote (--remote), the percentage of remote operations, must be "
            "given together"
        )
    if given.inputs.get("hot") is not None and targets == "ring":
        raise InputError("the targets 'ring' have a hot word for each worker: leave out hot")
    found = description(device, threads)
    swaps_64 = given.primitive.startswith("cas") and given.dtype.endswith("64")
    refuse_faulty(found, swaps_64=swaps_64, threads=threads)
    return targets, found.nodes


def _layout(
    given: Given, pattern: str, ranks: int, threads: int, targets: str, hot: int
) -> over_ranks.Layout:
    """Return the distribution of words and iterations, with `hot` words of a rank in central."""
    word_B = np.dtype(given.dtype).itemsize
    for name in ("padding", "memsize"):
        if (given.inputs.get(name) or 0) % word_B:
            raise InputError(
                f"{name} must be a multiple of the {word_B} bytes of a word, not "
                f"{given.inputs[name]}"
            )
    # Words of central that consecutive ranks access are in the parts of different ranks.
    adjacent = 8 // word_B if targets and pattern == "central" else 1
    pad = max(1, given.inputs.get("padding", 0) // word_B)
    step = max(given.inputs.get("stride", 1) * pad, adjacent)
    size_B = given.inputs.get("memsize") or given.inputs.get("size_B")
    words = max(1, int(size_B) // word_B) if size_B else given.inputs.get("words")
    iters = small.cut(given.iters or _ITERS[given.knobs.backend.kind], 2**8)
    one = targets == "one" and pattern not in ("rand", "sg")
    workers = 1 if one or (given.sharing == "shared" and pattern in STRIDED) else threads
    # Every iteration has a different word, except in rand and central.
    if words and given.size_B is not None and pattern not in ("rand", "central"):
        iters = max(1, min(iters, ((words - 1) // step + 1) // workers))
    accessed = hot if pattern == "central" else iters * workers
    needed = step * accessed if targets else step * (accessed - 1) + 1
    if targets and pattern not in ("rand", "sg") and words:
        raise InputError(
            f"amo.{pattern} accesses {needed} words of each rank: leave out words and memsize"
        )
    length = small.cut(words or needed, max(needed, 2**12))
    share = (given.inputs.get("remote") or 0) / 100
    layout = over_ranks.Layout(ranks, threads, iters, length, step, targets, share)
    if targets:
        over_ranks.check_parts(layout, word_B)
    return layout


def _indices(given: Given, pattern: str, layout: over_ranks.Layout) -> tuple[str, IndexArray]:
    """Return IDX and its name in the record."""
    rule, seed, private = given.indices, given.knobs.seed, given.sharing == "private"
    if layout.targets:
        return rule, index.drawn_over_ranks(pattern, layout, seed)
    if not isinstance(rule, str):
        if len(rule) <= layout.iterations:
            raise InputError(
                f"indices must have {layout.iterations + 1} elements, one more than iterations, "
                f"not {len(rule)}"
            )
        return "array", rule
    if rule == "circustent" and (layout.step > 1 or private):
        raise InputError("indices 'circustent' support neither padding nor private words")
    return rule, index.drawn(pattern, rule, layout, private, seed)


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

    def traffic(case: Case) -> Traffic:
        moved = declaration.amos * float(case.value_B)
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
            inputs=tuple(row for row in _ROWS if pattern in _OWNERS.get(row.name, PATTERNS)),
            build=_amo,
            limits=Limits(
                dtypes=(*WORD_DTYPES, *(("float64", "float32") if pattern in CONSTANT else ())),
                index_dtypes=("int64", "int32") if pattern in _INDEXED else ("",),
                idle_knobs=("prefetch",),
                idle=_idle,
            ),
            counts=Counts(
                amos=declaration.amos,
                accesses=(lambda case: case.integers["iters"]) if chases else None,
            ),
            template_columns=("primitive", "order", "returns"),
        )
    )


for _name, _summary in PATTERNS.items():
    _spec(_name, _summary)


@shows_options_of("amo.rand", "amo.striden", "amo.central")
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
    most_B = min(2 * cache_B, memory_B // 16)
    # One access per line of VAL, up to a number that is quickly checked: with fewer, the caches
    # would hold all accessed lines.
    line_B = caches.line_B()
    accesses = min(most_B // line_B, 2**22)
    in_memory = {**brief, "words": most_B // 8, "iters": -(-accesses // workers)}
    cases = [
        *(
            amo(pattern, primitive=primitive, threads=n, **brief)
            for pattern in PATTERNS
            for primitive in compared
            for n in (counts if primitive == "add" else ends)
        ),
        *(
            amo("central", threads=n, sharing=sharing, padding=padding, **brief)
            for sharing, padding in [
                ("private", 0),
                ("private", 64),
                ("private", 128),
                ("shared", 0),
            ]
            for n in counts
        ),
        *(amo("rand", primitive=one, threads=workers, **in_memory) for one in compared),
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
