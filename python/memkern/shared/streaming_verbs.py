"""Shared parts of the verbs of the streaming families."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memkern.checks import read_number
from memkern.cli.measuring import exit_code, measure
from memkern.cli.options import (
    Options,
    argument,
    checked,
    count,
    given,
    knobs_of,
    measuring_options,
    options_by_kernel,
    taken,
)
from memkern.errors import InputError
from memkern.inputs.sizes import parse_sizes
from memkern.spec import registry
from memkern.spec.kernel import DTYPES
from memkern.spec.sequences import joined, product

if TYPE_CHECKING:
    from memkern.formats import ResultSet

# Options of the kernels other than the length of their arrays.
_OPTIONS = (
    "alpha", "beta", "pattern", "allow_repeats", "definition", "index_dtype", "rows", "columns"
)  # fmt: skip


def streaming_options(
    family: str, dtypes: tuple[str, ...] = DTYPES, default: str = "all"
) -> tuple[Options, ...]:
    """Return the options of the verb of a family whose kernels have a length, with these types.

    `default` describes what is measured unless kernels are named.
    """
    names = (word.partition(".")[2] for word in registry.of_family(family) if "@" not in word)
    return (
        argument("-k", "--kernel", metavar="NAME,...", help=f"{', '.join(names)} ({default})"),
        argument(
            "-n",
            "--elements",
            type=count(1),
            metavar="N",
            help="length of each array (four times the last-level caches, at least a million)",
        ),
        *STREAM_OPTIONS,
        measuring_options(dtypes=dtypes),
    )


STREAM_OPTIONS = (
    argument(
        "--sizes",
        metavar="LOW:HIGH:COUNT",
        help="total bytes of all arrays, log-spaced, such as 16KiB:1GiB:400; or a list",
    ),
    argument("--alpha", type=checked(read_number), metavar="X", help="scalar of the kernel"),
    argument("--beta", type=checked(read_number), metavar="X", help="second scalar of the kernel"),
)
"""Options of sizes and scalars."""


def kernels_of(args: argparse.Namespace) -> list[str]:
    """Return the requested kernels, by default all of the verb's family."""
    if args.kernel is not None:
        return [f"{args.verb}.{word.strip()}" for word in args.kernel.split(",")]
    return [name for name in registry.of_family(args.verb) if "@" not in name]


def measure_kernels(
    args: argparse.Namespace,
    names: Sequence[str],
    shapes: Sequence[Mapping[str, Any]] | None = None,
    answers: Sequence[Callable[[ResultSet], str]] = (),
) -> int:
    """Measure kernels at the requested lengths, or in the given shapes; return the exit code.

    For `answers` see `memkern.cli.measuring.measure`.
    """
    knobs = knobs_of(args)
    knobs.pop("index_dtype", None)
    if args.sizes is not None and args.elements is not None:
        raise InputError("--sizes and a number of elements exclude each other")
    axes = lengths(args.sizes, args.elements) if shapes is None else {}
    parts = []
    for name, own in options_by_kernel(given(args, *_OPTIONS), owners(names), names).items():
        if "allow_repeats" in own:
            own["repeats"] = own.pop("allow_repeats")
        build = functools.partial(registry.case, name, **own, **taken(name, knobs))
        parts += [product(functools.partial(build, **shape), axes) for shape in shapes or [{}]]
    return exit_code(measure(joined(parts), args, answers=answers))


def lengths(sizes: str | None, elements: int | None) -> dict[str, list[int]]:
    """Return the given option for the length of arrays with its values, if any."""
    if sizes is not None:
        return {"footprint_B": parse_sizes(sizes)}
    return {} if elements is None else {"elements": [elements]}


def owners(names: Collection[str]) -> dict[str, list[str]]:
    """Return the kernels that accept each option, in the families of the named kernels."""
    families = dict.fromkeys(name.partition(".")[0] for name in names)
    specs = {name: spec for each in families for name, spec in registry.of_family(each).items()}
    family = [name for name in specs if "@" not in name]
    indexed = [name for name in family if specs[name].indices]
    own = {name: registry.options_of(specs[name]) for name in family}
    return {
        **{
            option: [name for name in family if option in own[name]]
            for option in ("alpha", "beta", "rows", "columns")
        },
        "pattern": indexed,
        "allow_repeats": indexed,
        "definition": [name for name in family if f"{name}@release" in specs],
        "index_dtype": [name for name in family if specs[name].limits.index_dtypes != ("",)],
    }
