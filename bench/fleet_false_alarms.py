"""Share of healthy fleets in which `memkern compare fleet` names a node, by simulation.

Without files, the values of nodes are normal. Their variances between runs are drawn for each node
around those of the package (scaled inverse chi-squared), and nodes differ by a further spread. With
recordings of ``host_samples.py``, a node is a run of the host, drawn with replacement, with all its
cases; with ``--repeats``, so many consecutive runs. The interval of a record is that of the first
command after a boot, by the package's variances. The last column is the median over cases of the
least slowdown for which a node is named.
"""

import argparse
import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from records import Row, program
from replay_samples import best_of, level_of, modes, values_of

from memkern.formats import ResultSet
from memkern.host.distances import packaged
from memkern.results.fleet import INSIDE, fleet
from memkern.results.verdicts import FASTER, SLOWER
from memkern.statistics import student_quantile

LEVELS = ("L1", "L2", "L3", "memory")
FREEDOM = 8.0
# State of the hosts, and share of the variances that follow from the package's distances.
SPREADS = {"quiet": ("", 1.0), "shared": ("shared", 1.0), "a twentieth of quiet": ("", 1 / 20)}
Draw = Callable[[np.random.Generator, int], list[dict[str, Any]]]
"""Returns the records of a fleet of so many nodes."""


def record(node: int, case: str, time_s: float, sd: float, exchange_s: float) -> dict[str, Any]:
    """Return the record of a node, whose interval is that of a run with this deviation."""
    factor = math.exp(student_quantile(0.975, FREEDOM) * math.sqrt(2) * sd)
    return {
        "node": f"n{node}", "platform": "processor", "environment_id": "e", "kernel": "case",
        "name": case, "valid": True, "disturbed": False, "time_min_s": time_s,
        "time_min_ci_low_s": time_s / factor, "time_min_ci_high_s": time_s * factor,
        "exchange_ns": 1e9 * exchange_s, "states": "[]",
    }  # fmt: skip


def deviation(name: str) -> float:
    """Return the standard deviation of a class between runs, by the package's distances."""
    known = packaged(name).floor
    return math.sqrt(math.pi) / 2 * known.total / known.number


def made_up(host: str, share: float, between: float) -> Draw:
    """Return fleets with a share of the package's variances of quiet or shared hosts."""
    threads = ("1 thread", "2 threads")
    classes = [f"{level}, {several}, 10 placements" for level in LEVELS for several in threads]
    names = [f"{one}, {host}" if host else one for one in classes]
    variances = [share * deviation(name) ** 2 for name in names]

    def draw(random: np.random.Generator, nodes: int) -> list[dict[str, Any]]:
        found = []
        for node in range(nodes):
            # A fast node is fast in all cases.
            own = between * random.standard_normal()
            for name, variance in zip(names, variances, strict=True):
                spread = math.sqrt(variance * FREEDOM / random.chisquare(FREEDOM))
                time_s = math.exp(own + spread * random.standard_normal())
                found.append(record(node, name, time_s, math.sqrt(variance), math.nan))
        return found

    return draw


def recorded(path: Path, repeats: int) -> Draw:
    """Return fleets of runs of a host, or of so many consecutive ones."""
    frame = pd.read_parquet(path)
    frame = frame[frame["beside"] == ""]
    known, best = modes(frame), best_of(frame)
    runs: dict[Any, list[tuple[str, float, float, float]]] = {}
    for (run, case), some in frame.groupby(["run", "case"], observed=True):
        values = values_of(some, known, best)
        workers = "several" if ("several", "floor") in values else "mixed"
        value = values.get(("one", "floor")) or values[workers, "floor"]
        gpu = str(case).endswith("GPU")
        threads = "GPU" if gpu else "1 thread" if ("one", "floor") in values else "2 threads"
        host = ", mixed states" if workers == "mixed" and threads == "2 threads" else ""
        host = host or ", shared" * (value.word == "shared" and not gpu)
        sd = deviation(f"{level_of(str(case))}, {threads}, 1 placement{host}")
        exchange_s = float(some["exchange_s"].median())
        runs.setdefault(run, []).append((str(case), value.seconds, sd, exchange_s))
    every = [*runs.values()]

    def draw(random: np.random.Generator, nodes: int) -> list[dict[str, Any]]:
        return [
            record(node, *values)
            for node, first in enumerate(random.integers(len(every) - repeats + 1, size=nodes))
            for run in every[first : first + repeats]
            for values in run
        ]

    return draw


def row_of(draw: Draw, nodes: int, fleets: int) -> Row:
    """Return what was named in these fleets."""
    named = judged = values = 0
    reach = []
    for number in range(fleets):
        records = draw(np.random.default_rng(number), nodes)
        frame = fleet(ResultSet(records, [np.ones(1)] * len(records), {}))
        named += bool(frame["verdict"].isin((SLOWER, FASTER)).any())
        own = frame["verdict"].isin((SLOWER, FASTER, INSIDE))
        judged, values = judged + int(own.sum()), values + len(frame)
        reach += list((frame["high"] / frame["median"])[own].groupby(frame["case"]).median())
    return {
        "nodes": nodes,
        "cases": frame["case"].nunique(),
        "fleets": fleets,
        "judged, %": 100 * judged / values,
        "fleets with a named node": named,
        "named from a slowdown of, %": 100 * (float(np.median(reach)) - 1),
    }


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Simulate fleets."""
    draws: dict[tuple[str, str], Draw] = {}
    for path in map(Path, args.recordings):
        draws[f"runs of {path.stem}", ""] = recorded(path, args.repeats)
    if not draws:
        for (name, (host, share)), between in itertools.product(SPREADS.items(), (0.0, 0.02, 0.1)):
            draws[name, f"{100 * between:g}"] = made_up(host, share, between)
    for (spread, between), draw in draws.items():
        for nodes in map(int, args.nodes.split(",")):
            row: Row = {"spread between runs": spread, "between nodes, %": between}
            yield row | row_of(draw, nodes, args.fleets)


OPTIONS = {
    "recordings": {"nargs": "*", "metavar": "FILE", "help": "of bench/host_samples.py"},
    "--fleets": (1000, "for each row (1000)"),
    "--repeats": (1, "runs of each node (1)"),
    "--nodes": ("9,16,64", "numbers of nodes (9,16,64)"),
}
main = program(__name__, __doc__, measured, OPTIONS)
