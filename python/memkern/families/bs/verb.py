"""The verb bs."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any

from memkern.cli.analysis import fit_text
from memkern.cli.measuring import exit_code, measure
from memkern.cli.options import (
    MEASURE,
    argument,
    count,
    each,
    given,
    knobs_of,
    measuring_options,
    numbers,
    options_by_kernel,
    taken,
    verb,
)
from memkern.errors import InputError
from memkern.shared.streaming_verbs import STREAM_OPTIONS, lengths, owners
from memkern.spec import registry
from memkern.spec.case import HALOS
from memkern.spec.registry import DEFINITIONS
from memkern.spec.sequences import joined, product


def _finite_elements(args: argparse.Namespace) -> int:
    if args.sizes is not None and args.entries is not None:
        raise InputError("--sizes and --entries exclude each other")
    knobs = knobs_of(args)
    for option in ("index_dtype", "dtype", "variant"):
        knobs.pop(option, None)
    names = [f"bs.bs{number}" for number in args.tests or range(9)]
    vectors = [f"bs.bs{n}" for n in range(1, 6)]
    meshes = [f"bs.bs{n}" for n in range(6, 9)]
    kernels_of = owners(names) | {
        **dict.fromkeys(("sizes", "entries"), vectors),
        **dict.fromkeys(("elements", "degree", "masked", "numbering", "halo"), meshes),
        # An empty launch has no values and no variants.
        **dict.fromkeys(("dtype", "variant"), vectors + meshes),
    }
    parts = []
    for name, own in options_by_kernel(given(args, *kernels_of), kernels_of, names).items():
        for shape in ("sizes", "entries"):
            own.pop(shape, None)
        if "variant" in own:
            own["variant"] = each(own["variant"])[0]
        # Options that may be lists; those not given keep the kernels' defaults.
        listed = [option for option in ("degree", "elements") if option in own]
        axes: dict[str, Any] = {option: each(own.pop(option)) for option in listed}
        if name in vectors:
            axes = lengths(args.sizes, args.entries)
        build = functools.partial(registry.case, name, **own, **taken(name, knobs))
        parts.append(product(build, axes))
    return exit_code(measure(joined(parts), args, answers=[fit_text]))


def _list(least: int, name: str) -> Callable[[str], list[int]]:
    convert = numbers(least, name)
    return lambda text: each(convert(text))


BS_VERB = verb(
    "bs",
    MEASURE,
    "the finite-element streaming tests BS0 to BS8",
    _finite_elements,
    (
        "memkern bs 1 --sizes 64KiB:512MiB:60",
        "memkern bs 1,2 -n 10000000",
        "memkern bs 6 --degree 3,7 --elements 20",
    ),
    argument(
        "tests", nargs="?", type=_list(0, "tests"), metavar="NUMBERS", help="0..8, or 1,2,6 (all)"
    ),
    argument(
        "-n",
        "--entries",
        type=count(1),
        metavar="N",
        help="length of each array of BS1 to BS5 (four times the last-level caches)",
    ),
    argument(
        "--elements",
        type=numbers(1, "elements"),
        metavar="K,...",
        help="mesh of K x K x K elements for BS6 to BS8 (20)",
    ),
    argument(
        "--degree",
        type=numbers(1, "degree"),
        metavar="N,...",
        help="polynomial degree for BS6 to BS8 (7)",
    ),
    argument(
        "--masked", choices=("none", "boundary"), help="nodes that BS6 to BS8 leave out (none)"
    ),
    argument(
        "--numbering",
        choices=("elements", "lexicographic"),
        help="order of the mesh's unique nodes (elements)",
    ),
    argument(
        "--halo",
        choices=HALOS,
        help="one mesh of all ranks for BS6 to BS8, which exchange values of shared nodes in each "
        "invocation: without computing (blocking), or during independent work (overlap)",
    ),
    argument("--definition", choices=DEFINITIONS, help="definition of BS5 (paper)"),
    *STREAM_OPTIONS,
    measuring_options(elsewhere=("halo",)),
)
