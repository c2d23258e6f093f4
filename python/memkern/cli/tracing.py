"""The verbs about programs of users: their traces, and the patterns in these."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memkern import reference
from memkern.checks import converter, counted
from memkern.cli.measuring import print_document
from memkern.cli.options import (
    FORCE,
    GOOD,
    INVALID,
    JSON,
    UNDERSTAND,
    argument,
    count,
    positive,
    verb,
)
from memkern.files import publish, unused
from memkern.inputs.sizes import parse_bytes
from memkern.statistics import with_bounds

if TYPE_CHECKING:
    from memkern.studies.extraction import Extracted
    from memkern.studies.replaying import Checked


_EQUAL = 0.15  # difference up to which a loop takes the time of its accesses


def _trace(args: argparse.Namespace) -> int:
    from memkern.studies.tracing import trace

    traced = trace(
        args.command,
        args.output or f"{Path(args.command[0]).name}.trace",
        build=args.build,
        sources=args.sources.split(","),
        folder=args.folder,
        most_B=int(args.most),
        sampled=args.sampled,
        force=args.force,
    )
    for path in traced.files:
        print(f"{os.path.relpath(path)}: {path.stat().st_size / 1e6:.3g} MB")
    print(f"the program took {traced.seconds:.3g} s while it was traced")
    return INVALID if traced.code else GOOD


def _patterns(args: argparse.Namespace) -> int:
    from memkern.studies.extraction import extract, write_suite

    if args.output:
        unused(args.output, args.force)
    found = extract(args.files, args.least / 100)
    rows: list[dict[str, Any]] = [
        {
            "place": one.place,
            "function": one.function,
            "kernel": one.kernel,
            "class": one.access_class,
            "length": one.length,
            "delta": ",".join(map(str, one.deltas.values())),
            "count": one.count,
            "element_B": one.size_B,
            "MB": one.bytes_B / 1e6,
            "share": one.share,
            "reuse": one.reuse,
            "atomic": one.atomic,
            "files": len(one.files),
            "correlation": one.correlation,
        }
        for one in found.patterns
    ]
    checked: dict[str, Checked] = {}
    if args.check:
        from memkern.studies.replaying import check

        checked = check(found)
    for row, pattern in zip(rows, found.patterns, strict=True):
        of = (checked[name] for name in pattern.names if name in checked)
        row |= next((one._asdict() for one in of), {})
    print_document(rows, "\n".join([_text(found), *_checks(checked)]), args)
    if args.output:
        ratios = {name: one.interval for name, one in checked.items()}
        publish({Path(args.output): write_suite(found, ratios)})
    return GOOD


def _checks(checked: Mapping[str, Checked]) -> Iterator[str]:
    """Yield a sentence on each function whose time was compared with that of its accesses."""
    for function, one in checked.items():
        ratio, low, high = one.interval
        if high < 1 - _EQUAL:
            says = f"{1 - ratio:.0%} is for something else, such as arithmetic or waiting"
        elif low > 1 + _EQUAL:
            says = "the loop is faster than its accesses alone, perhaps by its order of memory"
        elif low >= 1 - _EQUAL and high <= 1 + _EQUAL:
            says = "the loop takes the time of its accesses"
        else:
            says = f"whether this is within {100 * _EQUAL:g} % is open"
        yield (
            f"{function}: {one.loop_s * 1e3:.3g} ms a call, its accesses alone "
            f"{one.replay_s * 1e3:.3g} ms with {counted(one.threads, 'thread')}: "
            f"{with_bounds(ratio, low, high)}; {says}"
        )


def _text(found: Extracted) -> str:
    """Return the table of patterns, and totals as in table 1 of Lavin et al. 2020."""
    head = (
        f"{'%':>5} {'MB':>9} {'kernel':<12} {'class':<15} {'length':>8} {'delta':>7} {'count':>9}"
    )
    lines = [f"{head} {'reuse':>7}  place" if found.patterns else "no indirect accesses"]
    for one in found.patterns:
        delta = ",".join(map(str, one.deltas.values()))
        lines.append(
            f"{one.share:5.1%} {one.bytes_B / 1e6:9.3g} {one.kernel:<12} {one.access_class:<15} "
            f"{one.length:>8} {delta:>7} {one.count:>9} {one.reuse:>7.3g}  "
            f"{one.place} {one.function}{' atomic' * one.atomic}"
        )
    sides = {"gathers": 0, "scatters": 0}
    for one in found.patterns:
        for side in sides:
            half = one.kernel == "gs"
            if half or one.kernel.endswith(side.removesuffix("s")):
                sides[side] += one.accesses // (1 + half)
    indirect_B = sum(one.bytes_B for one in found.patterns)
    published = [row["moved_percent"] for row in reference.rows("lavin2020-kernels")]
    lines.append(
        f"{sides['gathers']} gathers, {sides['scatters']} scatters, {indirect_B / 1e6:.4g} MB, "
        f"{indirect_B / max(found.bytes_B, 1):.1%} of {found.bytes_B / 1e6:.4g} MB (kernels in "
        f"Lavin et al. 2020, table 1: {min(published):.0f} to {max(published):.0f} %)"
    )
    if found.recorded < found.accesses:
        lines.append(f"{found.recorded} of {found.accesses} accesses were recorded")
    accesses, words, shared = found.atomics
    if accesses:
        lines.append(f"{accesses} atomic accesses to {words} lines, {shared} of several threads")
    return "\n".join(lines)


TRACE_VERB = verb(
    "trace",
    UNDERSTAND,
    "record the memory accesses of a program, which is built again in a copy of this folder",
    _trace,
    (
        "memkern trace -- make run",
        'memkern trace --build "gcc -O2 app.c -o app" --sampled -- ./app 100',
        'memkern trace --build make --sources "solver*.c,spmv.f90" -- mpirun -n 2 ./app',
    ),
    argument(
        "command", nargs="+", metavar="COMMAND", help="the program, or what builds and runs it"
    ),
    argument("--build", default="", metavar="COMMAND", help="command that builds the program"),
    argument(
        "--sources", default="*", metavar="NAME,...", help="sources to trace, with wildcards (*)"
    ),
    argument("--folder", metavar="PATH", help="new folder for the copy, which remains (temporary)"),
    argument(
        "--most",
        default="4GiB",
        type=converter(parse_bytes),
        metavar="SIZE",
        help="size of a trace, within which the whole run is sampled (4GiB)",
    ),
    argument(
        "--sampled",
        nargs="?",
        default=1,
        const=64,
        type=count(1),
        metavar="N",
        help="trace one of N calls of functions (64)",
    ),
    argument("-o", "--output", metavar="PATH", help="file of the trace (COMMAND.trace)"),
    FORCE,
)

PATTERNS_VERB = verb(
    "patterns",
    UNDERSTAND,
    "patterns of gathers and scatters in traces of a program",
    _patterns,
    (
        "memkern patterns app.trace",
        "memkern patterns app.trace.* -o suite.json",
        "memkern patterns lackey.txt --least 1 --json",
    ),
    argument("files", nargs="+", metavar="TRACE", help="trace of each process"),
    argument("-o", "--output", metavar="SUITE.json", help="file for Spatter and memkern"),
    argument(
        "--check",
        action="store_true",
        help="build and time the program without tracing, in its folder, and its accesses alone",
    ),
    argument(
        "--least",
        default=0.1,
        type=positive,
        metavar="PERCENT",
        help="least part of all bytes of a pattern (0.1)",
    ),
    JSON,
    FORCE,
)
