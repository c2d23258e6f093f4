"""Compare memkern's gather and scatter with Spatter 2, in turns.

For every suite file it runs Spatter, Spatter with ``--dense-buffers`` and memkern, and takes each
case's shortest time. The peer of a case is the better of Spatter's two forms.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from peers import as_fast, beside, in_turns
from records import program

from memkern.statistics import geometric_mean

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


def compared(args: argparse.Namespace, suite: Path) -> Iterator[Any]:
    """Yield the rows of the cases of a suite, and its row."""
    own = [sys.executable, "-m", "memkern", "spatter", "--json", "-v0", "--pages", args.pages]
    own += ["-t", str(args.threads), "-f", str(suite)]
    plain = [args.spatter, "-b", "openmp", "-t", str(args.threads), "-f", str(suite)]
    commands = {"memkern": own, "Spatter": plain, "Spatter, dense": [*plain, "--dense-buffers"]}
    records: list[dict[str, Any]] = []

    def once(who: str) -> tuple[list[float], float, float]:
        output, wall, peak = run(commands[who], args.threads)
        if commands[who] is not own:
            return spatter_times(output), wall, peak
        records[:] = json.loads(output)
        return [record["time_min_s"] for record in records], wall, peak

    found = in_turns(commands, args.turns, once)
    # Seconds by turn and case.
    times = {who: np.array([one[0] for one in some]) for who, some in found.items()}
    if len({some.shape for some in times.values()}) > 1:
        raise SystemExit(f"{suite}: the programs ran different numbers of cases")
    name = f"{suite.parent.name}/{suite.stem}"
    ratios, below = [], 0
    for case, record in enumerate(records):
        row = {"suite": name, "case": case, "kernel": record["kernel"]}
        row |= {"pattern": str(record["pattern"]), "delta": record["delta"]}
        row |= {"variant": f"{record['variant']}/{record['isa']}"}
        theirs = {who: some[:, case] for who, some in times.items()}
        ours, work = theirs.pop("memkern"), record["bytes_B"] / 1e9
        row |= beside("Spatter", "GB/s", {"": ours}, theirs, work)
        ratios.append(row["ratio"])
        below += row["ratio high"] < 0.97
        yield "cases", row
    row = {"suite": name, "cases": len(ratios)}
    row |= {"geometric mean": geometric_mean(ratios), "below": below}
    for column, unit, scale in ((1, "s", 1.0), (2, "MB", 1e6)):
        own_median, *medians = (
            np.median([one[column] for one in some]) / scale for some in found.values()
        )
        row |= {f"memkern, {unit}": own_median, f"Spatter, {unit}": min(medians)}
    yield row


def measured(args: argparse.Namespace) -> Iterator[Any]:
    """Yield the rows of all suites."""
    for suite in args.suites:
        yield from compared(args, suite)


OPTIONS = {
    "suites": {"nargs": "+", "type": Path},
    "--spatter": {"required": True, "help": "the peer's executable"},
    "--threads": os.cpu_count() or 1,
    "--pages": ("4k", "memkern's pages; Spatter has the system's"),
}
main = program(__name__, __doc__, measured, OPTIONS, turns=7, judge=as_fast)
