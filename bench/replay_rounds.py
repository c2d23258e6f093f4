"""Judge intervals that a run computes from its own placements, on recordings of placements.

    python bench/replay_rounds.py bench/rounds/*.parquet

Placements are from ``host_rounds.py``. A run is some consecutive placements of each case. Its value
is the shortest time (floor) or the median of their medians, of the placements in the state in which
most of them are, by the time of an exchange.

Intervals are those of `memkern.host.distances` for the next placements of the same process: the
mean distance of the class (level and workers) on other hosts, by the name of a file up to ``_``,
and what the placements of all cases of the class tell, or with ``--alone`` those of the case, as a
command for one case knows them.

A row has a host, a level and a number of placements. Scores are Winkler's of the logarithms (width,
and 40 times what is missed), over that of the best constant width of the class on the recording,
which no rule that does not look at the run can beat.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from records import Row, add, options, parsed, write

from memkern.host.distances import MOST_OF_RUN, OTHER_HOSTS, Distances, observed

LEVELS = ("L1", "L2", "L3", "mem")
COLUMNS = ("level", "half", "distance", "lower")
_LEVEL = 0.95
_APART = 2.0  # factor between the times of an exchange in two states


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
    slow = frame["exchange_ns"] > _APART * quickest
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


def score(half: np.ndarray | float, distances: np.ndarray) -> float:
    """Return the mean of Winkler's score."""
    missed = np.maximum(distances - half, 0.0)
    return float(np.mean(2 * half + 2 / (1 - _LEVEL) * missed))


def distances(runs: Runs) -> pd.DataFrame:
    """Return half-widths without a prior, and distances, of all runs."""
    return pd.DataFrame(judged(runs, dict.fromkeys(LEVELS, 0.0), False), columns=COLUMNS)


def rows_of(
    hosts: dict[str, pd.DataFrame], placements: int, quantity: str, alone: bool, rows: list[Row]
) -> None:
    """Add the rows of runs of some placements."""
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
            best, constant = min((score(half, apart), half) for half in apart)
            half = of_level["half"].to_numpy()
            row: Row = {"host": host, "level": str(level), "quantity": quantity}
            row |= {"placements": placements, "judged": len(apart)}
            row["90 % of next runs within, %"] = 100 * float(np.quantile(apart, 0.9))
            if quantity == "floor":
                row["of their lower half, %"] = 100 * float(of_level["lower"].quantile(0.9))
            row["best constant half-width, %"] = 100 * float(constant)
            row["half-width, %"] = 100 * float(np.median(half))
            row["hold, %"] = 100 * float(np.mean(apart <= half))
            row["score over the best constant's"] = score(half, apart) / best
            add(rows, row)


def main() -> None:
    """Replay recordings."""
    parser = options(__doc__)
    parser.add_argument("recordings", nargs="+", metavar="FILE", help="of bench/host_rounds.py")
    parser.add_argument("--alone", action="store_true", help="pool no cases of a class")
    args = parsed(parser)
    hosts = {Path(name).stem: pd.read_parquet(name) for name in args.recordings}
    rows: list[Row] = []
    of_placements: Sequence[int] = (5, 10, 20)
    for quantity in ("floor", "median"):
        for placements in of_placements:
            rows_of(hosts, placements, quantity, args.alone, rows)
    write(args, rows)


if __name__ == "__main__":
    main()
