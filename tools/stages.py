"""Run the stages of a command of the Makefile, and say at the end what each took and which failed.

    python3 tools/stages.py FILE run NAME COMMAND...
    python3 tools/stages.py FILE summary [NAME...]
    python3 tools/stages.py FILE slowest >tests/slowest.txt

`run` appends a line to FILE and ends with 0 whatever the command does, so that later stages run as
well. `summary` prints all lines of FILE, or those of some stages, with the slowest tests and those
that failed by the JUnit files in FILE's folder, and ends with the largest exit status. `slowest`
prints the names of the slowest tests, which run first.

Processor time is that of all processes that the stage has started and waited for, "others" that of
all other processes, and stolen time what the hypervisor gave to others.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

COLUMNS = ("stage", "wall_s", "processor_s", "stolen_s", "others_s", "exit_status")
SLOWEST = 30
_TICKS = os.sysconf("SC_CLK_TCK")


def system_s() -> tuple[float, float]:
    """Return seconds of all processors so far: busy with any process, and stolen."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _, _, interrupts, soft_interrupts, stolen = fields
    return (user + nice + system + interrupts + soft_interrupts) / _TICKS, stolen / _TICKS


def run(file: Path, name: str, command: list[str]) -> None:
    """Run a command and append its line to the file."""
    print(f"== {name}: {shlex.join(command)}", flush=True)
    begin, (busy_s, stolen_s) = time.monotonic(), system_s()
    try:
        status = subprocess.run(command).returncode
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        status = 127
    wall_s, (busy_end_s, stolen_end_s) = time.monotonic() - begin, system_s()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = used.ru_utime + used.ru_stime
    # A process that a signal ended has a negative status.
    values = (wall_s, used_s, stolen_end_s - stolen_s, max(busy_end_s - busy_s - used_s, 0.0))
    row = [name, *(f"{value:.1f}" for value in values), status if status >= 0 else 128 - status]
    file.parent.mkdir(parents=True, exist_ok=True)
    new = not file.exists()
    with file.open("a", newline="") as out:
        writer = csv.writer(out)
        if new:
            writer.writerow(COLUMNS)
        writer.writerow(row)


def tests(folder: Path) -> tuple[list[tuple[float, str]], list[str]]:
    """Return seconds and names of the tests in a folder's JUnit files, and those that failed."""
    times, failed = [], []
    for path in sorted(folder.glob("*.xml")):
        for case in ElementTree.parse(path).iter("testcase"):
            place = case.get("classname") or ""
            name = f"{place}.{case.get('name')}" if place != case.get("name") else place
            times.append((float(case.get("time") or 0.0), name))
            if case.find("failure") is not None or case.find("error") is not None:
                failed.append(name)
    return sorted(times, reverse=True), failed


def summary(file: Path, names: list[str]) -> int:
    """Print the stages and their tests, and return the largest exit status."""
    with file.open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if not names or row["stage"] in names]
    times, failed = tests(file.parent)
    print(f"\nThe {min(SLOWEST, len(times))} slowest of {len(times)} tests:")
    for seconds, name in times[:SLOWEST]:
        print(f"{seconds:7.1f} s  {name}")
    width = max(len(row["stage"]) for row in rows)
    print(f"\n{'stage':<{width}}    wall  processors  stolen  others  exit status")
    for row in rows:
        print(
            f"{row['stage']:<{width}}{row['wall_s']:>6} s{row['processor_s']:>10} s"
            f"{row['stolen_s']:>6} s{row['others_s']:>6} s  {row['exit_status']:>11}"
        )
    total = [sum(float(row[column]) for row in rows) for column in COLUMNS[1:5]]
    print("{:<{w}}{:>6.0f} s{:>10.0f} s{:>6.0f} s{:>6.0f} s".format("all", *total, w=width))
    worst = max(int(row["exit_status"]) for row in rows)
    for name in failed:
        print(f"failed: {name}")
    bad = [row["stage"] for row in rows if row["exit_status"] != "0"]
    print(f"failed stages: {', '.join(bad)}" if bad else "every stage passed")
    return worst


def main() -> int:
    """Run a stage or print their summary, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("what", choices=["run", "summary", "slowest"])
    parser.add_argument("words", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if args.what == "summary":
        return summary(args.file, args.words)
    if args.what == "slowest":
        print(*(name for _, name in tests(args.file.parent)[0][:SLOWEST]), sep="\n")
        return 0
    name, *command = args.words
    run(args.file, name, command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
