"""Compare memkern's gather and scatter with Spatter 2, in turns.

Spatter is built elsewhere with its own Release flags; this script only runs it::

    python bench/beside_spatter.py --spatter /path/to/spatter suite.json [suite.json ...]

For every suite file and every turn it runs Spatter, Spatter with ``--dense-buffers`` and memkern,
in rotating order, and takes each case's shortest time. The peer of a case is the better of
Spatter's two forms. A ratio is memkern's bandwidth over the peer's; its interval comes from the
turns. "At least as fast" means a geometric mean of at least 1.0 and no case whose 95 % interval
lies wholly below 0.97. With ``--self`` memkern is its own peer, which shows what noise alone does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from peers import FLOOR, judge, rotated, with_interval

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


def main() -> int:
    """Run the comparison and print one block a suite."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--spatter", help="the peer's executable")
    parser.add_argument("--self", action="store_true", help="memkern against itself")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--pages", default="4k", help="memkern's pages; Spatter has the system's")
    parser.add_argument("suites", nargs="+", type=Path)
    args = parser.parse_args()
    own = [sys.executable, "-m", "memkern", "spatter", "--json", "-v0", "--pages", args.pages]
    own += ["-t", str(args.threads)]
    ratios_all: dict[str, Ratio] = {}
    for suite in args.suites:
        plain = [args.spatter, "-b", "openmp", "-t", str(args.threads), "-f", str(suite)]
        peers = [[*own, "-f", str(suite)]] if args.self else [plain, [*plain, "--dense-buffers"]]
        contestants = [[*own, "-f", str(suite)], *peers]
        times: list[list[list[float]]] = [[] for _ in contestants]
        walls: list[list[float]] = [[] for _ in contestants]
        peaks: list[list[float]] = [[] for _ in contestants]
        records: list[dict[str, object]] = []
        for turn in range(args.turns):
            for who in rotated(range(len(contestants)), turn):
                output, wall, peak = run(contestants[who], args.threads)
                walls[who].append(wall)
                peaks[who].append(peak)
                if contestants[who][0] == sys.executable:
                    found = json.loads(output)
                    times[who].append([record["time_min_s"] for record in found])
                    records = found if who == 0 else records
                else:
                    times[who].append(spatter_times(output))
        ours, *others = (np.array(t) for t in times)  # (turns, cases)
        if any(ours.shape != other.shape for other in others):
            raise SystemExit(f"{suite}: the programs ran different numbers of cases")
        print(f"\n{suite.name}: {ours.shape[1]} cases, {args.turns} turns, pages {args.pages}")
        ratios = []
        for case, record in enumerate(records):
            medians = [float(np.median(other[:, case])) for other in others]
            peer = others[int(np.argmin(medians))][:, case]
            ratio = ratio_interval(peer, ours[:, case], paired=True)
            ratios.append(ratio.ratio)
            ratios_all[f"{suite.name}:{case}"] = ratio
            print(
                f"  {case:3} {record['kernel']:<21} {str(record['pattern'])[:28]:<28} "
                f"delta {record['delta']:<8} {record['variant']}/{record['isa']:<9} "
                f"{np.median(record['bytes_B'] / ours[:, case]) / 1e9:7.2f} GB/s  "
                f"peer {record['bytes_B'] / min(medians) / 1e9:7.2f}  "
                f"ratio {with_interval(ratio)}"
                f"{'  BELOW' if ratio.high < FLOOR else ''}"
            )
        wall = [float(np.median(w)) for w in walls]
        peak = [float(np.median(p)) for p in peaks]
        print(
            f"  geometric mean {geometric_mean(ratios):.3f}; wall {wall[0]:.2f} s beside "
            f"{min(wall[1:]):.2f} s ({wall[0] / min(wall[1:]):.2f}); peak memory "
            f"{peak[0] / 1e6:.0f} MB beside {min(peak[1:]) / 1e6:.0f} MB"
        )
    return 0 if judge(ratios_all) else 1


if __name__ == "__main__":
    raise SystemExit(main())
