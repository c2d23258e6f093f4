"""The verb run: kernels of users."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from memkern.cli.measuring import exit_code, measure
from memkern.cli.options import (
    MEASURE,
    argument,
    given,
    knobs_of,
    measuring_options,
    named_values,
    verb,
)
from memkern.errors import InputError
from memkern.families.own.kernels import Kernel, kernel
from memkern.inputs.sizes import parse_sizes
from memkern.spec.kernel import INDEX_DTYPES

if TYPE_CHECKING:
    from memkern.formats import ResultSet


def _kernel(args: argparse.Namespace) -> Kernel:
    """Return the kernel of the options."""
    reference: Any = args.reference
    if reference and reference.partition(":")[0].endswith(".py"):
        reference = _function_in(*reference.split(":", 1))
    return kernel(
        args.expr,
        file=args.file,
        function=args.function,
        reference=reference,
        arrays=args.arrays,
        parameters=named_values(args.set),
        bytes_per_iteration=args.bytes,
        flops=args.flops,
        idx=args.idx,
        dtype=given(args, "dtype").get("dtype", "float64"),
        flags=args.flags,
    )


def _function_in(path: str, name: str) -> Any:
    """Return a function of a Python file."""
    import runpy

    found = runpy.run_path(path).get(name)
    if found is None:
        raise InputError(f"{path} has no function {name}")
    return found


def _run(args: argparse.Namespace) -> int:
    made = _kernel(args)
    own = given(args, "pattern", "elements") | knobs_of(args)
    if args.allow_repeats:
        own["repeats"] = True
    own.pop("dtype", None)
    n = own.pop("elements", None)
    sizes = [None] if args.sizes is None else parse_sizes(args.sizes)
    cases = [made.case(n, footprint_B=size, **own) for size in sizes]
    return exit_code(measure(cases, args, answers=[_judged]))


def _judged(results: ResultSet) -> str:
    """Return how bytes were counted, and what the guards found."""
    rows = [record for record in results if record.get("bytes_counted")]
    how = {
        "accesses": "bytes are those of all counted accesses",
        "distinct bytes": "bytes are the counted ones, each once",
        "partly": "bytes are as declared: not all accesses can be counted",
        "declared": "bytes are as declared",
    }
    found = [how[word] for word in dict.fromkeys(str(r["bytes_counted"]) for r in rows)]
    found += dict.fromkeys(f"not valid: {r['validation']}" for r in results if not r["valid"])
    return "; ".join(found)


RUN_VERB = verb(
    "run",
    MEASURE,
    "a kernel of your own: an expression or a function in C",
    _run,
    (
        'memkern run --expr "a[i] = b[i] + s * c[i]"',
        'memkern run --expr "a[i] = b[idx[i]]" --pattern zipf:1.2 --sizes 16KiB:1GiB:20',
        'memkern run mine.c --function f --arrays a=write,b=read --reference "a[i] = 2 * b[i]"',
    ),
    argument("file", nargs="?", metavar="FILE.c", help="file with the function"),
    argument("--expr", metavar="TEXT", help="loop over i, instead of a file"),
    argument("--function", metavar="NAME", help="function in the file"),
    argument(
        "--arrays",
        metavar="NAME=ROLE,...",
        help="its arrays: read, write, update, sum or index[array], with [size] unless it is n",
    ),
    argument("--reference", metavar="TEXT", help="expression, or FILE.py:FUNCTION"),
    argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="parameters (3)"),
    argument("-n", "--elements", type=int, metavar="N", help="iterations of an invocation"),
    argument("--sizes", metavar="LOW:HIGH:COUNT", help="bytes of all arrays, instead of -n"),
    argument("--pattern", metavar="PATTERN", help="order of indices (permutation)"),
    argument(
        "--allow-repeats",
        action="store_true",
        default=None,
        help="allow repeated indices in a file",
    ),
    argument("--idx", choices=INDEX_DTYPES, default="int64", help="type of indices (int64)"),
    argument("--flops", type=float, metavar="N", help="operations of an iteration"),
    argument("--bytes", type=float, metavar="N", help="bytes of an iteration, to be checked"),
    argument("--flags", default="", metavar="WORDS", help="further flags for the compiler"),
    measuring_options(),
)
