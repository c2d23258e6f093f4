"""The verbs that compare: two files or sides that are measured in turns, and a fleet of nodes."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memkern.checks import shown
from memkern.cli.measuring import check_output, lines, save, warn
from memkern.cli.options import (
    COMPARE,
    FAILED,
    FORCE,
    GOOD,
    INTERRUPTED,
    INVALID,
    JSON,
    UNDECIDED,
    argument,
    argument_group,
    count,
    given,
    knobs_of,
    measuring_options,
    named_values,
    positive,
    refuse_lists,
    verb,
)
from memkern.cli.parsing import Parser
from memkern.errors import InputError
from memkern.files import publish, unused
from memkern.spec.registry import case, spec_of

if TYPE_CHECKING:
    from pandas import DataFrame


# Options of `memkern sweep` that a comparison chooses, or that hold for both sides.
_OF_COMPARISON = (
    "runs", "precision", "budget", "repeats", "output", "json", "resume", "force", "quiet",
    "openmetrics",
    "explain",
)  # fmt: skip
_OF_RUNS = ("a", "b", "a_python", "b_python", "pairs", "seconds", "seed")


def _compare(args: argparse.Namespace) -> int:
    from memkern.results import comparison_output as output

    if args.junit:
        unused(args.junit, args.force)
    frame = _measure(args) if args.run_file else _load(args)
    if args.junit:
        publish({Path(args.junit): output.junit(frame)})
    if args.history:
        output.append_history(frame, args.history, args.label)
    if args.json:
        print(frame.to_json(orient="records"))
        # Standard output contains only the array.
        for sentence in output.heading(frame) + frame.attrs["remarks"]:
            warn(sentence)
    elif args.markdown:
        print(output.markdown(frame, gates=args.fail_on is not None))
    else:
        table = output.text(frame, gates=args.fail_on is not None)
        print(*output.heading(frame), table, sep="\n")
    if args.self:
        _print_rate(frame, args)
    if frame.attrs.get("interrupted"):
        return INTERRUPTED
    return _exit_code(frame, args.fail_on, "cases")


def _exit_code(frame: DataFrame, slowdown: float | None, what: str) -> int:
    """Return the exit code, after telling how many cases or nodes have passed a gate, if any."""
    from memkern.results import comparison, verdicts

    if (frame["verdict"] == comparison.INVALID).any():
        return INVALID
    if slowdown is None:
        return GOOD
    gates = [*frame["gate"]]
    by = f" by more than {100 * slowdown:g} %" * (slowdown > 0)
    slow, passed, undecided = map(
        gates.count, (verdicts.SLOWER, verdicts.PASSED, verdicts.UNDECIDED)
    )
    warn(f"slower{by}: {slow} of {len(gates)} {what}; not slower: {passed}; undecided: {undecided}")
    return FAILED if slow else UNDECIDED if undecided else GOOD


def _load(args: argparse.Namespace) -> DataFrame:
    from memkern.formats import load
    from memkern.results.comparison import compare

    of_runs = [name for name in _OF_RUNS if getattr(args, name) is not None]
    if of_runs or args.self:
        name = of_runs[0].replace("_", "-") if of_runs else "self"
        raise InputError(f"--{name} is for measuring: add --run SWEEP.toml")
    if len(args.files) != 2:
        raise InputError("compare takes two files of records, A and B, or --run SWEEP.toml")
    return compare(*map(load, args.files), slowdown=args.fail_on or 0.0)


def _measure(args: argparse.Namespace) -> DataFrame:
    from memkern.studies.interleaved import compare_runs

    if args.self and (args.b is not None or args.b_python):
        raise InputError("--self measures A against itself: leave --b and --b-python out")
    a = _changes("a", args.a or "")
    b = a if args.self else _changes("b", args.b or "")
    with _sweep_file(args.run_file, args.files) as sweep:
        return compare_runs(
            sweep,
            a,
            b,
            a_python=args.a_python,
            b_python=args.a_python if args.self else args.b_python,
            progress=not args.quiet,
            **given(args, "pairs", "seed"),
            **({"time_s": args.seconds} if args.seconds else {}),
            slowdown=args.fail_on,
        )


AFTER_KERNEL = "follow the kernel, such as --run gather pattern=UNIFORM:8:1:NR count=1000000"
"""Where an option of the kernel to measure is given."""


@contextlib.contextmanager
def _sweep_file(name: str, words: list[str]) -> Iterator[Path]:
    """Yield the sweep file of this name, or one with the case of a kernel and its options."""
    is_file = name.endswith(".toml") or Path(name).exists()
    if wrong := [word for word in words if is_file or "=" not in word]:
        of = "options are in the file" if is_file else "options of a kernel are NAME=VALUE"
        raise InputError(f"--run measures both sides, and {of}: leave {shown(wrong[0])} out")
    if is_file:
        yield Path(name)
        return
    spec_of(name)
    values = {"kernel": name, **named_values(words)}
    try:
        case(**values)  # its errors name no file
    except InputError as error:
        more = "" if words else f", which must {AFTER_KERNEL}"
        raise InputError(f"--run {name}: {error}{more}") from None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweep.toml"
        lines = (f"{option} = {json.dumps(value)}\n" for option, value in values.items())
        path.write_text(f"[[case]]\n{''.join(lines)}", encoding="utf-8")
        yield path


def _changes(side: str, text: str) -> dict[str, Any]:
    """Return the knobs that are set by a side's options."""
    parser = Parser(prog=f"memkern compare --{side}", add_help=False)
    measuring_options()(parser)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"--{side} {shown(text)} can't be split into words: {error}") from None
    # Options not given are None: given options override the file, even if they equal the default.
    unset = argparse.Namespace(**{action.dest: None for action in parser._actions})
    own = vars(parser.parse_args(words, unset))
    for name, value in own.items():
        if value is not None and name in _OF_COMPARISON:
            raise InputError(f"--{name} is not an option of one side: leave it out of --{side}")
    refuse_lists(own, f" of --{side}")
    return knobs_of(argparse.Namespace(**own))


def _print_rate(frame: DataFrame, args: argparse.Namespace) -> None:
    """Print the share of cases that were found to differ from themselves."""
    from scipy.stats import binomtest

    from memkern.results.comparison_output import false_verdicts

    false, judged = false_verdicts(frame)
    if not judged:
        text = "no case has a verdict or enough pairs for one"
    else:
        high = binomtest(false, judged).proportion_ci(0.95, method="exact").high
        text = (
            f"false verdicts: {false} of {judged} cases, {100 * false / judged:.2g} %; with 95 % "
            f"confidence the rate here is below {100 * high:.2g} %"
        )
    (warn if args.json else print)(text)


def fail_on(text: str) -> float:
    """Convert the reason for failure, such as ``slower:5``, to the relative slowdown; 0 for any."""
    verdict, colon, percent = text.partition(":")
    if verdict != "slower":
        raise argparse.ArgumentTypeError(f"must be slower or slower:PERCENT, not {shown(text)}")
    return positive(percent) / 100 if colon else 0.0


COMPARE_VERB = verb(
    "compare",
    COMPARE,
    "compare B with A: two files, or two sides measured in turns",
    _compare,
    (
        "memkern compare before.parquet after.parquet",
        'memkern compare --run stream.triad --a="--pages 4k" --b="--pages thp"',
        "memkern compare --run sweep.toml --a-python old/bin/python --fail-on slower:5",
    ),
    argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="A and B, files with records; after a kernel of --run its options as NAME=VALUE, such "
        "as pattern=UNIFORM:8:1:NR and count=1000000 after --run gather",
    ),
    argument_group(
        "measuring both sides in turns",
        argument(
            "--run",
            dest="run_file",
            metavar="SWEEP.toml|KERNEL",
            help="measure the cases of this file, or one of a kernel such as stream.triad",
        ),
        *(
            argument(
                f"--{side}",
                metavar="OPTIONS",
                help=f"options of side {side.upper()}, of those of `memkern sweep --help-all`, such"
                f' as "--variant simd --pages thp"; a single option as --{side}=--flush',
            )
            for side in "ab"
        ),
        *(
            argument(
                f"--{side}-python",
                metavar="PATH",
                help=f"Python interpreter of side {side.upper()}, for another build",
            )
            for side in "ab"
        ),
        argument(
            "--self", action="store_true", help="compare A with itself: rate of false verdicts here"
        ),
        argument(
            "--pairs",
            type=count(30),
            metavar="N",
            help="largest number of pairs of a case (30); tests after half, two thirds and all",
        ),
        argument(
            "--seconds",
            type=positive,
            metavar="N",
            help="seconds after which no pair begins (no limit)",
        ),
        argument("--seed", type=count(0), metavar="N", help="seed of the random order (0)"),
        description="Both sides run cases of memkern: this gates builds and options of memkern, "
        "not other\nprograms. Accesses of your own code are gated with `memkern corun` and two "
        "files.",
    ),
    argument_group(
        "results",
        JSON,
        argument("--markdown", action="store_true", help="as a table in Markdown"),
        argument("--junit", metavar="PATH", help="write JUnit XML, one test per case"),
        argument("--history", metavar="PATH.csv", help="append one line per case"),
        FORCE,
        argument(
            "--label", default="", metavar="TEXT", help="label in the history, such as a commit"
        ),
        argument(
            "--fail-on",
            type=fail_on,
            metavar="slower[:PERCENT]",
            help="exit code 3 if a case is shown to be slower (by more than PERCENT, if given), 4 "
            "if that is undecided; with --seconds, pairs are measured until it is decided",
        ),
        argument("-q", "--quiet", action="store_true", help="no progress"),
    ),
)


def _fleet(args: argparse.Namespace) -> int:
    from memkern.results.fleet import fleet, of_files

    check_output(args)
    results = of_files(args.files)
    baseline = of_files(args.baseline) if args.baseline else None
    frame = fleet(results, baseline, slowdown=args.fail_on or 0.0)
    save(results, args)
    if args.json:
        print(frame.to_json(orient="records"))
        for remark in frame.attrs["remarks"]:
            warn(remark)
        return _exit_code(frame, args.fail_on, "values of nodes")
    return show_fleet(frame, args.fail_on)


def show_fleet(frame: DataFrame, slowdown: float | None = None) -> int:
    """Print the comparison of a fleet, and return the exit code."""
    lines(text(frame), *frame.attrs["remarks"])
    return _exit_code(frame, slowdown, "values of nodes")


def text(frame: DataFrame) -> str:
    """Return a table for each processor with the nodes that are off, and in what nodes differ."""
    from memkern.results.comparison_output import aligned
    from memkern.results.effects import LEAST_POWER
    from memkern.results.fleet import NODE
    from memkern.results.verdicts import FASTER, SLOWER

    lines = []
    for machine, of_machine in frame.groupby("machine", sort=False):
        table = [["part", "cases", "against", "spread", "named: half", f"{LEAST_POWER:.0%}", "off"]]
        known = of_machine[of_machine["evidence"].notna()]
        for (part, against), rows in known.groupby(["part", "against"], sort=False):
            off = rows[rows["verdict"].isin((SLOWER, FASTER))].sort_values("slowdown")[::-1]
            numbers = rows[["cases", "others", "spread", "half", "least_slowdown"]].median()
            table.append(
                [
                    str(part),
                    *(f"{numbers['cases']:.0f}", f"{numbers['others']:.0f} {against}"),
                    *(f"{numbers[name]:.1%}" for name in ("spread", "half", "least_slowdown")),
                    ", ".join(map(_off, off.to_dict("records"))),
                ]
            )
        if table[1:]:
            lines += [str(machine), *aligned(table, left=[0, 2, 6]), ""]
    table = [["node", "differs from most nodes"]]
    for node, rows in frame.groupby(NODE, sort=False):
        first = rows.iloc[0]
        missing = f"not judged ({first['verdict']})" * bool(rows["evidence"].isna().any())
        table += [[str(node), words] for words in (missing, first["differs"]) if words]
    if table[1:]:
        lines += [*aligned(table, left=[0, 1]), ""]
    return "\n".join(lines[:-1])


def _off(row: Mapping[Any, Any]) -> str:
    return f"{row['node']} {row['slowdown']:+.0%} ({row['low']:+.0%} to {row['high']:+.0%})"


FLEET_VERB = verb(
    "compare fleet",
    COMPARE,
    "find nodes of a fleet that are slower than others with the same processor",
    _fleet,
    (
        "memkern compare fleet nodes/*.parquet -o fleet.parquet",
        "memkern compare fleet nodes/*.parquet --fail-on slower:10",
        "memkern compare fleet node.parquet --baseline fleet.parquet",
    ),
    argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="results of the same command on each node, in files with the node's name; earlier "
        "ones are the node's history",
    ),
    argument(
        "--baseline",
        nargs="+",
        default=[],
        metavar="FILE",
        help="earlier results, and other nodes, which are not judged",
    ),
    argument(
        "-o", "--output", metavar="PATH", help="write all records with their nodes: a baseline"
    ),
    argument("--json", action="store_true", help="a row for each node and part, as JSON"),
    argument(
        "--fail-on",
        type=fail_on,
        metavar="slower[:PERCENT]",
        help="exit code 3 if a node is slower (by more than PERCENT, if given), 4 if that is "
        "undecided for a node",
    ),
    FORCE,
)
