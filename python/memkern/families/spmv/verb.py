"""The verb spmv: performance of sparse matrix-vector products by format, and the roofline."""

from __future__ import annotations

import argparse
import functools
import itertools
from typing import TYPE_CHECKING, Any

from memkern.cli.measuring import (
    check_output,
    exit_code,
    line,
    marks,
    measure,
    plus_minus,
    save_and_show,
    scope_of,
    show_progress,
    tell_limit,
)
from memkern.cli.options import (
    MEASURE,
    QUICK_S,
    argument,
    argument_group,
    each,
    given,
    knobs_of,
    measuring_options,
    numbers,
    refuse,
    taken,
    verb,
    words,
)
from memkern.errors import InputError
from memkern.families.spmv.kernels import BALANCES, FORMATS, MVE, format_of
from memkern.families.spmv.suites import MATRICES, SUITE
from memkern.spec.sequences import joined, product

if TYPE_CHECKING:
    from memkern.formats import ResultSet
    from memkern.spec.case import Case

_FORMATS = ["crs", "sell"]  # measured unless others are requested


def _tune(args: argparse.Namespace) -> int:
    from memkern.families.spmv import product as spmv
    from memkern.families.spmv.data import fastest_sentences
    from memkern.studies.tune import gain_of

    check_output(args)
    searched = ("C", "sigma", "mve", "balance", "move_columns", "unroll", "prefetch")
    own = {"format": _FORMATS, "rcm": False, "halo": None}
    refuse(args, "with --tune, which chooses it", **own, **dict.fromkeys(searched))
    refuse(args, "with --tune, which stops by --budget", runs=None, repeats=1, resume=False)
    knobs = knobs_of(argparse.Namespace(**{**vars(args), "budget": None}))
    records = None
    if args.write:
        knobs["accumulate"] = False
    if args.budget is not None:
        knobs["budget_s"] = args.budget
    if args.quick:
        knobs["budget_s"] = QUICK_S / len(args.matrices)
    for text in args.matrices:
        with show_progress(args) as progress:
            _, search = spmv.tune(text, progress=progress, **knobs)
        records = search if records is None else records + search
        if not (args.json or args.quiet):
            line(f"{'step':<12} {_HEADER}")
            for number, record in enumerate(search):
                line(f"{record['tune_step']:<12} {_row(number, record)}")
            if scope := scope_of(search):
                line(scope)
            line(fastest_sentences(search.records[-2:]) or gain_of(search))
            tell_limit(search, args)
    assert records is not None
    save_and_show(records, args)
    return exit_code(records)


def _spmv(args: argparse.Namespace) -> int:
    from memkern.families.spmv import product as spmv
    from memkern.inputs import matrices

    names = {}
    if SUITE in args.matrices:
        names = {matrix: name for name, matrix in MATRICES.items()}
        whole = ([*names] if text == SUITE else [text] for text in args.matrices)
        args.matrices = [*itertools.chain(*whole)]
    if args.tune:
        return _tune(args)
    knobs = knobs_of(args) | given(args, "move_columns")
    owners = {"C": "sell", "sigma": "sell", "move_columns": "sell", "mve": "crs", "unroll": "crs"}
    for option, owner in owners.items():
        if getattr(args, option) is not None and owner not in each(args.format):
            raise InputError(
                f"--{option.replace('_', '-')} is for the format {owner}, which --format leaves out"
            )
    # --unroll is named --mve here.
    knobs.pop("unroll", None)
    listed = {name: getattr(args, name) for name in ("C", "sigma", "mve", "balance", "halo")}
    listed["mve"], args.unroll = listed["mve"] or args.unroll, None
    if args.write:
        knobs["accumulate"] = False
    # The cases of a matrix are adjacent.
    matrix_of = functools.lru_cache(maxsize=1)(
        functools.partial(matrices.build, seed=knobs.get("seed", 0), rcm=args.rcm)
    )

    def build(matrix: str, format: str, **options: Any) -> Case:
        label, a = matrix_of(matrix)
        return spmv.case(a, format, name=names.get(matrix, label), **options)

    formats = [format_of(format) for format in each(args.format)]
    parts = []
    for text, format in itertools.product(args.matrices, formats):
        own = {name: v for name, v in knobs.items() if owners.get(name, format) == format}
        axes = {
            name: each(value)
            for name, value in listed.items()
            if value is not None and owners.get(name, format) == format
        }
        own = taken(f"spmv.{format}", own)
        parts.append(product(functools.partial(build, matrix=text, format=format, **own), axes))
    return exit_code(measure(joined(parts), args, _HEADER, _row, _SHOWN, answers=[_fastest]))


def _fastest(results: ResultSet) -> str:
    """Return the sentences on the fastest format of each matrix."""
    from memkern.families.spmv.data import fastest_sentences

    return fastest_sentences(results)


_HEADER = (
    f"{'matrix':<24} {'format':<16} {'variant':<15} {'thr':>3} {'balance':<7} {'time_min_s':>11} "
    f"{'GFLOP/s':>8} {'GB/s':>7} {'roofline':>8} {'beta':>6} {'convert_s':>9} {'±%':>5}"
)


_SHOWN = ("name", "matrix", "C", "sigma", "unroll", "variant", "isa", "threads", "balance", "halo")


def _row(number: int, record: dict[str, Any]) -> str:
    from memkern.families.spmv.data import format_words

    label = record["name"] or record["matrix"]
    format = format_words(record)
    fraction = record["roofline_min_fraction"]
    share = f"{100 * fraction:.0f}%" if fraction == fraction else ""
    return (
        f"{label if len(label) <= 24 else label[:23] + '…':<24} {format:<16} "
        f"{record['variant'] + '/' + record['isa']:<15} {record['threads']:>3} "
        f"{record['balance']:<7} {record['time_min_s']:>11.4g} "
        f"{record['performance_GFLOPs']:>8.3f} {record['bandwidth_GBps']:>7.2f} "
        f"{share:>8} {record['beta']:>6.3f} "
        f"{record['convert_s']:>9.3g} {plus_minus(record):>5} "
        f"{' '.join([record.get('halo', ''), *marks(record)])}"
    ).rstrip()


def _accumulators(text: str) -> Any:
    return text if text == "auto" else numbers(0, "mve")(text)


SPMV_VERB = verb(
    "spmv",
    MEASURE,
    "sparse matrix-vector products of a matrix, in each format",
    _spmv,
    (
        "memkern spmv FILE.mtx",
        "memkern spmv FILE.mtx hpcg:96 -C 8,16 --sigma 1,1024",
        "memkern spmv FILE.mtx --tune --budget 60",
    ),
    argument(
        "matrices",
        nargs="+",
        metavar="MATRIX",
        help=f"a Matrix Market file, a generator such as hpcg:64, or the suite {SUITE}",
    ),
    argument_group(
        "formats",
        argument(
            "-f",
            "--format",
            type=words,
            default=_FORMATS,
            metavar="NAME,...",
            help=", ".join(FORMATS) + " (crs,sell)",
        ),
        argument(
            "-C",
            "--C",
            type=numbers(1, "C"),
            metavar="ROWS,...",
            help="rows of a chunk of sell (8)",
        ),
        argument(
            "--sigma",
            type=numbers(1, "sigma"),
            metavar="ROWS,...",
            help="rows of a block within which rows are sorted by length (1)",
        ),
        argument(
            "--move-columns",
            action="store_true",
            default=None,
            help="permute the columns of a square matrix like its rows",
        ),
        argument("--rcm", action="store_true", help="reorder by reverse Cuthill-McKee first"),
        argument("--balance", type=words, metavar="HOW,...", help=", ".join(BALANCES) + " (rows)"),
        argument(
            "--mve",
            type=_accumulators,
            metavar="N,...",
            help="accumulators of a row of crs: " + ", ".join(map(str, MVE)) + " or auto",
        ),
        argument(
            "--halo",
            type=words,
            metavar="WHEN,...",
            help="one product of all ranks, which exchange elements of x in each invocation: "
            "blocking (before the product), overlap (during the product of rows that need none)",
        ),
        argument(
            "--tune", action="store_true", help="search for the best options within --budget (30 s)"
        ),
        argument("--write", action="store_true", help="y = A x in place of y = y + A x"),
    ),
    measuring_options(elsewhere=("halo",)),
)
