"""The verb export: results for other programs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from memkern.cli.measuring import line
from memkern.cli.options import GOOD, MANAGE, Parser, force_option, listed, verb

if TYPE_CHECKING:
    from memkern.formats import ResultSet


def _openmetrics(results: ResultSet) -> str:
    from memkern.models.answers import is_healthy
    from memkern.results.exchange import openmetrics

    return openmetrics(results, is_healthy(results, results.environments))


def _google_benchmark(results: ResultSet) -> str:
    from memkern.results.exchange import google_benchmark

    return google_benchmark(results) + "\n"


def _babelstream(results: ResultSet) -> str:
    from memkern.results.exchange import babelstream

    return babelstream(results)


def _figures(results: ResultSet) -> str:
    from memkern.models.merit import figure_line, figures_of_merit
    from memkern.plots.frames import with_samples

    return figure_line(figures_of_merit(with_samples(results))) + "\n"


_FORMATS: dict[str, Callable[[ResultSet], str]] = {
    "openmetrics": _openmetrics,
    "google-benchmark": _google_benchmark,
    "babelstream": _babelstream,
    "figures": _figures,
}


def _export(args: argparse.Namespace) -> int:
    from memkern.files import publish, unused
    from memkern.formats import load

    target = None if args.output is None else unused(args.output, args.force)
    text = _FORMATS[args.format](load(args.file))
    if target is None:
        line(text.removesuffix("\n"))
    else:
        publish({Path(target): text.encode()})
    return GOOD


@listed(
    MANAGE,
    "memkern export results.parquet --to figures",
    "memkern export results.parquet --to babelstream -o babelstream.csv",
    "memkern export before.db --to google-benchmark -o before.json",
)
@verb("export", _export, "write results in the format of another program")
def _export_options(sub: Parser) -> None:
    sub.add_argument("file", metavar="FILE", help="results: .db, .parquet, .csv or .json")
    sub.add_argument(
        "--to",
        dest="format",
        required=True,
        choices=tuple(_FORMATS),
        help="openmetrics: gauges for Prometheus; google-benchmark: JSON, each sample a "
        "repetition; babelstream: CSV as of its --csv; figures: the figures of merit in one line, "
        "as NAME=VALUE UNIT, for ReFrame and Ramble",
    )
    sub.add_argument("-o", "--output", metavar="PATH", help="file (standard output)")
    force_option(sub)
