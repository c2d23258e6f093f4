"""Verbs of families, whose options are the inputs of the families' kernels."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from memkern.cli.measuring import exit_code, measure
from memkern.cli.options import (
    MEASURE,
    Options,
    Verb,
    argument,
    arguments_of,
    each,
    flags_of,
    given,
    knobs_of,
    measuring_options,
    options_by_kernel,
    taken,
    verb,
)
from memkern.errors import InputError
from memkern.spec import registry
from memkern.spec.case import Case
from memkern.spec.options import Declared
from memkern.spec.sequences import joined, product

# Options of all measuring verbs that only some kernels have.
_DTYPES = ("dtype", "index_dtype")


def rows_of(kernels: Iterable[str]) -> dict[str, dict[str, Declared]]:
    """Return the inputs of kernels by the option of the command line, then by kernel."""
    found: dict[str, dict[str, Declared]] = {}
    for name in kernels:
        for row in registry.find(name).inputs:
            if row.flag:
                found.setdefault(row.flag, {})[name] = row
    return found


def kernels_of(family: str) -> list[str]:
    """Return the kernels of a family, without other definitions of the same kernel."""
    return [name for name in registry.of_family(family) if "@" not in name]


def input_options(family: str, but: Collection[str] = ()) -> list[Options]:
    """Return the options of the inputs of a family's kernels, in the order of their rows."""
    by_flag = rows_of(kernels_of(family)).values()
    # The command line accepts what one of the kernels does.
    rows = (min(rows.values(), key=lambda row: row.option.least or 0) for rows in by_flag)
    options = [
        argument(*flags_of(row), **arguments_of(row))
        for row in rows
        if row.flag not in (*_DTYPES, *but)
    ]
    if released := [name for name in registry.of_family(family) if "@" in name]:
        few = " and ".join(name.partition("@")[0].partition(".")[2].upper() for name in released)
        which = few if len(released) == 1 else "the kernels"
        help = f"definition of {which} (paper)"
        options.append(argument("--definition", choices=registry.DEFINITIONS, help=help))
    return options


def input_cases(
    args: argparse.Namespace,
    kernels: Sequence[str],
    *,
    parts: Callable[[str], Iterable[Mapping[str, Sequence[Any]]]] = lambda kernel: ({},),
    owners: Mapping[str, Collection[str]] | None = None,
    but: Collection[str] = (),
    build: Callable[..., Case] = registry.case,
    **knobs: Any,
) -> list[Sequence[Case]]:
    """Return the cases of kernels with the inputs and options of the command line.

    Parameters
    ----------
    args : Namespace
    kernels : sequence of str
        Kernels of one family. Each gets the inputs that it has.
    parts : callable
        Kernel to the parts of its cases: the values of inputs that differ between parts, or that
        are not as on the command line.
    owners : mapping, optional
        Kernels that have an option of all cases which only some have.
    but : collection of str
        Options that are not taken from the command line.
    build : callable
        Kernel, and inputs and options by keyword, to case.
    **knobs
        Options of all cases that are not given on the command line.

    Returns
    -------
    list of sequence of Case
        Some parts have no cases if there is an input without values.

    Raises
    ------
    InputError
        None of the kernels has an input, or inputs exclude each other.
    """
    for kernel in kernels:
        registry.spec_of(kernel)
    family = kernels_of(kernels[0].partition(".")[0])
    rows = rows_of(family)
    specs = {name: registry.find(name) for name in family}
    known: dict[str, Collection[str]] = {
        **{flag: list(of_kernel) for flag, of_kernel in rows.items()},
        "definition": [name for name in family if registry.definition_of(specs[name])],
        "dtype": [name for name in family if args.dtype in specs[name].limits.dtypes],
        "index_dtype": list(rows.get("index_dtype", {})),
        **(owners or {}),
    }
    values = {name: value for name, value in given(args, *known).items() if name not in but}
    knobs = knobs | {k: v for k, v in knobs_of(args).items() if k not in {*known, *but}}
    found: list[Sequence[Case]] = []
    for kernel, own in options_by_kernel(values, known, kernels).items():
        fixed, lists = taken(kernel, knobs), dict[str, Sequence[Any]]()
        inputs = {row.flag: row for row in specs[kernel].inputs}
        flags = {row.name: flag for flag, row in inputs.items()}
        for flag, value in own.items():
            if flag not in inputs:
                fixed[flag] = each(value)[0]
                continue
            name, _, option = inputs[flag]
            for other in option.excludes:
                if flags[other] in own:
                    raise InputError(f"--{flag} and --{flags[other]} exclude each other")
            if option.parse is not None or option.several:
                lists[name] = option.parse(value) if option.parse else each(value)
            else:
                fixed[name] = value
        made = functools.partial(build, kernel, **fixed)
        for part in parts(kernel):
            others = {name: values for name, values in lists.items() if name not in part}
            found.append(product(made, {**part, **others}))
    return found


def kernel_option(family: str, default: str = "all") -> Options:
    """Return the option for the names of kernels; `default` says what is measured without it."""
    names = ", ".join(name.partition(".")[2] for name in kernels_of(family))
    return argument("-k", "--kernel", metavar="NAME,...", help=f"{names} ({default})")


def requested_kernels(args: argparse.Namespace) -> list[str]:
    """Return the kernels that the option names, by default all of the verb's family."""
    if args.kernel is None:
        return kernels_of(args.verb)
    return [f"{args.verb}.{word.strip()}" for word in args.kernel.split(",")]


def kernel_verb(
    family: str,
    help: str,
    examples: tuple[str, ...],
    *,
    option: Options | None = None,
    kernels: Callable[[argparse.Namespace], list[str]] = requested_kernels,
    measuring: Options | None = None,
    **how: Any,
) -> Verb:
    """Return the verb of a family: its kernels are measured with the inputs that they have.

    Parameters
    ----------
    family, help, examples
        As for `memkern.cli.options.verb`.
    option : Options, optional
        The option for the kernels; by default `kernel_option`.
    kernels : callable
        Parsed options to the kernels that they name.
    measuring : Options, optional
        By default `measuring_options`.
    **how
        `owners` as for `input_cases`, and arguments of `memkern.cli.measuring.measure`.
    """
    owners = how.pop("owners", None)

    def run(args: argparse.Namespace) -> int:
        return exit_code(
            measure(joined(input_cases(args, kernels(args), owners=owners)), args, **how)
        )

    options = (option or kernel_option(family), *input_options(family))
    return verb(family, MEASURE, help, run, examples, *options, measuring or measuring_options())
