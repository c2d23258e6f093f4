"""The verbs of the streaming families: stream, raider, loops, bs and barrier."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Collection
from typing import Any

from memkern.cli.measuring import exit_code, measure, tell_unquiet, wait_until_quiet
from memkern.cli.options import (
    GOOD,
    Verb,
    checked,
    count,
    each,
    force_option,
    given,
    knobs_of,
    measuring_options,
    numbers,
    wait_option,
)
from memkern.cli.refusing import refuse, taken
from memkern.declared import joined, product
from memkern.errors import InputError
from memkern.kernels import DEFINITIONS
from memkern.patterns import read_number
from memkern.spec import DTYPES


def _streaming(args: argparse.Namespace) -> int:
    from memkern import kernels

    names = _streaming_kernels(args)
    knobs = knobs_of(args)
    knobs.pop("index_dtype", None)
    if args.sizes is not None and args.elements is not None:
        raise InputError("--sizes and a number of elements exclude each other")
    axes = _lengths(args.sizes, args.elements)
    shapes: list[dict[str, Any]] = [{}]
    if getattr(args, "layer_condition", None) is not None:
        where = "with --layer-condition, which chooses rows and columns itself"
        refuse(args, where, sizes=None, rows=None, columns=None)
        names, axes, shapes = ["loops.stencil"], {}, _layer_conditions(args)
    elif getattr(args, "rows", None) is not None:
        refuse(args, "with --rows, which says the size", sizes=None, elements=None)
        if args.kernel is None:
            names = list(_SHAPED)
    options = given(
        args,
        *("alpha", "beta", "pattern", "allow_repeats", "definition", "index_dtype"),
        *("rows", "columns"),
    )
    parts = []
    for name, own in taken(options, _takers(names), names).items():
        if "allow_repeats" in own:
            own["repeats"] = own.pop("allow_repeats")
        build = functools.partial(kernels.case, name, **own, **knobs)
        parts += [product(functools.partial(build, **shape), axes) for shape in shapes]
    return exit_code(measure(joined(parts), args))


def _lengths(sizes: str | None, elements: int | None) -> dict[str, list[int]]:
    """Return the option that says how long arrays are, if one was given, with its values."""
    from memkern.sizes import parse_sizes

    if sizes is not None:
        return {"footprint_B": parse_sizes(sizes)}
    return {} if elements is None else {"elements": [elements]}


# Kernels over arrays of rows and columns.
_SHAPED = ("loops.stencil", "loops.matvec")


def _takers(names: Collection[str]) -> dict[str, list[str]]:
    """Return by option which kernels of the families that these are of take it."""
    from memkern.spec import registry

    specs = registry()
    families = {name.partition(".")[0] for name in names}
    family = [n for n in specs if n.partition(".")[0] in families and "@" not in n]
    indexed = [name for name in family if specs[name].indices]
    return {
        "alpha": [name for name in family if "alpha" in specs[name].numbers],
        "beta": [name for name in family if "beta" in specs[name].numbers],
        "pattern": indexed,
        "allow_repeats": indexed,
        "definition": [name for name in family if f"{name}@release" in specs],
        "index_dtype": [name for name in family if specs[name].index_dtypes != ("",)],
        "rows": list(_SHAPED),
        "columns": list(_SHAPED),
    }


def _layer_conditions(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Shapes of the stencil, memory-sized, whose rows are held where it is asked for."""
    from memkern.kernels.stencil_matvec import rows_held
    from memkern.kernels.streaming import memory_sized
    from memkern.run import describe

    if args.kernel not in (None, "stencil"):
        raise InputError("--layer-condition is the stencil's: use it with --kernel stencil")
    dtype = args.dtype or DTYPES[0]
    points = args.elements or memory_sized(dtype)
    topology = describe()["topology"]
    # A worker's share of a cache that several have in common.
    share = max(1, max(each(args.threads or len(topology["units"]))))
    caches_B = {
        f"L{cache['level']}": cache["size_B"] // min(share, max(1, cache["shared_by"]))
        for cache in topology["caches"]
    }
    shapes = []
    for holder in args.layer_condition.split(","):
        columns = rows_held(holder, caches_B, dtype)
        rows = max(3, points // columns)
        shapes.append({"rows": rows, "columns": columns, "layer_condition": holder})
    return shapes


def _streaming_kernels(args: argparse.Namespace) -> list[str]:
    from memkern.spec import registry

    if args.kernel is not None:
        return [f"{args.verb}.{word.strip()}" for word in args.kernel.split(",")]
    names = [name for name in registry() if name.startswith(f"{args.verb}.") and "@" not in name]
    # On its own, STREAM means its four kernels in turn, unless sizes would make it a sweep.
    return (
        ["stream.rotation"]
        if args.verb == "stream" and args.sizes is None
        else [name for name in names if name != "stream.rotation"]
    )


def _finite_elements(args: argparse.Namespace) -> int:
    from memkern import kernels

    if args.sizes is not None and args.entries is not None:
        raise InputError("--sizes and --entries exclude each other")
    knobs = knobs_of(args)
    for option in ("index_dtype", "dtype", "variant"):
        knobs.pop(option, None)
    names = [f"bs.bs{number}" for number in args.tests or range(9)]
    vectors, meshes = ([f"bs.bs{n}" for n in numbers] for numbers in (range(1, 6), range(6, 9)))
    takers = _takers(names) | {
        **dict.fromkeys(("sizes", "entries"), vectors),
        **dict.fromkeys(("elements", "degree", "masked", "numbering"), meshes),
        # An empty launch has no values of any type, and no technique.
        **dict.fromkeys(("dtype", "variant"), vectors + meshes),
    }
    parts = []
    for name, own in taken(given(args, *takers), takers, names).items():
        for shape in ("sizes", "entries"):
            own.pop(shape, None)
        if "variant" in own:
            own["variant"] = each(own["variant"])[0]
        # Options of which the command line takes lists; of those not given, kernels have their own.
        listed = [option for option in ("degree", "elements") if option in own]
        axes: dict[str, Any] = {option: each(own.pop(option)) for option in listed}
        if name in vectors:
            axes = _lengths(args.sizes, args.entries)
        parts.append(product(functools.partial(kernels.case, name, **own, **knobs), axes))
    return exit_code(measure(joined(parts), args))


def _barrier(args: argparse.Namespace) -> int:
    from memkern.barrier import barrier_cost
    from memkern.results import check_output

    if args.output:
        check_output(args.output, args.force)
    tell_unquiet(wait_until_quiet(args), args)
    threads = None if args.threads is None else each(args.threads)
    results = barrier_cost(threads, kinds=args.kinds.split(","), runs=args.runs, pin=args.pin)
    if args.output:
        results.save(args.output)
    if args.json:
        print(results.to_json_text())
    elif not args.quiet:
        print(
            f"{'barrier':<12} {'threads':>7} {'ns':>9} {'least':>9} {'greatest':>9} {'cycles':>9}"
        )
        for r in results:
            print(f"{r['barrier']:<12} {r['threads']:>7} {_barrier_cells(r)}")
    return GOOD


def _barrier_cells(record: dict[str, Any]) -> str:
    """Return the columns of times; what the noise of the work hides has none."""
    middle, low, high = (1e9 * record[f"barrier_{end}s"] for end in ("", "low_", "high_"))
    if middle <= 0:
        return f"below {high:.1f}" if high > 0 else "below the noise of the work"
    return f"{middle:>9.1f} {max(low, 0):>9.1f} {high:>9.1f} {middle * record['clock_GHz']:>9.0f}"


def _list(least: int, name: str) -> Callable[[str], list[int]]:
    convert = numbers(least, name)
    return lambda text: each(convert(text))


def _stream_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sizes",
        metavar="LOW:HIGH:COUNT",
        help="bytes of all arrays together, log-spaced, such as 16KiB:1GiB:400; or a list",
    )
    parser.add_argument(
        "--alpha", type=checked(read_number), metavar="X", help="the kernel's scalar"
    )
    parser.add_argument("--beta", type=checked(read_number), metavar="X", help="its second scalar")


def add_verbs(verb: Verb) -> None:
    """Add the verbs stream, raider, loops, bs and barrier."""
    for family, what in (
        ("stream", "STREAM: its four kernels in turn, or some of them on their own"),
        ("raider", "RaiderSTREAM: STREAM's kernels regular, gathered, scattered and central"),
        ("loops", "the loop kernels of the ECM studies"),
    ):
        sub = verb(family, _streaming, what)
        sub.add_argument("-k", "--kernel", metavar="NAME,...", help="(all of them)")
        sub.add_argument(
            "-n",
            "--elements",
            type=count(1),
            metavar="N",
            help="length of each array (four times the last-level caches, at least a million)",
        )
        _stream_options(sub)
        if family == "raider":
            sub.add_argument(
                "--pattern",
                metavar="PATTERN",
                help="order of the indices: permutation, stride1, stride:N, chase, central, "
                "zipf:EXPONENT, hot:ACCESSES:ELEMENTS, or a file",
            )
            sub.add_argument(
                "--allow-repeats",
                action="store_true",
                default=None,
                help="the indices of a file need not be a permutation",
            )
            sub.add_argument("--definition", choices=DEFINITIONS, help="(paper)")
        if family == "loops":
            sub.add_argument(
                "--layer-condition",
                metavar="WHERE,...",
                help="stencil whose three rows are held in L1, L2, L3 or memory",
            )
            for side in ("rows", "columns"):
                help = f"{side} of stencil and matvec"
                sub.add_argument(f"--{side}", type=count(1), metavar="N", help=help)
        measuring_options(sub)

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
    _stream_options(sub)
    measuring_options(sub)

    sub = verb("barrier", _barrier, "what the team's barrier costs, over team sizes")
    sub.add_argument("-t", "--threads", type=numbers(1, "threads"), metavar="N,...")
    sub.add_argument("--kinds", default="omp-passive,omp-active,spin", metavar="NAME,...")
    sub.add_argument("--runs", type=count(1), default=10, metavar="N", help="(10)")
    sub.add_argument("--pin", default="none", metavar="HOW")
    sub.add_argument("-o", "--output", metavar="PATH", help=".db, .parquet, .csv or .json")
    sub.add_argument("--json", action="store_true", help="records as JSON on standard output")
    wait_option(sub)
    force_option(sub)
    sub.add_argument("-q", "--quiet", action="store_true", help="no table")
