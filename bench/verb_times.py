"""Compare the time of whole commands with the time that they announce.

    python bench/verb_times.py --turns 1

Without an announcement a command is expected to take less than three seconds. ``compare`` announces
the remaining time after its first pair, so the time until then is added to its announcement.
"""

import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from records import Row, add, options, parsed, write

SWEEP = '[[case]]\nkernel = "stream.copy"\nelements = [1000, 100000]\n'
COMMANDS = (
    "latency", "latency --quick", "latency loaded", "latency loaded --quick", "latency structure",
    "tune -k stream.copy", "machine",
    "tune -k stream.copy --quick", "spmv hpcg:32 --tune --budget 20", "corun", "corun --quick",
    "doctor", "doctor --quick", "compare --run SWEEP --self", "stream -k copy,triad", "raider",
    "report --quick -o REPORT --force",
)  # fmt: skip


def timed(command: str, folder: Path) -> tuple[float, float]:
    """Return the seconds that a command announces, NaN if none, and the seconds that it takes."""
    words = [{"SWEEP": str(folder / "short.toml"), "REPORT": str(folder / "report.html")}.get(w, w)
             for w in command.split()]  # fmt: skip
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "memkern", *words], capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr.strip().splitlines()[-1]}")
    found = re.search(r"memkern: .*, about (\d+) (s|minutes)$", done.stderr, re.MULTILINE)
    if found is None:
        return float("nan"), seconds
    return float(found[1]) * (60 if found[2] == "minutes" else 1), seconds


def main() -> None:
    """Print and write a row for each command."""
    parser = options(__doc__, turns=1)
    args = parsed(parser)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "short.toml").write_text(SWEEP)
        for command in COMMANDS:
            every = [timed(command, folder) for _ in range(args.turns)]
            announced, took = (statistics.median(values) for values in zip(*every, strict=True))
            row: Row = {"command": command, "announced, s": announced, "took, s": took}
            add(rows, row | {"took over announced": took / announced})
    write(args, rows)


if __name__ == "__main__":
    main()
