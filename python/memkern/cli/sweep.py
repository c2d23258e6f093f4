"""The verbs that vary the knobs: a declared sweep, and the search for the best ones."""

from __future__ import annotations

import argparse
from typing import Any

from memkern.cli.measuring import HEADER, exit_code, line, measure, row_of
from memkern.cli.options import Verb, count, knobs_of, measuring_options
from memkern.kernels import spatter


def _swept(args: argparse.Namespace) -> int:
    from memkern.sweepfile import read_sweep

    cases, repeats = read_sweep(args.file, _changed(args))
    if args.repeats == 1:
        args.repeats = repeats
    return exit_code(measure(cases, args))


def _changed(args: argparse.Namespace) -> dict[str, Any]:
    """Return the knobs given on the command line, which win over those of a file."""
    parser = argparse.ArgumentParser()
    measuring_options(parser)
    defaults = knobs_of(parser.parse_args([]))
    knobs = {k: v for k, v in knobs_of(args).items() if k not in defaults or defaults[k] != v}
    if args.runs is not None:
        knobs["runs"] = args.runs
    return knobs


def _tuned(args: argparse.Namespace) -> int:
    from memkern.run import tune

    case = spatter.case(
        args.kernel,
        pattern=args.pattern,
        delta=args.delta,
        count=args.count,
        **knobs_of(argparse.Namespace(**{**vars(args), "budget": None})),
    )
    best, search = tune(case, budget_s=args.budget or 30.0)
    if args.output:
        search.save(args.output)
    if args.json:
        print(search.to_json_text())
    elif not args.quiet:
        line(f"{'step':<9} {'pages asked':<11} {'prefetch':>8} {'chunk':>6}  {HEADER}")
        for number, record in enumerate(search):
            line(
                f"{record['tune_step']:<9} {record['pages_asked']:<11} {record['prefetch']:>8} "
                f"{record['chunk']:>6}  {row_of(number, record)}"
            )
        knobs = best.knobs
        line(
            f"best: --variant {knobs.variant} --isa {knobs.isa} --pages {knobs.pages} "
            f"--prefetch {knobs.prefetch} --chunk {knobs.chunk}"
        )
    return exit_code(search)


def add_verbs(verb: Verb) -> None:
    """Add the verbs sweep and tune."""
    sub = verb("sweep", _swept, "a sweep declared in a TOML file")
    sub.add_argument("file", metavar="FILE.toml")
    measuring_options(sub)

    sub = verb("tune", _tuned, "search variant, pages, prefetch distance and chunk in a budget")
    sub.add_argument("-k", "--kernel", default="gather", choices=("gather", "scatter"))
    sub.add_argument("-p", "--pattern", required=True, metavar="PATTERN")
    sub.add_argument("-d", "--delta", type=int, metavar="N")
    sub.add_argument("-l", "--count", type=count(1), default=2**20, metavar="N")
    measuring_options(sub)
