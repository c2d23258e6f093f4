"""The verb export: results for other programs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from memkern.cli.measuring import line
from memkern.cli.options import FORCE, GOOD, MANAGE, argument, verb

if TYPE_CHECKING:
    from memkern.formats import ResultSet


_FORMATS = ("openmetrics", "google-benchmark", "babelstream", "figures")


def _text(results: ResultSet, format: str) -> str:
    """Return results in one of `_FORMATS`."""
    from memkern.models.answers import is_healthy
    from memkern.models.merit import figure_line, figures_of_merit
    from memkern.plots.frames import with_samples
    from memkern.results import exchange

    if format == "openmetrics":
        return exchange.openmetrics(results, is_healthy(results, results.environments))
    if format == "google-benchmark":
        return exchange.google_benchmark(results) + "\n"
    if format == "babelstream":
        return exchange.babelstream(results)
    return figure_line(figures_of_merit(with_samples(results))) + "\n"


def _export(args: argparse.Namespace) -> int:
    from memkern.files import publish, unused
    from memkern.formats import load

    target = None if args.output is None else unused(args.output, args.force)
    text = _text(load(args.file), args.format)
    if target is None:
        line(text.removesuffix("\n"))
    else:
        publish({target: text.encode()})
    return GOOD


EXPORT_VERB = verb(
    "export",
    MANAGE,
    "write results in the format of another program",
    _export,
    (
        "memkern export results.parquet --to figures",
        "memkern export results.parquet --to babelstream -o babelstream.csv",
        "memkern export before.db --to google-benchmark -o before.json",
    ),
    argument("file", metavar="FILE", help="results: .db, .parquet, .csv or .json"),
    argument(
        "--to",
        dest="format",
        required=True,
        choices=_FORMATS,
        help="openmetrics: gauges for Prometheus; google-benchmark: JSON, each sample a "
        "repetition; babelstream: CSV as of its --csv; figures: the figures of merit in one line, "
        "as NAME=VALUE UNIT, for ReFrame and Ramble",
    ),
    argument("-o", "--output", metavar="PATH", help="file (standard output)"),
    FORCE,
)
