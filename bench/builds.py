"""Compare other installations of memkern with this one, or with each other: intervals or cycles.

    python bench/builds.py intervals SITE --turns 8

SITE is a folder with an earlier build of the package (``pip install --target SITE memkern==...``).
Both measure copies of the same sizes in turns, each time in a new process, with one worker and with
all. Rows have, for both: half-widths of intervals, the share that contains the median of the next
turn, the shares of records that are disturbed or have no interval, T0 and Wmax with their
intervals, and the time of a turn::

    for level in O1 O2 O3 Ofast; do
      CXXFLAGS=-$level pip install -t builds/$level .
    done
    python bench/builds.py cycles builds/O1 builds/O2 builds/O3 builds/Ofast

In turns, each time in a new process, ``memkern machine incore`` of each build measures loops in L1
and the hopping term in L2 on one core. Rows have the flags that a build's compiler was given,
cycles for a vector, a value or a site and s (the median of the turns, between the least and the
largest), and what the main loop loads and stores beyond the kernel's definition: spills.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
import pandas as pd
from peers import in_turns
from records import Row, program

COPIES = """
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
IN_CORE = """
import json, sys
from memkern.extension import _memkern
from memkern.studies.ecm import measured_in_core
found = measured_in_core(sys.argv[1].split(","), variants=("scalar", "auto", "simd"))
print(json.dumps({"build": _memkern.build()["flags"], "rows": found.rows}))
"""
KERNELS = "loops.sum,loops.daxpy,loops.triad,loops.schoenauer,loops.stencil,dw.hop"
Turn = dict[str, Any]


def printed_by(site: str, program: str, *words: str) -> Turn:
    """Return the JSON that a program prints with the package in a folder ('' for this)."""
    env = {**os.environ, **({"PYTHONPATH": site} if site else {})}
    begin = time.perf_counter()
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        raise SystemExit(done.stderr.strip().splitlines()[-1])
    return {**json.loads(done.stdout), "seconds": time.perf_counter() - begin}


def spread(values: list[float]) -> float:
    """Return the standard deviation over the mean in percent."""
    return 100 * stdev(values) / fmean(values)


def row_of(name: str, turns: list[Turn], threads: int) -> Row:
    """Return the row of an installation's intervals."""
    frame = pd.concat(
        [pd.DataFrame(turn["rows"]) for turn in turns], keys=range(len(turns)), names=["turn"]
    ).query("threads == @threads")
    width = frame["ci_relative"].astype(float)
    following = frame.groupby("bytes_B")["time_median_s"].shift(-1)
    apart = np.abs(np.log(following / frame["time_median_s"]))
    holds = (apart <= np.log1p(width))[following.notna() & width.notna()]
    fits = [fit for turn in turns if (fit := turn["fits"][str(threads)]) is not None]
    t0_us, wmax = [1e6 * fit[0] for fit in fits], [fit[3] for fit in fits]
    row: Row = {"version": name, "threads": threads, "records": len(frame)}
    row["half-width, median, %"] = 100 * float(width.median())
    row["hold the next turn, %"] = 100 * float(holds.mean())
    row["without an interval, %"] = 100 * float(width.isna().mean())
    row["disturbed, %"] = 100 * float(frame["disturbed"].astype(bool).mean())
    row["fits"] = len(fits)
    if len(fits) > 1:
        row["T0, us"], row["T0, turns differ, %"] = median(t0_us), spread(t0_us)
        row["Wmax, GB/s"], row["Wmax, turns differ, %"] = median(wmax), spread(wmax)
        row["Wmax, half-width, %"] = median(50 * (f[5] - f[4]) / f[3] for f in fits)
    return row | {"a turn, s": median(turn["seconds"] for turn in turns)}


def intervals(args: argparse.Namespace) -> Iterator[Row]:
    """Yield rows of this installation beside those of others."""
    sites = {site: site for site in args.sites} | {"this": ""}
    turns = in_turns(sites, args.turns, lambda name: printed_by(sites[name], COPIES))
    for threads in dict.fromkeys(row["threads"] for row in turns["this"][0]["rows"]):
        for name in sites:
            yield row_of(name, turns[name], threads)


def cycles(args: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each body and build."""
    turns = in_turns(args.sites, args.turns, lambda site: printed_by(site, IN_CORE, args.kernels))
    for first in turns[args.sites[0]][0]["rows"]:
        body = {name: first[name] for name in ("kernel", "layout", "variant", "isa")}
        for every in turns.values():
            found = [row for turn in every for row in turn["rows"] if body.items() <= row.items()]
            if not found:
                continue
            of_turns = [row["in_core_cycles"] for row in found]
            row: Row = {"kernel": f"{body['kernel']} {body['layout']}".strip()}
            row["variant"] = f"{body['variant']}/{body['isa']}"
            row |= {"flags": every[0]["build"], "unit": found[0]["in_core_unit"]}
            row |= {"cycles": median(of_turns)}
            row |= {"cycles low": min(of_turns), "cycles high": max(of_turns)}
            row["spilled loads, B"] = found[0]["surplus_load_B"]
            yield row | {"spilled stores, B": found[0]["surplus_store_B"]}


WHAT = {"intervals": intervals, "cycles": cycles}
OPTIONS = {
    "what": {"choices": tuple(WHAT), "help": "that is compared"},
    "sites": {"nargs": "+", "metavar": "SITE", "help": "folder of a build"},
    "--kernels": (KERNELS, "of cycles: names with commas between them"),
}
main = program(__doc__, lambda args: WHAT[args.what](args), OPTIONS, turns=7)

if __name__ == "__main__":
    raise SystemExit(main())
