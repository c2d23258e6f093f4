"""The verbs of gather and scatter: spatter and suite."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from memkern.checks import shown
from memkern.cli.measuring import beside, exit_code, measure, warn
from memkern.cli.options import (
    MEASURE,
    argument,
    count,
    knobs_of,
    measuring_options,
    numbers,
    positive,
    refuse,
    verb,
)
from memkern.errors import InputError
from memkern.families.spatter import kernels as spatter
from memkern.inputs import spatter_files as spatter_input
from memkern.spec.case import Case
from memkern.spec.sequences import product

if TYPE_CHECKING:
    from memkern.formats import ResultSet


def _reassign_short_options(args: argparse.Namespace) -> None:
    """Assign values that Spatter's short options can't have to our options of the same letter."""
    if isinstance(args.op, str):
        if args.output is not None:
            raise InputError(f"-o {shown(args.op)} and --output are the same: give one of them")
        args.output, args.op = args.op, None
    if isinstance(args.omp_threads, list) and args.backend != "serial":
        args.threads, args.omp_threads = args.threads or args.omp_threads, None


def _spatter(args: argparse.Namespace) -> int:
    _reassign_short_options(args)
    found = spatter_input.options_to_configs(args)
    if args.verbosity == 0:
        args.quiet = True
    if not args.quiet:
        for warning in found.warnings:
            warn(warning)
    of_spatter = {
        "device": "cuda:0" if found.on_gpu else None,
        "block_shared": found.block_shared,
        "threads": found.threads,
    }
    knobs = {k: v for k, v in of_spatter.items() if v is not None} | knobs_of(args)

    def build(number: int) -> Case:
        try:
            return spatter.from_config(found.configs[number], **knobs)
        except InputError as error:
            raise InputError(f"config {number}: {error}") from None

    cases = product(build, {"number": range(len(found.configs))})
    answers = [beside("Spatter", "both take the shortest time of the runs")]
    if found.weights:
        answers.append(_weighted(found.weights))
    return exit_code(measure(cases, args, answers=answers))


def _weighted(weights: Mapping[str, float]) -> Callable[[ResultSet], str]:
    """Return the answer on the bandwidth of an application's patterns together."""

    def answer(results: ResultSet) -> str:
        rates = {r["name"]: r["bandwidth_GBps"] for r in results if r["valid"]}
        known = {name: weight for name, weight in weights.items() if name in rates}
        if not known:
            return ""
        rate = sum(known.values()) / sum(w / rates[name] for name, w in known.items())
        return (
            f"the patterns together, {sum(known.values()):.0%} of the application's bytes: "
            f"{rate:.3g} GB/s (harmonic mean, weighted by bytes)"
        )

    return answer


def _suite(args: argparse.Namespace) -> int:
    from memkern.families.spatter import suites
    from memkern.families.spatter.data import beside_published

    if args.counts == "paper":
        refuse(args, "with --counts paper, which determines the sizes", footprint=None)
    sizes = {"count_rule": args.counts, "footprint_B": args.footprint}
    configs = suites.load(args.suite, **{k: v for k, v in sizes.items() if v is not None})
    knobs = knobs_of(args)
    cases = [spatter.from_config(c, **knobs) for c in configs]
    return exit_code(measure(cases, args, answers=[beside_published]))


# Short options whose values may be those of our options of the same letter: a number after ``-o``
# is Spatter's option, any other value the file of our results.
_READERS: dict[str, Callable[[str], Any]] = {
    "op": lambda text: count(0)(text) if re.fullmatch("[+-]?[0-9]+", text) else text,
    "omp_threads": numbers(1, "threads"),
}


SPATTER_VERB = verb(
    "spatter",
    MEASURE,
    "gather/scatter with Spatter's own options and JSON files",
    _spatter,
    (
        "memkern spatter -k gather -p UNIFORM:8:16:NR -l 1000000 --pages 4k,thp",
        "memkern spatter -f suite.json -o results.parquet",
        "memkern spatter -k gs -g UNIFORM:8:1 -u UNIFORM:8:2 -l 1000000",
    ),
    lambda parser: spatter_input.add_options(parser, _READERS),
    measuring_options(
        short=False,
        runs=False,
        elsewhere=(
            *("shared_memory", "local_work_size"),  # of GPUs
            *("aggregate", "atomic_thread_fence", "atomic_writes", "dense_buffers"),  # no effect
        ),
    ),
)


SUITE_VERB = verb(
    "suite",
    MEASURE,
    "a published suite of gather/scatter cases",
    _suite,
    (
        "memkern suite ustride-cpu",
        "memkern suite apps --counts paper --runs 10 -o apps.db",
        "memkern suite lulesh --footprint 5e8",
    ),
    argument(
        "suite", help="ustride-cpu, ustride-gpu, apps, apps-gpu, pennant, lulesh, nekbone, amg"
    ),
    argument(
        "--counts",
        choices=("footprint", "paper"),
        help="published counts, or counts for a sparse array of --footprint bytes (footprint)",
    ),
    argument("--footprint", type=positive, metavar="BYTES", help="size of the sparse array (2e9)"),
    measuring_options(),
)
