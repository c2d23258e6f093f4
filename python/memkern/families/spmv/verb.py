"""The verb spmv: performance of sparse matrix-vector products by format, and the roofline."""

from __future__ import annotations

import argparse
import functools
import itertools
from typing import Any

from memkern.cli.measuring import (
    check_output,
    exit_code,
    lines,
    measure,
    save_and_show,
    show_progress,
    tell_limit,
)
from memkern.cli.options import (
    MEASURE,
    QUICK_S,
    argument,
    each,
    knobs_of,
    measuring_options,
    refuse,
    verb,
    words,
)
from memkern.cli.tables import (
    INTERVAL,
    SHORTEST,
    THREADS,
    VARIANT,
    Table,
    cell,
    marks,
    scope_of,
    shortened,
)
from memkern.cli.verbs import input_cases, input_options
from memkern.families.spmv.kernels import format_of
from memkern.families.spmv.model import FORMATS, format_words
from memkern.families.spmv.suites import MATRICES, SUITE
from memkern.spec import registry
from memkern.spec.case import Case
from memkern.spec.sequences import joined

_FORMATS = ["crs", "sell"]  # measured unless others are requested


def _tune(args: argparse.Namespace) -> int:
    from memkern.families.spmv.data import fastest_sentences
    from memkern.families.spmv.product import tune
    from memkern.formats import concat
    from memkern.studies.tune import gain_of

    check_output(args)
    own = dict.fromkeys(
        ("C", "sigma", "mve", "balance", "move_columns", "unroll", "prefetch", "halo")
    )
    refuse(args, "with --tune, which chooses it", format=_FORMATS, rcm=False, **own)
    refuse(args, "with --tune: measure its result", explain=False)
    refuse(args, "with --tune, which stops by --budget", runs=None, repeats=1, resume=False)
    if args.quick:
        args.budget = QUICK_S / len(args.matrices)
    knobs = knobs_of(args) | ({} if args.write is None else {"accumulate": args.write})
    found = []
    for text in args.matrices:
        with show_progress(args) as progress:
            _, search = tune(text, progress=progress, **knobs)
        found.append(search)
        if not (args.json or args.quiet):
            lines(
                *_TUNED.lines(search),
                scope_of(search),
                fastest_sentences(search.records[-2:]) or gain_of(search),
            )
            tell_limit(search, args)
    records = concat(found)
    save_and_show(records, args)
    return exit_code(records)


def _spmv(args: argparse.Namespace) -> int:
    from memkern.families.spmv.data import fastest_sentences
    from memkern.inputs import matrices

    names = {matrix: name for name, matrix in MATRICES.items()} if SUITE in args.matrices else {}
    whole = (names if text == SUITE else [text] for text in args.matrices)
    args.matrices = [*itertools.chain.from_iterable(whole)]
    if args.tune:
        return _tune(args)
    if args.mve is not None:
        refuse(args, "with --mve, its name for spmv", unroll=None)
    # The cases of a matrix are adjacent.
    matrix_of = functools.lru_cache(maxsize=1)(
        functools.partial(matrices.build, seed=args.seed or 0, rcm=args.rcm)
    )

    def build(matrix: str, kernel: str, **options: Any) -> Case:
        label, a = matrix_of(matrix)
        return registry.case(kernel, matrix=a, name=names.get(matrix, label), **options)

    kernels = [f"spmv.{format_of(format)}" for format in each(args.format)]
    parts = [
        input_cases(args, kernels, build=functools.partial(build, text)) for text in args.matrices
    ]
    cases = joined(itertools.chain.from_iterable(parts))
    return exit_code(measure(cases, args, TABLE, answers=[fastest_sentences]))


TABLE = Table(
    (
        cell(
            "name",
            "<24",
            "matrix",
            value=lambda r: shortened(r["name"] or r["matrix"], 24),
            shows=("name", "matrix"),
        ),
        cell("format", "<16", value=format_words, shows=("C", "sigma", "unroll")),
        VARIANT,
        THREADS,
        cell("balance", "<7"),
        SHORTEST,
        cell("performance_GFLOPs", ">8.3f", "GFLOP/s"),
        cell("bandwidth_GBps", ">7.2f", "GB/s"),
        cell("roofline_min_fraction", ">8.0%", "roofline"),
        cell("beta", ">6.3f"),
        cell("convert_s", ">9.3g"),
        INTERVAL,
    ),
    lambda record: [record.get("halo", ""), *marks(record)],
)
_TUNED = TABLE.after(cell("tune_step", "<12", "step"))

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
    argument(
        "-f",
        "--format",
        type=words,
        default=_FORMATS,
        metavar="NAME,...",
        help=", ".join(FORMATS) + " (crs,sell)",
    ),
    *input_options("spmv"),
    argument("--rcm", action="store_true", help="reorder by reverse Cuthill-McKee first"),
    argument(
        "--tune", action="store_true", help="search for the best options within --budget (30 s)"
    ),
    measuring_options(elsewhere=("halo",)),
)
