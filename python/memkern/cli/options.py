"""Shared by the verbs: their declaration, options and values, and refusals of useless options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from memkern import launcher
from memkern.checks import LEAST, MOST, converter, in_digits, read_integer, read_number, shown
from memkern.errors import InputError
from memkern.spec.case import Case, does_nothing
from memkern.spec.kernel import DTYPES, INDEX_DTYPES
from memkern.spec.options import Declared, Knobs, Stop, declared
from memkern.spec.registry import spec_of

T = TypeVar("T")

GOOD, INVALID, WRONG_INPUT, FAILED, UNDECIDED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 130, 143


MEASURE, UNDERSTAND, COMPARE, MANAGE = GROUPS = ("measure", "understand", "compare", "manage")
"""Groups of verbs, in the order of the help."""


Options: TypeAlias = Callable[[Any], object]
"""Adds options to a parser, or to a group of options in its help."""


def argument(*flags: str, **how: Any) -> Options:
    """Return an option, or an argument without a flag, with the keywords of `add_argument`."""
    return lambda parser: parser.add_argument(*flags, **how)


def argument_group(title: str, *options: Options, description: str | None = None) -> Options:
    """Return options that have a title of their own in the help."""

    def add(parser: argparse.ArgumentParser) -> None:
        group = parser.add_argument_group(title, description)
        for each in options:
            each(group)

    return add


def defaults(**values: Any) -> Options:
    """Return values of options that a verb has for itself, or instead of another default."""
    return lambda parser: parser.set_defaults(**values)


class Verb(NamedTuple):
    """A verb of the command line (see `verb`)."""

    name: str
    group: str
    help: str
    run: Callable[[argparse.Namespace], int]
    examples: tuple[str, ...]
    options: tuple[Options, ...]


def verb(
    name: str,
    group: str,
    help: str,
    run: Callable[[argparse.Namespace], int],
    examples: tuple[str, ...],
    *options: Options,
) -> Verb:
    """Return a verb of the command line, which has those in the namespaces of its modules.

    Parameters
    ----------
    name : str
        Two words for a part of a verb with options of its own, such as ``machine incore``.
    group : str
        One of `GROUPS`.
    help : str
    run : callable
        Runs the verb with the values of its options, and returns the exit code.
    examples : tuple of str
        Commands at the end of the verb's help.
    *options : callable
        Its options in the order of the help.
    """
    return Verb(name, group, help, run, examples, options)


def positive(text: str) -> float:
    """Convert a positive number, from `LEAST` to `MOST`."""
    try:
        value = read_number(text, "")
    except InputError:
        value = -1.0
    if not LEAST <= value <= MOST:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a positive number")
    return value


def checked(read: Callable[[str, str], T]) -> Callable[[str], T]:
    """Return a converter for argparse that reads a number by a function of `memkern.checks`."""
    return converter(lambda text: read(text, "it"))


def count(least: int) -> Callable[[str], int]:
    """Return a converter of whole numbers of at least `least`."""

    def convert(text: str) -> int:
        digits = in_digits(text)
        if not (re.fullmatch("[0-9]{1,20}", digits) and least <= int(digits) < 10**18):
            raise argparse.ArgumentTypeError(
                f"{shown(text)} is not a whole number of at least {least}"
            )
        return int(digits)

    return convert


def each(values: Any) -> list[Any]:
    """Return a value of `words` or `numbers` as a list, even if it is a single one."""
    return values if isinstance(values, list) else [values]


def given(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the options that were given, by name."""
    return {name: value for name in names if (value := getattr(args, name, None)) is not None}


def named_values(pairs: Sequence[str]) -> dict[str, Any]:
    """Return values by name from words NAME=VALUE, as int, float, bool or else str.

    Raises
    ------
    InputError
        A word is not of the form NAME=VALUE.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"{shown(pair)} is not NAME=VALUE")
        value: Any = {"true": True, "false": False}.get(text, text)
        for read in (read_integer, read_number) if value is text else ():
            try:
                value = read(text, name)
                break
            except InputError:
                continue
        values[name] = value
    return values


def kernels_with_options(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the kernels that words name, each with the words NAME=VALUE that follow it.

    Raises
    ------
    InputError
        The first word is an option.
    """
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if "=" not in word:
            found.append((word, []))
        elif found:
            found[-1][1].append(word)
        else:
            raise InputError(f"{shown(word)} must follow the kernel that takes it")
    return found


def words(text: str) -> str | list[str]:
    """Convert a word or a list of them."""
    all_words = [word.strip() for word in text.split(",")]
    return all_words if len(all_words) > 1 else all_words[0]


def numbers(least: int, name: str) -> Callable[[str], int | list[int]]:
    """Return a converter of one whole number or a list of them, which errors call `name`."""
    from memkern.inputs.sizes import integer_list_parser

    parse = integer_list_parser(least, name)

    @converter
    def convert(text: str) -> int | list[int]:
        values = parse(text)
        return values if len(values) > 1 else values[0]

    return convert


JSON = argument("--json", action="store_true", help="as JSON")
METRICS = argument(
    "--openmetrics",
    metavar="FILE.prom",
    help="gauges for Prometheus, such as for node_exporter's textfile collector; replaces "
    "those of an earlier run",
)
FORCE = argument("--force", action="store_true", help="overwrite files that exist")
QUICK_S = 5.0  # with --quick
EXPLAIN_S = 10.0  # of an explanation without --quick
WAIT = argument(
    "--wait-quiet",
    type=positive,
    metavar="SECONDS",
    help="wait at most this long until nothing else runs on the machine and its cores",
)


def seconds_options(seconds: float) -> tuple[Options, Options]:
    """Return the options for the time of a verb that chooses its cases."""
    return (
        argument(
            "--seconds",
            type=positive,
            default=seconds,
            metavar="N",
            help=f"time limit in seconds ({seconds:g})",
        ),
        argument(
            "--quick",
            action="store_const",
            dest="seconds",
            const=QUICK_S,
            help=f"measure the cases for which {QUICK_S:g} s suffice (--seconds {QUICK_S:g})",
        ),
    )


def measuring_options(
    *,
    short: bool = True,
    runs: bool = True,
    comm: bool = True,
    dtypes: tuple[str, ...] = DTYPES,
    elsewhere: Collection[str] = (),
) -> Options:
    """Return the options of a verb that measures.

    `short` is False if a peer's short options take precedence, `runs` if ``--runs`` is the peer's
    own option, `comm` if the verb has another option of this name; the first of `dtypes` is the
    default of cases; `elsewhere` has options of the verb that few users need, such as those for
    GPUs or ranks only. The usual help only names these and all that are not `_USUAL`;
    ``--help-all`` describes them. Options of a case have no default here: if not given they are
    None, and the case's own default applies.
    """

    def add(parser: Any) -> None:
        _results(short)(parser)
        _how_to_measure(short, runs, comm, dtypes)(parser)
        shared = (a for group in parser._action_groups[-2:] for a in group._group_actions)
        parser.further |= {a.dest for a in shared} - _USUAL | {*elsewhere}
        if parser.add_help:
            names = [a.option_strings[-1] for a in parser._actions if a.dest in parser.further]
            help = f"describe all options, also {', '.join(names)}"
            parser._action_groups[-1].add_argument("--help-all", action="help_all", help=help)

    return add


# Options of all measuring verbs that the usual help describes.
_USUAL = {
    "output", "json", "dtype", "threads", "pages", "variant", "device", "budget", "machine",
    "quick", "explain",
}  # fmt: skip


def _results(short: bool) -> Options:
    return argument_group(
        "results",
        argument(
            *(["-o"] if short else []),
            "--output",
            metavar="PATH",
            help="results file: .db, .parquet, .csv or .json",
        ),
        argument("--json", action="store_true", help="records as JSON on standard output"),
        METRICS,
        argument("--resume", action="store_true", help="resume an unfinished results file"),
        FORCE,
        argument("-q", "--quiet", action="store_true", help="no table, progress or warnings"),
    )


def _how_to_measure(short: bool, runs: bool, comm: bool, dtypes: tuple[str, ...]) -> Options:
    return argument_group(
        "how to measure",
        argument("--dtype", choices=dtypes, help=f"type of the values ({dtypes[0]})"),
        argument("--index-dtype", choices=INDEX_DTYPES, help="type of the indices, if any"),
        *(
            argument(*flags_of(row, short), **arguments_of(row))
            for row in (*declared(Knobs), *declared(Stop))
            if row.option.flag != "-" and (runs or row.name != "runs")
        ),
        argument(
            "--explain",
            action="store_true",
            help=f"explain the time of each case by experiments in turns, for {EXPLAIN_S:g} s",
        ),
        argument(
            "--machine",
            metavar="FILE",
            help="machine file of `memkern machine -o`, by which records get a roofline",
        ),
        argument(
            "--repeats", type=count(1), default=1, metavar="N", help="records of each case (1)"
        ),
        argument(
            "--case-order",
            choices=("random", "declared"),
            default="random",
            help="order of the cases in each round of placements (random)",
        ),
        argument(
            "--case-order-seed",
            type=count(0),
            metavar="N",
            help="seed of the random order, to repeat that of another run (a new seed)",
        ),
        *([_COMM] if comm else []),
        argument(
            "--quick",
            action="store_true",
            help=f"measure in about {QUICK_S:g} s: fewer samples, and only the main ones of many "
            "cases",
        ),
        WAIT,
    )


_COMM = argument(
    "--comm",
    choices=launcher.CHOICES,
    default="auto",
    help="library by which launched ranks measure together (auto: MPI, or else "
    "OpenSHMEM); none: independent copies",
)


def flags_of(row: Declared, short: bool = True) -> list[str]:
    """Return the spellings of an option."""
    first = [row.option.short] if short and row.option.short else []
    long = filter(None, (row.flag, row.option.alias))
    return [*first, *(f"--{one.replace('_', '-')}" for one in long)]


def arguments_of(row: Declared) -> dict[str, Any]:
    """Return the arguments of `add_argument` for an option, which has no default here."""
    option = row.option
    found: dict[str, Any] = {"help": option.text}
    if isinstance(row.default, bool):
        action = "store_false" if row.default else "store_true"
        return {"action": action, "default": None, **found}
    if option.choices and not option.several:
        return {"choices": list(filter(None, option.choices)), **found}
    found["metavar"] = option.metavar
    least = max(option.least or 0, option.least_given)
    if "nargs" in option.arguments:
        found["type"] = checked(read_integer)
    elif option.below is not None:
        found["type"] = positive
    elif option.low is not None and option.parse is None:
        found["type"] = checked(read_number)
    elif option.least is not None:
        found["type"] = numbers(least, row.flag) if option.several else count(least)
    elif option.several:
        found["type"] = words
    return {**found, **option.arguments}


def knobs_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a case that were given, with the first value of each list.

    A budget or a precision replaces the number of runs that a kernel or file has by default.

    Raises
    ------
    InputError
        Both a number of runs and a precision are given, which are different stop rules.
    """
    knobs = {name: each(value)[0] for name, value in given(args, "dtype", "index_dtype").items()}
    if getattr(args, "machine", None) is not None:
        knobs["machine_file"] = args.machine
    for name, _, option in (*declared(Knobs), *declared(Stop)):
        value = getattr(args, option.flag or name, None)
        if value is not None:
            value = each(value)[0]
            knobs[name] = value / option.per if option.per != 1 else value
    if "runs" in knobs and "precision" in knobs:
        raise InputError("--runs sets the number of samples: leave out --precision or --runs")
    if {"precision", "budget_s"} & knobs.keys():
        knobs.setdefault("runs", None)
    return knobs


# Options without effect on the measurements are refused instead of ignored. One is accepted if at
# least one kernel takes it; the others are measured without it.


def taken(by: str | Case, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options without the knobs that have no effect on a kernel or a case."""
    idle = spec_of(by).limits.all_idle_knobs if isinstance(by, str) else by.idle_knobs
    return {name: value for name, value in options.items() if name not in idle}


def refuse_idle(cases: Iterable[Case], args: argparse.Namespace) -> None:
    """Refuse knobs of the command line that have no effect on any of the cases.

    Raises
    ------
    InputError
        A knob has no effect on any of the cases.
    """
    cases = list(cases)
    kernels = ", ".join(dict.fromkeys(case.spec.kernel for case in cases))
    idle = [case.idle_knobs for case in cases]
    for name in dict.fromkeys(name for one in idle for name in one):
        given = {*each(getattr(args, name, None))} - {None, getattr(Knobs, name)}
        if given and all(name in one for one in idle):
            reasons = [one[name] for one in idle]
            raise does_nothing(f"--{name.replace('_', '-')}", kernels, reasons)


def options_by_kernel(
    options: Mapping[str, Any], owners: Mapping[str, Collection[str]], kernels: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Return the options that each kernel takes.

    Parameters
    ----------
    options : mapping
        Options that were given, by their names in Python.
    owners : mapping
        By option, the kernels that take it.
    kernels : collection of str
        The kernels to be measured.

    Returns
    -------
    dict of str to dict
        By kernel, the options that it takes.

    Raises
    ------
    InputError
        None of the kernels takes an option.
    """
    for option in options:
        if not {*owners[option]} & {*kernels}:
            known = ", ".join(owners[option]) or "other kernels"
            raise InputError(
                f"--{option.replace('_', '-')} is for {known}, not for {', '.join(kernels)}"
            )
    return {
        kernel: {name: value for name, value in options.items() if kernel in owners[name]}
        for kernel in kernels
    }


def refuse_lists(given: Mapping[str, Any], where: str = "") -> None:
    """Refuse options with several values; errors name the place `where`, such as `` of --a``.

    Raises
    ------
    InputError
        An option has several values.
    """
    for name, value in given.items():
        if isinstance(value, list):
            raise InputError(f"--{name.replace('_', '-')}{where} takes one value, not a list")


def refuse(args: argparse.Namespace, reason: str, **defaults: Any) -> None:
    """Refuse options that are meaningless together with another option.

    Parameters
    ----------
    args : Namespace
    reason : str
        End of the sentence: ``in a search, which stops by --budget``.
    **defaults
        The options, each with its value if it is not given.

    Raises
    ------
    InputError
        One of the options was given.
    """
    for option, default in defaults.items():
        if getattr(args, option) != default:
            raise InputError(f"--{option.replace('_', '-')} has no effect {reason}: leave it out")
