"""Compare the results of an earlier installation of memkern and of this one on this machine.

    python bench/beside_earlier.py --earlier SITE --turns 8

SITE is a folder with an earlier build of the package (``pip install --target SITE memkern==...``).
Both measure copies of the same sizes in turns, each time in a new process, with one worker and with
all. Rows have, for both: half-widths of intervals, the share that contains the median of the next
turn, the shares of records that are disturbed or have no interval, T0 and Wmax with their
intervals, and the time of a turn.
"""

import itertools
import math
import random
import statistics
import time
from typing import Any

from peers import printed_by
from records import Row, add, options, parsed, write

PROGRAM = """
import json, sys, warnings
import memkern as mk
warnings.simplefilter("ignore")
names = ("bytes_B", "threads", "time_median_s", "ci_relative", "disturbed")
rows, fits = [], {}
for threads in (1, 0):
    how = {"threads": threads, "budget_s": 0.3}
    results = mk.sweep(
        [mk.stream("copy", footprint_B=2**k, **how) for k in range(14, 29, 2)], progress=False
    )
    rows += [{name: record[name] for name in names} for record in results]
    try:
        fit = mk.fit_t0_wmax(results)
        found = [fit.t0_s, *fit.t0_ci_s, fit.wmax_GBps, *fit.wmax_ci_GBps]
    except ValueError:  # too few records are undisturbed
        found = None
    fits[rows[-1]["threads"]] = found
print(json.dumps({"rows": rows, "fits": fits}))
"""
Turn = dict[str, Any]


def one_turn(site: str) -> Turn:
    """Return the results of an installation, and the seconds that it takes."""
    begin = time.perf_counter()
    found = printed_by(site, PROGRAM)
    return {**found, "seconds": time.perf_counter() - begin}


def held(turns: list[Turn], threads: int) -> list[bool]:
    """Return whether the interval of each median contains the median of the next turn."""
    found = []
    for turn, after in itertools.pairwise(turns):
        for row, other in zip(turn["rows"], after["rows"], strict=True):
            if row["threads"] == threads and row["ci_relative"] == row["ci_relative"]:
                ratio = math.log(other["time_median_s"] / row["time_median_s"])
                found.append(abs(ratio) <= math.log1p(row["ci_relative"]))
    return found


def row_of(name: str, turns: list[Turn], threads: int) -> Row:
    """Return a row of the table."""
    rows = [row for turn in turns for row in turn["rows"] if row["threads"] == threads]
    known = [row["ci_relative"] for row in rows if row["ci_relative"] == row["ci_relative"]]
    fits = [fit for turn in turns if (fit := turn["fits"][str(threads)]) is not None]
    t0_us = [1e6 * fit[0] for fit in fits]
    wmax = [fit[3] for fit in fits]
    row: Row = {"version": name, "threads": threads, "records": len(rows)}
    row["half-width, median, %"] = 100 * statistics.median(known) if known else math.nan
    holds = held(turns, threads)
    row["hold the next turn, %"] = 100 * statistics.fmean(holds) if holds else math.nan
    row["without an interval, %"] = 100 * (1 - len(known) / len(rows))
    row["disturbed, %"] = 100 * statistics.fmean(bool(row["disturbed"]) for row in rows)
    row["fits"] = len(fits)
    if len(fits) > 1:
        row["T0, us"], row["T0, turns differ, %"] = statistics.median(t0_us), spread(t0_us)
        row["Wmax, GB/s"], row["Wmax, turns differ, %"] = statistics.median(wmax), spread(wmax)
        row["Wmax, half-width, %"] = statistics.median(50 * (f[5] - f[4]) / f[3] for f in fits)
    row["a turn, s"] = statistics.median(turn["seconds"] for turn in turns)
    return row


def spread(values: list[float]) -> float:
    """Return the standard deviation over the mean in percent."""
    return 100 * statistics.stdev(values) / statistics.fmean(values)


def main() -> None:
    """Measure in turns, print and write rows."""
    parser = options(__doc__, turns=8)
    parser.add_argument("--earlier", required=True, metavar="SITE", help="folder of its package")
    args = parsed(parser)
    sites = {"earlier": args.earlier, "this": ""}
    turns: dict[str, list[Turn]] = {name: [] for name in sites}
    for _ in range(args.turns):
        for name in random.sample(list(sites), 2):
            turns[name].append(one_turn(sites[name]))
    rows: list[Row] = []
    for threads in dict.fromkeys(row["threads"] for row in turns["this"][0]["rows"]):
        for name in sites:
            add(rows, row_of(name, turns[name], threads))
    write(args, rows)


if __name__ == "__main__":
    main()
