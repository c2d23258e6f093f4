"""Try on recorded samples how far the value of a run is from that of the next run.

    python bench/replay_samples.py bench/hosts/zen5.parquet

Samples are those of ``host_samples.py``, as it found the host with nothing beside. The value of a
run is its shortest time or its median, of all samples or of those in one state: of the modes of the
time in which two workers exchange a line, the one with most samples, if it has at least ten. A row
has the 90th percentile of the difference from the next run, of all pairs of runs that follow each
other, and of those in a common state.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd
from records import Row, add, options, parsed, write

_GAP = 0.25  # of logarithms, between two modes
_LEAST_SHARE, _LEAST_SAMPLES = 0.02, 10


def modes(values: npt.ArrayLike) -> list[tuple[float, float]]:
    """Return the ranges of the modes of positive values, of which gaps of 28 % divide two."""
    known = np.sort(np.asarray(values, dtype=float))
    known = known[known > 0]
    ends = np.flatnonzero(np.diff(np.log(known)) > _GAP) + 1
    parts = np.split(known, ends)
    least = _LEAST_SHARE * len(known)
    return [(float(part[0]), float(part[-1])) for part in parts if len(part) > least]


def values_of(run: pd.DataFrame, states: list[tuple[float, float]]) -> dict[str, float]:
    """Return shortest time and median of a run, of all samples and of its state, and the state."""
    seconds = run["seconds"].to_numpy()
    found = {"min": float(seconds.min()), "median": float(np.median(seconds)), "state": math.nan}
    within = [run["exchange_s"].between(low, high).to_numpy() for low, high in states]
    counts = [int(each.sum()) for each in within]
    if counts and max(counts) >= _LEAST_SAMPLES:
        state = int(np.argmax(counts))
        own = seconds[within[state]]
        found |= {"state": state, "min in it": float(own.min())}
        found["median in it"] = float(np.median(own))
    return found


def next_run(runs: list[Mapping[str, float]], name: str, in_state: bool) -> float:
    """Return the 90th percentile of the difference of a value from that of the next run, in %."""
    pairs = [
        (a[name], b[name])
        for a, b in itertools.pairwise(runs)
        if not in_state or a["state"] == b["state"]
    ]
    if len(pairs) < 5:
        return math.nan
    return 100 * float(np.quantile([abs(math.log(b / a)) for a, b in pairs], 0.9))


def replayed(frame: pd.DataFrame) -> list[Row]:
    """Print and return a row for each case."""
    rows: list[Row] = []
    for case, some in frame.groupby("case", observed=True):
        states = modes(some["exchange_s"].dropna())
        runs = [values_of(run, states) for _, run in some.groupby("run")]
        common = [a["state"] == b["state"] for a, b in itertools.pairwise(runs)]
        row: Row = {"case": case, "states": len(states)}
        for name, words in (("min", "shortest"), ("median", "median")):
            row[f"{words}, all samples, %"] = next_run(runs, name, False)
            if states:
                row[f"{words}, one state, %"] = next_run(runs, f"{name} in it", True)
        if states:
            row["pairs in one state, %"] = 100 * float(np.mean(common))
        add(rows, row)
    return rows


def main() -> None:
    """Replay a recording."""
    parser = options(__doc__)
    parser.add_argument("recording", metavar="FILE", help="of bench/host_samples.py")
    args = parsed(parser)
    frame = pd.read_parquet(args.recording)
    write(args, replayed(frame[frame["beside"] == ""]))


if __name__ == "__main__":
    main()
