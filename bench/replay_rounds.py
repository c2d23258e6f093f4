"""Judge intervals that a run computes from its own placements, on recordings of placements.

    python bench/replay_rounds.py bench/rounds/*.parquet

Placements are from ``host_rounds.py``. A run is some consecutive placements of each case. Its value
is the shortest time (floor) or the median of their medians, of the placements in the state in which
most of them are, by the time of an exchange.

The rule: the distance between the logarithms of the values of two runs in one state is distributed
exponentially. What is known of its mean are some observations: for floors, the spacings of the
three shortest placements of every case of the run's class (level and workers), for medians the
median deviation of the placements, and a prior of 1.5 observations, the mean distance on other
hosts (by the name of a file up to ``_``). With ``number`` observations of the sum ``total``, half
the interval is ``total ((1 - level) ** (-1 / number) - 1)``: the quantile of the predictive
distribution, by the conjugate prior of an exponential distribution.

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

LEVELS = ("L1", "L2", "L3", "mem")
_LEVEL = 0.95
_SPACINGS = 3  # between the shortest placements of a run
_OF_PRIOR = 1.5  # observations
# Mean distance of two medians of n normal values, times the root of n, over their median deviation.
_OF_DEVIATION = 2.1
_APART = 2.0  # factor between the times of an exchange in two states


class Run(NamedTuple):
    """A run of a case: its value, and the observations of distances from its own placements."""

    state: int
    value: float
    number: float
    total: float


Runs = dict[tuple[str, str, str], list[Run | None]]
"""Runs of each case, by level, workers and case; None where a process ends."""


def observed(floors: np.ndarray, medians: np.ndarray, quantity: str) -> tuple[float, float, float]:
    """Return the logarithm of a run's value, and number and sum of its own distances."""
    if quantity == "median":
        middle, n = float(np.median(medians)), len(medians)
        deviation = float(np.median(np.abs(medians - middle)))
        number = (n - 1) / 2
        return middle, number, number * _OF_DEVIATION * deviation / math.sqrt(n)
    x, n = np.sort(floors), len(floors)
    taken = min(_SPACINGS, n - 1)
    # Weighted spacings of exponentially distributed values all have the mean of one value.
    total = sum((n - j) * (x[j] - x[j - 1]) for j in range(1, taken + 1)) / n
    return float(x[0]), taken, float(total)


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
            logarithms = np.log(run[["time_min_s", "time_median_s"]].to_numpy())
            series.append(Run(state, *observed(*logarithms.T, quantity)))
        series.append(None)
    return found


def judged(runs: Runs, prior: dict[str, float]) -> Iterator[tuple[str, float, float]]:
    """Yield level, half-width and distance from the next run, of runs in one state."""
    for level, workers in {key[:2] for key in runs}:
        cases = [series for key, series in runs.items() if key[:2] == (level, workers)]
        for at in range(len(cases[0]) - 1):
            now = [series[at] for series in cases]
            for series, run in zip(cases, now, strict=True):
                following = series[at + 1]
                if run is None or following is None or following.state != run.state:
                    continue
                own = [one for one in now if one is not None and one.state == run.state]
                number = _OF_PRIOR + sum(one.number for one in own)
                total = _OF_PRIOR * prior[level] + sum(one.total for one in own)
                half = total * ((1 - _LEVEL) ** (-1 / number) - 1)
                yield level, half, abs(following.value - run.value)


def score(half: np.ndarray | float, distances: np.ndarray) -> float:
    """Return the mean of Winkler's score."""
    missed = np.maximum(distances - half, 0.0)
    return float(np.mean(2 * half + 2 / (1 - _LEVEL) * missed))


def distances(runs: Runs) -> pd.DataFrame:
    """Return half-widths without a prior, and distances, of all runs."""
    return pd.DataFrame(
        judged(runs, dict.fromkeys(LEVELS, 0.0)), columns=["level", "half", "distance"]
    )


def rows_of(
    hosts: dict[str, pd.DataFrame], placements: int, quantity: str, rows: list[Row]
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
        found = pd.DataFrame(judged(some, prior), columns=["level", "half", "distance"])
        for level, of_level in found.groupby("level"):
            apart = of_level["distance"].to_numpy()
            best, constant = min((score(half, apart), half) for half in apart)
            half = of_level["half"].to_numpy()
            row: Row = {"host": host, "level": str(level), "quantity": quantity}
            row |= {"placements": placements, "judged": len(apart)}
            row["90 % of next runs within, %"] = 100 * float(np.quantile(apart, 0.9))
            row["best constant half-width, %"] = 100 * float(constant)
            row["half-width, %"] = 100 * float(np.median(half))
            row["hold, %"] = 100 * float(np.mean(apart <= half))
            row["score over the best constant's"] = score(half, apart) / best
            add(rows, row)


def main() -> None:
    """Replay recordings."""
    parser = options(__doc__)
    parser.add_argument("recordings", nargs="+", metavar="FILE", help="of bench/host_rounds.py")
    args = parsed(parser)
    hosts = {Path(name).stem: pd.read_parquet(name) for name in args.recordings}
    rows: list[Row] = []
    of_placements: Sequence[int] = (5, 10, 20)
    for quantity in ("floor", "median"):
        for placements in of_placements:
            rows_of(hosts, placements, quantity, rows)
    write(args, rows)


if __name__ == "__main__":
    main()
