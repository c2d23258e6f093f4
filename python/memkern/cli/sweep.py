"""The verbs sweep, over declared cases, and tune, a search for the best options."""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memkern import files, launcher
from memkern.checks import read_integer, shown
from memkern.cli.measuring import (
    check_output,
    exit_code,
    health_of,
    line,
    lines,
    measure,
    requested,
    save_and_show,
    show_progress,
    tell_host,
    tell_limit,
    wants_table,
)
from memkern.cli.options import (
    COMPARE,
    GOOD,
    MEASURE,
    QUICK_S,
    argument,
    argument_group,
    checked,
    count,
    defaults,
    given,
    knobs_of,
    measuring_options,
    named_values,
    positive,
    refuse,
    verb,
)
from memkern.cli.tables import STREAMS, cell, scope_of, varying
from memkern.errors import InputError
from memkern.spec import registry
from memkern.spec.options import Knobs, declared
from memkern.spec.sequences import Cases, Part

if TYPE_CHECKING:
    from memkern.studies.cluster import Task

# Options without influence on the measurements of a sweep.
_OUTSIDE = {"run", "parser", "verb", "file", "output", "json", "resume", "force", "quiet"}
_OUTSIDE |= {"wait_quiet", "case_order", "case_order_seed", "comm"}
_OUTSIDE |= {"executor", "nodes", "options", "no_wait", "part", "every_node"}
_ROUNDS = 10  # of a fleet
_SPREAD_MIN = 10.0  # over which they are spread


def _sweep(args: argparse.Namespace) -> int:
    if args.every_node and args.repeats is None:
        args.repeats = _ROUNDS
    cases = _declared(args)
    if args.executor is not None:
        return _sweep_in_tasks(cases, args)
    refuse(args, "without --executor", nodes=None, options=None, no_wait=False, every_node=None)
    return exit_code(measure(cases, args, select=args.part and args.part.select))


def _declared(args: argparse.Namespace) -> Cases:
    """Return the cases of the sweep file; its number of repeats applies if none is given."""
    from memkern.spec.sweepfile import read_sweep

    cases, repeats = read_sweep(args.file, knobs_of(args))
    if args.repeats is None:
        args.repeats = repeats
    return cases


def _sweep_in_tasks(cases: Cases, args: argparse.Namespace) -> int:
    """Measure the parts of a sweep in tasks on other machines."""
    from memkern.cli.compare import show_fleet
    from memkern.results.fleet import fleet
    from memkern.studies.cluster import Array, Fleet

    refuse(args, "with --executor, whose tasks are the parts", part=None)
    if launcher.size() > 1:
        raise InputError(
            f"--executor submits from one process, not from {launcher.size()} ranks: start it "
            "without the launcher"
        )
    if args.output is None:
        raise InputError("--executor needs --output, a file in a folder that all machines share")
    if args.every_node:
        refuse(args, "with --every-node, whose nodes are measured together", resume=False)
        if args.executor == "local":
            refuse(args, "with --executor local, which has this node alone", nodes=None)
    args.file = os.path.abspath(args.file)
    every, some = requested(cases, args)
    values = {name: value for name, value in vars(args).items() if name not in ("run", "parser")}
    array = (Fleet if args.every_node else Array)(
        args.output,
        args.nodes or 1 if args.every_node else min(args.nodes or 1, len(every)),
        _request(args),
        functools.partial(_measure_part, values),
        executor=args.executor,
        options=_options(args.options or ()),
        resume=args.resume,
        force=args.force,
    )
    if args.no_wait:
        jobs = array.submit()
        if not args.quiet:
            line(f"submitted: {' '.join(jobs) or 'nothing, since nothing is missing'}")
            line("follow:    squeue --me")
            merging = ["compare", "fleet"] if args.every_node else ["export"]
            merged = shlex.join(["memkern", *merging, "-o", args.output])
            line(f"merge:     {merged} {shlex.quote(str(array.folder))}/*.db")
            if not args.every_node:
                line("           or the same command with --resume instead of --no-wait")
        return GOOD
    results = array.run(len(every) * args.repeats, not args.quiet)
    if args.every_node and (args.nodes or 1) > 1 and not args.json:
        return show_fleet(fleet(results))
    tell_host(results, args.quiet)
    if wants_table(results, args):
        lines(*STREAMS.after(*varying(some)).lines(results), scope_of(results))
    return exit_code(results)


def _measure_part(values: Mapping[str, Any], task: Task) -> bool:
    """Measure the remaining cases of a task's part; return False if it was interrupted."""
    args = argparse.Namespace(**values)
    if _request(args) != task.request:
        raise InputError(f"{args.file} was changed after this task was submitted")
    args.output, args.resume, args.force, args.json = str(task.output), True, False, False
    if task.fleet:
        return _measure_rounds(_declared(args), args, task)
    select = functools.partial(task.left, repeats=args.repeats)
    return not measure(_declared(args), args, select=select).interrupted


def _measure_rounds(cases: Cases, args: argparse.Namespace, task: Task) -> bool:
    """Measure all cases in rounds spread over time, a suspect node in up to as many again.

    Return False if it was interrupted.
    """
    rounds, begin = args.repeats, time.monotonic()
    period_s = 60 * args.every_node / rounds
    measurements = len(requested(cases, args)[0]) * rounds
    for number in range(1, 2 * rounds + 1):
        args.repeats, args.resume = number, True  # the earlier ones are in the file
        if measure(cases, args, select=lambda every: every).interrupted:
            return False
        if number >= rounds and not task.is_suspect(measurements, 60 + period_s):
            break
        time.sleep(max(begin + number * period_s - time.monotonic(), 0))
    return True


def _request(args: argparse.Namespace) -> str:
    """Return a hash of the sweep file and of the options of its measurements."""
    options = sorted((name, value) for name, value in vars(args).items() if name not in _OUTSIDE)
    content = files.read(Path(args.file)) + repr(options).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _options(words: Sequence[str]) -> dict[str, str]:
    """Return the options of sbatch from words NAME=VALUE."""
    options = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise InputError(f"--options takes NAME=VALUE, not {shown(word)}")
        options[name.lstrip("-").replace("-", "_")] = value
    return options


def _part(text: str) -> Part:
    """Convert K/N."""
    number, _, of = text.partition("/")
    try:
        part = Part(count(1)(number), count(1)(of))
    except argparse.ArgumentTypeError:
        part = Part(1, 0)
    if part.number > part.of:
        raise argparse.ArgumentTypeError(f"must be K/N, such as 1/4 to 4/4, not {shown(text)}")
    return part


def _tune(args: argparse.Namespace) -> int:
    from memkern.studies.tune import gain_of, tune, usual_knobs

    check_output(args)
    refuse(args, "in a search, which stops by --budget", runs=None, repeats=1, resume=False)
    refuse(args, "in a search: measure its result", openmetrics=None, explain=False)
    knobs = knobs_of(argparse.Namespace(**{**vars(args), "budget": None}))
    own = given(args, "pattern", "delta", "count") | named_values(args.set)
    case = registry.case(args.kernel, **own, **knobs)
    on_device = not case.knobs.backend.on_processors
    # A given option keeps its value; a list of values is searched.
    columns = {name: option.column or name for name, _, option in declared(Knobs)}
    fixed = given(args, *columns)
    lists = {name: value for name, value in fixed.items() if isinstance(value, list)}
    usual = {name: values for name, values in usual_knobs(case).items() if name not in fixed}
    tuned = usual | lists
    budget_s = QUICK_S if args.quick else args.budget
    with show_progress(args) as progress:
        best, search = tune(
            case, knobs=tuned, progress=progress, **({"budget_s": budget_s} if budget_s else {})
        )
    if save_and_show(search, args):
        wide = (cell(columns[name], f">{max(len(name), 10)}", name) for name in tuned)
        table = STREAMS.after(cell("tune_step", "<13", "step"), *wide)
        lines(*table.lines(search), scope_of(search))
        names = dict.fromkeys(("variant", *([] if on_device else ["isa"]), *tuned))
        chosen = (f"--{name.replace('_', '-')} {getattr(best.knobs, name)}" for name in names)
        lines(f"best: {' '.join(chosen)}", gain_of(search), health_of(search))
        tell_limit(search, args)
    return exit_code(search)


SWEEP_VERB = verb(
    "sweep",
    MEASURE,
    "measure the cases of a sweep in a TOML file",
    _sweep,
    (
        "memkern sweep sweep.toml -o sweep.db",
        "memkern sweep sweep.toml --resume -o sweep.db",
        "memkern sweep sweep.toml --part 1/4 -o sweep-1-of-4.db",
    ),
    argument("file", metavar="FILE.toml", help="tables [[case]], each with a kernel or a suite"),
    measuring_options(),
    # An option that is given overrides the file, even if it equals the default.
    defaults(repeats=None),
    argument_group(
        "many machines",
        argument(
            "--executor",
            choices=("slurm", "local"),
            help="measure in tasks: of a job array of Slurm, or one after the other on this "
            "machine",
        ),
        argument("--nodes", type=count(1), metavar="N", help="tasks, one on each node (1)"),
        argument(
            "--options",
            nargs="+",
            metavar="NAME=VALUE",
            help="options of sbatch by their long names, such as partition=batch time=60",
        ),
        argument(
            "--every-node",
            nargs="?",
            type=positive,
            const=_SPREAD_MIN,
            metavar="MINUTES",
            help=f"check a fleet: all cases on each node, in --repeats rounds ({_ROUNDS}) spread "
            f"over MINUTES ({_SPREAD_MIN:g}) of one job; nodes that may be off get more",
        ),
        argument("--no-wait", action="store_true", help="submit, and do not wait"),
        argument("--part", type=_part, metavar="K/N", help="measure one of N parts, K from 1 to N"),
    ),
)


TUNE_VERB = verb(
    "tune",
    COMPARE,
    "search for the best variant, pages, prefetch distance and chunk within a budget",
    _tune,
    (
        "memkern tune -p UNIFORM:8:16:NR -l 1000000",
        "memkern tune -k stream.triad --set elements=1000000",
        "memkern tune -k stream.triad --pages 4k,thp --budget 60",
    ),
    argument(
        "-k", "--kernel", default="gather", metavar="NAME", help="such as stream.triad (gather)"
    ),
    argument(
        "-p", "--pattern", metavar="PATTERN", help="of gather or scatter, in Spatter's notation"
    ),
    argument(
        *("-d", "--delta"),
        type=checked(read_integer),
        metavar="N",
        help="elements from one instance of the pattern to the next (8)",
    ),
    argument("-l", "--count", type=count(1), metavar="N", help="instances of the pattern (1024)"),
    argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the kernel, such as elements=1000000 or matrix=hpcg:32",
    ),
    measuring_options(),
    defaults(over_ranks=False),
)
