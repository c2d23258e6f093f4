"""Test on recordings how well the value of a run, and its interval, hold for the next run.

Recordings are those of ``host_samples.py``: of samples, or of brief placements (``--rounds``).

The value of a run of samples is its shortest time (floor) or its median, of all samples or of the
samples in the most frequent state of the host (see `memkern.host.rates`), by default without other
processes. A row has a host and a class of cases; its columns are, for both quantities and both
ways, the standard deviation of runs, the 90th percentile of the difference from the next run, and
for runs in one state the share of intervals that contain the next run in that state, and their
half-width over 1.96 standard deviations. A run has one placement. Intervals are computed for the
first command of a boot, from the distances between runs on the other hosts, and for later commands,
from all earlier runs as well.

A run of placements is some consecutive placements of each case. Its value is the shortest time
(floor) or the median of their medians, of the placements in the state in which most of them are, by
the time of an exchange. Intervals are those of `memkern.host.distances` for the next placements of
the same process: the mean distance of the class (level and workers) on other hosts, by the name of
a file up to ``_``, and what the placements of all cases of the class tell, or with ``--alone``
those of the case, as a command for one case knows them. A row has a host, a level and a number of
placements. Scores are Winkler's of the logarithms, over that of the best constant width of the
class on the recording, which no rule that does not look at the run can beat.

``--distances`` writes the mean distances between runs of each class over all hosts, which memkern
uses until those of a boot are known (``python/memkern/host/distances.csv``, of all recordings in
``bench/hosts`` and ``bench/rounds``); those of ten placements are from the recordings of
placements, on quiet hosts times the factor for the next command; a class on a shared host has at
least the distances of a quiet one.
"""

import argparse
import csv
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from intervals_hold import winkler
from records import Row, program

from memkern.engine.recording.samples import CORE_SHARE
from memkern.host.distances import (
    MOST_OF_RUN,
    NEXT_COMMAND,
    OTHER_HOSTS,
    Distances,
    History,
    observed,
)
from memkern.host.rates import LEAST_SAMPLES, Mode, labels_of, modes_of

QUANTITIES = ("floor", "median")
_BIN = 0.01
_PLACEMENTS = 10  # of runs in the table of distances
_ONE, _SEVERAL, _MIXED, _GPU = "one", "several", "mixed", "GPU"
_LEAST_STEPS = 10  # of a mean distance that is known
_APART_S = 30.0  # assumed time between two runs
LEVELS = ("L1", "L2", "L3", "mem")
COLUMNS = ("level", "half", "distance", "lower")
_STATES_APART = 2.0  # factor between the times of an exchange in two states


@dataclass(frozen=True)
class Value:
    """A quantity of a run of a case, the same of half of its samples, and their state, if any."""

    seconds: float
    half_s: float
    state: int
    word: str  # quiet or shared


Series = list[Value]
"""Values of a case in the runs of a host."""
Key = tuple[str, str, str]
"""Level, workers (one, several in one state or in mixed states, GPU) and quantity."""
Best = dict[bool, float]
"""Best throughput of the cores, of one worker and of several."""


def modes(frame: pd.DataFrame) -> list[Mode]:
    """Return the modes of the rate of exchanges on a host, in exchanges per second."""
    known = frame["exchange_s"][frame["exchange_s"] > 0]
    return modes_of(Counter(np.floor(-np.log(known) / _BIN).astype(int)), _BIN)


def level_of(case: str) -> str:
    """Return the memory level that holds the data of a case."""
    words = case.replace(",", "").split()
    innermost = "L2" if _GPU in words else "L1"
    return next((word for word in words if word in ("L2", "L3", "memory")), innermost)


def best_of(frame: pd.DataFrame) -> Best:
    """Return the best throughputs of a host's cores."""
    several = frame["exchange_s"].notna()
    return {kind: float(some.quantile(0.99)) for kind, some in frame["throughput"].groupby(several)}


def values_of(run: pd.DataFrame, known: Sequence[Mode], best: Best) -> dict[tuple[str, str], Value]:
    """Return the values of a case in a run, by workers and quantity."""
    seconds, exchange_s = run["seconds"].to_numpy(), run["exchange_s"].to_numpy()
    one = bool(np.isnan(exchange_s).all())
    quiet = not run["throughput"].median() < CORE_SHARE * best[not one]

    def both(workers: str, some: np.ndarray, state: int = -1) -> dict[tuple[str, str], Value]:
        word = "quiet" if quiet and workers != _MIXED else "shared"
        half = some[::2]
        times = ((some.min(), half.min()), (np.median(some), np.median(half)))
        return {
            (workers, quantity): Value(*map(float, both), state, word)
            for quantity, both in zip(QUANTITIES, times, strict=True)
        }

    if one:
        return both(_ONE, seconds)
    least_s = run["exchange_least_s" if "exchange_least_s" in run else "exchange_s"].to_numpy()
    labels = labels_of(1 / np.column_stack((exchange_s, least_s)), known)
    counts = np.bincount(labels + 1, minlength=len(known) + 1)[1:]
    found = both(_MIXED, seconds)
    if counts.max() >= LEAST_SAMPLES:
        state = int(counts.argmax())
        found |= both(_SEVERAL, seconds[labels == state], state)
    return found


def series_of(frame: pd.DataFrame) -> dict[Key, list[Series]]:
    """Return the series of each class of a host."""
    known, best, found = modes(frame), best_of(frame), {}
    for case, some in frame.groupby("case", observed=True):
        of_case: dict[Key, Series] = {}
        for _, run in some.groupby("run"):
            for (workers, quantity), value in values_of(run, known, best).items():
                workers = _GPU if str(case).endswith(_GPU) else workers
                of_case.setdefault((level_of(str(case)), workers, quantity), []).append(value)
        for key, series in of_case.items():
            found.setdefault(key, []).append(series)
    return found


def in_state(series: Series, word: str = "") -> Iterator[Series]:
    """Yield the values of each state; only of quiet or shared runs if a `word` is given."""
    for state in {value.state for value in series}:
        yield [v for v in series if v.state == state and word in ("", v.word)]


def steps_of(several: Sequence[Series], word: str = "") -> list[float]:
    """Return the distances between successive runs in one state (see `in_state`)."""
    return [
        abs(math.log(b.seconds / a.seconds))
        for series in several
        for a, b in itertools.pairwise(series)
        if a.state == b.state and (word in ("", a.word))
    ]


def prior_of(hosts: Sequence[dict[Key, list[Series]]], key: Key, word: str) -> Distances | None:
    """Return the mean distance of a class, the mean over hosts; None if runs are too few."""
    every = [steps_of(host.get(key, []), word) for host in hosts]
    known = [float(np.mean(steps)) for steps in every if len(steps) >= _LEAST_STEPS]
    return Distances(OTHER_HOSTS, OTHER_HOSTS * float(np.mean(known))) if known else None


def held(
    several: Sequence[Series], priors: dict[str, Distances | None], learns: bool
) -> tuple[list[bool], list[float], list[bool]]:
    """Return whether the interval of each run contains the next run in its state, and half-widths.

    The last list is whether it contains the value of half of the run's own samples.
    """
    history, holds, halves, own_half = History(), [], [], []
    for number in range(max(map(len, several)) - 1):
        for which, series in enumerate(several):
            if number + 1 >= len(series):
                continue
            own = series[number]
            prior = priors[own.word]
            if prior is None:
                continue
            half = (prior + history.known(own.word) if learns else prior).within()
            halves.append(half)
            own_half.append(abs(math.log(own.half_s / own.seconds)) <= half)
            following = series[number + 1]
            if own.state == following.state:
                holds.append(abs(math.log(following.seconds / own.seconds)) <= half)
            identity = f"{which} {own.state} {own.word}"
            history.add(identity, own.word, own.seconds, prior, _APART_S * number)
    return holds, halves, own_half


def row_of(hosts: dict[str, dict[Key, list[Series]]], host: str, key: Key) -> Row:
    """Return a row of the table."""
    several = hosts[host][key]
    parts = [np.log([v.seconds for v in some]) for one in several for some in in_state(one)]
    deviation = math.sqrt(
        sum(len(x) * float(np.var(x)) for x in parts) / max(sum(len(x) - 1 for x in parts), 1)
    )
    steps = steps_of(several)
    pairs = sum(len(series) - 1 for series in several)
    row: Row = {"host": host, "level": key[0], "workers": key[1], "quantity": key[2]}
    row |= {
        "pairs": len(steps),
        "in one state, %": 100 * len(steps) / pairs,
        "standard deviation, %": 100 * deviation,
        "next run, 90 % within, %": 100 * float(np.quantile(steps, 0.9)),
    }
    row["quiet, %"] = 100 * float(np.mean([v.word == "quiet" for one in several for v in one]))
    others = [series for name, series in hosts.items() if name != host]
    priors = {word: prior_of(others, key, word) for word in ("quiet", "shared")}
    for words, learns in (("first", False), ("later", True)):
        holds, halves, own_half = held(several, priors, learns)
        if holds:
            row["judged"] = len(holds)
            row[f"{words}, hold, %"] = 100 * float(np.mean(holds))
            row[f"{words}, half-width, %"] = 100 * float(np.median(halves))
            row[f"{words}, over 1.96 deviations"] = float(np.median(halves)) / (1.96 * deviation)
            row[f"{words}, hold half of the samples, %"] = 100 * float(np.mean(own_half))
    return row


class Run(NamedTuple):
    """A run of a case: its value, and what its own placements tell of the distance to the next.

    `lower` is the mean of the lower half of its floors, on logarithms, beside their minimum.
    """

    state: int
    value: float
    lower: float
    own: Distances


Runs = dict[tuple[str, str, str], list[Run | None]]
"""Runs of each case, by level, workers and case; None where a process ends."""


def runs_of(frame: pd.DataFrame, placements: int, quantity: str) -> Runs:
    """Return the runs of a recording that have this number of consecutive placements."""
    quickest = frame["exchange_ns"].quantile(0.1)
    slow = frame["exchange_ns"] > _STATES_APART * quickest
    frame = frame.assign(state=slow.astype(int)).sort_values("time_s")
    found: Runs = {}
    for (case, _), some in frame.groupby(["case", "process"]):
        _, level, workers = str(case).rsplit(" ", 2)
        series = found.setdefault((level, workers, str(case)), [])
        for begin in range(0, len(some) - placements + 1, placements):
            run = some.iloc[begin : begin + placements]
            state = int(run["state"].mode().iloc[0])
            run = run[run["state"] == state]
            floors, medians = run["time_min_s"].to_numpy(), run["time_median_s"].to_numpy()
            spread = observed(floors, medians)
            value = floors.min() if quantity == "floor" else np.median(medians)
            lower = np.log(np.sort(floors))[: max(len(floors) // 2, 1)].mean()
            series.append(Run(state, math.log(value), float(lower), getattr(spread, quantity)))
        series.append(None)
    return found


def judged(
    runs: Runs, prior: dict[str, float], alone: bool
) -> Iterator[tuple[str, float, float, float]]:
    """Yield level, half-width and distances from the next run, of runs in one state.

    The second distance is that of the means of the lower halves.
    """
    for level, workers in {key[:2] for key in runs}:
        cases = [series for key, series in runs.items() if key[:2] == (level, workers)]
        known = Distances(OTHER_HOSTS, OTHER_HOSTS * prior[level])
        for at in range(len(cases[0]) - 1):
            now = [series[at] for series in cases]
            for series, run in zip(cases, now, strict=True):
                following = series[at + 1]
                if run is None or following is None or following.state != run.state:
                    continue
                own = Distances()
                for one in [run] if alone else now:
                    if one is not None and one.state == run.state:
                        own += one.own
                half = (known + own.at_most(MOST_OF_RUN)).within()
                lower = abs(following.lower - run.lower)
                yield level, half, abs(following.value - run.value), lower


def distances(runs: Runs) -> pd.DataFrame:
    """Return half-widths without a prior, and distances, of all runs."""
    return pd.DataFrame(judged(runs, dict.fromkeys(LEVELS, 0.0), False), columns=COLUMNS)


def rows_of(
    hosts: dict[str, pd.DataFrame], placements: int, quantity: str, alone: bool
) -> Iterator[Row]:
    """Yield the rows of runs of some placements."""
    runs = {host: runs_of(frame, placements, quantity) for host, frame in hosts.items()}
    means = {
        host: distances(some).groupby("level")["distance"].mean() for host, some in runs.items()
    }
    for host, some in runs.items():
        machine = host.partition("_")[0]
        others = pd.concat(
            [mean for other, mean in means.items() if other.partition("_")[0] != machine], axis=1
        )
        prior = others.mean(axis=1).to_dict()
        found = pd.DataFrame(judged(some, prior, alone), columns=COLUMNS)
        for level, of_level in found.groupby("level"):
            apart = of_level["distance"].to_numpy()
            best, constant = min((winkler(half, apart), half) for half in apart)
            half = of_level["half"].to_numpy()
            row: Row = {"host": host, "level": str(level), "quantity": quantity}
            row |= {"placements": placements, "judged": len(apart)}
            row["90 % of next runs within, %"] = 100 * float(np.quantile(apart, 0.9))
            if quantity == "floor":
                row["of their lower half, %"] = 100 * float(of_level["lower"].quantile(0.9))
            row["best constant half-width, %"] = 100 * float(constant)
            row["half-width, %"] = 100 * float(np.median(half))
            row["hold, %"] = 100 * float(np.mean(apart <= half))
            yield row | {"score over the best constant's": winkler(half, apart) / best}


def of_ten(rounds: dict[str, pd.DataFrame]) -> dict[tuple[str, ...], float]:
    """Return the mean distances of runs of ten placements, by the columns of the table."""
    means: dict[tuple[str, ...], list[float]] = {}
    for frame, quantity in itertools.product(rounds.values(), QUANTITIES):
        word = str(frame["state"].mode().iloc[0])
        runs = runs_of(frame, _PLACEMENTS, quantity)
        for level, workers in sorted({key[:2] for key in runs}):
            steps = [
                abs(after.value - before.value)
                for key, series in runs.items()
                if key[:2] == (level, workers)
                for before, after in itertools.pairwise(series)
                if before is not None and after is not None and before.state == after.state
            ]
            key = ("memory" if level == "mem" else level, {"1": _ONE}.get(workers, _SEVERAL))
            means.setdefault((*key, quantity, word), []).append(float(np.mean(steps)))
    quiet = {key: NEXT_COMMAND * np.mean(some) for key, some in means.items() if key[-1] == "quiet"}
    found = {(*key, "10"): float(mean) for key, mean in quiet.items()}
    for key, some in means.items():
        if key[-1] == "shared":
            found[(*key, "10")] = float(max(np.mean(some), quiet[(*key[:-1], "quiet")]))
    return found


def write_distances(
    file: str, hosts: dict[str, dict[Key, list[Series]]], rounds: dict[str, pd.DataFrame]
) -> None:
    """Write the mean distances of each class over all hosts."""
    found: dict[tuple[str, ...], float] = {}
    keys = {key for host in hosts.values() for key in host}
    for key, word in itertools.product(keys, ("quiet", "shared")):
        if (prior := prior_of(list(hosts.values()), key, word)) is not None:
            found[(*key, word, "1")] = prior.total / prior.number
    found |= of_ten(rounds)
    with open(file, "w", encoding="utf-8", newline="") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(("level", "workers", "quantity", "host", "placements", "distance"))
        table.writerows((*key, f"{found[key]:.3g}") for key in sorted(found))


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of recordings of samples, and those of placements."""
    hosts, rounds = {}, {}
    for name in args.recordings:
        frame = pd.read_parquet(name)
        if "round" in frame:
            rounds[Path(name).stem] = frame
        else:
            hosts[Path(name).stem] = series_of(frame[frame["beside"] == args.beside])
    for key in sorted({key for host in hosts.values() for key in host}):
        for host in hosts:
            if key in hosts[host]:
                yield row_of(hosts, host, key)
    for quantity, number in itertools.product(QUANTITIES if rounds else (), (5, 10, 20)):
        yield from rows_of(rounds, number, quantity, args.alone)
    if args.distances is not None:
        write_distances(args.distances, hosts, rounds)


OPTIONS = {
    "recordings": {"nargs": "+", "metavar": "FILE", "help": "of bench/host_samples.py"},
    "--beside": ("", "what ran beside, as when it was recorded"),
    "--alone": (False, "pool no cases of a class of placements"),
    "--distances": {"metavar": "FILE", "help": "table of distances to write"},
}
main = program(__name__, __doc__, measured, OPTIONS)
