"""Run a command that installs, and say every ten seconds what it does and how long that takes.

    python3 tools/installing.py BUILD COMMAND...

BUILD is the folder in which the command compiles with Ninja, whose lines "[12/110] Building ..."
are counted. What the command prints is shown if it fails.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

INTERVAL_S = 10.0
_STEP = re.compile(r"\[(\d+)/(\d+)\] ")
_OBJECT = re.compile(r"CMakeFiles/\S+\.o\b")
# Kernels, and code with templates of pybind11 or for all operations of a library, take as long as
# this many other objects.
_LONG, _SEVERAL = re.compile(r"/(cpu|gpu)[^/]*\.c|/python/|/backends/ranks/"), 4


def cost(name: str) -> int:
    """Return the time of compiling an object, relative to that of a short one."""
    return _SEVERAL if _LONG.search(name) else 1


class Progress:
    """What a command does, by the lines that it prints.

    Parameters
    ----------
    build : Path
        Folder in which it compiles.
    """

    def __init__(self, build: Path) -> None:
        self._build = build
        self._left: dict[str, int] = {}
        self._begin_s = 0.0
        self._done = self._steps = self._done_cost = 0

    def read(self, text: str, now_s: float) -> None:
        """Take a line that the command prints."""
        step = _STEP.match(text.strip())
        if not step:
            return
        if not self._left:
            rules = (self._build / "build.ninja").read_text()
            names = re.findall(r"^build (CMakeFiles/\S+\.o):", rules, re.MULTILINE)
            self._left = {name: cost(name) for name in names}
            self._begin_s = now_s
        found = _OBJECT.findall(text)
        # Other steps come before the first object, and are counted apart.
        if found or self._steps:
            self._done, self._steps = int(step[1]), int(step[2])
        for name in found:
            self._done_cost += self._left.pop(name, 0)

    def sentence(self, now_s: float) -> str:
        """Return what the command does, and the time left while it compiles."""
        if not self._steps:
            return "preparing to compile"
        if self._done == self._steps:
            return "installing packages"
        what = f"compiled {self._done} of {self._steps} objects"
        if not self._done_cost:
            return what
        # Fewer than all are left if some were compiled before.
        mean = sum(self._left.values()) / max(len(self._left), 1)
        left_s = (now_s - self._begin_s) / self._done_cost * mean * (self._steps - self._done)
        minutes, seconds = divmod(round(left_s), 60)
        return f"{what}, about {minutes}:{seconds:02} left"


def main() -> int:
    """Run the command, and return its exit code."""
    build, *command = sys.argv[1:]
    progress, ended = Progress(Path(build)), threading.Event()

    def tell() -> None:
        while not ended.wait(INTERVAL_S):
            print(f"  {progress.sentence(time.monotonic())}", flush=True)

    teller = threading.Thread(target=tell)
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        teller.start()
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            progress.read(line, time.monotonic())
    ended.set()
    teller.join()
    if process.returncode:
        sys.stdout.writelines(lines)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
