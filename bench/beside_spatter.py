"""Compare memkern's gather and scatter with Spatter 2, in turns.

Spatter is built elsewhere with its own Release flags; this script only runs it::

    python bench/beside_spatter.py --spatter /path/to/spatter suite.json [suite.json ...]

For every suite file and every turn it runs Spatter, Spatter with ``--dense-buffers`` and memkern,
in rotating order, and takes each case's shortest time. The peer of a case is the better of
Spatter's two forms. A ratio is memkern's bandwidth over the peer's; its interval comes from the
turns. "At least as fast" means a geometric mean of at least 1.0 and no case whose 95 % interval
lies wholly below 0.97. With ``--self`` memkern is its own peer, which shows the effect of noise.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from peers import FLOOR, in_turns, judge
from records import Row, add, interval, options, parsed, write

from memkern.statistics import Ratio, geometric_mean, ratio_interval

_ROW = re.compile(r"^(\d+)\s+(\d+)\s+([0-9.e+-]+)\s+([0-9.e+-]+)\s*$")


def run(command: list[str], threads: int) -> tuple[str, float, float]:
    """Return the output, wall seconds and peak resident bytes of a command."""
    env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    if status != 0:
        raise SystemExit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return output, wall, usage.ru_maxrss * 1024.0


def spatter_times(output: str) -> list[float]:
    """Return the shortest time of each configuration that Spatter prints."""
    rows = [match for line in output.splitlines() if (match := _ROW.match(line))]
    return [float(row[3]) for row in rows]


def compared(args: argparse.Namespace, suite: Path) -> tuple[Row, list[Row], list[Ratio]]:
    """Return the row of a suite, the rows of its cases, and memkern's ratios."""
    own = [sys.executable, "-m", "memkern", "spatter", "--json", "-v0", "--pages", args.pages]
    own += ["-t", str(args.threads)]
    plain = [args.spatter, "-b", "openmp", "-t", str(args.threads), "-f", str(suite)]
    peers = [[*own, "-f", str(suite)]] if args.self else [plain, [*plain, "--dense-buffers"]]
    contestants = [[*own, "-f", str(suite)], *peers]
    records: list[dict[str, Any]] = []

    def once(who: int, _: int) -> tuple[list[float], float, float]:
        output, wall, peak = run(contestants[who], args.threads)
        if contestants[who][0] != sys.executable:
            return spatter_times(output), wall, peak
        records[:] = json.loads(output)
        return [record["time_min_s"] for record in records], wall, peak

    found = in_turns(range(len(contestants)), args.turns, once)
    # Seconds by turn and case.
    ours, *others = (np.array([one[0] for one in some]) for some in found.values())
    if any(ours.shape != other.shape for other in others):
        raise SystemExit(f"{suite}: the programs ran different numbers of cases")
    name = f"{suite.parent.name}/{suite.stem}"
    cases: list[Row] = []
    ratios = []
    for case, record in enumerate(records):
        peer = min((other[:, case] for other in others), key=np.median)
        ratios.append(ratio_interval(peer, ours[:, case], paired=True))
        row = {"suite": name, "case": case, "kernel": record["kernel"]}
        row |= {"pattern": str(record["pattern"]), "delta": record["delta"]}
        row |= {"variant": f"{record['variant']}/{record['isa']}"}
        row |= {"memkern, GB/s": record["bytes_B"] / np.median(ours[:, case]) / 1e9}
        row |= {"Spatter, GB/s": record["bytes_B"] / np.median(peer) / 1e9}
        add(cases, row | interval("ratio", ratios[-1]))
    row = {"suite": name, "cases": len(ratios)}
    row |= {"geometric mean": geometric_mean([ratio.ratio for ratio in ratios])}
    row |= {"below": sum(ratio.high < FLOOR for ratio in ratios)}
    for column, unit, scale in ((1, "s", 1.0), (2, "MB", 1e6)):
        own_median, *medians = (
            np.median([one[column] for one in some]) / scale for some in found.values()
        )
        row |= {f"memkern, {unit}": own_median, f"Spatter, {unit}": min(medians)}
    return row, cases, ratios


def main() -> int:
    """Run the comparison, and print and write a row for each suite."""
    parser = options(__doc__, turns=7)
    parser.add_argument("--spatter", help="the peer's executable")
    parser.add_argument("--self", action="store_true", help="memkern against itself")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--pages", default="4k", help="memkern's pages; Spatter has the system's")
    parser.add_argument("suites", nargs="+", type=Path)
    args = parsed(parser)
    rows: list[Row] = []
    cases: list[Row] = []
    ratios: dict[str, Ratio] = {}
    for suite in args.suites:
        row, some, found = compared(args, suite)
        add(rows, row)
        cases += some
        ratios |= {f"{row['suite']}:{case}": ratio for case, ratio in enumerate(found)}
    write(args, rows, cases=cases)
    return 0 if judge(ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
