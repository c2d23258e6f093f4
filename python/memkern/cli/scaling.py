"""The verb scaling: kernels over numbers of ranks, which a launcher starts."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

from memkern import launcher
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
    numbers,
    verb,
)
from memkern.cli.refusing import refuse_idle, refuse_lists
from memkern.cli.turns import begin_turns, case_of, kernels_argument
from memkern.errors import InputError


def _scaling(args: argparse.Namespace) -> int:
    from memkern.spec import registry
    from memkern.studies import scaling

    begin_turns(args)
    single = {n: v for n, v in vars(args).items() if n not in ("kernels", "ranks", "threads")}
    refuse_lists(single)
    words = args.kernels or [
        word
        for elements in scaling.ELEMENTS
        for kernel in scaling.KERNELS
        for word in (kernel, f"elements={elements}")
    ]
    knobs = knobs_of(argparse.Namespace(**{**vars(args), "threads": None}))
    cases = [case_of(*each, knobs, registry.case) for each in kernels_with_options(words)]
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
    if args.json:
        print(results.to_json_text())
    elif not args.quiet:
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
    header = ["kernel", "threads", "ranks", "rate", "", "speed-up", "efficiency %", ""]
    lines = [header]
    for row in rows:
        marks = [word for word in ("oversubscribed", "disturbed") if row[word]]
        lines.append(
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
    for text in aligned(lines, left=[0, 4, 7]):
        line(text)
    line("±: half of the 95 % interval over the turns, ×÷ and a factor if that exceeds the value")


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
    kernels_argument(
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
            choices=("mpi", "shmem"),
            default="mpi",
            help="library by which the ranks communicate (mpi)",
        ),
        argument("--turns", type=count(3), metavar="N", help="turns of all numbers of ranks (5)"),
    ),
    measuring_options(comm=False),
    defaults(over_ranks=False),
)
