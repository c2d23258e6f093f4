"""Judge the intervals of reports of one host that follow each other, by class of cases.

An interval holds if it contains the value of the case in the next report in the same state of the
host. Scores are Winkler's over those of an oracle, which knows the 95 % quantile of the differences
between the reports in the class, and over those of the best constant width for the class::

    for n in 1 2 3 4 5 6 7 8; do memkern report --quick -o /tmp/r$n.html; done
    python bench/report_intervals.py /tmp/r?.parquet
"""

import math

import numpy as np
import pandas as pd
from intervals_hold import same, state_of, winkler
from records import Row, add, options, parsed, write

import memkern as mk
from memkern.host.environment import machine_environment
from memkern.machine.caches import data_caches, ends, level_of

_LEAST_PAIRS = 10  # of a class with a score


def pairs_of(files: list[str], value: str, low: str, high: str) -> pd.DataFrame:
    """Return the pairs of a case in two successive reports, with class, half-width and distance."""
    frames = [mk.load(file).to_frame().assign(report=n) for n, file in enumerate(files)]
    frame = pd.concat(frames, ignore_index=True).query("valid == True and backend == 'openmp'")
    frame = frame[frame[value].notna() & frame["footprint_B"].notna()]
    caches = data_caches(machine_environment())
    level = [
        level_of(size_B, ends(caches, int(threads)))
        for size_B, threads in zip(frame["footprint_B"], frame["threads"], strict=True)
    ]
    workers = np.where(frame["threads"] == 1, "one thread", "several threads")
    frame = frame.assign(kind=[f"{a}, {b}" for a, b in zip(level, workers, strict=True)])
    frame = frame.assign(
        number=frame.groupby(["report", "case_id"]).cumcount(),
        exchange_ns=frame["states"].map(state_of),
    )
    cases = frame.sort_values("report").groupby(["case_id", "number"])
    later = cases[[value, "exchange_ns", "report"]].shift(-1)
    in_one = same(later["exchange_ns"], frame["exchange_ns"])
    in_one &= later[value].notna() & (later["report"] == frame["report"] + 1)
    found = frame.assign(
        half=np.log(frame[high] / frame[low]) / 2,
        apart=np.abs(np.log(later[value] / frame[value])),
        held=later[value].between(frame[low], frame[high]),
    )
    return found[in_one & found["half"].notna()]


def main() -> None:
    """Judge the reports."""
    parser = options(__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE", help="records of a report")
    args = parsed(parser)
    rows: list[Row] = []
    for quantity, value, names in (
        ("shortest", "time_min_s", ("time_min_ci_low_s", "time_min_ci_high_s")),
        ("median", "time_median_s", ("time_ci_low_s", "time_ci_high_s")),
    ):
        pairs = pairs_of(args.files, value, *names)
        scores = []
        for name, some in (*pairs.groupby("kind"), ("all", pairs)):
            half, apart = some["half"].to_numpy(), some["apart"].to_numpy()
            row: Row = {"quantity": quantity, "class": name, "pairs": len(some)}
            row["hold, %"] = 100 * float(some["held"].mean())
            row["half-width, median, %"] = 100 * float(np.median(half))
            if name == "all":
                both = np.exp(np.nanmean(np.log(scores), axis=0))
            elif len(some) < _LEAST_PAIRS:
                both = (math.nan, math.nan)
            else:
                own = winkler(half, apart)
                oracle = winkler(np.quantile(apart, 0.95), apart)
                both = (own / oracle, own / min(winkler(one, apart) for one in apart))
                scores.append(both)
            row["score over the oracle's"], row["score over the best constant's"] = map(float, both)
            add(rows, row)
    write(args, rows)


if __name__ == "__main__":
    main()
