"""The verbs sweep, over declared cases, and tune, a search for the best options."""

from __future__ import annotations

import argparse

from memkern.checks import read_integer
from memkern.cli.measuring import HEADER, exit_code, line, measure, row_of, show_progress
from memkern.cli.options import (
    Verb,
    checked,
    count,
    given,
    knobs_of,
    measuring_options,
    named_values,
)
from memkern.cli.refusing import refuse
from memkern.spec import registry
from memkern.spec.options import Knobs, declared


def _sweep(args: argparse.Namespace) -> int:
    from memkern.measuring.sweepfile import read_sweep

    cases, repeats = read_sweep(args.file, knobs_of(args))
    if args.repeats is None:
        args.repeats = repeats
    return exit_code(measure(cases, args))


def _tune(args: argparse.Namespace) -> int:
    from memkern.measuring.tune import TUNED, TUNED_ON_DEVICE, tune
    from memkern.results import check_output

    if args.output:
        check_output(args.output, args.force)
    refuse(args, "in a search, which stops by --budget", runs=None, repeats=1, resume=False)
    knobs = knobs_of(argparse.Namespace(**{**vars(args), "budget": None}))
    own = given(args, "pattern", "delta", "count") | named_values(args.set)
    case = registry.case(args.kernel, **own, **knobs)
    on_device = case.knobs.device != "cpu"
    usual = TUNED_ON_DEVICE if on_device else TUNED
    # An option that was given keeps its value, a list of values is searched.
    columns = {name: option.column or name for name, _, option in declared(Knobs)}
    asked = given(args, *columns)
    lists = {name: value for name, value in asked.items() if isinstance(value, list)}
    tuned = {name: values for name, values in usual.items() if name not in asked} | lists
    budget = {} if args.budget is None else {"budget_s": args.budget}
    with show_progress(args) as progress:
        best, search = tune(case, knobs=tuned, progress=progress, **budget)
    if args.output:
        search.save(args.output)
    if args.json:
        print(search.to_json_text())
    elif not args.quiet:
        line(f"{'step':<13} {' '.join(f'{name:>10}' for name in tuned)}  {HEADER}")
        for number, record in enumerate(search):
            values = " ".join(f"{record[columns[name]]:>{max(len(name), 10)}}" for name in tuned)
            line(f"{record['tune_step']:<13} {values}  {row_of(number, record)}")
        names = dict.fromkeys(("variant", *([] if on_device else ["isa"]), *tuned))
        chosen = (f"--{name.replace('_', '-')} {getattr(best.knobs, name)}" for name in names)
        line(f"best: {' '.join(chosen)}")
    return exit_code(search)


def add_verbs(verb: Verb) -> None:
    """Add the verbs sweep and tune."""
    sub = verb("sweep", _sweep, "a sweep declared in a TOML file")
    sub.add_argument("file", metavar="FILE.toml")
    measuring_options(sub)
    # An option that is given overrides the file, even if it equals the default.
    sub.set_defaults(repeats=None)

    sub = verb("tune", _tune, "search variant, pages, prefetch distance and chunk in a budget")
    sub.add_argument(
        "-k", "--kernel", default="gather", metavar="NAME", help="such as stream.triad (gather)"
    )
    sub.add_argument("-p", "--pattern", metavar="PATTERN")
    sub.add_argument("-d", "--delta", type=checked(read_integer), metavar="N")
    sub.add_argument("-l", "--count", type=count(1), metavar="N", help="instances (1024)")
    sub.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the kernel, such as elements=1000000 or matrix=hpcg:32",
    )
    measuring_options(sub)
    sub.set_defaults(over_ranks=False)
