"""The verb corun: kernels alone and beside neighbours on other processing units."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from memkern.cli.measuring import (
    exit_code,
    line,
    tell_host,
    tell_limit,
    wait_until_quiet,
    warn,
    warn_if_not_quiet,
)
from memkern.cli.options import (
    COMPARE,
    argument,
    argument_group,
    count,
    defaults,
    given,
    kernels_with_options,
    knobs_of,
    measuring_options,
    verb,
)
from memkern.cli.refusing import refuse, refuse_idle, refuse_lists
from memkern.cli.turns import begin_turns, case_of, kernels_argument
from memkern.errors import InputError

if TYPE_CHECKING:
    from memkern.engine.public import Measurement

_Row = Mapping[Any, Any]


def _corun(args: argparse.Namespace) -> int:
    from memkern.results.slowdowns import ENTRIES, entry, label_of
    from memkern.studies import corun

    refuse(args, "beside neighbours: --units names the processing units", pin=None)
    begin_turns(args)
    refuse_lists({name: value for name, value in vars(args).items() if name != "kernels"})
    sides = corun.sides(None if args.units is None else corun.read_units(args.units))
    kernels = corun.QUICK_KERNELS if args.quick else corun.KERNELS
    requests = kernels_with_options(args.kernels or kernels)
    knobs, builders = knobs_of(args), (partial(corun.build, units=len(side)) for side in sides)
    cases, neighbours = ([case_of(*one, knobs, build) for one in requests] for build in builders)
    refuse_idle(cases, args)
    warn_if_not_quiet(wait_until_quiet(args), args)

    def show(turn: Sequence[Measurement]) -> None:
        records = [measurement.record for measurement in turn]
        _print_matrix(f"turn {records[0]['repeat'] + 1}", records, _entry_of_turn)

    table = not (args.json or args.quiet)
    results = corun.corun(
        cases,
        neighbours if len(sides[0]) != len(sides[1]) else None,
        units=sides,
        **given(args, "turns", "seed"),
        output=args.output,
        resume=args.resume,
        force=args.force,
        progress=not args.quiet,
        on_turn=show if table else None,
    )
    tell_host(results, args.quiet)
    if args.json:
        print(results.to_json_text())
    elif table:
        _print_matrix("all turns", results, entry)
        line(ENTRIES)
        tell_limit(results, args)
    wrong = [label_of(r["kernel"], r["definition"], r["name"]) for r in results if not r["valid"]]
    if wrong:
        warn(f"the results of {', '.join(dict.fromkeys(wrong))} are invalid")
    return exit_code(results)


def _entry_of_turn(row: _Row) -> str:
    mark = " *" if row["turns"] == 0 else ""
    return f"{row['ratio']:.2f}{mark}"


def _print_matrix(title: str, records: Iterable[_Row], entry: Callable[[_Row], str]) -> None:
    """Print the slowdowns of records: a line for each case, a column for each neighbour."""
    from memkern.plots.frames import three_figures
    from memkern.results.comparison_output import aligned
    from memkern.results.slowdowns import slowdowns

    try:
        rows = slowdowns(records).to_dict("records")
    except InputError:  # none is valid
        return
    neighbours = list(dict.fromkeys(row["beside"] for row in rows))
    lines: dict[str, list[str]] = {}
    for row in rows:
        alone = f"{three_figures(row['alone'])} {row['quantity'].removesuffix(' per access')}"
        cells = lines.setdefault(row["kernel"], [row["kernel"], alone, *[""] * len(neighbours)])
        cells[2 + neighbours.index(row["beside"])] = entry(row)
    for text in aligned([[title, "alone", *neighbours], *lines.values()], left=[0]):
        line(text)


CORUN_VERB = verb(
    "corun",
    COMPARE,
    "measure how much kernels slow each other down",
    _corun,
    (
        "memkern corun -o corun.parquet",
        "memkern corun stream.triad latency.chase size_B=1GiB",
        "memkern corun stream.triad --units 0:1 --turns 9",
    ),
    kernels_argument(
        "stream.triad or latency.chase",
        "elements=1000000",
        "loads, triad, gather, atomics and a chase",
    ),
    argument_group(
        "neighbours",
        argument(
            "--units",
            metavar="A:B",
            help="processing units of the measured kernel and of its neighbour, such as 0-3:4-7 "
            "(every second core, and the others)",
        ),
        argument("--turns", type=count(2), metavar="N", help="turns of all pairs (7)"),
    ),
    measuring_options(),
    defaults(over_ranks=False),
)
