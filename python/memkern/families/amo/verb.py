"""The verb amo: atomic memory operations, with CircusTent's options and names."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from memkern.checks import shown
from memkern.cli.measuring import beside, exit_code, health_of, line, measure, warn
from memkern.cli.options import (
    GOOD,
    MEASURE,
    argument,
    argument_group,
    count,
    each,
    measuring_options,
    numbers,
    verb,
)
from memkern.cli.tables import (
    CASE,
    INTERVAL,
    SHORTEST,
    Record,
    Table,
    cell,
    kernel_of,
    marks,
)
from memkern.cli.verbs import input_cases, input_options, requested_kernels, rows_of
from memkern.errors import InputError
from memkern.families.amo import kernels as amo
from memkern.spec import registry
from memkern.spec.kernel import DTYPES, WORD_DTYPES
from memkern.spec.options import Knobs
from memkern.spec.sequences import joined

_RULE = "=" * 48


def _benchmarks(device_kind: str) -> dict[str, tuple[str, str]]:
    """Return kernel and primitive of every benchmark, by its name in CircusTent's style.

    Its CAS is ``cas-target`` where this is available, and ``cas`` elsewhere.
    """
    return {
        _benchmark(pattern, primitive): (f"amo.{pattern}", primitive)
        for pattern, primitive in itertools.product(amo.PATTERNS, amo.PRIMITIVES)
        if amo.exists(pattern, primitive, device_kind=device_kind)
    }


def _benchmark(pattern: str, primitive: str) -> str:
    """Return the name of a benchmark in CircusTent's style."""
    return f"{pattern}_{primitive.removesuffix('-target')}".upper()


def _list(device_kind: str) -> int:
    line("BENCHMARK | REQUIRED_OPTIONS | DESCRIPTION")
    for name, (kernel, primitive) in _benchmarks(device_kind).items():
        needs = "stride" if kernel == "amo.striden" else "No Arg Required"
        line(f" - {name} | {needs} | {registry.find(kernel).summary}, AMO {primitive}")
    return GOOD


def _requested(args: argparse.Namespace, device_kind: str) -> list[tuple[str, str]]:
    """Return the requested pairs of kernel and primitive."""
    if args.bench is None:
        primitives = each(args.primitive or amo.PRIMITIVES[0])
        return list(itertools.product(requested_kernels(args), primitives))
    if args.kernel is not None:
        raise InputError("--bench and --kernel exclude each other")
    known = _benchmarks(device_kind)
    for name in args.bench:
        if name.upper() not in known:
            raise InputError(f"benchmark {shown(name)} is unknown: --list prints all")
    return [known[name.upper()] for name in args.bench]


def _amo(args: argparse.Namespace) -> int:
    device_kind = Knobs(device=args.device or Knobs.device).backend.kind
    if args.list:
        return _list(device_kind)
    requested = _requested(args, device_kind)
    kernels = list(dict.fromkeys(kernel for kernel, _ in requested))
    if args.bench is not None:
        # CircusTent requires both for all benchmarks, even where they have no effect.
        for name in sorted({"memsize", "stride"} - rows_of(kernels).keys()):
            if getattr(args, name) is not None:
                warn(f"{', '.join(kernels)} takes no --{name}: {getattr(args, name)} is not used")
                setattr(args, name, None)
    orders = each(args.order or amo.ORDERS[0])
    dtype = args.dtype or WORD_DTYPES[0]
    # Cases are built for their number of workers.
    threads = {} if args.threads is None else {"threads": each(args.threads)}
    args.threads = None

    def parts(kernel: str) -> list[dict[str, Sequence[Any]]]:
        pattern = kernel.partition(".")[2]
        return [
            {"primitive": [primitive], "order": [order], **threads}
            for one, primitive in requested
            for order in orders
            if one == kernel
            # All patterns are measured with what they have, requested ones as requested.
            and (
                args.bench
                or args.kernel
                or amo.exists(pattern, primitive, order, dtype, device_kind)
            )
        ]

    # Whether updates are completed together depends on pattern and primitive.
    cases = joined(
        input_cases(args, kernels, parts=parts, owners={"dtype": kernels}, but=["flush_every"])
    )
    if args.flush_every is not None:
        args.flush_every = each(args.flush_every)
    if not cases:
        primitives = ", ".join(dict.fromkeys(primitive for _, primitive in requested))
        raise InputError(f"no pattern has {primitives} in order {', '.join(orders)} for {dtype}")
    if args.bench is None:
        return exit_code(measure(cases, args, _TABLE, answers=[_false_sharing, health_of]))
    return exit_code(measure(cases, args, _CircusTent(()), answers=[_BESIDE, health_of]))


def _remarks(record: Record) -> list[str]:
    succeed, lost = record.get("success_fraction"), record.get("lost_fraction", 0)
    of_swaps = [] if succeed is None else [f"{succeed:.3f} succeed"]
    return [", ".join([*marks(record), *of_swaps, *[f"{lost:.3f} lost"] * (lost > 0)])]


def _workers(record: Record) -> int:
    return int(record["threads"] * record["ranks"])


_TABLE = Table(
    (
        CASE,
        cell("pattern", "<9", value=kernel_of),
        cell("primitive", "<10"),
        cell("order", "<8"),
        cell("returns", "<7"),
        cell(
            "sharing",
            "<9",
            value=lambda record: record.get("targets", record["sharing"]),
            shows=("sharing", "targets"),
        ),
        cell("threads", ">3", "thr", value=_workers),
        cell("words", ">10"),
        SHORTEST,
        cell("rate_GAMS", ">9.4f", "GAMS"),
        cell("ns/AMO", ">8.2f", value=lambda record: _workers(record) / record["rate_GAMS"]),
        INTERVAL,
    ),
    _remarks,
)
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


def _false_sharing(results: Iterable[dict[str, Any]]) -> str:
    """Return a sentence for each case with private words in one line and in several.

    It is empty if the cases do not differ in the padding of private words.
    """
    cases: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for record in results:
        if record["sharing"] == "private" and _workers(record) > 1:
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

    what = (
        f"false sharing ({kernel_of(beside)} {beside['primitive']}, {beside['order']}) of "
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


_BESIDE = beside(
    "CircusTent", "memkern takes the shortest time of several samples, CircusTent times one pass"
)


class _CircusTent(Table):
    """The output of CircusTent."""

    def row(self, number: int, record: Record) -> str:
        """Return the lines on a record."""
        name = _benchmark(kernel_of(record), record["primitive"])
        words = {"INVALID": "FAILED ITS VALIDATION"}
        mark = "".join(f"\n {words.get(word, word.upper())}" for word in marks(record))
        return (
            f"RUNNING WITH NUM_THREADS = {_workers(record)}\n"
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
            dest="threads",
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
    argument("--kernel", metavar="NAME,...", help=", ".join(amo.PATTERNS) + " (all)"),
    *input_options("amo", but=("memsize", "iters", "stride")),
    measuring_options(dtypes=(*WORD_DTYPES, *DTYPES), elsewhere=("targets", "remote")),
)
