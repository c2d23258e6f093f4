"""The verb amo: atomic memory operations, with CircusTent's options and names."""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from memkern.checks import read_number, shown
from memkern.cli.measuring import (
    beside,
    exit_code,
    health_of,
    line,
    marks,
    measure,
    plus_minus,
    warn,
)
from memkern.cli.options import (
    GOOD,
    MEASURE,
    argument,
    argument_group,
    checked,
    count,
    each,
    given,
    knobs_of,
    measuring_options,
    numbers,
    options_by_kernel,
    refuse,
    verb,
    words,
)
from memkern.errors import InputError
from memkern.families.amo import index
from memkern.families.amo import kernels as amo
from memkern.families.amo.over_ranks import TARGETS
from memkern.inputs.sizes import parse_sizes
from memkern.spec import registry
from memkern.spec.case import Case
from memkern.spec.kernel import DTYPES, WORD_DTYPES
from memkern.spec.options import Knobs
from memkern.spec.sequences import joined, product

_RULE = "=" * 48


def _benchmarks(device_kind: str) -> dict[str, tuple[str, str]]:
    """Return pattern and primitive of every benchmark, by its name in CircusTent's style.

    Its CAS is ``cas-target`` where this is available, and ``cas`` elsewhere.
    """
    return {
        _benchmark(pattern, primitive): (pattern, primitive)
        for pattern, primitive in itertools.product(amo.PATTERNS, amo.PRIMITIVES)
        if amo.exists(pattern, primitive, device_kind=device_kind)
    }


def _benchmark(pattern: str, primitive: str) -> str:
    """Return the name of a benchmark in CircusTent's style."""
    return f"{pattern}_{primitive.removesuffix('-target')}".upper()


def _list(device_kind: str) -> int:
    line("BENCHMARK | REQUIRED_OPTIONS | DESCRIPTION")
    for name, (pattern, primitive) in _benchmarks(device_kind).items():
        needs = "stride" if pattern == "striden" else "No Arg Required"
        summary = registry.find(f"amo.{pattern}").summary
        line(f" - {name} | {needs} | {summary}, AMO {primitive}")
    return GOOD


def _requested(args: argparse.Namespace, device_kind: str) -> list[tuple[str, str]]:
    """Return the requested pairs of pattern and primitive."""
    if args.bench is None:
        patterns = list(amo.PATTERNS) if args.kernel is None else each(args.kernel)
        primitives = each(args.primitive or _default("primitive"))
        return list(itertools.product(patterns, primitives))
    if args.kernel is not None:
        raise InputError("--bench and --kernel exclude each other")
    known = _benchmarks(device_kind)
    for name in args.bench:
        if name.upper() not in known:
            raise InputError(f"benchmark {shown(name)} is unknown: --list prints all")
    return [known[name.upper()] for name in args.bench]


def _owners() -> dict[str, list[str]]:
    """Return the kernels that accept each option, for options that not all kernels accept."""
    # A pointer chase accesses its indices and no other words.
    arrays = [f"amo.{pattern}" for pattern in amo.PATTERNS if pattern != "ptrchase"]
    kernels = {f"amo.{pattern}": registry.find(f"amo.{pattern}") for pattern in amo.PATTERNS}
    return {
        **dict.fromkeys(("words", "memsize", "sizes", "padding"), arrays),
        "stride": ["amo.striden"],
        "hot": ["amo.central"],
        "indices": [name for name, spec in kernels.items() if spec.indices],
    }


def _amo(args: argparse.Namespace) -> int:  # noqa: C901
    knobs = knobs_of(args)
    device_kind = Knobs(device=knobs.get("device", "cpu")).backend.kind
    if args.list:
        return _list(device_kind)
    requested = _requested(args, device_kind)
    knobs.pop("threads", None)
    if knobs.pop("flush_every", None) is not None:
        # Set for each case, since its effect depends on pattern and primitive.
        args.flush_every = each(args.flush_every)
    if knobs.pop("index_dtype", None) is not None:
        raise InputError("--index-dtype is not for amo: indices are as wide as the words")
    knobs |= given(args, "returns", "iters", "remote")
    everywhere = args.bench is None and args.kernel is None
    if args.sizes is not None:
        refuse(args, "with --sizes, which determines the size", words=None, memsize=None)
    options = given(args, "words", "memsize", "sizes", "hot", "indices", "stride", "padding")
    patterns = [f"amo.{pattern}" for pattern in dict.fromkeys(pattern for pattern, _ in requested)]
    owners = _owners()
    if args.bench is not None:
        # CircusTent requires both for all benchmarks, even where they have no effect.
        for name in sorted({"memsize", "stride"} & {*options}):
            if not {*owners[name]} & {*patterns}:
                warn(f"{', '.join(patterns)} takes no --{name}: {options.pop(name)} is not used")
    own_of = options_by_kernel(options, owners, patterns)
    orders = each(args.order or _default("order"))
    dtype = args.dtype or _default("dtype")
    listed = {
        "sharing": args.sharing,
        "targets": args.targets,
        "threads": args.threads if args.pes is None else args.pes,
    }
    parts = []
    for (pattern, primitive), order in itertools.product(requested, orders):
        if everywhere and not amo.exists(pattern, primitive, order, dtype, device_kind):
            continue
        own = knobs | own_of[f"amo.{pattern}"] | {"primitive": primitive, "order": order}
        sizes = own.pop("sizes", None)
        lists = {**listed, "padding": own.pop("padding", None)}
        axes = {name: each(value) for name, value in lists.items() if value is not None}
        if sizes is not None:
            axes = {"size_B": parse_sizes(sizes), **axes}
        parts.append(product(functools.partial(_case, pattern, own), axes))
    if not parts:
        primitives = ", ".join(dict.fromkeys(primitive for _, primitive in requested))
        raise InputError(f"no pattern has {primitives} in order {', '.join(orders)} for {dtype}")
    args.threads = None  # the cases already have their numbers of workers
    if args.bench is None:
        answers = [_false_sharing, health_of]
        return exit_code(measure(joined(parts), args, _HEADER, _row, _SHOWN, answers=answers))
    circustent = beside(
        "CircusTent",
        "memkern takes the shortest time of several samples, CircusTent times one pass",
    )
    return exit_code(
        measure(joined(parts), args, "", _as_circustent, answers=[circustent, health_of])
    )


def _default(option: str) -> str:
    """Return the default of an option of the kernels."""
    return str(registry.options_of(registry.find("amo.rand"))[option])


def _case(pattern: str, own: dict[str, Any], size_B: int | None = None, **listed: Any) -> Case:
    """Return a case, with a VAL of `size_B` bytes if given."""
    options = own | listed
    if size_B is not None:
        options |= _of_size(pattern, size_B, options)
    return registry.case(f"amo.{pattern}", **options)


def _of_size(pattern: str, size_B: int, options: dict[str, Any]) -> dict[str, int]:
    """Return words and iterations for a VAL of `size_B` bytes."""
    from memkern.machine.topology import workers_of

    options = registry.options_of(registry.find(f"amo.{pattern}")) | options
    word_B = int(np.dtype(options["dtype"]).itemsize)
    words, iters = max(1, size_B // word_B), options["iters"]
    if pattern not in ("rand", "central"):
        step = options.get("stride", 1) * max(1, options["padding"] // word_B)
        same_words = options["sharing"] == "shared" and pattern in ("stride1", "striden")
        workers = 1 if same_words else options["threads"] or workers_of(options["device"])
        iters = max(1, min(iters, ((words - 1) // step + 1) // workers))
    return {"words": words, "iters": iters}


_HEADER = (
    f"{'case':<4} {'pattern':<9} {'primitive':<10} {'order':<8} {'returns':<7} {'sharing':<9} "
    f"{'thr':>3} {'words':>10} {'time_min_s':>11} {'GAMS':>9} {'ns/AMO':>8} {'±%':>5}"
)


_SHOWN = ("primitive", "order", "returns", "sharing", "targets", "threads", "words")
# Columns that the two cases of false sharing have in common.
_SAME = (
    "kernel",
    "primitive",
    "order",
    "returns",
    "threads",
    "ranks",
    "dtype",
    "variant_requested",
)
_LINE_B = 64


def _row(number: int, record: dict[str, Any]) -> str:
    remarks = marks(record)
    if "success_fraction" in record:
        remarks.append(f"{record['success_fraction']:.3f} succeed")
    if record.get("lost_fraction", 0) > 0:
        remarks.append(f"{record['lost_fraction']:.3f} lost")
    workers = record["threads"] * record["ranks"]
    whose = record.get("targets", record["sharing"])
    return (
        f"{number:<4} {record['kernel'].partition('.')[2]:<9} {record['primitive']:<10} "
        f"{record['order']:<8} {record['returns']:<7} {whose:<9} "
        f"{workers:>3} {record['words']:>10} {record['time_min_s']:>11.4g} "
        f"{record['rate_GAMS']:>9.4f} {workers / record['rate_GAMS']:>8.2f} "
        f"{plus_minus(record):>5} {', '.join(remarks)}"
    ).rstrip()


def _false_sharing(results: Iterable[dict[str, Any]]) -> str:
    """Return a sentence for each case with private words in one line and in several.

    It is empty if the cases do not differ in the padding of private words.
    """
    cases: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for record in results:
        if record["sharing"] == "private" and record["threads"] * record["ranks"] > 1:
            same = (*(record[name] for name in _SAME), record["repeat"])
            cases.setdefault(same, {})[record["padding_B"]] = record
    return "\n".join(
        _cost_of_sharing(paddings[min(paddings)], paddings[max(paddings)])
        for paddings in cases.values()
        if max(paddings) >= _LINE_B > min(paddings)
    )


def _cost_of_sharing(beside: dict[str, Any], apart: dict[str, Any]) -> str:
    """Return the sentence on words of workers in one line, and the same words in several."""
    from memkern.results.ratios import ratio

    pattern = beside["kernel"].partition(".")[2]
    what = (
        f"false sharing ({pattern} {beside['primitive']}, {beside['order']}) of "
        f"{beside['threads']} threads"
    )
    longer = ratio(apart, beside, "rate_GAMS")
    unsure = dict.fromkeys([*marks(beside), *marks(apart)])
    if unsure and not longer.in_turns:
        return f"what {what} costs can't be told: a record is {', '.join(unsure)}"
    ns = [1 / record["rate_GAMS"] * record["threads"] for record in (beside, apart)]
    values = "" if unsure else f" ({ns[0]:.3g} and {ns[1]:.3g} ns)"
    return (
        f"{what}: an operation on adjacent words takes {longer.text()} times as long as one on "
        f"words {apart['padding_B']} B apart{values}"
    )


def _as_circustent(number: int, record: dict[str, Any]) -> str:
    name = _benchmark(record["kernel"].partition(".")[2], record["primitive"])
    words = {"INVALID": "FAILED ITS VALIDATION"}
    mark = "".join(f"\n {words.get(word, word.upper())}" for word in marks(record))
    return (
        f"RUNNING WITH NUM_THREADS = {record['threads'] * record['ranks']}\n"
        f"{_RULE}\n Benchmark Kernel     : {name}\n"
        f" Timing (secs)        : {record['time_min_s']:.6g}\n"
        f" Giga AMOs/sec (GAMS) : {record['rate_GAMS']:.6g}{mark}\n{_RULE}"
    )


AMO_VERB = verb(
    "amo",
    MEASURE,
    "atomic memory operations in CircusTent's patterns",
    _amo,
    (
        "memkern amo -b RAND_ADD -m 1000000000 -p 2 -i 1000000",
        "memkern amo --primitive add,cas,plain --threads 1,2",
        "memkern amo --kernel central --sharing private --padding 0,64",
    ),
    argument_group(
        "options of CircusTent",
        argument(
            *("-b", "-bench", "--bench"),
            action="append",
            metavar="NAME",
            help="benchmark such as RAND_ADD or RAND_CAS (by cas-target); the output is "
            "CircusTent's",
        ),
        argument(
            *("-m", "-memsize", "--memsize"),
            type=count(1),
            metavar="BYTES",
            help="size of VAL (the accessed size)",
        ),
        argument(
            *("-p", "-pes", "--pes"),
            type=numbers(1, "pes"),
            metavar="N,...",
            help="workers, as --threads",
        ),
        argument(
            *("-i", "-iters", "--iters"),
            type=count(1),
            metavar="N",
            help="iterations of each worker (262144; on a GPU 256)",
        ),
        argument(
            *("-s", "-stride", "--stride"),
            type=count(1),
            metavar="WORDS",
            help="distance between words of consecutive iterations of striden (1)",
        ),
        argument(
            "-l", "-list", "--list", action="store_true", help="list the benchmarks of --bench"
        ),
    ),
    argument_group(
        "atomics",
        argument(
            "--kernel", type=words, metavar="NAME,...", help=", ".join(amo.PATTERNS) + " (all)"
        ),
        argument(
            "--primitive", type=words, metavar="NAME,...", help=", ".join(amo.PRIMITIVES) + " (add)"
        ),
        argument(
            "--order", type=words, metavar="NAME,...", help=", ".join(amo.ORDERS) + " (relaxed)"
        ),
        argument(
            "--returns",
            choices=("used", "unused"),
            help="whether the result of an iteration's last operation is used (as in CircusTent)",
        ),
        argument("--words", type=count(1), metavar="N", help="size of VAL in words"),
        argument(
            "--sizes",
            metavar="LOW:HIGH:COUNT",
            help="bytes of VAL, log-spaced, or a list; where every iteration has a different word, "
            "iterations are limited to the number of words",
        ),
        argument(
            "--sharing",
            type=words,
            metavar="HOW,...",
            help="original, private (separate words for each worker) or shared (the same for all)",
        ),
        argument(
            "--padding",
            type=numbers(0, "padding"),
            metavar="BYTES,...",
            help="distance between used words (0: adjacent)",
        ),
        argument("--hot", type=count(1), metavar="N", help="words that central accesses (1)"),
        argument("--indices", choices=index.RULES, help="generator of IDX (random)"),
        argument(
            "--targets",
            type=words,
            metavar="NAME,...",
            help=f"on mpi and shmem, ranks whose words are accessed: {', '.join(TARGETS)} (random; "
            "ring without indices)",
        ),
        argument(
            "--remote",
            type=checked(read_number),
            metavar="PERCENT",
            help="indices of words on other ranks, for --targets share",
        ),
    ),
    measuring_options(dtypes=(*WORD_DTYPES, *DTYPES), elsewhere=("targets", "remote")),
)
