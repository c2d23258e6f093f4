"""How far one command reaches: functions, modules, and changes from one module to another.

    python tools/calls.py [--list] [stream -k triad -n 1024]

runs a command of memkern in this process under `sys.setprofile`. It counts the functions of memkern
that are entered between the start of the command line and its end (with the bodies of modules and
classes, told apart by file and name), the modules in which they are, and how often the module
changes from one entered function to the next. Numbers depend somewhat on the machine: disturbed
samples are taken again.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections import Counter
from types import FrameType
from typing import Any

COMMAND = ["stream", "-k", "triad", "-n", "1024"]


class Calls:
    """Functions of a package that are entered, by file and name.

    Parameters
    ----------
    folder : str
        Of the package.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder + os.sep
        self.functions: Counter[tuple[str, str]] = Counter()
        self.changes: Counter[tuple[str, str]] = Counter()
        self._last = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count an event of `sys.setprofile`."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(self._folder):
            return
        file = code.co_filename[len(self._folder) :]
        self.functions[file, code.co_name] += 1
        if self._last and file != self._last:
            self.changes[self._last, file] += 1
        self._last = file

    @property
    def modules(self) -> set[str]:
        """The files of the functions."""
        return {file for file, _ in self.functions}


def main() -> int:
    """Run a command, and print the three numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the functions by module, too")
    options, words = parser.parse_known_args()
    found = importlib.util.find_spec("memkern")
    assert found is not None and found.origin is not None
    calls = Calls(os.path.dirname(found.origin))
    from memkern.cli import main as command

    sys.setprofile(calls)
    try:
        code = command(words or COMMAND)
    finally:
        sys.setprofile(None)
    if options.list:
        for file in sorted(calls.modules):
            names = {name: n for (where, name), n in calls.functions.items() if where == file}
            print(f"{file}: {', '.join(f'{name} {n}' for name, n in sorted(names.items()))}")
        for (before, after), times in calls.changes.most_common(40):
            print(f"{times:6} {before} -> {after}")
    print(
        f"{len(calls.functions)} functions in {len(calls.modules)} modules, "
        f"{calls.changes.total()} changes of module"
    )
    return code


if __name__ == "__main__":
    raise SystemExit(main())
