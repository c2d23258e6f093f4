"""The verb bs."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any

from memkern.cli.measuring import exit_code, measure
from memkern.cli.options import Verb, count, each, given, knobs_of, measuring_options, numbers
from memkern.cli.refusing import taken
from memkern.errors import InputError
from memkern.families.streaming.verbs import lengths, stream_options, takers
from memkern.spec import registry
from memkern.spec.registry import DEFINITIONS
from memkern.spec.sequences import joined, product


def _finite_elements(args: argparse.Namespace) -> int:
    if args.sizes is not None and args.entries is not None:
        raise InputError("--sizes and --entries exclude each other")
    knobs = knobs_of(args)
    for option in ("index_dtype", "dtype", "variant"):
        knobs.pop(option, None)
    names = [f"bs.bs{number}" for number in args.tests or range(9)]
    vectors, meshes = ([f"bs.bs{n}" for n in numbers] for numbers in (range(1, 6), range(6, 9)))
    kernels = takers(names) | {
        **dict.fromkeys(("sizes", "entries"), vectors),
        **dict.fromkeys(("elements", "degree", "masked", "numbering"), meshes),
        # An empty launch has no values of any type, and no technique.
        **dict.fromkeys(("dtype", "variant"), vectors + meshes),
    }
    parts = []
    for name, own in taken(given(args, *kernels), kernels, names).items():
        for shape in ("sizes", "entries"):
            own.pop(shape, None)
        if "variant" in own:
            own["variant"] = each(own["variant"])[0]
        # Options of which the command line takes lists; of those not given, kernels have their own.
        listed = [option for option in ("degree", "elements") if option in own]
        axes: dict[str, Any] = {option: each(own.pop(option)) for option in listed}
        if name in vectors:
            axes = lengths(args.sizes, args.entries)
        parts.append(product(functools.partial(registry.case, name, **own, **knobs), axes))
    return exit_code(measure(joined(parts), args))


def _list(least: int, name: str) -> Callable[[str], list[int]]:
    convert = numbers(least, name)
    return lambda text: each(convert(text))


def add_verbs(verb: Verb) -> None:
    """Add the verb bs."""
    sub = verb("bs", _finite_elements, "the finite-element streaming tests BS0 to BS8")
    sub.add_argument(
        "tests", nargs="?", type=_list(0, "tests"), metavar="NUMBERS", help="0..8, or 1,2,6 (all)"
    )
    sub.add_argument(
        "-n",
        "--entries",
        type=count(1),
        metavar="N",
        help="length of each array of BS1 to BS5 (four times the last-level caches)",
    )
    sub.add_argument(
        "--elements",
        type=numbers(1, "elements"),
        metavar="K,...",
        help="mesh of K x K x K elements for BS6 to BS8 (20)",
    )
    sub.add_argument(
        "--degree",
        type=numbers(1, "degree"),
        metavar="N,...",
        help="polynomial degree for BS6 to BS8 (7)",
    )
    sub.add_argument(
        "--masked",
        choices=("none", "boundary"),
        help="nodes that take no part in BS6 to BS8 (none)",
    )
    sub.add_argument(
        "--numbering",
        choices=("elements", "lexicographic"),
        help="order of the mesh's unique nodes (elements)",
    )
    sub.add_argument("--definition", choices=DEFINITIONS, help="of BS5 (paper)")
    stream_options(sub)
    measuring_options(sub)
