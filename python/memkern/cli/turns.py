"""The verbs that measure kernels in turns: corun, scaling and explain."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from memkern import launcher
from memkern.backends import LIBRARIES
from memkern.cli.measuring import (
    check_output,
    exit_code,
    explain_records,
    explanations,
    line,
    lines,
    save,
    tell_host,
    tell_limit,
    wait_until_quiet,
    wants_table,
    warn,
    warn_if_not_quiet,
)
from memkern.cli.options import (
    COMPARE,
    EXPLAIN_S,
    FORCE,
    GOOD,
    INTERRUPTED,
    JSON,
    UNDERSTAND,
    Options,
    argument,
    argument_group,
    count,
    defaults,
    given,
    kernels_with_options,
    knobs_of,
    measuring_options,
    named_values,
    numbers,
    refuse,
    refuse_idle,
    refuse_lists,
    seconds_options,
    taken,
    verb,
)
from memkern.errors import InputError

if TYPE_CHECKING:
    from memkern.engine.public import Measurement
    from memkern.spec.case import Case


def _begin_turns(args: argparse.Namespace) -> None:
    """Refuse options without effect in turns; with ``--quick``, reduce them to two short ones."""
    refuse(args, "in turns, each of which is one placement", placements=None, repeats=1)
    refuse(args, "in turns, whose records are ratios", openmetrics=None, explain=False)
    order = {"case_order": "random", "case_order_seed": None}
    refuse(args, "in turns, whose order is random, by --seed", **order)
    if args.quick:
        args.turns, args.budget = 2, 0.1  # seconds of a case in both


def _case_of(
    kernel: str, words: Sequence[str], knobs: Mapping[str, Any], build: Callable[..., Case]
) -> Case:
    """Return the case of a kernel, named after its own options.

    Parameters
    ----------
    kernel : str
    words : sequence of str
        Its own options, each as NAME=VALUE.
    knobs : mapping
        Options of all kernels; those without effect on this one are left out.
    build : callable
        Returns the case of a kernel with options.

    Raises
    ------
    InputError
        An option is unknown or out of range; the error names the kernel.
    """
    named = {"name": " ".join(words)} if words else {}
    try:
        return build(kernel, **taken(kernel, knobs) | named | named_values(words))
    except InputError as error:
        raise InputError(f"{kernel}: {error}") from None


def _kernels_argument(examples: str, option: str, default: str) -> Options:
    """Return the option for kernels, each with its own options.

    Parameters
    ----------
    examples, option, default : str
        Kernels and an option for the help, and what is measured without kernels.
    """
    return argument(
        "kernels",
        nargs="*",
        metavar="KERNEL",
        help=f"such as {examples}, each followed by its own options as NAME=VALUE, such as "
        f"{option} ({default})",
    )


_Row = Mapping[Any, Any]


def _corun(args: argparse.Namespace) -> int:
    from memkern.results.comparison import label_of
    from memkern.results.slowdowns import ENTRIES, entry
    from memkern.studies import corun

    refuse(args, "beside neighbours: --units names the processing units", pin=None)
    _begin_turns(args)
    refuse_lists({name: value for name, value in vars(args).items() if name != "kernels"})
    sides = corun.sides(None if args.units is None else corun.read_units(args.units))
    kernels = corun.QUICK_KERNELS if args.quick else corun.KERNELS
    requests = kernels_with_options(args.kernels or kernels)
    knobs, builders = knobs_of(args), (partial(corun.build, units=len(side)) for side in sides)
    cases, neighbours = ([_case_of(*one, knobs, build) for one in requests] for build in builders)
    refuse_idle(cases, args)
    warn_if_not_quiet(wait_until_quiet(args), args)

    def show(turn: Sequence[Measurement]) -> None:
        records = [measurement.record for measurement in turn]
        _print_matrix(f"turn {records[0]['repeat'] + 1}", records, _entry_of_turn)

    results = corun.corun(
        cases,
        neighbours if len(sides[0]) != len(sides[1]) else None,
        units=sides,
        **given(args, "turns", "seed"),
        output=args.output,
        resume=args.resume,
        force=args.force,
        progress=not args.quiet,
        on_turn=None if args.json or args.quiet else show,
    )
    tell_host(results, args.quiet)
    if wants_table(results, args):
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
    table: dict[str, list[str]] = {}
    for row in rows:
        alone = f"{three_figures(row['alone'])} {row['quantity'].removesuffix(' per access')}"
        cells = table.setdefault(row["kernel"], [row["kernel"], alone, *[""] * len(neighbours)])
        cells[2 + neighbours.index(row["beside"])] = entry(row)
    lines(*aligned([[title, "alone", *neighbours], *table.values()], left=[0]))


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
    _kernels_argument(
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


def _scaling(args: argparse.Namespace) -> int:
    from memkern.spec import registry
    from memkern.studies import scaling

    _begin_turns(args)
    single = {n: v for n, v in vars(args).items() if n not in ("kernels", "ranks", "threads")}
    refuse_lists(single)
    words = args.kernels or [
        word
        for elements in scaling.ELEMENTS
        for kernel in scaling.KERNELS
        for word in (kernel, f"elements={elements}")
    ]
    knobs = knobs_of(argparse.Namespace(**{**vars(args), "threads": None}))
    cases = [_case_of(*each, knobs, registry.case) for each in kernels_with_options(words)]
    refuse_idle(cases, args)
    warn_if_not_quiet(wait_until_quiet(args), args)
    results = scaling.scaling(
        cases,
        **given(args, "ranks", "threads", "mode", "bind", "launcher", "turns", "seed"),
        comm=args.started_comm,
        output=args.output,
        resume=args.resume,
        force=args.force,
        progress=not args.quiet,
    )
    tell_host(results, args.quiet)
    if over := [record for record in results if record.get("oversubscribed")]:
        warn(
            f"{len(over)} of {len(results)} records are oversubscribed (more workers than "
            "processing units on a host): they do not show scaling, and are not drawn"
        )
    if wants_table(results, args):
        _print_table(results)
        tell_limit(results, args)
    return exit_code(results)


def _print_table(records: Iterable[Mapping[Any, Any]]) -> None:
    """Print speed-ups and efficiencies with the half-widths of their intervals."""
    from memkern.plots.frames import three_figures
    from memkern.results.comparison_output import aligned
    from memkern.results.scaling import efficiencies

    try:
        rows = efficiencies(records).to_dict("records")
    except InputError:  # none is valid
        return
    table = [["kernel", "threads", "ranks", "rate", "", "speed-up", "efficiency %", ""]]
    for row in rows:
        marks = [word for word in ("oversubscribed", "disturbed") if row[word]]
        table.append(
            [
                row["kernel"],
                f"{row['threads']}",
                f"{row['ranks']}",
                three_figures(row["value"]),
                row["quantity"],
                _with_interval(row, "speed_up", "low", "high", 2),
                _with_interval(row, "efficiency", "efficiency_low", "efficiency_high", 0),
                " ".join(marks),
            ]
        )
    lines(
        *aligned(table, left=[0, 4, 7]),
        "±: half of the 95 % interval over the turns, or its ends if one is farther away",
    )


def _with_interval(row: Mapping[Any, Any], name: str, low: str, high: str, decimals: int) -> str:
    from memkern.results.slowdowns import with_half_width

    if not row[high] > row[low]:
        return f"{row[name]:.{decimals}f}"
    return with_half_width(row[name], row[low], row[high], decimals)


SCALING_VERB = verb(
    "scaling",
    COMPARE,
    "strong and weak scaling over numbers of ranks",
    _scaling,
    (
        "memkern scaling --ranks 1,2,4",
        "memkern scaling stream.triad elements=22000000 --mode weak",
        "memkern scaling raider.gather_triad --ranks 1,2 --bind socket",
    ),
    _kernels_argument(
        "stream.triad or raider.gather_triad",
        "elements=22000000",
        "three triads of RaiderSTREAM with 8.7 and 22 million elements",
    ),
    argument_group(
        "ranks",
        argument(
            "--ranks", type=numbers(1, "ranks"), metavar="N,...", help="numbers of ranks (1,2,4)"
        ),
        argument(
            "--mode",
            choices=("strong", "weak"),
            help="strong: all ranks share the elements; weak: each rank has all of them (strong)",
        ),
        argument(
            "--bind",
            choices=launcher.BINDINGS,
            help="one rank on each node, one on each socket, or each on as many cores as it has "
            "threads (the ranks of a host share its units)",
        ),
        argument(
            "--launcher",
            metavar="COMMAND",
            help='command that starts ranks: mpirun, srun, "mpirun --oversubscribe" (mpirun, or '
            "oshrun for OpenSHMEM)",
        ),
        argument(
            "--comm",
            # This process itself does not communicate in this way.
            dest="started_comm",
            choices=(*LIBRARIES,),
            default="mpi",
            help="library by which the ranks communicate (mpi)",
        ),
        argument("--turns", type=count(3), metavar="N", help="turns of all numbers of ranks (5)"),
    ),
    measuring_options(comm=False),
    defaults(over_ranks=False),
)


def _explain(args: argparse.Namespace) -> int:
    from memkern.formats import load
    from memkern.spec.registry import case_of_record

    check_output(args)
    results = load(args.file)
    cases, reason = dict[str, "Case"](), "it has no records"
    for record in results.records:
        try:
            cases[record["case_id"]] = case_of_record(record)
        except InputError as error:
            reason = str(error)
    if not cases:
        raise InputError(f"{args.file} can't be explained: {reason}")
    explain_records(results, cases, args, args.seconds, again=True)
    save(results, args)
    if wants_table(results, args):
        lines(*explanations(results))
    return INTERRUPTED if results.interrupted else GOOD


EXPLAIN_VERB = verb(
    "explain",
    UNDERSTAND,
    "explain the times of records by experiments in turns",
    _explain,
    (
        "memkern explain results.parquet",
        "memkern explain results.db --quick -o explained.parquet",
        "memkern explain results.csv --seconds 30 --json",
    ),
    argument("file", metavar="FILE", help="file with records of this machine"),
    argument("-o", "--output", metavar="PATH", help="results file with the explanations"),
    *seconds_options(EXPLAIN_S),
    JSON,
    FORCE,
    argument("-q", "--quiet", action="store_true", help="no table, progress or warnings"),
)
